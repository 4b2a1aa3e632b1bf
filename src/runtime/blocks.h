/* SPDX-License-Identifier: MIT
 *
 * blocks.h: one block of a paged group and its holders. Committed cells that another holder may
 * read are never written: a sequence writes in place, or it copies. The mutex is held. O(1), but
 * for the optional overwriting of a block that becomes free. */
#ifndef PKV_RUNTIME_BLOCKS_H
#define PKV_RUNTIME_BLOCKS_H

#include "runtime/cache.h"

/* A free block with `writer` as its holder. There must be one. */
int32_t blocks_take(struct group *group, int32_t writer);

/* One more holder, who will read cells [0, num_cells), beside `holder`, who has num_held there. */
void blocks_share(struct group *group, int32_t block, int32_t num_cells, int32_t holder,
                  int32_t num_held);

/* `holder` lets go of the block; when it was the last, the block is free. */
void blocks_drop(pkv_cache *cache, struct group *group, int32_t block, int32_t holder);

/* May `seq`, a holder, write this block's cells from `offset` on? Then it is the writer from now
 * on; else it must copy, and is the writer no longer. *change says how to undo that. */
bool blocks_claim(struct group *group, int32_t block, int32_t seq, int32_t offset,
                  enum tail_change *change);

/* Undoes a claim, unless the writer changed again since. */
void blocks_unclaim(struct group *group, int32_t block, int32_t seq, enum tail_change change);

/* Overwrites a free block or continuous row as the cache was configured to. */
void blocks_scrub(pkv_cache *cache, struct group *group, int32_t block);

#endif
