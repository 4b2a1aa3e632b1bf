/* SPDX-License-Identifier: MIT
 *
 * group.h: a layer group: the layers with one geometry, window and block table. It composes the
 * group's pages with its blocks and block tables (paged) or its slots (continuous). */
#ifndef PKV_RUNTIME_GROUP_H
#define PKV_RUNTIME_GROUP_H

#include "attn/gqa_shape.h"
#include "base/carve.h"
#include "runtime/config.h"
#include "runtime/seq_table.h"
#include "runtime/sequence.h"
#include "runtime/step.h"

/* Constant after create: everything but the contents of blocks, tables and slots (the mutex) and of
 * step, which is the open step's. slots is NULL exactly when blocks has a pool. */
struct group {
    const struct pkv_group_config *config; /* as in force */
    int32_t index;
    int32_t num_owners;
    int32_t nodes_per_block; /* of the prefix index, that a block spans; 1 without one */
    struct gqa_shape shape;
    struct block_set blocks;
    struct seq_table_set tables;
    pkv_slots *slots;
    struct pkv_kv_view first_view; /* of the first layer that owns pages */
    size_t layer_stride_bytes;     /* from there to the next one's */
    struct step_group step;
    struct seq_table_demand demand; /* scratch: of the admission at hand */
};

static inline bool group_is_paged(const struct group *group)
{
    return group->blocks.pool != NULL;
}

/* The entry of a table that ends with node i of a prefix; -1: none does. */
static inline int32_t group_entry_of_node(const struct group *group, int32_t i)
{
    const int32_t span = group->nodes_per_block;
    return span == 1 ? i : (i + 1) % span == 0 ? i / span : -1;
}

/* The node with which an entry ends: the one that has the entry's block. */
static inline int32_t group_node_of_entry(const struct group *group, int32_t entry)
{
    return (entry + 1) * group->nodes_per_block - 1;
}

/* Tokens of so many nodes. */
static inline int32_t group_tokens_of_nodes(const struct group *group, int32_t num_nodes)
{
    return num_nodes * (group->config->block_size / group->nodes_per_block);
}

/* The tokens that a sequence of this group always sees. */
static inline int32_t group_kept_prefix(const struct group *group, const struct seq *seq)
{
    return seq->kept_prefix >= 0 ? seq->kept_prefix : (int32_t)group->config->kept_prefix;
}

/* Adds what group `index` takes, beside its arrays, to *sizes. PKV_INVALID_ARGUMENT when that
 * overflows. */
enum pkv_status group_add_sizes(const struct pkv_cache_config *config, int32_t index,
                                const struct config_group *of, struct pkv_cache_sizes *sizes);

/* The arrays of a group. */
void group_carve(const struct pkv_cache_config *config, const struct config_group *of,
                 struct group *group, struct carver *carver);

/* Builds group `index` of a zeroed array. Its config, which must live as long, is that of `of`.
 * PKV_NO_MEMORY; free it in either case. */
enum pkv_status group_build(struct group *group, int32_t index,
                            const struct pkv_cache_config *config, const struct config_group *of,
                            const struct pkv_hooks *hooks);
void group_free(struct group *group, const struct pkv_hooks *hooks);

/* A continuous group: a slot for a sequence, and back. There are as many slots as sequences, and a
 * sequence releases its own with its index, so a claimed index finds one. */
void group_claim_slot(struct group *group, int32_t seq);
void group_release_slot(struct group *group, int32_t seq);

#endif
