/* SPDX-License-Identifier: MIT
 *
 * When a team leaves OpenMP's threads alone, by times that the test makes up. */
#include "attn/backoff.h"

#include "support/test.h"

#define MS INT64_C(1000000)

/* Threads that are in time are always worth another region. */
static void regions_in_time_are_followed_by_regions(void)
{
    struct backoff backoff = {0};
    for (int i = 0; i < 1000; i++) {
        backoff_ran_region(&backoff, i % 7 * 2 * MS + 50000, i % 7 * MS);
        CU_ASSERT_FALSE(backoff_is_alone(&backoff));
    }
}

/* A short call is not given up for a wait that is as short as waking a thread. */
static void a_wait_of_some_microseconds_is_no_delay(void)
{
    struct backoff backoff = {0};
    backoff_ran_region(&backoff, 50000, 0);
    CU_ASSERT_FALSE(backoff_is_alone(&backoff));
    backoff_ran_region(&backoff, 50001, 0);
    CU_ASSERT(backoff_is_alone(&backoff));
}

/* On processors that others keep busy two threads cost at most 1.3 times the time of one. Each
 * region is late by 6 ms, each call alone takes one. */
static void where_threads_are_always_late_little_time_is_lost(void)
{
    struct backoff backoff = {0};
    int64_t lost = 0, worked = 0;
    while (worked < 10000 * MS) {
        if (backoff_is_alone(&backoff)) {
            backoff_ran_alone(&backoff, MS);
        } else {
            backoff_ran_region(&backoff, 7 * MS, MS);
            lost += 6 * MS;
        }
        worked += MS;
    }
    CU_ASSERT(lost > 0);
    CU_ASSERT(10 * lost < worked);
}

/* One late region among others in time costs about what it lost once more. */
static void a_single_delay_costs_about_as_much_again(void)
{
    struct backoff backoff = {0};
    backoff_ran_region(&backoff, 5 * MS, MS);
    int alone = 0;
    for (; backoff_is_alone(&backoff); alone++) {
        backoff_ran_alone(&backoff, MS);
    }
    CU_ASSERT_EQUAL(alone, 8);
    backoff_ran_region(&backoff, MS, MS);
    CU_ASSERT_EQUAL(backoff.level, 0);
}

/* A process that was stopped for an hour does not work alone for a day. */
static void a_delay_counts_up_to_a_limit(void)
{
    struct backoff backoff = {0};
    for (int i = 0; i < 100; i++) {
        backoff_ran_region(&backoff, INT64_MAX, 0);
    }
    CU_ASSERT(backoff_is_alone(&backoff));
    backoff_ran_alone(&backoff, 640 * MS);
    CU_ASSERT_FALSE(backoff_is_alone(&backoff));
}

static const struct test_case cases[] = {
    TEST(regions_in_time_are_followed_by_regions),
    TEST(a_wait_of_some_microseconds_is_no_delay),
    TEST(where_threads_are_always_late_little_time_is_lost),
    TEST(a_single_delay_costs_about_as_much_again),
    TEST(a_delay_counts_up_to_a_limit),
    TEST_END,
};
const struct test_suite suite_backoff = {"backoff", cases};
