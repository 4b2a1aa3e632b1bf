/* SPDX-License-Identifier: MIT
 *
 * Blank blocks: what config.min_blank_percent keeps free and not cached, in which order cached
 * blocks are evicted for that, what it must leave alone, and the runs that come of it. */
#include <math.h>
#include <string.h>

#include "bench/retention/served.h"
#include "runtime/cache.h"
#include "runtime/reuse_case.h"

enum { BLOCK = 4, LIVE = 8 };

static struct prefix_seq a, b, seqs[LIVE];

static int32_t num_blank(struct runtime_case *c, int32_t group)
{
    struct pkv_group_usage usage = {.size = sizeof usage};
    ASSERT_STATUS(PKV_OK, pkv_cache_usage(c->cache, group, &usage));
    return usage.free - usage.cached;
}

/* A cache of so many blocks, full of the cached blocks of prompts of four blocks. */
static void open_full(struct runtime_case *c, int32_t num_blocks, int32_t percent)
{
    c->groups[0].num_blocks = num_blocks;
    c->config.min_blank_percent = percent;
    case_open(c);
    c->config.min_blank_percent = 0;
    for (int32_t i = 0; i < num_blocks / 4; i++) {
        prefix_run(c, &a, 1000 * i, 4 * BLOCK);
        prefix_destroy(c, &a);
    }
}

/* --- how many, and in which order */

static void so_many_blocks_are_blank_behind_what_is_taken(void)
{
    struct runtime_case c;
    prefix_init(&c);
    open_full(&c, 40, 10);
    CU_ASSERT_EQUAL(num_blank(&c, 0), 4);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 500000, NULL));
    for (int32_t n = 1; n <= 12; n++) {
        prefix_append(&c, &b, BLOCK);
        CU_ASSERT_EQUAL(num_blank(&c, 0), 4);
        CU_ASSERT_EQUAL(prefix_stats(&c).evicted_blocks, (uint64_t)(4 + n));
    }
    prefix_destroy(&c, &b);
    CU_ASSERT_EQUAL(num_blank(&c, 0), 4);
    case_close(&c);
}

/* D8: leaves before parents, what was unused longest first: what is left of each prompt is what
 * exact eviction of so many blocks leaves. */
static void blocks_are_evicted_early_in_the_order_of_eviction(void)
{
    struct runtime_case exact, early;
    prefix_init(&exact);
    prefix_init(&early);
    open_full(&exact, 40, 0);
    open_full(&early, 40, 0);
    early.cache->groups[0].blocks.min_blank = 6;
    prefix_run(&exact, &b, 500000, 8 * BLOCK);
    prefix_destroy(&exact, &b);
    prefix_run(&early, &b, 500000, 2 * BLOCK);
    prefix_destroy(&early, &b);
    CU_ASSERT(prefix_stats(&exact).evicted_blocks == 8 && num_blank(&early, 0) == 6);
    CU_ASSERT_EQUAL(prefix_stats(&early).evicted_blocks, 8);
    for (int32_t i = 0; i < 10; i++) {
        ASSERT_STATUS(PKV_OK, prefix_create(&exact, &a, 1000 * i, NULL));
        ASSERT_STATUS(PKV_OK, prefix_create(&early, &b, 1000 * i, NULL));
        const int32_t left = prefix_hit(&exact, &a, 4 * BLOCK + 1);
        CU_ASSERT_EQUAL(prefix_hit(&early, &b, 4 * BLOCK + 1), left);
        prefix_destroy(&exact, &a);
        prefix_destroy(&early, &b);
    }
    case_close(&exact);
    case_close(&early);
}

/* K10: no call evicts many more than it takes, however many are missing. */
static void a_call_evicts_no_more_than_four_blocks_for_each_that_it_takes(void)
{
    struct runtime_case c;
    prefix_init(&c);
    c.groups[0].num_blocks = 64;
    c.config.min_blank_percent = 50;
    c.config.max_seq_len = c.config.max_step_tokens = 256;
    case_open(&c);
    prefix_run(&c, &a, 0, 62 * BLOCK); /* nothing was cached to be evicted */
    prefix_destroy(&c, &a);
    CU_ASSERT(num_blank(&c, 0) == 2 && prefix_stats(&c).evicted_blocks == 0);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 500000, NULL));
    for (uint64_t n = 1; n <= 10; n++) {
        prefix_append(&c, &b, BLOCK);
        CU_ASSERT_EQUAL(prefix_stats(&c).evicted_blocks, 4 * n);
    }
    prefix_append(&c, &b, BLOCK);
    CU_ASSERT_EQUAL(num_blank(&c, 0), 32);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* --- what is left alone */

