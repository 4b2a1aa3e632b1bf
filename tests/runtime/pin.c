/* SPDX-License-Identifier: MIT
 *
 * Pins, flush, reset, events, counters, and what tools see. Block size 4. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prefix/prefix_flush.h"
#include "reuse_case.h"
#include "runtime/cache.h"

static struct prefix_seq a, b, d;

static void press(struct runtime_case *c, struct prefix_seq *seq, int32_t num_blocks)
{
    const struct pkv_seq_options options = {.size = sizeof options, .no_publish = true};
    ASSERT_STATUS(PKV_OK, prefix_create(c, seq, 900000, &options));
    prefix_append(c, seq, 4 * num_blocks);
}

static int32_t pin(struct runtime_case *c, int32_t num_tokens, uint64_t ttl, uint64_t now,
                   pkv_pin *handle)
{
    static struct prefix_seq seq;
    int32_t num_pinned = -1;
    for (int32_t i = 0; i < num_tokens; i++) {
        seq.ids[i] = i;
    }
    ASSERT_STATUS(PKV_OK, pkv_prefix_pin(c->cache, NULL, PROMPT(seq.ids, num_tokens), ttl, now,
                                         handle, &num_pinned));
    CU_ASSERT_EQUAL(case_check(c), 0);
    return num_pinned;
}

static int32_t pinned(struct runtime_case *c)
{
    struct pkv_group_usage usage = {.size = sizeof usage};
    ASSERT_STATUS(PKV_OK, pkv_cache_usage(c->cache, 0, &usage));
    CU_ASSERT(usage.cached <= usage.free && usage.pinned <= usage.held);
    return usage.pinned;
}

static void pinned_run_is_not_evicted(void)
{
    struct runtime_case c;
    prefix_open(&c, 8);
    prefix_warm(&c, &a, 0, 12);
    pkv_pin first = {0}, second = {0};
    CU_ASSERT_EQUAL(pin(&c, 9, 0, 0, &first), 8);
    CU_ASSERT_EQUAL(pin(&c, 4, 0, 0, &second), 4);
    CU_ASSERT_EQUAL(pinned(&c), 2);
    press(&c, &b, 6);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 13), 8);
    struct case_step step = {0};
    case_row(&step, &b.seq, 1);
    ASSERT_STATUS(PKV_NO_BLOCKS, prefix_begin(&c, &step, 1));
    ASSERT_STATUS(PKV_OK, pkv_prefix_unpin(c.cache, first));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_prefix_unpin(c.cache, first));
    CU_ASSERT_EQUAL(pinned(&c), 1);
    prefix_append(&c, &b, 1);
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 13), 4);
    ASSERT_STATUS(PKV_OK, pkv_prefix_unpin(c.cache, second));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_prefix_unpin(c.cache, (pkv_pin){0}));
    CU_ASSERT_EQUAL(pinned(&c), 0);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

static void pins_end_by_the_callers_clock(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    prefix_warm(&c, &a, 0, 12);
    pkv_pin early = {0}, late = {0}, never = {0};
    CU_ASSERT_EQUAL(pin(&c, 12, 100, 1000, &early), 12);
    CU_ASSERT_EQUAL(pin(&c, 8, 500, 1000, &late), 8);
    CU_ASSERT_EQUAL(pin(&c, 4, 0, 1000, &never), 4);
    int32_t ended = -1;
    ASSERT_STATUS(PKV_OK, pkv_prefix_expire(c.cache, 1099, &ended));
    CU_ASSERT_EQUAL(ended, 0);
    CU_ASSERT_EQUAL(pinned(&c), 3);
    const struct pkv_batch batch = {.size = sizeof batch, .now_ns = 1100};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    ASSERT_STATUS(PKV_OK, pkv_step_fits(c.cache, &batch, &shortage));
    CU_ASSERT_EQUAL(pinned(&c), 2);
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_prefix_unpin(c.cache, early));
    ASSERT_STATUS(PKV_OK, pkv_prefix_expire(c.cache, 5000, &ended));
    CU_ASSERT_EQUAL(ended, 1);
    CU_ASSERT_EQUAL(pinned(&c), 1);
    ASSERT_STATUS(PKV_OK, pkv_prefix_expire(c.cache, UINT64_MAX, NULL));
    CU_ASSERT_EQUAL(pinned(&c), 0);
    CU_ASSERT_EQUAL(prefix_stats(&c).expired_pins, 3);
    case_close(&c);
}

/* --- refresh */

