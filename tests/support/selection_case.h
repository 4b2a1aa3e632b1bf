/* SPDX-License-Identifier: MIT
 *
 * selection_case.h: selected blocks of a gqa_case, drawn from its seed, and the same said by a
 * mask. */
#ifndef PKV_TEST_SELECTION_CASE_H
#define PKV_TEST_SELECTION_CASE_H

#include "support/gqa_case.h"

/* Lists as the spec wants them; none when its selection_size is 0. */
void selection_case_add(struct gqa_case *c);

/* Takes the lists away, and makes a mask for every query head of all that the case's queries see.
 */
void selection_case_to_mask(struct gqa_case *c);

/* The lists of row 0, cut to what a row of `end` keys may list. */
enum { SELECTION_MAX_LISTS = 16, SELECTION_MAX_BLOCKS = 4096 };
struct selection_cut {
    int32_t cu[SELECTION_MAX_LISTS + 1];
    int32_t blocks[SELECTION_MAX_BLOCKS];
};
void selection_case_cut(const struct gqa_case *c, int32_t end, struct selection_cut *cut,
                        struct pkv_gqa_args *args);

#endif
