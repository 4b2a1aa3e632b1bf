/* SPDX-License-Identifier: MIT
 *
 * Sizes at the ends of their range, where the obvious formula overflows. */
#include "base/checked.h"

#include "support/test.h"

static void a_quotient_is_rounded_up_and_does_not_overflow(void)
{
    for (int64_t a = 0; a <= 40; a++) {
        for (int64_t b = 1; b <= 9; b++) {
            const int64_t quotient = divide_up(a, b);
            CU_ASSERT(quotient * b >= a && (quotient - 1) * b < a);
        }
    }
    CU_ASSERT_EQUAL(divide_up(INT64_MAX, 1), INT64_MAX);
    CU_ASSERT_EQUAL(divide_up(INT64_MAX, 2), INT64_MAX / 2 + 1);
    CU_ASSERT_EQUAL(divide_up(1, INT64_MAX), 1);
    CU_ASSERT_EQUAL(divide_up(INT64_MAX, INT64_MAX), 1);
}

static void a_size_without_a_multiple_above_it_is_not_rounded(void)
{
    size_t rounded = 7;
    CU_ASSERT(checked_round_up(0, 64, &rounded) && rounded == 0);
    CU_ASSERT(checked_round_up(1, 64, &rounded) && rounded == 64);
    CU_ASSERT(checked_round_up(64, 64, &rounded) && rounded == 64);
    CU_ASSERT(checked_round_up(SIZE_MAX - 63, 64, &rounded) && rounded == SIZE_MAX - 63);
    CU_ASSERT(checked_round_up(SIZE_MAX, 1, &rounded) && rounded == SIZE_MAX);
    CU_ASSERT(!checked_round_up(SIZE_MAX - 62, 64, &rounded) && rounded == SIZE_MAX);
    CU_ASSERT(!checked_round_up(SIZE_MAX, 64, &rounded) && rounded == SIZE_MAX);
}

static void products_and_sums_say_when_they_do_not_fit(void)
{
    size_t result = 7;
    CU_ASSERT(checked_mul(SIZE_MAX, 1, &result) && result == SIZE_MAX);
    CU_ASSERT(checked_mul(SIZE_MAX, 0, &result) && result == 0);
    CU_ASSERT(!checked_mul(SIZE_MAX / 2 + 1, 2, &result) && result == 0);
    CU_ASSERT(checked_add(SIZE_MAX - 1, 1, &result) && result == SIZE_MAX);
    CU_ASSERT(!checked_add(SIZE_MAX, 1, &result) && result == SIZE_MAX);
}

static void costs_stop_at_the_largest_number(void)
{
    CU_ASSERT_EQUAL(capped_add(INT64_MAX - 1, 1), INT64_MAX);
    CU_ASSERT_EQUAL(capped_add(INT64_MAX, INT64_MAX), INT64_MAX);
    CU_ASSERT_EQUAL(capped_mul(INT64_MAX / 2, 2), INT64_MAX - 1);
    CU_ASSERT_EQUAL(capped_mul(INT64_MAX / 2 + 1, 2), INT64_MAX);
    CU_ASSERT_EQUAL(capped_mul(INT64_MAX, 0), 0);
}

static const struct test_case cases[] = {
    TEST(a_quotient_is_rounded_up_and_does_not_overflow),
    TEST(a_size_without_a_multiple_above_it_is_not_rounded),
    TEST(products_and_sums_say_when_they_do_not_fit),
    TEST(costs_stop_at_the_largest_number),
    TEST_END,
};
const struct test_suite suite_checked = {"checked", cases};
