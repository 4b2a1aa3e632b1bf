/* SPDX-License-Identifier: MIT
 *
 * vec_avx512bf16.h: vec_avx512.h, and dot products of bf16 pairs, which need no conversion of the
 * keys and take two channels a lane. q is split into bf16 parts: x = hi + lo with hi the nearest
 * bf16 and lo the nearest to the rest (0 beside an infinite hi), 16 bits together, which is why
 * only calls whose output is f16 or bf16 use this. Order within a dot: lane l sums channels 2l and
 * 2l + 1 of each run of 32, lo before hi, then lanes fold as in kernels.h. Subnormal parts count as
 * zero. */
#ifndef PKV_ATTN_VEC_AVX512BF16_H
#define PKV_ATTN_VEC_AVX512BF16_H

#include "attn/vec_avx512.h"

#include "attn/vec_ahead.h" /* which needs the vectors */

#if defined(__AVX512BF16__)

#define PAIR_CHANNELS 32

VEC_INLINE __m512bh pair_load(const uint16_t *p, size_t count)
{
    if (count >= PAIR_CHANNELS) {
        return (__m512bh)_mm512_loadu_si512(p);
    }
    return (__m512bh)_mm512_maskz_loadu_epi16((__mmask32)((1u << count) - 1), p);
}

/* A row of q in place: q_stride floats become q_stride hi parts and behind them q_stride lo parts.
 * Reading runs ahead of writing: both parts of the first half are kept until the second half was
 * read. */
static void pack_query(float *row, size_t q_stride, float *spare)
{
    uint16_t *parts = (uint16_t *)spare;
    for (size_t c = 0; c < q_stride; c += VEC_LANES) {
        const vf x = vec_load(row + c);
        vec_store_bf16(parts + c, x, VEC_LANES);
        const vf hi = vec_load_bf16(parts + c, VEC_LANES);
        const vf rest = vec_if_less(vec_abs(hi), vec_set(INFINITY), vec_sub(x, hi), vec_set(0.0f));
        vec_store_bf16(parts + q_stride + c, rest, VEC_LANES);
    }
    memcpy(row, parts, q_stride * sizeof row[0]);
}

VEC_INLINE void pair_chunk(int num_parts, int num_queries, int num_keys, const float *q,
                           size_t q_stride, const void *const *keys, size_t first, size_t count,
                           vf *sums)
{
    __m512bh key[VEC_DOT_KEYS];
    for (int j = 0; j < num_keys; j++) {
        key[j] = pair_load((const uint16_t *)keys[j] + first, count);
    }
    for (int i = 0; i < num_queries; i++) {
        const uint16_t *parts = (const uint16_t *)(q + (size_t)i * q_stride) + first;
        const __m512bh hi = pair_load(parts, count);
        const __m512bh lo = num_parts == 2 ? pair_load(parts + q_stride, count) : hi;
        for (int j = 0; j < num_keys; j++) {
            vf *sum = &sums[i * num_keys + j];
            if (num_parts == 2) {
                *sum = _mm512_dpbf16_ps(*sum, lo, key[j]);
            }
            *sum = _mm512_dpbf16_ps(*sum, hi, key[j]);
        }
    }
}

VEC_INLINE void pair_block(int num_parts, int num_queries, int num_keys, const float *q,
                           size_t q_stride, const void *const *keys, lookout *ahead, size_t width,
                           float *scores)
{
    const int num_sums = num_queries * num_keys;
    vf sums[VEC_DOT_QUERIES * VEC_DOT_KEYS];
    float folded[VEC_DOT_QUERIES * VEC_DOT_KEYS];
    for (int n = 0; n < num_sums; n++) {
        sums[n] = vec_set(0.0f);
    }
    look_ahead(ahead);
    size_t c = 0;
    for (; c + PAIR_CHANNELS <= width; c += PAIR_CHANNELS) {
        pair_chunk(num_parts, num_queries, num_keys, q, q_stride, keys, c, PAIR_CHANNELS, sums);
    }
    if (c < width) {
        pair_chunk(num_parts, num_queries, num_keys, q, q_stride, keys, c, width - c, sums);
    }
    if (num_sums % 4 == 0) {
        vec_sums(sums, num_sums, folded);
    } else {
        folded[0] = vec_sum(sums[0]);
    }
    for (int i = 0; i < num_queries; i++) {
        memcpy(scores + (size_t)i * TILE_KEYS, folded + i * num_keys,
               (size_t)num_keys * sizeof folded[0]);
    }
}

/* num_queries, a constant multiple of 4 or 1, against all keys. */
VEC_INLINE void pair_keys(int num_parts, int num_queries, const float *q, size_t q_stride,
                          const void *const *keys, int num_keys, lookout *ahead, size_t width,
                          float *scores)
{
    int j = 0;
    for (; j + VEC_DOT_KEYS <= num_keys; j += VEC_DOT_KEYS) {
        pair_block(num_parts, num_queries, VEC_DOT_KEYS, q, q_stride, keys + j, ahead, width,
                   scores + j);
    }
    for (; j < num_keys; j++) {
        pair_block(num_parts, num_queries, 1, q, q_stride, keys + j, ahead, width, scores + j);
    }
}

VEC_INLINE void pair_dot(int num_parts, const float *q, size_t q_stride, int num_queries,
                         const void *const *keys, const struct kernel_ahead *rows_ahead,
                         int num_keys, int width, float *scores)
{
    const int blocks = (num_queries / VEC_DOT_QUERIES + num_queries % VEC_DOT_QUERIES) *
                       ((num_keys + VEC_DOT_KEYS - 1) / VEC_DOT_KEYS);
    lookout ahead = look_at(rows_ahead, num_keys, blocks);
    int i = 0;
    for (; i + VEC_DOT_QUERIES <= num_queries; i += VEC_DOT_QUERIES) {
        pair_keys(num_parts, VEC_DOT_QUERIES, q + (size_t)i * q_stride, q_stride, keys, num_keys,
                  &ahead, (size_t)width, scores + (size_t)i * TILE_KEYS);
    }
    for (; i < num_queries; i++) {
        pair_keys(num_parts, 1, q + (size_t)i * q_stride, q_stride, keys, num_keys, &ahead,
                  (size_t)width, scores + (size_t)i * TILE_KEYS);
    }
}

static void pair_dot_hi(const float *q, size_t q_stride, int num_queries, const void *const *keys,
                        const struct kernel_ahead *ahead, int num_keys, int width, float *scores)
{
    pair_dot(1, q, q_stride, num_queries, keys, ahead, num_keys, width, scores);
}

static void pair_dot_both(const float *q, size_t q_stride, int num_queries, const void *const *keys,
                          const struct kernel_ahead *ahead, int num_keys, int width, float *scores)
{
    pair_dot(2, q, q_stride, num_queries, keys, ahead, num_keys, width, scores);
}

#endif
#endif
