/* SPDX-License-Identifier: MIT
 *
 * The threads that a cache starts for its tiers. */
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

#include "reuse_case.h"

enum { NOT_CALLED = -100 };

/* The nice value of the last thread that put. */
static atomic_int put_nice;

static void put(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    (void)context;
    for (int32_t i = 0; i < num_items; i++) {
        items[i].status = PKV_OK;
    }
    atomic_store(&put_nice, getpriority(PRIO_PROCESS, 0));
}

static void miss(void *context, struct pkv_tier_item *items, int32_t num_items)
{
    (void)context;
    for (int32_t i = 0; i < num_items; i++) {
        items[i].status = PKV_NOT_FOUND;
    }
}

static void count(void *context, struct pkv_tier_counter *counters, int32_t num_counters)
{
    (void)context;
    for (int32_t i = 0; i < num_counters; i++) {
        counters[i].value = 0;
        counters[i].status = PKV_OK;
    }
}

static pkv_tier *open_tier(void)
{
    const struct pkv_tier_ops ops = {.size = sizeof ops,
                                     .name = "nice",
                                     .put = put,
                                     .get = miss,
                                     .find = miss,
                                     .remove = miss,
                                     .count = count};
    pkv_tier *tier = NULL;
    ASSERT_STATUS(PKV_OK, pkv_tier_create(&ops, &tier));
    atomic_store(&put_nice, NOT_CALLED);
    return tier;
}

static void open_case(struct runtime_case *c, pkv_tier *const *tiers, int32_t num_threads)
{
    prefix_init(c);
    c->config.tiers = tiers;
    c->config.num_tiers = 1;
    c->config.num_tier_threads = num_threads;
    case_open(c);
}

/* A minute at most. */
static void wait_for_put(void)
{
    for (int i = 0; i < 60000 && atomic_load(&put_nice) == NOT_CALLED; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static void threads_of_the_cache_let_all_others_run_first(void)
{
    static struct prefix_seq x;
    struct runtime_case c;
    pkv_tier *tier = open_tier();
    const int before = getpriority(PRIO_PROCESS, 0);
    open_case(&c, &tier, 1);
    prefix_warm(&c, &x, 100, 13);
    wait_for_put();
    CU_ASSERT_EQUAL(atomic_load(&put_nice), 19);
    CU_ASSERT_EQUAL(getpriority(PRIO_PROCESS, 0), before);
    case_close(&c);
    pkv_tier_destroy(tier);
}

static void threads_of_the_caller_keep_their_priority(void)
{
    static struct prefix_seq x;
    struct runtime_case c;
    pkv_tier *tier = open_tier();
    const int before = getpriority(PRIO_PROCESS, 0);
    open_case(&c, &tier, 0);
    prefix_warm(&c, &x, 100, 13);
    ASSERT_STATUS(PKV_OK, pkv_tier_work(c.cache, 0, NULL));
    CU_ASSERT_EQUAL(atomic_load(&put_nice), before);
    case_close(&c);
    pkv_tier_destroy(tier);
}

static const struct test_case cases[] = {
    TEST(threads_of_the_cache_let_all_others_run_first),
    TEST(threads_of_the_caller_keep_their_priority),
    TEST_END,
};

const struct test_suite suite_runtime_tier_threads = {"runtime_tier_threads", cases};
