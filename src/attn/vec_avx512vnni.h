/* SPDX-License-Identifier: MIT
 *
 * vec_avx512vnni.h: vec_avx512.h, and registers of 64 bytes or 16 whole numbers: products of bytes
 * by fours, as kernels_int8.h takes them. */
#ifndef PKV_ATTN_VEC_AVX512VNNI_H
#define PKV_ATTN_VEC_AVX512VNNI_H

#include "attn/vec_avx512.h"
#include "attn/vec_e4m3.h"

#if defined(__AVX512VNNI__)

#define VEC_BYTES 64

/* A function with registers of its own. */
#define VEC_ALONE __attribute__((noinline))

typedef __m512i vi;

/* Sums, in lanes of 32 bits. With vi's type, whose lanes have 64, gcc copies each one in each round
 * of a loop. */
typedef int32_t vsums __attribute__((vector_size(64)));

VEC_INLINE vi vec_int_set(int32_t x)
{
    return _mm512_set1_epi32(x);
}

VEC_INLINE vsums vec_sums_set(int32_t x)
{
    return (vsums)_mm512_set1_epi32(x);
}

VEC_INLINE vi vec_int_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

VEC_INLINE void vec_int_store(void *p, vi x)
{
    _mm512_storeu_si512(p, x);
}

/* `count` bytes, zeros behind them. */
VEC_INLINE vi vec_int_load_bytes(const void *p, size_t count)
{
    return count >= VEC_BYTES ? _mm512_loadu_si512(p)
                              : _mm512_maskz_loadu_epi8((__mmask64)((UINT64_C(1) << count) - 1), p);
}

/* Four bytes, in all lanes. */
VEC_INLINE vi vec_int_repeat(const void *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm512_set1_epi32(four);
}

/* lane l: sum + the products of its four bytes, those of a without sign, those of b with. Exact,
 * modulo 2^32. */
VEC_INLINE vsums vec_int_dot(vsums sum, vi a, vi b)
{
    return (vsums)_mm512_dpbusd_epi32((vi)sum, a, b);
}

VEC_INLINE vi vec_int_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}

/* The other sign bit in each byte: signed numbers, plus 128. */
VEC_INLINE vi vec_int_flip_signs(vi x)
{
    return _mm512_xor_si512(x, _mm512_set1_epi8(-128));
}

/* In each run of four lanes, byte i of lane j becomes byte j of lane i. */
VEC_INLINE vi vec_int_digits_apart(vi x)
{
    return _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2,
                                                                       6, 10, 14, 3, 7, 11, 15)));
}

VEC_INLINE vf vec_of_sums(vsums x)
{
    return _mm512_cvtepi32_ps((vi)x);
}

/* To the nearest, ties to even. */
VEC_INLINE vi vec_to_int(vf x)
{
    return _mm512_cvtps_epi32(x);
}

/* The largest |x| of the lanes and of `bits`, all as bits without a sign, whose order is that of
 * the numbers; NaN is above infinity. */
VEC_INLINE vi vec_int_max_size(vi bits, vf x)
{
    const vi size = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
    return _mm512_max_epu32(bits, size);
}

VEC_INLINE uint32_t vec_int_max_lane(vi x)
{
    return _mm512_reduce_max_epu32(x);
}

/* x * 2^n for any integral n; what is below the smallest subnormal rounds. */
VEC_INLINE vf vec_scale2_far(vf x, vf n)
{
    return _mm512_scalef_ps(x, n);
}

/* The exponent e of each lane, 2^e <= x < 2^(e + 1); x > 0 and normal. */
VEC_INLINE vf vec_exponent(vf x)
{
    return _mm512_getexp_ps(x);
}

/* The pairs of bytes a[0] b[0], a[1] b[1], .. of the lower or upper half of each 16. */
VEC_INLINE vi vec_int_pair_bytes(bool is_upper, vi a, vi b)
{
    return is_upper ? _mm512_unpackhi_epi8(a, b) : _mm512_unpacklo_epi8(a, b);
}

/* The same of 16 bits each. */
VEC_INLINE vi vec_int_pair_words(bool is_upper, vi a, vi b)
{
    return is_upper ? _mm512_unpackhi_epi16(a, b) : _mm512_unpacklo_epi16(a, b);
}

/* acc = acc * alpha + t * scale on runs of eight floats, 16 apart, of which there are as many as
 * `count` floats reach: t is, in turn, the next four lanes of low and the next four of high. */
VEC_INLINE void vec_add_halves(float *acc, size_t count, float alpha, vf low, vf high, float scale)
{
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    const vf t[2] = {_mm512_permutex2var_ps(low, first, high),
                     _mm512_permutex2var_ps(low, second, high)};
    for (size_t i = 0; i < 4 && i * 16 < count; i++) {
        const __m256 part =
            i % 2 == 0 ? _mm512_castps512_ps256(t[i / 2]) : _mm512_extractf32x8_ps(t[i / 2], 1);
        const __m256 old = _mm256_mul_ps(_mm256_loadu_ps(acc + i * 16), _mm256_set1_ps(alpha));
        _mm256_storeu_ps(acc + i * 16, _mm256_fmadd_ps(part, _mm256_set1_ps(scale), old));
    }
}

/* Sixteen registers of sixteen lanes: lane j of x[i] becomes lane i of x[j]. */
VEC_INLINE void vec_int_transpose(vi *x)
{
    vi y[16];
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
        x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
        x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
        x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        const vi a = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
        const vi b = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
        const vi c = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
        const vi d = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
        y[i] = _mm512_shuffle_i32x4(a, c, 0x88);
        y[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
        y[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
        y[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
    memcpy(x, y, sizeof y);
}

#endif
#endif
