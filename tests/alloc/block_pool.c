/* SPDX-License-Identifier: MIT
 *
 * The block pool: its order, its counts, and that a refused list changes nothing. */
#include "alloc/block_pool.h"

#include <string.h>

#include "support/test.h"

#define MODEL_BLOCKS 80
#define MODEL_LIST 24

/* All that a pool knows, for comparing before and after. */
struct pool_state {
    struct block_pool_record records[64];
    struct block_pool_queue queues[BLOCK_POOL_NUM_CLASSES];
    int32_t lengths[64];
    int32_t num_free;
};

static struct pool_state state_of(const pkv_pool *pool)
{
    struct pool_state state;
    memset(&state, 0, sizeof state);
    CU_ASSERT_FATAL(pool->num_blocks <= 64);
    memcpy(state.records, pool->records, (size_t)pool->num_blocks * sizeof pool->records[0]);
    state.num_free = pool->num_free;
    memcpy(state.queues, pool->queues, sizeof state.queues);
    memcpy(state.lengths, pool->runs.lengths, (size_t)pool->num_blocks * sizeof state.lengths[0]);
    return state;
}

static bool is_same(const pkv_pool *pool, const struct pool_state *before)
{
    const struct pool_state now = state_of(pool);
    return memcmp(&now, before, sizeof now) == 0;
}

static pkv_pool *pool_of(int32_t num_blocks)
{
    pkv_pool *pool = NULL;
    ASSERT_STATUS(PKV_OK, pkv_pool_create(num_blocks, NULL, &pool));
    CU_ASSERT_FATAL(pool != NULL);
    return pool;
}

static void destroy_sound(pkv_pool *pool)
{
    CU_ASSERT_EQUAL(pkv_pool_check(pool), 0);
    pkv_pool_destroy(pool);
}

static void create_refuses_what_is_no_pool(void)
{
    pkv_pool *const untouched = (pkv_pool *)&(int){0};
    pkv_pool *pool = untouched;
    struct test_memory memory = {0};
    struct pkv_hooks half = test_hooks(&memory);
    half.free = NULL;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_create(4, NULL, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_create(0, NULL, &pool));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "num_blocks = -1, below 1",
                   pkv_pool_create(-1, NULL, &pool));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_create(4, &half, &pool));
    CU_ASSERT_PTR_EQUAL(pool, untouched);
    CU_ASSERT_EQUAL(memory.calls, 0);
}

static void create_fails_cleanly_at_every_allocation(void)
{
    struct test_memory memory = {0};
    const struct pkv_hooks hooks = test_hooks(&memory);
    pkv_pool *pool = NULL;
    long failures = 0;
    for (memory.fail_at = 1; pkv_pool_create(9, &hooks, &pool) != PKV_OK;) {
        CU_ASSERT(pool == NULL && memory.live == 0 && memory.live_bytes == 0);
        memory.fail_at = ++failures + 1;
    }
    CU_ASSERT_EQUAL(failures, 4);
    destroy_sound(pool);
    CU_ASSERT(memory.live == 0 && memory.live_bytes == 0);
    pkv_pool_destroy(NULL);
}

static void alloc_takes_the_longest_runs_and_ascends(void)
{
    pkv_pool *pool = pool_of(12);
    int32_t ids[12];
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pool, 12, ids));
    for (int32_t id = 0; id < 12; id++) {
        CU_ASSERT_EQUAL(ids[id], id);
    }
    CU_ASSERT_EQUAL(block_pool_take(pool), NO_BLOCK);
    /* Free are 0 1, 3, 5 6 7 8, 10. */
    ASSERT_STATUS(PKV_OK, pkv_pool_release(pool, (const int32_t[]){10, 1, 8, 6, 3, 7, 5, 0}, 8));
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pool, 1, ids));
    CU_ASSERT_EQUAL(ids[0], 5);
    ASSERT_STATUS(PKV_OK, pkv_pool_release(pool, ids, 1));
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pool, 5, ids));
    CU_ASSERT(ids[0] == 0 && ids[1] == 5 && ids[2] == 6 && ids[3] == 7 && ids[4] == 8);
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pool, 3, ids));
    CU_ASSERT(ids[0] == 1 && ids[1] == 3 && ids[2] == 10);
    CU_ASSERT_EQUAL(pkv_pool_num_free(pool), 0);
    destroy_sound(pool);
}

