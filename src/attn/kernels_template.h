/* SPDX-License-Identifier: MIT
 *
 * kernels_template.h: every kernel, once, in terms of the vectors of a vec_<isa>.h. A
 * kernels_<isa>.c includes its vectors, defines KERNELS (the name of its table) and KERNELS_ISA,
 * and includes this file. The order of operations is stated in kernels.h; register blocks change
 * how many sums are in flight, never the order within one. */

#include "attn/vec_ahead.h"

/* What load_as and the blocks below are specialised by: a constant after inlining. */
VEC_INLINE vf load_as(enum pkv_dtype dtype, const void *row, size_t first, size_t count)
{
    switch (dtype) {
    case PKV_F16: return vec_load_f16((const uint16_t *)row + first, count);
    case PKV_BF16: return vec_load_bf16((const uint16_t *)row + first, count);
    case PKV_INT8: return vec_load_int8((const int8_t *)row + first, count);
    case PKV_E4M3: return vec_load_e4m3((const uint8_t *)row + first, count);
    case PKV_F32: break;
    }
    return vec_load_f32((const float *)row + first, count);
}

/* exp(x) for x <= 0: x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts of which the first has
 * so few bits that n times it is exact; exp(r) by its series to r^7, whose next term is below 6e-9.
 * Below -87.33 the result would be subnormal and is 0. NaN stays NaN. */
VEC_INLINE vf exp_of(vf x)
{
    static const float series[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6,
                                   1.0f / 2,   1.0f,       1.0f};
    const vf n = vec_round(vec_mul(x, vec_set(1.44269504f)));
    vf r = vec_fma(n, vec_set(-0.693359375f), x);
    r = vec_fma(n, vec_set(2.12194440e-4f), r);
    vf power = vec_set(1.0f / 5040);
    for (size_t i = 0; i < sizeof series / sizeof series[0]; i++) {
        power = vec_fma(power, r, vec_set(series[i]));
    }
    return vec_zero_if_less(x, vec_set(-87.33f), vec_scale2(power, n));
}

/* tanh(x): below 1/2 its series to x^15 (the next term is under 5e-9 there), above
 * (1 - e) / (1 + e) with e = exp(-2 |x|). */
VEC_INLINE vf tanh_of(vf x)
{
    static const float series[] = {-21844.0f / 6081075, 1382.0f / 155925, -62.0f / 2835,
                                   17.0f / 315,         -2.0f / 15,       1.0f / 3};
    const vf size = vec_abs(x);
    const vf e = exp_of(vec_mul(size, vec_set(-2.0f)));
    const vf large = vec_div(vec_sub(vec_set(1.0f), e), vec_add(vec_set(1.0f), e));
    const vf square = vec_mul(size, size);
    vf sum = vec_set(929569.0f / 638512875.0f);
    for (size_t i = 0; i < sizeof series / sizeof series[0]; i++) {
        sum = vec_fma(sum, square, vec_set(-series[i]));
    }
    const vf small = vec_fma(vec_mul(size, square), sum, size);
    return vec_copysign(vec_if_less(size, vec_set(0.5f), small, large), x);
}

/* ---- dot: a block of num_queries x num_keys sums ------------------------------------------- */

#define MOST_SUMS 16

typedef struct {
    const float *q;
    size_t q_stride;
    const void *const *keys;
    int num_keys;
    size_t width;
    float *scores;
} dot_job;

/* sums[i * num_keys + j] += q[i] * keys[j] over one vector of channels. */
VEC_INLINE void dot_chunk(enum pkv_dtype dtype, int num_queries, int num_keys, const float *q,
                          size_t q_stride, const void *const *keys, size_t first, size_t count,
                          vf *sums)
{
    vf key[VEC_DOT_KEYS];
    for (int j = 0; j < num_keys; j++) {
        key[j] = load_as(dtype, keys[j], first, count);
    }
    for (int i = 0; i < num_queries; i++) {
        const vf query = vec_load(q + (size_t)i * q_stride + first);
        for (int j = 0; j < num_keys; j++) {
            sums[i * num_keys + j] = vec_fma(query, key[j], sums[i * num_keys + j]);
        }
    }
}

