/* SPDX-License-Identifier: MIT
 *
 * vec_e4m3.h: 64 numbers of e4m3 as four registers of floats, by byte permutes (AVX-512 VBMI). As
 * bf16 a number is two bytes, each of which a table tells by its seven low bits; the sign is the
 * byte's own. One permute beforehand puts the bytes where the interleaving below wants them, so
 * that the channels come out in their order and sums need not know how they were widened. */
#ifndef PKV_ATTN_VEC_E4M3_H
#define PKV_ATTN_VEC_E4M3_H

#include "attn/vec_avx512.h"

#if defined(__AVX512VBMI__)

/* Registers of a wide load. */
#define VEC_E4M3_VECS 4

/* The numbers over 2^8 as bf16: three bits of mantissa behind an exponent whose bias differs by
 * 112; subnormals are normal there. */
#define E4M3_BF16(m)                                                                               \
    ((m) == 127 ? 0x7fc0                                                                           \
     : (m) > 7  ? ((m) << 4) + (112 << 7)                                                          \
     : (m) > 3  ? (112 << 7) + (((m)&3) << 5)                                                      \
     : (m) > 1  ? (111 << 7) + (((m)&1) << 6)                                                      \
                : (m) * (110 << 7))

#define E4M3_OF_8(byte, m)                                                                         \
    byte(E4M3_BF16(m)), byte(E4M3_BF16((m) + 1)), byte(E4M3_BF16((m) + 2)),                        \
        byte(E4M3_BF16((m) + 3)), byte(E4M3_BF16((m) + 4)), byte(E4M3_BF16((m) + 5)),              \
        byte(E4M3_BF16((m) + 6)), byte(E4M3_BF16((m) + 7))
#define E4M3_OF_64(byte, m)                                                                        \
    E4M3_OF_8(byte, m), E4M3_OF_8(byte, (m) + 8), E4M3_OF_8(byte, (m) + 16),                       \
        E4M3_OF_8(byte, (m) + 24), E4M3_OF_8(byte, (m) + 32), E4M3_OF_8(byte, (m) + 40),           \
        E4M3_OF_8(byte, (m) + 48), E4M3_OF_8(byte, (m) + 56)
#define E4M3_HIGH(word) ((word) >> 8)
#define E4M3_LOW(word) ((word)&0xff)

static const _Alignas(64) uint8_t e4m3_high[2][64] = {{E4M3_OF_64(E4M3_HIGH, 0)},
                                                      {E4M3_OF_64(E4M3_HIGH, 64)}};
static const _Alignas(64) uint8_t e4m3_low[2][64] = {{E4M3_OF_64(E4M3_LOW, 0)},
                                                     {E4M3_OF_64(E4M3_LOW, 64)}};

/* Byte 16 l + 2 d + 8 h + o goes to lane 4 l + d of register 2 h + o. */
#define E4M3_PLACES_OF_8(c) c, (c) + 16, (c) + 1, (c) + 17, (c) + 2, (c) + 18, (c) + 3, (c) + 19
static const _Alignas(64) uint8_t e4m3_places[64] = {
    E4M3_PLACES_OF_8(0), E4M3_PLACES_OF_8(32), E4M3_PLACES_OF_8(4),  E4M3_PLACES_OF_8(36),
    E4M3_PLACES_OF_8(8), E4M3_PLACES_OF_8(40), E4M3_PLACES_OF_8(12), E4M3_PLACES_OF_8(44)};

/* Loaded once for all uses: gcc would make each an operand in memory. */
VEC_INLINE vf vec_load_once(const float *p)
{
    vf x = vec_load(p);
    __asm__("" : "+v"(x));
    return x;
}

/* 64 numbers as bf16: channel 16 v + l is half v % 2 of lane l of x[v / 2]. */
typedef struct {
    __m512i x[2];
} vwords;

VEC_INLINE vwords vec_load_words(const uint8_t *p)
{
    const __m512i places = _mm512_load_si512(e4m3_places);
    const __m512i bytes = _mm512_permutexvar_epi8(places, _mm512_loadu_si512(p));
    const __m512i magnitude = _mm512_permutex2var_epi8(_mm512_load_si512(e4m3_high[0]), bytes,
                                                       _mm512_load_si512(e4m3_high[1]));
    const __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(e4m3_low[0]), bytes,
                                                 _mm512_load_si512(e4m3_low[1]));
    const __m512i sign = _mm512_set1_epi8(-128);
    const __m512i high = _mm512_ternarylogic_epi32(magnitude, bytes, sign, 0xf8); /* m | (b & s) */
    return (vwords){{_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)}};
}

/* Channels 16 v to 16 v + 15. */
VEC_INLINE vf vec_of_words(const vwords *words, int v)
{
    const __m512i word = words->x[v / 2];
    const __m512i odd = _mm512_and_si512(word, _mm512_set1_epi32(-0x10000));
    return _mm512_castsi512_ps(v % 2 == 0 ? _mm512_slli_epi32(word, 16) : odd);
}

#endif
#endif
