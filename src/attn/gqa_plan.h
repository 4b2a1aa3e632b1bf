/* SPDX-License-Identifier: MIT
 *
 * gqa_plan.h: planning behind the validation of attn.h: rows first, then their split. Raw calls do
 * both after they checked everything; the runtime, whose tables the library built, does them
 * directly. */
#ifndef PKV_ATTN_GQA_PLAN_H
#define PKV_ATTN_GQA_PLAN_H

#include "attn/gqa_row.h"
#include "attn/gqa_shape.h"
#include "pagedkv/attn.h"

/* Room for num_rows rows, whose content the caller then fills; the plan's earlier content is gone.
 * NULL when there is no memory. */
struct gqa_row *gqa_plan_rows(pkv_workspace *workspace, pkv_plan *plan, int32_t num_rows);

/* Splits the work of the rows just filled, and grows what its runs need. PKV_NO_MEMORY;
 * PKV_INVALID_ARGUMENT for more tasks than an int32_t counts. O(rows + tasks + table entries). */
enum pkv_status gqa_plan_split(pkv_workspace *workspace, pkv_plan *plan,
                               const struct gqa_shape *shape);

/* Keys that one layer by this plan reads: once for each chunk of queries and KV head, and once for
 * all rows that share them. */
int64_t gqa_plan_read_keys(const pkv_plan *plan);

#endif
