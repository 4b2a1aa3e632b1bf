/* SPDX-License-Identifier: MIT
 *
 * Every public struct with a size, as callers of other versions pass it: the layout that ends with
 * the last field of 0.1.0, today's, and larger ones. Each copy ends where its memory ends, so that
 * a sanitiser sees what is read or written beyond it. */
#include "base/sized.h"

#include <stdlib.h>
#include <string.h>

#include "support/runtime_case.h"
#include "support/test.h"

#define MORE 24

static struct runtime_case world;
static struct case_seq seq;

static struct pkv_namespace_field field = {.tag = 7, .length = 1, .bytes = "x"};

static void open_world(void)
{
    struct pkv_seq_options options = {
        .size = sizeof options, .namespace_fields = &field, .num_namespace_fields = 1};
    case_init(&world);
    world.config.prefix_cache = true;
    world.config.num_events = 8;
    world.config.event_tokens = true;
    case_open(&world);
    memset(&seq, 0, sizeof seq);
    ASSERT_STATUS(PKV_OK, pkv_seq_create(world.cache, &options, &seq.handle));
}

static void close_world(void)
{
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(world.cache, seq.handle));
    case_close(&world);
}

/* A copy of `size` bytes in memory that ends with it, `size` stored in front. */
static void *copy_of(const void *good, size_t known, size_t size)
{
    unsigned char *copy = calloc(1, size);
    memcpy(copy, good, known < size ? known : size);
    memcpy(copy, &size, sizeof size);
    return copy;
}

/* ---- structs that a call reads */

static enum pkv_status read_config(const void *given)
{
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    return pkv_cache_size(given, &sizes);
}

static enum pkv_status read_prompt(const void *given)
{
    struct pkv_probe probe = {.size = sizeof probe};
    return pkv_cache_probe(world.cache, NULL, given, 0, 0, &probe, NULL);
}

static enum pkv_status read_options(const void *given)
{
    struct pkv_probe probe = {.size = sizeof probe};
    return pkv_cache_probe(world.cache, given, PROMPT(NULL, 0), 0, 0, &probe, NULL);
}

static enum pkv_status read_batch(const void *given)
{
    return pkv_step_fits(world.cache, given, NULL);
}

static enum pkv_status read_io(const void *given)
{
    const struct pkv_batch empty = {.size = sizeof empty};
    pkv_step step = {0};
    ASSERT_STATUS(PKV_OK, pkv_step_begin(world.cache, &empty, &step, NULL));
    const enum pkv_status status = pkv_step_attend(world.cache, step, 0, given);
    ASSERT_STATUS(PKV_OK, pkv_step_abort(world.cache, step));
    return status;
}

static enum pkv_status read_geometry(const void *given)
{
    struct pkv_page_sizes sizes = {.size = sizeof sizes};
    return pkv_page_sizes_of(given, &sizes);
}

typedef enum pkv_status operator_call(pkv_workspace *workspace, const void *given);

static enum pkv_status with_workspace(operator_call *call, const void *given)
{
    pkv_workspace *workspace = NULL;
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(1, test_isa(), NULL, &workspace));
    const enum pkv_status status = call(workspace, given);
    pkv_workspace_destroy(workspace);
    return status;
}

static enum pkv_status call_gqa(pkv_workspace *workspace, const void *given)
{
    return pkv_gqa(workspace, given);
}

static enum pkv_status call_contract(pkv_workspace *workspace, const void *given)
{
    return pkv_gqa_contract(workspace, given);
}

static enum pkv_status read_args(const void *given)
{
    return with_workspace(call_gqa, given);
}

static enum pkv_status read_contract(const void *given)
{
    return with_workspace(call_contract, given);
}

static float one = 1;
static float out;
static const int64_t heads = 1;
static const struct pkv_tensor tensor = {&one, PKV_TENSOR_F32, 2, {1, 1}};
static const struct pkv_tensor out_tensor = {&out, PKV_TENSOR_F32, 2, {1, 1}};

static const struct pkv_prompt good_prompt = {.token_ids = NULL};
static const struct pkv_seq_options good_options = {.priority = 1};
static const struct pkv_batch good_batch = {.num_rows = 0};
static const struct pkv_layer_io good_io = {.q = NULL};
static const struct pkv_page_geometry good_geometry = {
    .num_layers = 1, .num_blocks = 1, .kv_heads = 1, .block_size = 1, .k_width = 1};
