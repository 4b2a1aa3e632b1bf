/* SPDX-License-Identifier: MIT */
#include "tiers/tier.h"

#include <string.h>

#include "support/test.h"

static int num_destroyed;

static void ignore(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    (void)context;
    (void)items;
    (void)num_items;
}

static void find_first(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    (void)context;
    (void)num_items;
    items[0].status = PKV_OK;
}

static void count_nothing(void *context, struct pkv_tier_counter *counters, int32_t num_counters)
{
    (void)context;
    (void)counters;
    (void)num_counters;
}

static void destroy(void *context)
{
    ++*(int *)context;
}

static struct pkv_tier_ops all_ops(void)
{
    return (struct pkv_tier_ops){.size = sizeof(struct pkv_tier_ops),
                                 .name = "test",
                                 .context = &num_destroyed,
                                 .put = ignore,
                                 .get = ignore,
                                 .find = find_first,
                                 .remove = ignore,
                                 .count = count_nothing,
                                 .destroy = destroy};
}

static void a_tier_without_one_of_its_functions_is_refused_by_name(void)
{
    pkv_tier *tier = NULL;
    struct pkv_tier_ops ops = all_ops();
    ops.put = NULL;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "ops.put", pkv_tier_create(&ops, &tier));
    ops = all_ops();
    ops.get = NULL;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "ops.get", pkv_tier_create(&ops, &tier));
    ops = all_ops();
    ops.find = NULL;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "ops.find", pkv_tier_create(&ops, &tier));
    ops = all_ops();
    ops.remove = NULL;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "ops.remove", pkv_tier_create(&ops, &tier));
    ops = all_ops();
    ops.count = NULL;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "ops.count", pkv_tier_create(&ops, &tier));
    CU_ASSERT_PTR_NULL(tier);
}

static void a_name_is_short_text(void)
{
    static const char *const wrong[] = {NULL, "", "new\nline",
                                        "a name of more than thirty-one bytes"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        pkv_tier *tier = NULL;
        struct pkv_tier_ops ops = all_ops();
        ops.name = wrong[i];
        ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "ops.name", pkv_tier_create(&ops, &tier));
    }
    struct pkv_tier_ops ops = all_ops();
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "tier", pkv_tier_create(&ops, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_tier_create(NULL, NULL));
}

static void items_that_a_tier_leaves_alone_have_failed(void)
{
    pkv_tier *tier = NULL;
    const struct pkv_tier_ops ops = all_ops();
    num_destroyed = 0;
    ASSERT_STATUS(PKV_OK, pkv_tier_create(&ops, &tier));
    CU_ASSERT_STRING_EQUAL(tier->ops.name, "test");
    struct pkv_tier_item items[2] = {{.name = "a"}, {.name = "b"}};
    tier_find(tier, items, 2);
    CU_ASSERT_EQUAL(items[0].status, PKV_OK);
    CU_ASSERT_EQUAL(items[1].status, PKV_IO);
    tier_get(tier, items, 2);
    CU_ASSERT_EQUAL(items[0].status, PKV_IO);
    struct pkv_tier_counter counter = {.name = "c"};
    tier_count(tier, &counter, 1);
    CU_ASSERT_EQUAL(counter.status, PKV_IO);
    tier_put(tier, items, 0);
    tier_remove(tier, items, 1);
    tier_list(tier, NULL, NULL);
    pkv_tier_destroy(tier);
    pkv_tier_destroy(NULL);
    CU_ASSERT_EQUAL(num_destroyed, 1);
}

static const struct test_case cases[] = {
    TEST(a_tier_without_one_of_its_functions_is_refused_by_name),
    TEST(a_name_is_short_text),
    TEST(items_that_a_tier_leaves_alone_have_failed),
    TEST_END,
};

const struct test_suite suite_tier = {"tier", cases};
