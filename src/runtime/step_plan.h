/* SPDX-License-Identifier: MIT
 *
 * step_plan.h: the attention plan that each group has for a step. */
#ifndef PKV_RUNTIME_STEP_PLAN_H
#define PKV_RUNTIME_STEP_PLAN_H

#include "runtime/cache.h"

/* Makes each group's plan of the rows reserved. PKV_NO_MEMORY. The mutex is held. */
enum pkv_status step_plan(pkv_cache *cache);

#endif
