/* SPDX-License-Identifier: MIT
 *
 * reservation.h: what the step takes for one row in one paged group. Its life:
 *
 *   decide -> cancel                 a row that does not fit, or a dry run
 *   decide -> take -> keep           commit
 *   decide -> take -> undo           abort, or a row of which nothing is kept
 *
 * Deciding changes nothing but who writes the row's tail block, so that cancel leaves even the
 * order of the free blocks as it was. Taking cannot fail: what a row takes within its promise stays
 * free for it, and of the blocks that were promised to nobody all rows decided take
 *
 *   sum of spare blocks taken = step.num_planned <= seq_table_num_spare
 *
 * It knows the step and the group, not the cache. The mutex is held. O(blocks touched). */
#ifndef PKV_RUNTIME_RESERVATION_H
#define PKV_RUNTIME_RESERVATION_H

#include "runtime/group.h"

/* The step's arrays of one group, of a checked config. */
void reservation_carve(const struct pkv_cache_config *config, bool is_paged,
                       struct step_group *step, struct carver *carver);

/* Where the table of a decided row ends once its blocks are taken. */
static inline int32_t reservation_end(const struct step_reservation *reservation)
{
    return reservation->end_before + reservation->num_new;
}

/* Spare blocks that a decided row takes: those past its promise. A copy is one, but for that of a
 * hit that ends inside a block. */
int32_t reservation_num_spare(const struct step_reservation *reservation,
                              const struct promise *promise);

/* A row will be decided: what is known of its tail block, or of the block behind its last, is
 * loaded. Blocks of different sequences lie far apart. */
void reservation_prefetch(const struct step *step, const struct group *group, int32_t row);

/* Decides a row. Returns the verdict (shortage.h) after `before`; whatever it is, the row is
 * decided, and its owner cancels it when the verdict is not PKV_OK. */
enum pkv_status reservation_decide(const struct step *step, struct group *group, int32_t row,
                                   enum pkv_status before, struct pkv_shortage *shortage);
void reservation_cancel(const struct step *step, struct group *group, int32_t row);

/* Maps the row's new blocks, and notes the copy that its layers make. */
void reservation_take(const struct step *step, struct group *group, int32_t row);

/* Puts the table back to what it was before the step. */
void reservation_undo(const struct step *step, struct group *group, int32_t row);

/* The sequence has `length` tokens from now on: releases the new blocks that they do not reach, and
 * the step's reference to the block that was copied. */
void reservation_keep(const struct step *step, struct group *group, int32_t row, int32_t length);

#endif
