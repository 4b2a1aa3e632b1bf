/* SPDX-License-Identifier: MIT
 *
 * cache_carve.h: every array of a cache but payload, block tables and what the modules below take
 * for themselves, cut from one allocation. The same walk runs once without memory to count and once
 * with memory to assign, so the size that pkv_cache_size reports is the size that create takes. */
#ifndef PKV_RUNTIME_CACHE_CARVE_H
#define PKV_RUNTIME_CACHE_CARVE_H

#include "runtime/cache.h"

/* Of a checked and resolved config; constants of layers are copied on the way. While counting,
 * *cache may be any memory. PKV_NEVER_FITS for a group that gets no block, PKV_INVALID_ARGUMENT. */
enum pkv_status cache_carve(const struct pkv_cache_config *config,
                            const struct config_budget *budget, pkv_cache *cache,
                            struct carver *carver);

#endif
