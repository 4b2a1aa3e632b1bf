/* SPDX-License-Identifier: MIT
 *
 * stats.h: the numbers of a cache at one moment. The mutex is held. */
#ifndef PKV_RUNTIME_STATS_H
#define PKV_RUNTIME_STATS_H

#include "pagedkv/metrics.h"
#include "runtime/cache.h"

/* All of them. O(groups * max_seqs). */
void stats_read(const pkv_cache *cache, struct pkv_stats *stats);

#endif
