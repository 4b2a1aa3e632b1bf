/* SPDX-License-Identifier: MIT
 *
 * block_pool.h: the pool as trusted callers use it: one id at a time, nothing validated. The public
 * calls of pagedkv/alloc.h check their lists and are built on these.
 *
 * Free ids wait in several queues. Taking empties the lowest first, each from its head, so a
 * queue's number says how much its ids are worth keeping, and inside a queue the longest free goes
 * first:
 *
 *   0         never committed, or not to be found any more
 *   1         cached, out of its sequence's window
 *   2 .. 5    cached, of class 0 .. 3
 *
 *   num_free = sum of the queues' lengths = number of records with ref_count 0
 *   a record is on one queue exactly when its ref_count is 0, and then once
 *   scratch = 0 in every record between calls */
#ifndef PKV_ALLOC_BLOCK_POOL_H
#define PKV_ALLOC_BLOCK_POOL_H

#include "base/hooks.h"
#include "pagedkv/alloc.h"

#define BLOCK_POOL_NONE (-1)

enum {
    BLOCK_POOL_PLAIN = 0,
    BLOCK_POOL_OUT_OF_WINDOW = 1,
    BLOCK_POOL_CLASS = 2, /* + class */
    BLOCK_POOL_QUEUES = 6
};

struct block_record {
    int32_t prev; /* neighbours on the free queue, BLOCK_POOL_NONE at its ends and off it */
    int32_t next;
    int32_t ref_count;
    int32_t scratch; /* how often the list under validation names this id */
    int32_t queue;   /* of a free id; BLOCK_POOL_NONE while held */
};

struct block_queue {
    int32_t head; /* the id longest free: the next to be taken */
    int32_t tail; /* the id given back last */
    int32_t length;
};

/* Laid open for the tests of pkv_pool_check, which must break it; other modules use the calls. */
struct pkv_pool {
    struct pkv_hooks hooks;
    struct block_record *records; /* [num_blocks] */
    int32_t num_blocks;
    int32_t num_free;
    struct block_queue queues[BLOCK_POOL_QUEUES];
};

/* Bytes that a pool of num_blocks ids takes through its hooks. */
size_t block_pool_bytes(int32_t num_blocks);

/* One id with a count of one, or -1 when none is free. */
int32_t block_pool_take(pkv_pool *pool);

/* One more reference to a held id. */
void block_pool_retain(pkv_pool *pool, int32_t id);

/* The first reference to a free id, which leaves the middle of its queue. */
void block_pool_revive(pkv_pool *pool, int32_t id);

/* Either of the two: one more reference to an id, free or held. */
void block_pool_hold(pkv_pool *pool, int32_t id);

/* One reference less to a held id; true when that made it free: it then waits at the end of the
 * given queue. block_pool_drop: of queue 0. */
bool block_pool_drop_to(pkv_pool *pool, int32_t id, int32_t queue);
bool block_pool_drop(pkv_pool *pool, int32_t id);

/* Moves a free id to the end of a queue, also when it is on that queue already. */
void block_pool_requeue(pkv_pool *pool, int32_t id, int32_t queue);

/* The queue on which a free id waits; BLOCK_POOL_NONE for a held one. */
int32_t block_pool_free_queue(const pkv_pool *pool, int32_t id);

/* How many ids wait on a queue. */
int32_t block_pool_queue_length(const pkv_pool *pool, int32_t queue);

#endif
