/* SPDX-License-Identifier: MIT
 *
 * Why frozen cells and a writer: after a fork parent and child hold the tail block together. The
 * parent, its writer, goes on in place behind the cells that the child reads (frozen); the child
 * copies. When the writer leaves, the first holder that appends behind the frozen cells becomes the
 * writer, so the last of n children never copies. Cells past a holder's length are nobody's.
 *
 * Why freeze: any admission may adopt a block that has a node in the prefix index, so it has no
 * writer as long as it has one; a sequence that was cut back into such a block copies. */
#include "runtime/block.h"

#include "alloc/block_pool.h"
#include "base/error.h"
#include "base/minmax.h"
#include "pages/page_store.h"
#include "prefix/prefix_blocks.h"

enum { EVICTED_EARLY = 4 }; /* blocks for each that is taken */

static bool is_indexed(const struct block_set *blocks, int32_t block)
{
    return blocks->context->index != NULL &&
           prefix_index_node_of(blocks->context->index, blocks->group, block).index != PREFIX_NONE;
}

/* The next block to be evicted, which `next` takes from the index; how long it was free is counted.
 * NO_BLOCK when there is none. */
static int32_t evict(struct block_set *blocks,
                     int32_t (*next)(struct prefix_index *index, int32_t group))
{
    const struct block_context *context = blocks->context;
    const uint64_t evictions = prefix_index_counters(context->index).evictions;
    const int32_t block = next(context->index, blocks->group);
    const bool was_evicted = prefix_index_counters(context->index).evictions != evictions;
    if (was_evicted && blocks->at[block].freed_ns != 0) {
        context->counters->evicted_age_ns += context->now_ns - blocks->at[block].freed_ns;
    }
    return block;
}

bool block_is_windowed(const struct block_set *blocks, int32_t block)
{
    const int32_t count = pkv_pool_ref_count(blocks->pool, block);
    return count > 0 && blocks->at[block].num_sliding == count;
}

bool block_costs_spare(const struct block_set *blocks, int32_t block)
{
    return pkv_pool_ref_count(blocks->pool, block) == 0 || block_is_windowed(blocks, block);
}

/* After a change of holders, of which `count` more slide. */
static void count_sliding(struct block_set *blocks, int32_t block, bool was_windowed, int32_t count)
{
    blocks->at[block].num_sliding += count;
    blocks->num_windowed += block_is_windowed(blocks, block) - was_windowed;
}

void block_stop_sliding(struct block_set *blocks, int32_t block)
{
    count_sliding(blocks, block, block_is_windowed(blocks, block), -1);
}

void block_start_sliding(struct block_set *blocks, int32_t block)
{
    count_sliding(blocks, block, block_is_windowed(blocks, block), 1);
}

/* A block that was taken has its holder. */
static void begin_use(struct block_set *blocks, int32_t block, int32_t writer, bool slides)
{
    struct block *state = &blocks->at[block];
    if (state->is_stale) {
        block_scrub(blocks, block);
    }
    state->writer = writer;
    state->frozen = 0;
    state->left_window = false;
    count_sliding(blocks, block, false, slides);
}

/* Before `count` blocks are taken: evicts until min_blank are left behind them, but never many more
 * than are taken, so that no call pays for what others left. */
static void evict_early(struct block_set *blocks, int32_t count)
{
    const int64_t num_blank = block_num_free(blocks) - block_num_cached(blocks);
    const int64_t missing =
        min_i64((int64_t)blocks->min_blank + count - num_blank, EVICTED_EARLY * (int64_t)count);
    for (int64_t i = 0; i < missing; i++) {
        const int32_t block = evict(blocks, prefix_index_evict_early);
        if (block == NO_BLOCK) {
            return;
        }
        if (blocks->at[block].is_stale) {
            block_scrub(blocks, block);
        }
    }
}

void block_take(struct block_set *blocks, int32_t near, int32_t count, int32_t writer, bool slides,
                int32_t *ids)
{
    if (blocks->min_blank > 0) {
        evict_early(blocks, count);
    }
    for (int32_t i = block_pool_take_near(blocks->pool, near, count, ids); i < count; i++) {
        ids[i] = blocks->context->index != NULL ? evict(blocks, prefix_index_take)
                                                : block_pool_take(blocks->pool);
        pkv_assert(ids[i] != NO_BLOCK);
    }
    block_pool_arrange(near, count, ids);
    for (int32_t i = 0; i < count; i++) {
        begin_use(blocks, ids[i], writer, slides);
    }
}

void block_prefetch_take(const struct block_set *blocks, int32_t block)
{
    PKV_PREFETCH(&blocks->at[block]);
    PKV_PREFETCH(&blocks->pool->records[block]);
    PKV_PREFETCH(&blocks->pool->runs.lengths[block]);
}

void block_prefetch_publish(const struct block_set *blocks, int32_t block)
{
    PKV_PREFETCH(&blocks->at[block]);
    PKV_PREFETCH(&blocks->pool->records[block]);
    prefix_index_prefetch_block(blocks->context->index, blocks->group, block);
}

void block_share(struct block_set *blocks, int32_t block, int32_t num_cells, int32_t holder,
                 int32_t num_held)
{
    struct block *state = &blocks->at[block];
    const bool was_windowed = block_is_windowed(blocks, block);
    block_pool_retain(blocks->pool, block);
    count_sliding(blocks, block, was_windowed, 0);
    if (state->frozen < num_cells) {
        state->frozen = num_cells;
    }
    /* A holder that is not the writer is a reader like the new one. */
    if (state->writer != holder && state->frozen < num_held) {
        state->frozen = num_held;
    }
}

