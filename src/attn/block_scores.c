/* SPDX-License-Identifier: MIT
 *
 * block_scores.c: a bound is a dot product. With q cut into what is below 0 and what is not,
 *
 *     sum of (q < 0 ? q * min : q * max)  =  (q-, q+) . (min, max)
 *
 * so blocks are scored by the kernel that scores keys, the one without instruction sets, whose bits
 * are the same everywhere.
 *
 * Rounding. Each channel is in one term that is not 0. A term is rounded as a product, in at most
 * k_width / 2 + 1 additions to one of four lanes, in 2 of lanes, and when slack is added; a
 * quantised key was rounded when it became f32, and the bound when it was moved. That is below
 * k_width / 2 + 8 roundings of 2^-24 each. So minima are moved down and maxima up by twice that,
 * relative to themselves, and every term counts for more than it can lose. What a number below
 * 2^-126 loses is absolute, at most 2^-149 a channel and as much times |q|: that is slack. */
#include "attn/block_scores.h"

#include <math.h>
#include <string.h>

#include "attn/prepare.h"
#include "base/carve.h"

/* Moved bounds that stay in the first-level cache until they are multiplied, and blocks that the
 * kernel multiplies at once. */
#define TILE_BYTES 32768
#define MIN_TILE_BLOCKS 4

static size_t vector_floats(const struct run *run)
{
    return 2 * (size_t)run->plan->shape.k_width;
}

static size_t block_floats(const struct run *run)
{
    return (size_t)run->plan->shape.kv_heads * vector_floats(run);
}

bool block_scores_carve(struct block_scores *s, size_t max_candidates, void *memory, size_t *bytes)
{
    struct carver carver = {.base = memory};
    const size_t width = (size_t)s->run->plan->shape.k_width;
    const size_t num_heads = (size_t)s->run->plan->shape.max_heads;
    const size_t fits = TILE_BYTES / sizeof(float) / block_floats(s->run);
    s->tile_blocks = fits < MIN_TILE_BLOCKS ? MIN_TILE_BLOCKS
                     : fits > TILE_KEYS     ? TILE_KEYS
                                            : (int32_t)fits;
    s->q_stride = padded(vector_floats(s->run));
    s->head = carve(&carver, width, sizeof(float));
    s->spare = carve(&carver, width, sizeof(float));
    s->slack = carve(&carver, num_heads, sizeof(float));
    s->q = carve(&carver, num_heads, s->q_stride * sizeof(float));
    s->wide = carve(&carver, (size_t)s->tile_blocks, block_floats(s->run) * sizeof(float));
    s->tile = carve(&carver, num_heads, TILE_KEYS * sizeof(float));
    s->scores = carve(&carver, max_candidates, (size_t)s->num_lists * sizeof(float));
    *bytes = carver.used;
    return !carver.overflows;
}

/* One query head as pkv_gqa has it, in its two parts. NaN is a part that is not below 0. */
static void load_head(const struct block_scores *s, const struct gqa_row *row, int32_t query,
                      int32_t head)
{
    const struct gqa_layer *layer = s->run->layer;
    const struct pkv_attn_constants *c = s->run->constants;
    const size_t width = (size_t)s->run->plan->shape.k_width;
    const size_t at = (size_t)(row->q_begin + query) * layer->q_stride + (size_t)head * width;
    const int64_t position = run_position(s->run, row, gqa_row_past(row) + query);
    const float sign = c->q_scale != NULL && *c->q_scale < 0 ? -1.0f : 1.0f;
    float *below = s->q + (size_t)head * s->q_stride;
    float *above = below + width;
    float size = (float)(2 * width);
    s->run->kernels->widen(
        layer->dtype, (const char *)layer->q + at * pkv_dtype_bytes(layer->dtype), width, s->head);
    prepare_head(s->run, s->head, position, c->q_norm_gain, c->q_norm_gain_dtype, s->spare);
    for (size_t i = 0; i < width; i++) {
        const float x = sign * s->head[i];
        below[i] = x < 0 ? x : 0;
        above[i] = x < 0 ? 0 : x;
        size += fabsf(x);
    }
    memset(above + width, 0, (s->q_stride - 2 * width) * sizeof above[0]);
    s->slack[head] = size * 0x1p-148f;
}

