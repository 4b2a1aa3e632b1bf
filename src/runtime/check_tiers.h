/* SPDX-License-Identifier: MIT
 *
 * check_tiers.h: the part of pkv_cache_check that is about tiers. The mutex is held. */
#ifndef PKV_RUNTIME_CHECK_TIERS_H
#define PKV_RUNTIME_CHECK_TIERS_H

#include "base/report.h"
#include "runtime/cache.h"

/* Records of stores and tickets are what their counts and lists say. O(records). */
void check_tiers(const pkv_cache *cache, struct report *report);

/* Adds the blocks of group g that stores and tickets hold to the tallies of a check. O(records +
 * blocks of tickets). */
void check_tiers_count(pkv_cache *cache, int32_t g, struct report *report);

#endif
