/* SPDX-License-Identifier: MIT
 *
 * fingerprint.h: what the key of every block depends on beside its content: the format, the
 * geometry of the groups and layers, and what the caller adds (model, weights). Two caches with
 * different fingerprints never take each other's blocks for their own. O(groups + layers). */
#ifndef PKV_RUNTIME_FINGERPRINT_H
#define PKV_RUNTIME_FINGERPRINT_H

#include "pagedkv/cache.h"
#include "prefix/prefix_index.h"

/* Of a config that was checked; defaults may be filled in or not. */
struct pkv_block_key fingerprint_of(const struct pkv_cache_config *config);

#endif
