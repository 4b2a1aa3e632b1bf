/* SPDX-License-Identifier: MIT
 *
 * rank_case.c: see rank_case.h. */
#include "support/rank_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/reference.h"

enum { ROPE_POSITIONS = 64 };

/* Numbers of a kind that the seed chooses: of one size; that cancel each other; of many sizes. */
static double number(struct test_random *random, int kind, int32_t channel)
{
    const double x = random_unit(random);
    if (kind == 1) {
        return (channel % 2 ? -1.0 : 1.0) * (50 + x);
    }
    return kind == 2 ? x * exp2(random_between(random, -9, 5)) : x;
}

static void make_keys(struct rank_case *c, struct test_random *random, int kind)
{
    const struct pkv_kv_view *view = &c->view;
    const int32_t vectors = view->num_blocks * view->kv_heads * view->block_size;
    const bool is_quantised = pkv_dtype_bytes(view->k_dtype) == 1;
    c->view.k = reference_alloc((size_t)vectors * (size_t)c->width, pkv_dtype_bytes(view->k_dtype));
    for (int32_t n = 0; n < view->num_blocks; n++) {
        c->num_keys[n] = random_between(random, 1, view->block_size);
    }
    for (int32_t at = 0; at < vectors * c->width; at++) {
        const int32_t cell = at / c->width % view->block_size;
        const int32_t block = at / c->width / view->block_size / view->kv_heads;
        const double x = number(random, kind, at % c->width);
        ref_store(view->k_dtype, c->view.k, (size_t)at,
                  cell >= c->num_keys[block]  ? (double)NAN
                  : view->k_dtype == PKV_INT8 ? rint(2 * x)
                                              : x);
    }
    c->args.constants.k_scale_count = !is_quantised                  ? 0
                                      : random_between(random, 0, 1) ? 1
                                                                     : view->kv_heads * c->width;
    c->scale = reference_alloc((size_t)c->args.constants.k_scale_count + 1, sizeof(float));
    for (int32_t i = 0; i < c->args.constants.k_scale_count; i++) {
        c->scale[i] = (float)exp2(3 * random_unit(random));
    }
    c->args.constants.k_scale = is_quantised ? c->scale : NULL;
}

static void make_row(struct rank_case *c, struct test_random *random, int32_t b)
{
    const int32_t q_len = random_between(random, b == 0 ? 1 : 0, 3);
    const int32_t capacity = c->max_blocks * c->block_size;
    int32_t *table = c->table + b * c->max_blocks;
    c->cu_seqlens[b + 1] = c->cu_seqlens[b] + q_len;
    c->kv_lens[b] = random_between(random, q_len < capacity ? q_len : capacity, capacity);
    const int32_t blocks = (c->kv_lens[b] + c->block_size - 1) / c->block_size;
    c->num_candidates[b] = q_len == 0 ? 0 : random_between(random, blocks / 2, blocks);
    for (int32_t n = 0; n < c->max_blocks; n++) {
        const bool is_mapped = random_between(random, 0, 9) > 0;
        table[n] = is_mapped ? random_between(random, 0, c->view.num_blocks - 1) : -1;
        table[n] = n < c->num_candidates[b] ? table[n] : 1 << 30;
    }
}

static void make_queries(struct rank_case *c, struct test_random *random, int kind)
{
    const int32_t channels = c->args.num_tokens * c->args.num_heads * c->width;
    c->q = reference_alloc((size_t)channels + 1, pkv_dtype_bytes(c->args.dtype));
    for (int32_t at = 0; at < channels; at++) {
        ref_store(c->args.dtype, c->q, (size_t)at, number(random, kind, 0));
    }
    for (int32_t t = 0; t < RANK_MAX_TOKENS; t++) {
        c->positions[t] = random_between(random, 0, ROPE_POSITIONS - 1);
    }
}

