/* SPDX-License-Identifier: MIT
 *
 * tile.c: a tile's arithmetic and the choice of how its cells are read. Converting first (staging)
 * is exact, so it never shows in the bits: it only moves work from register blocks to one pass. */
#include "attn/tile.h"

#include "attn/view.h"
#include "base/minmax.h"

/* From how many query rows on a tile is converted to f32 once, instead of in every register block.
 * e4m3 is expensive to convert, so this pays as soon as there is more than a wide block. */
#define STAGE_QUERIES 64
#define STAGE_E4M3_QUERIES 9

void tile_gather(const struct run *run, const struct gqa_row *row, int32_t head, int32_t from,
                 int32_t to, struct tile *tile)
{
    const struct gqa_shape *shape = &run->plan->shape;
    const struct pkv_kv_view *cache = &run->layer->cache;
    const size_t k_step = cache->k_cell_stride * pkv_dtype_bytes(cache->k_dtype);
    const size_t v_step = cache->v_cell_stride * pkv_dtype_bytes(cache->v_dtype);
    for (int32_t key = from; key < to;) {
        const int32_t cell = key % shape->block_size;
        const int32_t run_length = min_i32(to - key, shape->block_size - cell);
        const int32_t block = gqa_row_block_of_key(row, shape->block_size, key);
        const char *k = view_key(cache, block, head, cell);
        const char *v = shape->v_in_k ? k : view_value(cache, block, head, cell);
        for (int32_t i = 0; i < run_length; i++) {
            tile->keys[tile->count] = k;
            tile->values[tile->count] = v;
            tile->count++;
            k += k_step;
            v += shape->v_in_k ? k_step : v_step;
        }
        key += run_length;
    }
}

void tile_shift(const struct run *run, const struct tile *tile, int32_t heads, struct tile *shifted)
{
    const struct pkv_kv_view *cache = &run->layer->cache;
    const size_t k_bytes = (size_t)heads * cache->k_head_stride * pkv_dtype_bytes(cache->k_dtype);
    const size_t v_bytes = run->plan->shape.v_in_k ? k_bytes
                                                   : (size_t)heads * cache->v_head_stride *
                                                         pkv_dtype_bytes(cache->v_dtype);
    for (int32_t j = 0; j < tile->count; j++) {
        shifted->keys[j] = (const char *)tile->keys[j] + k_bytes;
        shifted->values[j] = (const char *)tile->values[j] + v_bytes;
    }
    shifted->count = tile->count;
}

/* A tile as the kernels are to read it: where it lies, or converted in scratch. */
struct operands {
    const void *const *keys;
    const void *const *values;
    enum pkv_dtype k_dtype;
    enum pkv_dtype v_dtype;
    int num_keys;
};

/* Key or value vectors in f32, once for many queries. */
static void stage_f32(const struct run *run, enum pkv_dtype dtype, const void *const *vectors,
                      int count, int32_t width, float *memory, const void **staged)
{
    const size_t stride = padded((size_t)width);
    for (int j = 0; j < count; j++) {
        float *to = memory + (size_t)j * stride;
        run->kernels->widen(dtype, vectors[j], (size_t)width, to);
        staged[j] = to;
    }
}

static bool is_worth_staging(enum pkv_dtype dtype, int num_queries)
{
    const int enough = dtype == PKV_E4M3 ? STAGE_E4M3_QUERIES : STAGE_QUERIES;
    return dtype != PKV_F32 && num_queries >= enough;
}

/* Chooses between reading a tile in place and converting it first. staged holds the pointers. */
static struct operands stage(const struct run *run, int num_queries, const struct tile *tile,
                             const struct scratch *s, struct tile *staged)
{
    const struct gqa_shape *shape = &run->plan->shape;
    struct operands o = {
        .keys = tile->keys,
        .values = tile->values,
        .k_dtype = run->layer->cache.k_dtype,
        .v_dtype = run->v_dtype,
        .num_keys = tile->count,
    };
    if (is_worth_staging(o.k_dtype, num_queries) && run->packed_parts == 0) {
        stage_f32(run, o.k_dtype, o.keys, o.num_keys, shape->k_width, s->keys, staged->keys);
        o.keys = staged->keys;
        o.k_dtype = PKV_F32;
    }
    if (is_worth_staging(o.v_dtype, num_queries)) {
        stage_f32(run, o.v_dtype, o.values, o.num_keys, shape->v_width, s->values, staged->values);
        o.values = staged->values;
        o.v_dtype = PKV_F32;
    }
    return o;
}

/* What may come between a score and its softmax: scale, cap, bias. Returns the scale that is left
 * to the softmax. */
static float adjust_scores(const struct run *run, size_t num_queries, size_t num_keys,
                           const float *bias, float *scores)
{
    const float softcap = run->constants->softcap;
    if (softcap == 0.0f && bias == NULL) {
        return run->logit_scale;
    }
    for (size_t i = 0; i < num_queries; i++, scores += TILE_KEYS) {
        run->kernels->scale(scores, num_keys, run->logit_scale);
        if (softcap > 0.0f) {
            run->kernels->softcap(scores, num_keys, softcap);
        }
        for (size_t j = 0; bias != NULL && j < num_keys; j++) {
            scores[j] += bias[j];
        }
    }
    return 1.0f;
}

static void dot_tile(const struct run *run, int num_queries, const struct operands *o,
                     const struct tile *next, const struct scratch *s)
{
    const size_t width = (size_t)run->plan->shape.k_width;
    const struct kernel_dot_job job = {
        .dtype = o->k_dtype,
        .q_parts = run->packed_parts,
        .q = s->q,
        .q_stride = s->q_stride,
        .keys = o->keys,
        .num_queries = num_queries,
        .num_keys = o->num_keys,
        .width = width,
        .scores = s->scores,
        .prefetch = {.vectors = next != NULL ? next->keys : NULL,
                     .vector_bytes = width * pkv_dtype_bytes(run->layer->cache.k_dtype)},
    };
    if (run->packed_parts > 0) {
        run->kernels->dot_packed(&job);
    } else {
        run->kernels->dot(&job);
    }
}

static void sum_tile(const struct run *run, int num_queries, const struct operands *o,
                     const struct tile *next, const struct scratch *s)
{
    const size_t width = (size_t)run->plan->shape.v_width;
    const struct kernel_weighted_sum_job job = {
        .dtype = o->v_dtype,
        .weights = s->scores,
        .alpha = s->alpha,
        .values = o->values,
        .num_queries = num_queries,
        .num_keys = o->num_keys,
        .width = width,
        .acc = s->acc,
        .acc_stride = s->acc_stride,
        .prefetch = {.vectors = next != NULL ? next->values : NULL,
                     .vector_bytes = width * pkv_dtype_bytes(run->v_dtype)},
    };
    run->kernels->weighted_sum(&job);
}

void tile_attend(const struct run *run, size_t num_query_rows, const struct tile *tile,
                 const struct tile *next, const float *bias, const struct scratch *s)
{
    const int num_queries = (int)num_query_rows;
    struct tile staged;
    const struct operands o = stage(run, num_queries, tile, s, &staged);
    dot_tile(run, num_queries, &o, next, s);
    const float scale = adjust_scores(run, num_query_rows, (size_t)o.num_keys, bias, s->scores);
    const struct kernel_softmax_job softmax = {
        .scores = s->scores,
        .num_queries = num_queries,
        .num_keys = o.num_keys,
        .scale = scale,
        .max = s->max,
        .sum = s->sum,
        .alpha = s->alpha,
    };
    run->kernels->softmax(&softmax);
    sum_tile(run, num_queries, &o, next, s);
}
