/* SPDX-License-Identifier: MIT
 *
 * Block ids with reference counts. Free ids form doubly linked queues inside an array of records,
 * oldest first, so taking, giving back and moving are O(1) and need no memory. The records lie
 * apart from the payload: a stray write through a key or value cannot break a queue.
 *
 * block_pool_drop_to is the one place that puts an id on a queue at its change from one to zero,
 * and block_pool_take and block_pool_revive are the two that take it off for the change back. Lists
 * may name an id several times; they are validated whole by counting each id's entries in its
 * record's scratch, which every path leaves at zero again. */
#include "alloc/block_pool.h"

#include "base/error.h"

static void enqueue(pkv_pool *pool, int32_t id, int32_t number)
{
    struct block_queue *queue = &pool->queues[number];
    struct block_record *record = &pool->records[id];
    record->prev = queue->tail;
    record->next = BLOCK_POOL_NONE;
    record->queue = number;
    if (queue->tail == BLOCK_POOL_NONE) {
        queue->head = id;
    } else {
        pool->records[queue->tail].next = id;
    }
    queue->tail = id;
    queue->length++;
    pool->num_free++;
}

/* From wherever in its queue it is. */
static void unqueue(pkv_pool *pool, int32_t id)
{
    struct block_record *record = &pool->records[id];
    struct block_queue *queue = &pool->queues[record->queue];
    if (record->prev == BLOCK_POOL_NONE) {
        queue->head = record->next;
    } else {
        pool->records[record->prev].next = record->next;
    }
    if (record->next == BLOCK_POOL_NONE) {
        queue->tail = record->prev;
    } else {
        pool->records[record->next].prev = record->prev;
    }
    record->prev = BLOCK_POOL_NONE;
    record->next = BLOCK_POOL_NONE;
    record->queue = BLOCK_POOL_NONE;
    queue->length--;
    pool->num_free--;
}

int32_t block_pool_take(pkv_pool *pool)
{
    for (int32_t number = 0; number < BLOCK_POOL_QUEUES; number++) {
        const int32_t id = pool->queues[number].head;
        if (id != BLOCK_POOL_NONE) {
            block_pool_revive(pool, id);
            return id;
        }
    }
    return BLOCK_POOL_NONE;
}

void block_pool_retain(pkv_pool *pool, int32_t id)
{
    pkv_assert(pool->records[id].ref_count > 0 && pool->records[id].ref_count < INT32_MAX);
    pool->records[id].ref_count++;
}

void block_pool_revive(pkv_pool *pool, int32_t id)
{
    pkv_assert(pool->records[id].ref_count == 0);
    unqueue(pool, id);
    pool->records[id].ref_count = 1;
}

void block_pool_hold(pkv_pool *pool, int32_t id)
{
    if (pool->records[id].ref_count == 0) {
        block_pool_revive(pool, id);
    } else {
        block_pool_retain(pool, id);
    }
}

bool block_pool_drop_to(pkv_pool *pool, int32_t id, int32_t queue)
{
    pkv_assert(pool->records[id].ref_count > 0 && queue >= 0 && queue < BLOCK_POOL_QUEUES);
    pool->records[id].ref_count--;
    if (pool->records[id].ref_count > 0) {
        return false;
    }
    enqueue(pool, id, queue);
    return true;
}

bool block_pool_drop(pkv_pool *pool, int32_t id)
{
    return block_pool_drop_to(pool, id, BLOCK_POOL_PLAIN);
}

void block_pool_requeue(pkv_pool *pool, int32_t id, int32_t queue)
{
    pkv_assert(pool->records[id].ref_count == 0 && queue >= 0 && queue < BLOCK_POOL_QUEUES);
    unqueue(pool, id);
    enqueue(pool, id, queue);
}

int32_t block_pool_free_queue(const pkv_pool *pool, int32_t id)
{
    return pool->records[id].queue;
}

int32_t block_pool_queue_length(const pkv_pool *pool, int32_t queue)
{
    return pool->queues[queue].length;
}

size_t block_pool_bytes(int32_t num_blocks)
{
    return hooks_array_bytes(1, sizeof(pkv_pool)) +
           hooks_array_bytes((size_t)num_blocks, sizeof(struct block_record));
}

