/* SPDX-License-Identifier: MIT
 *
 * pin.h: cached runs that are held so that they are not evicted. The mutex is held. */
#ifndef PKV_RUNTIME_PIN_H
#define PKV_RUNTIME_PIN_H

#include "runtime/cache.h"

/* Ends the pins whose time is up; now_ns 0 is no time. O(1) when none is, else O(pins). Returns how
 * many. */
int32_t pin_expire(pkv_cache *cache, uint64_t now_ns);

/* Ends the pins whose run is not to be found any more. O(pins). */
void pin_end_forgotten(pkv_cache *cache);

/* Does this pin, which is in use, hold block i of its run in the group? */
bool pin_maps(const struct group *group, const struct pin *pin, int32_t i);

#endif