static void set_args(struct rank_case *c, int32_t group, int32_t batch)
{
    struct pkv_gqa_args *args = &c->args;
    args->size = sizeof *args;
    args->form = PKV_CACHE_PAGED;
    args->kv_heads = c->view.kv_heads;
    args->num_heads = group * c->view.kv_heads;
    args->k_width = c->width;
    args->v_in_k = true;
    args->batch = batch;
    args->num_selected_lists = batch * c->num_lists;
    args->cu_seqlens_q = c->cu_seqlens;
    args->kv_lens = c->kv_lens;
    args->block_table = c->table;
    args->max_blocks = c->max_blocks;
    c->rank = (struct pkv_rank_args){.size = sizeof c->rank,
                                     .num_candidates = c->num_candidates,
                                     .selected = c->selected,
                                     .cu_selected = c->cu_selected,
                                     .scores = c->scores};
}

void rank_case_make(struct rank_case *c, uint64_t seed, enum pkv_dtype k_dtype)
{
    static const int32_t widths[] = {2, 3, 8, 17, 64, 100};
    struct test_random random = {seed};
    const int kind = random_between(&random, 0, 2);
    memset(c, 0, sizeof *c);
    c->width = widths[random_between(&random, 0, 5)];
    c->block_size = random_between(&random, 0, 1) ? 1 : random_between(&random, 2, 8);
    c->max_blocks = random_between(&random, 3, RANK_MAX_BLOCKS);
    c->view = (struct pkv_kv_view){.k_dtype = k_dtype,
                                   .num_blocks = random_between(&random, 1, RANK_MAX_BLOCKS),
                                   .kv_heads = random_between(&random, 1, RANK_MAX_HEADS),
                                   .block_size = c->block_size,
                                   .k_width = c->width};
    c->num_lists = random_between(&random, 0, 1) ? 1 : c->view.kv_heads;
    set_args(c, random_between(&random, 1, 4), random_between(&random, 1, RANK_MAX_ROWS));
    c->args.dtype = (enum pkv_dtype)random_between(&random, PKV_F32, PKV_BF16);
    c->rank.max_selected = random_between(&random, 1, 12);
    make_keys(c, &random, kind);
    for (int32_t b = 0; b < c->args.batch; b++) {
        make_row(c, &random, b);
    }
    c->args.num_tokens = c->cu_seqlens[c->args.batch];
    make_queries(c, &random, kind == 1 ? 0 : kind);
    c->args.q = c->q;
    c->args.past = c->view;
    c->bounds = reference_alloc((size_t)(c->view.num_blocks * c->view.kv_heads * 2 * c->width),
                                sizeof(float));
    c->rank.bounds = c->bounds;
}

void rank_case_free(struct rank_case *c)
{
    free(c->view.k);
    free(c->scale);
    free(c->bounds);
    free(c->q);
    free(c->norm_weight);
    free(c->cos_sin);
}

bool rank_case_run(struct rank_case *c, pkv_workspace *workspace)
{
    const struct pkv_attn_constants *constants = &c->args.constants;
    for (size_t i = 0; i < sizeof c->scores / sizeof c->scores[0]; i++) {
        c->scores[i] = NAN;
    }
    for (int32_t n = 0; n < c->view.num_blocks; n++) {
        if (pkv_block_bounds(workspace, &c->view, constants->k_scale, constants->k_scale_count, &n,
                             1, c->num_keys[n], c->bounds) != PKV_OK) {
            return false;
        }
    }
    return pkv_block_rank(workspace, &c->args, &c->rank) == PKV_OK;
}

void rank_case_use_rope_and_norm(struct rank_case *c)
{
    const size_t half = (size_t)c->width / 2;
    const size_t table = ROPE_POSITIONS * half;
    c->cos_sin = reference_alloc(2 * table, sizeof(float));
    c->norm_weight = reference_alloc((size_t)c->width, sizeof(float));
    for (size_t at = 0; at < table; at++) {
        const double angle = (double)(at / half) * pow(100, -(double)(at % half) / (double)half);
        c->cos_sin[at] = (float)cos(angle);
        c->cos_sin[table + at] = (float)sin(angle);
    }
    for (int32_t i = 0; i < c->width; i++) {
        c->norm_weight[i] = 1 + 0.125f * (float)(i % 5);
    }
    c->rope = c->args.constants;
    c->rope.rope_cos = c->cos_sin;
    c->rope.rope_sin = c->cos_sin + table;
    c->rope.rope_positions = ROPE_POSITIONS;
    c->rope.rope_width = (int32_t)half;
    c->rope.q_norm_gain = c->norm_weight;
    c->rope.q_norm_gain_count = c->width;
    c->rope.qk_norm_eps = 1e-5f;
    c->args.constants = c->rope;
    c->args.position_ids = c->positions;
}

