/* SPDX-License-Identifier: MIT
 *
 * The bits of handles, and that no generation is used twice in a row or is 0. */
#include "runtime/handle.h"

#include "support/test.h"

#define LAST_GENERATION (((uint64_t)1 << HANDLE_GENERATION_BITS) - 1)
#define LAST_INDEX ((int32_t)HANDLE_INDEX_MASK)

static void kind_generation_and_index_share_no_bit(void)
{
    const uint64_t generation = handle_make(LAST_GENERATION, 0);
    const uint64_t index = handle_make(0, LAST_INDEX);
    CU_ASSERT_EQUAL(generation & index, 0);
    CU_ASSERT_EQUAL((generation | index) & HANDLE_STEP, 0);
    CU_ASSERT_EQUAL(generation | index | HANDLE_STEP, UINT64_MAX);
    CU_ASSERT_EQUAL(handle_make(5, 3) & HANDLE_INDEX_MASK, 3);
    CU_ASSERT_EQUAL(handle_make(5, 3) >> HANDLE_INDEX_BITS, 5);
}

/* A zeroed handle is stale: no object ever has generation 0. */
static void the_last_generation_is_followed_by_1(void)
{
    CU_ASSERT_EQUAL(handle_next_generation(1), 2);
    CU_ASSERT_EQUAL(handle_next_generation(LAST_GENERATION - 1), LAST_GENERATION);
    CU_ASSERT_EQUAL(handle_next_generation(LAST_GENERATION), 1);
}

/* Handles of one cache name nothing in another. */
static void objects_begin_at_generations_of_their_own(void)
{
    int64_t objects[64];
    uint64_t first[64];
    for (int i = 0; i < 64; i++) {
        first[i] = handle_first_generation(&objects[i]);
        CU_ASSERT(first[i] >= 1 && first[i] <= LAST_GENERATION);
        for (int k = 0; k < i; k++) {
            CU_ASSERT_NOT_EQUAL(first[i], first[k]);
        }
    }
}

static const struct test_case cases[] = {
    TEST(kind_generation_and_index_share_no_bit),
    TEST(the_last_generation_is_followed_by_1),
    TEST(objects_begin_at_generations_of_their_own),
    TEST_END,
};
const struct test_suite suite_runtime_handle = {"runtime_handle", cases};