VEC_INLINE void dot_block(enum pkv_dtype dtype, int num_queries, int num_keys, const float *q,
                          size_t q_stride, const void *const *keys, lookout *ahead, size_t width,
                          float *scores)
{
    const int num_sums = num_queries * num_keys;
    vf sums[MOST_SUMS];
    float folded[MOST_SUMS];
    for (int n = 0; n < num_sums; n++) {
        sums[n] = vec_set(0.0f);
    }
    look_ahead(ahead);
    size_t c = 0;
    for (; c + VEC_LANES <= width; c += VEC_LANES) {
        dot_chunk(dtype, num_queries, num_keys, q, q_stride, keys, c, VEC_LANES, sums);
    }
    if (c < width) {
        dot_chunk(dtype, num_queries, num_keys, q, q_stride, keys, c, width - c, sums);
    }
    if (num_sums % 4 == 0) {
        vec_sums(sums, num_sums, folded);
    } else {
        for (int n = 0; n < num_sums; n++) {
            folded[n] = vec_sum(sums[n]);
        }
    }
    for (int i = 0; i < num_queries; i++) {
        memcpy(scores + (size_t)i * TILE_KEYS, folded + i * num_keys,
               (size_t)num_keys * sizeof folded[0]);
    }
}

/* All queries against the tile by blocks of num_queries x num_keys, constants; what keys are left
 * over go one by one. Returns the first query that is left over. */
VEC_INLINE int dot_blocks(enum pkv_dtype dtype, int num_queries, int num_keys, int first_query,
                          int end_query, lookout *ahead, const dot_job *job)
{
    int i = first_query;
    for (; i + num_queries <= end_query; i += num_queries) {
        const float *q = job->q + (size_t)i * job->q_stride;
        float *scores = job->scores + (size_t)i * TILE_KEYS;
        int j = 0;
        for (; j + num_keys <= job->num_keys; j += num_keys) {
            dot_block(dtype, num_queries, num_keys, q, job->q_stride, job->keys + j, ahead,
                      job->width, scores + j);
        }
        for (; j < job->num_keys; j++) {
            dot_block(dtype, num_queries, 1, q, job->q_stride, job->keys + j, ahead, job->width,
                      scores + j);
        }
    }
    return i;
}

VEC_INLINE void dot_as(enum pkv_dtype dtype, int num_queries, const struct kernel_ahead *rows_ahead,
                       const dot_job *job)
{
    const int blocks = (num_queries + VEC_DOT_QUERIES - 1) / VEC_DOT_QUERIES *
                       ((job->num_keys + VEC_DOT_KEYS - 1) / VEC_DOT_KEYS);
    lookout ahead = look_at(rows_ahead, job->num_keys, blocks);
    int i = 0;
    i = dot_blocks(dtype, VEC_DOT_QUERIES, VEC_DOT_KEYS, i, num_queries, &ahead, job);
    if (VEC_DOT_QUERIES > 3) {
        i = dot_blocks(dtype, 3, VEC_DOT_KEYS, i, num_queries, &ahead, job);
    }
    if (VEC_DOT_QUERIES > 2) {
        i = dot_blocks(dtype, 2, VEC_DOT_KEYS, i, num_queries, &ahead, job);
    }
    dot_blocks(dtype, 1, VEC_DOT_KEYS, i, num_queries, &ahead, job);
}

static void dot_f32(const float *q, size_t q_stride, int num_queries, const void *const *keys,
                    const struct kernel_ahead *ahead, int num_keys, int width, float *scores)
{
    const dot_job job = {q, q_stride, keys, num_keys, (size_t)width, scores};
    dot_as(PKV_F32, num_queries, ahead, &job);
}

static void dot_f16(const float *q, size_t q_stride, int num_queries, const void *const *keys,
                    const struct kernel_ahead *ahead, int num_keys, int width, float *scores)
{
    const dot_job job = {q, q_stride, keys, num_keys, (size_t)width, scores};
    dot_as(PKV_F16, num_queries, ahead, &job);
}

static void dot_bf16(const float *q, size_t q_stride, int num_queries, const void *const *keys,
                     const struct kernel_ahead *ahead, int num_keys, int width, float *scores)
{
    const dot_job job = {q, q_stride, keys, num_keys, (size_t)width, scores};
    dot_as(PKV_BF16, num_queries, ahead, &job);
}

