/* SPDX-License-Identifier: MIT
 *
 * Which lines a job prefetches in which of its groups, by a vec_prefetch that notes them. */
#include "attn/kernels.h"
#include "support/test.h"

#define VEC_INLINE static inline
#define MAX_LINES 64

enum { GROUPS = 4, VECTORS = 2, VECTOR_BYTES = 2 * LINE_BYTES, GROUP_BYTES = 1024 };

static struct {
    const void *lines[MAX_LINES];
    int count;
} noted;

VEC_INLINE void vec_prefetch(const void *p)
{
    noted.lines[noted.count++] = p;
}

#include "attn/vec_prefetch.h"

static char keys[GROUPS * GROUP_BYTES], values[GROUPS * GROUP_BYTES];

/* Notes what a job of GROUPS groups prefetches during one of them, two lines a call. */
static void note_group(int distance, int group)
{
    const void *const own_vectors[VECTORS] = {keys, keys + 512};
    const void *const next_vectors[VECTORS] = {values, values + 256};
    const struct kernel_prefetch own = {
        .vectors = own_vectors,
        .num_vectors = VECTORS,
        .vector_bytes = VECTOR_BYTES,
        .group_bytes = GROUP_BYTES,
    };
    struct kernel_prefetch next = own;
    next.vectors = next_vectors;
    next.distance = distance;
    const struct kernel_prefetch wanted = prefetch_of_group(&next, &own, GROUPS, group);
    struct prefetch prefetch = prefetch_start(&wanted, group, 1);
    noted.count = 0;
    for (int i = 0; i < 8; i++) {
        prefetch_lines(&prefetch, 2);
    }
}

/* The lines of one group, those of each vector in ascending order, and not one behind them. */
static void expect_group(const char *first, const char *second)
{
    CU_ASSERT_EQUAL(noted.count, 4);
    CU_ASSERT_PTR_EQUAL(noted.lines[0], first);
    CU_ASSERT_PTR_EQUAL(noted.lines[1], first + LINE_BYTES);
    CU_ASSERT_PTR_EQUAL(noted.lines[2], second);
    CU_ASSERT_PTR_EQUAL(noted.lines[3], second + LINE_BYTES);
}

static void a_job_prefetches_its_own_groups_first_and_then_those_of_the_next_job(void)
{
    const ptrdiff_t step = GROUP_BYTES;
    for (int distance = 1; distance < GROUPS; distance++) {
        for (int group = 0; group < GROUPS; group++) {
            const ptrdiff_t due = group + distance, left = due - GROUPS;
            note_group(distance, group);
            if (due < GROUPS) {
                expect_group(keys + due * step, keys + due * step + 512);
            } else {
                expect_group(values + left * step, values + left * step + 256);
            }
        }
    }
}

static void without_a_distance_each_group_prefetches_the_same_of_the_next_job(void)
{
    for (int group = 0; group < GROUPS; group++) {
        const ptrdiff_t at = (ptrdiff_t)group * GROUP_BYTES;
        note_group(0, group);
        expect_group(values + at, values + at + 256);
    }
}

static const struct test_case cases[] = {
    TEST(a_job_prefetches_its_own_groups_first_and_then_those_of_the_next_job),
    TEST(without_a_distance_each_group_prefetches_the_same_of_the_next_job),
    TEST_END,
};
const struct test_suite suite_prefetch = {"prefetch", cases};
