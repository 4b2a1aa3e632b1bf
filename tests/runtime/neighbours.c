/* SPDX-License-Identifier: MIT
 *
 * Neighbours: sequences of a cache get blocks that lie side by side, as long as that takes nothing
 * from anybody; and the runs of adjacent blocks are counted as tables change. */
#include <string.h>

#include "runtime/reuse_case.h"

enum { SEQS = 8, BLOCK = 4 };

static struct case_seq seqs[SEQS];
static struct prefix_seq a, b;

static struct pkv_stats stats_of(struct runtime_case *c)
{
    struct pkv_stats stats = {.size = sizeof stats};
    ASSERT_STATUS(PKV_OK, pkv_cache_stats(c->cache, &stats));
    return stats;
}

/* The runs that the table of a sequence consists of. */
static int32_t runs_of(struct runtime_case *c, pkv_seq seq)
{
    int32_t entries[CASE_MAX_LENGTH];
    int32_t num_entries = 0;
    int32_t num_runs = 0;
    ASSERT_STATUS(PKV_OK, pkv_seq_table(c->cache, seq, 0, entries, CASE_MAX_LENGTH, &num_entries));
    for (int32_t i = 0; i < num_entries; i++) {
        num_runs +=
            entries[i] >= 0 && (i == 0 || entries[i - 1] < 0 || entries[i] != entries[i - 1] + 1);
    }
    return num_runs;
}

static void open_with(struct runtime_case *c, int32_t num_blocks, int32_t max_seq_len)
{
    case_init(c);
    c->groups[0].num_blocks = num_blocks;
    c->config.max_seqs = SEQS + 1;
    c->config.max_seq_len = max_seq_len;
    case_open(c);
}

static void a_sequence_that_grows_among_eight_gets_long_runs(void)
{
    enum { GROWTH = 32 };
    struct runtime_case c;
    open_with(&c, 2 * SEQS * GROWTH, GROWTH * BLOCK);
    for (int32_t i = 0; i < SEQS; i++) {
        ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[i], NULL));
    }
    for (int32_t n = 0; n < GROWTH; n++) {
        for (int32_t i = 0; i < SEQS; i++) {
            ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[i], BLOCK));
        }
    }
    int32_t num_runs = 0;
    for (int32_t i = 0; i < SEQS; i++) {
        CU_ASSERT(runs_of(&c, seqs[i].handle) <= 2);
        num_runs += runs_of(&c, seqs[i].handle);
    }
    CU_ASSERT_EQUAL(stats_of(&c).table_runs, num_runs);
    CU_ASSERT_EQUAL(stats_of(&c).table_blocks, SEQS * GROWTH);
    case_close(&c);
}

/* Soft: eight sequences in a pool of eight blocks a sequence fill it to the last block. */
static void a_short_pool_loses_nothing_to_neighbours(void)
{
    struct runtime_case c;
    open_with(&c, SEQS * 8, 8 * BLOCK);
    for (int32_t i = 0; i < SEQS; i++) {
        ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[i], NULL));
    }
    for (int32_t n = 0; n < SEQS * 8; n++) {
        ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[(n * 5 + n / 8) % SEQS], BLOCK));
    }
    CU_ASSERT_EQUAL(case_free(&c, 0), 0);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seqs[3].handle));
    ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[3], NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[3], 8 * BLOCK));
    CU_ASSERT_EQUAL(case_free(&c, 0), 0);
    case_close(&c);
}

/* A copy on write goes behind the blocks that it is behind, or where there is room. */
static void runs_are_counted_through_forks_copies_and_cuts(void)
{
    struct runtime_case c;
    open_with(&c, 64, 64);
    ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[0], NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[0], 3 * BLOCK + 1));
    CU_ASSERT_EQUAL(stats_of(&c).table_runs, 1);
    ASSERT_STATUS(PKV_OK, case_fork(&c, &seqs[0], 3 * BLOCK + 1, &seqs[1]));
    CU_ASSERT(stats_of(&c).table_runs == 2 && stats_of(&c).table_blocks == 8);
    ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[1], 6 * BLOCK)); /* copies the tail */
    CU_ASSERT(stats_of(&c).table_runs == 3 && stats_of(&c).table_blocks == 14);
    CU_ASSERT(runs_of(&c, seqs[0].handle) == 1 && runs_of(&c, seqs[1].handle) == 2);
    struct case_step step = {0};
    case_row(&step, &seqs[0], 2 * BLOCK);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
    CU_ASSERT_EQUAL(stats_of(&c).table_blocks, 16);
    case_abort(&c, &step);
    CU_ASSERT(stats_of(&c).table_runs == 3 && stats_of(&c).table_blocks == 14);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &seqs[1], 3 * BLOCK));
    CU_ASSERT(stats_of(&c).table_runs == 2 && stats_of(&c).table_blocks == 7);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seqs[0].handle));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seqs[1].handle));
    CU_ASSERT(stats_of(&c).table_runs == 0 && stats_of(&c).table_blocks == 0);
    case_close(&c);
}

/* What is cached is worth keeping: free blocks without content go first, near or not, and what is
 * evicted then is what was unused longest. */
static void neighbours_evict_nothing(void)
{
    struct runtime_case c;
    prefix_init(&c);
    c.groups[0].num_blocks = 12;
    case_open(&c);
    prefix_run(&c, &a, 0, 4 * BLOCK);
    prefix_destroy(&c, &a); /* four cached blocks, 0 to 3 */
    prefix_run(&c, &b, 1000, BLOCK);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    for (int32_t n = 1; n < 8; n++) {
        prefix_append(&c, &b, BLOCK);
        CU_ASSERT_EQUAL(stats_of(&c).evicted_blocks, 0);
        CU_ASSERT_EQUAL(prefix_hit(&c, &a, 4 * BLOCK + 1), 4 * BLOCK);
    }
    prefix_append(&c, &b, BLOCK); /* its leaf */
    CU_ASSERT_EQUAL(stats_of(&c).evicted_blocks, 1);
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 4 * BLOCK + 1), 3 * BLOCK);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* What is evicted for one request is put in order, so that what was one run is one again. */
static void blocks_evicted_together_ascend(void)
{
    struct runtime_case c;
    prefix_init(&c);
    c.groups[0].num_blocks = 8;
    case_open(&c);
    prefix_run(&c, &a, 0, 8 * BLOCK);
    prefix_destroy(&c, &a);
    CU_ASSERT_EQUAL(stats_of(&c).cached_blocks, 8);
    prefix_run(&c, &b, 1000, 8 * BLOCK);
    CU_ASSERT(stats_of(&c).evicted_blocks == 8 && stats_of(&c).table_runs == 1);
    prefix_destroy(&c, &b);
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(a_sequence_that_grows_among_eight_gets_long_runs),
    TEST(a_short_pool_loses_nothing_to_neighbours),
    TEST(runs_are_counted_through_forks_copies_and_cuts),
    TEST(neighbours_evict_nothing),
    TEST(blocks_evicted_together_ascend),
    TEST_END,
};
const struct test_suite suite_runtime_neighbours = {"runtime_neighbours", cases};