static void dot_int8(const float *q, size_t q_stride, int num_queries, const void *const *keys,
                     const struct kernel_ahead *ahead, int num_keys, int width, float *scores)
{
    const dot_job job = {q, q_stride, keys, num_keys, (size_t)width, scores};
    dot_as(PKV_INT8, num_queries, ahead, &job);
}

static void dot_e4m3(const float *q, size_t q_stride, int num_queries, const void *const *keys,
                     const struct kernel_ahead *ahead, int num_keys, int width, float *scores)
{
    const dot_job job = {q, q_stride, keys, num_keys, (size_t)width, scores};
    dot_as(PKV_E4M3, num_queries, ahead, &job);
}

/* ---- weigh: a block of num_queries x num_vecs vectors of channels -------------------------- */

typedef struct {
    const float *p;
    const float *alpha;
    const void *const *values;
    int num_keys;
    size_t width;
    float *acc;
    size_t acc_stride;
} weigh_job;

/* Keys between two looks ahead. */
#define WEIGH_RUN 8

/* sum[i * num_vecs + v] += p[i][j] * values[j] for a run of keys in ascending order. */
VEC_INLINE void weigh_run(enum pkv_dtype dtype, int num_queries, int num_vecs,
                          const void *const *values, int num_keys, const float *p, size_t first,
                          size_t count, vf *sum)
{
    for (int j = 0; j < num_keys; j++) {
        vf value[VEC_WEIGH_VECS];
        for (int v = 0; v < num_vecs; v++) {
            const size_t at = first + (size_t)v * VEC_LANES;
            value[v] = load_as(dtype, values[j], at, num_vecs > 1 ? VEC_LANES : count);
        }
        for (int i = 0; i < num_queries; i++) {
            const vf weight = vec_set(p[(size_t)i * TILE_KEYS + (size_t)j]);
            for (int v = 0; v < num_vecs; v++) {
                sum[i * num_vecs + v] = vec_fma(weight, value[v], sum[i * num_vecs + v]);
            }
        }
    }
}

VEC_INLINE void weigh_block(enum pkv_dtype dtype, int num_queries, int num_vecs, int query,
                            size_t first, size_t count, lookout *ahead, const weigh_job *job)
{
    vf sum[MOST_SUMS];
    float *acc = job->acc + (size_t)query * job->acc_stride + first;
    const float *p = job->p + (size_t)query * TILE_KEYS;
    for (int i = 0; i < num_queries; i++) {
        const vf alpha = vec_set(job->alpha[query + i]);
        for (int v = 0; v < num_vecs; v++) {
            const float *from = acc + (size_t)i * job->acc_stride + (size_t)v * VEC_LANES;
            sum[i * num_vecs + v] = vec_mul(vec_load(from), alpha);
        }
    }
    for (int begin = 0; begin < job->num_keys; begin += WEIGH_RUN) {
        const int left = job->num_keys - begin;
        look_ahead(ahead);
        weigh_run(dtype, num_queries, num_vecs, job->values + begin,
                  left < WEIGH_RUN ? left : WEIGH_RUN, p + begin, first, count, sum);
    }
    for (int i = 0; i < num_queries; i++) {
        for (int v = 0; v < num_vecs; v++) {
            vec_store(acc + (size_t)i * job->acc_stride + (size_t)v * VEC_LANES,
                      sum[i * num_vecs + v]);
        }
    }
}

/* Queries from first_query on by blocks of num_queries x num_vecs, constants, over all channels.
 * Returns the first query that is left over. */
VEC_INLINE int weigh_blocks(enum pkv_dtype dtype, int num_queries, int num_vecs, int first_query,
                            int end_query, lookout *ahead, const weigh_job *job)
{
    const size_t block = (size_t)num_vecs * VEC_LANES;
    int i = first_query;
    for (; i + num_queries <= end_query; i += num_queries) {
        size_t c = 0;
        for (; c + block <= job->width; c += block) {
            weigh_block(dtype, num_queries, num_vecs, i, c, block, ahead, job);
        }
        for (; c < job->width; c += VEC_LANES) {
            const size_t left = job->width - c;
            weigh_block(dtype, num_queries, 1, i, c, left < VEC_LANES ? left : VEC_LANES, ahead,
                        job);
        }
    }
    return i;
}

