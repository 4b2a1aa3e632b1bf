/* SPDX-License-Identifier: MIT
 *
 * Block ids with reference counts. The free ids of class 0 are runs (free_runs.h), those of any
 * other class a doubly linked queue inside an array of records, so taking, releasing and moving are
 * O(1) and need no memory. The records lie apart from the payload: a stray write through a key or
 * value cannot break a queue.
 *
 * block_pool_drop_to is the one place that makes an id free when its count falls from one to zero,
 * and block_pool_revive and block_pool_take_near are those of the change back. Lists may name an id
 * several times; they are validated whole by counting each id's entries in its record's scratch,
 * which every path leaves at zero again. */
#include "alloc/block_pool.h"

#include "base/error.h"
#include "base/minmax.h"
#include "base/report.h"

static void enqueue(pkv_pool *pool, int32_t id, int32_t class)
{
    struct block_pool_queue *queue = &pool->queues[class];
    struct block_pool_record *record = &pool->records[id];
    record->class = class;
    pool->num_free++;
    if (class == 0) {
        free_runs_put(&pool->runs, id);
        return;
    }
    record->prev = queue->tail;
    record->next = NO_BLOCK;
    if (queue->tail == NO_BLOCK) {
        queue->head = id;
    } else {
        pool->records[queue->tail].next = id;
    }
    queue->tail = id;
    queue->length++;
}

/* From wherever in its run or queue it is. */
static void unqueue(pkv_pool *pool, int32_t id)
{
    struct block_pool_record *record = &pool->records[id];
    struct block_pool_queue *queue = &pool->queues[record->class];
    pool->num_free--;
    if (record->class == 0) {
        record->class = BLOCK_POOL_HELD;
        free_runs_take(&pool->runs, (struct id_run){id, 1});
        return;
    }
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
}

int32_t block_pool_head(const pkv_pool *pool, int32_t class)
{
    return class == 0 ? pool->runs.longest.first : pool->queues[class].head;
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
    int32_t id = free_runs_take_first(&pool->runs);
    if (id != NO_BLOCK) {
        pool->records[id].class = BLOCK_POOL_HELD;
        pool->records[id].ref_count = 1;
        pool->num_free--;
        return id;
    }
    for (int32_t class = 1; id == NO_BLOCK && class < BLOCK_POOL_NUM_CLASSES; class ++) {
        id = block_pool_take_from(pool, class);
    }
    return id;
}

/* The ids that `count` more are taken from; of the longest run the first ones, or the middle, but
 * a run that begins the pool has nobody before it. */
static struct id_run next_run(const pkv_pool *pool, int32_t near, int32_t count)
{
    const int32_t next = near + 1;
    if (near >= 0 && next < pool->num_blocks && free_runs_has(&pool->runs, next)) {
        return free_runs_from(&pool->runs, next);
    }
    struct id_run run = pool->runs.longest;
    if (near != BLOCK_POOL_PACKED && run.first > 0 && run.count > count) {
        const int32_t skipped = (run.count - count + 1) / 2;
        run.first += skipped;
        run.count -= skipped;
    }
    return run;
}

int32_t block_pool_take_near(pkv_pool *pool, int32_t near, int32_t count, int32_t *ids)
{
    int32_t num_taken = 0;
    while (num_taken < count && pool->runs.num_free > 0) {
        struct id_run run = next_run(pool, near, count - num_taken);
        run.count = min_i32(run.count, count - num_taken);
        free_runs_take(&pool->runs, run);
        for (int32_t id = run.first; id < run.first + run.count; id++) {
            pool->records[id].class = BLOCK_POOL_HELD;
            pool->records[id].ref_count = 1;
            ids[num_taken++] = id;
        }
        near = min_i32(near, NO_BLOCK);
    }
    pool->num_free -= num_taken;
    return num_taken;
}

/* Where an id comes in a table that goes on behind near. */
static uint32_t distance(int32_t near, int32_t id)
{
    return (uint32_t)id - (uint32_t)(near + 1);
}

/* ids [count] is a heap, whose root is the farthest, but for the children of `parent`. */
static void sift_down(int32_t near, int32_t count, int32_t *ids, int32_t parent)
{
    const int32_t id = ids[parent];
    for (int32_t child = 2 * parent + 1; child < count; child = 2 * parent + 1) {
        child += child + 1 < count && distance(near, ids[child + 1]) > distance(near, ids[child]);
        if (distance(near, ids[child]) <= distance(near, id)) {
            break;
        }
        ids[parent] = ids[child];
        parent = child;
    }
    ids[parent] = id;
}

