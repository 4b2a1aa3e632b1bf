/* SPDX-License-Identifier: MIT
 *
 * Neighbours: the pool hands out ids that continue a run where it can, and nothing is lost by
 * it. */
#include <stdlib.h>
#include <string.h>

#include "alloc/block_pool.h"
#include "support/test.h"

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

static void alloc_near_goes_on_behind_a_block(void)
{
    pkv_pool *pool = pool_of(12);
    int32_t ids[12];
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc_near(pool, -1, 3, ids));
    CU_ASSERT(ids[0] == 0 && ids[1] == 1 && ids[2] == 2);
    /* Another begins in the middle of what is left, 3 to 11, and each has room. */
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc_near(pool, -1, 1, ids + 3));
    CU_ASSERT_EQUAL(ids[3], 7);
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc_near(pool, 2, 2, ids));
    CU_ASSERT(ids[0] == 3 && ids[1] == 4);
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc_near(pool, 7, 2, ids));
    CU_ASSERT(ids[0] == 8 && ids[1] == 9);
    /* 10 11 follow, then 5 6 below: ascending from near on. */
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc_near(pool, 9, 4, ids));
    CU_ASSERT(ids[0] == 10 && ids[1] == 11 && ids[2] == 5 && ids[3] == 6);
    /* A near block that is free is behind nobody; the last id has none behind it. */
    ASSERT_STATUS(PKV_OK, pkv_pool_release(pool, (const int32_t[]){1, 2, 3, 4, 9}, 5));
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc_near(pool, 2, 2, ids));
    CU_ASSERT(ids[0] == 3 && ids[1] == 4);
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc_near(pool, 11, 1, ids));
    CU_ASSERT_EQUAL(ids[0], 2);
    destroy_sound(pool);
}

/* Neighbours: sequences that grow block by block beside each other get long runs. */
static void a_sequence_that_grows_among_eight_others_gets_long_runs(void)
{
    enum { SEQS = 9, GROWTH = 64, BLOCKS = 2 * SEQS * GROWTH };
    pkv_pool *pool = pool_of(BLOCKS);
    int32_t last[SEQS];
    int32_t num_runs[SEQS];
    for (int32_t seq = 0; seq < SEQS; seq++) {
        last[seq] = NO_BLOCK;
        num_runs[seq] = 0;
    }
    for (int32_t i = 0; i < SEQS * GROWTH; i++) {
        const int32_t seq = i % SEQS;
        int32_t id = NO_BLOCK;
        ASSERT_STATUS(PKV_OK, pkv_pool_alloc_near(pool, last[seq], 1, &id));
        num_runs[seq] += last[seq] == NO_BLOCK || id != last[seq] + 1;
        last[seq] = id;
    }
    for (int32_t seq = 0; seq < SEQS; seq++) {
        CU_ASSERT(num_runs[seq] <= 2);
    }
    destroy_sound(pool);
}

/* Neighbours: room is left, not reserved; a short pool loses nothing by it. */
static void the_id_behind_another_s_last_is_taken_when_nothing_else_is_free(void)
{
    pkv_pool *pool = pool_of(6);
    int32_t ids[6];
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc_near(pool, -1, 2, ids));     /* 0 1 */
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc_near(pool, -1, 2, ids + 2)); /* leaves 2 and 5 */
    CU_ASSERT(ids[2] == 3 && ids[3] == 4);
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc_near(pool, -1, 2, ids + 4));
    CU_ASSERT(ids[4] == 2 && ids[5] == 5);
    ASSERT_STATUS(PKV_NO_BLOCKS, pkv_pool_alloc_near(pool, 1, 1, ids));
    destroy_sound(pool);
}

/* Which ids are taken depends on which are free, not on when they became so. */
static void what_is_taken_does_not_depend_on_the_order_of_releases(void)
{
    pkv_pool *pools[2] = {pool_of(64), pool_of(64)};
    struct test_random random = {test_seed()};
    int32_t all[64], gone[2][40], ids[2][40];
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pools[0], 64, all));
    ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pools[1], 64, all));
    for (int32_t i = 0; i < 64; i++) { /* a random order, whose first 40 are released */
        const int32_t other = random_between(&random, i, 63);
        const int32_t id = all[i];
        all[i] = all[other];
        all[other] = id;
    }
    for (int32_t i = 0; i < 40; i++) {
        gone[0][i] = gone[1][39 - i] = all[i];
    }
    for (int32_t i = 0; i < 2; i++) {
        ASSERT_STATUS(PKV_OK, pkv_pool_release(pools[i], gone[i], 40));
        ASSERT_STATUS(PKV_OK, pkv_pool_alloc_near(pools[i], all[63], 10, ids[i]));
        ASSERT_STATUS(PKV_OK, pkv_pool_alloc(pools[i], 10, ids[i] + 10));
        ASSERT_STATUS(PKV_OK, pkv_pool_alloc_near(pools[i], -1, 20, ids[i] + 20));
        destroy_sound(pools[i]);
    }
    CU_ASSERT_EQUAL(memcmp(ids[0], ids[1], sizeof ids[0]), 0);
}

static int compare_by_distance(const void *a, const void *b)
{
    const uint32_t x = (uint32_t) * (const int32_t *)a - 8;
    const uint32_t y = (uint32_t) * (const int32_t *)b - 8;
    return (x > y) - (x < y);
}

static void arrange_sorts_from_near_on(void)
{
    struct test_random random = {test_seed()};
    for (int32_t round = 0; round < 3000; round++) {
        int32_t ids[40], sorted[40];
        const int32_t count = random_between(&random, 0, 40);
        const int32_t kind = random_between(&random, 0, 2);
        for (int32_t i = 0; i < count; i++) {
            ids[i] = kind == 0 ? i : kind == 1 ? 39 - i : (i * 17 + round) % 41;
        }
        memcpy(sorted, ids, sizeof ids);
        qsort(sorted, (size_t)count, sizeof sorted[0], compare_by_distance);
        block_pool_arrange(7, count, ids);
        CU_ASSERT_EQUAL(memcmp(ids, sorted, (size_t)count * sizeof ids[0]), 0);
    }
}

static const struct test_case cases[] = {
    TEST(alloc_near_goes_on_behind_a_block),
    TEST(a_sequence_that_grows_among_eight_others_gets_long_runs),
    TEST(the_id_behind_another_s_last_is_taken_when_nothing_else_is_free),
    TEST(what_is_taken_does_not_depend_on_the_order_of_releases),
    TEST(arrange_sorts_from_near_on),
    TEST_END,
};
const struct test_suite suite_neighbours = {"neighbours", cases};
