/* SPDX-License-Identifier: MIT
 *
 * attend.c: queries of one row against its keys, one KV head at a time.
 *
 * Keys are taken in spans of SPAN_KEYS and these in tiles of TILE_KEYS, both cut at absolute key
 * indices. A span starts from the empty state (max -inf, sum 0, acc 0), runs its tiles through
 * online softmax, and is then merged into the total; spans and tiles of which a query sees nothing
 * change nothing. So each query's arithmetic is a function of its own visible keys, whoever
 * computes it.
 *
 * In a tile, the queries that see all of it go through the kernels together; each of the others
 * goes alone with the list of keys that it sees. Pointers are formed to visible keys only. */
#include <math.h>
#include <string.h>

#include "attn/run.h"
#include "attn/visible.h"

/* From how many query rows on a tile is converted to f32 once, instead of in every register block.
 */
#define STAGE_QUERY_ROWS 16

/* A worker's floats, carved for the unit at hand. Rows are (query, head of the group) pairs. */
struct scratch {
    size_t q_stride, acc_stride;
    float *q;                                         /* [rows][q_stride] */
    float *acc;                                       /* [rows][acc_stride], of the span */
    float *total;                                     /* [rows][acc_stride] */
    float *scores;                                    /* [rows][TILE_KEYS] */
    float *keys;                                      /* [TILE_KEYS][q_stride], a tile in f32 */
    float *values;                                    /* [TILE_KEYS][acc_stride] */
    float *max, *sum, *alpha, *total_max, *total_sum; /* [rows] */
    size_t end;
};

/* The keys of a tile in order, as the kernels take them. */
struct tile {
    const void *keys[TILE_KEYS];
    const void *values[TILE_KEYS];
    int32_t count;
    int64_t first; /* the key that it begins with, for tiles gathered ahead */
};

static struct scratch carve(const struct gqa_shape *shape, size_t rows, float *memory)
{
    struct scratch s = {.q_stride = padded((size_t)shape->k_width),
                        .acc_stride = padded((size_t)shape->v_width)};
    const size_t lanes = padded(rows);
    size_t at = 0;
    const struct {
        float **part;
        size_t floats;
    } parts[] = {
        {&s.q, rows * s.q_stride},
        {&s.acc, rows * s.acc_stride},
        {&s.total, rows * s.acc_stride},
        {&s.scores, rows * TILE_KEYS},
        {&s.keys, TILE_KEYS * s.q_stride},
        {&s.values, TILE_KEYS * s.acc_stride},
        {&s.max, lanes},
        {&s.sum, lanes},
        {&s.alpha, lanes},
        {&s.total_max, lanes},
        {&s.total_sum, lanes},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        *parts[i].part = memory != NULL ? memory + at : NULL;
        at += parts[i].floats;
    }
    s.end = at;
    return s;
}

size_t attend_scratch_floats(const struct gqa_shape *shape, size_t num_query_rows)
{
    return carve(shape, num_query_rows, NULL).end;
}

/* The scale of a quantised channel moves from the stored keys into q, which is linear in them. */
static void scale_channels(float *x, const float *scales, size_t width)
{
    for (size_t c = 0; c < width; c++) {
        x[c] *= scales[c];
    }
}

/* q of one query in f32, its heads of this KV head one below the other: rotated, normed, padded
 * with zeros, and packed where the dot products want it so. */
static void load_query(const struct run *run, const struct gqa_row *row, int32_t query,
                       int32_t head, float *to, float *spare)
{
    const struct gqa_layer *layer = run->layer;
    const struct pkv_attn_constants *c = run->constants;
    const size_t width = (size_t)run->plan->shape.k_width;
    const size_t stride = padded(width);
    const size_t element = pkv_dtype_bytes(layer->dtype);
    const size_t token = (size_t)(row->q_begin + query);
    const int64_t position = run_position(run, row, row->kv_len - row->q_len + query);
    for (int32_t g = 0; g < run->group; g++, to += stride) {
        const size_t at = token * layer->q_stride + (size_t)(head * run->group + g) * width;
        run->kernels->widen[layer->dtype]((const char *)layer->q + at * element, width, to);
        prepare_head(run, to, position, c->q_norm_gain, c->q_norm_gain_dtype, spare);
        if (c->k_scale_count > 1) {
            scale_channels(to, c->k_scale + (size_t)head * width, width);
        }
        memset(to + width, 0, (stride - width) * sizeof to[0]);
        if (run->packed_parts > 0) {
            run->kernels->pack(to, stride, spare);
        }
    }
}

