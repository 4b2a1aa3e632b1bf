/* SPDX-License-Identifier: MIT
 *
 * blocks.h: one block of a paged group and its holders. Committed cells that another holder may
 * read are never written: a sequence writes in place, or it copies. The mutex is held. O(1), but
 * for the optional overwriting of a block that becomes free. */
#ifndef PKV_RUNTIME_BLOCKS_H
#define PKV_RUNTIME_BLOCKS_H

#include "runtime/cache.h"

/* What a claim changed about the writer of a block. */
enum block_writer_change {
    WRITER_UNCHANGED,
    WRITER_SET,    /* it had none, and has the claiming sequence */
    WRITER_CLEARED /* it had the claiming sequence, and has none */
};

/* A free block with `writer` as its holder. There must be one; a cached one is forgotten. */
int32_t blocks_take(pkv_cache *cache, struct group *group, int32_t writer);

/* One more holder, who will read cells [0, num_cells), beside `holder`, who has num_held there. */
void blocks_share(struct group *group, int32_t block, int32_t num_cells, int32_t holder,
                  int32_t num_held);

/* One more holder of a cached block, free or held, who reads all of it. */
void blocks_adopt(struct group *group, int32_t block);

/* `holder` lets go of the block; when it was the last, the block is free, and cached if it has a
 * node. _behind: because its window has passed, which makes it worth less than others. */
void blocks_drop(pkv_cache *cache, struct group *group, int32_t block, int32_t holder);
void blocks_drop_behind(pkv_cache *cache, struct group *group, int32_t block, int32_t holder);

/* The block, full and committed, was given a node: nobody writes it any more. */
void blocks_freeze(struct group *group, int32_t block);

/* Free blocks, and those of them that are cached. */
int32_t blocks_num_free(const struct group *group);
int32_t blocks_num_cached(const struct group *group);

/* May `seq`, a holder, write this block's cells from `offset` on? Then it is the writer from now
 * on; else it must copy, and is the writer no longer. *change says how to undo that. */
bool blocks_claim(const pkv_cache *cache, struct group *group, int32_t block, int32_t seq,
                  int32_t offset, enum block_writer_change *change);

/* May `seq`, its only holder, write this block once it is forgotten? Then it is the writer from now
 * on, and the block must be forgotten before it is written. */
bool blocks_claim_cached(const pkv_cache *cache, struct group *group, int32_t block, int32_t seq,
                         enum block_writer_change *change);
void blocks_forget(pkv_cache *cache, struct group *group, int32_t block);

/* Undoes a claim, unless the writer changed again since. */
void blocks_unclaim(struct group *group, int32_t block, int32_t seq,
                    enum block_writer_change change);

/* Overwrites a free block or continuous row as the cache was configured to. */
void blocks_scrub(pkv_cache *cache, struct group *group, int32_t block);

/* Whether the cache overwrites what becomes free. */
bool blocks_are_scrubbed(const pkv_cache *cache);

/* Overwrites those of `count` blocks from `first` on that are free and cached no longer. */
void blocks_scrub_forgotten(pkv_cache *cache, struct group *group, int32_t first, int32_t count);

#endif