static const struct pkv_gqa_args good_args = {.num_heads = 1,
                                              .kv_heads = 1,
                                              .k_width = 1,
                                              .batch = 1,
                                              .num_tokens = 1,
                                              .q = &one,
                                              .k = &one,
                                              .v = &one,
                                              .out = &out};
static const struct pkv_contract_args good_contract = {.query = &tensor,
                                                       .key = &tensor,
                                                       .value = &tensor,
                                                       .num_heads = &heads,
                                                       .kv_num_heads = &heads,
                                                       .output = &out_tensor};

struct reads {
    const char *name;
    const void *good;
    size_t first; /* the end of the first published layout */
    size_t today;
    enum pkv_status (*call)(const void *given);
};

#define READS(name, good, type, last, call)                                                        \
    {                                                                                              \
        name, good, SIZED_UP_TO(struct type, last), sizeof(struct type), call                      \
    }

static const struct reads reads[] = {
    READS("config", &world.config, pkv_cache_config, masked_hash_bits, read_config),
    READS("prompt", &good_prompt, pkv_prompt, num_bidirectional, read_prompt),
    READS("options", &good_options, pkv_seq_options, no_publish, read_options),
    READS("batch", &good_batch, pkv_batch, cu_bidirectional, read_batch),
    READS("io", &good_io, pkv_layer_io, out_stride, read_io),
    READS("geometry", &good_geometry, pkv_page_geometry, v_dtype, read_geometry),
    READS("args", &good_args, pkv_gqa_args, cu_bidirectional, read_args),
    READS("args", &good_contract, pkv_contract_args, output, read_contract),
};

#define NUM_READS (sizeof reads / sizeof reads[0])

static enum pkv_status pass(const struct reads *r, size_t size, size_t spoilt)
{
    unsigned char *given = copy_of(r->good, r->today, size);
    if (spoilt < size) {
        given[spoilt] = 1;
    }
    const enum pkv_status status = r->call(given);
    free(given);
    return status;
}

static void a_smaller_struct_lacks_fields_down_to_the_first_layout(void)
{
    open_world();
    for (size_t i = 0; i < NUM_READS; i++) {
        const struct reads *r = &reads[i];
        ASSERT_CASE(r->name, pass(r, r->first, SIZE_MAX) == PKV_OK);
        ASSERT_CASE(r->name, pass(r, r->today, SIZE_MAX) == PKV_OK);
        ASSERT_CASE_REFUSED(r->name, PKV_INVALID_ARGUMENT, r->name,
                            pass(r, r->first - 1, SIZE_MAX));
        ASSERT_CASE_REFUSED(r->name, PKV_INVALID_ARGUMENT, "size = 8",
                            pass(r, sizeof(size_t), SIZE_MAX));
    }
    close_world();
}

static void a_larger_struct_is_taken_while_the_rest_is_zero(void)
{
    open_world();
    for (size_t i = 0; i < NUM_READS; i++) {
        const struct reads *r = &reads[i];
        const size_t size = r->today + MORE;
        ASSERT_CASE(r->name, pass(r, size, SIZE_MAX) == PKV_OK);
        ASSERT_CASE_REFUSED(r->name, PKV_UNSUPPORTED, r->name, pass(r, size, r->today));
        ASSERT_CASE_REFUSED(r->name, PKV_UNSUPPORTED, r->name, pass(r, size, size - 1));
        ASSERT_CASE_REFUSED(r->name, PKV_INVALID_ARGUMENT, "size",
                            pass(r, SIZED_MAX_BYTES + 1, SIZE_MAX));
    }
    close_world();
}

/* ---- structs that a call fills */

static enum pkv_status fill_stats(void *to)
{
    return pkv_cache_stats(world.cache, to);
}

static enum pkv_status fill_usage(void *to)
{
    return pkv_cache_usage(world.cache, 0, to);
}

static enum pkv_status fill_seq_info(void *to)
{
    return pkv_seq_describe(world.cache, seq.handle, to, NULL);
}

static enum pkv_status fill_sizes(void *to)
{
    return pkv_cache_size(&world.config, to);
}

static enum pkv_status fill_config(void *to)
{
    return pkv_cache_describe(world.cache, to);
}

