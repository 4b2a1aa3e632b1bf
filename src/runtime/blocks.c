/* SPDX-License-Identifier: MIT
 *
 * Why frozen cells and a writer: after a fork parent and child hold the tail block together. The
 * parent, its writer, goes on in place behind the cells that the child reads (frozen); the child
 * copies. When the writer leaves, the first holder that appends behind the frozen cells becomes the
 * writer, so the last of n children never copies. Cells past a holder's length are nobody's.
 *
 * Why freeze: a block that the prefix index names may be found by anyone at any time, so it has no
 * writer for as long as it is named; whoever was cut back into it copies. */
#include "runtime/blocks.h"

#include "alloc/block_pool.h"
#include "base/error.h"
#include "base/minmax.h"
#include "pages/page_store.h"
#include "prefix/prefix_blocks.h"

bool blocks_are_scrubbed(const pkv_cache *cache)
{
    return cache->config.poison_freed || cache->config.zero_freed;
}

static bool is_cached(const pkv_cache *cache, const struct group *group, int32_t block)
{
    return cache_has_prefix(cache) &&
           prefix_index_node_of(cache->prefix.index, group->index, block).index != PREFIX_NONE;
}

/* The next free block; a cached one is evicted, and how long nobody held it is counted. */
static int32_t take_or_evict(pkv_cache *cache, struct group *group)
{
    struct prefix_index *index = cache->prefix.index;
    const uint64_t evictions = prefix_index_counters(index).evictions;
    const int32_t block = prefix_index_take(index, group->index);
    const bool was_evicted = prefix_index_counters(index).evictions != evictions;
    if (was_evicted && group->blocks[block].freed_ns != 0) {
        cache->prefix.counts.evicted_age_ns += cache->now_ns - group->blocks[block].freed_ns;
    }
    return block;
}

int32_t blocks_take(pkv_cache *cache, struct group *group, int32_t writer)
{
    const int32_t block =
        cache_has_prefix(cache) ? take_or_evict(cache, group) : block_pool_take(group->pool);
    pkv_assert(block != NO_BLOCK);
    struct block *state = &group->blocks[block];
    if (state->is_stale) {
        blocks_scrub(cache, group, block);
    }
    state->writer = writer;
    state->frozen = 0;
    return block;
}

void blocks_share(struct group *group, int32_t block, int32_t num_cells, int32_t holder,
                  int32_t num_held)
{
    struct block *state = &group->blocks[block];
    block_pool_retain(group->pool, block);
    if (state->frozen < num_cells) {
        state->frozen = num_cells;
    }
    /* A holder that is not the writer is a reader like the new one. */
    if (state->writer != holder && state->frozen < num_held) {
        state->frozen = num_held;
    }
}

void blocks_adopt(struct group *group, int32_t block)
{
    block_pool_hold(group->pool, block);
    blocks_freeze(group, block);
    group->blocks[block].is_stale = false;
}

void blocks_freeze(struct group *group, int32_t block)
{
    struct block *state = &group->blocks[block];
    const bool is_alone = pkv_pool_ref_count(group->pool, block) == 1;
    state->writer = NO_SEQ;
    state->frozen = is_alone ? 0 : group->config->block_size;
}

void blocks_scrub(pkv_cache *cache, struct group *group, int32_t block)
{
    if (blocks_are_scrubbed(cache)) {
        page_store_fill(group->pages, block, cache->config.poison_freed ? PAGE_STORE_POISON : 0);
    }
    if (group_is_paged(group)) {
        group->blocks[block].is_stale = false;
    }
}

void blocks_scrub_forgotten(pkv_cache *cache, struct group *group, int32_t first, int32_t count)
{
    const int32_t end = min_i32(group->config->num_blocks, first + count);
    for (int32_t block = first; block < end; block++) {
        if (group->blocks[block].is_stale && !is_cached(cache, group, block)) {
            blocks_scrub(cache, group, block);
        }
    }
}

static void drop(pkv_cache *cache, struct group *group, int32_t block, int32_t holder,
                 bool is_behind)
{
    struct block *state = &group->blocks[block];
    if (state->writer == holder) {
        state->writer = NO_SEQ;
    }
    const bool is_free = cache_has_prefix(cache) ? prefix_index_drop(cache->prefix.index,
                                                                     group->index, block, is_behind)
                                                 : block_pool_drop(group->pool, block);
    if (is_free && is_cached(cache, group, block)) {
        state->freed_ns = cache->now_ns;
        state->is_stale = blocks_are_scrubbed(cache);
    } else if (is_free) {
        blocks_scrub(cache, group, block);
    }
    if (is_free || pkv_pool_ref_count(group->pool, block) == 1) {
        state->frozen = 0;
    }
}

void blocks_drop(pkv_cache *cache, struct group *group, int32_t block, int32_t holder)
{
    drop(cache, group, block, holder, false);
}

void blocks_drop_behind(pkv_cache *cache, struct group *group, int32_t block, int32_t holder)
{
    drop(cache, group, block, holder, true);
}

int32_t blocks_num_free(const struct group *group)
{
    return pkv_pool_num_free(group->pool);
}

int32_t blocks_num_cached(const struct group *group)
{
    return prefix_num_cached(group->pool);
}

bool blocks_claim(const pkv_cache *cache, struct group *group, int32_t block, int32_t seq,
                  int32_t offset, enum block_writer_change *change)
{
    struct block *state = &group->blocks[block];
    const bool is_writer = state->writer == seq;
    const bool is_alone = pkv_pool_ref_count(group->pool, block) == 1;
    const bool is_behind = offset >= state->frozen && (is_writer || state->writer == NO_SEQ);
    *change = WRITER_UNCHANGED;
    if ((is_alone || is_behind) && !is_cached(cache, group, block)) {
        if (!is_writer) {
            state->writer = seq;
            *change = WRITER_SET;
        }
        return true;
    }
    if (is_writer) {
        state->writer = NO_SEQ;
        *change = WRITER_CLEARED;
    }
    return false;
}

bool blocks_claim_cached(const pkv_cache *cache, struct group *group, int32_t block, int32_t seq,
                         enum block_writer_change *change)
{
    if (!is_cached(cache, group, block) || pkv_pool_ref_count(group->pool, block) != 1) {
        return false;
    }
    group->blocks[block].writer = seq;
    *change = WRITER_SET;
    return true;
}

void blocks_forget(pkv_cache *cache, struct group *group, int32_t block)
{
    prefix_index_detach(cache->prefix.index, group->index, block);
}

void blocks_unclaim(struct group *group, int32_t block, int32_t seq,
                    enum block_writer_change change)
{
    struct block *state = &group->blocks[block];
    if (change == WRITER_SET && state->writer == seq) {
        state->writer = NO_SEQ;
    } else if (change == WRITER_CLEARED && state->writer == NO_SEQ) {
        state->writer = seq;
    }
}
