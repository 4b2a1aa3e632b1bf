/* SPDX-License-Identifier: MIT
 *
 * Tiers that refuse, lose and come back, beside threads that work: what is known of a tier follows
 * what it answered, and threads neither spin nor wait for what nobody does. */
#include <string.h>

#include "base/deadline.h"
#include "reuse_case.h"
#include "support/memory_tier.h"

static struct memory_tier memory;
static struct prefix_seq x, y;

static void open_case(struct runtime_case *c, int32_t num_blocks, int32_t num_threads)
{
    prefix_init(c);
    c->groups[0].num_blocks = num_blocks;
    c->config.tiers = &memory.tier;
    c->config.num_tiers = 1;
    c->config.num_tier_threads = num_threads;
    c->config.max_store_blocks = num_blocks;
    case_open(c);
}

static void flush_all(struct runtime_case *c, enum pkv_status expected)
{
    int32_t num_left = -1;
    ASSERT_STATUS(expected, pkv_tier_flush(c->cache, 50000000, &num_left));
    CU_ASSERT_EQUAL(num_left == 0, expected == PKV_OK);
    CU_ASSERT_EQUAL(case_check(c), 0);
}

static struct pkv_ticket_info prefetch(struct runtime_case *c, const struct prefix_seq *seq,
                                       int32_t num_tokens)
{
    pkv_ticket ticket = {0};
    struct pkv_ticket_info info = {.size = sizeof info};
    const struct pkv_prompt prompt = prefix_prompt(seq, num_tokens);
    ASSERT_STATUS(PKV_OK, pkv_tier_prefetch(c->cache, NULL, &prompt, num_tokens, 0, &ticket));
    ASSERT_STATUS(PKV_OK, pkv_ticket_wait(c->cache, ticket, UINT64_MAX, &info));
    ASSERT_STATUS(PKV_OK, pkv_ticket_close(c->cache, ticket));
    CU_ASSERT_EQUAL(case_check(c), 0);
    return info;
}

static int32_t num_counts(void)
{
    pthread_mutex_lock(&memory.mutex);
    const int32_t num = memory.num_counts;
    pthread_mutex_unlock(&memory.mutex);
    return num;
}

/* A tier that refuses a flush is asked a few times a second, not as fast as threads can. */
static void a_flush_that_is_refused_is_not_tried_in_a_loop(void)
{
    struct runtime_case c;
    memory_tier_open(&memory, "memory");
    open_case(&c, 8, 3);
    pthread_mutex_lock(&memory.mutex);
    memory.is_down = true;
    pthread_mutex_unlock(&memory.mutex);
    ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, true, NULL));
    const struct timespec begin = deadline_now();
    const struct deadline patience = deadline_in(UINT64_C(60) * DEADLINE_NS);
    for (int i = 0; i < 16 || (num_counts() < 2 && !deadline_is_over(&patience)); i++) {
        flush_all(&c, PKV_BUSY); /* waits 50 ms, and wakes nobody sooner */
    }
    const struct timespec end = deadline_now();
    CU_ASSERT_TRUE(num_counts() >= 2);
    CU_ASSERT_TRUE(num_counts() <= 12 * (end.tv_sec - begin.tv_sec + 1));
    pthread_mutex_lock(&memory.mutex);
    memory.is_down = false;
    pthread_mutex_unlock(&memory.mutex);
    ASSERT_STATUS(PKV_OK, pkv_tier_flush(c.cache, UINT64_MAX, NULL));
    case_close(&c);
    memory_tier_close(&memory);
}

/* The loop that offload.h shows ends behind a close, also when a tier has refused a flush. */
static void a_thread_of_the_callers_ends_though_a_flush_is_refused(void)
{
    struct runtime_case c;
    memory_tier_open(&memory, "memory");
    open_case(&c, 8, 0);
    memory.is_down = true;
    ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, true, NULL));
    pkv_cache_close(c.cache);
    int num_calls = 0;
    while (num_calls < 100 && pkv_tier_work(c.cache, UINT64_MAX, NULL) == PKV_OK) {
        num_calls++;
    }
    CU_ASSERT_EQUAL(num_calls, 1);
    flush_all(&c, PKV_BUSY);
    memory.is_down = false;
    ASSERT_STATUS(PKV_OK, pkv_tier_flush(c.cache, UINT64_MAX, NULL));
    case_close(&c);
    memory_tier_close(&memory);
}