static void blocks_of_a_priority_are_not_evicted_early(void)
{
    const struct pkv_seq_options options = {.size = sizeof options, .priority = 1};
    struct runtime_case c;
    prefix_init(&c);
    c.groups[0].num_blocks = 12;
    c.config.min_blank_percent = 50;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, &options));
    prefix_append(&c, &a, 8 * BLOCK);
    prefix_destroy(&c, &a);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 500000, NULL));
    prefix_append(&c, &b, 4 * BLOCK);
    CU_ASSERT(prefix_stats(&c).evicted_blocks == 0 && num_blank(&c, 0) == 0);
    prefix_append(&c, &b, BLOCK); /* when nothing else is free */
    CU_ASSERT_EQUAL(prefix_stats(&c).evicted_blocks, 1);
    prefix_destroy(&c, &b);
    case_close(&c);
}

static void windows_are_not_evicted_early(void)
{
    struct runtime_case c;
    prefix_init(&c);
    struct pkv_group_config *window = case_add_group(&c);
    window->sliding_window = 5;
    window->num_blocks = 12;
    case_add_layer(&c, 1);
    open_full(&c, 40, 50);
    CU_ASSERT(num_blank(&c, 0) >= 20);
    prefix_run(&c, &a, 500000, 4 * BLOCK);
    prefix_destroy(&c, &a);
    CU_ASSERT_EQUAL(num_blank(&c, 1), 0);
    case_close(&c);
}

/* Blank blocks are free ones: what is admitted, and what a step finds, is as without them. */
static void blank_blocks_keep_no_request_waiting(void)
{
    struct runtime_case c;
    prefix_init(&c);
    c.config.max_seq_len = 256;
    open_full(&c, 40, 50);
    CU_ASSERT_EQUAL(case_free(&c, 0), 40);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 500000, NULL));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 8 * BLOCK, 32 * BLOCK, NULL));
    for (int32_t n = 0; n < 40; n++) {
        prefix_append(&c, &b, BLOCK);
    }
    CU_ASSERT(case_held(&c, 0) == 40 && prefix_stats(&c).cached_blocks == 0);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* --- what is told, and what is overwritten */

static void events_and_counters_tell_what_was_evicted_early(void)
{
    struct runtime_case c;
    struct pkv_event events[64];
    int32_t count = 0;
    int32_t num_removed = 0;
    prefix_init(&c);
    c.config.num_events = 64;
    open_full(&c, 12, 25);
    ASSERT_STATUS(PKV_OK, pkv_events_drain(c.cache, events, sizeof events[0], 64, &count, NULL));
    for (int32_t i = 0; i < count; i++) {
        num_removed += events[i].kind == PKV_EVENT_REMOVED;
    }
    CU_ASSERT(num_removed == 3 && prefix_stats(&c).evicted_blocks == 3);
    CU_ASSERT_EQUAL(prefix_stats(&c).cached_blocks, 9);
    case_close(&c);
}

/* G: security. With poison_freed the content of a block is gone when it is not found any more. */
static void what_is_evicted_early_is_overwritten_at_once(void)
{
    struct runtime_case c;
    struct pkv_kv_view view;
    int32_t num_poisoned = 0;
    prefix_init(&c);
    c.memory.fill = 0;
    open_full(&c, 12, 25);
    prefix_run(&c, &a, 500000, 12 * BLOCK); /* writes every block */
    prefix_destroy(&c, &a);
    prefix_run(&c, &a, 600000, 4 * BLOCK);
    prefix_destroy(&c, &a);
    ASSERT_STATUS(PKV_OK, pkv_cache_view(c.cache, 0, &view));
    for (int32_t block = 0; block < 12; block++) {
        float channel = 0;
        memcpy(&channel, case_cell(&view, false, block, 0, 0), sizeof channel);
        num_poisoned += isnan(channel) != 0;
    }
    CU_ASSERT_EQUAL(num_poisoned, 3);
    case_close(&c);
}

/* --- what it buys, and what it costs */

/* The mean run of eight sequences of many lengths that grow in turn and are followed by others,
 * while cached blocks fill the pool. */
static double mean_run(int32_t percent)
{
    struct runtime_case c;
    int32_t left[LIVE] = {0};
    uint64_t num_blocks = 0;
    uint64_t num_runs = 0;
    int32_t num_begun = 0;
    prefix_init(&c);
    c.config.max_seqs = LIVE + 1;
    c.config.max_seq_len = c.config.max_step_tokens = 256;
    open_full(&c, 160, percent);
    for (int32_t round = 0; round < 600; round++) {
        const int32_t i = round * 5 % LIVE;
        if (left[i] == 0) {
            left[i] = 1 + 7 * num_begun % 12;
            ASSERT_STATUS(PKV_OK, prefix_create(&c, &seqs[i], 500000 + 997 * num_begun, NULL));
            prefix_append(&c, &seqs[i], (1 + num_begun * num_begun % 17) * BLOCK);
            num_begun++;
        }
        prefix_append(&c, &seqs[i], BLOCK);
        if (--left[i] == 0) {
            prefix_destroy(&c, &seqs[i]);
        }
        const struct pkv_stats stats = prefix_stats(&c);
        num_blocks += round < 200 ? 0 : (uint64_t)stats.table_blocks;
        num_runs += round < 200 ? 0 : (uint64_t)stats.table_runs;
    }
    for (int32_t i = 0; i < LIVE; i++) {
        if (left[i] > 0) {
            prefix_destroy(&c, &seqs[i]);
        }
    }
    case_close(&c);
    return (double)num_blocks / (double)num_runs;
}

