/* SPDX-License-Identifier: MIT
 *
 * pagedkv/alloc.h: block ids with reference counts. A pool manages the ids [0, num_blocks) of a
 * paged cache: which are free, and how many sequences hold each of the others. It knows nothing of
 * the memory behind a block (pages.h) nor of what its cells hold.
 *
 *     pkv_pool_create(1024, NULL, &pool)
 *     pkv_pool_alloc(pool, 3, table)         a sequence takes three blocks, count 1 each
 *     pkv_pool_retain(pool, table, 2)        another one shares the first two: count 2
 *     pkv_pool_release(pool, table, 3)       the first one ends: only its third block is free again
 *     pkv_pool_destroy(pool)
 *
 * A reference belongs to the caller who took it; the pool counts references and does not know who
 * holds them. These equations hold between any two calls, and pkv_pool_check verifies them:
 *
 *     free + held = num_blocks
 *     held        = number of ids whose count is above 0
 *     an id is among the free ones exactly once, if and only if its count is 0
 *
 * Blocks with adjacent ids lie side by side in memory, and a processor reads those in a row faster.
 * So the pool hands out runs of ids: several at once lie together as far as they can, and a
 * sequence that grows and names its last block (pkv_pool_alloc_near) gets the next id, for which
 * the pool leaves room while it is not short. Which ids a call takes depends on which are free and
 * on its arguments, and on nothing else. A call either happens whole or changes nothing. After
 * create no call takes memory.
 *
 * Threads: one thread at a time uses a pool. Different pools are independent. */
#ifndef PAGEDKV_ALLOC_H
#define PAGEDKV_ALLOC_H

#include "pagedkv/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pkv_pool pkv_pool;

/* Makes a pool of block ids, all of them free.
 *
 * num_blocks is in [1, INT32_MAX]. hooks may be NULL; only alloc, free and log are used.
 *
 * Returns PKV_OK and the pool in *pool, which the caller destroys; PKV_INVALID_ARGUMENT for a count
 * out of range or half a pair of hooks; PKV_NO_MEMORY. O(num_blocks). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_pool_create(int32_t num_blocks, const struct pkv_hooks *hooks, pkv_pool **pool);

/* Frees a pool, whether or not some of its ids are still held. NULL is accepted. O(1). */
PKV_API void pkv_pool_destroy(pkv_pool *pool);

/* Takes free block ids, all or none, for a sequence that is not expected to grow.
 *
 * Writes `count` distinct ids to ids [count], each with a reference count of 1, in ascending order:
 * the first ones of the longest run of free ids, and of more runs, the longest first, where one
 * does not suffice. Runs count as equally long within a power of two, and from 2048 ids on; the
 * lowest of them is taken. So a new pool gives 0, 1, 2, ... A count of 0 succeeds, and ids may then
 * be NULL.
 *
 * Returns PKV_OK; PKV_NO_BLOCKS when fewer than `count` are free now; PKV_NEVER_FITS when the pool
 * has fewer in total; PKV_INVALID_ARGUMENT for a negative count. O(count) where one run suffices,
 * else O(count log count). */
PKV_API PKV_NODISCARD enum pkv_status pkv_pool_alloc(pkv_pool *pool, int32_t count, int32_t *ids);

/* Takes free block ids, all or none, for a sequence that grows: the more of its blocks lie side by
 * side, the faster it is read.
 *
 * near is the last block that the sequence has, or -1 for one that begins; nothing is required of
 * it but its range, [-1, num_blocks). Taken are the free ids behind near, near + 1 first, and for
 * what is then missing those in the middle of the longest run of free ids (see pkv_pool_alloc), so
 * that this sequence and the one whose blocks lie before the run both have room to grow. Room is
 * left, not reserved: a call that finds no other id takes it, and none fails for it. ids [count]
 * ascend from near on, and go on with those below it.
 *
 *     pkv_pool_alloc_near(pool, -1, 3, table)                   512, 513, 514
 *     pkv_pool_alloc_near(pool, table[2], 1, table + 3)         515
 *
 * count, ids, and what it returns are those of pkv_pool_alloc. */
PKV_API PKV_NODISCARD enum pkv_status pkv_pool_alloc_near(pkv_pool *pool, int32_t near,
                                                          int32_t count, int32_t *ids);

/* Adds a reference to each block id of a list, such as the shared part of a block table.
 *
 * ids [count]: entries of -1 are skipped, so that a block table can be passed as it is. An id may
 * appear several times and then gets as many references.
 *
 * Returns PKV_OK; PKV_INVALID_ARGUMENT when an id is out of range or free, or its count would pass
 * INT32_MAX: no count has changed then. O(count). */
PKV_API PKV_NODISCARD enum pkv_status pkv_pool_retain(pkv_pool *pool, const int32_t *ids,
                                                      int32_t count);

/* Releases a reference to each block id of a list. An id whose count falls from 1 to 0 is free;
 * nothing else makes an id free.
 *
 * ids [count]: entries of -1 are skipped; an id may appear several times and loses as many
 * references. The order of the list does not matter.
 *
 * Returns PKV_OK; PKV_INVALID_ARGUMENT when an id is out of range or free, or the list releases it
 * more often than it is held: no count has changed then. O(count). */
PKV_API enum pkv_status pkv_pool_release(pkv_pool *pool, const int32_t *ids, int32_t count);

/* The number of ids of a pool, free and held.
 *
 * Returns num_blocks of the create call; 0 for NULL. O(1). */
PKV_API int32_t pkv_pool_num_blocks(const pkv_pool *pool);

/* The number of free ids of a pool: as many can be taken at once.
 *
 * Returns a number in [0, num_blocks]; 0 for NULL. O(1). */
PKV_API int32_t pkv_pool_num_free(const pkv_pool *pool);

/* The reference count of one block id.
 *
 * Returns the count; 0 for a free id; -1 for an id out of range or a NULL pool. O(1). */
PKV_API int32_t pkv_pool_ref_count(const pkv_pool *pool, int32_t id);

/* Verifies every invariant of a pool, for tests and for a server that suspects corruption. Each
 * broken one is one line through the log hook.
 *
 * Returns the number of broken invariants: 0 for a sound pool, 1 for NULL. O(num_blocks). */
PKV_API int32_t pkv_pool_check(const pkv_pool *pool);

/* Checks block tables in the way in which the attention operator checks them before it reads
 * anything: every entry is -1 (nothing mapped) or in [0, num_blocks), and no id appears twice in
 * one row. An id may appear in several rows, which then share the block. Whether an entry of -1 is
 * needed for some query depends on lengths and window; the operator checks that itself.
 *
 * block_table [batch][max_blocks]; batch and max_blocks >= 0, num_blocks >= 1. hooks may be NULL;
 * alloc and free provide num_blocks * 4 bytes of scratch during the call.
 *
 * Returns PKV_OK; PKV_INVALID_ARGUMENT for the first fault, and the last error names the entry;
 * PKV_NO_MEMORY. Any thread. O(batch * max_blocks + num_blocks). */
PKV_API PKV_NODISCARD enum pkv_status pkv_block_table_check(const int32_t *block_table,
                                                            int32_t batch, int32_t max_blocks,
                                                            int32_t num_blocks,
                                                            const struct pkv_hooks *hooks);

#ifdef __cplusplus
}
#endif

#endif
