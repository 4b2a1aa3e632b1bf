/* SPDX-License-Identifier: MIT
 *
 * step.h: what attending needs of the open step. */
#ifndef PKV_RUNTIME_STEP_H
#define PKV_RUNTIME_STEP_H

#include "runtime/cache.h"

/* PKV_STALE_HANDLE unless the handle names the step that is open. The mutex is held. */
enum pkv_status step_check(const pkv_cache *cache, pkv_step handle);

/* Makes each group's plan of the rows reserved. PKV_NO_MEMORY. The mutex is held. */
enum pkv_status step_plan(pkv_cache *cache);

#endif