static void alloc_near_refuses_a_near_that_is_no_id(void)
{
    pkv_pool *pool = pool_of(8);
    int32_t ids[9] = {77};
    const struct pool_state before = state_of(pool);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "near = 8, outside [-1, 8)",
                   pkv_pool_alloc_near(pool, 8, 1, ids));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_alloc_near(pool, -2, 1, ids));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_alloc_near(pool, INT32_MAX, 1, ids));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_alloc_near(pool, 0, -1, ids));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_alloc_near(pool, 0, 1, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_alloc_near(NULL, 0, 1, ids));
    ASSERT_STATUS(PKV_NEVER_FITS, pkv_pool_alloc_near(pool, 0, 9, ids));
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc_near(pool, 0, 0, NULL));
    CU_ASSERT(is_same(pool, &before) && ids[0] == 77);
    destroy_sound(pool);
}

static void counts_are_those_of_the_pool(void)
{
    pkv_pool *pool = pool_of(3);
    int32_t ids[2];
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pool, 2, ids));
    CU_ASSERT_EQUAL(pkv_pool_num_blocks(pool), 3);
    CU_ASSERT_EQUAL(pkv_pool_num_free(pool), 1);
    CU_ASSERT_EQUAL(pkv_pool_ref_count(pool, 0), 1);
    CU_ASSERT_EQUAL(pkv_pool_ref_count(pool, 2), 0);
    CU_ASSERT_EQUAL(pkv_pool_ref_count(pool, 3), -1);
    CU_ASSERT_EQUAL(pkv_pool_ref_count(pool, -1), -1);
    CU_ASSERT_EQUAL(pkv_pool_ref_count(NULL, 0), -1);
    CU_ASSERT_EQUAL(pkv_pool_num_blocks(NULL), 0);
    CU_ASSERT_EQUAL(pkv_pool_num_free(NULL), 0);
    CU_ASSERT_EQUAL(pkv_pool_check(NULL), 1);
    destroy_sound(pool);
}

/* A3: no block is a success, a negative number an error, and more than the pool has never fits. */
static void alloc_tells_nothing_negative_and_too_many_apart(void)
{
    pkv_pool *pool = pool_of(8);
    int32_t ids[9] = {77, 77, 77, 77, 77, 77, 77, 77, 77};
    const struct pool_state before = state_of(pool);
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pool, 0, ids));
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pool, 0, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_alloc(pool, -1, ids));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_alloc(pool, INT32_MIN, ids));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_alloc(pool, 1, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_alloc(NULL, 1, ids));
    ASSERT_STATUS(PKV_NEVER_FITS, pkv_pool_alloc(pool, 9, ids));
    ASSERT_STATUS(PKV_NEVER_FITS, pkv_pool_alloc(pool, INT32_MAX, ids));
    CU_ASSERT(is_same(pool, &before));
    for (int i = 0; i < 9; i++) {
        CU_ASSERT_EQUAL(ids[i], 77);
    }
    destroy_sound(pool);
}

/* A4: an allocation that falls short takes nothing, and what is left can still be taken. */
static void alloc_fails_cleanly_when_the_pool_is_short(void)
{
    pkv_pool *pool = pool_of(4);
    int32_t ids[3] = {0};
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pool, 2, ids));
    const struct pool_state before = state_of(pool);
    int32_t more[3] = {77, 77, 77};
    ASSERT_STATUS(PKV_NO_BLOCKS, pkv_pool_alloc(pool, 3, more));
    CU_ASSERT(more[0] == 77 && more[1] == 77 && more[2] == 77);
    CU_ASSERT(is_same(pool, &before));
    CU_ASSERT_EQUAL(pkv_pool_num_free(pool), 2);
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pool, 2, more));
    CU_ASSERT(more[0] == 2 && more[1] == 3 && more[2] == 77);
    destroy_sound(pool);
}

