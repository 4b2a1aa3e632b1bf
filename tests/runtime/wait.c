/* SPDX-License-Identifier: MIT
 *
 * Threads that wait for room: what wakes them, and what does not. Whether a thread has begun to
 * wait is read from the cache's list, under its mutex. Run it under the thread sanitiser too. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "reuse_case.h"
#include "runtime/cache.h"

#define MS 1000000u
#define CLIENTS 4
#define LIVES 200

struct request {
    pkv_cache *cache;
    pkv_seq seq;
    struct pkv_shortage shortage;
    uint64_t timeout_ns;
    enum pkv_status answer;
    pthread_t thread;
};

static const int32_t ids[64];
static struct prefix_seq a, b, d;

static void *wait_free(void *argument)
{
    struct request *request = argument;
    request->answer =
        pkv_wait_free(request->cache, request->seq, &request->shortage, request->timeout_ns);
    return NULL;
}

/* Waiting threads, and how many of them were woken. */
static int num_waiting(pkv_cache *cache, int *num_woken)
{
    int count = 0;
    *num_woken = 0;
    cache_lock(cache);
    for (const struct wait_record *waiter = cache->first_wait; waiter != NULL;
         waiter = waiter->next) {
        count++;
        *num_woken += waiter->is_woken;
    }
    cache_unlock(cache);
    return count;
}

/* A thread waits for the request, from before this returns on. */
static void start(struct request *request, int num_waiting_before)
{
    int num_woken;
    CU_ASSERT_EQUAL_FATAL(pthread_create(&request->thread, NULL, wait_free, request), 0);
    while (num_waiting(request->cache, &num_woken) == num_waiting_before) {
        sched_yield();
    }
}

static enum pkv_status finish(struct request *request)
{
    pthread_join(request->thread, NULL);
    return request->answer;
}

/* A sequence that lacks `need` blocks of 4 tokens. */
static struct request refused(struct runtime_case *c, struct prefix_seq *seq, int32_t need)
{
    struct request request = {.cache = c->cache, .timeout_ns = UINT64_MAX};
    struct pkv_admission admission = {.size = sizeof admission};
    request.seq = seq->seq.handle;
    request.shortage.size = sizeof request.shortage;
    ASSERT_STATUS(PKV_NO_BLOCKS, pkv_seq_admit(c->cache, request.seq, PROMPT(ids, 4 * need), 0, 0,
                                               &admission, &request.shortage));
    return request;
}

/* a holds 14 of 16 blocks; b and d are empty. */
static void open_crowded(struct runtime_case *c)
{
    prefix_init(c);
    case_open(c);
    ASSERT_STATUS(PKV_OK, prefix_create(c, &a, 100, NULL));
    prefix_append(c, &a, 14 * 4);
    ASSERT_STATUS(PKV_OK, prefix_create(c, &b, 1000, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(c, &d, 2000, NULL));
}

static void close_crowded(struct runtime_case *c)
{
    prefix_destroy(c, &b);
    prefix_destroy(c, &d);
    case_close(c);
}

/* K11: a thread that waits wakes when the blocks that it lacks are free, and not for fewer. */
static void those_that_find_room_wake_and_no_others(void)
{
    struct runtime_case c;
    int num_woken;
    open_crowded(&c);
    struct request small = refused(&c, &b, 4);
    struct request large = refused(&c, &d, 16);
    start(&small, 0);
    start(&large, 1);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 13 * 4));
    CU_ASSERT_EQUAL(num_waiting(c.cache, &num_woken), 2);
    CU_ASSERT_EQUAL(num_woken, 0); /* three are free */
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 12 * 4));
    ASSERT_STATUS(PKV_OK, finish(&small));
    CU_ASSERT_EQUAL(num_waiting(c.cache, &num_woken), 1);
    CU_ASSERT_EQUAL(num_woken, 0);
    prefix_destroy(&c, &a); /* its blocks stay cached, which are free ones */
    ASSERT_STATUS(PKV_OK, finish(&large));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &d, 16 * 4, 0, NULL));
    close_crowded(&c);
}