enum pkv_status pkv_pool_create(int32_t num_blocks, const struct pkv_hooks *hooks, pkv_pool **pool)
{
    struct pkv_hooks memory;
    if (pool == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "pool is NULL");
    }
    if (num_blocks < 1) {
        return refuse(PKV_INVALID_ARGUMENT, "num_blocks = %d, below 1", num_blocks);
    }
    const enum pkv_status status = hooks_copy(hooks, &memory);
    if (status != PKV_OK) {
        return status;
    }
    pkv_pool *made = hooks_alloc_array(&memory, 1, sizeof *made);
    if (made == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for a pool");
    }
    made->hooks = memory;
    made->num_blocks = num_blocks;
    for (int32_t number = 0; number < BLOCK_POOL_QUEUES; number++) {
        made->queues[number].head = BLOCK_POOL_NONE;
        made->queues[number].tail = BLOCK_POOL_NONE;
    }
    made->records = hooks_alloc_array(&memory, (size_t)num_blocks, sizeof made->records[0]);
    if (made->records == NULL) {
        pkv_pool_destroy(made);
        return refuse(PKV_NO_MEMORY, "no memory for a pool of %d blocks", num_blocks);
    }
    for (int32_t id = 0; id < num_blocks; id++) {
        enqueue(made, id, BLOCK_POOL_PLAIN);
    }
    *pool = made;
    return PKV_OK;
}

void pkv_pool_destroy(pkv_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    const struct pkv_hooks memory = pool->hooks;
    hooks_free_array(&memory, pool->records, (size_t)pool->num_blocks, sizeof pool->records[0]);
    hooks_free_array(&memory, pool, 1, sizeof *pool);
}

/* What a list of ids must satisfy before its content is looked at. */
static enum pkv_status check_list(const pkv_pool *pool, const int32_t *ids, int32_t count)
{
    if (pool == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "pool is NULL");
    }
    if (count < 0) {
        return refuse(PKV_INVALID_ARGUMENT, "count = %d, below 0", count);
    }
    if (ids == NULL && count > 0) {
        return refuse(PKV_INVALID_ARGUMENT, "ids is NULL");
    }
    return PKV_OK;
}

enum pkv_status pkv_pool_alloc(pkv_pool *pool, int32_t count, int32_t *ids)
{
    const enum pkv_status status = check_list(pool, ids, count);
    if (status != PKV_OK) {
        return status;
    }
    if (count > pool->num_blocks) {
        return refuse(PKV_NEVER_FITS, "count = %d, but the pool has %d blocks", count,
                      pool->num_blocks);
    }
    if (count > pool->num_free) {
        return refuse(PKV_NO_BLOCKS, "count = %d, but %d blocks are free", count, pool->num_free);
    }
    for (int32_t i = 0; i < count; i++) {
        ids[i] = block_pool_take(pool);
    }
    return PKV_OK;
}

static bool is_block(const pkv_pool *pool, int32_t id)
{
    return id >= 0 && id < pool->num_blocks;
}

/* Entry i of the list, which is not -1 and stands in it so many times up to here. */
static enum pkv_status check_entry(const pkv_pool *pool, const int32_t *ids, int32_t i,
                                   int32_t times, bool is_release)
{
    const int32_t id = ids[i];
    if (!is_block(pool, id)) {
        return refuse(PKV_INVALID_ARGUMENT, "ids[%d] = %d, outside [0, %d)", i, id,
                      pool->num_blocks);
    }
    const int32_t ref_count = pool->records[id].ref_count;
    if (ref_count == 0) {
        return refuse(PKV_INVALID_ARGUMENT, "ids[%d] = %d, which is free", i, id);
    }
    if (is_release && times > ref_count) {
        return refuse(PKV_INVALID_ARGUMENT, "ids[%d] = %d, which holds only %d references", i, id,
                      ref_count);
    }
    if (!is_release && times > INT32_MAX - ref_count) {
        return refuse(PKV_INVALID_ARGUMENT, "ids[%d] = %d, which has too many references", i, id);
    }
    return PKV_OK;
}

/* Validates the whole list. How often an id stands in it is counted in the records' scratch, which
 * is left at zero; a list of one need not be counted. */
static enum pkv_status check_entries(pkv_pool *pool, const int32_t *ids, int32_t count,
                                     bool is_release)
{
    enum pkv_status status = check_list(pool, ids, count);
    int32_t counted = 0;
    if (status == PKV_OK && count == 1) {
        return ids[0] == -1 ? PKV_OK : check_entry(pool, ids, 0, 1, is_release);
    }
    while (status == PKV_OK && counted < count) {
        const int32_t id = ids[counted];
        const int32_t times = is_block(pool, id) ? ++pool->records[id].scratch : 0;
        status = id == -1 ? PKV_OK : check_entry(pool, ids, counted, times, is_release);
        counted++;
    }
    for (int32_t i = 0; i < counted; i++) {
        if (is_block(pool, ids[i])) {
            pool->records[ids[i]].scratch = 0;
        }
    }
    return status;
}

