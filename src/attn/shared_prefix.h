/* SPDX-License-Identifier: MIT
 *
 * shared_prefix.h: rows that begin with the same blocks read them once (also known as cascade
 * attention). */
#ifndef PKV_ATTN_SHARED_PREFIX_H
#define PKV_ATTN_SHARED_PREFIX_H

#include "attn/plan.h"

/* Fills plan->shared, one a row, and pushes the tasks of spans that several rows share. The plan's
 * cost limit is set. false when there is no memory. O(rows + table entries compared). */
bool shared_prefix_split(pkv_plan *plan);

#endif