/* Three blocks of `a`, cached and not held. */
static void open_cached(struct runtime_case *c)
{
    prefix_init(c);
    case_open(c);
    prefix_run(c, &a, 0, 12);
    prefix_destroy(c, &a);
}

static int32_t expire(struct runtime_case *c, uint64_t now)
{
    int32_t ended = -1;
    ASSERT_STATUS(PKV_OK, pkv_prefix_expire(c->cache, now, &ended));
    CU_ASSERT_EQUAL(case_check(c), 0);
    return ended;
}

static void refresh_moves_the_end_either_way(void)
{
    struct runtime_case c;
    pkv_pin one = {0}, two = {0};
    open_cached(&c);
    CU_ASSERT_EQUAL(pin(&c, 4, 100, 1000, &one), 4);
    CU_ASSERT_EQUAL(pin(&c, 8, 5000, 1000, &two), 8);
    ASSERT_STATUS(PKV_OK, pkv_prefix_refresh(c.cache, one, 100, 1050)); /* later */
    CU_ASSERT_EQUAL(expire(&c, 1149), 0);
    CU_ASSERT_EQUAL(expire(&c, 1150), 1);
    CU_ASSERT_EQUAL(pinned(&c), 2);
    ASSERT_STATUS(PKV_OK, pkv_prefix_refresh(c.cache, two, 50, 1200)); /* earlier */
    CU_ASSERT_EQUAL(expire(&c, 1249), 0);
    CU_ASSERT_EQUAL(expire(&c, 1250), 1);
    CU_ASSERT_EQUAL(pinned(&c), 0);
    CU_ASSERT_EQUAL(prefix_stats(&c).expired_pins, 2);
    case_close(&c);
}

/* Of several, the one refreshed may be the soonest, before or after. */
static void refresh_moves_no_other_pin(void)
{
    struct runtime_case c;
    pkv_pin pins[3] = {{0}};
    open_cached(&c);
    for (uint64_t i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(pin(&c, 12, 100 * (i + 1), 1000, &pins[i]), 12);
    }
    ASSERT_STATUS(PKV_OK, pkv_prefix_refresh(c.cache, pins[0], 250, 1000));
    CU_ASSERT_EQUAL(expire(&c, 1199), 0);
    CU_ASSERT_EQUAL(expire(&c, 1200), 1);
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_prefix_unpin(c.cache, pins[1]));
    ASSERT_STATUS(PKV_OK, pkv_prefix_refresh(c.cache, pins[2], 20, 1200));
    CU_ASSERT_EQUAL(expire(&c, 1220), 1);
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_prefix_unpin(c.cache, pins[2]));
    CU_ASSERT_EQUAL(expire(&c, 1249), 0);
    CU_ASSERT_EQUAL(expire(&c, 1250), 1);
    case_close(&c);
}

static void refresh_without_a_time_to_live_pins_for_good(void)
{
    struct runtime_case c;
    pkv_pin one = {0}, two = {0}, three = {0};
    open_cached(&c);
    CU_ASSERT_EQUAL(pin(&c, 4, 100, 1000, &one), 4);
    CU_ASSERT_EQUAL(pin(&c, 8, 100, 1000, &two), 8);
    CU_ASSERT_EQUAL(pin(&c, 12, 100, 1000, &three), 12);
    ASSERT_STATUS(PKV_OK, pkv_prefix_refresh(c.cache, one, 0, 1000));
    ASSERT_STATUS(PKV_OK, pkv_prefix_refresh(c.cache, two, UINT64_MAX - 1000, 1000)); /* no time */
    ASSERT_STATUS(PKV_OK, pkv_prefix_refresh(c.cache, three, UINT64_MAX - 1001, 1000));
    CU_ASSERT_EQUAL(expire(&c, UINT64_MAX - 2), 0);
    CU_ASSERT_EQUAL(expire(&c, UINT64_MAX - 1), 1);
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_prefix_unpin(c.cache, three));
    ASSERT_STATUS(PKV_OK, pkv_prefix_refresh(c.cache, two, UINT64_MAX, UINT64_MAX - 1));
    CU_ASSERT_EQUAL(expire(&c, UINT64_MAX - 1), 0);
    ASSERT_STATUS(PKV_OK, pkv_prefix_unpin(c.cache, one));
    ASSERT_STATUS(PKV_OK, pkv_prefix_refresh(c.cache, two, 7, 0)); /* from for good to a time */
    CU_ASSERT_EQUAL(expire(&c, 6), 0);
    CU_ASSERT_EQUAL(expire(&c, 7), 1);
    case_close(&c);
}

