/* SPDX-License-Identifier: MIT
 *
 * Several tiers, the threads that a cache starts for them, its end, and what is refused. */
#include <string.h>

#include "tier_case.h"

static struct prefix_seq x, y;

/* A cache of two tiers, opened. */
static void open_two(struct runtime_case *c, pkv_tier *const *tiers)
{
    prefix_init(c);
    c->config.tiers = tiers;
    c->config.num_tiers = 2;
    c->config.max_store_blocks = 16;
    case_open(c);
}

static bool take_text(void *context, const char *text, size_t bytes)
{
    char *all = context;
    strncat(all, text, bytes);
    return true;
}

static void the_text_of_the_metrics_has_a_sample_for_each_tier(void)
{
    static char text[65536];
    static struct memory_tier other;
    struct runtime_case c;
    memory_tier_open(&tier_memory, "near");
    memory_tier_open(&other, "a \"far\" one");
    pkv_tier *const tiers[2] = {tier_memory.tier, other.tier};
    prefix_init(&c);
    c.config.tiers = tiers;
    c.config.num_tiers = 2;
    c.config.max_store_blocks = 16;
    c.config.metrics_label = "one";
    case_open(&c);
    prefix_warm(&c, &x, 100, 13);
    tier_case_work_and_poll(&c);
    text[0] = '\0';
    ASSERT_STATUS(PKV_OK, pkv_metrics_write(c.cache, take_text, text));
    const char *metric = strstr(text, "# TYPE pagedkv_tier_stored_blocks_total counter\n");
    CU_ASSERT_PTR_NOT_NULL_FATAL(metric);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(metric,
               "\npagedkv_tier_stored_blocks_total{cache=\"one\",tier=\"0\",tier_name=\"near\"} 3\n"
               "pagedkv_tier_stored_blocks_total{cache=\"one\",tier=\"1\",tier_name=\"a "
               "\\\"far\\\" one\"} 3\n# HELP"));
    case_close(&c);
    memory_tier_close(&tier_memory);
    memory_tier_close(&other);
}

/* What is in the farther tier alone comes to the nearer one when it was loaded. */
static void two_tiers_are_searched_in_order_and_the_nearer_one_is_filled(void)
{
    static struct memory_tier far;
    struct runtime_case c;
    memory_tier_open(&tier_memory, "near");
    memory_tier_open(&far, "far");
    pkv_tier *const tiers[2] = {tier_memory.tier, far.tier};
    tier_case_open(&c, 16, &far.tier);
    prefix_warm(&c, &x, 100, 13);
    tier_case_work_and_poll(&c);
    case_close(&c);
    open_two(&c, tiers);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &y, 100, NULL));
    pkv_ticket ticket = tier_case_prefetch(&c, &y, 13);
    struct pkv_ticket_info info = tier_case_wait(&c, ticket);
    CU_ASSERT_EQUAL(info.tier_loaded[0], 0);
    CU_ASSERT_EQUAL(info.tier_loaded[1], 12);
    tier_case_close_ticket(&c, ticket);
    tier_case_work_and_poll(&c);
    CU_ASSERT_EQUAL(tier_memory.num_values, 3);
    case_close(&c);
    far.num_gets = 0;
    far.is_down = true;
    open_two(&c, tiers);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &y, 100, NULL));
    ticket = tier_case_prefetch(&c, &y, 13);
    info = tier_case_wait(&c, ticket);
    CU_ASSERT_EQUAL(info.tier_loaded[0], 12);
    CU_ASSERT_EQUAL(far.num_gets, 0);
    tier_case_close_ticket(&c, ticket);
    case_close(&c);
    memory_tier_close(&tier_memory);
    memory_tier_close(&far);
}

