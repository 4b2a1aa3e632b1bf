/* SPDX-License-Identifier: MIT
 *
 * vec_avx512.h: the vectors that kernels_template.h is written in, 16 floats each. A load with a
 * count reads that many elements and sets the other lanes to zero. */
#ifndef PKV_ATTN_VEC_AVX512_H
#define PKV_ATTN_VEC_AVX512_H

#if defined(__AVX512F__)
#include <immintrin.h>

#include "attn/kernels.h"

#define VEC_INLINE static inline __attribute__((always_inline))
#define VEC_LANES 16

/* Register blocks: queries x keys of dot, queries x registers of channels of
 * weighted_sum. */
#define VEC_DOT_QUERIES 4
#define VEC_DOT_KEYS 4
#define VEC_SUM_QUERIES 4
#define VEC_SUM_VECS 4

typedef __m512 vf;

VEC_INLINE vf vec_set(float x)
{
    return _mm512_set1_ps(x);
}

VEC_INLINE vf vec_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

VEC_INLINE void vec_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}

VEC_INLINE vf vec_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

VEC_INLINE vf vec_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

VEC_INLINE vf vec_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

/* a * b + c, rounded once */
VEC_INLINE vf vec_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

VEC_INLINE vf vec_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

VEC_INLINE vf vec_round(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* x * 2^n for integral n; n in [-127, 127] */
VEC_INLINE vf vec_scale2(vf x, vf n)
{
    return _mm512_scalef_ps(x, n);
}

/* x where a >= b or either is NaN, else 0 */
VEC_INLINE vf vec_zero_if_less(vf a, vf b, vf x)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ), x);
}

VEC_INLINE __mmask16 vec_mask(size_t count)
{
    return count >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << count) - 1);
}

VEC_INLINE vf vec_load_f32(const void *p, size_t count)
{
    return count >= 16 ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(vec_mask(count), p);
}

VEC_INLINE vf vec_load_f16(const void *p, size_t count)
{
    return _mm512_cvtph_ps(count >= 16 ? _mm256_loadu_si256(p)
                                       : _mm256_maskz_loadu_epi16(vec_mask(count), p));
}

VEC_INLINE vf vec_load_bf16(const void *p, size_t count)
{
    const __m256i half =
        count >= 16 ? _mm256_loadu_si256(p) : _mm256_maskz_loadu_epi16(vec_mask(count), p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

VEC_INLINE void vec_store_f32(void *p, vf x, size_t count)
{
    _mm512_mask_storeu_ps(p, vec_mask(count), x);
}

VEC_INLINE void vec_store_f16(void *p, vf x, size_t count)
{
    _mm256_mask_storeu_epi16(p, vec_mask(count),
                             _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* Round to nearest even by integers: add half of the last kept bit, less one when that bit is even.
 * A NaN is kept quiet instead, since the addition could carry it to infinity. */
VEC_INLINE void vec_store_bf16(void *p, vf x, size_t count)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_add_epi32(bits, bias);
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i wide = _mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16);
    _mm256_mask_storeu_epi16(p, vec_mask(count), _mm512_cvtepi32_epi16(wide));
}

VEC_INLINE vf vec_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

VEC_INLINE vf vec_abs(vf x)
{
    return _mm512_abs_ps(x);
}

/* |x| with the sign of y */
VEC_INLINE vf vec_copysign(vf x, vf y)
{
    const vf sign = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(sign, x), _mm512_and_ps(sign, y));
}

/* x where a < b, else y */
VEC_INLINE vf vec_if_less(vf a, vf b, vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}

VEC_INLINE __m128i vec_load_bytes(const void *p, size_t count)
{
    return count >= 16 ? _mm_loadu_si128(p) : _mm_maskz_loadu_epi8(vec_mask(count), p);
}

VEC_INLINE vf vec_load_int8(const void *p, size_t count)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(vec_load_bytes(p, count)));
}

