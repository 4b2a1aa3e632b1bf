/* SPDX-License-Identifier: MIT
 *
 * Every block, for tools: slices are copied out under the mutex and shown without it, so a visitor
 * may take its time and may call the cache. */
#include "base/error.h"
#include "pagedkv/metrics.h"
#include "prefix/prefix_blocks.h"
#include "runtime/cache.h"

#define SLICE 32

static struct pkv_block_info info_of(pkv_cache *cache, int32_t g, int32_t block)
{
    const struct block_set *blocks = cache_blocks(cache, g);
    struct pkv_block_info info = {.size = sizeof info,
                                  .group = g,
                                  .block = block,
                                  .ref_count = pkv_pool_ref_count(blocks->pool, block)};
    bool is_cached = false;
    if (cache_has_reuse(cache)) {
        const struct prefix_ref node = prefix_index_node_of(cache->reuse.index, g, block);
        is_cached = prefix_index_is_live(cache->reuse.index, node);
        info.is_indexed = is_cached && !prefix_index_is_tail(cache->reuse.index, node);
        if (info.is_indexed) {
            const struct event_keys keys = events_keys(cache->reuse.index, node);
            info.priority = prefix_index_node(cache->reuse.index, node)->priority;
            info.key = keys.key;
            info.parent_key = keys.parent;
            info.namespace_key = keys.of_namespace;
            info.depth = keys.depth;
        }
    }
    if (info.ref_count > 0) {
        info.state = blocks->at[block].num_pins > 0 ? PKV_BLOCK_PINNED : PKV_BLOCK_HELD;
    } else {
        info.state = is_cached ? PKV_BLOCK_CACHED : PKV_BLOCK_FREE;
    }
    return info;
}

static bool visit_slice(pkv_cache *cache, int32_t g, int32_t first,
                        bool (*visit)(void *context, const struct pkv_block_info *info),
                        void *context)
{
    struct pkv_block_info infos[SLICE];
    const int32_t left = cache_blocks(cache, g)->num_blocks - first;
    const int32_t count = left < SLICE ? left : SLICE;
    cache_queue(cache);
    for (int32_t i = 0; i < count; i++) {
        infos[i] = info_of(cache, g, first + i);
    }
    cache_unlock(cache);
    for (int32_t i = 0; i < count; i++) {
        if (!visit(context, &infos[i])) {
            return false;
        }
    }
    return true;
}

enum pkv_status pkv_cache_visit(pkv_cache *cache,
                                bool (*visit)(void *context, const struct pkv_block_info *info),
                                void *context, uint64_t *next_event)
{
    if (cache == NULL || visit == NULL) {
        return INVALID("%s is NULL", cache == NULL ? "cache" : "visit");
    }
    cache_lock(cache);
    const uint64_t next = events_seal(&cache->events);
    cache_unlock(cache);
    if (next_event != NULL) {
        *next_event = next;
    }
    for (int32_t g = 0; g < cache_num_groups(cache); g++) {
        const struct block_set *blocks = cache_blocks(cache, g);
        const int32_t num_blocks = blocks->pool != NULL ? blocks->num_blocks : 0;
        for (int32_t first = 0; first < num_blocks; first += SLICE) {
            if (!visit_slice(cache, g, first, visit, context)) {
                return PKV_OK;
            }
        }
    }
    return PKV_OK;
}
