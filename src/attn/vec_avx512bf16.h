/* SPDX-License-Identifier: MIT
 *
 * vec_avx512bf16.h: vec_avx512vnni.h, and products of bf16 pairs: 32 channels a register, two a
 * lane. */
#ifndef PKV_ATTN_VEC_AVX512BF16_H
#define PKV_ATTN_VEC_AVX512BF16_H

#include "attn/vec_avx512vnni.h"

#if defined(__AVX512BF16__)

#define PAIR_CHANNELS 32

typedef __m512bh vpairs;

VEC_INLINE vpairs vec_load_pairs(const uint16_t *p, size_t count)
{
    if (count >= PAIR_CHANNELS) {
        return (__m512bh)_mm512_loadu_si512(p);
    }
    return (__m512bh)_mm512_maskz_loadu_epi16((__mmask32)((1u << count) - 1), p);
}

/* lane l: sum + a[2l] * b[2l] + a[2l + 1] * b[2l + 1] */
VEC_INLINE vf vec_dot_pairs(vf sum, vpairs a, vpairs b)
{
    return _mm512_dpbf16_ps(sum, a, b);
}

#endif
#endif