VEC_INLINE void weigh_as(enum pkv_dtype dtype, int num_queries,
                         const struct kernel_ahead *rows_ahead, const weigh_job *job)
{
    /* twice the queries convert half as often, and e4m3 is dear to convert */
    const bool is_wide = dtype == PKV_E4M3 && num_queries >= 2 * VEC_WEIGH_QUERIES;
    const int queries = is_wide ? 2 * VEC_WEIGH_QUERIES : VEC_WEIGH_QUERIES;
    const size_t width = (size_t)(is_wide ? VEC_WEIGH_VECS / 2 : VEC_WEIGH_VECS) * VEC_LANES;
    const int blocks = (num_queries + queries - 1) / queries *
                       (int)((job->width + width - 1) / width) *
                       ((job->num_keys + WEIGH_RUN - 1) / WEIGH_RUN);
    lookout ahead = look_at(rows_ahead, job->num_keys, blocks);
    int i = 0;
    if (is_wide) {
        i = weigh_blocks(dtype, 2 * VEC_WEIGH_QUERIES, VEC_WEIGH_VECS / 2, i, num_queries, &ahead,
                         job);
    }
    i = weigh_blocks(dtype, VEC_WEIGH_QUERIES, VEC_WEIGH_VECS, i, num_queries, &ahead, job);
    if (VEC_WEIGH_QUERIES > 3) {
        i = weigh_blocks(dtype, 3, VEC_WEIGH_VECS, i, num_queries, &ahead, job);
    }
    if (VEC_WEIGH_QUERIES > 2) {
        i = weigh_blocks(dtype, 2, VEC_WEIGH_VECS, i, num_queries, &ahead, job);
    }
    weigh_blocks(dtype, 1, VEC_WEIGH_VECS, i, num_queries, &ahead, job);
}

static void weigh_f32(const float *p, const float *alpha, int num_queries,
                      const void *const *values, const struct kernel_ahead *ahead, int num_keys,
                      int width, float *acc, size_t acc_stride)
{
    const weigh_job job = {p, alpha, values, num_keys, (size_t)width, acc, acc_stride};
    weigh_as(PKV_F32, num_queries, ahead, &job);
}

static void weigh_f16(const float *p, const float *alpha, int num_queries,
                      const void *const *values, const struct kernel_ahead *ahead, int num_keys,
                      int width, float *acc, size_t acc_stride)
{
    const weigh_job job = {p, alpha, values, num_keys, (size_t)width, acc, acc_stride};
    weigh_as(PKV_F16, num_queries, ahead, &job);
}

static void weigh_bf16(const float *p, const float *alpha, int num_queries,
                       const void *const *values, const struct kernel_ahead *ahead, int num_keys,
                       int width, float *acc, size_t acc_stride)
{
    const weigh_job job = {p, alpha, values, num_keys, (size_t)width, acc, acc_stride};
    weigh_as(PKV_BF16, num_queries, ahead, &job);
}

static void weigh_int8(const float *p, const float *alpha, int num_queries,
                       const void *const *values, const struct kernel_ahead *ahead, int num_keys,
                       int width, float *acc, size_t acc_stride)
{
    const weigh_job job = {p, alpha, values, num_keys, (size_t)width, acc, acc_stride};
    weigh_as(PKV_INT8, num_queries, ahead, &job);
}

static void weigh_e4m3(const float *p, const float *alpha, int num_queries,
                       const void *const *values, const struct kernel_ahead *ahead, int num_keys,
                       int width, float *acc, size_t acc_stride)
{
    const weigh_job job = {p, alpha, values, num_keys, (size_t)width, acc, acc_stride};
    weigh_as(PKV_E4M3, num_queries, ahead, &job);
}

/* ---- softmax ------------------------------------------------------------------------------- */

/* Queries whose chains of dependent operations overlap. */
#define SOFTMAX_QUERIES 4

typedef struct {
    int num_keys;
    float scale;
    float *max;
    float *sum;
    float *alpha;
} softmax_job;

