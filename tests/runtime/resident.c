/* SPDX-License-Identifier: MIT
 *
 * The lengths that a sequence can go back to, against what is mapped in each group. */
#include "runtime/resident.h"

#include "runtime/handle.h"
#include "support/runtime_case.h"

#define MAX_LENGTH 60

static struct case_seq a;

/* By the tables: every key that a query at `length` sees lies in a mapped block, in every group. */
static bool sees_all(const struct runtime_case *c, int32_t index, int32_t length)
{
    for (int32_t g = 0; g < c->config.num_groups; g++) {
        const struct group *group = &c->cache->groups[g];
        const int32_t *entries = seq_table_entries(&group->tables, index);
        const int64_t window = group->config->sliding_window;
        const int64_t kept_prefix = group->config->kept_prefix;
        for (int32_t key = 0; key < length; key++) {
            const bool is_seen = window == 0 || key > length - window || key < kept_prefix;
            if (is_seen && entries[key / group->config->block_size] == NO_BLOCK) {
                return false;
            }
        }
    }
    return true;
}

/* Windows of several widths, beside a group that keeps everything. */
static void open_groups(struct runtime_case *c, int64_t first_window, int64_t second_window,
                        int64_t kept_prefix)
{
    const int64_t windows[] = {first_window, second_window};
    case_init(c);
    for (int32_t i = 0; i < 2; i++) {
        struct pkv_group_config *group = case_add_group(c);
        group->sliding_window = windows[i];
        group->kept_prefix = kept_prefix;
        case_add_layer(c, i + 1);
    }
    case_open(c);
    ASSERT_STATUS(PKV_OK, case_create(c, &a, NULL));
}

static void check_all_lengths(const struct runtime_case *c)
{
    const int32_t index = (int32_t)(a.handle.id & HANDLE_INDEX_MASK);
    int32_t shortest = a.length;
    for (int32_t length = a.length; length > 0; length--) {
        const bool is_there = sees_all(c, index, length);
        CU_ASSERT_EQUAL(resident_check(c->cache, index, length) == PKV_OK, is_there);
        shortest = is_there && shortest == length + 1 ? length : shortest;
        shortest = length == a.length ? length : shortest;
    }
    const int32_t least = resident_min_length(c->cache, index);
    CU_ASSERT(shortest > 1 ? least == shortest : least <= 1);
}

/* C7, F6: a truncation needs the keys that the query at the new length sees. */
static void a_length_is_possible_exactly_when_all_that_it_sees_is_mapped(void)
{
    static const struct {
        int64_t first_window, second_window, kept_prefix;
    } shapes[] = {{7, 0, 0}, {8, 12, 0}, {1, 5, 0}, {3, 17, 6}, {16, 16, 4}, {2, 9, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct runtime_case c;
        open_groups(&c, shapes[i].first_window, shapes[i].second_window, shapes[i].kept_prefix);
        for (int32_t n = 0; n < MAX_LENGTH; n++) {
            ASSERT_STATUS(PKV_OK, case_append(&c, &a, 1));
            check_all_lengths(&c);
        }
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, a.handle));
        case_close(&c);
    }
}

static void a_refusal_says_the_next_possible_length(void)
{
    struct runtime_case c;
    open_groups(&c, 4, 10, 0);
    for (int32_t n = 0; n < 30; n++) {
        ASSERT_STATUS(PKV_OK, case_append(&c, &a, 1));
    }
    const int32_t index = (int32_t)(a.handle.id & HANDLE_INDEX_MASK);
    ASSERT_REFUSED(PKV_NOT_RESIDENT, "the shortest possible length is 29, or 0",
                   resident_check(c.cache, index, 20));
    ASSERT_STATUS(PKV_OK, resident_check(c.cache, index, 29));
    CU_ASSERT_EQUAL(resident_min_length(c.cache, index), 29);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, a.handle));
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(a_length_is_possible_exactly_when_all_that_it_sees_is_mapped),
    TEST(a_refusal_says_the_next_possible_length),
    TEST_END,
};
const struct test_suite suite_runtime_resident = {"runtime_resident", cases};
