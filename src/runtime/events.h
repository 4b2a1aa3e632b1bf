/* SPDX-License-Identifier: MIT
 *
 * events.h: what became findable and what ceased to be, in one order, in a ring that never grows.
 * The mutex is held. O(1). */
#ifndef PKV_RUNTIME_EVENTS_H
#define PKV_RUNTIME_EVENTS_H

#include "runtime/cache.h"

/* The index's observer; context is the cache. */
void events_observe(void *context, enum prefix_change change, struct prefix_ref node);

/* The index was reset: all that was stored before is gone. */
void events_clear(pkv_cache *cache);

/* Keys of a live node, of its parent and of its namespace, as events and tools show them. */
struct event_keys {
    struct pkv_block_key key;
    struct pkv_block_key parent;
    struct pkv_block_key of_namespace;
};
struct event_keys events_keys(const pkv_cache *cache, struct prefix_ref node);

#endif