static void refresh_comes_too_late_for_a_pin_whose_time_is_up(void)
{
    struct runtime_case c;
    pkv_pin one = {0}, two = {0}, last = {0};
    open_cached(&c);
    CU_ASSERT_EQUAL(pin(&c, 12, 100, 1000, &one), 12);
    CU_ASSERT_EQUAL(pin(&c, 8, 200, 1000, &two), 8);
    CU_ASSERT_EQUAL(pin(&c, 4, 300, 1000, &last), 4);
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_prefix_refresh(c.cache, one, 500, 1100));
    CU_ASSERT_EQUAL(pinned(&c), 2);
    CU_ASSERT_EQUAL(prefix_stats(&c).num_pins, 2);
    ASSERT_STATUS(PKV_OK, pkv_prefix_refresh(c.cache, last, 100, 1250)); /* two ends first */
    CU_ASSERT_EQUAL(pinned(&c), 1);
    CU_ASSERT_EQUAL(prefix_stats(&c).expired_pins, 2);
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_prefix_refresh(c.cache, last, 0, UINT64_MAX)); /* all end */
    CU_ASSERT_EQUAL(pinned(&c), 0);
    case_close(&c);
}

static void refresh_refuses_what_is_no_pin(void)
{
    struct runtime_case c, other;
    pkv_pin one = {0}, again = {0}, foreign[3] = {{0}};
    open_cached(&other);
    for (int32_t i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(pin(&other, 4, 0, 0, &foreign[i]), 4);
    }
    open_cached(&c);
    CU_ASSERT_EQUAL(pin(&c, 12, 100, 1000, &one), 12);
    ASSERT_STATUS(PKV_OK, pkv_prefix_unpin(c.cache, one));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_prefix_refresh(c.cache, one, 5, 1000));
    CU_ASSERT_EQUAL(pin(&c, 12, 100, 1000, &again), 12); /* in the same place */
    const uint64_t before = prefix_digest(&c);
    const pkv_pin bad[] = {{0}, one, foreign[0], foreign[2], {UINT64_MAX}, {again.id + 1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ASSERT_STATUS(PKV_STALE_HANDLE, pkv_prefix_refresh(c.cache, bad[i], 5, 1000));
    }
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_prefix_refresh(NULL, again, 5, 1000));
    CU_ASSERT_EQUAL(prefix_digest(&c), before);
    CU_ASSERT_EQUAL(expire(&c, 1099), 0);
    CU_ASSERT_EQUAL(expire(&c, 1100), 1);
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_prefix_refresh(c.cache, again, 5, 1100));
    for (int32_t i = 0; i < 3; i++) {
        ASSERT_STATUS(PKV_OK, pkv_prefix_unpin(other.cache, foreign[i]));
    }
    case_close(&c);
    case_close(&other);
}

static void cap_limits_what_is_pinned(void)
{
    struct runtime_case c;
    prefix_init(&c);
    c.config.max_pinned_blocks = 2;
    case_open(&c);
    prefix_run(&c, &a, 0, 16);
    pkv_pin pins[3] = {{0}};
    CU_ASSERT_EQUAL(pin(&c, 16, 0, 0, &pins[0]), 8);
    CU_ASSERT_EQUAL(pin(&c, 16, 0, 0, &pins[1]), 8);
    int32_t num_pinned = -1;
    ASSERT_STATUS(PKV_NO_BLOCKS,
                  pkv_prefix_pin(c.cache, NULL, PROMPT(a.ids, 8), 0, 0, &pins[2], &num_pinned));
    CU_ASSERT_EQUAL(num_pinned, -1);
    ASSERT_STATUS(PKV_OK, pkv_prefix_unpin(c.cache, pins[0]));
    CU_ASSERT_EQUAL(pin(&c, 3, 0, 0, &pins[2]), 0); /* no whole block */
    CU_ASSERT_EQUAL(pins[2].id, 0);
    ASSERT_STATUS(PKV_OK, pkv_prefix_unpin(c.cache, pins[1]));
    prefix_destroy(&c, &a);
    case_close(&c);
}

