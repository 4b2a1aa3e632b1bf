/* SPDX-License-Identifier: MIT
 *
 * split.h: the work of a plan's rows, cut into tasks for its threads. */
#ifndef PKV_ATTN_SPLIT_H
#define PKV_ATTN_SPLIT_H

#include "attn/plan.h"

/* Fills everything of the plan but rows, num_rows, shape and call, which are given. PKV_NO_MEMORY;
 * PKV_INVALID_ARGUMENT for more tasks than an int32_t counts. O(rows + tasks + table entries). */
enum pkv_status split_plan(pkv_plan *plan);

#endif
