/* SPDX-License-Identifier: MIT
 *
 * part.c: pages, the three kinds of queries, and numbers that stand for a model. */
#include "part.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_APPEND = 256 };
enum kind { QUERY = 0, KEY = 1, VALUE = 2 };

void must(enum pkv_status status)
{
    if (status != PKV_OK) {
        fprintf(stderr, "%s: %s\n", pkv_status_name(status), pkv_last_error());
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    }
}

void *must_have(void *memory)
{
    must(memory != NULL ? PKV_OK : PKV_NO_MEMORY);
    return memory;
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* --- numbers */

/* A multiple of 1/64 in [-1, 1) for a channel of a token, exact in every float type. */
static float number(enum kind kind, int32_t position, int32_t channel)
{
    uint32_t x = ((uint32_t)kind * 131071u + (uint32_t)position) * 65537u + (uint32_t)channel;
    x = (x ^ x >> 16) * 0x45d9f3bu;
    x = (x ^ x >> 16) * 0x45d9f3bu;
    return (float)(int32_t)(x >> 25) / 64.0f - 1.0f;
}

/* A float that the 16-bit types hold exactly. */
static uint16_t narrowed(float value, enum pkv_dtype dtype)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000u;
    if (dtype == PKV_BF16 || (bits & 0x7fffffffu) == 0) {
        return (uint16_t)(dtype == PKV_BF16 ? bits >> 16 : sign);
    }
    return (uint16_t)(sign | ((bits & 0x7fffffffu) - ((127u - 15u) << 23)) >> 13);
}

/* Queries are four times as large, so that few keys have most of the weight. */
static void make_channels(const struct shape *shape, enum kind kind, int32_t position,
                          int32_t count, void *place)
{
    for (int32_t c = 0; c < count; c++) {
        const float value = number(kind, position, c) * (kind == QUERY ? 4.0f : 1.0f);
        if (shape->dtype == PKV_F32) {
            ((float *)place)[c] = value;
        } else {
            ((uint16_t *)place)[c] = narrowed(value, shape->dtype);
        }
    }
}

static void make_tokens(const struct shape *shape, enum kind kind, int32_t first,
                        int32_t num_tokens, int32_t channels, void *place)
{
    const size_t bytes = (size_t)channels * pkv_dtype_bytes(shape->dtype);
    for (int32_t i = 0; i < num_tokens; i++) {
        make_channels(shape, kind, first + i, channels, (char *)place + (size_t)i * bytes);
    }
}

void make_queries(const struct shape *shape, int32_t length, int32_t num_queries, void *q)
{
    make_tokens(shape, QUERY, length - num_queries, num_queries, shape->num_heads * shape->width,
                q);
}

/* --- states */

static size_t num_lse(const struct shape *shape, int32_t num_queries)
{
    return (size_t)num_queries * (size_t)shape->num_heads;
}

size_t state_bytes(const struct shape *shape, int32_t num_queries)
{
    return num_lse(shape, num_queries) *
           (sizeof(float) + (size_t)shape->width * pkv_dtype_bytes(shape->dtype));
}

struct pkv_state state_in(const struct shape *shape, int32_t num_queries, void *bytes)
{
    float *lse = bytes;
    return (struct pkv_state){.lse = lse, .out = lse + num_lse(shape, num_queries)};
}

/* The state of the queries from `query` on. */
static struct pkv_state state_from(const struct shape *shape, const struct pkv_state *state,
                                   int32_t query)
{
    const size_t heads = num_lse(shape, query);
    const size_t bytes = heads * (size_t)shape->width * pkv_dtype_bytes(shape->dtype);
    return (struct pkv_state){.lse = state->lse + heads, .out = (char *)state->out + bytes};
}

static void clear_state(const struct shape *shape, const struct pkv_state *state,
                        int32_t num_queries)
{
    const size_t heads = num_lse(shape, num_queries);
    memset(state->out, 0, heads * (size_t)shape->width * pkv_dtype_bytes(shape->dtype));
    for (size_t i = 0; i < heads; i++) {
        state->lse[i] = -INFINITY;
    }
}

/* --- pages */

static bool is_quantised(const struct shape *shape)
{
    return shape->cache_dtype == PKV_INT8 || shape->cache_dtype == PKV_E4M3;
}

static void make_rope(struct part *part)
{
    const int32_t pairs = part->shape->width / 2;
    const int32_t positions = part->shape->length + part->shape->num_decodes;
    const size_t bytes = (size_t)positions * (size_t)pairs * sizeof(float);
    part->rope_cos = must_have(malloc(bytes));
    part->rope_sin = must_have(malloc(bytes));
    for (int32_t i = 0; i < positions * pairs; i++) {
        const double turn = i / pairs * pow(10000, -(double)(i % pairs) / pairs);
        part->rope_cos[i] = (float)cos(turn);
        part->rope_sin[i] = (float)sin(turn);
    }
}