static void retain_counts_every_entry_and_skips_minus_one(void)
{
    pkv_pool *pool = pool_of(4);
    int32_t ids[2];
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pool, 2, ids));
    ASSERT_STATUS(PKV_OK, pkv_pool_retain(pool, (const int32_t[]){1, -1, 0, 1}, 4));
    ASSERT_STATUS(PKV_OK, pkv_pool_retain(pool, NULL, 0));
    CU_ASSERT_EQUAL(pkv_pool_ref_count(pool, 0), 2);
    CU_ASSERT_EQUAL(pkv_pool_ref_count(pool, 1), 3);
    CU_ASSERT_EQUAL(pkv_pool_num_free(pool), 2);
    destroy_sound(pool);
}

static void a_list_with_one_bad_entry_changes_nothing(void)
{
    static const int32_t bad[] = {2, 3, 4, -2, INT32_MAX, INT32_MIN};
    pkv_pool *pool = pool_of(4);
    int32_t held[2];
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pool, 2, held));
    const struct pool_state before = state_of(pool);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const int32_t ids[] = {0, -1, 1, bad[i], 0};
        ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_retain(pool, ids, 5));
        ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_release(pool, ids, 5));
        CU_ASSERT(is_same(pool, &before));
    }
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "ids[1] = 91, outside [0, 4)",
                   pkv_pool_release(pool, (const int32_t[]){0, 91}, 2));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_retain(pool, held, -1));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_release(pool, held, -1));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_retain(pool, NULL, 1));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_release(pool, NULL, 1));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_retain(NULL, held, 1));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_release(NULL, held, 1));
    CU_ASSERT(is_same(pool, &before));
    destroy_sound(pool);
}

static void retain_refuses_before_a_count_overflows(void)
{
    pkv_pool *pool = pool_of(2);
    CU_ASSERT_EQUAL(block_pool_take(pool), 0);
    pool->records[0].ref_count = INT32_MAX - 2;
    const struct pool_state before = state_of(pool);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_retain(pool, (const int32_t[]){0, 0, 0}, 3));
    CU_ASSERT(is_same(pool, &before));
    ASSERT_STATUS(PKV_OK, pkv_pool_retain(pool, (const int32_t[]){0, 0}, 2));
    CU_ASSERT_EQUAL(pkv_pool_ref_count(pool, 0), INT32_MAX);
    destroy_sound(pool);
}

/* A1: a block that a release names twice is in the free queue once. */
static void a_block_named_twice_in_one_release_is_freed_once(void)
{
    pkv_pool *pool = pool_of(4);
    int32_t ids[4];
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pool, 3, ids));
    ASSERT_STATUS(PKV_OK, pkv_pool_retain(pool, (const int32_t[]){1}, 1));
    ASSERT_STATUS(PKV_OK, pkv_pool_release(pool, (const int32_t[]){1, -1, 0, -1, 1}, 5));
    CU_ASSERT_EQUAL(pkv_pool_num_free(pool), 3);
    CU_ASSERT_EQUAL(pkv_pool_check(pool), 0);
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pool, 3, ids));
    CU_ASSERT(ids[0] == 0 && ids[1] == 1 && ids[2] == 3);
    destroy_sound(pool);
}

/* A1: a release that names a block more often than it is held changes nothing. */
static void releasing_more_than_is_held_refuses_whole(void)
{
    pkv_pool *pool = pool_of(4);
    int32_t ids[2];
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pool, 2, ids));
    const struct pool_state before = state_of(pool);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "ids[2] = 0, which holds only 1 references",
                   pkv_pool_release(pool, (const int32_t[]){1, 0, 0}, 3));
    CU_ASSERT(is_same(pool, &before));
    ASSERT_STATUS(PKV_OK, pkv_pool_release(pool, ids, 2));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pool_release(pool, ids, 1));
    CU_ASSERT_EQUAL(pkv_pool_num_free(pool), 4);
    destroy_sound(pool);
}

