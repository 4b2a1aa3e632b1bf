/* SPDX-License-Identifier: MIT
 *
 * tier_work.h: the threads that a cache starts for its tiers. */
#ifndef PKV_RUNTIME_TIER_WORK_H
#define PKV_RUNTIME_TIER_WORK_H

#include "runtime/cache.h"

/* Starts config.num_tier_threads threads. PKV_NO_MEMORY when the system has none; stop those that
 * run in either case. */
enum pkv_status tier_threads_start(pkv_cache *cache);

/* Ends them, when each has finished the transfer that it has. The mutex is not held. */
void tier_threads_stop(pkv_cache *cache);

#endif