/* As f16 the seven low bits, moved up by seven, are the value over 2^8, subnormals included. The
 * one NaN pattern of e4m3 would be 480 / 2^8: it is told by its seven bits being all set. */
VEC_INLINE vf vec_load_e4m3(const void *p, size_t count)
{
    const __m128i bytes = vec_load_bytes(p, count);
    const __m128i others = _mm_or_si128(bytes, _mm_set1_epi8(-128));
    const __mmask16 number = _mm_cmpneq_epi8_mask(others, _mm_set1_epi8(-1));
    const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
    const __m256i half = _mm256_and_si256(wide, _mm256_set1_epi16(-0x4080));
    return _mm512_mask_cvtph_ps(_mm512_set1_ps(NAN), number, half);
}

/* The line into the second-level cache. */
VEC_INLINE void vec_prefetch(const void *p)
{
    _mm_prefetch(p, _MM_HINT_T1);
}

VEC_INLINE float vec_max_lane(vf x)
{
    return _mm512_reduce_max_ps(x);
}

/* Reduction pairs vectors up. Of two operands to be added, each lane is in one vector or the other,
 * so a blend, which any execution port can do, spares every second shuffle. Addition commutes, so
 * the side a lane comes from does not show in the bits. */

/* [a + a's upper half | b + b's upper half], eight lanes each */
VEC_INLINE vf vec_reduce8(vf a, vf b)
{
    const vf near = _mm512_mask_blend_ps(0xff00, a, b);
    return _mm512_add_ps(near, _mm512_shuffle_f32x4(a, b, 0x4e));
}

/* four vectors of [a | b] to the four lanes of each: [a | b | c | d] */
VEC_INLINE vf vec_reduce4(vf ab, vf cd)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
}

/* Per 128-bit lane: [a0 + a2, a1 + a3, b0 + b2, b1 + b3] */
VEC_INLINE vf vec_reduce2(vf a, vf b)
{
    const vf near = _mm512_mask_blend_ps(0xcccc, a, b);
    return _mm512_add_ps(near, _mm512_shuffle_ps(a, b, 0x4e));
}

/* Four vectors whose 128-bit lanes await their last two steps, + 2 and + 1: lane l of the result
 * is [x0 | x1 | x2 | x3], the sum of lane l of each. */
VEC_INLINE vf vec_reduce1(vf x0, vf x1, vf x2, vf x3)
{
    const vf x01 = vec_reduce2(x0, x1), x23 = vec_reduce2(x2, x3);
    return _mm512_add_ps(_mm512_shuffle_ps(x01, x23, 0x88), _mm512_shuffle_ps(x01, x23, 0xdd));
}

VEC_INLINE vf vec_sum16(const vf *x)
{
    vf lanes[4];
    for (int e = 0; e < 4; e++) {
        lanes[e] = vec_reduce4(vec_reduce8(x[e], x[4 + e]), vec_reduce8(x[8 + e], x[12 + e]));
    }
    return vec_reduce1(lanes[0], lanes[1], lanes[2], lanes[3]);
}

/* out[i] = the sum of x[i]'s lanes in the fixed order: i + 8, then + 4, + 2, + 1. */
VEC_INLINE void vec_sums(const vf *x, int count, float *out)
{
    if (count == 16) {
        _mm512_storeu_ps(out, vec_sum16(x));
        return;
    }
    for (int i = 0; i < count; i += 4) {
        const vf lanes = vec_reduce4(vec_reduce8(x[i], x[i + 1]), vec_reduce8(x[i + 2], x[i + 3]));
        const vf two = _mm512_add_ps(lanes, _mm512_permute_ps(lanes, 0x4e));
        const vf one = _mm512_add_ps(two, _mm512_permute_ps(two, 0xb1));
        const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        _mm_storeu_ps(out + i, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, one)));
    }
}

VEC_INLINE float vec_sum(vf x)
{
    const vf same[4] = {x, x, x, x};
    float sums[4];
    vec_sums(same, 4, sums);
    return sums[0];
}

#endif
#endif
