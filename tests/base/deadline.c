/* SPDX-License-Identifier: MIT */
#include "base/deadline.h"

#include "support/test.h"

static void a_deadline_is_so_many_nanoseconds_from_now(void)
{
    static const uint64_t spans[] = {0, 1, 999999999, 1000000000, 1999999999, 3600000000000u};
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++) {
        const struct timespec before = deadline_now();
        const struct deadline deadline = deadline_in(spans[i]);
        const struct timespec after = deadline_now();
        struct timespec begun = deadline.end;
        begun.tv_sec -= (time_t)(spans[i] / DEADLINE_NS);
        begun.tv_nsec -= (long)(spans[i] % DEADLINE_NS);
        begun.tv_sec -= begun.tv_nsec < 0;
        begun.tv_nsec += begun.tv_nsec < 0 ? (long)DEADLINE_NS : 0;
        CU_ASSERT(deadline.has_end);
        CU_ASSERT(deadline.end.tv_nsec >= 0 && deadline.end.tv_nsec < (long)DEADLINE_NS);
        CU_ASSERT(!deadline_is_before(&begun, &before) && !deadline_is_before(&after, &begun));
    }
}

static void a_deadline_of_no_time_is_over_and_one_far_away_has_no_end(void)
{
    const struct deadline none = deadline_in(0);
    const struct deadline endless = deadline_in(UINT64_MAX);
    const struct deadline later = deadline_in(3600000000000u);
    CU_ASSERT(deadline_is_over(&none));
    CU_ASSERT(!endless.has_end && !deadline_is_over(&endless));
    CU_ASSERT(!deadline_is_over(&later));
}

static const struct test_case cases[] = {
    TEST(a_deadline_is_so_many_nanoseconds_from_now),
    TEST(a_deadline_of_no_time_is_over_and_one_far_away_has_no_end),
    TEST_END,
};

const struct test_suite suite_deadline = {"deadline", cases};