/* Stored as keys of as many KV heads, cell by cell, which is [tokens][num_heads][width]. */
float *rank_case_prepared_queries(const struct rank_case *c, pkv_workspace *workspace)
{
    struct pkv_gqa_args args = {.size = sizeof args,
                                .form = PKV_CACHE_DENSE,
                                .dtype = c->args.dtype,
                                .num_heads = c->args.num_heads,
                                .kv_heads = c->args.num_heads,
                                .k_width = c->width,
                                .v_in_k = true,
                                .batch = 1,
                                .num_tokens = c->args.num_tokens};
    const int32_t cu_seqlens[] = {0, args.num_tokens};
    const size_t token = (size_t)(args.num_heads * c->width);
    float *prepared = reference_alloc((size_t)args.num_tokens * token, sizeof(float));
    args.cu_seqlens_q = cu_seqlens;
    args.kv_lens = &args.num_tokens;
    args.k = c->q;
    args.position_ids = c->positions;
    args.constants = c->rope;
    args.constants.k_norm_gain = c->rope.q_norm_gain;
    args.constants.k_norm_gain_count = c->rope.q_norm_gain_count;
    args.past = (struct pkv_kv_view){.k = prepared,
                                     .k_dtype = PKV_F32,
                                     .num_blocks = 1,
                                     .kv_heads = args.num_heads,
                                     .block_size = args.num_tokens,
                                     .k_width = c->width,
                                     .k_head_stride = (size_t)c->width,
                                     .k_cell_stride = token,
                                     .k_block_stride = token * (size_t)args.num_tokens};
    ASSERT_STATUS(PKV_OK, pkv_append(workspace, &args));
    return prepared;
}

int32_t rank_case_block(const struct rank_case *c, int32_t b, int32_t n)
{
    return c->table[b * c->max_blocks + n];
}

const float *rank_case_scores(const struct rank_case *c, int32_t b, int32_t list)
{
    return c->scores + (b * c->num_lists + list) * c->max_blocks;
}

bool rank_case_is_chosen(const struct rank_case *c, int32_t i, int32_t n)
{
    for (int32_t at = c->cu_selected[i]; at < c->cu_selected[i + 1]; at++) {
        if (c->selected[at] == n) {
            return true;
        }
    }
    return false;
}

/* One query head against one block: q [width] from element `at` on. */
static struct rank_truth truth_of(const struct rank_case *c, size_t at, int32_t block, int32_t head)
{
    const size_t width = (size_t)c->width;
    const size_t vectors = (size_t)(block * c->view.kv_heads + head);
    const float *bounds = c->bounds + vectors * 2 * width;
    struct rank_truth truth = {.largest_product = -INFINITY};
    for (int32_t cell = 0; cell < c->num_keys[block]; cell++) {
        const size_t key = (vectors * (size_t)c->block_size + (size_t)cell) * width;
        double product = 0;
        for (size_t i = 0; i < width; i++) {
            const size_t channel =
                c->args.constants.k_scale_count > 1 ? (size_t)head * width + i : 0;
            const double scale = c->args.constants.k_scale != NULL ? (double)c->scale[channel] : 1;
            product += ref_load(c->args.dtype, c->q, at + i) * scale *
                       ref_load(c->view.k_dtype, c->view.k, key + i);
        }
        truth.largest_product = fmax(truth.largest_product, product);
    }
    for (size_t i = 0; i < width; i++) {
        const double q = ref_load(c->args.dtype, c->q, at + i);
        const double term = q * (double)bounds[q < 0 ? i : width + i];
        truth.bound += term;
        truth.size += fabs(term);
    }
    return truth;
}