/* K11: closing the cache wakes who waits, and destroying the sequence that is waited for. */
static void close_and_destroy_wake(void)
{
    struct runtime_case c;
    open_crowded(&c);
    struct request of_b = refused(&c, &b, 4);
    struct request of_d = refused(&c, &d, 4);
    start(&of_b, 0);
    start(&of_d, 1);
    prefix_destroy(&c, &d);
    ASSERT_STATUS(PKV_STALE_HANDLE, finish(&of_d));
    pkv_cache_close(c.cache);
    ASSERT_STATUS(PKV_BUSY, finish(&of_b));
    ASSERT_REFUSED(PKV_BUSY, "closed",
                   pkv_wait_free(c.cache, b.seq.handle, &of_b.shortage, UINT64_MAX));
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* K11: what a quota refused is waited for too, until others of the field end or it is raised. */
static void a_quota_is_waited_for(void)
{
    const struct pkv_namespace_field field = prefix_field_of(1, "tenant", 0);
    const struct pkv_seq_options options = {
        .size = sizeof options, .namespace_fields = &field, .num_namespace_fields = 1};
    struct runtime_case c;
    prefix_open(&c, 16);
    ASSERT_STATUS(PKV_OK, pkv_namespace_quota(c.cache, &field, 6));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 100, &options));
    prefix_append(&c, &a, 5 * 4);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 1000, &options));
    for (int i = 0; i < 2; i++) {
        struct request request = refused(&c, &b, 3);
        CU_ASSERT(request.shortage.group == -1 && request.shortage.quota == 6);
        start(&request, 0);
        if (i == 0) {
            ASSERT_STATUS(PKV_OK, pkv_namespace_quota(c.cache, &field, 8));
            ASSERT_STATUS(PKV_OK, finish(&request));
            ASSERT_STATUS(PKV_OK, pkv_namespace_quota(c.cache, &field, 6));
        } else {
            prefix_destroy(&c, &a);
            ASSERT_STATUS(PKV_OK, finish(&request));
        }
    }
    ASSERT_STATUS(PKV_OK, pkv_namespace_quota(c.cache, &field, 2));
    const struct pkv_shortage shortage = {
        .size = sizeof shortage, .row = -1, .group = -1, .need = 3, .quota = 2};
    ASSERT_REFUSED(PKV_NEVER_FITS, "quota", pkv_wait_free(c.cache, b.seq.handle, &shortage, 0));
    ASSERT_STATUS(PKV_OK, pkv_namespace_quota(c.cache, &field, 0));
    ASSERT_STATUS(PKV_OK, pkv_wait_free(c.cache, b.seq.handle, &shortage, 0));
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* A wait of no time looks and answers; a longer one ends when it is over. */
static void a_wait_ends_with_its_time(void)
{
    struct runtime_case c;
    struct timespec before, after;
    open_crowded(&c);
    struct request request = refused(&c, &b, 4);
    ASSERT_REFUSED(PKV_NO_BLOCKS, "group 0",
                   pkv_wait_free(c.cache, request.seq, &request.shortage, 0));
    clock_gettime(CLOCK_MONOTONIC, &before);
    ASSERT_STATUS(PKV_NO_BLOCKS, pkv_wait_free(c.cache, request.seq, &request.shortage, 20 * MS));
    clock_gettime(CLOCK_MONOTONIC, &after);
    const int64_t ns =
        (after.tv_sec - before.tv_sec) * INT64_C(1000000000) + after.tv_nsec - before.tv_nsec;
    CU_ASSERT(ns >= 20 * MS);
    prefix_destroy(&c, &a);
    ASSERT_STATUS(PKV_OK, pkv_wait_free(c.cache, request.seq, &request.shortage, 0));
    CU_ASSERT_PTR_NULL(c.cache->first_wait);
    close_crowded(&c);
}

static void the_watermark_stays_out_of_reach(void)
{
    struct runtime_case c;
    prefix_init(&c);
    c.config.watermark_blocks = 2;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 100, NULL));
    prefix_append(&c, &a, 10 * 4);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 1000, NULL));
    const struct request request = refused(&c, &b, 6);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 9 * 4));
    ASSERT_STATUS(PKV_NO_BLOCKS, pkv_wait_free(c.cache, request.seq, &request.shortage, 0));
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 8 * 4));
    ASSERT_STATUS(PKV_OK, pkv_wait_free(c.cache, request.seq, &request.shortage, 0));
    struct pkv_shortage shortage = {.size = sizeof shortage, .row = -1, .need = 15};
    ASSERT_REFUSED(PKV_NEVER_FITS, "watermark", pkv_wait_free(c.cache, request.seq, &shortage, 0));
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