/* A2: only the change of a count from one to zero frees the block. */
static void the_free_count_rises_once_for_a_count_that_falls_twice(void)
{
    pkv_pool *pool = pool_of(16);
    int32_t ids[2];
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pool, 2, ids));
    ASSERT_STATUS(PKV_OK, pkv_pool_retain(pool, ids, 1));
    CU_ASSERT_EQUAL(pkv_pool_num_free(pool), 14);
    ASSERT_STATUS(PKV_OK, pkv_pool_release(pool, (const int32_t[]){ids[0], ids[0]}, 2));
    CU_ASSERT_EQUAL(pkv_pool_num_free(pool), 15);
    destroy_sound(pool);
}

static void drop_says_when_an_id_became_free(void)
{
    pkv_pool *pool = pool_of(2);
    const int32_t id = block_pool_take(pool);
    block_pool_retain(pool, id);
    CU_ASSERT_FALSE(block_pool_drop(pool, id));
    CU_ASSERT_TRUE(block_pool_drop(pool, id));
    CU_ASSERT_EQUAL(pkv_pool_num_free(pool), 2);
    destroy_sound(pool);
}

/* An id in each class, id 0 in the last one. */
static pkv_pool *pool_with_an_id_in_each_class(void)
{
    pkv_pool *pool = pool_of(BLOCK_POOL_NUM_CLASSES);
    for (int32_t id = 0; id < BLOCK_POOL_NUM_CLASSES; id++) {
        CU_ASSERT_EQUAL(block_pool_take(pool), id);
    }
    for (int32_t id = 0; id < BLOCK_POOL_NUM_CLASSES; id++) {
        CU_ASSERT_EQUAL(block_pool_class(pool, id), BLOCK_POOL_HELD);
        CU_ASSERT_TRUE(block_pool_drop_to(pool, id, BLOCK_POOL_NUM_CLASSES - 1 - id));
    }
    return pool;
}

static void take_empties_the_lowest_class_first(void)
{
    enum { LAST = BLOCK_POOL_NUM_CLASSES - 1 };
    pkv_pool *pool = pool_with_an_id_in_each_class();
    for (int32_t id = 0; id < BLOCK_POOL_NUM_CLASSES; id++) {
        CU_ASSERT_EQUAL(block_pool_class(pool, id), BLOCK_POOL_NUM_CLASSES - 1 - id);
        CU_ASSERT_EQUAL(block_pool_num_free(pool, id), 1);
    }
    CU_ASSERT_EQUAL(pkv_pool_check(pool), 0);
    CU_ASSERT_EQUAL(pkv_pool_num_free(pool), BLOCK_POOL_NUM_CLASSES);
    int32_t ids[2];
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pool, 2, ids));
    CU_ASSERT(ids[0] == LAST - 1 && ids[1] == LAST);
    ASSERT_STATUS(PKV_OK, pkv_pool_release(pool, ids + 1, 1)); /* the public call: class 0 */
    CU_ASSERT_EQUAL(block_pool_class(pool, LAST), 0);
    CU_ASSERT_EQUAL(block_pool_take(pool), LAST);
    for (int32_t id = LAST - 2; id >= 0; id--) {
        CU_ASSERT_EQUAL(block_pool_take(pool), id);
    }
    CU_ASSERT_EQUAL(block_pool_take(pool), NO_BLOCK);
    destroy_sound(pool);
}