static enum pkv_status fill_page_sizes(void *to)
{
    struct pkv_page_geometry geometry = good_geometry;
    geometry.size = sizeof geometry;
    return pkv_page_sizes_of(&geometry, to);
}

static enum pkv_status fill_field_usage(void *to)
{
    return pkv_namespace_usage(world.cache, &field, to);
}

static enum pkv_status fill_report(void *to)
{
    return pkv_cache_reset(world.cache, true, to);
}

static enum pkv_status fill_probe(void *to)
{
    return pkv_cache_probe(world.cache, NULL, PROMPT(NULL, 0), 3, 0, to, NULL);
}

static enum pkv_status fill_admission(void *to)
{
    const enum pkv_status status =
        pkv_seq_admit(world.cache, seq.handle, PROMPT(NULL, 0), 3, 0, to, NULL);
    ASSERT_STATUS(PKV_OK, pkv_seq_truncate(world.cache, seq.handle, 0));
    return status;
}

static enum pkv_status fill_shortage(void *to)
{
    const struct pkv_batch empty = {.size = sizeof empty};
    return pkv_step_fits(world.cache, &empty, to);
}

static enum pkv_status fill_view(void *to)
{
    const struct pkv_batch empty = {.size = sizeof empty};
    pkv_step step = {0};
    ASSERT_STATUS(PKV_OK, pkv_step_begin(world.cache, &empty, &step, NULL));
    const enum pkv_status status = pkv_step_describe(world.cache, step, 0, to);
    ASSERT_STATUS(PKV_OK, pkv_step_abort(world.cache, step));
    return status;
}

struct fills {
    const char *name;
    size_t first;
    size_t today;
    enum pkv_status (*call)(void *to);
};

#define FILLS(name, type, last, call)                                                              \
    {                                                                                              \
        name, SIZED_UP_TO(struct type, last), sizeof(struct type), call                            \
    }

static const struct fills fills[] = {
    FILLS("stats", pkv_stats, index_bytes, fill_stats),
    FILLS("usage", pkv_group_usage, pinned, fill_usage),
    FILLS("info", pkv_seq_info, in_step, fill_seq_info),
    FILLS("sizes", pkv_cache_sizes, token_bytes, fill_sizes),
    FILLS("config", pkv_cache_config, masked_hash_bits, fill_config),
    FILLS("sizes", pkv_page_sizes, payload_bytes, fill_page_sizes),
    FILLS("usage", pkv_field_usage, cached, fill_field_usage),
    FILLS("report", pkv_flush_report, removed, fill_report),
    FILLS("probe", pkv_probe, num_blocks, fill_probe),
    FILLS("admission", pkv_admission, num_blocks, fill_admission),
    FILLS("shortage", pkv_shortage, quota, fill_shortage),
    FILLS("view", pkv_step_view, layer_stride_bytes, fill_view),
};

/* Filled in a layout of `size` bytes, as far as it is known; all else as painted, or zero. */
static void expect_filled(const struct fills *f, const unsigned char *full, size_t size)
{
    unsigned char *to = malloc(size);
    memset(to, 0x5a, size);
    memcpy(to, &size, sizeof size);
    ASSERT_CASE(f->name, f->call(to) == PKV_OK);
    const size_t known = size < f->today ? size : f->today;
    ASSERT_CASE(f->name, memcmp(to, &size, sizeof size) == 0);
    ASSERT_CASE(f->name, memcmp(to + sizeof size, full + sizeof size, f->first - sizeof size) == 0);
    for (size_t i = known; i < size; i++) {
        ASSERT_CASE(f->name, to[i] == 0);
    }
    free(to);
}

static void a_struct_is_filled_as_far_as_both_sides_know_it(void)
{
    open_world();
    for (size_t i = 0; i < sizeof fills / sizeof fills[0]; i++) {
        const struct fills *f = &fills[i];
        unsigned char *full = copy_of("", 0, f->today);
        ASSERT_CASE(f->name, f->call(full) == PKV_OK);
        expect_filled(f, full, f->first);
        expect_filled(f, full, f->today);
        expect_filled(f, full, f->today + MORE);
        const size_t small = f->first - 1;
        memcpy(full, &small, sizeof small);
        ASSERT_CASE_REFUSED(f->name, PKV_INVALID_ARGUMENT, f->name, f->call(full));
        free(full);
    }
    close_world();
}

