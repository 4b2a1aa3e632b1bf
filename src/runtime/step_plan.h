/* SPDX-License-Identifier: MIT
 *
 * step_plan.h: what attention takes of the rows that join a step: each row's kept prefix and slot,
 * and the plan of each group. The mutex is held. */
#ifndef PKV_RUNTIME_STEP_PLAN_H
#define PKV_RUNTIME_STEP_PLAN_H

#include "runtime/cache.h"

/* Plans the rows decided, in every group. Plans keep references to the rows' tables, whose new
 * blocks may be mapped later. PKV_NO_MEMORY. O(groups * rows), and what splitting takes. */
enum pkv_status step_plan(pkv_cache *cache);

#endif
