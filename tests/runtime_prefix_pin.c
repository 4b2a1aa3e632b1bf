/* SPDX-License-Identifier: MIT
 *
 * Pins, flush, reset, events, counters, and what tools see. Block size 4. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime_prefix_case.h"

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
    ASSERT_STATUS(PKV_OK, pkv_prefix_pin(c->cache, NULL, seq.ids, NULL, num_tokens, ttl, now,
                                         handle, &num_pinned));
    CU_ASSERT_EQUAL(case_check(c), 0);
    return num_pinned;
}

static int32_t pinned(struct runtime_case *c)
{
    struct pkv_group_usage usage = {0};
    ASSERT_STATUS(PKV_OK, pkv_cache_usage(c->cache, 0, &usage));
    CU_ASSERT(usage.cached <= usage.free && usage.pinned <= usage.held);
    return usage.pinned;
}

static void pinned_run_is_not_evicted(void)
{
    struct runtime_case c;
    prefix_init(&c);
    c.groups[0].num_blocks = 8;
    case_open(&c);
    prefix_run(&c, &a, 0, 12);
    prefix_destroy(&c, &a);
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
    prefix_init(&c);
    case_open(&c);
    prefix_run(&c, &a, 0, 12);
    prefix_destroy(&c, &a);
    pkv_pin early = {0}, late = {0}, never = {0};
    CU_ASSERT_EQUAL(pin(&c, 12, 100, 1000, &early), 12);
    CU_ASSERT_EQUAL(pin(&c, 8, 500, 1000, &late), 8);
    CU_ASSERT_EQUAL(pin(&c, 4, 0, 1000, &never), 4);
    int32_t ended = -1;
    ASSERT_STATUS(PKV_OK, pkv_prefix_expire(c.cache, 1099, &ended));
    CU_ASSERT_EQUAL(ended, 0);
    CU_ASSERT_EQUAL(pinned(&c), 3);
    const struct pkv_batch batch = {.size = sizeof batch, .now_ns = 1100};
    struct pkv_shortage shortage;
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
                  pkv_prefix_pin(c.cache, NULL, a.ids, NULL, 8, 0, 0, &pins[2], &num_pinned));
    CU_ASSERT_EQUAL(num_pinned, -1);
    ASSERT_STATUS(PKV_OK, pkv_prefix_unpin(c.cache, pins[0]));
    CU_ASSERT_EQUAL(pin(&c, 3, 0, 0, &pins[2]), 0); /* no whole block */
    CU_ASSERT_EQUAL(pins[2].id, 0);
    ASSERT_STATUS(PKV_OK, pkv_prefix_unpin(c.cache, pins[1]));
    prefix_destroy(&c, &a);
    case_close(&c);
}

/* D9 */
static void reset_tells_and_force_orphans(void)
{
    struct runtime_case c;
    prefix_init(&c);
    case_open(&c);
    prefix_run(&c, &a, 0, 10);
    prefix_run(&c, &b, 500, 8);
    prefix_destroy(&c, &b);
    pkv_pin handle = {0};
    struct pkv_flush_report report = {0};
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
    prefix_init(&c);
    case_open(&c);
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
                  pkv_prefix_pin(c.cache, &in_ann, a.ids, NULL, 12, 0, 0, &handle, &num_pinned));
    CU_ASSERT_EQUAL(num_pinned, 12);
    struct pkv_flush_report report = {0};
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
    ASSERT_STATUS(PKV_OK, pkv_events_drain(c->cache, events, 64, &count, num_lost));
    return count;
}

static void events_tell_in_order_what_happened(void)
{
    struct runtime_case c;
    struct pkv_event events[64];
    uint64_t lost = 99;
    prefix_init(&c);
    c.groups[0].num_blocks = 4;
    case_open(&c);
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
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_events_drain(c.cache, NULL, 1, &count, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_events_drain(c.cache, events, 1, NULL, NULL));
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
    prefix_init(&c);
    case_open(&c);
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
    prefix_init(&c);
    c.groups[0].num_blocks = 40;
    case_open(&c);
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

/* I1 and I2: exact sizes, nothing later, and every failed allocation of create gives all back */
static void memory_is_what_size_says(void)
{
    struct runtime_case c;
    prefix_init(&c);
    struct pkv_cache_sizes sizes = {0};
    case_add_group(&c)->sliding_window = 6;
    case_add_layer(&c, 1);
    c.config.fingerprint = "x";
    c.config.fingerprint_bytes = 1;
    struct pkv_cache_sizes plain = {0};
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
        prefix_run(&c, &a, 1000 * i, 12);
        prefix_destroy(&c, &a);
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
                  pkv_prefix_pin(c.cache, NULL, a.ids, NULL, 4, 0, 0, &handle, &count));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_prefix_unpin(c.cache, handle));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_prefix_expire(c.cache, 1, NULL));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_namespace_quota(c.cache, &field, 1));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_namespace_flush(c.cache, &field, NULL));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_cache_reset(c.cache, true, NULL));
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_events_drain(c.cache, NULL, 0, &count, NULL));
    prefix_destroy(&c, &a);
    case_close(&c);
}

static void config_is_judged(void)
{
    struct runtime_case c;
    struct pkv_cache_sizes sizes;
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
    case_add_group(&c)->block_size = 8;
    case_add_layer(&c, 1);
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_cache_size(&c.config, &sizes));
    c.groups[1].block_size = 4;
    c.groups[1].storage = PKV_STORAGE_CONTINUOUS;
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_cache_size(&c.config, &sizes));
    c.groups[1].storage = PKV_STORAGE_PAGED;
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &sizes));
}

/* B7. Defaults of the prefix cache are read back as what they came to. */
static void describe_gives_the_bounds_of_the_index(void)
{
    struct runtime_case c;
    struct pkv_cache_config got;
    prefix_init(&c);
    c.config.max_namespaces = 0;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, pkv_cache_describe(c.cache, &got));
    CU_ASSERT_EQUAL(got.num_index_nodes, 2 * c.groups[0].num_blocks);
    CU_ASSERT(got.max_namespaces > got.num_index_nodes);
    case_close(&c);
    prefix_init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, pkv_cache_describe(c.cache, &got));
    CU_ASSERT_EQUAL(got.max_namespaces, 64);
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(describe_gives_the_bounds_of_the_index),
    TEST(pinned_run_is_not_evicted),
    TEST(pins_end_by_the_callers_clock),
    TEST(cap_limits_what_is_pinned),
    TEST(reset_tells_and_force_orphans),
    TEST(flush_takes_one_field_alone),
    TEST(events_tell_in_order_what_happened),
    TEST(lost_events_are_counted),
    TEST(keys_follow_from_content_and_fingerprint),
    TEST(metrics_are_prometheus_text),
    TEST(visit_shows_every_block),
    TEST(memory_is_what_size_says),
    TEST(without_a_prefix_cache_calls_say_so),
    TEST(config_is_judged),
    TEST_END,
};
const struct test_suite suite_runtime_prefix_pin = {"runtime_prefix_pin", cases};
