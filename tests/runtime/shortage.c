/* SPDX-License-Identifier: MIT
 *
 * The verdict over limits, by numbers alone, and what a refusal says of it. */
#include "runtime/shortage.h"

#include <string.h>

#include "support/test.h"

/* Blocks of one group under a limit. */
static struct shortage_demand demand(int32_t group, int64_t total, int64_t more, int64_t limit,
                                     int64_t available)
{
    return (struct shortage_demand){.row = SHORTAGE_NO_ROW,
                                    .group = group,
                                    .total = total,
                                    .more = more,
                                    .limit = limit,
                                    .available = available};
}

static void what_is_left_and_no_more_fits(void)
{
    struct pkv_shortage shortage = {.need = 77};
    const struct shortage_demand fits = demand(0, 8, 3, 8, 3);
    CU_ASSERT_EQUAL(shortage_judge(PKV_OK, &fits, &shortage), PKV_OK);
    CU_ASSERT_EQUAL(shortage.need, 77);
    const struct shortage_demand is_short = demand(0, 8, 4, 8, 3);
    CU_ASSERT_EQUAL(shortage_judge(PKV_OK, &is_short, &shortage), PKV_NO_BLOCKS);
    CU_ASSERT(shortage.need == 4 && shortage.free == 3 && shortage.group == 0);
    const struct shortage_demand never = demand(0, 9, 4, 8, 4);
    CU_ASSERT_EQUAL(shortage_judge(PKV_OK, &never, &shortage), PKV_NEVER_FITS);
    CU_ASSERT(shortage.need == 9 && shortage.free == 4);
}

/* A scheduler waits on the one and must not wait on the other. */
static void never_goes_before_not_now_whichever_limit_comes_first(void)
{
    const struct shortage_demand is_short = demand(0, 4, 4, 8, 3);
    const struct shortage_demand never = demand(1, 9, 4, 8, 8);
    const struct shortage_demand fits = demand(2, 1, 1, 8, 8);
    const struct shortage_demand *orders[][3] = {
        {&is_short, &never, &fits}, {&never, &is_short, &fits}, {&fits, &is_short, &never}};
    for (int i = 0; i < 3; i++) {
        struct pkv_shortage shortage = {.group = 77};
        enum pkv_status status = PKV_OK;
        for (int k = 0; k < 3; k++) {
            status = shortage_judge(status, orders[i][k], &shortage);
        }
        CU_ASSERT_EQUAL(status, PKV_NEVER_FITS);
        CU_ASSERT_EQUAL(shortage.group, 1);
    }
}

static void among_equal_verdicts_the_first_limit_is_told(void)
{
    const struct shortage_demand first = demand(3, 4, 4, 8, 3);
    const struct shortage_demand second = demand(4, 4, 4, 8, 0);
    struct pkv_shortage shortage = {0};
    const enum pkv_status status = shortage_judge(PKV_OK, &first, &shortage);
    CU_ASSERT_EQUAL(shortage_judge(status, &second, &shortage), PKV_NO_BLOCKS);
    CU_ASSERT(shortage.group == 3 && shortage.free == 3);
}

static void what_is_left_of_a_lowered_quota_is_told_as_nothing(void)
{
    struct pkv_shortage shortage = {0};
    const struct shortage_demand of_quota = demand(SHORTAGE_NO_GROUP, 4, 2, 6, -1);
    CU_ASSERT_EQUAL(shortage_judge(PKV_OK, &of_quota, &shortage), PKV_NO_BLOCKS);
    CU_ASSERT(shortage.free == 0 && shortage.quota == 6 && shortage.group == -1);
}

static void a_refusal_names_row_group_and_numbers(void)
{
    const struct pkv_group_config groups[] = {{.num_blocks = 12}, {.num_blocks = 7}};
    const struct pkv_cache_config config = {.groups = groups, .num_groups = 2};
    const struct pkv_shortage of_row = {.row = 5, .group = 1, .need = 4, .free = 2};
    ASSERT_REFUSED(PKV_NO_BLOCKS, "row 5: group 1: 4 blocks needed, 2 free",
                   shortage_refuse(&config, PKV_NO_BLOCKS, &of_row));
    const struct pkv_shortage of_quota = {.row = -1, .group = -1, .need = 4, .free = 1, .quota = 3};
    ASSERT_REFUSED(PKV_NEVER_FITS, "4 blocks needed, 1 left of the namespace's quota of 3",
                   shortage_refuse(&config, PKV_NEVER_FITS, &of_quota));
}

/* Admissions leave the watermark free; a step may take those blocks too. */
static void the_watermark_is_told_to_admissions_alone(void)
{
    const struct pkv_group_config groups[] = {{.num_blocks = 12}};
    const struct pkv_cache_config config = {
        .groups = groups, .num_groups = 1, .watermark_blocks = 3};
    const struct pkv_shortage admission = {.row = SHORTAGE_NO_ROW, .need = 10};
    ASSERT_REFUSED(PKV_NEVER_FITS, "group 0: 10 blocks needed, it has 12, watermark 3",
                   shortage_refuse(&config, PKV_NEVER_FITS, &admission));
    const struct pkv_shortage step = {.row = 2, .need = 13};
    ASSERT_REFUSED(PKV_NEVER_FITS, "row 2: group 0: 13 blocks needed, it has 12",
                   shortage_refuse(&config, PKV_NEVER_FITS, &step));
    CU_ASSERT_PTR_NULL(strstr(pkv_last_error(), "watermark"));
}

static const struct test_case cases[] = {
    TEST(what_is_left_and_no_more_fits),
    TEST(never_goes_before_not_now_whichever_limit_comes_first),
    TEST(among_equal_verdicts_the_first_limit_is_told),
    TEST(what_is_left_of_a_lowered_quota_is_told_as_nothing),
    TEST(a_refusal_names_row_group_and_numbers),
    TEST(the_watermark_is_told_to_admissions_alone),
    TEST_END,
};
const struct test_suite suite_runtime_shortage = {"runtime_shortage", cases};
