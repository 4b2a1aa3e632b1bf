/* SPDX-License-Identifier: MIT
 *
 * Flushing a namespace, or all that is cached. The index does it in O(1) by raising an epoch: from
 * then on nothing older is found, and no sequence from before publishes. Pins on flushed prefixes
 * end at once, while their nodes can still be read; then a sweep takes the nodes apart in slices,
 * and the mutex is free between two of them. A block that is stored meanwhile takes an equal old
 * one apart itself, so events stay in the order of a flush that took no time. */
#include "base/error.h"
#include "base/sized.h"
#include "prefix/prefix_flush.h"
#include "runtime/namespace.h"

/* Index nodes, and blocks whose pages may have to be written over, under one hold of the mutex. */
#define SLICE 64
#define SCRUB_SLICE 4

static int32_t num_held(pkv_cache *cache)
{
    int32_t count = 0;
    for (int32_t g = 0; g < cache_num_groups(cache); g++) {
        const struct block_set *blocks = cache_blocks(cache, g);
        count += blocks->num_blocks - block_num_free(blocks);
    }
    return count;
}

static void fill(const struct pkv_flush_report *found, const struct prefix_swept *swept,
                 struct pkv_flush_report *report)
{
    if (report != NULL) {
        struct pkv_flush_report made = *found;
        made.orphaned = (int32_t)swept->held;
        made.removed = (int32_t)swept->freed;
        sized_fill(report, &made);
    }
}

/* A report is not always wanted. */
static enum pkv_status check_report(const struct pkv_flush_report *report)
{
    return report != NULL ? sized_check("report", report, struct pkv_flush_report, removed)
                          : PKV_OK;
}

/* Sweeps from one slice to the next. The mutex is held before and after. */
static void sweep(pkv_cache *cache, struct prefix_swept *swept)
{
    while (!prefix_index_sweep(cache->reuse.index, SLICE, swept)) {
        cache_yield(cache);
    }
    const bool is_scrubbed = cache->block_context.scrub != BLOCK_SCRUB_NONE;
    for (int32_t g = 0; is_scrubbed && g < cache_num_groups(cache); g++) {
        struct block_set *blocks = cache_blocks(cache, g);
        for (int32_t first = 0; first < blocks->num_blocks; first += SCRUB_SLICE) {
            block_scrub_uncached(blocks, first, SCRUB_SLICE);
            cache_yield(cache);
        }
    }
}

enum pkv_status pkv_namespace_flush(pkv_cache *cache, const struct pkv_namespace_field *field,
                                    struct pkv_flush_report *flushed)
{
    enum pkv_status status = namespace_check_one(cache, field);
    if (status == PKV_OK) {
        status = check_report(flushed);
    }
    if (status != PKV_OK) {
        return status;
    }
    struct prefix_swept swept = {0};
    cache_lock(cache);
    prefix_index_flush(cache->reuse.index, field);
    offload_raise(&cache->offload, field);
    pin_end_flushed(&cache->pins);
    const struct pkv_flush_report found = {.held = num_held(cache)};
    sweep(cache, &swept);
    cache_unlock(cache);
    fill(&found, &swept, flushed);
    return PKV_OK;
}

enum pkv_status pkv_cache_reset(pkv_cache *cache, bool force, struct pkv_flush_report *cleared)
{
    enum pkv_status status = cache_check_reuse(cache);
    if (status == PKV_OK) {
        status = check_report(cleared);
    }
    if (status != PKV_OK) {
        return status;
    }
    struct prefix_swept swept = {0};
    cache_lock(cache);
    struct pkv_flush_report found = {.held = num_held(cache)};
    if (found.held > 0 && !force) {
        cache_unlock(cache);
        fill(&found, &swept, cleared);
        return refuse(PKV_BUSY, "%d blocks are held", found.held);
    }
    prefix_index_reset(cache->reuse.index);
    offload_raise(&cache->offload, NULL);
    pin_end_flushed(&cache->pins);
    found.held = num_held(cache);
    events_clear(&cache->events);
    sweep(cache, &swept);
    cache_unlock(cache);
    fill(&found, &swept, cleared);
    return PKV_OK;
}