static void revive_takes_an_id_from_anywhere_in_its_queue(void)
{
    static const int32_t rest[3][2] = {{1, 2}, {0, 2}, {0, 1}};
    for (int32_t chosen = 0; chosen < 3; chosen++) {
        pkv_pool *pool = pool_of(3);
        block_pool_revive(pool, chosen);
        CU_ASSERT_EQUAL(pkv_pool_ref_count(pool, chosen), 1);
        CU_ASSERT_EQUAL(block_pool_class(pool, chosen), BLOCK_POOL_HELD);
        CU_ASSERT_EQUAL(pkv_pool_check(pool), 0);
        CU_ASSERT_EQUAL(block_pool_take(pool), rest[chosen][0]);
        CU_ASSERT_EQUAL(block_pool_take(pool), rest[chosen][1]);
        destroy_sound(pool);
    }
}

static void hold_revives_a_free_id_and_retains_a_held_one(void)
{
    pkv_pool *pool = pool_of(2);
    block_pool_hold(pool, 1);
    CU_ASSERT_EQUAL(pkv_pool_ref_count(pool, 1), 1);
    block_pool_hold(pool, 1);
    CU_ASSERT_EQUAL(pkv_pool_ref_count(pool, 1), 2);
    CU_ASSERT_EQUAL(pkv_pool_num_free(pool), 1);
    CU_ASSERT_FALSE(block_pool_drop_to(pool, 1, 3));
    CU_ASSERT_TRUE(block_pool_drop_to(pool, 1, 3));
    CU_ASSERT_EQUAL(block_pool_class(pool, 1), 3);
    destroy_sound(pool);
}

static void move_makes_a_free_id_the_last_of_a_class(void)
{
    pkv_pool *pool = pool_of(3);
    block_pool_move(pool, 0, 1);
    block_pool_move(pool, 1, 1);
    block_pool_move(pool, 0, 1); /* its own class */
    CU_ASSERT_EQUAL(block_pool_num_free(pool, 0), 1);
    CU_ASSERT_EQUAL(block_pool_num_free(pool, 1), 2);
    CU_ASSERT_EQUAL(pkv_pool_check(pool), 0);
    CU_ASSERT_EQUAL(block_pool_take(pool), 2);
    CU_ASSERT_EQUAL(block_pool_take(pool), 1);
    block_pool_move(pool, 0, 0);
    CU_ASSERT_EQUAL(block_pool_num_free(pool, 0), 1);
    CU_ASSERT_EQUAL(block_pool_take(pool), 0);
    destroy_sound(pool);
}

/* One way to break a pool of 6: ids 0 and 1 are held, 2 and 3 queued in class 1, 4 and 5 a run. */
static void break_pool(pkv_pool *pool, int how)
{
    struct block_pool_record *records = pool->records;
    struct block_pool_queue *queue = &pool->queues[1];
    switch (how) {
    case 0: queue->head = 6; break;
    case 1: queue->head = -2; break;
    case 2: records[3].prev = -1; break;
    case 3: records[2].next = -1; break;
    case 4: records[3].next = 2; break;
    case 5: queue->tail = 2; break;
    case 6: pool->num_free = 3; break;
    case 7: records[0].ref_count = -1; break;
    case 8: records[0].ref_count = 0; break;
    case 9: records[2].ref_count = 1; break;
    case 10: records[1].scratch = 1; break;
    case 11: queue->length = 1; break;
    case 12: records[2].class = 2; break;
    case 13: records[3].class = BLOCK_POOL_NUM_CLASSES; break;
    case 14: pool->queues[2] = *queue; break;
    case 15: records[0].class = 1, records[0].prev = 3; break;
    case 16: records[0].class = 0; break;
    case 17: records[4].class = BLOCK_POOL_HELD; break;
    case 18: records[4].class = 1; break;
    case 19: records[5].ref_count = 1; break;
    case 20: pool->runs.num_free = 1; break;
    case 21: pool->runs.lengths[4] = 1; break;
    case 22: free_runs_put(&pool->runs, 1); break;
    default: queue->head = 1; break;
    }
}

