/* SPDX-License-Identifier: MIT
 *
 * Why frozen cells and a writer: after a fork parent and child hold the tail block together. The
 * parent, its writer, goes on in place behind the cells that the child reads (frozen); the child
 * copies. When the writer leaves, the first holder that appends behind the frozen cells becomes the
 * writer, so the last of n children never copies. Cells past a holder's length are nobody's. */
#include "runtime/blocks.h"

#include "alloc/block_pool.h"
#include "base/error.h"
#include "pages/page_store.h"

int32_t blocks_take(struct group *group, int32_t writer)
{
    const int32_t block = block_pool_take(group->pool);
    pkv_assert(block != NO_BLOCK);
    group->blocks[block].writer = writer;
    group->blocks[block].frozen = 0;
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

void blocks_scrub(pkv_cache *cache, struct group *group, int32_t block)
{
    if (cache->config.poison_freed || cache->config.zero_freed) {
        page_store_fill(group->pages, block, cache->config.poison_freed ? PAGE_STORE_POISON : 0);
    }
}

void blocks_drop(pkv_cache *cache, struct group *group, int32_t block, int32_t holder)
{
    struct block *state = &group->blocks[block];
    if (state->writer == holder) {
        state->writer = NO_SEQ;
    }
    if (block_pool_drop(group->pool, block)) {
        state->frozen = 0;
        blocks_scrub(cache, group, block);
    } else if (pkv_pool_ref_count(group->pool, block) == 1) {
        state->frozen = 0;
    }
}

bool blocks_claim(struct group *group, int32_t block, int32_t seq, int32_t offset,
                  enum tail_change *change)
{
    struct block *state = &group->blocks[block];
    const bool is_writer = state->writer == seq;
    const bool is_alone = pkv_pool_ref_count(group->pool, block) == 1;
    const bool is_behind = offset >= state->frozen && (is_writer || state->writer == NO_SEQ);
    *change = TAIL_AS_BEFORE;
    if (is_alone || is_behind) {
        if (!is_writer) {
            state->writer = seq;
            *change = TAIL_CLAIMED;
        }
        return true;
    }
    if (is_writer) {
        state->writer = NO_SEQ;
        *change = TAIL_LEFT;
    }
    return false;
}

void blocks_unclaim(struct group *group, int32_t block, int32_t seq, enum tail_change change)
{
    struct block *state = &group->blocks[block];
    if (change == TAIL_CLAIMED && state->writer == seq) {
        state->writer = NO_SEQ;
    } else if (change == TAIL_LEFT && state->writer == NO_SEQ) {
        state->writer = seq;
    }
}
