/* SPDX-License-Identifier: MIT
 *
 * Block ids with reference counts. The free ids of a class form a doubly linked queue inside an
 * array of records, so taking, releasing and moving are O(1) and need no memory. The records lie
 * apart from the payload: a stray write through a key or value cannot break a queue.
 *
 * block_pool_drop_to is the one place that puts an id into a queue when its count falls from one to
 * zero, and block_pool_revive the one that takes it out for the change back. Lists may name an id
 * several times; they are validated whole by counting each id's entries in its record's scratch,
 * which every path leaves at zero again. */
#include "alloc/block_pool.h"

#include "base/error.h"
#include "base/report.h"

static void enqueue(pkv_pool *pool, int32_t id, int32_t class)
{
    struct block_pool_queue *queue = &pool->queues[class];
    struct block_pool_record *record = &pool->records[id];
    record->prev = queue->tail;
    record->next = NO_BLOCK;
    record->class = class;
    if (queue->tail == NO_BLOCK) {
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
    struct block_pool_record *record = &pool->records[id];
    struct block_pool_queue *queue = &pool->queues[record->class];
    if (record->prev == NO_BLOCK) {
        queue->head = record->next;
    } else {
        pool->records[record->prev].next = record->next;
    }
    if (record->next == NO_BLOCK) {
        queue->tail = record->prev;
    } else {
        pool->records[record->next].prev = record->prev;
    }
    record->prev = NO_BLOCK;
    record->next = NO_BLOCK;
    record->class = BLOCK_POOL_HELD;
    queue->length--;
    pool->num_free--;
}

int32_t block_pool_head(const pkv_pool *pool, int32_t class)
{
    return pool->queues[class].head;
}

int32_t block_pool_take_from(pkv_pool *pool, int32_t class)
{
    const int32_t id = block_pool_head(pool, class);
    if (id != NO_BLOCK) {
        block_pool_revive(pool, id);
    }
    return id;
}

int32_t block_pool_take(pkv_pool *pool)
{
    int32_t id = NO_BLOCK;
    for (int32_t class = 0; id == NO_BLOCK && class < BLOCK_POOL_NUM_CLASSES; class ++) {
        id = block_pool_take_from(pool, class);
    }
    return id;
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

static bool is_class(int32_t class)
{
    return class >= 0 && class < BLOCK_POOL_NUM_CLASSES;
}

bool block_pool_drop_to(pkv_pool *pool, int32_t id, int32_t class)
{
    pkv_assert(pool->records[id].ref_count > 0 && is_class(class));
    pool->records[id].ref_count--;
    if (pool->records[id].ref_count > 0) {
        return false;
    }
    enqueue(pool, id, class);
    return true;
}

bool block_pool_drop(pkv_pool *pool, int32_t id)
{
    return block_pool_drop_to(pool, id, 0);
}

void block_pool_move(pkv_pool *pool, int32_t id, int32_t class)
{
    pkv_assert(pool->records[id].ref_count == 0 && is_class(class));
    unqueue(pool, id);
    enqueue(pool, id, class);
}

int32_t block_pool_class(const pkv_pool *pool, int32_t id)
{
    return pool->records[id].class;
}

int32_t block_pool_num_free(const pkv_pool *pool, int32_t class)
{
    return pool->queues[class].length;
}

size_t block_pool_bytes(int32_t num_blocks)
{
    return hooks_array_bytes(1, sizeof(pkv_pool)) +
           hooks_array_bytes((size_t)num_blocks, sizeof(struct block_pool_record));
}

enum pkv_status pkv_pool_create(int32_t num_blocks, const struct pkv_hooks *hooks, pkv_pool **pool)
{
    struct pkv_hooks memory;
    if (pool == NULL) {
        return INVALID("pool is NULL");
    }
    if (num_blocks < 1) {
        return INVALID("num_blocks = %d, below 1", num_blocks);
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
    for (int32_t class = 0; class < BLOCK_POOL_NUM_CLASSES; class ++) {
        made->queues[class].head = NO_BLOCK;
        made->queues[class].tail = NO_BLOCK;
    }
    made->records = hooks_alloc_array(&memory, (size_t)num_blocks, sizeof made->records[0]);
    if (made->records == NULL) {
        pkv_pool_destroy(made);
        return refuse(PKV_NO_MEMORY, "no memory for a pool of %d blocks", num_blocks);
    }
    for (int32_t id = 0; id < num_blocks; id++) {
        enqueue(made, id, 0);
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
        return INVALID("pool is NULL");
    }
    if (count < 0) {
        return INVALID("count = %d, below 0", count);
    }
    if (ids == NULL && count > 0) {
        return INVALID("ids is NULL");
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

/* Entry i of the list, which is not -1; the list has named its id so many times up to here. */
static enum pkv_status check_entry(const pkv_pool *pool, const int32_t *ids, int32_t i,
                                   int32_t times, bool is_release)
{
    const int32_t id = ids[i];
    if (!is_block(pool, id)) {
        return INVALID("ids[%d] = %d, outside [0, %d)", i, id, pool->num_blocks);
    }
    const int32_t ref_count = pool->records[id].ref_count;
    if (ref_count == 0) {
        return INVALID("ids[%d] = %d, which is free", i, id);
    }
    if (is_release && times > ref_count) {
        return INVALID("ids[%d] = %d, which holds only %d references", i, id, ref_count);
    }
    if (!is_release && times > INT32_MAX - ref_count) {
        return INVALID("ids[%d] = %d, which has too many references", i, id);
    }
    return PKV_OK;
}

/* Validates the whole list, counting in scratch how often it names each id. A list of one need not
 * be counted. */
static enum pkv_status check_entries(pkv_pool *pool, const int32_t *ids, int32_t count,
                                     bool is_release)
{
    enum pkv_status status = check_list(pool, ids, count);
    int32_t counted = 0;
    if (status == PKV_OK && count == 1) {
        return ids[0] == NO_BLOCK ? PKV_OK : check_entry(pool, ids, 0, 1, is_release);
    }
    while (status == PKV_OK && counted < count) {
        const int32_t id = ids[counted];
        const int32_t times = is_block(pool, id) ? ++pool->records[id].scratch : 0;
        status = id == NO_BLOCK ? PKV_OK : check_entry(pool, ids, counted, times, is_release);
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
        if (ids[i] != NO_BLOCK) {
            block_pool_retain(pool, ids[i]);
        }
    }
    return status;
}

enum pkv_status pkv_pool_release(pkv_pool *pool, const int32_t *ids, int32_t count)
{
    const enum pkv_status status = check_entries(pool, ids, count, true);
    for (int32_t i = 0; status == PKV_OK && i < count; i++) {
        if (ids[i] != NO_BLOCK) {
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

/* Follows a queue. Each record met must point back to the one before and name this class, so none
 * is met twice: the walk ends even when a broken link closes a ring. */
static void check_queue(struct report *report, const pkv_pool *pool, int32_t class)
{
    const struct block_pool_queue *queue = &pool->queues[class];
    int32_t before = NO_BLOCK;
    int32_t length = 0;
    for (int32_t id = queue->head; id != NO_BLOCK; id = pool->records[id].next) {
        const bool is_linked = is_block(pool, id) && pool->records[id].prev == before;
        if (!report_expect(report, is_linked, "class %d: a broken link (block %d)", class, id) ||
            !report_expect(report, pool->records[id].class == class,
                           "class %d: its queue has an id of another class (block %d)", class,
                           id)) {
            return;
        }
        before = id;
        length++;
    }
    report_expect(report, before == queue->tail, "class %d: its queue ends before its tail", class);
    report_expect(report, length == queue->length, "class %d: %d ids are queued, counted are %d",
                  class, length, queue->length);
}

/* Is it linked where it says? Together with the walks: is it in exactly one queue? */
static bool is_queued(const pkv_pool *pool, int32_t id)
{
    const struct block_pool_record *record = &pool->records[id];
    return is_class(record->class) &&
           (id == pool->queues[record->class].head || record->prev != NO_BLOCK);
}

static void check_record(struct report *report, const pkv_pool *pool, int32_t id)
{
    const struct block_pool_record *record = &pool->records[id];
    report_expect(report, record->ref_count >= 0, "a reference count is negative (block %d)", id);
    report_expect(report, is_queued(pool, id) == (record->ref_count == 0),
                  "an id is free and not queued, or held and queued (block %d)", id);
    report_expect(report, record->scratch == 0, "a scratch count is not zero (block %d)", id);
}

int32_t pkv_pool_check(const pkv_pool *pool)
{
    if (pool == NULL) {
        (void)INVALID("pool is NULL");
        return 1;
    }
    struct report report = {&pool->hooks, "block pool", 0};
    int32_t queued = 0;
    int32_t unheld = 0;
    for (int32_t class = 0; class < BLOCK_POOL_NUM_CLASSES; class ++) {
        check_queue(&report, pool, class);
        queued += pool->queues[class].length;
    }
    for (int32_t id = 0; id < pool->num_blocks; id++) {
        check_record(&report, pool, id);
        unheld += pool->records[id].ref_count == 0;
    }
    report_expect(&report, queued == pool->num_free, "%d ids are queued, but num_free is %d",
                  queued, pool->num_free);
    report_expect(&report, unheld == pool->num_free, "%d ids have no reference, but num_free is %d",
                  unheld, pool->num_free);
    return report.num_broken;
}