/* Adds the cells of keys [from, to) to the tile. */
static void gather(const struct run *run, const struct gqa_row *row, int32_t head, int32_t from,
                   int32_t to, struct tile *tile)
{
    const struct gqa_shape *shape = &run->plan->shape;
    const struct pkv_kv_view *cache = &run->layer->cache;
    const size_t k_step = cache->k_cell_stride * pkv_dtype_bytes(cache->k_dtype);
    const size_t v_step = cache->v_cell_stride * pkv_dtype_bytes(cache->v_dtype);
    for (int32_t key = from; key < to;) {
        const int32_t cell = key % shape->block_size;
        const int32_t run_length = visible_min(to - key, shape->block_size - cell);
        const int32_t block = run_block_of(row, shape->block_size, key);
        const char *k = run_key_cell(cache, block, head, cell);
        const char *v = shape->v_in_k ? k : run_value_cell(cache, block, head, cell);
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

/* The part of tile [from, to) that `seen` admits. */
static void gather_seen(const struct run *run, const struct gqa_row *row, int32_t head,
                        const struct visible *seen, int32_t from, int32_t to, struct tile *tile)
{
    tile->count = 0;
    gather(run, row, head, from, visible_min(to, seen->prefix), tile);
    gather(run, row, head, visible_max(from, seen->first), visible_min(to, seen->end), tile);
}

/* The rows of a tile as the kernels are to read them: where they lie, or converted in scratch. */
struct operands {
    const void *const *keys;
    const void *const *values;
    const void *const *keys_ahead; /* rows to ask for meanwhile, or NULL */
    const void *const *values_ahead;
    enum pkv_dtype k_dtype;
    enum pkv_dtype v_dtype;
};

/* Rows in f32 once for many queries. Widening is exact, so the bits do not depend on it. */
static void stage_f32(const struct run *run, enum pkv_dtype dtype, const void *const *rows,
                      int32_t count, int32_t width, float *memory, const void **staged)
{
    const size_t stride = padded((size_t)width);
    for (int32_t j = 0; j < count; j++) {
        float *row = memory + (size_t)j * stride;
        run->kernels->widen[dtype](rows[j], (size_t)width, row);
        staged[j] = row;
    }
}

/* Rows of e4m3 as bf16, likewise exact: cheaper than a conversion in every register block. */
static void stage_bf16(const struct run *run, const void *const *rows, const void *const *ahead,
                       int32_t count, int32_t width, float *memory, const void **staged)
{
    const size_t stride = padded((size_t)width);
    for (int32_t j = 0; j < count; j++) {
        uint16_t *row = (uint16_t *)(memory + (size_t)j * stride);
        run->kernels->recode(rows[j], (size_t)width, row, ahead != NULL ? ahead[j] : NULL);
        staged[j] = row;
    }
}

/* Chooses between reading a tile in place and converting it first. staged holds the pointers. */
static struct operands stage(const struct run *run, int rows, const struct tile *tile,
                             const struct tile *ahead, const struct scratch *s, struct tile *staged)
{
    const struct gqa_shape *shape = &run->plan->shape;
    struct operands o = {
        .keys = tile->keys,
        .values = tile->values,
        .keys_ahead = ahead != NULL ? ahead->keys : NULL,
        .values_ahead = ahead != NULL ? ahead->values : NULL,
        .k_dtype = run->layer->cache.k_dtype,
        .v_dtype = run->v_dtype,
    };
    const bool to_f32 = rows >= STAGE_QUERY_ROWS;
    if (to_f32 && o.k_dtype != PKV_F32 && run->packed_parts == 0) {
        stage_f32(run, o.k_dtype, o.keys, tile->count, shape->k_width, s->keys, staged->keys);
        o.keys = staged->keys;
        o.k_dtype = PKV_F32;
    } else if (o.k_dtype == PKV_E4M3) {
        stage_bf16(run, o.keys, o.keys_ahead, tile->count, shape->k_width, s->keys, staged->keys);
        o.keys = staged->keys;
        o.keys_ahead = NULL;
        o.k_dtype = PKV_BF16;
    }
    if (to_f32 && o.v_dtype != PKV_F32) {
        stage_f32(run, o.v_dtype, o.values, tile->count, shape->v_width, s->values, staged->values);
        o.values = staged->values;
        o.v_dtype = PKV_F32;
    } else if (o.v_dtype == PKV_E4M3) {
        stage_bf16(run, o.values, o.values_ahead, tile->count, shape->v_width, s->values,
                   staged->values);
        o.values = staged->values;
        o.values_ahead = NULL;
        o.v_dtype = PKV_BF16;
    }
    return o;
}

/* Query rows [row0, row1) against a tile that each of them sees whole. bias, when not NULL, holds
 * what a float mask adds to each of the tile's scores. */
static void attend_rows(const struct run *run, size_t row0, size_t row1, const struct tile *tile,
                        const struct tile *ahead, const float *bias, const struct scratch *s)
{
    const struct gqa_shape *shape = &run->plan->shape;
    const struct kernels *kernels = run->kernels;
    const int rows = (int)(row1 - row0);
    struct tile staged;
    const struct operands o = stage(run, rows, tile, ahead, s, &staged);
    float *scores = s->scores + row0 * TILE_KEYS;
    kernel_dot *dot = run->packed_parts > 0 ? kernels->dot_packed[run->packed_parts - 1]
                                            : kernels->dot[o.k_dtype];
    dot(s->q + row0 * s->q_stride, s->q_stride, rows, o.keys, o.keys_ahead, tile->count,
        shape->k_width, scores);
    for (size_t r = row0; r < row1; r++, scores += TILE_KEYS) {
        kernels->scale(scores, (size_t)tile->count, run->logit_scale);
        if (run->constants->softcap > 0.0f) {
            kernels->softcap(scores, (size_t)tile->count, run->constants->softcap);
        }
        for (int32_t j = 0; bias != NULL && j < tile->count; j++) {
            scores[j] += bias[j];
        }
        s->alpha[r] = kernels->softmax(scores, tile->count, &s->max[r], &s->sum[r]);
    }
    kernels->weigh[o.v_dtype](s->scores + row0 * TILE_KEYS, s->alpha + row0, rows, o.values,
                              o.values_ahead, tile->count, shape->v_width,
                              s->acc + row0 * s->acc_stride, s->acc_stride);
}

/* All queries of the unit against tile [from, to), which some of them sees. whole, when not NULL,
 * is that tile gathered already; ahead is the next one or NULL. */
static void attend_tile(const struct run *run, const struct unit *unit, int32_t head, int32_t from,
                        int32_t to, const struct tile *whole, const struct tile *ahead,
                        const struct scratch *s)
{
    const struct gqa_row *row = &run->rows[unit->row];
    const struct gqa_shape *shape = &run->plan->shape;
    const size_t group = (size_t)run->group;
    struct tile part;
    int32_t i = unit->q0;
    while (i < unit->q1) {
        const struct visible seen = visible_to(row, shape, i, i + 1);
        const int32_t keys = visible_count(&seen, from, to);
        int32_t end = i + 1;
        while (keys == to - from && end < unit->q1) { /* others that see all of it as well */
            const struct visible next = visible_to(row, shape, end, end + 1);
            if (visible_count(&next, from, to) != keys) {
                break;
            }
            end++;
        }
        if (keys > 0) {
            const struct tile *tile = whole;
            if (whole == NULL || keys != whole->count) {
                gather_seen(run, row, head, &seen, from, to, &part);
                tile = &part;
            }
            attend_rows(run, (size_t)(i - unit->q0) * group, (size_t)(end - unit->q0) * group, tile,
                        keys == TILE_KEYS && i == unit->q0 ? ahead : NULL, NULL, s);
        }
        i = end;
    }
}

/* Adds the keys of [from, to) that the mask leaves to query i and head `head` to the tile, and what
 * it adds to their scores to bias. */
static void gather_unmasked(const struct run *run, const struct unit *unit, int32_t kv_head,
                            int32_t query_head, int32_t i, int32_t from, int32_t to,
                            struct tile *tile, float *bias)
{
    const struct gqa_mask *mask = run->layer->mask;
    const size_t at = (size_t)unit->row * mask->row_stride +
                      (size_t)query_head * mask->head_stride + (size_t)i * mask->query_stride;
    for (int32_t key = from; key < to; key++) {
        const size_t entry = at + (size_t)key;
        float added = 0.0f;
        if (mask->dtype == PKV_INT8) {
            added = ((const uint8_t *)mask->entries)[entry] != 0 ? 0.0f : -INFINITY;
        } else {
            const char *from_entry =
                (const char *)mask->entries + entry * pkv_dtype_bytes(mask->dtype);
            run->kernels->widen[mask->dtype](from_entry, 1, &added);
        }
        if (added != -INFINITY) {
            bias[tile->count] = added;
            gather(run, &run->rows[unit->row], kv_head, key, key + 1, tile);
        }
    }
}

/* The same tile under a mask: each (query, head) has its own list of keys. */
static void attend_masked(const struct run *run, const struct unit *unit, int32_t head,
                          int32_t from, int32_t to, const struct scratch *s)
{
    const struct gqa_row *row = &run->rows[unit->row];
    struct tile tile;
    float bias[TILE_KEYS];
    for (int32_t i = unit->q0; i < unit->q1; i++) {
        const struct visible seen = visible_to(row, &run->plan->shape, i, i + 1);
        for (int32_t g = 0; g < run->group; g++) {
            const int32_t query_head = head * run->group + g;
            const size_t r = (size_t)(i - unit->q0) * (size_t)run->group + (size_t)g;
            tile.count = 0;
            gather_unmasked(run, unit, head, query_head, i, from, visible_min(to, seen.prefix),
                            &tile, bias);
            gather_unmasked(run, unit, head, query_head, i, visible_max(from, seen.first),
                            visible_min(to, seen.end), &tile, bias);
            if (tile.count > 0) {
                attend_rows(run, r, r + 1, &tile, NULL, bias, s);
            }
        }
    }
}

/* (max, sum, acc) into (total_max, total_sum, total): the sums are rescaled to the larger maximum.
 * Nothing merged is nothing changed, and merging into nothing is a copy. */
static void merge(float *total_max, float *total_sum, float *total, float max, float sum,
                  const float *acc, size_t width)
{
    if (max == -INFINITY) {
        return;
    }
    if (*total_max == -INFINITY) {
        *total_max = max;
        *total_sum = sum;
        memcpy(total, acc, width * sizeof total[0]);
        return;
    }
    const float larger = *total_max > max ? *total_max : max;
    const float keep = expf(*total_max - larger);
    const float add = expf(max - larger);
    for (size_t c = 0; c < width; c++) {
        total[c] = total[c] * keep + acc[c] * add;
    }
    *total_sum = *total_sum * keep + sum * add;
    *total_max = larger;
}

static void start_rows(float *max, float *sum, float *acc, size_t rows, size_t stride)
{
    for (size_t r = 0; r < rows; r++) {
        max[r] = -INFINITY;
        sum[r] = 0.0f;
    }
    memset(acc, 0, rows * stride * sizeof acc[0]);
}

/* The sink of a query head: a logit without a key, raw. -inf is none. */
static float sink_of(const struct run *run, size_t query_head)
{
    if (run->constants->smooth_softmax) {
        return 0.0f;
    }
    return run->constants->head_sink != NULL ? run->constants->head_sink[query_head] : -INFINITY;
}

/* One query: out = total / sum, and the natural logarithm of the denominator. A query that saw
 * nothing is 0. A sink enters here, once, whatever the split:
 *     sum + exp(sink - max), with everything rescaled to the larger of max and sink. */
static void write_query(const struct run *run, size_t token, int32_t head, int32_t g, float max,
                        float sum, float *total)
{
    const struct gqa_layer *layer = run->layer;
    const struct pkv_attn_constants *c = run->constants;
    const size_t width = (size_t)run->plan->shape.v_width;
    const size_t query_head = (size_t)(head * run->group + g);
    const float sink = sink_of(run, query_head);
    float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
    if (sink != -INFINITY) {
        const float larger = max > sink ? max : sink;
        const float keep = max == -INFINITY ? 0.0f : expf(max - larger);
        sum = sum * keep + expf(sink - larger);
        factor = keep / sum;
        max = larger;
    }
    const bool v_in_k = run->plan->shape.v_in_k;
    const float *scales = v_in_k ? c->k_scale : c->v_scale;
    const int32_t num_scales = v_in_k ? c->k_scale_count : c->v_scale_count;
    run->kernels->scale(total, width,
                        scales != NULL && num_scales == 1 ? factor * scales[0] : factor);
    if (scales != NULL && num_scales > 1) {
        const int32_t channels = v_in_k ? run->plan->shape.k_width : (int32_t)width;
        scale_channels(total, scale_of_head(scales, num_scales, head, channels), width);
    }
    const size_t at = token * layer->out_stride + query_head * width;
    run->kernels->narrow[layer->dtype](total, width,
                                       (char *)layer->out + at * pkv_dtype_bytes(layer->dtype));
    if (layer->lse != NULL) {
        layer->lse[token * (size_t)layer->num_heads + query_head] =
            max == -INFINITY ? -INFINITY : max + logf(sum);
    }
}

static void write_rows(const struct run *run, int32_t row_idx, int32_t q0, int32_t q1, int32_t head,
                       const struct scratch *s)
{
    size_t r = 0;
    for (int32_t i = q0; i < q1; i++) {
        const size_t token = (size_t)(run->rows[row_idx].q_begin + i);
        for (int32_t g = 0; g < run->group; g++, r++) {
            write_query(run, token, head, g, s->total_max[r], s->total_sum[r],
                        s->total + r * s->acc_stride);
        }
    }
}

/* A partial result: [rows] maxima, [rows] sums, then [rows][acc_stride]. */
static float *partial_of(const struct run *run, int32_t partial, int32_t head)
{
    const size_t index = (size_t)partial * (size_t)run->plan->shape.kv_heads + (size_t)head;
    return run->partials + index * run->plan->partial_floats;
}

static void save_partial(const struct run *run, int32_t partial, int32_t head, size_t rows,
                         const struct scratch *s)
{
    float *to = partial_of(run, partial, head);
    memcpy(to, s->max, rows * sizeof to[0]);
    memcpy(to + rows, s->sum, rows * sizeof to[0]);
    memcpy(to + 2 * rows, s->acc, rows * s->acc_stride * sizeof to[0]);
}

static void merge_rows(const struct scratch *s, size_t rows, const float *max, const float *sum,
                       const float *acc)
{
    for (size_t r = 0; r < rows; r++) {
        merge(&s->total_max[r], &s->total_sum[r], s->total + r * s->acc_stride, max[r], sum[r],
              acc + r * s->acc_stride, s->acc_stride);
    }
}

/* The next tile from key `from` on, when it is whole and visible to the block: worth asking for
 * early. Its pointers serve twice, to ask and then to read. */
static bool gather_ahead(const struct run *run, const struct unit *unit, int32_t head,
                         const struct visible *seen, int64_t from, struct tile *ahead)
{
    const int64_t next = visible_span(seen, (int32_t)(from / SPAN_KEYS)) * (int64_t)SPAN_KEYS;
    ahead->first = next > from ? next : from;
    ahead->count = 0;
    if (ahead->first + TILE_KEYS > seen->end ||
        visible_count(seen, ahead->first, ahead->first + TILE_KEYS) != TILE_KEYS) {
        return false;
    }
    gather(run, &run->rows[unit->row], head, (int32_t)ahead->first,
           (int32_t)ahead->first + TILE_KEYS, ahead);
    return true;
}

/* The tile that was last asked for ahead, in whichever span that was, and room for the next. */
struct lookahead {
    struct tile *asked;
    struct tile *spare;
};

static void attend_span(const struct run *run, const struct unit *unit, int32_t head, int32_t span,
                        const struct visible *seen, const struct scratch *s,
                        struct lookahead *tiles)
{
    const size_t rows = (size_t)(unit->q1 - unit->q0) * (size_t)run->group;
    const int64_t span_end = ((int64_t)span + 1) * SPAN_KEYS;
    start_rows(s->max, s->sum, s->acc, rows, s->acc_stride);
    for (int64_t from = (int64_t)span * SPAN_KEYS; from < span_end; from += TILE_KEYS) {
        if (visible_count(seen, from, from + TILE_KEYS) == 0) {
            continue;
        }
        const int64_t to = from + TILE_KEYS < seen->end ? from + TILE_KEYS : seen->end;
        if (run->layer->mask != NULL) {
            attend_masked(run, unit, head, (int32_t)from, (int32_t)to, s);
            continue;
        }
        const struct tile *whole = tiles->asked;
        struct tile *ahead = tiles->spare;
        const bool is_gathered = whole->count == TILE_KEYS && whole->first == from;
        const bool has_ahead = gather_ahead(run, unit, head, seen, from + TILE_KEYS, ahead);
        attend_tile(run, unit, head, (int32_t)from, (int32_t)to, is_gathered ? whole : NULL,
                    has_ahead ? ahead : NULL, s);
        tiles->spare = tiles->asked;
        tiles->asked = ahead;
    }
}

void attend_unit(const struct run *run, const struct unit *unit, int32_t head, float *memory)
{
    const struct gqa_row *row = &run->rows[unit->row];
    const struct visible seen = visible_to(row, &run->plan->shape, unit->q0, unit->q1);
    const size_t rows = (size_t)(unit->q1 - unit->q0) * (size_t)run->group;
    const struct scratch s = carve(&run->plan->shape, rows, memory);
    if (run->layer->k != NULL && !appends_first(run->plan, row)) {
        append_cells(run, row, head, (int64_t)unit->span0 * SPAN_KEYS,
                     (int64_t)unit->span1 * SPAN_KEYS, false, s.q);
    }
    for (int32_t i = unit->q0; i < unit->q1; i++) {
        const size_t first = (size_t)(i - unit->q0) * (size_t)run->group;
        load_query(run, row, i, head, s.q + first * s.q_stride, s.keys);
    }
    start_rows(s.total_max, s.total_sum, s.total, rows, s.acc_stride);
    int32_t partial = unit->partial;
    struct tile room[2];
    struct lookahead tiles = {&room[0], &room[1]};
    tiles.asked->count = 0;
    for (int32_t span = unit->span0; span < unit->span1; span = visible_span(&seen, span + 1)) {
        attend_span(run, unit, head, span, &seen, &s, &tiles);
        if (unit->partial < 0) {
            merge_rows(&s, rows, s.max, s.sum, s.acc);
        } else {
            save_partial(run, partial++, head, rows, &s);
        }
    }
    if (unit->partial < 0) {
        write_rows(run, unit->row, unit->q0, unit->q1, head, &s);
    }
}

/* Every member sees the span whole, so all rows of q go through it together. */
void attend_shared(const struct run *run, const struct unit *unit, int32_t head, float *memory)
{
    const int32_t *members = (const int32_t *)run->plan->members.memory + unit->first_member;
    const struct gqa_row *row = &run->rows[unit->row];
    const size_t rows = (size_t)unit->num_members * (size_t)run->group;
    const struct scratch s = carve(&run->plan->shape, rows, memory);
    struct tile room[2];
    struct tile *tile = &room[0];
    struct tile *ahead = &room[1];
    for (int32_t m = 0; m < unit->num_members; m++) {
        const size_t first = (size_t)m * (size_t)run->group;
        load_query(run, &run->rows[members[m]], 0, head, s.q + first * s.q_stride, s.keys);
    }
    start_rows(s.max, s.sum, s.acc, rows, s.acc_stride);
    const int32_t begin = unit->span0 * SPAN_KEYS;
    const int32_t end = begin + SPAN_KEYS;
    tile->count = 0;
    gather(run, row, head, begin, begin + TILE_KEYS, tile);
    for (int32_t from = begin; from < end; from += TILE_KEYS) {
        const bool has_ahead = from + TILE_KEYS < end;
        ahead->count = 0;
        if (has_ahead) {
            gather(run, row, head, from + TILE_KEYS, from + 2 * TILE_KEYS, ahead);
        }
        attend_rows(run, 0, rows, tile, has_ahead ? ahead : NULL, NULL, &s);
        struct tile *read = tile;
        tile = ahead;
        ahead = read;
    }
    save_partial(run, unit->partial, head, rows, &s);
}

/* Partial results that shared units left for a row: its member's part of each. */
static void merge_sources(const struct run *run, int32_t first_source, int32_t head,
                          const struct scratch *s)
{
    const struct source *sources = run->plan->sources.memory;
    const size_t group = (size_t)run->group;
    for (int32_t i = first_source; i >= 0; i = sources[i].next) {
        const size_t rows = (size_t)sources[i].num_members * group;
        const size_t first = (size_t)sources[i].member * group;
        for (int32_t p = 0; p < sources[i].num_partials; p++) {
            const float *partial = partial_of(run, sources[i].partial + p, head);
            merge_rows(s, group, partial + first, partial + rows + first,
                       partial + 2 * rows + first * s->acc_stride);
        }
    }
}

void attend_fold(const struct run *run, const struct fold *fold, int32_t head, float *memory)
{
    const size_t rows = (size_t)(fold->q1 - fold->q0) * (size_t)run->group;
    const struct scratch s = carve(&run->plan->shape, rows, memory);
    start_rows(s.total_max, s.total_sum, s.total, rows, s.acc_stride);
    merge_sources(run, fold->first_source, head, &s);
    for (int32_t i = 0; i < fold->num_partials; i++) {
        const float *partial = partial_of(run, fold->partial + i, head);
        merge_rows(&s, rows, partial, partial + rows, partial + 2 * rows);
    }
    write_rows(run, fold->row, fold->q0, fold->q1, head, &s);
}