static void runs_grow_with_the_blank_share(void)
{
    const double without = mean_run(0);
    const double eighth = mean_run(12);
    const double quarter = mean_run(25);
    CU_ASSERT(without < 1.3 && eighth > 1.7 && quarter > 5);
}

static int64_t served(const struct trace *trace, int32_t num_blocks, int32_t percent)
{
    const struct serving serving = {
        .full_blocks = num_blocks, .max_seqs = 4, .min_blank_percent = percent};
    return served_tokens(trace, &serving, NULL);
}

/* K1: an eighth of blank blocks costs system prompts nothing, and chats at random no more than a
 * tenth of what is found without it. */
static void hits_fall_no_further_than_the_blank_share(void)
{
    static struct trace trace;
    trace_of_system_prompts(&trace, 5, 300, 1);
    CU_ASSERT(100 * served(&trace, 400, 12) >= 99 * served(&trace, 400, 0));
    trace_free(&trace);
    trace_of_chats(&trace, 12, 12, true, 1);
    CU_ASSERT(100 * served(&trace, 750, 12) >= 90 * served(&trace, 750, 0));
    CU_ASSERT(100 * served(&trace, 750, 5) >= 97 * served(&trace, 750, 0));
    trace_free(&trace);
}

/* --- off, and the field */

/* What cached contents, block ids and counts are after the same calls. */
static uint64_t digest_of_history(struct runtime_case *c)
{
    for (int32_t i = 0; i < 40; i++) {
        prefix_run(c, &a, 100 * (i * i % 13), (1 + i % 6) * BLOCK + i % 3);
        prefix_destroy(c, &a);
    }
    return prefix_digest(c);
}

/* A program that does not know the field, and one that leaves it at 0, get exact eviction. */
static void zero_and_older_programs_evict_nothing_early(void)
{
    uint64_t digests[4];
    for (int32_t i = 0; i < 4; i++) {
        struct runtime_case c;
        prefix_init(&c);
        c.groups[0].num_blocks = 24;
        c.config.min_blank_percent = i < 2 ? 0 : 25;
        if (i == 1 || i == 2) {
            c.config.size = offsetof(struct pkv_cache_config, min_blank_percent);
        }
        case_open(&c);
        digests[i] = digest_of_history(&c);
        case_close(&c);
    }
    CU_ASSERT(digests[0] == digests[1] && digests[1] == digests[2]);
    CU_ASSERT(digests[2] != digests[3]);
}

static void a_percentage_outside_its_range_refuses_and_is_named(void)
{
    struct runtime_case c;
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    struct pkv_cache_config found = {.size = sizeof found};
    prefix_init(&c);
    c.config.min_blank_percent = -1;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_size(&c.config, &sizes));
    CU_ASSERT_PTR_NOT_NULL(strstr(pkv_last_error(), "min_blank_percent"));
    c.config.min_blank_percent = 101;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_size(&c.config, &sizes));
    c.config.min_blank_percent = 100;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, pkv_cache_describe(c.cache, &found));
    CU_ASSERT_EQUAL(found.min_blank_percent, 100);
    prefix_run(&c, &a, 0, 8 * BLOCK);
    prefix_destroy(&c, &a);
    prefix_run(&c, &a, 0, 10 * BLOCK);
    prefix_destroy(&c, &a);
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(so_many_blocks_are_blank_behind_what_is_taken),
    TEST(blocks_are_evicted_early_in_the_order_of_eviction),
    TEST(a_call_evicts_no_more_than_four_blocks_for_each_that_it_takes),
    TEST(blocks_of_a_priority_are_not_evicted_early),
    TEST(windows_are_not_evicted_early),
    TEST(blank_blocks_keep_no_request_waiting),
    TEST(events_and_counters_tell_what_was_evicted_early),
    TEST(what_is_evicted_early_is_overwritten_at_once),
    TEST(runs_grow_with_the_blank_share),
    TEST(hits_fall_no_further_than_the_blank_share),
    TEST(zero_and_older_programs_evict_nothing_early),
    TEST(a_percentage_outside_its_range_refuses_and_is_named),
    TEST_END,
};
const struct test_suite suite_runtime_blank = {"runtime_blank", cases};
