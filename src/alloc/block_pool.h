/* SPDX-License-Identifier: MIT
 *
 * block_pool.h: the pool as trusted callers use it: one id at a time, nothing validated. The public
 * calls of pagedkv/alloc.h check their lists and are built on these.
 *
 *   num_free = length of the queue = number of records with ref_count 0
 *   a record is on the queue exactly when its ref_count is 0, and then once
 *   scratch = 0 in every record between calls */
#ifndef PKV_ALLOC_BLOCK_POOL_H
#define PKV_ALLOC_BLOCK_POOL_H

#include "base/hooks.h"
#include "pagedkv/alloc.h"

struct block_record {
    int32_t prev; /* neighbours on the free queue, BLOCK_POOL_NONE at its ends and off it */
    int32_t next;
    int32_t ref_count;
    int32_t scratch; /* how often the list under validation names this id */
};

#define BLOCK_POOL_NONE (-1)

/* Laid open for the tests of pkv_pool_check, which must break it; other modules use the calls. */
struct pkv_pool {
    struct pkv_hooks hooks;
    struct block_record *records; /* [num_blocks] */
    int32_t num_blocks;
    int32_t num_free;
    int32_t head; /* the id longest free: the next to be taken */
    int32_t tail; /* the id given back last */
};

/* Bytes that a pool of num_blocks ids takes through its hooks. */
size_t block_pool_bytes(int32_t num_blocks);

/* One id with a count of one, or -1 when none is free. */
int32_t block_pool_take(pkv_pool *pool);

/* One more reference to a held id. */
void block_pool_retain(pkv_pool *pool, int32_t id);

/* One reference less to a held id; true when that made it free. */
bool block_pool_drop(pkv_pool *pool, int32_t id);

#endif
