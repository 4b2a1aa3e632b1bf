/* SPDX-License-Identifier: MIT
 *
 * state_step.h: what the step takes for its rows in one state group. Its life is that of a
 * reservation (reservation.h):
 *
 *   decide -> (cancel)             a row that does not fit, or a dry run
 *   decide -> take -> keep         commit
 *   decide -> take -> undo         abort, or a row of which nothing is kept
 *
 * A row must have a block for the state after each of its last max_rewind + 1 tokens. With a
 * max_rewind of 0 that is its newest state, in place, if nobody else may need that. States between,
 * which are to become snapshots, are taken of what is spare once all rows have theirs, so no row
 * waits for them.
 *
 * In place means that the state before the step is gone once the caller has written. A step that is
 * shown (pkv_step_describe_states) counts as written.
 *
 * It knows the step and the group, not the cache. The mutex is held. O(tokens of the row). */
#ifndef PKV_RUNTIME_STATE_STEP_H
#define PKV_RUNTIME_STATE_STEP_H

#include "runtime/sequence.h"
#include "runtime/state_list.h"
#include "runtime/step.h"

/* Decides a row; a tree of drafts has at most max_rewind + 1 tokens. Returns the verdict
 * (shortage.h) after `before`; what it takes is planned by state_step_plan alone, with sign 1, and
 * -1 to undo that. */
enum pkv_status state_step_decide(const struct step *step, struct state_group *states, int32_t row,
                                  int32_t max_rewind, enum pkv_status before,
                                  struct pkv_shortage *shortage);
void state_step_plan(const struct step *step, struct state_group *states, int32_t row, int sign);

/* Takes what its rows need, then the snapshots for which there is room, in a cache whose sequences
 * are `seqs`. */
void state_step_take(const struct step *step, struct state_group *states,
                     const struct seq_records *seqs);

/* The first num_keep writes of a row become those of these tokens, ascending numbers in the row. */
void state_step_move(const struct step *step, struct state_group *states, int32_t row,
                     const int32_t *path, int32_t num_keep);

/* Ends a row: nothing of it is kept, or its sequence, which may go back max_rewind tokens, keeps
 * its first num_keep tokens, 0 < num_keep. */
void state_step_undo(const struct step *step, struct state_group *states, int32_t row);
void state_step_keep(const struct step *step, struct state_group *states, int32_t row,
                     int32_t num_keep, int32_t max_rewind);

/* PKV_INVALID_ARGUMENT, when num_keep of a row's tokens leave it without a state. */
enum pkv_status state_step_check_keep(const struct step *step, const struct state_group *states,
                                      int32_t row, int32_t num_keep);

/* The state after `length` tokens of a row that is being kept, NO_BLOCK when there is none. */
int32_t state_step_find(const struct step *step, const struct state_group *states, int32_t row,
                        int32_t length);

/* Is a state of so many tokens to become a snapshot, in a prompt whose last one is due at
 * snapshot_at? */
bool state_step_is_snapshot(const struct state_group *states, int32_t length, int32_t snapshot_at);

#endif