static void check_reports_every_kind_of_damage(void)
{
    for (int how = 0; how <= 23; how++) {
        struct test_memory memory = {0};
        const struct pkv_hooks hooks = test_hooks(&memory);
        pkv_pool *pool = NULL;
        int32_t ids[2];
        ASSERT_STATUS(PKV_OK, pkv_pool_create(6, &hooks, &pool));
        ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pool, 2, ids));
        block_pool_move(pool, 2, 1);
        block_pool_move(pool, 3, 1);
        CU_ASSERT(pkv_pool_check(pool) == 0 && memory.num_logged == 0);
        break_pool(pool, how);
        const int32_t faults = pkv_pool_check(pool);
        CU_ASSERT(faults > 0);
        CU_ASSERT_EQUAL(memory.num_logged, faults);
        pkv_pool_destroy(pool);
        CU_ASSERT_EQUAL(memory.live, 0);
    }
}

/* The naive model: counts alone. An id is found by walking through all of them. */
struct model {
    int32_t counts[MODEL_BLOCKS];
    int32_t num_free;
};

static int32_t model_run(const int32_t *counts, int32_t id)
{
    int32_t count = 0;
    while (id + count < MODEL_BLOCKS && counts[id + count] == 0) {
        count++;
    }
    return count;
}

/* The first id of the longest run, within a power of two. */
static int32_t model_longest(const int32_t *counts)
{
    int32_t longest = NO_BLOCK;
    int32_t limit = 1; /* to be counted as longer */
    for (int32_t id = 0; id < MODEL_BLOCKS; id++) {
        const int32_t count = model_run(counts, id);
        while (count >= limit) {
            longest = id;
            limit *= 2;
        }
        id += count;
    }
    return longest;
}

/* The ids that `count` more are taken from. */
static struct id_run model_next_run(const int32_t *counts, int32_t near, int32_t count)
{
    if (near >= 0 && near + 1 < MODEL_BLOCKS && counts[near + 1] == 0) {
        return (struct id_run){near + 1, model_run(counts, near + 1)};
    }
    const int32_t longest = model_longest(counts);
    const int32_t length = model_run(counts, longest);
    const bool is_split = near > BLOCK_POOL_PACKED && longest > 0 && length > count;
    const int32_t skipped = is_split ? (length - count + 1) / 2 : 0;
    return (struct id_run){longest + skipped, length - skipped};
}

/* Marks `count` ids as taken, and says which, in ascending order from near on. */
static void model_take(int32_t *counts, int32_t near, int32_t count, int32_t *ids)
{
    bool is_taken[MODEL_BLOCKS] = {false};
    const int32_t begin = near < 0 ? 0 : near + 1;
    for (int32_t left = count, at = near; left > 0; at = at < NO_BLOCK ? at : NO_BLOCK) {
        const struct id_run run = model_next_run(counts, at, left);
        for (int32_t i = 0; i < run.count && left > 0; i++, left--) {
            counts[run.first + i] = 1;
            is_taken[run.first + i] = true;
        }
    }
    for (int32_t i = 0, num_ids = 0; num_ids < count; i++) {
        const int32_t id = (begin + i) % MODEL_BLOCKS;
        if (is_taken[id]) {
            ids[num_ids++] = id;
        }
    }
}

static void model_alloc(struct model *model, pkv_pool *pool, int32_t near, int32_t count)
{
    int32_t ids[MODEL_BLOCKS + 2], wanted[MODEL_BLOCKS];
    const enum pkv_status expected = count > MODEL_BLOCKS      ? PKV_NEVER_FITS
                                     : count > model->num_free ? PKV_NO_BLOCKS
                                                               : PKV_OK;
    const enum pkv_status status = near == BLOCK_POOL_PACKED
                                       ? pkv_pool_alloc(pool, count, ids)
                                       : pkv_pool_alloc_near(pool, near, count, ids);
    CU_ASSERT_FATAL(status == expected);
    if (status != PKV_OK) {
        return;
    }
    model_take(model->counts, near, count, wanted);
    CU_ASSERT_FATAL(memcmp(ids, wanted, (size_t)count * sizeof ids[0]) == 0);
    model->num_free -= count;
}

