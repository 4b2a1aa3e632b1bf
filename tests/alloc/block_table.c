/* SPDX-License-Identifier: MIT
 *
 * The check of block tables: what passes, what refuses, and how the fault is named. */
#include "alloc/block_table.h"

#include <string.h>

#include "support/test.h"

static void a_table_of_minus_ones_and_distinct_ids_passes(void)
{
    static const int32_t table[2][4] = {{3, -1, 0, 7}, {-1, 3, 7, 0}};
    ASSERT_STATUS(PKV_OK, pkv_block_table_check(table[0], 2, 4, 8, NULL));
}

static void an_id_may_be_in_several_rows(void)
{
    static const int32_t table[3][2] = {{5, 1}, {5, 1}, {1, 5}};
    ASSERT_STATUS(PKV_OK, pkv_block_table_check(table[0], 3, 2, 6, NULL));
}

static void an_empty_table_passes_without_memory(void)
{
    struct test_memory memory = {.fail_at = 1};
    const struct pkv_hooks hooks = test_hooks(&memory);
    static const int32_t table[1] = {99};
    ASSERT_STATUS(PKV_OK, pkv_block_table_check(table, 0, 1, 4, &hooks));
    ASSERT_STATUS(PKV_OK, pkv_block_table_check(table, 1, 0, 4, &hooks));
    ASSERT_STATUS(PKV_OK, pkv_block_table_check(NULL, 0, 0, 4, NULL));
    ASSERT_STATUS(PKV_OK, pkv_block_table_check(NULL, 1, 0, 4, NULL));
    CU_ASSERT_EQUAL(memory.calls, 0);
}

/* B2: -1 alone means that nothing is mapped; any other id outside the pool is refused. */
static void every_entry_but_minus_one_outside_the_pool_refuses(void)
{
    static const int32_t bad[] = {64, 91, INT32_MAX, -2, INT32_MIN};
    int32_t table[4][8];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        memset(table, 0xff, sizeof table);
        table[3][7] = bad[i];
        ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_block_table_check(table[0], 4, 8, 64, NULL));
    }
    table[3][7] = 91;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "block_table[3][7] = 91, outside [0, 64)",
                   pkv_block_table_check(table[0], 4, 8, 64, NULL));
    table[3][7] = 63;
    ASSERT_STATUS(PKV_OK, pkv_block_table_check(table[0], 4, 8, 64, NULL));
}

/* B2: one block at two positions of a sequence is a mistake in its table. */
static void an_id_twice_in_one_row_refuses_and_names_both(void)
{
    int32_t table[4][8];
    memset(table, 0xff, sizeof table);
    table[0][2] = 5;
    table[3][2] = 5;
    table[3][7] = 5;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "block_table[3][7] = 5, already at [3][2]",
                   pkv_block_table_check(table[0], 4, 8, 64, NULL));
}

static void the_first_fault_is_the_one_that_is_named(void)
{
    static const int32_t table[2][3] = {{1, 2, 1}, {9, 0, 0}};
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "block_table[0][2] = 1, already at [0][0]",
                   pkv_block_table_check(table[0], 2, 3, 4, NULL));
}

static void arguments_that_describe_no_table_refuse(void)
{
    static const int32_t table[1] = {0};
    struct test_memory memory = {0};
    struct pkv_hooks half = test_hooks(&memory);
    half.alloc = NULL;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_block_table_check(NULL, 1, 1, 4, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_block_table_check(table, -1, 1, 4, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_block_table_check(table, 1, -1, 4, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_block_table_check(table, 1, 1, 0, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_block_table_check(table, 1, 1, -4, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_block_table_check(table, 1, 1, 4, &half));
}

static void scratch_is_released_and_its_lack_is_reported(void)
{
    static const int32_t good[2] = {0, 1};
    static const int32_t bad[2] = {1, 1};
    struct test_memory memory = {0};
    const struct pkv_hooks hooks = test_hooks(&memory);
    ASSERT_STATUS(PKV_OK, pkv_block_table_check(good, 1, 2, 4, &hooks));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_block_table_check(bad, 1, 2, 4, &hooks));
    CU_ASSERT(memory.calls == 2 && memory.live == 0);
    memory.fail_at = 1;
    ASSERT_STATUS(PKV_NO_MEMORY, pkv_block_table_check(good, 1, 2, 4, &hooks));
    CU_ASSERT(memory.live == 0 && memory.live_bytes == 0);
}

static void old_stamps_mean_nothing_when_the_epoch_wraps(void)
{
    static const int32_t row[3] = {2, 0, 1};
    uint32_t marks[3] = {1, UINT32_MAX, 1};
    struct block_stamps stamps = {marks, 3, UINT32_MAX - 1};
    marks[1] = 0;
    ASSERT_STATUS(PKV_OK, block_table_check_row(&stamps, row, 3, 0));
    CU_ASSERT_EQUAL(stamps.epoch, UINT32_MAX);
    ASSERT_STATUS(PKV_OK, block_table_check_row(&stamps, row, 3, 1));
    CU_ASSERT_EQUAL(stamps.epoch, 1);
    ASSERT_STATUS(PKV_OK, block_table_check_row(&stamps, row, 3, 2));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "block_table[9][1] = 0, already at [9][0]",
                   block_table_check_row(&stamps, (const int32_t[]){0, 0}, 2, 9));
}

/* The answer by definition: each entry against all before it. */
static bool is_sound(const int32_t *row, int32_t max_blocks, int32_t num_blocks)
{
    for (int32_t i = 0; i < max_blocks; i++) {
        if (row[i] < -1 || row[i] >= num_blocks) {
            return false;
        }
        for (int32_t j = 0; j < i; j++) {
            if (row[i] != -1 && row[i] == row[j]) {
                return false;
            }
        }
    }
    return true;
}

static void random_rows_are_answered_as_by_definition(void)
{
    struct test_random random = {test_seed()};
    uint32_t marks[12] = {0};
    struct block_stamps stamps = {marks, 12, 0};
    int32_t num_sound = 0;
    for (int32_t i = 0; i < 20000; i++) {
        int32_t row[4];
        for (int32_t j = 0; j < 4; j++) {
            row[j] = random_between(&random, -1, 11) + random_between(&random, 0, 20) / 20;
        }
        const bool sound = is_sound(row, 4, 12);
        num_sound += sound;
        ASSERT_STATUS(sound ? PKV_OK : PKV_INVALID_ARGUMENT,
                      block_table_check_row(&stamps, row, 4, i));
    }
    CU_ASSERT(num_sound > 1000 && num_sound < 19000);
}

static const struct test_case cases[] = {
    TEST(a_table_of_minus_ones_and_distinct_ids_passes),
    TEST(an_id_may_be_in_several_rows),
    TEST(an_empty_table_passes_without_memory),
    TEST(every_entry_but_minus_one_outside_the_pool_refuses),
    TEST(an_id_twice_in_one_row_refuses_and_names_both),
    TEST(the_first_fault_is_the_one_that_is_named),
    TEST(arguments_that_describe_no_table_refuse),
    TEST(scratch_is_released_and_its_lack_is_reported),
    TEST(old_stamps_mean_nothing_when_the_epoch_wraps),
    TEST(random_rows_are_answered_as_by_definition),
    TEST_END,
};
const struct test_suite suite_block_table = {"block_table", cases};
