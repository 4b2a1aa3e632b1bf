/* SPDX-License-Identifier: MIT
 *
 * tile.c: a tile's arithmetic and the choice of how its cells are read. Converting first (staging)
 * is exact, so it never shows in the bits: it only moves work from register blocks to one pass. */
#include "attn/tile.h"

#include "attn/view.h"
#include "base/build.h"
#include "base/minmax.h"

/* From how many query rows on a tile is converted to f32 once, instead of in every register block.
 * e4m3 is expensive to convert, so this pays as soon as there is more than a wide block. */
#define STAGE_QUERIES 64
#define STAGE_E4M3_QUERIES 9

/* Keys of more channels are taken by panels where there are as many query rows as for staging. */
#define MIN_PANEL_WIDTH 257

/* Bytes of keys or of values that all query rows go through before the next: so many stay in the
 * first-level cache beside a register block's queries and weights. */
#define PANEL_BYTES 20480

/* Channels of a panel of values. */
#define PANEL_CHANNELS 64

/* Min keys of a run, a job's: blocks of fewer are taken together. */
#define MIN_RUN_KEYS 16

/* From how many query rows a KV head on, for each byte of a stored channel, arithmetic takes longer
 * than memory. */
#define COMPUTE_BOUND_ROWS 4

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

/* A tile as the kernels are to read it: where it lies, or converted in scratch. */
struct operands {
    const void *const *keys;
    const void *const *values;
    enum pkv_dtype k_dtype;
    enum pkv_dtype v_dtype;
    int num_keys;
    size_t v_first, v_width;               /* the channels of the values */
    size_t k_vector_bytes, v_vector_bytes; /* where it lies */
    size_t k_head_bytes, v_head_bytes;     /* from there to the next KV head's cells */
};

static void prefetch_bytes(const char *from, size_t count)
{
    for (size_t i = 0; i < count; i += LINE_BYTES) {
        PKV_PREFETCH(from + i);
    }
}

/* Key or value vectors in f32, once for many queries; those of next are prefetched meanwhile. */
static void stage_f32(const struct run *run, enum pkv_dtype dtype, const void *const *vectors,
                      int count, int32_t width, const struct kernel_prefetch *next, float *memory,
                      const void **staged)
{
    const size_t stride = padded((size_t)width);
    const size_t bytes = (size_t)width * pkv_dtype_bytes(dtype);
    for (int j = 0; j < count; j++) {
        float *to = memory + (size_t)j * stride;
        if (j < next->num_vectors) {
            prefetch_bytes((const char *)next->vectors[j] + next->offset, bytes);
        }
        run->kernels->widen(dtype, vectors[j], (size_t)width, to);
        staged[j] = to;
    }
}

/* What of a tile is converted first. */
struct staging {
    bool keys, values;
};

static bool is_worth_staging(enum pkv_dtype dtype, size_t num_rows)
{
    const size_t enough = dtype == PKV_E4M3 ? STAGE_E4M3_QUERIES : STAGE_QUERIES;
    return dtype != PKV_F32 && num_rows >= enough;
}

/* The tile where it lies. */
static struct operands operands_of(const struct run *run, const struct tile *tile)
{
    const struct gqa_shape *shape = &run->plan->shape;
    const struct pkv_kv_view *cache = &run->layer->cache;
    const size_t k_bytes = cache->k_head_stride * pkv_dtype_bytes(cache->k_dtype);
    const size_t v_bytes = cache->v_head_stride * pkv_dtype_bytes(cache->v_dtype);
    return (struct operands){
        .keys = tile->keys,
        .values = tile->values,
        .k_dtype = cache->k_dtype,
        .v_dtype = run->v_dtype,
        .num_keys = tile->count,
        .v_width = (size_t)shape->v_width,
        .k_vector_bytes = (size_t)shape->k_width * pkv_dtype_bytes(cache->k_dtype),
        .v_vector_bytes = (size_t)shape->v_width * pkv_dtype_bytes(run->v_dtype),
        .k_head_bytes = k_bytes,
        .v_head_bytes = shape->v_in_k ? k_bytes : v_bytes,
    };
}

