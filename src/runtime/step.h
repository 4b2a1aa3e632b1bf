/* SPDX-License-Identifier: MIT
 *
 * step.h: the state of the one step of a cache, what the open step has in each group, and handles
 * of steps. It knows blocks, but neither groups nor the cache. The files of the step, each using
 * only those above it:
 *
 *   step         this file
 *   shortage     the verdict on what is wanted: it fits, not now, or never
 *   reservation  what a row takes in one group: decided, taken, kept or undone
 *   step_row     a row over all groups
 *   batch        a caller's batch, checked and resolved into rows
 *   step_plan    the attention plan of each group
 *   step_begin   pkv_step_begin and its dry run, pkv_step_fits
 *   step_path    the paths of draft trees that a commit keeps
 *   step_end     pkv_step_commit, pkv_step_commit_path, pkv_step_abort
 *   step_select  lists of selected blocks of one layer
 *   step_layer   one layer of the open step, checked
 *   step_attend  pkv_step_attend
 *   step_tasks   pkv_step_layer_begin and what runs its tasks
 *   step_view    pkv_step_describe */
#ifndef PKV_RUNTIME_STEP_H
#define PKV_RUNTIME_STEP_H

#include <stdatomic.h>

#include "base/carve.h"
#include "pagedkv/attn.h"
#include "pagedkv/step.h"
#include "runtime/block.h"

/* What the step takes for one row in one paged group (reservation.h). The tail is the block of the
 * row's first new cell.
 *
 *   blocks taken = num_new + (copied_from != NO_BLOCK)
 *   copied_from = NO_BLOCK, or the block that the tail entry named before; the reference of that
 *   entry is the step's until it ends, so that the block's count is unchanged */
struct step_reservation {
    int32_t end_before; /* of the table */
    int32_t num_new;    /* blocks taken past it */
    int32_t copied_from;
    int32_t tail_block; /* the block whose writer changed */
    enum block_writer_change writer_change;
    bool uncaches_tail; /* the tail has a node, no block is left to copy it to: write in place */
    bool was_promised;  /* the copy, and it is no longer since it was taken */
};

/* What the open step has in one group, [max_step_rows] each. The mutex guards it while no step is
 * open; then it is constant until commit or abort.
 *
 *   paged:       reservations, copies [num_copies], publishing [step.num_publishing]: the blocks of
 *                step.publishing, NO_BLOCK where none is mapped
 *   continuous:  slot_ids */
struct step_group {
    struct step_reservation *reservations;
    struct pkv_page_copy *copies;
    int32_t num_copies;
    int32_t *publishing;
    int32_t num_planned; /* spare blocks that the rows decided so far will take */
    int32_t *slot_ids;
    int64_t *kept_prefix;
    pkv_plan *plan;
};

/* A sequence of the step that fills block number `entry`, the node that the block's goes under, and
 * where the index looks for that (publish.h). */
struct step_publishing {
    int32_t seq;
    int32_t entry;
    struct prefix_ref above;
    uint32_t bucket;
};

/* The one step. The mutex guards it while no step is open; then it is constant until commit or
 * abort.
 *
 *   cu_seqlens[i + 1] - cu_seqlens[i] = new tokens of row i,  cu_seqlens[num_rows] = num_tokens
 *   kv_lens[i] = length of its sequence + those
 *   ranges [cu_ranges[i], cu_ranges[i + 1]) = bidirectional ranges of row i, of those tokens
 *   parents, depths of row i's tokens from cu_seqlens[i] on (attn/tree.h), if has_parents */
struct step {
    uint64_t generation;
    bool is_open;
    bool has_position_ids;
    bool has_parents;
    int32_t num_rows;
    int32_t num_tokens;
    int32_t *seqs;                  /* [max_step_rows] sequence indices, the rows of the tables */
    int32_t *cu_seqlens;            /* [max_step_rows + 1] */
    int32_t *kv_lens;               /* [max_step_rows] */
    int64_t *position_ids;          /* [max_step_tokens] */
    struct pkv_token_range *ranges; /* [max_step_tokens] */
    int32_t *cu_ranges;             /* [max_step_rows + 1] */
    int32_t *parents;               /* [max_step_tokens] */
    int32_t *depths;                /* [max_step_tokens] */

    /* Hints of publish_expect: sequences that will publish, unless not all is kept. */
    struct step_publishing *publishing; /* [max_step_rows] */
    int32_t num_publishing;

    /* The layer that pkv_step_layer_begin began, and those of its tasks that have not run: the last
     * one marks it attended. Written by the threads that run tasks. */
    int32_t layer_begun;
    int64_t keys_begun; /* that it reads, see gqa_plan_read_keys */
    atomic_int tasks_left;
};

/* The step's arrays, of a checked config. */
void step_carve(const struct pkv_cache_config *config, struct step *step, struct carver *carver);

/* The handle of the open step. */
pkv_step step_handle(const struct step *step);

/* PKV_STALE_HANDLE unless the handle names the step that is open. */
enum pkv_status step_check(const struct step *step, pkv_step handle);

/* PKV_INVALID_ARGUMENT while a layer that was begun has tasks left: until they have run, neither
 * may its blocks be released nor another layer begin. */
enum pkv_status step_check_no_tasks(const struct step *step);

/* New tokens of a row. */
static inline int32_t step_q_len(const struct step *step, int32_t row)
{
    return step->cu_seqlens[row + 1] - step->cu_seqlens[row];
}

/* Committed tokens of a row's sequence. */
static inline int32_t step_length_before(const struct step *step, int32_t row)
{
    return step->kv_lens[row] - step_q_len(step, row);
}

#endif
