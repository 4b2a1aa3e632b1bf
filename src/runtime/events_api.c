/* SPDX-License-Identifier: MIT
 *
 * The public call that drains events: arguments are checked, the mutex is taken, events does the
 * rest. */
#include "base/error.h"
#include "base/sized.h"

#include "runtime/cache.h"

static enum pkv_status check(const pkv_cache *cache, const struct pkv_event *events,
                             size_t event_size, int32_t max_events, const int32_t *count)
{
    if (cache == NULL || count == NULL) {
        return INVALID("%s is NULL", cache == NULL ? "cache" : "count");
    }
    if (max_events < 0 || (events == NULL && max_events > 0)) {
        return INVALID("max_events = %d, events %s", max_events, events == NULL ? "NULL" : "given");
    }
    if (event_size < SIZED_UP_TO(struct pkv_event, depth) || event_size > SIZED_MAX_BYTES) {
        return INVALID("event_size = %zu, outside [%zu, %d]", event_size,
                       SIZED_UP_TO(struct pkv_event, depth), SIZED_MAX_BYTES);
    }
    return cache->events.capacity > 0
               ? PKV_OK
               : refuse(PKV_UNSUPPORTED, "the cache was created without events");
}

/* The mutex is held. */
static void drain(pkv_cache *cache, struct pkv_event *events, size_t event_size, int32_t max_events,
                  int32_t *count, uint64_t *num_lost)
{
    *count = events_drain(&cache->events, events, event_size, max_events);
    if (num_lost != NULL) {
        *num_lost = events_take_lost(&cache->events);
    }
}

enum pkv_status pkv_events_drain(pkv_cache *cache, struct pkv_event *events, size_t event_size,
                                 int32_t max_events, int32_t *count, uint64_t *num_lost)
{
    const enum pkv_status status = check(cache, events, event_size, max_events, count);
    if (status == PKV_OK) {
        cache_lock(cache);
        drain(cache, events, event_size, max_events, count, num_lost);
        cache_unlock(cache);
    }
    return status;
}

enum pkv_status pkv_events_drain_tokens(pkv_cache *cache, struct pkv_event *events,
                                        size_t event_size, int32_t max_events, int32_t *token_ids,
                                        uint64_t *token_extra, int32_t *count, uint64_t *num_lost)
{
    const enum pkv_status status = check(cache, events, event_size, max_events, count);
    if (status != PKV_OK) {
        return status;
    }
    if (cache->events.token_ids == NULL) {
        return refuse(PKV_UNSUPPORTED, "the cache was created without event_tokens");
    }
    cache_lock(cache);
    events_copy_tokens(&cache->events, max_events, token_ids, token_extra);
    drain(cache, events, event_size, max_events, count, num_lost);
    cache_unlock(cache);
    return PKV_OK;
}
