/* SPDX-License-Identifier: MIT
 *
 * The beginning of a window, against the definition: the first j with length - window < j. */
#include "base/window.h"

#include "support/test.h"

static int64_t first_by_definition(int64_t length, int64_t window)
{
    int64_t j = 0;
    while (window > 0 && j <= length - window) {
        j++;
    }
    return j;
}

/* F1, F2: which keys and blocks a window needs follows from its definition, and there is one
 * function for it. */
static void the_first_needed_key_and_block_are_those_of_the_definition(void)
{
    for (int64_t length = 0; length <= 60; length++) {
        for (int64_t window = 0; window <= 20; window++) {
            const int64_t key = first_by_definition(length, window);
            CU_ASSERT_EQUAL(first_needed_key(length, window), key);
            for (int32_t block_size = 1; block_size <= 8; block_size++) {
                const int32_t block = first_needed_block(length, window, block_size);
                CU_ASSERT((int64_t)block * block_size <= key);
                CU_ASSERT((int64_t)(block + 1) * block_size > key);
            }
        }
    }
}

/* C7, F6: a truncation needs the keys that the query at the new length sees. */
static void the_stated_lengths_need_the_stated_keys(void)
{
    CU_ASSERT_EQUAL(first_needed_key(19, 4), 16);
    CU_ASSERT_EQUAL(first_needed_key(18, 4), 15);
    CU_ASSERT_EQUAL(first_needed_block(18, 4, 2), 7);
    CU_ASSERT_EQUAL(first_needed_key(19, 8), 12);
    CU_ASSERT_EQUAL(first_needed_block(19, 8, 4), 3);
    CU_ASSERT_EQUAL(first_needed_block(18, 8, 4), 2);
}

/* F7: a block that is wider than the window is needed while it holds the newest key. */
static void the_block_of_the_last_key_is_needed_when_it_is_wider_than_the_window(void)
{
    for (int64_t length = 17; length <= 40; length++) {
        CU_ASSERT(first_needed_block(length, 4, 16) <= (length - 1) / 16);
    }
}

static void no_window_and_one_past_every_length_need_all(void)
{
    CU_ASSERT_EQUAL(first_needed_key(INT64_MAX, 0), 0);
    CU_ASSERT_EQUAL(first_needed_key(100, INT64_MAX), 0);
    CU_ASSERT_EQUAL(first_needed_key(INT64_MAX, 1), INT64_MAX);
    CU_ASSERT_EQUAL(first_needed_block(INT32_MAX, 1, 1), INT32_MAX);
}

static const struct test_case cases[] = {
    TEST(the_first_needed_key_and_block_are_those_of_the_definition),
    TEST(the_stated_lengths_need_the_stated_keys),
    TEST(the_block_of_the_last_key_is_needed_when_it_is_wider_than_the_window),
    TEST(no_window_and_one_past_every_length_need_all),
    TEST_END,
};
const struct test_suite suite_window = {"window", cases};
