/* SPDX-License-Identifier: MIT
 *
 * Sets of ids: what they find is what an array of flags finds, at every number of levels. */
#include "alloc/id_set.h"

#include <stdlib.h>

#include "support/test.h"

enum { MANY_IDS = 300000, OPERATIONS = 20000 };

struct case_set {
    struct id_set set;
    uint64_t *words;
    int32_t num_ids;
};

static struct case_set set_of(int32_t num_ids)
{
    struct case_set made = {.num_ids = num_ids};
    made.words = calloc(id_set_num_words(num_ids), sizeof *made.words);
    CU_ASSERT_FATAL(made.words != NULL);
    id_set_init(&made.set, num_ids, made.words);
    return made;
}

static void levels_end_in_one_word(void)
{
    static const int32_t nums[] = {1, 64, 65, 4096, 4097, 262144, 262145};
    static const int32_t levels[] = {1, 1, 2, 2, 3, 3, 4};
    for (size_t i = 0; i < sizeof nums / sizeof nums[0]; i++) {
        struct case_set made = set_of(nums[i]);
        CU_ASSERT_EQUAL(made.set.num_levels, levels[i]);
        CU_ASSERT_TRUE(id_set_is_empty(&made.set));
        id_set_add(&made.set, nums[i] - 1);
        CU_ASSERT_EQUAL(id_set_first(&made.set), nums[i] - 1);
        CU_ASSERT_EQUAL(id_set_last_to(&made.set, nums[i] - 1), nums[i] - 1);
        CU_ASSERT_TRUE(id_set_is_sound(&made.set, nums[i]));
        id_set_remove(&made.set, nums[i] - 1);
        CU_ASSERT_TRUE(id_set_is_empty(&made.set));
        CU_ASSERT_EQUAL(id_set_last_to(&made.set, nums[i] - 1), -1);
        free(made.words);
    }
    CU_ASSERT_EQUAL(id_set_num_words(INT32_MAX),
                    ((size_t)1 << 25) + (1 << 19) + (1 << 13) + (1 << 7) + 2 + 1);
}

/* The first member from `id` on in steps of `step`, -1 when there is none. */
static int32_t walk(const bool *flags, int32_t num_ids, int32_t id, int32_t step)
{
    while (id >= 0 && id < num_ids && !flags[id]) {
        id += step;
    }
    return id < num_ids ? id : -1;
}

static void operate(struct case_set *made, bool *flags, struct test_random *random)
{
    const int32_t id = random_between(random, 0, made->num_ids - 1);
    const int32_t to = random_between(random, 0, made->num_ids - 1);
    if (flags[id] && !flags[to] && random_between(random, 0, 1) == 0) {
        id_set_move(&made->set, id, to);
        flags[to] = true;
        flags[id] = false;
    } else if (flags[id]) {
        id_set_remove(&made->set, id);
        flags[id] = false;
    } else {
        id_set_add(&made->set, id);
        flags[id] = true;
    }
}

static void agree(const struct case_set *made, const bool *flags, int32_t id)
{
    CU_ASSERT_EQUAL_FATAL(id_set_has(&made->set, id), flags[id]);
    CU_ASSERT_EQUAL_FATAL(id_set_last_to(&made->set, id), walk(flags, made->num_ids, id, -1));
    const int32_t first = walk(flags, made->num_ids, 0, 1);
    CU_ASSERT_EQUAL_FATAL(id_set_is_empty(&made->set), first < 0);
    CU_ASSERT_FATAL(first < 0 || id_set_first(&made->set) == first);
}

static void a_set_agrees_with_an_array_of_flags(void)
{
    static const int32_t nums[] = {1, 7, 64, 65, 200, 5000, MANY_IDS};
    static bool flags[MANY_IDS];
    struct test_random random = {test_seed()};
    for (size_t i = 0; i < sizeof nums / sizeof nums[0]; i++) {
        struct case_set made = set_of(nums[i]);
        for (int32_t n = 0; n < (nums[i] < 1000 ? OPERATIONS : 500); n++) {
            operate(&made, flags, &random);
            agree(&made, flags, random_between(&random, 0, nums[i] - 1));
        }
        int32_t count = 0;
        for (int32_t id = 0; id < nums[i]; id++) {
            count += flags[id];
            flags[id] = false;
        }
        CU_ASSERT_EQUAL(id_set_count(&made.set, nums[i]), count);
        CU_ASSERT_TRUE(id_set_is_sound(&made.set, nums[i]));
        made.words[id_set_num_words(nums[i]) - 1] ^= 1;
        CU_ASSERT_EQUAL(id_set_is_sound(&made.set, nums[i]), nums[i] <= 64);
        free(made.words);
    }
}

static const struct test_case cases[] = {
    TEST(levels_end_in_one_word),
    TEST(a_set_agrees_with_an_array_of_flags),
    TEST_END,
};
const struct test_suite suite_id_set = {"id_set", cases};