/* No score above -inf: weights of 0, and the state as it was. The vector maximum passes over NaN,
 * so it may still be there: then the state is NaN from here on. */
static float softmax_of_nothing(float *scores, size_t num_keys, float *max, float *sum)
{
    float factor = 1.0f;
    for (size_t j = 0; j < padded(num_keys); j++) {
        if (j < num_keys && scores[j] != scores[j]) {
            *max = *sum = factor = NAN;
        } else {
            scores[j] = 0.0f;
        }
    }
    return factor;
}

/* exp(max - new_max), which is exactly 1 for most tiles: the maximum is found early. */
VEC_INLINE float decay_of(float max, float new_max)
{
    float alpha[VEC_LANES];
    if (max == new_max) {
        return 1.0f;
    }
    vec_store(alpha, exp_of(vec_set(max - new_max)));
    return alpha[0];
}

/* The largest of max and one query's num_keys scores, a multiple of VEC_LANES, times scale. */
VEC_INLINE float largest_of(const float *scores, size_t num_keys, float scale, float max)
{
    vf largest = vec_set(max);
    for (size_t j = 0; j < num_keys; j += VEC_LANES) {
        largest = vec_max(vec_mul(vec_load(scores + j), vec_set(scale)), largest);
    }
    return vec_max_lane(largest);
}

/* num_queries from `query` on against num_keys, a multiple of VEC_LANES; both constants in the
 * usual case. */
VEC_INLINE void softmax_block(int num_queries, size_t num_keys, float *scores, float scale,
                              const float *new_max, int query, const softmax_job *job)
{
    vf total[SOFTMAX_QUERIES];
    for (int i = 0; i < num_queries; i++) {
        total[i] = vec_set(0.0f);
    }
    for (size_t j = 0; j < num_keys; j += VEC_LANES) {
        for (int i = 0; i < num_queries; i++) {
            float *at = scores + (size_t)i * TILE_KEYS + j;
            const vf score = vec_mul(vec_load(at), vec_set(scale));
            const vf p = exp_of(vec_sub(score, vec_set(new_max[i])));
            vec_store(at, p);
            total[i] = vec_add(total[i], p);
        }
    }
    for (int i = 0; i < num_queries; i++) {
        const float alpha = decay_of(job->max[query + i], new_max[i]);
        job->sum[query + i] = job->sum[query + i] * alpha + vec_sum(total[i]);
        job->max[query + i] = new_max[i];
        job->alpha[query + i] = alpha;
    }
}

/* One query and any number of keys: scaled first, then padded with -inf. */
static void softmax_any(float *scores, int query, const softmax_job *job)
{
    const size_t num_keys = (size_t)job->num_keys, end = padded(num_keys);
    for (size_t j = 0; j < num_keys; j++) {
        scores[j] *= job->scale;
    }
    for (size_t j = num_keys; j < end; j++) {
        scores[j] = -INFINITY;
    }
    const float new_max = largest_of(scores, end, 1.0f, job->max[query]);
    if (new_max == -INFINITY) { /* exp(-inf - -inf) must not be asked for */
        job->alpha[query] =
            softmax_of_nothing(scores, num_keys, &job->max[query], &job->sum[query]);
    } else {
        softmax_block(1, end, scores, 1.0f, &new_max, query, job);
    }
}

/* num_queries, a constant, against a whole tile, if each of them has seen a key by then. */
VEC_INLINE bool softmax_whole(int num_queries, float *scores, int query, const softmax_job *job)
{
    float new_max[SOFTMAX_QUERIES];
    bool is_seen = true;
    for (int i = 0; i < num_queries; i++) {
        new_max[i] =
            largest_of(scores + (size_t)i * TILE_KEYS, TILE_KEYS, job->scale, job->max[query + i]);
        is_seen = is_seen && new_max[i] != -INFINITY;
    }
    if (is_seen) {
        softmax_block(num_queries, TILE_KEYS, scores, job->scale, new_max, query, job);
    }
    return is_seen;
}