static void bad_arguments_are_refused(void)
{
    struct runtime_case c;
    pkv_ticket ticket = {0};
    int32_t count = 0;
    struct pkv_tier_stats stats = {.size = sizeof stats};
    struct pkv_ticket_info info = {.size = sizeof info};
    prefix_open(&c, 8);
    const struct pkv_prompt prompt = prefix_prompt(&x, 4);
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_tier_prefetch(c.cache, NULL, &prompt, 4, 0, &ticket));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_tier_store(c.cache, NULL, &prompt, 0, &ticket));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_tier_poll(c.cache, NULL));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_tier_work(c.cache, 0, NULL));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_tier_flush(c.cache, 0, NULL));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_ticket_describe(c.cache, ticket, &info));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_ticket_close(c.cache, ticket));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_ticket_list(c.cache, 0, NULL, 0, &count));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_tier_read_stats(c.cache, 0, &stats));
    case_close(&c);
    memory_tier_open(&tier_memory, "memory");
    tier_case_open(&c, 8, &tier_memory.tier);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "ticket",
                   pkv_tier_prefetch(c.cache, NULL, &prompt, 4, 0, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "max_cached",
                   pkv_tier_prefetch(c.cache, NULL, &prompt, -1, 0, &ticket));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "tier = 1", pkv_tier_read_stats(c.cache, 1, &stats));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "count", pkv_ticket_list(c.cache, 0, NULL, 0, NULL));
    case_close(&c);
    pkv_tier *none[2] = {tier_memory.tier, NULL};
    prefix_init(&c);
    c.config.tiers = none;
    c.config.num_tiers = 2;
    pkv_cache *cache = NULL;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "tiers[1]", pkv_cache_create(&c.config, &cache));
    c.config.num_tiers = 5;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "num_tiers = 5", pkv_cache_create(&c.config, &cache));
    c.config.num_tiers = 1;
    c.config.num_tier_threads = 65;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "num_tier_threads", pkv_cache_create(&c.config, &cache));
    c.config.num_tier_threads = 0;
    c.config.prefix_cache = false;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "prefix_cache", pkv_cache_create(&c.config, &cache));
    CU_ASSERT_PTR_NULL(cache);
    memory_tier_close(&tier_memory);
}

static void threads_of_the_cache_do_the_work_and_end_with_it(void)
{
    struct runtime_case c;
    memory_tier_open(&tier_memory, "memory");
    for (int turn = 0; turn < 2; turn++) {
        prefix_init(&c);
        c.config.tiers = &tier_memory.tier;
        c.config.num_tiers = 1;
        c.config.num_tier_threads = 2;
        c.config.max_store_blocks = 16;
        case_open(&c);
        if (turn == 0) {
            prefix_warm(&c, &x, 100, 41);
            int32_t num_left = -1;
            ASSERT_STATUS(PKV_OK, pkv_tier_flush(c.cache, UINT64_MAX, &num_left));
            CU_ASSERT_EQUAL(num_left, 0);
        } else {
            ASSERT_STATUS(PKV_OK, prefix_create(&c, &y, 100, NULL));
            const pkv_ticket ticket = tier_case_prefetch(&c, &y, 41);
            CU_ASSERT_EQUAL(tier_case_wait(&c, ticket).num_cached, 40);
            ASSERT_STATUS(PKV_OK, prefix_admit(&c, &y, 41, 0, NULL));
            prefix_append(&c, &y, 1);
            tier_case_close_ticket(&c, ticket);
        }
        case_close(&c);
    }
    memory_tier_close(&tier_memory);
}

/* 20 blocks are more than one piece of work: the tier lets neither reader go on without the other.
 */