static void *work_until_closed(void *context)
{
    struct runtime_case *c = context;
    while (pkv_tier_work(c->cache, UINT64_MAX, NULL) == PKV_OK) {
    }
    return NULL;
}

/* Several of them, some in a transfer and some waiting, with stores and a refused flush left. */
static void all_threads_of_the_callers_end_behind_a_close(void)
{
    enum { NUM_THREADS = 4 };
    struct runtime_case c;
    for (int round = 0; round < 30; round++) {
        pthread_t threads[NUM_THREADS];
        memory_tier_open(&memory, "memory");
        open_case(&c, 16, 0);
        for (int i = 0; i < NUM_THREADS; i++) {
            CU_ASSERT_EQUAL(pthread_create(&threads[i], NULL, work_until_closed, &c), 0);
        }
        prefix_warm(&c, &x, 100, 29);
        if (round % 2 == 1) {
            pthread_mutex_lock(&memory.mutex);
            memory.is_down = true;
            pthread_mutex_unlock(&memory.mutex);
            ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, true, NULL));
        }
        pkv_cache_close(c.cache);
        for (int i = 0; i < NUM_THREADS; i++) {
            pthread_join(threads[i], NULL);
        }
        memory.is_down = false;
        ASSERT_STATUS(PKV_OK, pkv_tier_flush(c.cache, UINT64_MAX, NULL));
        CU_ASSERT_EQUAL(memory.num_values, round % 2 == 1 ? memory.num_values : 7);
        case_close(&c);
        memory_tier_close(&memory);
    }
}

/* What a tier has evicted is stored again when it is computed again. */
static void what_a_tier_has_lost_is_stored_again(void)
{
    struct runtime_case c;
    memory_tier_open(&memory, "memory");
    open_case(&c, 16, 0);
    prefix_warm(&c, &x, 100, 14);
    flush_all(&c, PKV_OK);
    CU_ASSERT_EQUAL(memory.num_values, 3);
    prefix_warm(&c, &y, 900, 61); /* takes the place of the first */
    flush_all(&c, PKV_OK);
    memory_tier_clear(&memory);
    x.options = (struct pkv_seq_options){.size = sizeof x.options};
    CU_ASSERT_EQUAL(prefetch(&c, &x, 14).num_cached, 0);
    prefix_warm(&c, &x, 100, 14);
    flush_all(&c, PKV_OK);
    CU_ASSERT_EQUAL(memory.num_values, 3);
    case_close(&c);
    memory_tier_close(&memory);
}

/* J2: a value that was damaged is removed, and stored again when it was computed again. */
static void what_was_damaged_is_stored_again(void)
{
    struct runtime_case c;
    memory_tier_open(&memory, "memory");
    open_case(&c, 16, 0);
    prefix_warm(&c, &x, 100, 14);
    flush_all(&c, PKV_OK);
    prefix_warm(&c, &y, 900, 61);
    flush_all(&c, PKV_OK);
    const int32_t num_values = memory.num_values;
    for (int32_t i = 0; i < 3; i++) {
        memory.values[i].bytes[memory.values[i].length - 1] ^= 1;
    }
    const struct pkv_ticket_info info = prefetch(&c, &x, 14);
    CU_ASSERT_EQUAL(info.status, PKV_CORRUPT);
    CU_ASSERT_EQUAL(info.num_cached, 0);
    CU_ASSERT_EQUAL(memory.num_values, num_values - 3);
    prefix_warm(&c, &x, 100, 14);
    flush_all(&c, PKV_OK);
    CU_ASSERT_EQUAL(memory.num_values, num_values);
    case_close(&c);
    memory_tier_close(&memory);
}

/* config.no_write_behind: nothing is stored that pkv_tier_store does not name, in a second tier
 * neither. */
static void what_was_prefetched_is_not_stored_unasked(void)
{
    static struct memory_tier second;
    struct runtime_case c;
    memory_tier_open(&memory, "memory");
    memory_tier_open(&second, "second");
    open_case(&c, 16, 0);
    prefix_warm(&c, &x, 100, 14);
    flush_all(&c, PKV_OK);
    case_close(&c);

    pkv_tier *const tiers[2] = {second.tier, memory.tier};
    for (int turn = 0; turn < 2; turn++) {
        prefix_init(&c);
        c.config.tiers = tiers;
        c.config.num_tiers = 2;
        c.config.max_store_blocks = 16;
        c.config.no_write_behind = turn == 0;
        case_open(&c);
        CU_ASSERT_EQUAL(prefetch(&c, &x, 14).num_loaded, 12);
        flush_all(&c, PKV_OK);
        CU_ASSERT_EQUAL(second.num_values, turn == 0 ? 0 : 3);
        case_close(&c);
    }
    memory_tier_close(&second);
    memory_tier_close(&memory);
}