static void swap_ids(int32_t *a, int32_t *b)
{
    const int32_t id = *a;
    *a = *b;
    *b = id;
}

void block_pool_arrange(int32_t near, int32_t count, int32_t *ids)
{
    near = max_i32(near, NO_BLOCK);
    int32_t num_ascents = 0;
    for (int32_t i = 1; i < count; i++) {
        num_ascents += distance(near, ids[i]) > distance(near, ids[i - 1]);
    }
    if (num_ascents == count - 1) {
        return;
    }
    for (int32_t i = 0; num_ascents == 0 && i < count / 2; i++) {
        swap_ids(&ids[i], &ids[count - 1 - i]);
    }
    for (int32_t parent = count / 2 - 1; num_ascents > 0 && parent >= 0; parent--) {
        sift_down(near, count, ids, parent);
    }
    for (int32_t last = count - 1; num_ascents > 0 && last > 0; last--) {
        swap_ids(&ids[0], &ids[last]);
        sift_down(near, last, ids, 0);
    }
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
    return class == 0 ? pool->runs.num_free : pool->queues[class].length;
}

size_t block_pool_bytes(int32_t num_blocks)
{
    return hooks_array_bytes(1, sizeof(pkv_pool)) +
           hooks_array_bytes((size_t)num_blocks, sizeof(struct block_pool_record)) +
           free_runs_bytes(num_blocks);
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
    if (made->records == NULL || !free_runs_create(&made->runs, num_blocks, &memory)) {
        pkv_pool_destroy(made);
        return refuse(PKV_NO_MEMORY, "no memory for a pool of %d blocks", num_blocks);
    }
    for (int32_t id = 0; id < num_blocks; id++) {
        made->records[id].prev = made->records[id].next = NO_BLOCK;
    }
    made->num_free = num_blocks;
    *pool = made;
    return PKV_OK;
}

void pkv_pool_destroy(pkv_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    const struct pkv_hooks memory = pool->hooks;
    free_runs_destroy(&pool->runs, &memory);
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

static enum pkv_status alloc_near(pkv_pool *pool, int32_t near, int32_t count, int32_t *ids)
{
    if (count > pool->num_blocks) {
        return refuse(PKV_NEVER_FITS, "count = %d, but the pool has %d blocks", count,
                      pool->num_blocks);
    }
    if (count > pool->num_free) {
        return refuse(PKV_NO_BLOCKS, "count = %d, but %d blocks are free", count, pool->num_free);
    }
    if (count == 1 && near == BLOCK_POOL_PACKED) {
        ids[0] = block_pool_take(pool);
        return PKV_OK;
    }
    for (int32_t i = block_pool_take_near(pool, near, count, ids); i < count; i++) {
        ids[i] = block_pool_take(pool);
    }
    block_pool_arrange(near, count, ids);
    return PKV_OK;
}

enum pkv_status pkv_pool_alloc(pkv_pool *pool, int32_t count, int32_t *ids)
{
    const enum pkv_status status = check_list(pool, ids, count);
    return status == PKV_OK ? alloc_near(pool, BLOCK_POOL_PACKED, count, ids) : status;
}

enum pkv_status pkv_pool_alloc_near(pkv_pool *pool, int32_t near, int32_t count, int32_t *ids)
{
    const enum pkv_status status = check_list(pool, ids, count);
    if (status == PKV_OK && (near < NO_BLOCK || near >= pool->num_blocks)) {
        return INVALID("near = %d, outside [-1, %d)", near, pool->num_blocks);
    }
    return status == PKV_OK ? alloc_near(pool, near, count, ids) : status;
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
    return record->class > 0 && is_class(record->class) &&
           (id == pool->queues[record->class].head || record->prev != NO_BLOCK);
}

static void check_record(struct report *report, const pkv_pool *pool, int32_t id)
{
    const struct block_pool_record *record = &pool->records[id];
    const bool is_in_run = free_runs_has(&pool->runs, id);
    report_expect(report, record->ref_count >= 0, "a reference count is negative (block %d)", id);
    report_expect(report, is_in_run == (record->class == 0),
                  "an id of class 0 in no run, or another in one (block %d)", id);
    report_expect(report, (is_in_run || is_queued(pool, id)) == (record->ref_count == 0),
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
    int32_t queued = pool->runs.num_free;
    int32_t unheld = 0;
    free_runs_check(&pool->runs, &report);
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
