/* SPDX-License-Identifier: MIT
 *
 * config_check.h: the one place that judges a configuration. Takes no memory. O(groups * layers).
 */
#ifndef PKV_RUNTIME_CONFIG_CHECK_H
#define PKV_RUNTIME_CONFIG_CHECK_H

#include "pagedkv/cache.h"

/* Reads a caller's config into *config, and refuses what a cache may not be, naming the field.
 * PKV_INVALID_ARGUMENT, PKV_UNSUPPORTED. */
enum pkv_status config_take(const struct pkv_cache_config *given, struct pkv_cache_config *config);

#endif