/* The keys and values of KV head `head` of the tile, converted where that is worth it, and what to
 * prefetch with them. Afterwards keys and values are what is left to the jobs to prefetch. `moved`
 * holds the pointers. */
static struct operands stage(const struct run *run, const struct operands *from, int32_t head,
                             const struct staging *staging, const struct scratch *s,
                             struct kernel_prefetch *keys, struct kernel_prefetch *values,
                             struct tile *moved)
{
    const struct gqa_shape *shape = &run->plan->shape;
    const struct kernel_prefetch none = {.num_vectors = 0};
    struct operands o = *from;
    for (int j = 0; j < o.num_keys; j++) {
        moved->keys[j] = (const char *)from->keys[j] + (size_t)head * o.k_head_bytes;
        moved->values[j] = (const char *)from->values[j] + (size_t)head * o.v_head_bytes;
    }
    o.keys = moved->keys;
    o.values = moved->values;
    if (staging->keys) {
        stage_f32(run, o.k_dtype, o.keys, o.num_keys, shape->k_width, keys, s->keys, moved->keys);
        o.k_dtype = PKV_F32;
        *keys = none;
    }
    if (staging->values) {
        stage_f32(run, o.v_dtype, o.values, o.num_keys, shape->v_width, values, s->values,
                  moved->values);
        o.v_dtype = PKV_F32;
        *values = none;
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

/* Min bytes between what is read and what is prefetched. */
#define PREFETCH_BYTES 8192

/* Keys of a run: of a block where several heads wait for memory, so that these are read in the
 * order in which they lie; of the tile elsewhere, since longer jobs suit the arithmetic. */
static int run_keys(const struct run *run, const struct tile_rows *rows, const struct operands *o)
{
    const bool is_compute_bound =
        rows->num_rows >= COMPUTE_BOUND_ROWS * pkv_dtype_bytes(o->k_dtype);
    return is_compute_bound || run->int8_values || rows->num_heads == 1
               ? TILE_KEYS
               : max_i32(MIN_RUN_KEYS, min_i32(run->plan->shape.block_size, TILE_KEYS));
}

/* Keys [begin, end) of the tile, a run of cells that lie side by side in each head. */
struct span {
    int begin, end;
};

/* Queries without digits, one by one; the job has made up their scores. */
static void dot_undigited(const struct run *run, const struct kernel_dot_job *job)
{
    for (int n = 0; n < job->num_groups * job->num_queries; n++) {
        const size_t group = (size_t)(n / job->num_queries);
        const size_t row = group * job->group_rows + (size_t)(n % job->num_queries);
        const void *keys[TILE_KEYS];
        if (job->digits[row].count > 0) {
            continue;
        }
        for (int j = 0; j < job->num_keys; j++) {
            keys[j] = (const char *)job->keys[j] + group * job->group_bytes;
        }
        const struct kernel_dot_job alone = {
            .dtype = job->dtype,
            .q = job->q + row * job->q_stride,
            .q_stride = job->q_stride,
            .keys = keys,
            .num_groups = 1,
            .num_queries = 1,
            .num_keys = job->num_keys,
            .width = job->width,
            .scores = job->scores + row * TILE_KEYS,
        };
        run->kernels->dot(&alone);
    }
}

static void dot_run(const struct run *run, const struct tile_rows *rows, const struct operands *o,
                    struct span keys, const struct kernel_prefetch *prefetch,
                    const struct scratch *s)
{
    const struct kernel_dot_job job = {
        .dtype = o->k_dtype,
        .q_parts = run->packed_parts,
        .q = s->q,
        .q_stride = s->q_stride,
        .keys = o->keys + keys.begin,
        .num_groups = rows->num_heads,
        .group_rows = rows->head_rows,
        .group_bytes = o->k_head_bytes,
        .num_queries = (int)rows->num_rows,
        .num_keys = keys.end - keys.begin,
        .width = (size_t)run->plan->shape.k_width,
        .scores = s->scores + keys.begin,
        .prefetch = *prefetch,
        .digits = s->digits,
        .transposed = s->keys,
    };
    if (run->int8_keys) {
        run->kernels->dot_int8(&job);
        dot_undigited(run, &job);
    } else if (run->packed_parts > 0) {
        run->kernels->dot_packed(&job);
    } else {
        run->kernels->dot(&job);
    }
}

static void sum_run(const struct run *run, const struct tile_rows *rows, const struct operands *o,
                    struct span keys, const struct kernel_prefetch *prefetch,
                    const struct scratch *s)
{
    const struct kernel_weighted_sum_job job = {
        .dtype = o->v_dtype,
        .weights = s->scores + keys.begin,
        .alpha = keys.begin == 0 ? s->alpha : NULL,
        .values = o->values + keys.begin,
        .num_groups = rows->num_heads,
        .group_rows = rows->head_rows,
        .group_bytes = o->v_head_bytes,
        .num_queries = (int)rows->num_rows,
        .num_keys = keys.end - keys.begin,
        .width = o->v_width,
        .acc = s->acc + o->v_first,
        .acc_stride = s->acc_stride,
        .prefetch = *prefetch,
    };
    if (run->int8_values) {
        run->kernels->weighted_sum_int8(&job);
    } else {
        run->kernels->weighted_sum(&job);
    }
}

/* Scores to weights, of all rows. */
static void softmax_rows(const struct run *run, const struct tile_rows *rows, int num_keys,
                         const float *bias, const struct scratch *s)
{
    const bool is_dense = rows->num_rows == rows->head_rows;
    const int num_calls = is_dense ? 1 : rows->num_heads;
    const size_t num_rows = is_dense ? rows->num_rows * (size_t)rows->num_heads : rows->num_rows;
    for (int h = 0; h < num_calls; h++) {
        const struct scratch part = scratch_from(s, (size_t)h * rows->head_rows);
        const float scale = adjust_scores(run, num_rows, (size_t)num_keys, bias, part.scores);
        const struct kernel_softmax_job softmax = {
            .scores = part.scores,
            .num_queries = (int)num_rows,
            .num_keys = num_keys,
            .scale = scale,
            .max = part.max,
            .sum = part.sum,
            .alpha = part.alpha,
        };
        run->kernels->softmax(&softmax);
        if (run->int8_values) {
            run->kernels->pack_weights(part.scores, (int)num_rows, num_keys);
        }
    }
}

static struct kernel_prefetch prefetch_keys(const struct operands *o, const void *const *keys,
                                            int count)
{
    return (struct kernel_prefetch){
        .vectors = keys,
        .num_vectors = count,
        .vector_bytes = o->k_vector_bytes,
        .group_bytes = o->k_head_bytes,
    };
}

static struct kernel_prefetch prefetch_values(const struct operands *o, const void *const *values,
                                              int count)
{
    return (struct kernel_prefetch){
        .vectors = values,
        .num_vectors = count,
        .vector_bytes = o->v_vector_bytes,
        .group_bytes = o->v_head_bytes,
    };
}

/* How many heads further on the prefetch is in runs of so many keys. */
static int prefetch_distance(const struct tile_rows *rows, const struct operands *o, int num_keys)
{
    const size_t vector_bytes =
        o->k_vector_bytes < o->v_vector_bytes ? o->k_vector_bytes : o->v_vector_bytes;
    const size_t head_bytes = (size_t)num_keys * vector_bytes;
    const size_t ahead = (PREFETCH_BYTES + head_bytes - 1) / head_bytes;
    return ahead < (size_t)rows->num_heads ? (int)ahead : 0;
}

/* The keys of all heads run by run, then the values: memory is read in the order in which it lies,
 * each head's vectors prefetched during those of one before it. */
static void attend_runs(const struct run *run, const struct tile_rows *rows,
                        const struct operands *o, const struct tile *next, const float *bias,
                        const struct scratch *s)
{
    const int step = run_keys(run, rows, o);
    const int first = min_i32(step, o->num_keys);
    const int distance = prefetch_distance(rows, o, step);
    for (int at = 0; at < o->num_keys; at += step) {
        const struct span keys = {at, min_i32(at + step, o->num_keys)};
        const int left = min_i32(step, o->num_keys - keys.end);
        struct kernel_prefetch prefetch = left > 0 ? prefetch_keys(o, o->keys + keys.end, left)
                                                   : prefetch_values(o, o->values, first);
        prefetch.distance = distance;
        dot_run(run, rows, o, keys, &prefetch, s);
    }
    softmax_rows(run, rows, o->num_keys, bias, s);
    for (int at = 0; at < o->num_keys; at += step) {
        const struct span keys = {at, min_i32(at + step, o->num_keys)};
        const int left = min_i32(step, o->num_keys - keys.end);
        struct kernel_prefetch prefetch = {.num_vectors = 0};
        if (left > 0) {
            prefetch = prefetch_values(o, o->values + keys.end, left);
        } else if (next != NULL) {
            prefetch = prefetch_keys(o, next->keys, min_i32(step, next->count));
        }
        prefetch.distance = distance;
        sum_run(run, rows, o, keys, &prefetch, s);
    }
}

/* The cells of the head after `head`; after the last, those of the next tile. */
static void prefetch_after(const struct operands *o, const struct tile_rows *rows, int32_t head,
                           const struct tile *next, struct kernel_prefetch *keys,
                           struct kernel_prefetch *values)
{
    if (head + 1 < rows->num_heads) {
        *keys = prefetch_keys(o, o->keys, o->num_keys);
        *values = prefetch_values(o, o->values, o->num_keys);
        keys->offset = (size_t)(head + 1) * o->k_head_bytes;
        values->offset = (size_t)(head + 1) * o->v_head_bytes;
    } else if (next != NULL) {
        *keys = prefetch_keys(o, next->keys, next->count);
        *values = prefetch_values(o, next->values, next->count);
    } else {
        *keys = *values = (struct kernel_prefetch){.num_vectors = 0};
    }
}

/* Head by head, converted first. */
static void attend_staged(const struct run *run, const struct tile_rows *rows,
                          const struct operands *from, const struct staging *staging,
                          const struct tile *next, const float *bias, const struct scratch *s)
{
    const struct tile_rows head_rows = {1, rows->head_rows, rows->num_rows};
    for (int32_t h = 0; h < rows->num_heads; h++) {
        struct kernel_prefetch keys, values;
        struct tile moved;
        const struct scratch part = scratch_from(s, (size_t)h * rows->head_rows);
        prefetch_after(from, rows, h, next, &keys, &values);
        const struct operands o = stage(run, from, h, staging, &part, &keys, &values, &moved);
        const struct span all = {0, o.num_keys};
        dot_run(run, &head_rows, &o, all, &keys, &part);
        softmax_rows(run, &head_rows, o.num_keys, bias, &part);
        sum_run(run, &head_rows, &o, all, &values, &part);
    }
}

/* Prefetches a part of the tile after this one, one of so many. */
static void prefetch_part(const struct operands *o, const struct tile *next, size_t part,
                          size_t num_parts)
{
    const size_t count = next != NULL ? (size_t)next->count : 0;
    for (size_t j = count * part / num_parts; j < count * (part + 1) / num_parts; j++) {
        prefetch_bytes(next->keys[j], o->k_vector_bytes);
        if (next->values[j] != next->keys[j]) {
            prefetch_bytes(next->values[j], o->v_vector_bytes);
        }
    }
}

/* Keys of a panel, whole register blocks of them. */
static int panel_keys(const struct run *run, size_t vector_bytes)
{
    const size_t keys = PANEL_BYTES / vector_bytes / 4 * 4;
    return run->int8_keys || keys > TILE_KEYS ? TILE_KEYS : keys < 4 ? 4 : (int)keys;
}

/* Scores, a few keys after the other, each converted once for all rows. */
static void dot_panels(const struct run *run, const struct tile_rows *rows,
                       const struct operands *from, bool is_staged, const struct scratch *s)
{
    const struct kernel_prefetch none = {.num_vectors = 0};
    const int32_t width = run->plan->shape.k_width;
    const void *moved[TILE_KEYS];
    struct operands o = *from;
    if (is_staged) {
        o.keys = moved;
        o.k_dtype = PKV_F32;
    }
    const int step = panel_keys(run, (size_t)width * pkv_dtype_bytes(o.k_dtype));
    for (int at = 0; at < o.num_keys; at += step) {
        const struct span keys = {at, min_i32(at + step, o.num_keys)};
        if (is_staged) {
            stage_f32(run, from->k_dtype, from->keys + at, keys.end - at, width, &none, s->keys,
                      moved + at);
        }
        dot_run(run, rows, &o, keys, &none, s);
    }
}

/* Sums, a few channels after the other. */
static void sum_panels(const struct run *run, const struct tile_rows *rows,
                       const struct operands *from, bool is_staged, const struct tile *next,
                       const struct scratch *s)
{
    const struct kernel_prefetch none = {.num_vectors = 0};
    const struct span all = {0, from->num_keys};
    const size_t width = from->v_width;
    const size_t num_panels = (width + PANEL_CHANNELS - 1) / PANEL_CHANNELS;
    const void *values[TILE_KEYS];
    struct operands o = *from;
    o.values = values;
    for (size_t i = 0; i < num_panels; i++) {
        o.v_first = i * PANEL_CHANNELS;
        o.v_width = width - o.v_first < PANEL_CHANNELS ? width - o.v_first : PANEL_CHANNELS;
        for (int j = 0; j < o.num_keys; j++) {
            values[j] = (const char *)from->values[j] + o.v_first * pkv_dtype_bytes(from->v_dtype);
        }
        if (is_staged) {
            stage_f32(run, from->v_dtype, values, o.num_keys, (int32_t)o.v_width, &none, s->values,
                      values);
            o.v_dtype = PKV_F32;
        }
        prefetch_part(from, next, i, num_panels);
        sum_run(run, rows, &o, all, &none, s);
    }
}

/* Whether a tile outgrows the first-level cache and has the query rows to pay for it: 64 rows of
 * 256 channels do not, f32 being a tenth slower then. */
static bool is_for_panels(const struct run *run, const struct tile_rows *rows)
{
    return rows->num_heads == 1 && rows->num_rows >= STAGE_QUERIES &&
           run->plan->shape.k_width >= MIN_PANEL_WIDTH;
}

/* Many query rows and wide vectors, as latent caches have them. */
static void attend_panels(const struct run *run, const struct tile_rows *rows,
                          const struct operands *o, const struct staging *staging,
                          const struct tile *next, const float *bias, const struct scratch *s)
{
    dot_panels(run, rows, o, staging->keys, s);
    softmax_rows(run, rows, o->num_keys, bias, s);
    sum_panels(run, rows, o, staging->values, next, s);
}

void tile_attend(const struct run *run, const struct tile_rows *rows, const struct tile *tile,
                 const struct tile *next, const float *bias, const struct scratch *s)
{
    const struct operands o = operands_of(run, tile);
    const bool takes_keys = run->packed_parts > 0 || run->int8_keys; /* as they are */
    const struct staging staging = {
        .keys = is_worth_staging(o.k_dtype, rows->num_rows) && !takes_keys,
        .values = is_worth_staging(o.v_dtype, rows->num_rows) && !run->int8_values,
    };
    if (is_for_panels(run, rows)) {
        attend_panels(run, rows, &o, &staging, next, bias, s);
    } else if (staging.keys || staging.values) {
        attend_staged(run, rows, &o, &staging, next, bias, s);
    } else {
        attend_runs(run, rows, &o, next, bias, s);
    }
}
