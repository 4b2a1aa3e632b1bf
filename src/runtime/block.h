/* SPDX-License-Identifier: MIT
 *
 * block.h: one block of a paged group and its holders. Committed cells that another holder may
 * read are never written: a sequence writes in place, or it copies. The mutex is held. O(1), but
 * for the optional overwriting of a block that becomes free. */
#ifndef PKV_RUNTIME_BLOCK_H
#define PKV_RUNTIME_BLOCK_H

#include "alloc/block_table.h"
#include "base/build.h"
#include "pagedkv/alloc.h"
#include "pagedkv/pages.h"
#include "prefix/prefix_index.h"
#include "runtime/counters.h"

#define NO_SEQ (-1) /* the index of no sequence */

/* One block, beside its count in the pool. holders = table entries that name it + references of the
 * open step + pins. A block that has a node in the prefix index is committed, and full or a tail:
 * no sequence writes it again.
 *
 *   count = number of holders,  a free block has writer NO_SEQ and frozen 0
 *   a block that has a node has writer NO_SEQ
 *   writer = the one sequence that may write cells from frozen on without a copy, or NO_SEQ
 *   count > 1:  every holder but the writer reads only cells [0, frozen)
 *   count = 1:  frozen = 0
 *
 * A holder slides when it was promised no more than its window (promise.h), or what it holds is
 * part of its promise of states (state_list.h); what an open step holds for such a row counts like
 * the entry before it. */
struct block {
    int32_t writer;
    int32_t frozen;
    int32_t num_pins;    /* pins that hold it */
    int32_t num_sliding; /* holders that slide */
    bool left_window;    /* the sequence that dropped it last had it out of its window */
    bool is_stale;       /* free and cached: to be overwritten once it is cached no longer */
    uint64_t freed_ns;   /* when it became free and cached, by the context's now_ns; 0 unknown */
};

/* What a check found of one block. Create takes one for each block of the largest group, so that a
 * check takes no memory. */
struct block_tally {
    int32_t count;
    int32_t last_seq; /* + 1; the last sequence whose table named the block */
    int32_t num_pins;
    int32_t num_sliding;
    bool writer_holds;
};

/* What is written over a block that becomes free without being cached. */
enum block_scrub { BLOCK_SCRUB_NONE, BLOCK_SCRUB_ZERO, BLOCK_SCRUB_POISON };

/* What the blocks of all groups have in common. */
struct block_context {
    struct prefix_index *index; /* NULL: no block is ever cached */
    struct counters *counters;
    uint64_t now_ns; /* the latest time that a call brought */
    enum block_scrub scrub;
};

/* The blocks of one group. A continuous group has pages and context alone: its slots are scrubbed
 * like blocks. */
struct block_set {
    struct block_context *context;
    pkv_pages *pages;
    pkv_pool *pool;
    struct block *at; /* [num_blocks] */
    int32_t num_blocks;
    int32_t block_size;
    int32_t group;     /* by which the index knows them */
    int32_t min_blank; /* free and not cached: kept by evicting early; 0 = none */
    int32_t num_pinned;
    int32_t num_windowed; /* held blocks all of whose holders slide */
};

/* What a claim changed about the writer of a block. */
enum block_writer_change {
    WRITER_UNCHANGED,
    WRITER_SET,    /* it had none, and has the claiming sequence */
    WRITER_CLEARED /* it had the claiming sequence, and has none */
};

/* `count` free blocks with `writer` as their holder, who goes on behind block near (NO_BLOCK: who
 * begins). There must be as many; cached ones are evicted, in their order, when no others are left,
 * or when fewer than min_blank are.
 * ids [count] ascend from near on (alloc/block_pool.h), so that blocks lie side by side where that
 * takes nothing from anybody. */
void block_take(struct block_set *blocks, int32_t near, int32_t count, int32_t writer, bool slides,
                int32_t *ids);

/* Loads what will soon be read of a block: by a claim of its writer, when it is taken, and when it
 * is given a node. Blocks of different sequences lie far apart. */
static inline void block_prefetch_claim(const struct block_set *blocks, int32_t block)
{
    PKV_PREFETCH(&blocks->at[block]);
}

void block_prefetch_take(const struct block_set *blocks, int32_t block);
void block_prefetch_publish(const struct block_set *blocks, int32_t block);

/* One more holder, who does not slide and will read cells [0, num_cells), beside `holder`, who has
 * num_held there. */
void block_share(struct block_set *blocks, int32_t block, int32_t num_cells, int32_t holder,
                 int32_t num_held);

/* One more holder of a cached block, free or held, who reads all of it. */
void block_adopt(struct block_set *blocks, int32_t block, bool slides);

/* One holder less. The block without a holder is free, and cached if it has a node.
 * _out_of_window: its window has passed, so it is evicted before others. Which of the two it is
 * follows from the last sequence that dropped it when the last holder is none (NO_SEQ). */
void block_drop(struct block_set *blocks, int32_t block, int32_t holder, bool slides);
void block_drop_out_of_window(struct block_set *blocks, int32_t block, int32_t holder, bool slides);

/* One of its holders, which slid, does so no more; which did not, does so from now on. */
void block_stop_sliding(struct block_set *blocks, int32_t block);
void block_start_sliding(struct block_set *blocks, int32_t block);

/* Held, and by holders that slide alone. */
bool block_is_windowed(const struct block_set *blocks, int32_t block);

/* A holder that does not slide takes a block that may be promised: a free one, or one that is
 * promised once it leaves its windows. */
bool block_costs_spare(const struct block_set *blocks, int32_t block);

/* The block, committed and full or a tail, was given a node: no sequence writes it any more. */
void block_freeze(struct block_set *blocks, int32_t block);

/* Free blocks, and those of them that are cached. */
int32_t block_num_free(const struct block_set *blocks);
int32_t block_num_cached(const struct block_set *blocks);

/* May `seq`, a holder, write this block's cells from `offset` on? Then it is the writer from now
 * on; else it must copy, and is the writer no longer. *change says how to undo that. */
bool block_claim(struct block_set *blocks, int32_t block, int32_t seq, int32_t offset,
                 enum block_writer_change *change);

/* May `seq`, its only holder, write this indexed block once it is removed from the index? Then it
 * is the writer from now on, and block_uncache comes before it writes. */
bool block_claim_indexed(struct block_set *blocks, int32_t block, int32_t seq,
                         enum block_writer_change *change);
void block_uncache(struct block_set *blocks, int32_t block);

/* An indexed block leaves the index, unless it is pinned or a hit is expected to need it. Who holds
 * it goes on with it. */
void block_forgo(struct block_set *blocks, int32_t block);

/* Undoes a claim, unless the writer changed again since. */
void block_unclaim(struct block_set *blocks, int32_t block, int32_t seq,
                   enum block_writer_change change);

/* Overwrites a free block, or a slot of a continuous group, as the context says. */
void block_scrub(struct block_set *blocks, int32_t block);

/* Overwrites those of `count` blocks from `first` on that are free and cached no longer. */
void block_scrub_uncached(struct block_set *blocks, int32_t first, int32_t count);

#endif