static void one_prefetch_is_read_by_several_threads(void)
{
    struct runtime_case c;
    memory_tier_open(&tier_memory, "memory");
    for (int turn = 0; turn < 2; turn++) {
        prefix_init(&c);
        c.groups[0].block_size = 2;
        c.groups[0].num_blocks = 32;
        c.config.tiers = &tier_memory.tier;
        c.config.num_tiers = 1;
        c.config.num_tier_threads = 2;
        c.config.max_store_blocks = 32;
        case_open(&c);
        if (turn == 0) {
            prefix_warm(&c, &x, 100, 41);
            ASSERT_STATUS(PKV_OK, pkv_tier_flush(c.cache, UINT64_MAX, NULL));
            tier_memory.gets_meet = true;
        } else {
            ASSERT_STATUS(PKV_OK, prefix_create(&c, &y, 100, NULL));
            const pkv_ticket ticket = tier_case_prefetch(&c, &y, 41);
            const struct pkv_ticket_info info = tier_case_wait(&c, ticket);
            CU_ASSERT_EQUAL(info.status, PKV_OK);
            CU_ASSERT_EQUAL(info.num_loaded, 40);
            CU_ASSERT_FALSE(tier_memory.waited_in_vain);
            ASSERT_STATUS(PKV_OK, prefix_admit(&c, &y, 41, 0, NULL));
            prefix_append(&c, &y, 1);
            tier_case_close_ticket(&c, ticket);
        }
        case_close(&c);
    }
    memory_tier_close(&tier_memory);
}

static void a_closed_cache_still_stores_and_takes_no_tickets(void)
{
    struct runtime_case c;
    pkv_ticket ticket = {0};
    memory_tier_open(&tier_memory, "memory");
    tier_case_open(&c, 16, &tier_memory.tier);
    prefix_warm(&c, &x, 100, 13);
    pkv_cache_close(c.cache);
    const struct pkv_prompt prompt = prefix_prompt(&x, 13);
    ASSERT_STATUS(PKV_BUSY, pkv_tier_prefetch(c.cache, NULL, &prompt, 13, 0, &ticket));
    ASSERT_STATUS(PKV_BUSY, pkv_tier_store(c.cache, NULL, &prompt, 0, &ticket));
    ASSERT_STATUS(PKV_OK, pkv_tier_work(c.cache, UINT64_MAX, NULL));
    ASSERT_STATUS(PKV_BUSY, pkv_tier_work(c.cache, UINT64_MAX, NULL));
    ASSERT_STATUS(PKV_OK, pkv_tier_flush(c.cache, 0, NULL));
    CU_ASSERT_EQUAL(tier_memory.num_values, 3);
    case_close(&c);
    memory_tier_close(&tier_memory);
}

/* The next event is of this kind and reason, of block `depth` of a prompt, and says where it is. */
static void expect_event(struct runtime_case *c, enum pkv_event_kind kind,
                         enum pkv_event_reason reason, int32_t depth, uint64_t groups,
                         uint64_t num_tiers)
{
    struct pkv_event event = {0};
    int32_t count = 0;
    ASSERT_STATUS(PKV_OK, pkv_events_drain(c->cache, &event, sizeof event, 1, &count, NULL));
    CU_ASSERT_EQUAL_FATAL(count, 1);
    CU_ASSERT_EQUAL(event.kind, kind);
    CU_ASSERT_EQUAL(event.reason, reason);
    CU_ASSERT_EQUAL(event.depth, depth);
    CU_ASSERT_EQUAL(event.groups, groups);
    CU_ASSERT_EQUAL(event.tiers, num_tiers);
}

static void events_tell_what_goes_to_tiers_and_comes_from_them(void)
{
    struct runtime_case c;
    memory_tier_open(&tier_memory, "memory");
    tier_case_open(&c, 2, &tier_memory.tier);
    prefix_warm(&c, &x, 100, 8);
    expect_event(&c, PKV_EVENT_STORED, PKV_REASON_COMMIT, 0, 1, 0);
    expect_event(&c, PKV_EVENT_STORED, PKV_REASON_COMMIT, 1, 1, 0);
    tier_case_work_and_poll(&c);
    expect_event(&c, PKV_EVENT_OFFLOADED, PKV_REASON_STORE, 1, 1, 1);
    expect_event(&c, PKV_EVENT_OFFLOADED, PKV_REASON_STORE, 0, 1, 1);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &y, 900, NULL));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &y, 3, 0, NULL));
    prefix_append(&c, &y, 3);
    expect_event(&c, PKV_EVENT_REMOVED, PKV_REASON_DEMOTED, 1, 0, 1);
    prefix_destroy(&c, &y);
    const pkv_ticket ticket = tier_case_prefetch(&c, &x, 9);
    CU_ASSERT_EQUAL(tier_case_wait(&c, ticket).num_loaded, 4);
    expect_event(&c, PKV_EVENT_ONBOARDED, PKV_REASON_PREFETCH, 1, 1, 1);
    tier_case_close_ticket(&c, ticket);
    case_close(&c);
    memory_tier_close(&tier_memory);
}

