/* SPDX-License-Identifier: MIT
 *
 * gather.h: what a worker does next: gathered from what is waiting into a transfer, and what became
 * of it noted, so that a poll can let it take effect. The mutex is held. O(blocks of the transfer).
 */
#ifndef PKV_RUNTIME_GATHER_H
#define PKV_RUNTIME_GATHER_H

#include "runtime/cache.h"
#include "runtime/transfer.h"

/* Pieces and bytes of head that a block of this cache has at most. */
int32_t gather_max_pieces(const pkv_cache *cache);
size_t gather_max_head_bytes(const pkv_cache *cache);

/* Fills the transfer with the next piece of work; false when there is none at the moment. Flushes
 * come first, and alone; then prefetches, then stores. */
bool gather_next(pkv_cache *cache, struct transfer *transfer);

/* The transfer was carried out. Its tickets go on. */
void gather_note(pkv_cache *cache, const struct transfer *transfer);

/* Is nothing left for workers, or under way? */
bool gather_is_idle(const pkv_cache *cache);

#endif