/* D9: a reset reports what is held and refuses, and with force it orphans that. */
static void reset_tells_and_force_orphans(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    prefix_run(&c, &a, 0, 10);
    prefix_warm(&c, &b, 500, 8);
    pkv_pin handle = {0};
    struct pkv_flush_report report = {.size = sizeof report};
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &d, 0, NULL));
    ASSERT_STATUS(PKV_BUSY, pkv_cache_reset(c.cache, false, &report));
    CU_ASSERT(report.held == 3 && report.orphaned == 0 && report.removed == 0);
    CU_ASSERT_EQUAL(prefix_hit(&c, &d, 9), 8);
    CU_ASSERT_EQUAL(pin(&c, 4, 0, 0, &handle), 4);
    ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, true, &report));
    CU_ASSERT(report.held == 3 && report.orphaned == 2 && report.removed == 2);
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_prefix_unpin(c.cache, handle));
    CU_ASSERT_EQUAL(prefix_hit(&c, &d, 9), 0);
    prefix_append(&c, &a, 6);
    CU_ASSERT_EQUAL(prefix_hit(&c, &d, 17), 0); /* a sequence from before publishes nothing */
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 5));
    prefix_append(&c, &a, 6);
    prefix_append(&c, &d, 8); /* so is this one */
    CU_ASSERT_EQUAL(prefix_hit(&c, &d, 17), 0);
    prefix_destroy(&c, &d);
    prefix_run(&c, &d, 0, 8);
    CU_ASSERT_EQUAL(prefix_hit(&c, &d, 17), 8);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &d);
    CU_ASSERT_EQUAL(case_free(&c, 0), 16);
    ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, false, NULL));
    case_close(&c);
}

static void flush_takes_one_field_alone(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    const struct pkv_namespace_field ann = prefix_field_of(1, "ann", 4);
    const struct pkv_namespace_field bob = prefix_field_of(1, "bob", 4);
    const struct pkv_seq_options in_ann = {
        .size = sizeof in_ann, .namespace_fields = &ann, .num_namespace_fields = 1};
    const struct pkv_seq_options in_bob = {
        .size = sizeof in_bob, .namespace_fields = &bob, .num_namespace_fields = 1};
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, &in_ann));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, &in_bob));
    prefix_append(&c, &a, 12);
    prefix_append(&c, &b, 12);
    CU_ASSERT_EQUAL(case_held(&c, 0), 5); /* the first block is one */
    pkv_pin handle = {0};
    int32_t num_pinned = 0;
    ASSERT_STATUS(PKV_OK,
                  pkv_prefix_pin(c.cache, &in_ann, PROMPT(a.ids, 12), 0, 0, &handle, &num_pinned));
    CU_ASSERT_EQUAL(num_pinned, 12);
    struct pkv_flush_report report = {.size = sizeof report};
    ASSERT_STATUS(PKV_OK, pkv_namespace_flush(c.cache, &ann, &report));
    CU_ASSERT(report.held == 5 && report.orphaned == 2 && report.removed == 0);
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_prefix_unpin(c.cache, handle));
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 13), 4);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 13), 12);
    prefix_append(&c, &a, 8);
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 21), 4);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 2));
    prefix_append(&c, &a, 4); /* before the field began it may publish: an equal block is there */
    prefix_destroy(&c, &a);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, &in_ann));
    prefix_append(&c, &a, 12);
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 13), 12);
    prefix_destroy(&c, &a);
    ASSERT_STATUS(PKV_OK, pkv_namespace_flush(c.cache, &ann, &report));
    CU_ASSERT(report.held == 3 && report.orphaned == 0 && report.removed == 2);
    prefix_destroy(&c, &b);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_namespace_flush(c.cache, NULL, &report));
    case_close(&c);
}

static int32_t drain(struct runtime_case *c, struct pkv_event *events, uint64_t *num_lost)
{
    int32_t count = -1;
    ASSERT_STATUS(
        PKV_OK, pkv_events_drain(c->cache, events, sizeof(struct pkv_event), 64, &count, num_lost));
    return count;
}

static void events_tell_in_order_what_happened(void)
{
    struct runtime_case c;
    struct pkv_event events[64];
    uint64_t lost = 99;
    prefix_open(&c, 4);
    prefix_run(&c, &a, 0, 12);
    CU_ASSERT_EQUAL(drain(&c, events, &lost), 3);
    CU_ASSERT_EQUAL(lost, 0);
    for (uint64_t i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(events[i].number, i + 1);
        CU_ASSERT_EQUAL(events[i].kind, PKV_EVENT_STORED);
        const struct pkv_block_key parent = i > 0 ? events[i - 1].key : (struct pkv_block_key){0};
        CU_ASSERT(events[i].parent_key.low == parent.low &&
                  events[i].parent_key.high == parent.high);
    }
    const struct pkv_block_key last = events[2].key;
    prefix_destroy(&c, &a);
    press(&c, &b, 2);
    CU_ASSERT_EQUAL(drain(&c, events, NULL), 1);
    CU_ASSERT(events[0].kind == PKV_EVENT_REMOVED && events[0].reason == PKV_REASON_CAPACITY);
    CU_ASSERT(events[0].key.low == last.low && events[0].number == 4);
    ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, true, NULL));
    CU_ASSERT_EQUAL(drain(&c, events, NULL), 1);
    CU_ASSERT(events[0].kind == PKV_EVENT_CLEARED && events[0].reason == PKV_REASON_RESET);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* A sequence in the namespace "ann" alone with the first 12 ids, ended again; its events. */