struct rank_truth rank_case_truth(const struct rank_case *c, int32_t b, int32_t list, int32_t n)
{
    const int32_t group = c->args.num_heads / c->args.kv_heads;
    const int32_t heads = c->args.num_heads / c->num_lists;
    struct rank_truth all = {.largest_product = -INFINITY, .bound = -INFINITY};
    for (int32_t t = c->cu_seqlens[b]; t < c->cu_seqlens[b + 1]; t++) {
        for (int32_t h = list * heads; h < (list + 1) * heads; h++) {
            const size_t at = (size_t)((t * c->args.num_heads + h) * c->width);
            const struct rank_truth one = truth_of(c, at, rank_case_block(c, b, n), h / group);
            all.largest_product = fmax(all.largest_product, one.largest_product);
            all.bound = fmax(all.bound, one.bound);
            all.size = fmax(all.size, one.size);
        }
    }
    return all;
}

/* The blocks of a slot as a view of their own. */
static struct pkv_kv_view slot_view(const struct pkv_gqa_args *args, int32_t slot)
{
    struct pkv_kv_view view = reference_view(args->past);
    view.k = (char *)view.k + (size_t)slot * view.k_block_stride * pkv_dtype_bytes(view.k_dtype);
    view.num_blocks = view.block_size / args->selection_size;
    view.block_size = args->selection_size;
    view.k_block_stride = (size_t)view.block_size * view.k_cell_stride;
    return view;
}

/* Bounds of block n of row b. */
static void bound_block(const struct pkv_gqa_args *args, pkv_workspace *workspace, int32_t b,
                        int32_t n, float *bounds)
{
    const struct pkv_attn_constants *c = &args->constants;
    const int32_t size = args->selection_size;
    const int32_t slot = args->slot_ids != NULL ? args->slot_ids[b] : b;
    const bool is_paged = args->form == PKV_CACHE_PAGED;
    const struct pkv_kv_view view = is_paged ? args->past : slot_view(args, slot);
    const int32_t slot_blocks = (args->past.block_size + size - 1) / size;
    const size_t block_floats = (size_t)(args->kv_heads * 2 * args->k_width);
    const int32_t block = is_paged ? args->block_table[b * args->max_blocks + n] : n;
    float *to = is_paged ? bounds : bounds + (size_t)(slot * slot_blocks) * block_floats;
    ASSERT_STATUS(PKV_OK, pkv_block_bounds(workspace, &view, c->k_scale, c->k_scale_count, &block,
                                           1, size, to));
}

void rank_case_of_call(const struct pkv_gqa_args *args, pkv_workspace *workspace, int32_t most,
                       int32_t *selected, int32_t *cu_selected)
{
    const int32_t size = args->selection_size;
    const int32_t slots = args->form == PKV_CACHE_PAGED ? 1 : (args->past.block_size + size) / size;
    const size_t count = (size_t)args->past.num_blocks * (size_t)slots *
                         (size_t)(args->kv_heads * 2 * args->k_width);
    float *bounds = reference_alloc(count, sizeof(float));
    for (size_t i = 0; i < count; i++) {
        bounds[i] = NAN;
    }
    for (int32_t b = 0; b < args->batch; b++) {
        const int32_t *cu = args->cu_seqlens_q;
        const int32_t q_len = cu != NULL ? cu[b + 1] - cu[b] : 1;
        for (int32_t n = 0; q_len > 0 && n < (args->kv_lens[b] - q_len) / size; n++) {
            bound_block(args, workspace, b, n, bounds);
        }
    }
    const struct pkv_rank_args rank = {.size = sizeof rank,
                                       .bounds = bounds,
                                       .max_selected = most,
                                       .selected = selected,
                                       .cu_selected = cu_selected};
    ASSERT_STATUS(PKV_OK, pkv_block_rank(workspace, args, &rank));
    free(bounds);
}