static void model_retain(struct model *model, pkv_pool *pool, const int32_t *ids, int32_t count)
{
    bool is_good = true;
    for (int32_t i = 0; i < count; i++) {
        is_good = is_good && (ids[i] == -1 || model->counts[ids[i]] > 0);
    }
    const enum pkv_status status = pkv_pool_retain(pool, ids, count);
    CU_ASSERT_FATAL(status == (is_good ? PKV_OK : PKV_INVALID_ARGUMENT));
    for (int32_t i = 0; is_good && i < count; i++) {
        if (ids[i] != -1) {
            model->counts[ids[i]]++;
        }
    }
}

static void model_release(struct model *model, pkv_pool *pool, const int32_t *ids, int32_t count)
{
    struct model after = *model;
    bool is_good = true;
    for (int32_t i = 0; i < count && is_good; i++) {
        if (ids[i] == -1) {
            continue;
        }
        is_good = after.counts[ids[i]] > 0;
        after.counts[ids[i]]--;
        after.num_free += after.counts[ids[i]] == 0;
    }
    const enum pkv_status status = pkv_pool_release(pool, ids, count);
    CU_ASSERT_FATAL(status == (is_good ? PKV_OK : PKV_INVALID_ARGUMENT));
    if (is_good) {
        *model = after;
    }
}

/* A list that is mostly of held ids, so that most calls succeed; returns its length. */
static int32_t random_list(struct test_random *random, const struct model *model, int32_t *ids)
{
    const int32_t count = random_between(random, 0, MODEL_LIST);
    for (int32_t i = 0; i < count; i++) {
        ids[i] = random_between(random, -1, MODEL_BLOCKS - 1);
        const bool may_be_free = random_between(random, 0, 99) == 0;
        if (ids[i] >= 0 && model->counts[ids[i]] == 0 && !may_be_free) {
            ids[i] = -1;
        }
    }
    return count;
}

static void agree(const struct model *model, const pkv_pool *pool)
{
    CU_ASSERT_EQUAL_FATAL(pkv_pool_check(pool), 0);
    CU_ASSERT_EQUAL_FATAL(pkv_pool_num_free(pool), model->num_free);
    for (int32_t id = 0; id < MODEL_BLOCKS; id++) {
        CU_ASSERT_EQUAL_FATAL(pkv_pool_ref_count(pool, id), model->counts[id]);
    }
}

/* A11: free and held blocks are all blocks, after every operation of a random run. */
static void a_million_random_operations_agree_with_a_naive_model(void)
{
    struct test_random random = {test_seed()};
    struct model model = {.num_free = MODEL_BLOCKS};
    pkv_pool *pool = pool_of(MODEL_BLOCKS);
    for (int32_t i = 0; i < 1000000; i++) {
        int32_t ids[MODEL_LIST];
        const int32_t kind = random_between(&random, 0, 3);
        const int32_t count = random_list(&random, &model, ids);
        if (kind == 0) {
            const int32_t near = random_between(&random, BLOCK_POOL_PACKED, MODEL_BLOCKS - 1);
            model_alloc(&model, pool, near, count == MODEL_LIST ? MODEL_BLOCKS + 1 : count);
        } else if (kind == 1) {
            model_retain(&model, pool, ids, count / 4);
        } else {
            model_release(&model, pool, ids, count);
        }
        CU_ASSERT_FATAL(pkv_pool_num_free(pool) == model.num_free);
        if (i % 1000 == 0) {
            agree(&model, pool);
        }
    }
    agree(&model, pool);
    pkv_pool_destroy(pool);
}

/* The naive model of the classes: for each id its count, class, and since when it is in it. */
struct class_model {
    int32_t counts[MODEL_BLOCKS];
    int32_t classes[MODEL_BLOCKS];
    int64_t times[MODEL_BLOCKS];
};

