/* SPDX-License-Identifier: MIT
 *
 * Forgetting what is cached. The index does it in O(1) by raising an epoch: from then on nothing
 * older is found, and no sequence from before publishes. Pins on forgotten runs end at once, while
 * their nodes can still be read; then a sweep takes the nodes apart. A flush sweeps in one go,
 * since its events tell of each block and an equal one must not be stored in between; a reset, of
 * which one event tells, sweeps in slices. */
#include "base/error.h"
#include "runtime/blocks.h"
#include "runtime/events.h"
#include "runtime/pin.h"
#include "runtime/prefix.h"

#define SLICE 256

static int32_t num_held(const pkv_cache *cache)
{
    int32_t count = 0;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        count += cache->groups[g].config->num_blocks - blocks_num_free(&cache->groups[g]);
    }
    return count;
}

static void report(const struct pkv_flush_report *found, const struct prefix_swept *swept,
                   struct pkv_flush_report *report)
{
    if (report != NULL) {
        *report = *found;
        report->orphaned = (int32_t)swept->held;
        report->removed = (int32_t)swept->freed;
    }
}

/* One slice of a sweep; true when it was the last. */
static bool sweep(pkv_cache *cache, int32_t num_nodes, enum pkv_event_reason reason,
                  struct prefix_swept *swept)
{
    cache->prefix.events.reason = reason;
    const bool is_done = prefix_index_sweep(cache->prefix.index, num_nodes, swept);
    cache->prefix.events.reason = PKV_REASON_CAPACITY;
    if (is_done) {
        blocks_scrub_forgotten(cache);
    }
    return is_done;
}

enum pkv_status pkv_namespace_flush(pkv_cache *cache, const struct pkv_namespace_field *field,
                                    struct pkv_flush_report *flushed)
{
    struct prefix_name name;
    enum pkv_status status = prefix_require(cache);
    if (status == PKV_OK && field == NULL) {
        status = refuse(PKV_INVALID_ARGUMENT, "field is NULL");
    }
    if (status == PKV_OK) {
        status = prefix_name_of(field, 1, &name);
    }
    if (status != PKV_OK) {
        return status;
    }
    struct prefix_swept swept = {0};
    cache_lock(cache);
    prefix_index_flush(cache->prefix.index, name.fields[0].tag, name.fields[0].bytes,
                       name.fields[0].length);
    pin_end_forgotten(cache);
    (void)sweep(cache, INT32_MAX, PKV_REASON_FLUSH, &swept);
    const struct pkv_flush_report found = {.held = num_held(cache)};
    cache_unlock(cache);
    report(&found, &swept, flushed);
    return PKV_OK;
}

enum pkv_status pkv_cache_reset(pkv_cache *cache, bool force, struct pkv_flush_report *cleared)
{
    const enum pkv_status status = prefix_require(cache);
    if (status != PKV_OK) {
        return status;
    }
    struct prefix_swept swept = {0};
    cache_lock(cache);
    struct pkv_flush_report found = {.held = num_held(cache)};
    if (found.held > 0 && !force) {
        cache_unlock(cache);
        report(&found, &swept, cleared);
        return refuse(PKV_BUSY, "%d blocks are held", found.held);
    }
    prefix_index_reset(cache->prefix.index);
    pin_end_forgotten(cache);
    found.held = num_held(cache);
    events_clear(cache);
    while (!sweep(cache, SLICE, PKV_REASON_RESET, &swept)) {
        cache_unlock(cache);
        cache_lock(cache);
    }
    cache_unlock(cache);
    report(&found, &swept, cleared);
    return PKV_OK;
}
