/* SPDX-License-Identifier: MIT
 *
 * resident.h: which lengths a sequence can be cut to or forked at. Every key that a query at that
 * length sees must be there in every group, because windows release blocks for good. The mutex is
 * held. O(groups). */
#ifndef PKV_RUNTIME_RESIDENT_H
#define PKV_RUNTIME_RESIDENT_H

#include "runtime/cache.h"

/* PKV_NOT_RESIDENT, with a text that says the nearest possible lengths, unless every key is there
 * that a query at `length` sees, and the states behind that many tokens. Not for length 0, which
 * needs none. */
enum pkv_status resident_check(const pkv_cache *cache, int32_t index, int32_t length);

/* The least length from which on every length up to the present one can be gone back to. 0 can
 * always be. */
int32_t resident_min_length(const pkv_cache *cache, int32_t index);

#endif
