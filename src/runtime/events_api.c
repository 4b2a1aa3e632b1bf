/* SPDX-License-Identifier: MIT
 *
 * The public call that drains events: arguments are checked, the mutex is taken, events does the
 * rest. */
#include "base/error.h"

#include "runtime/cache.h"

enum pkv_status pkv_events_drain(pkv_cache *cache, struct pkv_event *events, int32_t max_events,
                                 int32_t *count, uint64_t *num_lost)
{
    if (cache == NULL || count == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "%s is NULL", cache == NULL ? "cache" : "count");
    }
    if (max_events < 0 || (events == NULL && max_events > 0)) {
        return refuse(PKV_INVALID_ARGUMENT, "max_events = %d, events %s", max_events,
                      events == NULL ? "NULL" : "given");
    }
    if (cache->events.capacity == 0) {
        return refuse(PKV_UNSUPPORTED, "the cache was created without events");
    }
    cache_lock(cache);
    const int32_t moved = events_drain(&cache->events, events, max_events);
    if (num_lost != NULL) {
        *num_lost = events_take_lost(&cache->events);
    }
    cache_unlock(cache);
    *count = moved;
    return PKV_OK;
}
