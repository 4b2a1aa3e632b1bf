/* SPDX-License-Identifier: MIT
 *
 * vec_avx2.h: the vectors that kernels_template.h is written in, 8 floats each; AVX2, FMA and F16C.
 * A load with a count reads that many elements and sets the other lanes to zero. */
#ifndef PKV_ATTN_VEC_AVX2_H
#define PKV_ATTN_VEC_AVX2_H

#if defined(__AVX2__)
#include <immintrin.h>
#include <string.h>

#include "attn/kernels.h"

#define VEC_INLINE static inline __attribute__((always_inline))
#define VEC_LANES 8

/* Register blocks: queries x keys of dot, queries x registers of channels of
 * weighted_sum. */
#define VEC_DOT_QUERIES 2
#define VEC_DOT_KEYS 4
#define VEC_SUM_QUERIES 2
#define VEC_SUM_VECS 4

typedef __m256 vf;

VEC_INLINE vf vec_set(float x)
{
    return _mm256_set1_ps(x);
}

VEC_INLINE vf vec_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

VEC_INLINE void vec_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}

VEC_INLINE vf vec_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

VEC_INLINE vf vec_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

VEC_INLINE vf vec_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

VEC_INLINE vf vec_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

VEC_INLINE vf vec_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

VEC_INLINE vf vec_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* x * 2^n for integral n in [-126, 127]: the power is built from its exponent field. */
VEC_INLINE vf vec_scale2(vf x, vf n)
{
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}

VEC_INLINE vf vec_zero_if_less(vf a, vf b, vf x)
{
    return _mm256_and_ps(_mm256_cmp_ps(a, b, _CMP_NLT_UQ), x);
}

/* The first `count` 16-bit elements of p, in a whole vector. */
VEC_INLINE __m128i vec_load_halves(const void *p, size_t count)
{
    if (count >= 8) {
        return _mm_loadu_si128(p);
    }
    uint16_t halves[8] = {0};
    memcpy(halves, p, count * sizeof halves[0]);
    return _mm_loadu_si128((const __m128i *)halves);
}

VEC_INLINE void vec_store_halves(void *p, __m128i x, size_t count)
{
    if (count >= 8) {
        _mm_storeu_si128(p, x);
        return;
    }
    uint16_t halves[8];
    _mm_storeu_si128((__m128i *)halves, x);
    memcpy(p, halves, count * sizeof halves[0]);
}

VEC_INLINE vf vec_load_f32(const void *p, size_t count)
{
    if (count >= 8) {
        return _mm256_loadu_ps(p);
    }
    float floats[8] = {0};
    memcpy(floats, p, count * sizeof floats[0]);
    return _mm256_loadu_ps(floats);
}

VEC_INLINE vf vec_load_f16(const void *p, size_t count)
{
    return _mm256_cvtph_ps(vec_load_halves(p, count));
}

VEC_INLINE vf vec_load_bf16(const void *p, size_t count)
{
    const __m256i wide = _mm256_cvtepu16_epi32(vec_load_halves(p, count));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

VEC_INLINE void vec_store_f32(void *p, vf x, size_t count)
{
    if (count >= 8) {
        _mm256_storeu_ps(p, x);
        return;
    }
    float floats[8];
    _mm256_storeu_ps(floats, x);
    memcpy(p, floats, count * sizeof floats[0]);
}

VEC_INLINE void vec_store_f16(void *p, vf x, size_t count)
{
    vec_store_halves(p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), count);
}

/* Round to nearest even by integers: add half of the last kept bit, less one when that bit is even.
 * A NaN is kept quiet instead, since the addition could carry it to infinity. */
VEC_INLINE void vec_store_bf16(void *p, vf x, size_t count)
{
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_add_epi32(bits, bias);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i wide = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    const __m256i packed = _mm256_packus_epi32(wide, wide);
    const __m256i ordered = _mm256_permute4x64_epi64(packed, 0xd8);
    vec_store_halves(p, _mm256_castsi256_si128(ordered), count);
}

VEC_INLINE __m128 vec_add_halves(vf x)
{
    return _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
}

VEC_INLINE vf vec_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

VEC_INLINE vf vec_abs(vf x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

/* |x| with the sign of y */
VEC_INLINE vf vec_copysign(vf x, vf y)
{
    return _mm256_or_ps(vec_abs(x), _mm256_and_ps(_mm256_set1_ps(-0.0f), y));
}

/* x where a < b, else y */
VEC_INLINE vf vec_if_less(vf a, vf b, vf x, vf y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

VEC_INLINE __m128i vec_load_bytes(const void *p, size_t count)
{
    if (count >= 8) {
        return _mm_loadl_epi64(p);
    }
    uint8_t bytes[8] = {0};
    memcpy(bytes, p, count);
    return _mm_loadl_epi64((const __m128i *)bytes);
}

VEC_INLINE vf vec_load_int8(const void *p, size_t count)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(vec_load_bytes(p, count)));
}

/* As f16 the seven low bits, moved up by seven, are the value over 2^8, subnormals included; the
 * one NaN pattern of e4m3 would be 480 / 2^8. */
VEC_INLINE vf vec_load_e4m3(const void *p, size_t count)
{
    const __m128i wide = _mm_cvtepu8_epi16(vec_load_bytes(p, count));
    const __m128i low = _mm_and_si128(wide, _mm_set1_epi16(0x7f));
    const __m128i sign = _mm_slli_epi16(_mm_xor_si128(wide, low), 8);
    const __m128i nan = _mm_cmpeq_epi16(low, _mm_set1_epi16(0x7f));
    const __m128i half = _mm_or_si128(sign, _mm_slli_epi16(low, 7));
    const __m128i marked = _mm_or_si128(half, _mm_and_si128(nan, _mm_set1_epi16(0x7e00)));
    return _mm256_cvtph_ps(marked);
}

/* The line into the second-level cache. */
VEC_INLINE void vec_prefetch(const void *p)
{
    _mm_prefetch(p, _MM_HINT_T1);
}

VEC_INLINE float vec_max_lane(vf x)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_shuffle_ps(m, m, 1));
    return _mm_cvtss_f32(m);
}

/* out[i] = the sum of x[i]'s lanes in the fixed order: i + 4, then + 2, + 1. count is a multiple
 * of 4. */
VEC_INLINE void vec_sums(const vf *x, int count, float *out)
{
    for (int i = 0; i < count; i += 4) {
        const __m128 a = vec_add_halves(x[i]);
        const __m128 b = vec_add_halves(x[i + 1]);
        const __m128 c = vec_add_halves(x[i + 2]);
        const __m128 d = vec_add_halves(x[i + 3]);
        const __m128 ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
        const __m128 cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
        _mm_storeu_ps(out + i, _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab)));
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
