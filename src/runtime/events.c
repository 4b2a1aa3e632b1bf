/* SPDX-License-Identifier: MIT
 *
 * The ring overwrites its oldest event when it is full and counts the loss, so recording takes no
 * memory and never fails. Nodes that a reset forgot are taken apart in slices later; nothing is
 * told of them then, for one event said so at once, and an equal block may be stored again
 * meanwhile. */
#include "runtime/events.h"

#include <string.h>

#include "base/error.h"
#include "base/little_endian.h"
#include "prefix/prefix_flush.h"
#include "prefix/prefix_hash.h"

static struct pkv_block_key key_of(struct prefix_key key)
{
    return (struct pkv_block_key){.low = key.low, .high = key.high};
}

/* Tag and length go before each field's bytes, so no two sets are written the same. */
static struct pkv_block_key namespace_key(const pkv_cache *cache, int32_t namespace_id)
{
    struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS];
    unsigned char text[PKV_MAX_NAMESPACE_FIELDS * (PKV_MAX_NAMESPACE_BYTES + 2 * sizeof(int32_t))];
    unsigned char *to = text;
    const int32_t count = prefix_index_fields(cache->prefix.index, namespace_id, fields);
    for (int32_t i = 0; i < count; i++) {
        const size_t length = (size_t)fields[i].length;
        to = put_u32(to, (uint32_t)fields[i].tag);
        to = put_u32(to, (uint32_t)fields[i].length);
        if (length > 0) {
            memcpy(to, fields[i].bytes, length);
        }
        to += length;
    }
    return count > 0 ? key_of(prefix_hash_bytes(text, (size_t)(to - text)))
                     : (struct pkv_block_key){0};
}

struct event_keys events_keys(const pkv_cache *cache, struct prefix_ref node)
{
    const struct prefix_node *of = prefix_index_node(cache->prefix.index, node);
    struct event_keys keys = {0};
    if (of == NULL) {
        return keys;
    }
    keys.key = key_of(of->key);
    keys.of_namespace = namespace_key(cache, of->namespace_id);
    const struct prefix_node *parent = prefix_index_node(cache->prefix.index, of->parent);
    if (parent != NULL) {
        keys.parent = key_of(parent->key);
    }
    return keys;
}

static void record(struct events *events, const struct pkv_event *event)
{
    const uint64_t capacity = (uint64_t)events->capacity;
    if (capacity == 0) {
        return;
    }
    if (events->next - events->first == capacity) {
        events->first++;
        events->num_lost++;
        events->total_lost++;
    }
    struct pkv_event *to = &events->ring[events->next % capacity];
    *to = *event;
    to->number = events->next++;
}

/* A node that is not live any more was flushed, whenever its blocks go. */
static enum pkv_event_reason reason_of_end(const pkv_cache *cache, struct prefix_ref node)
{
    return prefix_index_is_live(cache->prefix.index, node) ? PKV_REASON_CAPACITY : PKV_REASON_FLUSH;
}

void events_observe(void *context, enum prefix_change change, struct prefix_ref node)
{
    pkv_cache *cache = context;
    struct events *events = &cache->prefix.events;
    const bool is_stored = change == PREFIX_STORED;
    const struct prefix_node *of = prefix_index_node(cache->prefix.index, node);
    if (events->capacity == 0 || of == NULL || of->epoch < events->cleared_epoch) {
        return;
    }
    const struct event_keys keys = events_keys(cache, node);
    const struct pkv_event event = {
        .kind = is_stored ? PKV_EVENT_STORED : PKV_EVENT_REMOVED,
        .reason = is_stored ? PKV_REASON_COMMIT : reason_of_end(cache, node),
        .key = keys.key,
        .parent_key = keys.parent,
        .namespace_key = keys.of_namespace,
    };
    record(events, &event);
}

void events_clear(pkv_cache *cache)
{
    const struct pkv_event event = {.kind = PKV_EVENT_CLEARED, .reason = PKV_REASON_RESET};
    cache->prefix.events.cleared_epoch = prefix_index_epoch(cache->prefix.index);
    record(&cache->prefix.events, &event);
}

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
    struct events *ring = &cache->prefix.events;
    if (ring->capacity == 0) {
        return refuse(PKV_UNSUPPORTED, "the cache was created without events");
    }
    cache_lock(cache);
    int32_t moved = 0;
    while (moved < max_events && ring->first < ring->next) {
        events[moved++] = ring->ring[ring->first++ % (uint64_t)ring->capacity];
    }
    if (num_lost != NULL) {
        *num_lost = ring->num_lost;
        ring->num_lost = 0;
    }
    cache_unlock(cache);
    *count = moved;
    return PKV_OK;
}