static void cache_in_ann(struct runtime_case *c, struct prefix_seq *seq, struct pkv_event *events,
                         int32_t num_expected)
{
    const struct pkv_namespace_field ann = prefix_field_of(1, "ann", 0);
    const struct pkv_seq_options in_ann = {
        .size = sizeof in_ann, .namespace_fields = &ann, .num_namespace_fields = 1};
    ASSERT_STATUS(PKV_OK, prefix_create(c, seq, 0, &in_ann));
    prefix_append(c, seq, 12);
    prefix_destroy(c, seq);
    CU_ASSERT_EQUAL_FATAL(drain(c, events, NULL), num_expected);
}

static bool is_end(const struct pkv_event *event, enum pkv_event_reason reason,
                   const struct pkv_event *stored)
{
    return event->kind == PKV_EVENT_REMOVED && event->reason == reason &&
           event->key.low == stored->key.low && event->key.high == stored->key.high &&
           event->namespace_key.low == stored->namespace_key.low;
}

static void events_of_a_flush_say_so(void)
{
    const struct pkv_namespace_field ann = prefix_field_of(1, "ann", 0);
    struct runtime_case c;
    struct pkv_event stored[64], events[64];
    struct pkv_flush_report report = {.size = sizeof report};
    int told = 0;
    prefix_open(&c, 16);
    cache_in_ann(&c, &a, stored, 3);
    prefix_run(&c, &b, 0, 8);
    CU_ASSERT_EQUAL(drain(&c, events, NULL), 2);
    for (int round = 0; round < 2; round++) { /* free, then held */
        if (round == 1) {
            const struct pkv_seq_options in_ann = {
                .size = sizeof in_ann, .namespace_fields = &ann, .num_namespace_fields = 1};
            ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, &in_ann));
            prefix_append(&c, &a, 12);
            CU_ASSERT_EQUAL(drain(&c, events, NULL), 3);
        }
        ASSERT_STATUS(PKV_OK, pkv_namespace_flush(c.cache, &ann, &report));
        CU_ASSERT(report.removed == (round == 0 ? 3 : 0) && report.orphaned == 3 - report.removed);
        CU_ASSERT_EQUAL_FATAL(drain(&c, events, NULL), 3);
        for (int32_t i = 0; i < 9; i++) { /* each of the three, in any order */
            told += is_end(&events[i / 3], PKV_REASON_FLUSH, &stored[i % 3]) << 4 * (i % 3);
        }
        CU_ASSERT_EQUAL(told, 0x111 * (round + 1));
    }
    prefix_destroy(&c, &a);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 9), 8);
    CU_ASSERT_EQUAL(drain(&c, events, NULL), 0);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* As if another thread's step came between the flush and its sweep. */
static void a_flushed_block_that_is_taken_before_the_sweep_says_so(void)
{
    const struct pkv_namespace_field ann = prefix_field_of(1, "ann", 0);
    const struct pkv_namespace_field nobody = prefix_field_of(1, "nobody", 0);
    struct runtime_case c;
    struct pkv_event stored[64], events[64];
    struct pkv_flush_report report = {.size = sizeof report};
    prefix_open(&c, 6);
    prefix_warm(&c, &d, 500, 8);
    CU_ASSERT_EQUAL(drain(&c, events, NULL), 2);
    cache_in_ann(&c, &a, stored, 3);
    prefix_index_flush(c.cache->reuse.index, &ann);
    press(&c, &b, 6); /* one that was empty, two of `d`, last first, and those three */
    CU_ASSERT_EQUAL_FATAL(drain(&c, events, NULL), 5);
    CU_ASSERT(events[0].kind == PKV_EVENT_REMOVED && events[0].reason == PKV_REASON_CAPACITY);
    CU_ASSERT(events[1].kind == PKV_EVENT_REMOVED && events[1].reason == PKV_REASON_CAPACITY);
    for (int32_t i = 0; i < 3; i++) {
        CU_ASSERT(is_end(&events[2 + i], PKV_REASON_FLUSH, &stored[2 - i]));
    }
    CU_ASSERT_EQUAL(prefix_stats(&c).evicted_blocks, 2); /* the flushed ones are no evictions */
    CU_ASSERT_EQUAL(case_check(&c), 0);
    ASSERT_STATUS(PKV_OK, pkv_namespace_flush(c.cache, &nobody, &report)); /* sweeps */
    CU_ASSERT(report.held == 6 && report.orphaned == 0 && report.removed == 0);
    CU_ASSERT_EQUAL(drain(&c, events, NULL), 0);
    prefix_destroy(&c, &b);
    case_close(&c);
}

