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

/* The same unit for every range of its num_heads heads. */
bool plan_push_units(pkv_workspace *workspace, pkv_plan *plan, struct unit unit);

/* KV heads that one unit should take: a divisor of kv_heads, as many as keep its query rows within
 * what the cache holds and its cost (of one span and head) within the limit. */
int32_t plan_heads(const pkv_plan *plan, int64_t rows, int64_t cost);

#endif
