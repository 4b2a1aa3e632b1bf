/* SPDX-License-Identifier: MIT
 *
 * step_row.h: one row of the step over all paged groups: its reservations, and what they mean for
 * its sequence and for the quotas of its namespace. A row is decided in every group or in none.
 *
 *   num_planned of a group = sum of spare blocks taken over the rows decided
 *   charged of a decided row's table = seq_table_charge where its reservation ends
 *
 * The mutex is held. O(groups + blocks touched). */
#ifndef PKV_RUNTIME_STEP_ROW_H
#define PKV_RUNTIME_STEP_ROW_H

#include "runtime/cache.h"

/* Decides a row. PKV_NO_BLOCKS, PKV_NEVER_FITS: nothing is changed, *shortage says why. */
enum pkv_status step_row_decide(pkv_cache *cache, int32_t row, struct pkv_shortage *shortage);

/* Takes the decision back. The rows decided after this one were cancelled before it. */
void step_row_cancel(pkv_cache *cache, int32_t row);

/* Ends a row that was taken: nothing of it is kept, or its first num_keep tokens, 0 < num_keep. */
void step_row_undo(pkv_cache *cache, int32_t row);
void step_row_keep(pkv_cache *cache, int32_t row, int32_t num_keep);

#endif