static struct pkv_attn_constants constants_of(const struct part *part)
{
    static const float scale = 1.0f / 127.0f;
    struct pkv_attn_constants constants = {0};
    if (is_quantised(part->shape)) {
        constants.k_scale = constants.v_scale = &scale;
        constants.k_scale_count = constants.v_scale_count = 1;
    }
    if (part->shape->has_rope) {
        constants.rope_cos = part->rope_cos;
        constants.rope_sin = part->rope_sin;
        constants.rope_positions = part->shape->length + part->shape->num_decodes;
        constants.rope_width = part->shape->width / 2;
    }
    return constants;
}

/* Where a share begins and ends. */
static void set_bounds(struct part *part, int index, int count)
{
    const struct shape *shape = part->shape;
    const int32_t size = shape->block_size;
    const int32_t blocks = (shape->length + size - 1) / size;
    part->begin = (int32_t)((int64_t)blocks * index / count) * size;
    part->end = (int32_t)((int64_t)blocks * (index + 1) / count) * size;
    if (index + 1 == count) {
        part->end = larger(part->end, shape->length + shape->num_decodes);
    }
    part->max_blocks = (part->end - part->begin + size - 1) / size;
}

struct part part_within(const struct part *whole, int index, int count)
{
    struct part part = *whole;
    set_bounds(&part, index, count);
    part.table = whole->table + part.begin / whole->shape->block_size;
    return part;
}

void part_create(const struct shape *shape, pkv_workspace *workspace, int index, int count,
                 struct part *part)
{
    *part = (struct part){.shape = shape, .workspace = workspace};
    set_bounds(part, index, count);
    part->num_blocks = part->max_blocks;
    const size_t cells = (size_t)part->num_blocks * (size_t)shape->block_size;
    const size_t channels = (size_t)shape->kv_heads * (size_t)shape->width;
    const size_t bytes = cells * channels * pkv_dtype_bytes(shape->cache_dtype);
    part->k = must_have(malloc(bytes + 1));
    part->v = must_have(malloc(bytes + 1));
    part->table = must_have(calloc((size_t)part->num_blocks + 1, sizeof *part->table));
    memset(part->k, 0xff, bytes); /* NaN where nothing was appended */
    memset(part->v, 0xff, bytes);
    for (int32_t i = 0; i < part->num_blocks; i++) {
        part->table[i] = part->num_blocks - 1 - i;
    }
    if (shape->has_rope) {
        make_rope(part);
    }
}

void part_free(struct part *part)
{
    free(part->k);
    free(part->v);
    free(part->table);
    free(part->rope_cos);
    free(part->rope_sin);
    *part = (struct part){0};
}

/* A call over the part's first *num_keys keys. Its queries, or new tokens, are those from position
 * first on. */
static struct pkv_gqa_args args_of(const struct part *part, int32_t first, int32_t num_tokens,
                                   const int32_t *cu_seqlens_q, const int32_t *num_keys,
                                   int64_t *positions)
{
    const struct shape *shape = part->shape;
    struct pkv_gqa_args args = {.size = sizeof args,
                                .form = PKV_CACHE_PAGED,
                                .dtype = shape->dtype,
                                .num_heads = shape->num_heads,
                                .kv_heads = shape->kv_heads,
                                .k_width = shape->width,
                                .batch = 1,
                                .num_tokens = num_tokens,
                                .cu_seqlens_q = cu_seqlens_q,
                                .kv_lens = num_keys,
                                .block_table = part->table,
                                .max_blocks = part->max_blocks,
                                .constants = constants_of(part)};
    args.past = (struct pkv_kv_view){.k = part->k,
                                     .v = part->v,
                                     .k_dtype = shape->cache_dtype,
                                     .v_dtype = shape->cache_dtype,
                                     .num_blocks = part->num_blocks,
                                     .kv_heads = shape->kv_heads,
                                     .block_size = shape->block_size,
                                     .k_width = shape->width};
    for (int32_t i = 0; i < num_tokens; i++) {
        positions[i] = first + i;
    }
    args.position_ids = shape->has_rope ? positions : NULL;
    return args;
}

