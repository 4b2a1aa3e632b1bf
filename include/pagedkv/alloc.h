/* SPDX-License-Identifier: MIT
 *
 * pagedkv/alloc.h: block ids. A pool hands out ids in [0, num_blocks) with a reference count each;
 * it knows nothing of what a block holds. Every operation is O(1) per id, takes no memory, and
 * either happens whole or not at all.
 *
 *   free + held = num_blocks
 *   held = number of ids with a count > 0
 *   an id is on the free queue once, exactly when its count is 0
 *
 * Free ids wait in the order in which they were given back, so the one longest free is handed out
 * first. A pool is used by one thread at a time. */
#ifndef PAGEDKV_ALLOC_H
#define PAGEDKV_ALLOC_H

#include "pagedkv/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pkv_pool pkv_pool;

/* A pool of num_blocks ids, all free, in the order 0, 1, 2, ... num_blocks in [1, INT32_MAX].
 * hooks may be NULL; they are copied. PKV_INVALID_ARGUMENT, PKV_NO_MEMORY. Cost O(num_blocks). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_pool_create(int32_t num_blocks, const struct pkv_hooks *hooks, pkv_pool **pool);

/* Frees the pool, whatever is still held. NULL is accepted. */
PKV_API void pkv_pool_destroy(pkv_pool *pool);

/* Takes count ids, each with a count of one, into ids[0..count). All or none: fewer free ids than
 * that is PKV_NO_BLOCKS, more than the pool has at all is PKV_NEVER_FITS, a negative count is
 * PKV_INVALID_ARGUMENT. count 0 succeeds and touches nothing. */
PKV_API PKV_NODISCARD enum pkv_status pkv_pool_alloc(pkv_pool *pool, int32_t count, int32_t *ids);

/* Adds one reference for each entry of ids[0..count). Entries of -1 are skipped and an id may stand
 * there several times. An id out of range, or one that is free, refuses the whole list
 * (PKV_INVALID_ARGUMENT). */
PKV_API PKV_NODISCARD enum pkv_status pkv_pool_retain(pkv_pool *pool, const int32_t *ids,
                                                      int32_t count);

/* Gives back one reference for each entry; an id whose count falls from one to zero goes to the end
 * of the free queue, and nothing else puts it there. Entries of -1 are skipped. A list that gives
 * back more than an id holds refuses whole (PKV_INVALID_ARGUMENT): no count changes. */
PKV_API PKV_NODISCARD enum pkv_status pkv_pool_release(pkv_pool *pool, const int32_t *ids,
                                                       int32_t count);

/* Counts. O(1). pkv_pool_ref_count answers 0 for a free id and -1 for one out of range. */
PKV_API int32_t pkv_pool_num_blocks(const pkv_pool *pool);
PKV_API int32_t pkv_pool_num_free(const pkv_pool *pool);
PKV_API int32_t pkv_pool_ref_count(const pkv_pool *pool, int32_t id);

/* Walks the whole pool and returns the number of broken invariants: 0 in a sound pool. Each is
 * reported through the log hook. O(num_blocks). */
PKV_API int32_t pkv_pool_check(const pkv_pool *pool);

/* Checks block tables [batch][max_blocks] as the operator does before it reads anything: every
 * entry is -1 (nothing mapped) or in [0, num_blocks), and no id stands twice in one row. The first
 * fault is PKV_INVALID_ARGUMENT and the last error names it; an id may stand in several rows. What
 * the entries are needed for is the operator's business. hooks (NULL = default) give scratch for
 * num_blocks stamps: PKV_NO_MEMORY. Cost O(batch * max_blocks + num_blocks). Any thread. */
PKV_API PKV_NODISCARD enum pkv_status pkv_block_table_check(const int32_t *block_table,
                                                            int32_t batch, int32_t max_blocks,
                                                            int32_t num_blocks,
                                                            const struct pkv_hooks *hooks);

#ifdef __cplusplus
}
#endif

#endif