/* Events lie as far apart as the caller says. */
static void events_are_filled_by_the_callers_stride(void)
{
    enum { FIRST = SIZED_UP_TO(struct pkv_event, depth), LARGE = sizeof(struct pkv_event) };
    static const size_t strides[] = {FIRST, LARGE, LARGE + MORE};
    open_world();
    for (size_t i = 0; i < 2 * sizeof strides / sizeof strides[0]; i++) {
        const size_t stride = strides[i / 2];
        unsigned char *events = malloc(2 * stride);
        int32_t count = 0;
        uint64_t numbers[2] = {0};
        ASSERT_STATUS(PKV_OK, pkv_cache_reset(world.cache, true, NULL));
        ASSERT_STATUS(PKV_OK, pkv_cache_reset(world.cache, true, NULL));
        memset(events, 0x5a, 2 * stride);
        ASSERT_STATUS(PKV_OK,
                      i % 2 == 0
                          ? pkv_events_drain(world.cache, (void *)events, stride, 2, &count, NULL)
                          : pkv_events_drain_tokens(world.cache, (void *)events, stride, 2, NULL,
                                                    NULL, &count, NULL));
        memcpy(&numbers[0], events, sizeof numbers[0]);
        memcpy(&numbers[1], events + stride, sizeof numbers[1]);
        CU_ASSERT(count == 2 && numbers[1] == numbers[0] + 1);
        CU_ASSERT(stride <= LARGE || events[stride - 1] == 0);
        free(events);
    }
    int32_t count = 0;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "event_size",
                   pkv_events_drain(world.cache, NULL, FIRST - 1, 0, &count, NULL));
    ASSERT_REFUSED(
        PKV_INVALID_ARGUMENT, "event_size",
        pkv_events_drain_tokens(world.cache, NULL, FIRST - 1, 0, NULL, NULL, &count, NULL));
    close_world();
}

/* ---- structs that keep their size */

static void reserved_words_of_later_versions_are_refused(void)
{
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    struct pkv_gqa_args args = good_args;
    open_world();
    args.size = sizeof args;
    args.constants.reserved[7] = 1;
    ASSERT_REFUSED(PKV_UNSUPPORTED, "reserved[7]", read_args(&args));
    world.groups[0].reserved[3] = 1;
    ASSERT_REFUSED(PKV_UNSUPPORTED, "groups[0].reserved[3]", pkv_cache_size(&world.config, &sizes));
    world.groups[0].reserved[3] = 0;
    world.layers[0].reserved[0] = 1;
    ASSERT_REFUSED(PKV_UNSUPPORTED, "layers[0].reserved[0]", pkv_cache_size(&world.config, &sizes));
    world.layers[0].reserved[0] = 0;
    world.config.hooks.reserved[1] = 1;
    ASSERT_REFUSED(PKV_UNSUPPORTED, "hooks.reserved[1]", pkv_cache_size(&world.config, &sizes));
    world.config.hooks.reserved[1] = 0;
    args = good_args;
    args.size = sizeof args;
    args.form = PKV_CACHE_DENSE;
    const int32_t kv_len = 1;
    float cell[2] = {0};
    args.kv_lens = &kv_len;
    args.past = (struct pkv_kv_view){.k = &cell[0],
                                     .v = &cell[1],
                                     .num_blocks = 1,
                                     .kv_heads = 1,
                                     .block_size = 1,
                                     .k_width = 1,
                                     .reserved = {0, 5}};
    ASSERT_REFUSED(PKV_UNSUPPORTED, "past.reserved[1]", read_args(&args));
    args.past.reserved[1] = 0;
    ASSERT_STATUS(PKV_OK, read_args(&args));
    close_world();
}

static const struct test_case cases[] = {
    TEST(a_smaller_struct_lacks_fields_down_to_the_first_layout),
    TEST(a_larger_struct_is_taken_while_the_rest_is_zero),
    TEST(a_struct_is_filled_as_far_as_both_sides_know_it),
    TEST(events_are_filled_by_the_callers_stride),
    TEST(reserved_words_of_later_versions_are_refused),
    TEST_END,
};
const struct test_suite suite_sized = {"sized", cases};
