/* SPDX-License-Identifier: MIT
 *
 * Promises of the runtime that could once be broken without any test seeing it. Block size 4; a
 * sequence of base b holds tokens b, b + 1, ... */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "reuse_case.h"
#include "runtime/cache.h"

static struct prefix_seq a, b, d;

/* Writes a prompt's tokens onto a sequence by a step whose keys and values are all 0, with the
 * prompt's extras or without any. */
static void write_zeros(struct runtime_case *c, pkv_seq seq, const struct pkv_prompt *prompt)
{
    static const float zeros[2 * 16];
    float out[2 * 16];
    pkv_step step;
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .num_rows = 1,
                                    .num_required_rows = 1,
                                    .seqs = &seq,
                                    .q_lens = &prompt->num_tokens,
                                    .token_ids = prompt->token_ids,
                                    .token_extra = prompt->token_extra};
    const struct pkv_layer_io io = {
        .size = sizeof io, .q = zeros, .k = zeros, .v = zeros, .out = out};
    ASSERT_STATUS(PKV_OK, pkv_step_begin(c->cache, &batch, &step, NULL));
    ASSERT_STATUS(PKV_OK, pkv_step_attend(c->cache, step, 0, &io));
    ASSERT_STATUS(PKV_OK, pkv_step_commit(c->cache, step, NULL));
}

/* What a prompt promised is not what the step brings: the block is found for what was computed. */
static void step_without_extras_after_a_prompt_with_them_is_found_without_them(void)
{
    for (int turned = 0; turned < 2; turned++) {
        struct runtime_case c;
        prefix_open(&c, 16);
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
        for (int32_t i = 0; i < 12; i++) {
            a.extra[i] = 70 + (uint64_t)i;
        }
        a.has_extra = turned == 0;
        ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 12, 0, NULL));
        a.has_extra = !a.has_extra;
        const struct pkv_prompt written = prefix_prompt(&a, 12);
        write_zeros(&c, a.seq.handle, &written);
        CU_ASSERT_EQUAL(prefix_hit(&c, &a, 12), 8);
        a.has_extra = !a.has_extra;
        CU_ASSERT_EQUAL(prefix_hit(&c, &a, 12), 0);
        prefix_destroy(&c, &a);
        case_close(&c);
    }
}

/* Row 0 takes 6 of 8 free blocks, 5 of which are cached: what is left for row 1 has 2. */
static void evictable_is_never_above_what_the_row_could_have(void)
{
    struct runtime_case c;
    prefix_open(&c, 8);
    prefix_warm(&c, &a, 0, 20);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 500, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &d, 700, NULL));
    struct case_step step = {0};
    case_row(&step, &b.seq, 24);
    case_row(&step, &d.seq, 12);
    ASSERT_STATUS(PKV_NO_BLOCKS, prefix_begin(&c, &step, 2));
    CU_ASSERT(step.shortage.row == 1 && step.shortage.group == 0);
    CU_ASSERT(step.shortage.need == 3 && step.shortage.free == 2 && step.shortage.evictable == 2);
    prefix_destroy(&c, &b);
    prefix_destroy(&c, &d);
    case_close(&c);
}

/* The window of a run of 40 tokens begins far along: what is behind it is not held, and what comes
 * is. Another sequence takes all that was not reserved. */
static void a_window_hit_far_along_reaches_its_end(void)
{
    struct runtime_case c;
    prefix_init(&c);
    c.groups[0].sliding_window = 8;
    c.groups[0].num_blocks = 16;
    c.config.max_step_tokens = 16;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    for (int32_t i = 0; i < 10; i++) {
        prefix_append(&c, &a, 4);
    }
    prefix_destroy(&c, &a);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, NULL));
    int32_t cached = 0;
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 44, 16, &cached));
    CU_ASSERT_EQUAL(cached, 40);
    const int64_t keep_all = 64;
    const struct pkv_seq_options options = {
        .size = sizeof options, .no_publish = true, .kept_prefix = &keep_all};
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &d, 5000, &options));
    while (d.seq.length < 60 && case_append(&c, &d.seq, 4) == PKV_OK) {
    }
    CU_ASSERT_EQUAL(case_free(&c, 0), 0);
    prefix_append(&c, &b, 16);
    prefix_append(&c, &b, 4);
    CU_ASSERT_EQUAL(case_length(&c, b.seq.handle), 60);
    prefix_destroy(&c, &b);
    prefix_destroy(&c, &d);
    case_close(&c);
}

/* Blocks that only pins hold keep a reset out; one that is forced ends the pins, so it meets
 * nothing that is held. */
static void reset_by_force_does_not_count_what_only_pins_held(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    prefix_warm(&c, &a, 0, 12);
    pkv_pin pin = {0};
    int32_t num_pinned = 0;
    ASSERT_STATUS(PKV_OK,
                  pkv_prefix_pin(c.cache, NULL, PROMPT(a.ids, 12), 0, 0, &pin, &num_pinned));
    CU_ASSERT_EQUAL(num_pinned, 12);
    struct pkv_flush_report report = {.size = sizeof report};
    ASSERT_STATUS(PKV_BUSY, pkv_cache_reset(c.cache, false, &report));
    CU_ASSERT(report.held == 3 && report.orphaned == 0 && report.removed == 0);
    ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, true, &report));
    CU_ASSERT(report.held == 0 && report.orphaned == 0 && report.removed == 3);
    CU_ASSERT_EQUAL(case_free(&c, 0), 16);
    case_close(&c);
}

