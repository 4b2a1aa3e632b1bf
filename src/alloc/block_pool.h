/* SPDX-License-Identifier: MIT
 *
 * block_pool.h: the pool as trusted callers use it: one id at a time, nothing validated. The public
 * calls of pagedkv/alloc.h check their lists and are built on these.
 *
 * Free ids are in numbered classes. Taking empties class 0 first, then class 1, and so on. What a
 * class means is the caller's matter; pkv_pool_release and block_pool_drop use class 0 alone.
 *
 * The classes from 1 on are queues: what has been free longest is taken next, whatever id it is,
 * for these ids are worth keeping, and in that order. Those of class 0 are worth nothing, so among
 * them the id is chosen that makes long runs (free_runs.h), and it depends on which ids are free
 * there and not on how they came to be:
 *
 *   block_pool_take         the first id of the longest run, so that few runs are broken into
 *   block_pool_take_near    the id behind `near`, the last of a sequence, while it is there; where
 *                           it is not, the sequence goes on in the middle of the longest run: one
 *                           half stays for who is before it, one is kept for itself
 *
 * Nothing but this choice keeps a neighbour for its sequence: an id of class 0 can be taken by
 * anybody, and is when others are gone. A request for more than one id takes the run behind near
 * first, then the longest runs one after the other, and its ids ascend (block_pool_arrange).
 *
 *   num_free = ids in runs + sum of the queues' lengths = number of records with ref_count 0
 *   a record is in the runs or in one queue exactly when its ref_count is 0, and then once
 *   scratch = 0 in every record between calls */
#ifndef PKV_ALLOC_BLOCK_POOL_H
#define PKV_ALLOC_BLOCK_POOL_H

#include "alloc/block_table.h"
#include "alloc/free_runs.h"
#include "base/hooks.h"
#include "pagedkv/alloc.h"

#define BLOCK_POOL_NUM_CLASSES 14
#define BLOCK_POOL_HELD (-1)   /* instead of a class */
#define BLOCK_POOL_PACKED (-2) /* instead of a near id: who takes does not grow */

struct block_pool_record {
    int32_t prev; /* neighbours in its queue, NO_BLOCK at the ends and in none */
    int32_t next;
    int32_t ref_count;
    int32_t scratch; /* how often the list under validation names this id */
    int32_t class;   /* of a free id; BLOCK_POOL_HELD */
};

struct block_pool_queue {
    int32_t head; /* free longest: the next to be taken */
    int32_t tail; /* free since the shortest time */
    int32_t length;
};

/* In this header for the tests of pkv_pool_check, which must break it; other modules use the
 * calls. */
struct pkv_pool {
    struct pkv_hooks hooks;
    struct block_pool_record *records; /* [num_blocks] */
    int32_t num_blocks;
    int32_t num_free;
    struct block_pool_queue queues[BLOCK_POOL_NUM_CLASSES]; /* one a class; that of 0 is empty */
    struct free_runs runs;                                  /* class 0 */
};

/* Bytes that a pool of num_blocks ids takes through its hooks. */
size_t block_pool_bytes(int32_t num_blocks);

/* One id with a count of one, or NO_BLOCK when none is free. */
int32_t block_pool_take(pkv_pool *pool);

/* Up to `count` ids of class 0, each with a count of one; how many. near is an id, or NO_BLOCK for
 * a sequence that begins, or BLOCK_POOL_PACKED: then they are taken as block_pool_take does. They
 * lie in ids [count] in the order in which they were found. */
int32_t block_pool_take_near(pkv_pool *pool, int32_t near, int32_t count, int32_t *ids);

/* Brings ids into the order of a table that goes on behind near: ascending from near on, then those
 * below it. O(count) when they are so, or the other way round, else O(count log count). */
void block_pool_arrange(int32_t near, int32_t count, int32_t *ids);

/* The id of a class that is taken next, or NO_BLOCK; and the same, taken. */
int32_t block_pool_head(const pkv_pool *pool, int32_t class);
int32_t block_pool_take_from(pkv_pool *pool, int32_t class);

/* One more reference to a held id. */
void block_pool_retain(pkv_pool *pool, int32_t id);

/* The first reference to a free id, which leaves its run or queue from wherever it is. */
void block_pool_revive(pkv_pool *pool, int32_t id);

/* Either of the two: one more reference to an id, free or held. */
void block_pool_hold(pkv_pool *pool, int32_t id);

/* One reference less to a held id. True when that made it free: it is then the last of the given
 * class. block_pool_drop: of class 0. */
bool block_pool_drop_to(pkv_pool *pool, int32_t id, int32_t class);
bool block_pool_drop(pkv_pool *pool, int32_t id);

/* Makes a free id the last of a class, which may be its own. */
void block_pool_move(pkv_pool *pool, int32_t id, int32_t class);

/* The class of a free id, or BLOCK_POOL_HELD. */
int32_t block_pool_class(const pkv_pool *pool, int32_t id);

/* How many ids of a class are free. */
int32_t block_pool_num_free(const pkv_pool *pool, int32_t class);

#endif