static void a_flushed_block_ends_before_an_equal_one_is_stored(void)
{
    const struct pkv_namespace_field ann = prefix_field_of(1, "ann", 0);
    const struct pkv_namespace_field nobody = prefix_field_of(1, "nobody", 0);
    struct runtime_case c;
    struct pkv_event stored[64], events[64];
    struct pkv_flush_report report = {.size = sizeof report};
    prefix_open(&c, 16);
    cache_in_ann(&c, &a, stored, 3);
    prefix_index_flush(c.cache->reuse.index, &ann);
    cache_in_ann(&c, &b, events, 6);
    for (int32_t i = 0; i < 3; i++) {
        const struct pkv_event *again = &events[2 * i + 1];
        CU_ASSERT(is_end(&events[2 * i], PKV_REASON_FLUSH, &stored[i]));
        CU_ASSERT(again->kind == PKV_EVENT_STORED && again->reason == PKV_REASON_COMMIT);
        CU_ASSERT_EQUAL(again->key.low, stored[i].key.low);
        CU_ASSERT_EQUAL(again->parent_key.low, stored[i].parent_key.low);
    }
    CU_ASSERT_EQUAL(case_check(&c), 0);
    ASSERT_STATUS(PKV_OK, pkv_namespace_flush(c.cache, &nobody, &report)); /* sweeps */
    CU_ASSERT(report.held == 0 && report.orphaned == 0 && report.removed == 3);
    CU_ASSERT_EQUAL(drain(&c, events, NULL), 0);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 13), 12);
    case_close(&c);
}

static void lost_events_are_counted(void)
{
    struct runtime_case c;
    struct pkv_event events[64];
    uint64_t lost = 0;
    prefix_init(&c);
    c.config.num_events = 3;
    case_open(&c);
    prefix_run(&c, &a, 0, 32);
    CU_ASSERT_EQUAL(drain(&c, events, &lost), 3);
    CU_ASSERT_EQUAL(lost, 5);
    CU_ASSERT_EQUAL(events[0].number, 6);
    CU_ASSERT_EQUAL(drain(&c, events, &lost), 0);
    CU_ASSERT_EQUAL(lost, 0);
    CU_ASSERT_EQUAL(prefix_stats(&c).lost_events, 5);
    int32_t count = 0;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  pkv_events_drain(c.cache, NULL, sizeof(struct pkv_event), 1, &count, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  pkv_events_drain(c.cache, events, sizeof(struct pkv_event), 1, NULL, NULL));
    prefix_destroy(&c, &a);
    case_close(&c);
}

/* Keys are the same in every cache with one fingerprint, whatever its seed, and in no other */
static void keys_follow_from_content_and_fingerprint(void)
{
    struct pkv_event events[3][64];
    for (int32_t i = 0; i < 3; i++) {
        struct runtime_case c;
        prefix_init(&c);
        c.config.fingerprint = i < 2 ? "weights 1" : "weights 2";
        c.config.fingerprint_bytes = 9;
        case_open(&c);
        prefix_run(&c, &a, 0, 8);
        CU_ASSERT_EQUAL(drain(&c, events[i], NULL), 2);
        prefix_destroy(&c, &a);
        case_close(&c);
    }
    CU_ASSERT_EQUAL(events[0][1].key.low, events[1][1].key.low);
    CU_ASSERT_EQUAL(events[0][1].key.high, events[1][1].key.high);
    CU_ASSERT_NOT_EQUAL(events[0][1].key.low, events[2][1].key.low);
}

struct text {
    char bytes[16384];
    size_t used;
    size_t limit;
};

static bool write_text(void *context, const char *bytes, size_t count)
{
    struct text *text = context;
    if (text->used + count > text->limit) {
        return false;
    }
    memcpy(text->bytes + text->used, bytes, count);
    text->used += count;
    text->bytes[text->used] = '\0';
    return true;
}