enum { FLUSHED_BLOCKS = 512, FLUSHES = 1000 };

struct flusher {
    pkv_cache *cache;
    const struct pkv_namespace_field *field;
    struct pkv_flush_report report;
};

static void *flush_field(void *context)
{
    struct flusher *flusher = context;
    flusher->report = (struct pkv_flush_report){.size = sizeof flusher->report};
    ASSERT_STATUS(PKV_OK, pkv_namespace_flush(flusher->cache, flusher->field, &flusher->report));
    return NULL;
}

struct onlooker {
    pkv_cache *cache;
    struct pkv_group_usage usage;
    atomic_bool has_begun;
};

static void *look_on(void *context)
{
    struct onlooker *onlooker = context;
    onlooker->usage = (struct pkv_group_usage){.size = sizeof onlooker->usage};
    atomic_store(&onlooker->has_begun, true);
    ASSERT_STATUS(PKV_OK, pkv_cache_usage(onlooker->cache, 0, &onlooker->usage));
    return NULL;
}

static void wait_until_queued(pkv_cache *cache)
{
    while (pthread_mutex_trylock(&cache->gate) == 0) {
        pthread_mutex_unlock(&cache->gate);
        sched_yield();
    }
}

/* Cached blocks that an onlooker sees which waits for the mutex behind a flush, before that has it.
 */
static int32_t cached_behind_flush(pkv_cache *cache, struct flusher *flusher)
{
    const struct timespec soon = {.tv_nsec = 1000000};
    struct onlooker onlooker = {.cache = cache};
    pthread_t flushing, looking;
    pthread_mutex_lock(&cache->mutex);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&flushing, NULL, flush_field, flusher), 0);
    wait_until_queued(cache);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&looking, NULL, look_on, &onlooker), 0);
    while (!atomic_load(&onlooker.has_begun)) {
        sched_yield();
    }
    nanosleep(&soon, NULL); /* it waits for the gate by then, or this turn shows nothing */
    pthread_mutex_unlock(&cache->mutex);
    pthread_join(flushing, NULL);
    pthread_join(looking, NULL);
    return onlooker.usage.cached;
}

/* A sweep has the mutex for a slice at a time, and lets those go first who wait for it: they see it
 * half done. */
static void a_sweep_lets_others_in(void)
{
    struct runtime_case c;
    prefix_open(&c, FLUSHED_BLOCKS);
    const struct pkv_namespace_field ann = prefix_field_of(1, "ann", 0);
    const struct pkv_seq_options in_ann = {
        .size = sizeof in_ann, .namespace_fields = &ann, .num_namespace_fields = 1};
    struct flusher flusher = {.cache = c.cache, .field = &ann};
    bool has_seen_half = false;
    for (int i = 0; i < FLUSHES && !has_seen_half; i++) {
        for (int32_t block = 0; block < FLUSHED_BLOCKS; block += 16) {
            ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 100 * block, &in_ann));
            prefix_append(&c, &a, 64);
            prefix_destroy(&c, &a);
        }
        const int32_t cached = cached_behind_flush(c.cache, &flusher);
        has_seen_half = cached > 0 && cached < FLUSHED_BLOCKS;
        CU_ASSERT_EQUAL(flusher.report.removed, FLUSHED_BLOCKS);
    }
    CU_ASSERT(has_seen_half);
    case_close(&c);
}

/* Ids that no layer reads are refused: who brings them expects them to count. */
static void position_ids_without_a_layer_with_rope_refuse(void)
{
    static const int64_t positions[] = {0, 1};
    static const int32_t ids[] = {5, 6};
    struct runtime_case c;
    prefix_open(&c, 16);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    const pkv_seq seq = a.seq.handle;
    const int32_t q_len = 2;
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .num_rows = 1,
                                    .num_required_rows = 1,
                                    .seqs = &seq,
                                    .q_lens = &q_len,
                                    .token_ids = ids,
                                    .position_ids = positions};
    pkv_step step = {77};
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "position_ids",
                   pkv_step_begin(c.cache, &batch, &step, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "position_ids", pkv_step_fits(c.cache, &batch, NULL));
    CU_ASSERT_EQUAL(step.id, 77);
    prefix_append(&c, &a, 2);
    prefix_destroy(&c, &a);
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(step_without_extras_after_a_prompt_with_them_is_found_without_them),
    TEST(evictable_is_never_above_what_the_row_could_have),
    TEST(a_window_hit_far_along_reaches_its_end),
    TEST(reset_by_force_does_not_count_what_only_pins_held),
    TEST(a_sweep_lets_others_in),
    TEST(position_ids_without_a_layer_with_rope_refuse),
    TEST_END,
};
const struct test_suite suite_runtime_overlooked = {"runtime_overlooked", cases};
