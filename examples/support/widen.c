/* SPDX-License-Identifier: MIT
 *
 * widen.c: 16 numbers at a time, in vectors that the compiler makes of what the machine has, as in
 * matrix.c. A row of weights is read once a step, and with one token in it that is most of the
 * work. Functions that are compiled for several machines are static: clang 14 gives the name of one
 * that is not to none of its versions. */
#include "widen.h"

#include <string.h>

enum { LANES = 16 };

typedef uint16_t halves __attribute__((vector_size(LANES * sizeof(uint16_t)), aligned(2)));
typedef uint32_t words __attribute__((vector_size(LANES * sizeof(uint32_t)), aligned(4)));
typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define EACH_MACHINE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EACH_MACHINE
#endif

EACH_MACHINE
static void bf16_to_floats(const uint16_t *in, int32_t count, float *out)
{
    int32_t c = 0;
    for (; c + LANES <= count; c += LANES) {
        *(words *)(void *)(out + c) = __builtin_convertvector(*(const halves *)(in + c), words)
                                      << 16;
    }
    for (; c < count; c++) {
        const uint32_t bits = (uint32_t)in[c] << 16;
        memcpy(out + c, &bits, sizeof bits);
    }
}

/* Exponent and fraction move to their places in an f32, and 2^112 makes up for the difference of
 * the biases, 127 - 15; subnormal numbers come out right too. What was infinite or NaN is made so
 * by the exponent's bits. */
static float widen_one(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t rest = (uint32_t)(half & 0x7fffu) << 13;
    const uint32_t not_finite = (half & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0;
    float value;
    uint32_t bits;
    memcpy(&value, &rest, sizeof value);
    value *= 0x1p112f;
    memcpy(&bits, &value, sizeof bits);
    bits |= sign | not_finite;
    memcpy(&value, &bits, sizeof value);
    return value;
}

EACH_MACHINE
static void f16_to_floats(const uint16_t *in, int32_t count, float *out)
{
    int32_t c = 0;
    for (; c + LANES <= count; c += LANES) {
        const words half = __builtin_convertvector(*(const halves *)(in + c), words);
        const lanes value = (lanes)((half & 0x7fffu) << 13) * 0x1p112f;
        const words not_finite = (words)((half & 0x7c00u) == 0x7c00u) & 0x7f800000u;
        *(words *)(void *)(out + c) = (words)value | (half & 0x8000u) << 16 | not_finite;
    }
    for (; c < count; c++) {
        out[c] = widen_one(in[c]);
    }
}

void widen_bf16(const uint16_t *in, int32_t count, float *out)
{
    bf16_to_floats(in, count, out);
}

void widen_f16(const uint16_t *in, int32_t count, float *out)
{
    f16_to_floats(in, count, out);
}