static void metrics_are_prometheus_text(void)
{
    static struct text text;
    struct runtime_case c;
    prefix_open(&c, 16);
    prefix_run(&c, &a, 0, 8);
    CU_ASSERT_EQUAL(prefix_run(&c, &b, 0, 9), 8);
    text.used = 0;
    text.limit = sizeof text.bytes - 1;
    ASSERT_STATUS(PKV_OK, pkv_metrics_write(c.cache, write_text, &text));
    CU_ASSERT_PTR_NOT_NULL(strstr(text.bytes, "\npagedkv_prefix_cache_queries_total 17\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text.bytes, "\npagedkv_prefix_cache_hits_total 8\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text.bytes, "# TYPE pagedkv_kv_cache_usage_perc gauge\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text.bytes, "\npagedkv_kv_cache_usage_perc 0.1875\n"));
    text.used = 0;
    text.limit = 10;
    ASSERT_STATUS(PKV_IO, pkv_metrics_write(c.cache, write_text, &text));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_metrics_write(c.cache, NULL, NULL));
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

static bool count_state(void *context, const struct pkv_block_info *info)
{
    int32_t *counts = context;
    counts[info->state]++;
    return ++counts[4] < counts[5];
}

static void visit_shows_every_block(void)
{
    struct runtime_case c;
    prefix_open(&c, 40);
    prefix_run(&c, &a, 0, 12);
    prefix_run(&c, &b, 700, 16);
    pkv_pin handle = {0};
    CU_ASSERT_EQUAL(pin(&c, 8, 0, 0, &handle), 8);
    prefix_destroy(&c, &b);
    int32_t counts[6] = {0, 0, 0, 0, 0, 100};
    uint64_t next = 0;
    ASSERT_STATUS(PKV_OK, pkv_cache_visit(c.cache, count_state, counts, &next));
    CU_ASSERT(counts[PKV_BLOCK_FREE] == 33 && counts[PKV_BLOCK_CACHED] == 4);
    CU_ASSERT(counts[PKV_BLOCK_HELD] == 1 && counts[PKV_BLOCK_PINNED] == 2);
    CU_ASSERT_EQUAL(next, 8);
    int32_t few[6] = {0, 0, 0, 0, 0, 3};
    ASSERT_STATUS(PKV_OK, pkv_cache_visit(c.cache, count_state, few, NULL));
    CU_ASSERT_EQUAL(few[4], 3);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_visit(c.cache, NULL, NULL, NULL));
    ASSERT_STATUS(PKV_OK, pkv_prefix_unpin(c.cache, handle));
    prefix_destroy(&c, &a);
    case_close(&c);
}

/* I1, I2: create takes exactly what pkv_cache_size says, nothing is taken later, and a create that
 * fails at any allocation leaves nothing. */
static void memory_is_what_size_says(void)
{
    struct runtime_case c;
    prefix_init(&c);
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    case_add_group(&c)->sliding_window = 6;
    case_add_layer(&c, 1);
    c.config.fingerprint = "x";
    c.config.fingerprint_bytes = 1;
    struct pkv_cache_sizes plain = {.size = sizeof plain};
    c.config.prefix_cache = false;
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &plain));
    ASSERT_STATUS(PKV_OK, pkv_cache_create(&c.config, &c.cache));
    const size_t plain_bytes = c.memory.alloc_bytes; /* scratch of attention is not in sizes */
    ASSERT_STATUS(PKV_OK, pkv_cache_destroy(c.cache, false));
    c.config.prefix_cache = true;
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &sizes));
    case_open(&c);
    CU_ASSERT_EQUAL(c.memory.map_bytes, sizes.payload_bytes + sizes.table_bytes);
    CU_ASSERT_EQUAL(c.memory.alloc_bytes - plain_bytes,
                    sizes.metadata_bytes - plain.metadata_bytes);
    prefix_run(&c, &a, 0, 12); /* scratch of attention grows once */
    prefix_destroy(&c, &a);
    const size_t before = c.memory.alloc_bytes + c.memory.map_bytes;
    const size_t index_bytes = prefix_stats(&c).index_bytes;
    for (int32_t i = 0; i < 50; i++) {
        prefix_warm(&c, &a, 1000 * i, 12);
    }
    CU_ASSERT_EQUAL(c.memory.alloc_bytes + c.memory.map_bytes, before);
    CU_ASSERT_EQUAL(prefix_stats(&c).index_bytes, index_bytes);
    CU_ASSERT(index_bytes > 0);
    const long calls = c.memory.calls;
    case_close(&c);
    for (long at = 1; at < calls; at++) {
        struct runtime_case again;
        prefix_init(&again);
        again.memory.fail_at = at;
        pkv_cache *cache = NULL;
        const enum pkv_status status = pkv_cache_create(&again.config, &cache);
        CU_ASSERT(status == PKV_NO_MEMORY || status == PKV_OK);
        CU_ASSERT_EQUAL(status == PKV_OK, cache != NULL);
        ASSERT_STATUS(PKV_OK, pkv_cache_destroy(cache, false));
        CU_ASSERT(again.memory.live == 0 && again.memory.num_wrong == 0);
    }
}

