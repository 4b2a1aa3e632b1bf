/* SPDX-License-Identifier: MIT
 *
 * attend.c: queries of one row against its keys, for one or several KV heads.
 *
 * Keys are taken in spans of SPAN_KEYS and these in tiles of TILE_KEYS, both cut at absolute key
 * indices. A span starts from the empty state (max -inf, sum 0, acc 0), runs its tiles through
 * online softmax, and is then merged into the total; spans and tiles of which a query sees nothing
 * change nothing. So each query's arithmetic is a function of its own visible keys, whoever
 * computes it.
 *
 * In a tile, the queries that see all of it go through the kernels together; each of the others
 * goes alone with the list of keys that it sees. Pointers are formed to visible keys only. The
 * heads of a unit take a tile one after the other: a block's heads lie side by side, so memory is
 * read in runs of whole blocks. */
#include <math.h>
#include <string.h>

#include "attn/tile.h"

size_t attend_scratch_floats(const struct gqa_shape *shape, size_t num_query_rows)
{
    return scratch_carve(shape, num_query_rows, NULL).end;
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
        run->kernels->widen(layer->dtype, (const char *)layer->q + at * element, width, to);
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

/* The part of tile [from, to) that `seen` admits, for one KV head. */
static void gather_seen(const struct run *run, const struct gqa_row *row, int32_t head,
                        const struct visible *seen, int32_t from, int32_t to, struct tile *tile)
{
    tile->count = 0;
    tile_gather(run, row, head, from, min_i32(to, seen->prefix), tile);
    tile_gather(run, row, head, max_i32(from, seen->first), min_i32(to, seen->end), tile);
}

/* Query rows of one KV head of a unit. */
static size_t unit_rows(const struct run *run, const struct unit *unit)
{
    return (size_t)(unit->q1 - unit->q0) * (size_t)run->group;
}

/* Query rows [row0, row1) of each of num_heads KV heads, which have rows_per_head each, against the
 * tile of the first of them. While one head is computed the next one's cells are asked for, and
 * behind the last those of ahead (NULL = nothing). */
static void attend_heads(const struct run *run, int32_t num_heads, size_t rows_per_head,
                         size_t row0, size_t row1, const struct tile *tile,
                         const struct tile *ahead, const struct scratch *s)
{
    struct tile shifted[2];
    const struct tile *current = tile;
    for (int32_t h = 0; h < num_heads; h++) {
        const struct tile *next = ahead;
        if (h + 1 < num_heads) {
            tile_shift(run, tile, h + 1, &shifted[h % 2]);
            next = &shifted[h % 2];
        }
        const struct scratch part = scratch_from(s, (size_t)h * rows_per_head + row0);
        tile_attend(run, row1 - row0, current, next, NULL, &part);
        current = next;
    }
}

/* All queries of the unit against tile [from, to), which some of them sees. whole, when not NULL,
 * is that tile gathered already; ahead is the next one or NULL. */
static void attend_tile(const struct run *run, const struct unit *unit, int32_t from, int32_t to,
                        const struct tile *whole, const struct tile *ahead, const struct scratch *s)
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
                gather_seen(run, row, unit->head, &seen, from, to, &part);
                tile = &part;
            }
            const bool has_ahead = ahead != NULL && keys == TILE_KEYS && end == unit->q1;
            attend_heads(run, unit->num_heads, unit_rows(run, unit), (size_t)(i - unit->q0) * group,
                         (size_t)(end - unit->q0) * group, tile, has_ahead ? ahead : NULL, s);
        }
        i = end;
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
    factor *= value_scale_of(run->v_dtype);
    run->kernels->scale(total, width,
                        scales != NULL && num_scales == 1 ? factor * scales[0] : factor);
    if (scales != NULL && num_scales > 1) {
        const int32_t channels = v_in_k ? run->plan->shape.k_width : (int32_t)width;
        scale_channels(total, scale_of_head(scales, num_scales, head, channels), width);
    }
    const size_t at = token * layer->out_stride + query_head * width;
    run->kernels->narrow(layer->dtype, total, width,
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
static bool gather_ahead(const struct run *run, const struct unit *unit, const struct visible *seen,
                         int64_t from, struct tile *ahead)
{
    const int64_t next = visible_span(seen, (int32_t)(from / SPAN_KEYS)) * (int64_t)SPAN_KEYS;
    ahead->first = next > from ? next : from;
    ahead->count = 0;
    if (ahead->first + TILE_KEYS > seen->end ||
        visible_count(seen, ahead->first, ahead->first + TILE_KEYS) != TILE_KEYS) {
        return false;
    }
    tile_gather(run, &run->rows[unit->row], unit->head, (int32_t)ahead->first,
                (int32_t)ahead->first + TILE_KEYS, ahead);
    return true;
}

/* The tile that was last asked for ahead, in whichever span that was, and room for the next. */
struct lookahead {
    struct tile *asked;
    struct tile *spare;
};

static void attend_span(const struct run *run, const struct unit *unit, int32_t span,
                        const struct visible *seen, const struct scratch *s,
                        struct lookahead *tiles)
{
    const size_t rows = unit_rows(run, unit) * (size_t)unit->num_heads;
    const int64_t span_end = ((int64_t)span + 1) * SPAN_KEYS;
    start_rows(s->max, s->sum, s->acc, rows, s->acc_stride);
    for (int64_t from = (int64_t)span * SPAN_KEYS; from < span_end; from += TILE_KEYS) {
        if (visible_count(seen, from, from + TILE_KEYS) == 0) {
            continue;
        }
        const int64_t to = from + TILE_KEYS < seen->end ? from + TILE_KEYS : seen->end;
        if (run->layer->mask != NULL) {
            tile_attend_masked(run, unit, (int32_t)from, (int32_t)to, s);
            continue;
        }
        const struct tile *whole = tiles->asked;
        struct tile *ahead = tiles->spare;
        const bool is_gathered = whole->count == TILE_KEYS && whole->first == from;
        const bool has_ahead = gather_ahead(run, unit, seen, from + TILE_KEYS, ahead);
        attend_tile(run, unit, (int32_t)from, (int32_t)to, is_gathered ? whole : NULL,
                    has_ahead ? ahead : NULL, s);
        tiles->spare = tiles->asked;
        tiles->asked = ahead;
    }
}

/* The first steps of a unit: q of all its heads, and nothing seen yet. */
static void load_rows(const struct run *run, const struct unit *unit, const struct scratch *s)
{
    const int32_t *members = (const int32_t *)run->plan->members.memory + unit->first_member;
    const int32_t queries = unit->num_members > 0 ? unit->num_members : unit->q1 - unit->q0;
    float *q = s->q;
    for (int32_t h = 0; h < unit->num_heads; h++) {
        for (int32_t i = 0; i < queries; i++) {
            const bool is_shared = unit->num_members > 0;
            const int32_t row = is_shared ? members[i] : unit->row;
            load_query(run, &run->rows[row], is_shared ? 0 : unit->q0 + i, unit->head + h, q,
                       s->keys);
            q += (size_t)run->group * s->q_stride;
        }
    }
}

static void save_partials(const struct run *run, const struct unit *unit, int32_t partial,
                          size_t rows, const struct scratch *s)
{
    for (int32_t h = 0; h < unit->num_heads; h++) {
        const struct scratch part = scratch_from(s, (size_t)h * rows);
        save_partial(run, partial, unit->head + h, rows, &part);
    }
}

void attend_unit(const struct run *run, const struct unit *unit, float *memory)
{
    const struct gqa_row *row = &run->rows[unit->row];
    const struct visible seen = visible_to(row, &run->plan->shape, unit->q0, unit->q1);
    const size_t rows = unit_rows(run, unit);
    const size_t all_rows = rows * (size_t)unit->num_heads;
    const struct scratch s = scratch_carve(&run->plan->shape, all_rows, memory);
    if (run->layer->k != NULL && !appends_first(run->plan, row)) {
        for (int32_t h = 0; h < unit->num_heads; h++) {
            append_cells(run, row, unit->head + h, (int64_t)unit->span0 * SPAN_KEYS,
                         (int64_t)unit->span1 * SPAN_KEYS, false, s.q);
        }
    }
    load_rows(run, unit, &s);
    start_rows(s.total_max, s.total_sum, s.total, all_rows, s.acc_stride);
    int32_t partial = unit->partial;
    struct tile room[2];
    struct lookahead tiles = {&room[0], &room[1]};
    tiles.asked->count = 0;
    for (int32_t span = unit->span0; span < unit->span1; span = visible_span(&seen, span + 1)) {
        attend_span(run, unit, span, &seen, &s, &tiles);
        if (unit->partial < 0) {
            merge_rows(&s, all_rows, s.max, s.sum, s.acc);
        } else {
            save_partials(run, unit, partial++, rows, &s);
        }
    }
    for (int32_t h = 0; unit->partial < 0 && h < unit->num_heads; h++) {
        const struct scratch part = scratch_from(&s, (size_t)h * rows);
        write_rows(run, unit->row, unit->q0, unit->q1, unit->head + h, &part);
    }
}

/* Every member sees the span whole, so all rows of q go through it together. */
void attend_shared(const struct run *run, const struct unit *unit, float *memory)
{
    const struct gqa_row *row = &run->rows[unit->row];
    const size_t rows = (size_t)unit->num_members * (size_t)run->group;
    const size_t all_rows = rows * (size_t)unit->num_heads;
    const struct scratch s = scratch_carve(&run->plan->shape, all_rows, memory);
    struct tile room[2];
    struct tile *tile = &room[0];
    struct tile *ahead = &room[1];
    load_rows(run, unit, &s);
    start_rows(s.max, s.sum, s.acc, all_rows, s.acc_stride);
    const int32_t begin = unit->span0 * SPAN_KEYS;
    const int32_t end = begin + SPAN_KEYS;
    tile->count = 0;
    tile_gather(run, row, unit->head, begin, begin + TILE_KEYS, tile);
    for (int32_t from = begin; from < end; from += TILE_KEYS) {
        const bool has_ahead = from + TILE_KEYS < end;
        ahead->count = 0;
        if (has_ahead) {
            tile_gather(run, row, unit->head, from + TILE_KEYS, from + 2 * TILE_KEYS, ahead);
        }
        attend_heads(run, unit->num_heads, rows, 0, rows, tile, has_ahead ? ahead : NULL, &s);
        struct tile *read = tile;
        tile = ahead;
        ahead = read;
    }
    save_partials(run, unit, unit->partial, rows, &s);
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
    const struct scratch s = scratch_carve(&run->plan->shape, rows, memory);
    start_rows(s.total_max, s.total_sum, s.total, rows, s.acc_stride);
    merge_sources(run, fold->first_source, head, &s);
    for (int32_t i = 0; i < fold->num_partials; i++) {
        const float *partial = partial_of(run, fold->partial + i, head);
        merge_rows(&s, rows, partial, partial + rows, partial + 2 * rows);
    }
    write_rows(run, fold->row, fold->q0, fold->q1, head, &s);
}