void block_adopt(struct block_set *blocks, int32_t block, bool slides)
{
    const bool was_windowed = block_is_windowed(blocks, block);
    block_pool_hold(blocks->pool, block);
    count_sliding(blocks, block, was_windowed, slides);
    block_freeze(blocks, block);
    blocks->at[block].is_stale = false;
    blocks->at[block].left_window = false;
}

void block_freeze(struct block_set *blocks, int32_t block)
{
    struct block *state = &blocks->at[block];
    const bool is_alone = pkv_pool_ref_count(blocks->pool, block) == 1;
    state->writer = NO_SEQ;
    state->frozen = is_alone ? 0 : blocks->block_size;
}

void block_scrub(struct block_set *blocks, int32_t block)
{
    const enum block_scrub scrub = blocks->context->scrub;
    if (scrub != BLOCK_SCRUB_NONE) {
        page_store_fill(blocks->pages, block, scrub == BLOCK_SCRUB_POISON ? PAGE_STORE_POISON : 0);
    }
    if (blocks->pool != NULL) {
        blocks->at[block].is_stale = false;
    }
}

void block_scrub_uncached(struct block_set *blocks, int32_t first, int32_t count)
{
    const int32_t end = min_i32(blocks->num_blocks, first + count);
    for (int32_t block = first; block < end; block++) {
        if (blocks->at[block].is_stale && !is_indexed(blocks, block)) {
            block_scrub(blocks, block);
        }
    }
}

static void drop(struct block_set *blocks, int32_t block, int32_t holder, bool slides,
                 bool is_out_of_window)
{
    struct block *state = &blocks->at[block];
    const bool was_windowed = block_is_windowed(blocks, block);
    if (state->writer == holder) {
        state->writer = NO_SEQ;
    }
    if (holder != NO_SEQ) {
        state->left_window = is_out_of_window;
    }
    struct prefix_index *index = blocks->context->index;
    const bool is_free = index != NULL ? prefix_index_drop(index, blocks->group, block,
                                                           is_out_of_window || state->left_window)
                                       : block_pool_drop(blocks->pool, block);
    count_sliding(blocks, block, was_windowed, slides ? -1 : 0);
    if (is_free && is_indexed(blocks, block)) {
        state->freed_ns = blocks->context->now_ns;
        state->is_stale = blocks->context->scrub != BLOCK_SCRUB_NONE;
    } else if (is_free) {
        block_scrub(blocks, block);
    }
    if (is_free || pkv_pool_ref_count(blocks->pool, block) == 1) {
        state->frozen = 0;
    }
}

void block_drop(struct block_set *blocks, int32_t block, int32_t holder, bool slides)
{
    drop(blocks, block, holder, slides, false);
}

void block_drop_out_of_window(struct block_set *blocks, int32_t block, int32_t holder, bool slides)
{
    drop(blocks, block, holder, slides, true);
}

int32_t block_num_free(const struct block_set *blocks)
{
    return pkv_pool_num_free(blocks->pool);
}

int32_t block_num_cached(const struct block_set *blocks)
{
    return prefix_num_cached(blocks->pool);
}

bool block_claim(struct block_set *blocks, int32_t block, int32_t seq, int32_t offset,
                 enum block_writer_change *change)
{
    struct block *state = &blocks->at[block];
    const bool is_writer = state->writer == seq;
    *change = WRITER_UNCHANGED;
    if (is_writer && offset >= state->frozen) {
        return true; /* neither its count nor the index is looked at: each is a miss of the cache */
    }
    const bool is_alone = pkv_pool_ref_count(blocks->pool, block) == 1;
    const bool is_past_frozen = offset >= state->frozen && state->writer == NO_SEQ;
    if ((is_alone || is_past_frozen) && !is_indexed(blocks, block)) {
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

bool block_claim_indexed(struct block_set *blocks, int32_t block, int32_t seq,
                         enum block_writer_change *change)
{
    if (!is_indexed(blocks, block) || pkv_pool_ref_count(blocks->pool, block) != 1) {
        return false;
    }
    blocks->at[block].writer = seq;
    *change = WRITER_SET;
    return true;
}

void block_uncache(struct block_set *blocks, int32_t block)
{
    prefix_index_detach(blocks->context->index, blocks->group, block);
}

void block_forgo(struct block_set *blocks, int32_t block)
{
    struct prefix_index *index = blocks->context->index;
    const struct prefix_ref node = prefix_index_node_of(index, blocks->group, block);
    if (node.index != PREFIX_NONE && blocks->at[block].num_pins == 0 &&
        !prefix_index_covers(index, blocks->group, node.index)) {
        prefix_index_detach(index, blocks->group, block);
        block_scrub_uncached(blocks, block, 1);
    }
}

void block_unclaim(struct block_set *blocks, int32_t block, int32_t seq,
                   enum block_writer_change change)
{
    struct block *state = &blocks->at[block];
    if (change == WRITER_SET && state->writer == seq) {
        state->writer = NO_SEQ;
    } else if (change == WRITER_CLEARED && state->writer == NO_SEQ && !is_indexed(blocks, block)) {
        state->writer = seq;
    }
}