/* A requested store of what already waits since its commit is done when that is stored, not
 * before. */
static void a_requested_store_waits_for_what_is_on_its_way(void)
{
    struct runtime_case c;
    pkv_ticket tickets[2] = {{0}};
    struct pkv_ticket_info info = {.size = sizeof info};
    for (int num_worked = 0; num_worked < 2; num_worked++) {
        memory_tier_open(&memory, "memory");
        open_case(&c, 16, 0);
        prefix_warm(&c, &x, 100, 14);
        for (int i = 0; i < num_worked; i++) { /* stored, and no poll has let it take effect */
            ASSERT_STATUS(PKV_OK, pkv_tier_work(c.cache, 0, NULL));
        }
        const struct pkv_prompt prompt = prefix_prompt(&x, 14);
        ASSERT_STATUS(PKV_OK, pkv_tier_store(c.cache, NULL, &prompt, 0, &tickets[0]));
        ASSERT_STATUS(PKV_OK, pkv_tier_store(c.cache, NULL, &prompt, 0, &tickets[1]));
        CU_ASSERT_EQUAL(case_check(&c), 0);
        ASSERT_STATUS(PKV_OK, pkv_ticket_describe(c.cache, tickets[0], &info));
        CU_ASSERT_EQUAL(info.state, num_worked == 0 ? PKV_TICKET_STORING : PKV_TICKET_DONE);
        CU_ASSERT_EQUAL(info.num_left, num_worked == 0 ? 3 : 0);
        ASSERT_STATUS(PKV_OK, pkv_ticket_wait(c.cache, tickets[0], UINT64_MAX, &info));
        CU_ASSERT_EQUAL(info.num_stored, 3);
        CU_ASSERT_EQUAL(info.status, PKV_OK);
        CU_ASSERT_EQUAL(memory.num_values, 3);
        for (int i = 0; i < 2; i++) {
            ASSERT_STATUS(PKV_OK, pkv_ticket_close(c.cache, tickets[i]));
        }
        flush_all(&c, PKV_OK);
        CU_ASSERT_EQUAL(memory.num_puts, 3);
        case_close(&c);
        memory_tier_close(&memory);
    }
}

/* What was stored before a flush is not known to be there behind it, also when the store takes
 * effect only then: what is computed again is stored again. */
static void a_store_that_a_flush_made_void_is_not_known(void)
{
    struct runtime_case c;
    memory_tier_open(&memory, "memory");
    open_case(&c, 16, 0);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &x, 100, NULL));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &x, 14, 0, NULL));
    prefix_append(&c, &x, 14); /* it lives on, and holds its nodes */
    ASSERT_STATUS(PKV_OK, pkv_tier_work(c.cache, 0, NULL));
    CU_ASSERT_EQUAL(memory.num_puts, 3);
    ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, true, NULL));
    flush_all(&c, PKV_OK);
    prefix_warm(&c, &y, 100, 14);
    flush_all(&c, PKV_OK);
    CU_ASSERT_EQUAL(memory.num_puts, 6);
    prefix_destroy(&c, &x);
    case_close(&c);
    memory_tier_close(&memory);
}

static const struct test_case cases[] = {
    TEST(a_requested_store_waits_for_what_is_on_its_way),
    TEST(a_store_that_a_flush_made_void_is_not_known),
    TEST(a_flush_that_is_refused_is_not_tried_in_a_loop),
    TEST(a_thread_of_the_callers_ends_though_a_flush_is_refused),
    TEST(all_threads_of_the_callers_end_behind_a_close),
    TEST(what_a_tier_has_lost_is_stored_again),
    TEST(what_was_damaged_is_stored_again),
    TEST(what_was_prefetched_is_not_stored_unasked),
    TEST_END,
};

const struct test_suite suite_runtime_tiers_races = {"runtime_tiers_races", cases};
