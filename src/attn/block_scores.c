/* SPDX-License-Identifier: MIT
 *
 * block_scores.c: a bound is a dot product. With q cut into what is below 0 and what is not,
 *
 *     sum of (q < 0 ? q * min : q * max)  =  (q-, q+) . (min, max)
 *
 * Rounding. Each channel is in one term that is not 0. A term is rounded as a product, in at most
 * k_width / 16 + 1 additions to one of 16 lanes, in 4 of lanes, and when slack is added; a
 * quantised key was rounded when it became f32, and the bound twice when it was moved. That is at
 * most k_width / 16 + 10 roundings of 2^-24 each. So minima are moved down and maxima up by twice
 * that, relative to themselves, and every term counts for more than it can lose. What a number
 * below 2^-126 loses is absolute, at most 2^-149 a channel and as much times |q|: that is slack. */
#include "attn/block_scores.h"

#include <math.h>
#include <string.h>

#include "attn/prepare.h"

#define LANES 16 /* of the kernel */

/* Floats of a block in one KV head. */
static size_t vector_floats(const struct run *run)
{
    return 2 * (size_t)run->plan->shape.k_width;
}

void block_scores_start(struct block_scores *s)
{
    s->q_stride = 2 * padded((size_t)s->run->plan->shape.k_width);
}

void block_scores_carve(const struct block_scores *s, struct carver *carver,
                        struct block_scratch *scratch)
{
    const size_t width = (size_t)s->run->plan->shape.k_width;
    const size_t num_heads = (size_t)s->run->layer->num_heads;
    *scratch = (struct block_scratch){
        .head = carve(carver, width, sizeof(float)),
        .spare = carve(carver, width, sizeof(float)),
        .q = carve(carver, num_heads, s->q_stride * sizeof(float)),
        .slack = carve(carver, num_heads, sizeof(float)),
        .best = carve(carver, (size_t)s->run->plan->shape.kv_heads, sizeof(float)),
        .row = -1,
    };
}

/* One query head as pkv_gqa has it, in its two parts. NaN is a part that is not below 0. */
static void load_head(const struct block_scores *s, const struct gqa_row *row, int32_t query,
                      int32_t head, struct block_scratch *scratch)
{
    const struct gqa_layer *layer = s->run->layer;
    const struct pkv_attn_constants *c = s->run->constants;
    const size_t width = (size_t)s->run->plan->shape.k_width;
    const size_t at = (size_t)(row->q_begin + query) * layer->q_stride + (size_t)head * width;
    const int64_t position = run_position(s->run, row, gqa_row_past(row) + query);
    const float sign = c->q_scale != NULL && *c->q_scale < 0 ? -1.0f : 1.0f;
    float *below = scratch->q + (size_t)head * s->q_stride;
    float *above = below + padded(width);
    float size = (float)(2 * width);
    s->run->kernels->widen(layer->dtype,
                           (const char *)layer->q + at * pkv_dtype_bytes(layer->dtype), width,
                           scratch->head);
    prepare_head(s->run, scratch->head, position, c->q_norm_gain, c->q_norm_gain_dtype,
                 scratch->spare);
    for (size_t i = 0; i < width; i++) {
        const float x = sign * scratch->head[i];
        below[i] = x < 0 ? x : 0;
        above[i] = x < 0 ? 0 : x;
        size += fabsf(x);
    }
    memset(below + width, 0, (padded(width) - width) * sizeof below[0]);
    memset(above + width, 0, (padded(width) - width) * sizeof above[0]);
    scratch->slack[head] = size * 0x1p-148f;
}

/* Unless the scratch has the query from the range before. */
static void load_query(const struct block_scores *s, int32_t b, int32_t query,
                       struct block_scratch *scratch)
{
    if (scratch->row == b && scratch->query == query) {
        return;
    }
    for (int32_t h = 0; h < s->run->layer->num_heads; h++) {
        load_head(s, &s->run->rows[b], query, h, scratch);
    }
    scratch->row = b;
    scratch->query = query;
}

/* Where the bounds of the row's block n begin; NULL where it is not mapped, or beyond the range. */
static const float *bounds_of(const struct block_scores *s, const struct gqa_row *row, int32_t n,
                              int32_t end)
{
    const size_t floats = (size_t)s->run->plan->shape.kv_heads * vector_floats(s->run);
    const size_t slot = (size_t)row->block * (size_t)s->slot_blocks;
    if (n >= end || (row->table != NULL && row->table[n] < 0)) {
        return NULL;
    }
    return s->bounds + (row->table != NULL ? (size_t)row->table[n] : slot + (size_t)n) * floats;
}

/* Fills scratch->best; next is what will be read after bounds, or NULL. */
static void bound_block(const struct block_scores *s, const struct block_scratch *scratch,
                        const float *bounds, const float *next)
{
    const size_t width = (size_t)s->run->plan->shape.k_width;
    const struct kernel_bound_job job = {
        .q = scratch->q,
        .q_stride = s->q_stride,
        .slack = scratch->slack,
        .num_heads = s->run->plan->shape.kv_heads,
        .num_queries = s->run->heads_per_kv,
        .width = width,
        .bounds = bounds,
        .next = next,
        .share = (float)(width / LANES + 10) * 0x1p-23f,
        .best = scratch->best,
    };
    s->run->kernels->bound(&job);
}

/* The query in scratch against the range's blocks. */
static void score_query(const struct block_scores *s, const struct block_range *range,
                        const struct block_scratch *scratch)
{
    const struct gqa_row *row = &s->run->rows[range->row];
    const int32_t heads = s->run->plan->shape.kv_heads, list_heads = heads / s->num_lists;
    const float *bounds = bounds_of(s, row, range->first, range->end);
    for (int32_t n = range->first; n < range->end; n++) {
        const float *next = bounds_of(s, row, n + 1, range->end);
        if (bounds != NULL) {
            bound_block(s, scratch, bounds, next);
        }
        for (int32_t h = 0; bounds != NULL && h < heads; h++) {
            float *score = &range->scores[(size_t)(h / list_heads) * range->stride + (size_t)n];
            *score = scratch->best[h] > *score ? scratch->best[h] : *score;
        }
        bounds = next;
    }
}

void block_scores_range(const struct block_scores *s, const struct block_range *range,
                        struct block_scratch *scratch)
{
    for (int32_t i = 0; i < s->num_lists; i++) {
        for (int32_t n = range->first; n < range->end; n++) {
            range->scores[(size_t)i * range->stride + (size_t)n] = -INFINITY;
        }
    }
    for (int32_t q = 0; q < s->run->rows[range->row].q_len; q++) {
        load_query(s, range->row, q, scratch);
        score_query(s, range, scratch);
    }
}