static void softmax_tile(float *scores, int num_queries, int num_keys, float scale, float *max,
                         float *sum, float *alpha)
{
    const softmax_job job = {num_keys, scale, max, sum, alpha};
    int i = 0;
    while (num_keys == TILE_KEYS && i + SOFTMAX_QUERIES <= num_queries &&
           softmax_whole(SOFTMAX_QUERIES, scores + (size_t)i * TILE_KEYS, i, &job)) {
        i += SOFTMAX_QUERIES;
    }
    for (; i < num_queries; i++) {
        float *row = scores + (size_t)i * TILE_KEYS;
        if (num_keys != TILE_KEYS || !softmax_whole(1, row, i, &job)) {
            softmax_any(row, i, &job);
        }
    }
}

/* ---- element by element -------------------------------------------------------------------- */

static void scale_floats(float *x, size_t count, float factor)
{
    size_t i = 0;
    for (; i + VEC_LANES <= count; i += VEC_LANES) {
        vec_store(x + i, vec_mul(vec_load(x + i), vec_set(factor)));
    }
    if (i < count) {
        vec_store_f32(x + i, vec_mul(vec_load_f32(x + i, count - i), vec_set(factor)), count - i);
    }
}

static void softcap_floats(float *x, size_t count, float cap)
{
    for (size_t i = 0; i < count; i += VEC_LANES) {
        const vf ratio = vec_div(vec_load_f32(x + i, count - i), vec_set(cap));
        vec_store_f32(x + i, vec_mul(tanh_of(ratio), vec_set(cap)), count - i);
    }
}

static void widen_f32(const void *x, size_t count, float *y)
{
    memcpy(y, x, count * sizeof y[0]);
}

/* Whole vectors first: a store of part of one is dear. */
VEC_INLINE void widen_as(enum pkv_dtype dtype, const void *x, size_t count, float *y)
{
    size_t i = 0;
    for (; i + VEC_LANES <= count; i += VEC_LANES) {
        vec_store(y + i, load_as(dtype, x, i, VEC_LANES));
    }
    if (i < count) {
        vec_store_f32(y + i, load_as(dtype, x, i, count - i), count - i);
    }
}

static void widen_f16(const void *x, size_t count, float *y)
{
    widen_as(PKV_F16, x, count, y);
}

static void widen_bf16(const void *x, size_t count, float *y)
{
    widen_as(PKV_BF16, x, count, y);
}

static void widen_int8(const void *x, size_t count, float *y)
{
    widen_as(PKV_INT8, x, count, y);
}

static void widen_e4m3(const void *x, size_t count, float *y)
{
    widen_as(PKV_E4M3, x, count, y);
}

static void narrow_f32(const float *x, size_t count, void *y)
{
    memcpy(y, x, count * sizeof x[0]);
}

static void narrow_f16(const float *x, size_t count, void *y)
{
    for (size_t i = 0; i < count; i += VEC_LANES) {
        vec_store_f16((uint16_t *)y + i, vec_load_f32(x + i, count - i), count - i);
    }
}

static void narrow_bf16(const float *x, size_t count, void *y)
{
    for (size_t i = 0; i < count; i += VEC_LANES) {
        vec_store_bf16((uint16_t *)y + i, vec_load_f32(x + i, count - i), count - i);
    }
}

const struct kernels KERNELS = {
    .isa = KERNELS_ISA,
    .widen = {[PKV_F32] = widen_f32,
              [PKV_F16] = widen_f16,
              [PKV_BF16] = widen_bf16,
              [PKV_INT8] = widen_int8,
              [PKV_E4M3] = widen_e4m3},
    .narrow = {[PKV_F32] = narrow_f32, [PKV_F16] = narrow_f16, [PKV_BF16] = narrow_bf16},
    .dot = {[PKV_F32] = dot_f32,
            [PKV_F16] = dot_f16,
            [PKV_BF16] = dot_bf16,
            [PKV_INT8] = dot_int8,
            [PKV_E4M3] = dot_e4m3},
    .pack = KERNELS_PACK,
    .dot_packed = {KERNELS_DOT_HI, KERNELS_DOT_BOTH},
    .weigh = {[PKV_F32] = weigh_f32,
              [PKV_F16] = weigh_f16,
              [PKV_BF16] = weigh_bf16,
              [PKV_INT8] = weigh_int8,
              [PKV_E4M3] = weigh_e4m3},
    .softmax = softmax_tile,
    .scale = scale_floats,
    .softcap = softcap_floats,
};
