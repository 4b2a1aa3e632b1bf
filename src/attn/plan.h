/* SPDX-License-Identifier: MIT
 *
 * plan.h: what the two files that split work share. */
#ifndef PKV_ATTN_PLAN_H
#define PKV_ATTN_PLAN_H

#include "attn/workspace.h"

/* Appends one item to a list of the plan; false when there is no memory. */
bool plan_push(pkv_workspace *workspace, struct buffer *list, int32_t *count, const void *item,
               size_t item_bytes);

/* Query heads of a KV head, the most that any layer of the plan has. */
static inline int32_t plan_group(const pkv_plan *plan)
{
    return plan->shape.max_heads / plan->shape.kv_heads;
}

/* Fills plan->shares, one a row, and makes the units that several rows share. O(rows + table
 * entries compared). */
bool plan_share_rows(pkv_workspace *workspace, pkv_plan *plan);

#endif
