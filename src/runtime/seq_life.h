/* SPDX-License-Identifier: MIT
 *
 * seq_life.h: a sequence is claimed, destroyed and released together with all that it holds: its
 * tables or slots in every group, its namespaces, its charge to quotas. The mutex is held. */
#ifndef PKV_RUNTIME_SEQ_LIFE_H
#define PKV_RUNTIME_SEQ_LIFE_H

#include "runtime/cache.h"

/* Room for `count` sequences more: PKV_BUSY on a closed cache, PKV_NO_BLOCKS. */
enum pkv_status seq_life_check_room(const pkv_cache *cache, int32_t count);

/* An empty sequence with the options of `prototype`, which passes its namespaces on; its index.
 * There must be room. O(groups). */
int32_t seq_life_claim(pkv_cache *cache, const struct seq *prototype);

/* Destroys a live sequence: at once, or, when it is in the open step or moving, as soon as that
 * ends. */
void seq_life_destroy(pkv_cache *cache, int32_t index);

/* Releases everything that a destroyed sequence holds, and its index. O(blocks). */
void seq_life_release(pkv_cache *cache, int32_t index);

/* The same, but no handle names it, and it is moving: its payload is read from somewhere. Then it
 * is shown and live, or undone, with nothing of it published. */
int32_t seq_life_claim_hidden(pkv_cache *cache, const struct seq *prototype);
void seq_life_show(pkv_cache *cache, int32_t index);
void seq_life_undo_hidden(pkv_cache *cache, int32_t index);

/* Keys and values of an idle sequence will be read or written without the mutex. Until the end of
 * that move its length, tables and tokens are constant: what would change them is PKV_BUSY. */
void seq_life_begin_move(pkv_cache *cache, int32_t index);

/* False when the sequence was destroyed meanwhile, and is released now. O(1), else O(blocks). */
bool seq_life_end_move(pkv_cache *cache, int32_t index);

#endif
