/* SPDX-License-Identifier: MIT
 *
 * selection.h: lists of selected blocks, as a caller gives them for the rows of a plan. */
#ifndef PKV_ATTN_SELECTION_H
#define PKV_ATTN_SELECTION_H

#include "attn/gqa_row.h"

/* The fields of struct pkv_gqa_args, with their rows. */
struct selection {
    const int32_t *selected;
    const int32_t *cu_selected;
    int32_t num_lists; /* num_rows, or as many for each row */
    int32_t num_rows;
};

/* Checks the lists entry by entry, in blocks of shape->selection_size keys, and lets the rows point
 * to them. num_rows > 0. PKV_INVALID_ARGUMENT. O(blocks listed). */
enum pkv_status selection_check(const struct selection *selection, const struct gqa_shape *shape,
                                struct gqa_row *rows);

/* Copies checked lists into the plan, whose rows then point there: a plan does not refer to the
 * caller's lists. PKV_NO_MEMORY. */
enum pkv_status selection_copy(const struct selection *selection, pkv_plan *plan);

#endif