static void load_query(const struct block_scores *s, const struct gqa_row *row, int32_t query)
{
    for (int32_t h = 0; h < s->run->layer->num_heads; h++) {
        load_head(s, row, query, h);
    }
}

/* y = x + |x| * share, for any sign of share. */
static void move(const float *x, size_t count, float share, float *y)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = x[i] + fabsf(x[i]) * share;
    }
}

static void move_apart(const struct block_scores *s, size_t block, float *wide)
{
    const size_t width = (size_t)s->run->plan->shape.k_width;
    const float share = (float)(width / 2 + 8) * 0x1p-23f;
    const float *from = s->bounds + block * block_floats(s->run);
    for (int32_t h = 0; h < s->run->plan->shape.kv_heads; h++) {
        move(from, width, -share, wide);
        move(from + width, width, share, wide + width);
        from += 2 * width;
        wide += 2 * width;
    }
}

/* The blocks of a row that are scored together. */
struct tile_blocks {
    int32_t numbers[TILE_KEYS]; /* in the row */
    int count;
};

/* The next mapped blocks from *from on. */
static struct tile_blocks next_tile(const struct block_scores *s, const struct gqa_row *row,
                                    int32_t num_candidates, int32_t *from)
{
    struct tile_blocks tile = {.count = 0};
    int32_t n = *from;
    for (; n < num_candidates && tile.count < s->tile_blocks; n++) {
        if (row->table == NULL || row->table[n] >= 0) {
            tile.numbers[tile.count++] = n;
        }
    }
    *from = n;
    return tile;
}

/* Bounds of all heads for the blocks of the tile. */
static void dot_tile(const struct block_scores *s, const struct gqa_row *row,
                     const struct tile_blocks *tile)
{
    const void *vectors[TILE_KEYS];
    for (int j = 0; j < tile->count; j++) {
        const int32_t n = tile->numbers[j];
        float *wide = s->wide + (size_t)j * block_floats(s->run);
        const size_t slot = (size_t)row->block * (size_t)s->slot_blocks;
        move_apart(s, row->table != NULL ? (size_t)row->table[n] : slot + (size_t)n, wide);
        vectors[j] = wide;
    }
    const struct kernel_dot_job job = {
        .dtype = PKV_F32,
        .q = s->q,
        .q_stride = s->q_stride,
        .keys = vectors,
        .num_groups = s->run->plan->shape.kv_heads,
        .group_rows = (size_t)s->run->heads_per_kv,
        .group_bytes = vector_floats(s->run) * sizeof(float),
        .num_queries = s->run->heads_per_kv,
        .num_keys = tile->count,
        .width = vector_floats(s->run),
        .scores = s->tile,
    };
    s->dot->dot(&job);
}

/* The largest bound of heads [head, end) for the j-th block of the tile. */
static float largest(const struct block_scores *s, int32_t head, int32_t end, int j)
{
    float best = -INFINITY;
    for (int32_t h = head; h < end; h++) {
        const float bound = s->tile[(size_t)h * TILE_KEYS + (size_t)j] + s->slack[h];
        if (!isfinite(bound)) {
            return INFINITY;
        }
        best = bound > best ? bound : best;
    }
    return best;
}

static void take_tile(const struct block_scores *s, const struct tile_blocks *tile, float *scores,
                      size_t stride)
{
    const int32_t list_heads = s->run->layer->num_heads / s->num_lists;
    for (int32_t i = 0; i < s->num_lists; i++, scores += stride) {
        for (int j = 0; j < tile->count; j++) {
            const float bound = largest(s, i * list_heads, (i + 1) * list_heads, j);
            float *score = &scores[tile->numbers[j]];
            *score = bound > *score ? bound : *score;
        }
    }
}

void block_scores_row(const struct block_scores *s, const struct gqa_row *row,
                      int32_t num_candidates, float *scores, size_t stride)
{
    for (int32_t i = 0; i < s->num_lists; i++) {
        for (int32_t n = 0; n < num_candidates; n++) {
            scores[(size_t)i * stride + (size_t)n] = -INFINITY;
        }
    }
    for (int32_t query = 0; query < row->q_len; query++) {
        load_query(s, row, query);
        for (int32_t from = 0; from < num_candidates;) {
            const struct tile_blocks tile = next_tile(s, row, num_candidates, &from);
            dot_tile(s, row, &tile);
            take_tile(s, &tile, scores, stride);
        }
    }
}
