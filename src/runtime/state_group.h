/* SPDX-License-Identifier: MIT
 *
 * state_group.h: a state group: recurrent layers, of which each keeps one state of fixed bytes for
 * a sequence. A state of all layers is a block of the group's pool, with a page that holds one cell
 * of state_bytes; so it is shared, cached and evicted as blocks of keys are.
 *
 * A sequence has a short list of states, each for one of its lengths (state_list.h). The group's
 * number in the prefix index is that in the caller's configuration: state groups follow the others.
 *
 *   reads of a step: block num_blocks, which is in no pool, is the state of zeros */
#ifndef PKV_RUNTIME_STATE_GROUP_H
#define PKV_RUNTIME_STATE_GROUP_H

#include "base/carve.h"
#include "runtime/block.h"
#include "runtime/config.h"

/* The state of a sequence after its first `length` tokens, > 0. */
struct state_entry {
    int32_t length;
    int32_t block;
    bool slides; /* it is part of the promise (state_list.h) */
};

/* What a sequence has in a state group: the states at entries [0, count), by rising length, the
 * last one at the sequence's length unless that is 0 or the state was lost.
 *
 *   bound = blocks that are promised to it, those that it has among them; 0 = not admitted
 *   owed <= bound: those of them that it has not taken
 *   num_away > 0: swapped out; it has no states and no promise, but entries [0, num_away) have the
 *                 lengths, and bound and snapshot_at are those, that it is to have again
 *   snapshot_at = where its prompt's last snapshot is due, or 0 */
struct state_group_list {
    int32_t count;
    int32_t num_away;
    int32_t bound;
    int32_t owed;
    int32_t snapshot_at;
};

/* What the open step has: [max_step_rows] and [max_step_tokens]. */
struct state_group_step {
    int32_t *reads;    /* the block that a row begins with */
    int32_t *writes;   /* the block that the state after a token goes to; NO_BLOCK = none */
    int32_t *num_new;  /* blocks that a row must take */
    bool *in_place;    /* the row's last write is the block that it reads, and its newest */
    int32_t num_spare; /* blocks beyond promises that the rows decided so far will take */
    bool is_shown;     /* the caller may have written */
    int32_t keeping;   /* the row that a commit is keeping, or -1 */
};

/* Constant after create: everything but the content of lists, blocks, total_promised (the mutex)
 * and step, which is the open step's. */
struct state_group {
    const struct pkv_group_config *config; /* as in force */
    int32_t index;                         /* in the caller's groups, and in the prefix index */
    int32_t num_layers;
    int32_t max_entries; /* of a list */
    struct block_set blocks;
    struct state_group_list *lists; /* [max_seqs] */
    struct state_entry *entries;    /* [max_seqs][max_entries] */
    int64_t total_promised;
    unsigned char *first_layer;
    size_t state_stride_bytes;
    size_t layer_stride_bytes;
    struct state_group_step step;
    /* scratch: of the admission at hand */
    int32_t demand_bound;
};

static inline struct state_entry *state_entries(const struct state_group *states, int32_t seq)
{
    return states->entries + (size_t)seq * (size_t)states->max_entries;
}

/* The arrays of a group of a checked config. */
void state_group_carve(const struct pkv_cache_config *config, const struct config_group *of,
                       struct state_group *states, struct carver *carver);

/* What it takes beside its arrays is added to *sizes. PKV_INVALID_ARGUMENT when that overflows. */
enum pkv_status state_group_add_sizes(const struct config_group *of, int32_t index,
                                      struct pkv_cache_sizes *sizes);

/* Builds group `index` of the configuration; *states was carved. PKV_NO_MEMORY; free it in either
 * case. */
enum pkv_status state_group_build(struct state_group *states, int32_t index,
                                  const struct pkv_cache_config *config,
                                  const struct config_group *of, const struct pkv_hooks *hooks);
void state_group_free(struct state_group *states);

#endif