/* Of a hit, what was computed here came from no tier. */
static void an_admission_tells_which_tier_its_hit_came_from(void)
{
    static struct memory_tier far;
    struct runtime_case c;
    struct pkv_admission admission = {.size = sizeof admission};
    memory_tier_open(&tier_memory, "near");
    memory_tier_open(&far, "far");
    pkv_tier *const tiers[2] = {tier_memory.tier, far.tier};
    tier_case_open(&c, 16, &far.tier);
    prefix_warm(&c, &x, 100, 17);
    tier_case_work_and_poll(&c);
    case_close(&c);
    open_two(&c, tiers);
    prefix_warm(&c, &x, 100, 4);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &y, 100, NULL));
    const pkv_ticket ticket = tier_case_prefetch(&c, &y, 13);
    CU_ASSERT_EQUAL(tier_case_wait(&c, ticket).num_cached, 12);
    const struct pkv_prompt prompt = prefix_prompt(&y, 13);
    ASSERT_STATUS(PKV_OK, pkv_seq_admit(c.cache, y.seq.handle, &prompt, 0, 13, &admission, NULL));
    CU_ASSERT_EQUAL(admission.num_cached, 12);
    CU_ASSERT_EQUAL(admission.tier_cached[0], 0);
    CU_ASSERT_EQUAL(admission.tier_cached[1], 8);
    tier_case_close_ticket(&c, ticket);
    case_close(&c);
    memory_tier_close(&tier_memory);
    memory_tier_close(&far);
}

/* Entries of a ticket's rows are counted in int32_t. */
static void more_entries_than_can_be_counted_are_refused_at_create(void)
{
    struct runtime_case c;
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    memory_tier_open(&tier_memory, "memory");
    prefix_init(&c);
    (void)case_add_group(&c);
    c.groups[0].block_size = c.groups[1].block_size = 1;
    c.config.max_seqs = 1;
    c.config.max_seq_len = 1 << 30;
    c.config.max_step_tokens = 1;
    (void)case_add_layer(&c, 1);
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &sizes));
    c.config.tiers = &tier_memory.tier;
    c.config.num_tiers = 1;
    c.config.max_tickets = 1;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "max_tickets = 1 of max_seq_len",
                   pkv_cache_size(&c.config, &sizes));
    c.config.max_seq_len /= 2;
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &sizes));
    memory_tier_close(&tier_memory);
}

static const struct test_case cases[] = {
    TEST(threads_of_the_cache_do_the_work_and_end_with_it),
    TEST(one_prefetch_is_read_by_several_threads),
    TEST(a_closed_cache_still_stores_and_takes_no_tickets),
    TEST(the_text_of_the_metrics_has_a_sample_for_each_tier),
    TEST(two_tiers_are_searched_in_order_and_the_nearer_one_is_filled),
    TEST(events_tell_what_goes_to_tiers_and_comes_from_them),
    TEST(an_admission_tells_which_tier_its_hit_came_from),
    TEST(more_entries_than_can_be_counted_are_refused_at_create),
    TEST(bad_arguments_are_refused),
    TEST_END,
};

const struct test_suite suite_runtime_tiers_life = {"runtime_tiers_life", cases};