enum pkv_status pkv_pool_retain(pkv_pool *pool, const int32_t *ids, int32_t count)
{
    const enum pkv_status status = check_entries(pool, ids, count, false);
    for (int32_t i = 0; status == PKV_OK && i < count; i++) {
        if (ids[i] != -1) {
            block_pool_retain(pool, ids[i]);
        }
    }
    return status;
}

enum pkv_status pkv_pool_release(pkv_pool *pool, const int32_t *ids, int32_t count)
{
    const enum pkv_status status = check_entries(pool, ids, count, true);
    for (int32_t i = 0; status == PKV_OK && i < count; i++) {
        if (ids[i] != -1) {
            block_pool_drop(pool, ids[i]);
        }
    }
    return status;
}

int32_t pkv_pool_num_blocks(const pkv_pool *pool)
{
    return pool == NULL ? 0 : pool->num_blocks;
}

int32_t pkv_pool_num_free(const pkv_pool *pool)
{
    return pool == NULL ? 0 : pool->num_free;
}

int32_t pkv_pool_ref_count(const pkv_pool *pool, int32_t id)
{
    if (pool == NULL || id < 0 || id >= pool->num_blocks) {
        return -1;
    }
    return pool->records[id].ref_count;
}

/* 1, and a line in the log, when an invariant does not hold. */
static int32_t expect(const pkv_pool *pool, bool holds, const char *what, int32_t id)
{
    if (!holds) {
        hooks_log(&pool->hooks, PKV_LOG_ERROR, "block pool: %s (block %d)", what, id);
    }
    return holds ? 0 : 1;
}

/* Follows a queue. Each record met must point back to the one before and name this queue, so none
 * is met twice: the walk ends even when a broken link closes a ring. */
static int32_t check_queue(const pkv_pool *pool, int32_t number)
{
    const struct block_queue *queue = &pool->queues[number];
    int32_t before = BLOCK_POOL_NONE;
    int32_t length = 0;
    for (int32_t id = queue->head; id != BLOCK_POOL_NONE; id = pool->records[id].next) {
        if (id < 0 || id >= pool->num_blocks || pool->records[id].prev != before) {
            return expect(pool, false, "a free queue has a broken link", id);
        }
        if (pool->records[id].queue != number) {
            return expect(pool, false, "an id waits on a queue that it does not name", id);
        }
        before = id;
        length++;
    }
    return expect(pool, before == queue->tail, "a free queue ends before its tail", queue->tail) +
           expect(pool, length == queue->length, "a free queue is not as long as its count",
                  length);
}

/* Is it linked where it says? Together with the walks: is it on exactly one queue? */
static bool is_queued(const pkv_pool *pool, int32_t id)
{
    const struct block_record *record = &pool->records[id];
    if (record->queue < 0 || record->queue >= BLOCK_POOL_QUEUES) {
        return false;
    }
    return id == pool->queues[record->queue].head || record->prev != BLOCK_POOL_NONE;
}

int32_t pkv_pool_check(const pkv_pool *pool)
{
    if (pool == NULL) {
        (void)refuse(PKV_INVALID_ARGUMENT, "pool is NULL");
        return 1;
    }
    int32_t faults = 0;
    int32_t queued = 0;
    int32_t unheld = 0;
    for (int32_t number = 0; number < BLOCK_POOL_QUEUES; number++) {
        faults += check_queue(pool, number);
        queued += pool->queues[number].length;
    }
    for (int32_t id = 0; id < pool->num_blocks; id++) {
        const struct block_record *record = &pool->records[id];
        faults += expect(pool, record->ref_count >= 0, "a reference count is negative", id);
        faults += expect(pool, is_queued(pool, id) == (record->ref_count == 0),
                         "an id is free and not queued, or held and queued", id);
        faults += expect(pool, record->scratch == 0, "a scratch count was left behind", id);
        unheld += record->ref_count == 0;
    }
    return faults +
           expect(pool, queued == pool->num_free, "the queues do not add up to num_free", queued) +
           expect(pool, unheld == pool->num_free, "free + held is not num_blocks", unheld);
}