static void without_a_prefix_cache_calls_say_so(void)
{
    struct runtime_case c;
    struct pkv_namespace_field field = prefix_field_of(1, "x", 0);
    pkv_pin handle = {0};
    int32_t count = 0;
    case_init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    const struct pkv_probe probe = prefix_probe(&c, &a, 12, 4);
    CU_ASSERT(probe.status == PKV_OK && probe.num_cached == 0 && probe.num_blocks == 4);
    ASSERT_STATUS(PKV_UNSUPPORTED,
                  pkv_prefix_pin(c.cache, NULL, PROMPT(a.ids, 4), 0, 0, &handle, &count));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_prefix_unpin(c.cache, handle));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_prefix_refresh(c.cache, handle, 1, 1));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_prefix_expire(c.cache, 1, NULL));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_namespace_quota(c.cache, &field, 1));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_namespace_flush(c.cache, &field, NULL));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_cache_reset(c.cache, true, NULL));
    ASSERT_STATUS(PKV_UNSUPPORTED,
                  pkv_events_drain(c.cache, NULL, sizeof(struct pkv_event), 0, &count, NULL));
    prefix_destroy(&c, &a);
    case_close(&c);
}

static void config_is_judged(void)
{
    struct runtime_case c;
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    prefix_init(&c);
    c.config.masked_hash_bits = 129;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_size(&c.config, &sizes));
    c.config.masked_hash_bits = 0;
    c.config.watermark_blocks = -1;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_size(&c.config, &sizes));
    c.config.watermark_blocks = 0;
    c.config.fingerprint_bytes = 2;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_size(&c.config, &sizes));
    c.config.fingerprint_bytes = 0;
    c.config.num_index_nodes = 15;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_size(&c.config, &sizes));
    c.config.num_index_nodes = 0;
    case_add_group(&c);
    case_add_layer(&c, 1);
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &sizes));
}

/* B7: the defaults of the prefix cache can be read back as numbers. */
static void describe_gives_the_bounds_of_the_index(void)
{
    struct runtime_case c;
    struct pkv_cache_config got = {.size = sizeof got};
    prefix_init(&c);
    c.config.max_namespaces = 0;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, pkv_cache_describe(c.cache, &got));
    CU_ASSERT_EQUAL(got.num_index_nodes, 2 * c.groups[0].num_blocks);
    CU_ASSERT(got.max_namespaces > got.num_index_nodes);
    case_close(&c);
    prefix_open(&c, 16);
    ASSERT_STATUS(PKV_OK, pkv_cache_describe(c.cache, &got));
    CU_ASSERT_EQUAL(got.max_namespaces, 64);
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(describe_gives_the_bounds_of_the_index),
    TEST(pinned_run_is_not_evicted),
    TEST(pins_end_by_the_callers_clock),
    TEST(refresh_moves_the_end_either_way),
    TEST(refresh_moves_no_other_pin),
    TEST(refresh_without_a_time_to_live_pins_for_good),
    TEST(refresh_comes_too_late_for_a_pin_whose_time_is_up),
    TEST(refresh_refuses_what_is_no_pin),
    TEST(cap_limits_what_is_pinned),
    TEST(reset_tells_and_force_orphans),
    TEST(flush_takes_one_field_alone),
    TEST(events_tell_in_order_what_happened),
    TEST(events_of_a_flush_say_so),
    TEST(a_flushed_block_that_is_taken_before_the_sweep_says_so),
    TEST(a_flushed_block_ends_before_an_equal_one_is_stored),
    TEST(lost_events_are_counted),
    TEST(keys_follow_from_content_and_fingerprint),
    TEST(metrics_are_prometheus_text),
    TEST(visit_shows_every_block),
    TEST(memory_is_what_size_says),
    TEST(without_a_prefix_cache_calls_say_so),
    TEST(config_is_judged),
    TEST_END,
};
const struct test_suite suite_runtime_pin = {"runtime_pin", cases};
