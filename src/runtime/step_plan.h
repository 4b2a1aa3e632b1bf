/* SPDX-License-Identifier: MIT
 *
 * step_plan.h: what attention takes of the rows that join a step: each row's kept prefix and slot,
 * and the plan of each group. */
#ifndef PKV_RUNTIME_STEP_PLAN_H
#define PKV_RUNTIME_STEP_PLAN_H

#include "attn/selection.h"
#include "runtime/cache.h"

/* Plans the rows decided, in every group. Plans keep references to the rows' tables, whose new
 * blocks may be mapped later. The mutex is held. PKV_NO_MEMORY. O(groups * rows), and what
 * splitting takes. */
enum pkv_status step_plan(pkv_cache *cache);

/* Plans the open step's rows anew for one layer of the group, with lists of selected blocks, as the
 * cache's selected_plan. No row is a tree. Needs no mutex. PKV_INVALID_ARGUMENT for a list that is
 * unsound; PKV_NO_MEMORY. */
enum pkv_status step_plan_selected(pkv_cache *cache, const struct group *group,
                                   const struct selection *selection,
                                   const struct gqa_shape *shape);

#endif