static void append_some(struct part *part, int32_t first, int32_t num_tokens, void *k, void *v)
{
    const struct shape *shape = part->shape;
    const int32_t channels = shape->kv_heads * shape->width;
    const int32_t cu_seqlens_q[2] = {0, num_tokens};
    const int32_t num_keys = first + num_tokens - part->begin;
    int64_t positions[MAX_APPEND];
    struct pkv_gqa_args args = args_of(part, first, num_tokens, cu_seqlens_q, &num_keys, positions);
    make_tokens(shape, KEY, first, num_tokens, channels, k);
    make_tokens(shape, VALUE, first, num_tokens, channels, v);
    args.k = k;
    args.v = v;
    must(pkv_append(part->workspace, &args));
}

void part_append(struct part *part, int32_t first, int32_t end)
{
    const size_t bytes = (size_t)part->shape->kv_heads * (size_t)part->shape->width * sizeof(float);
    void *k = must_have(malloc(MAX_APPEND * bytes));
    void *v = must_have(malloc(MAX_APPEND * bytes));
    end = smaller(end, part->end);
    for (int32_t at = larger(first, part->begin); at < end; at += MAX_APPEND) {
        append_some(part, at, smaller(end - at, MAX_APPEND), k, v);
    }
    free(k);
    free(v);
}

/* --- attention */

/* One byte for each query and key; 0 hides the key. Past the part's end causality hides none. */
static int8_t *make_mask(const struct part *part, int32_t first, int32_t num_queries,
                         int32_t num_keys)
{
    const struct shape *shape = part->shape;
    int8_t *mask = must_have(malloc((size_t)num_queries * (size_t)num_keys));
    for (int32_t i = 0; i < num_queries; i++) {
        for (int32_t j = 0; j < num_keys; j++) {
            const int32_t key = part->begin + j;
            mask[(size_t)i * (size_t)num_keys + (size_t)j] =
                key < shape->kept_prefix || key > first + i - shape->window;
        }
    }
    return mask;
}

/* Queries whose own keys are the part's last ones. */
static void attend_inside(const struct part *part, struct pkv_gqa_args *args)
{
    const int64_t kept = larger(0, part->shape->kept_prefix - part->begin);
    args->sliding_window = part->shape->window;
    args->kept_prefix = &kept;
    args->kept_prefix_count = 1;
    must(pkv_attention_over_cache(part->workspace, args));
}

/* Queries behind the part. */
static void attend_behind(const struct part *part, int32_t first, struct pkv_gqa_args *args)
{
    int8_t *mask = NULL;
    args->not_causal = true;
    if (part->shape->window > 0) {
        mask = make_mask(part, first, args->num_tokens, *args->kv_lens);
        args->attn_mask = mask;
        args->mask_dtype = PKV_INT8;
        args->mask_batch = args->mask_heads = 1;
        args->mask_queries = args->num_tokens;
        args->mask_keys = *args->kv_lens;
    }
    must(pkv_attention_over_cache(part->workspace, args));
    free(mask);
}

void part_attend(const struct part *part, int32_t length, int32_t num_queries, const void *q,
                 const float *head_sink, const struct pkv_state *state)
{
    const struct shape *shape = part->shape;
    const size_t row = (size_t)shape->num_heads * (size_t)shape->width;
    const int32_t first = length - num_queries;
    const int32_t num_keys = smaller(part->end, length) - part->begin;
    /* The first query that is not in front of the part, and the first one behind it. */
    const int32_t inside = smaller(larger(part->begin - first, 0), num_queries);
    const int32_t behind = smaller(larger(part->begin + num_keys - first, 0), num_queries);
    int64_t *positions = must_have(malloc((size_t)num_queries * sizeof *positions));
    if (num_keys <= 0) {
        clear_state(shape, state, num_queries);
        free(positions);
        return;
    }
    clear_state(shape, state, inside);
    const int32_t ends[] = {inside, behind, num_queries};
    for (int32_t i = 0; i < 2; i++) {
        const int32_t from = ends[i], num_tokens = ends[i + 1] - from;
        const int32_t cu_seqlens_q[2] = {0, num_tokens};
        struct pkv_gqa_args args =
            args_of(part, first + from, num_tokens, cu_seqlens_q, &num_keys, positions);
        const struct pkv_state some = state_from(shape, state, from);
        args.q = (const char *)q + (size_t)from * row * pkv_dtype_bytes(shape->dtype);
        args.out = some.out;
        args.lse = some.lse;
        args.constants.head_sink = head_sink;
        args.constants.head_sink_count = head_sink != NULL ? shape->num_heads : 0;
        if (num_tokens > 0 && i == 0) {
            attend_inside(part, &args);
        } else if (num_tokens > 0) {
            attend_behind(part, first + from, &args);
        }
    }
    free(positions);
}