static void what_cannot_be_waited_for_refuses(void)
{
    struct runtime_case c;
    struct pkv_shortage good = {.size = sizeof good, .row = -1, .need = 1};
    const pkv_seq none = {0};
    case_init(&c);
    case_add_group(&c)->storage = PKV_STORAGE_CONTINUOUS;
    case_add_layer(&c, 1);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a.seq, NULL));
    const pkv_seq seq = a.seq.handle;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "cache", pkv_wait_free(NULL, seq, &good, 0));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "shortage", pkv_wait_free(c.cache, seq, NULL, 0));
    ASSERT_REFUSED(PKV_STALE_HANDLE, "stale", pkv_wait_free(c.cache, none, &good, 0));
    static const struct {
        const char *part;
        struct pkv_shortage shortage;
    } wrong[] = {
        {"row = 0", {.size = sizeof(struct pkv_shortage), .row = 0, .need = 1}},
        {"group = 1", {.size = sizeof(struct pkv_shortage), .row = -1, .group = 1, .need = 1}},
        {"group = 2", {.size = sizeof(struct pkv_shortage), .row = -1, .group = 2, .need = 1}},
        {"group = -2", {.size = sizeof(struct pkv_shortage), .row = -1, .group = -2, .need = 1}},
        {"neither", {.size = sizeof(struct pkv_shortage), .row = -1, .group = -1, .need = 1}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ASSERT_REFUSED(PKV_INVALID_ARGUMENT, wrong[i].part,
                       pkv_wait_free(c.cache, seq, &wrong[i].shortage, 0));
    }
    ASSERT_STATUS(PKV_OK, pkv_wait_free(c.cache, seq, &good, 0));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seq));
    case_close(&c);
}

struct client {
    pkv_cache *cache;
    long num_admitted;
    long num_refused;
    long num_faults;
    pthread_t thread;
};

/* Lives one after the other, of 9 of the 16 blocks, so that one is admitted at a time. */
static void *live(void *argument)
{
    struct client *client = argument;
    for (int i = 0; i < LIVES; i++) {
        struct pkv_admission admission = {.size = sizeof admission};
        struct pkv_shortage shortage = {.size = sizeof shortage};
        pkv_seq seq;
        enum pkv_status status = pkv_seq_create(client->cache, NULL, &seq);
        while (status == PKV_OK &&
               (status = pkv_seq_admit(client->cache, seq, PROMPT(ids, 36), 0, 0, &admission,
                                       &shortage)) == PKV_NO_BLOCKS) {
            client->num_refused++;
            status = pkv_wait_free(client->cache, seq, &shortage, UINT64_MAX);
        }
        client->num_admitted += status == PKV_OK;
        client->num_faults += status != PKV_OK;
        sched_yield();
        client->num_faults += pkv_seq_destroy(client->cache, seq) != PKV_OK;
    }
    return NULL;
}

/* K11: clients that wait ask no more often than blocks come free, and none waits for ever. */
static void clients_ask_no_more_often_than_blocks_come_free(void)
{
    struct runtime_case c;
    struct client clients[CLIENTS];
    long num_refused = 0;
    case_init(&c);
    case_open(&c);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.cache = c.cache};
        CU_ASSERT_EQUAL_FATAL(pthread_create(&clients[i].thread, NULL, live, &clients[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        CU_ASSERT_EQUAL(clients[i].num_admitted, LIVES);
        CU_ASSERT_EQUAL(clients[i].num_faults, 0);
        num_refused += clients[i].num_refused;
    }
    /* Each life that ends lets every other client ask once, and each asks once when it comes. */
    CU_ASSERT(num_refused <= (long)CLIENTS * LIVES * CLIENTS);
    CU_ASSERT_PTR_NULL(c.cache->first_wait);
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(those_that_find_room_wake_and_no_others),
    TEST(close_and_destroy_wake),
    TEST(a_quota_is_waited_for),
    TEST(a_wait_ends_with_its_time),
    TEST(the_watermark_stays_out_of_reach),
    TEST(what_cannot_be_waited_for_refuses),
    TEST(clients_ask_no_more_often_than_blocks_come_free),
    TEST_END,
};
const struct test_suite suite_runtime_wait = {"runtime_wait", cases};