static int32_t model_next(const struct class_model *model)
{
    int32_t best = NO_BLOCK;
    int32_t is_held[MODEL_BLOCKS];
    for (int32_t id = 0; id < MODEL_BLOCKS; id++) {
        is_held[id] = model->counts[id] > 0 || model->classes[id] > 0;
        if (model->counts[id] > 0) {
            continue;
        }
        if (best < 0 || model->classes[id] < model->classes[best] ||
            (model->classes[id] == model->classes[best] && model->times[id] < model->times[best])) {
            best = id;
        }
    }
    return best >= 0 && model->classes[best] == 0 ? model_longest(is_held) : best;
}

static void class_operation(struct class_model *model, pkv_pool *pool, struct test_random *random,
                            int64_t now)
{
    const int32_t id = random_between(random, 0, MODEL_BLOCKS - 1);
    const int32_t class = random_between(random, 0, 2 * BLOCK_POOL_NUM_CLASSES) / 3;
    const int32_t kind = random_between(random, 0, 4);
    if (kind == 0) {
        const int32_t next = model_next(model);
        CU_ASSERT_EQUAL_FATAL(block_pool_take(pool), next);
        if (next >= 0) {
            model->counts[next] = 1;
        }
    } else if (kind == 1) {
        block_pool_hold(pool, id);
        model->counts[id]++;
    } else if (model->counts[id] > 0) {
        model->counts[id]--;
        model->classes[id] = class;
        model->times[id] = now;
        CU_ASSERT_EQUAL(block_pool_drop_to(pool, id, class), model->counts[id] == 0);
    } else {
        block_pool_move(pool, id, class);
        model->classes[id] = class;
        model->times[id] = now;
    }
}

static void classes_agree_with_a_naive_model(void)
{
    struct test_random random = {test_seed()};
    struct class_model model = {0};
    pkv_pool *pool = pool_of(MODEL_BLOCKS);
    for (int32_t id = 0; id < MODEL_BLOCKS; id++) {
        model.times[id] = id;
    }
    for (int64_t now = MODEL_BLOCKS; now < 100000; now++) {
        class_operation(&model, pool, &random, now);
        CU_ASSERT_EQUAL_FATAL(pkv_pool_check(pool), 0);
    }
    for (int32_t id = 0; id < MODEL_BLOCKS; id++) {
        const int32_t class = model.counts[id] == 0 ? model.classes[id] : BLOCK_POOL_HELD;
        CU_ASSERT_EQUAL(pkv_pool_ref_count(pool, id), model.counts[id]);
        CU_ASSERT_EQUAL(block_pool_class(pool, id), class);
    }
    destroy_sound(pool);
}

static const struct test_case cases[] = {
    TEST(create_refuses_what_is_no_pool),
    TEST(create_fails_cleanly_at_every_allocation),
    TEST(alloc_takes_the_longest_runs_and_ascends),
    TEST(alloc_near_refuses_a_near_that_is_no_id),
    TEST(counts_are_those_of_the_pool),
    TEST(alloc_tells_nothing_negative_and_too_many_apart),
    TEST(alloc_fails_cleanly_when_the_pool_is_short),
    TEST(retain_counts_every_entry_and_skips_minus_one),
    TEST(a_list_with_one_bad_entry_changes_nothing),
    TEST(retain_refuses_before_a_count_overflows),
    TEST(a_block_named_twice_in_one_release_is_freed_once),
    TEST(releasing_more_than_is_held_refuses_whole),
    TEST(the_free_count_rises_once_for_a_count_that_falls_twice),
    TEST(drop_says_when_an_id_became_free),
    TEST(take_empties_the_lowest_class_first),
    TEST(revive_takes_an_id_from_anywhere_in_its_queue),
    TEST(hold_revives_a_free_id_and_retains_a_held_one),
    TEST(move_makes_a_free_id_the_last_of_a_class),
    TEST(classes_agree_with_a_naive_model),
    TEST(check_reports_every_kind_of_damage),
    TEST(a_million_random_operations_agree_with_a_naive_model),
    TEST_END,
};
const struct test_suite suite_block_pool = {"block_pool", cases};
