/* SPDX-License-Identifier: MIT
 *
 * config.h: what follows from a configuration that passed config_check: bounds in force, groups
 * with every field filled in, and how many blocks a byte budget gives each of them. Nothing here
 * takes memory, so that sizes are known before anything is allocated, and create uses the very same
 * functions. */
#ifndef PKV_RUNTIME_CONFIG_H
#define PKV_RUNTIME_CONFIG_H

#include "base/checked.h"
#include "pagedkv/cache.h"
#include "pagedkv/pages.h"
#include "runtime/handle.h"

#define CONFIG_MAX_SEQS (1 << HANDLE_INDEX_BITS)

/* Groups of a cache with prefix_cache. */
#define CONFIG_MAX_PREFIX_GROUPS 64

#define CONFIG_MAX_TIER_THREADS 64
#define CONFIG_MAX_TICKETS (1 << 16)

/* A byte budget shared out over the groups whose num_blocks is 0:
 *
 *   shared_bytes = bytes - payload of the groups that are fixed
 *   needed_bytes = what max_seqs sequences of max_seq_len tokens need in the groups that are not
 *   cached_bytes = what as many more take that are cached */
struct config_budget {
    size_t shared_bytes;
    size_t needed_bytes;
    size_t cached_bytes;
};

/* A group with v_width, window, kept prefix, block_size and num_blocks as they are in force. */
struct config_group {
    struct pkv_group_config config;
    int32_t num_owners; /* layers that own pages in it, or keep states */
    int32_t max_blocks; /* entries of one block table; 0 for a continuous or a state group */
};

/* State groups, which stand behind the attention groups: in force, num_groups counts these alone.
 * Each has a layer. O(layers). */
int32_t config_num_states(const struct pkv_cache_config *config);

/* Is layer i one of a state group, of a config in force? */
static inline bool config_is_state_layer(const struct pkv_cache_config *config, int32_t i)
{
    return config->layers[i].group >= config->num_groups;
}

/* States that a sequence which may go back max_rewind tokens needs at once. */
static inline int32_t config_num_own_states(bool has_snapshots, int32_t max_rewind)
{
    return max_rewind == 0 && !has_snapshots ? 1 : 2 * (max_rewind + 1);
}

/* Layers that own pages in group g. */
int32_t config_num_owners(const struct pkv_cache_config *config, int32_t g);

/* The tokens of a node of the prefix index: the smallest block_size of the groups, all of which are
 * paged. O(groups). */
int32_t config_node_tokens(const struct pkv_cache_config *config);

/* Nodes that a block of the group spans. O(groups). */
int32_t config_nodes_per_block(const struct pkv_cache_config *config, int32_t g);

/* Is a group continuous? Its slots are shared by nobody, so no prompt can be hit. O(groups). */
bool config_has_slots(const struct pkv_cache_config *config);

/* Groups of different block sizes under one prefix cache? O(groups). */
bool config_is_mixed(const struct pkv_cache_config *config);

/* The least tokens of which each paged attention group has whole blocks: hits end at multiples.
 * INT32_MAX when it is more. O(groups). */
int32_t config_hit_tokens(const struct pkv_cache_config *config);

/* The config as it is in force: max_step_rows, prefix_cache, no_partial_hits, what tiers need, and
 * num_groups without the state groups. */
struct pkv_cache_config config_resolve(const struct pkv_cache_config *config);

/* Group g with all that is in force but num_blocks, which a budget may decide. */
struct pkv_group_config config_resolve_group(const struct pkv_cache_config *config, int32_t g);

/* Sets up the sharing of `bytes`. all_fit: refuse also when fixed groups alone pass the budget.
 * PKV_NEVER_FITS, or PKV_INVALID_ARGUMENT for a product that overflows. */
enum pkv_status config_share(const struct pkv_cache_config *config, size_t bytes, bool all_fit,
                             struct config_budget *budget);

/* Group g, its blocks from the budget when it is not fixed. PKV_NEVER_FITS when that gives none. */
enum pkv_status config_group_of(const struct pkv_cache_config *config,
                                const struct config_budget *budget, int32_t g,
                                struct config_group *group);

/* The page store that a group needs. */
struct pkv_page_geometry config_geometry(const struct config_group *group);

/* Blocks that a sequence of num_cells tokens holds at once in a paged group: all of them, or in a
 * window group what a row can see and write in one step, with the kept prefix beside it. */
int32_t config_blocks_for(const struct pkv_group_config *group, int32_t max_step_tokens,
                          int64_t num_cells, int64_t kept_prefix, int64_t max_rewind);

static inline int32_t config_blocks_of_cells(int64_t num_cells, int32_t block_size)
{
    return (int32_t)divide_up(num_cells, block_size);
}

#endif
