/* SPDX-License-Identifier: MIT
 *
 * check.h: validation of a raw call, cheap to costly and whole before anything is written.
 * check_args looks at scalars, presence and geometry; check_rows at lengths, slots and tables, and
 * leaves the rows of a plan. */
#ifndef PKV_ATTN_CHECK_H
#define PKV_ATTN_CHECK_H

#include "attn/workspace.h"

enum call_kind { CALL_GQA, CALL_APPEND, CALL_READ_ONLY };

/* A call with its defaults filled in. */
struct call {
    const struct pkv_gqa_args *args;
    bool attends; /* q is there */
    bool appends; /* k is there and goes into a cache */
    struct pkv_kv_view past;
    struct pkv_kv_view present;
    struct pkv_kv_view
        cache; /* what is attended: past, present, or (NONE) the call's own k and v */
    struct gqa_shape shape;
    size_t q_stride, k_stride, v_stride, out_stride;
};

/* Steps 1 to 4 of the validation order: everything that takes no walk over arrays. */
enum pkv_status check_args(const struct pkv_gqa_args *args, enum call_kind kind, struct call *call);

/* Step 10: pointers that a run needs, and their overlaps. */
enum pkv_status check_pointers(const struct call *call);

/* Steps 5 to 9. rows [batch] are filled in and mean nothing after a refusal. */
enum pkv_status check_rows(pkv_workspace *workspace, const struct call *call, struct gqa_row *rows,
                           struct call_extent *extent);

/* The planes and the mask of a call against what its rows reach. */
enum pkv_status check_extent(const struct pkv_gqa_args *args, const struct call_extent *extent);

#endif
