/* SPDX-License-Identifier: MIT
 *
 * vec_scalar.h: the vectors that kernels_template.h is written in, in plain C: four floats, which
 * any compiler turns into what the machine's baseline has. A load with a count reads that many
 * elements and sets the other lanes to zero. */
#ifndef PKV_ATTN_VEC_SCALAR_H
#define PKV_ATTN_VEC_SCALAR_H

#include <math.h>
#include <string.h>

#include "attn/kernels.h"

/* The kernels are specialised by arguments that are constants once they are inlined. */
#if defined(__GNUC__)
#define VEC_INLINE static inline __attribute__((always_inline))
#else
#define VEC_INLINE static inline
#endif

#define VEC_LANES 4
#define VEC_DOT_QUERIES 1
#define VEC_DOT_KEYS 4
#define VEC_SUM_QUERIES 1
#define VEC_SUM_VECS 4

typedef struct {
    float x[VEC_LANES];
} vf;

#define VEC_EACH(i) for (size_t i = 0; i < VEC_LANES; i++)

VEC_INLINE vf vec_set(float x)
{
    return (vf){{x, x, x, x}};
}

VEC_INLINE vf vec_load(const float *p)
{
    vf r;
    memcpy(r.x, p, sizeof r.x);
    return r;
}

VEC_INLINE void vec_store(float *p, vf x)
{
    memcpy(p, x.x, sizeof x.x);
}

VEC_INLINE vf vec_add(vf a, vf b)
{
    VEC_EACH(i) a.x[i] += b.x[i];
    return a;
}

VEC_INLINE vf vec_sub(vf a, vf b)
{
    VEC_EACH(i) a.x[i] -= b.x[i];
    return a;
}

VEC_INLINE vf vec_mul(vf a, vf b)
{
    VEC_EACH(i) a.x[i] *= b.x[i];
    return a;
}

/* a * b + c, rounded twice: the baseline has no fused form */
VEC_INLINE vf vec_fma(vf a, vf b, vf c)
{
    VEC_EACH(i) a.x[i] = a.x[i] * b.x[i] + c.x[i];
    return a;
}

VEC_INLINE vf vec_max(vf a, vf b)
{
    VEC_EACH(i) a.x[i] = a.x[i] > b.x[i] ? a.x[i] : b.x[i];
    return a;
}

/* To nearest even for |x| < 2^22: adding 1.5 * 2^23 leaves no bits for a fraction. */
VEC_INLINE vf vec_round(vf x)
{
    const float magic = 12582912.0f;
    VEC_EACH(i)
    {
        const volatile float shifted = x.x[i] + magic;
        x.x[i] = shifted - magic;
    }
    return x;
}

VEC_INLINE vf vec_scale2(vf x, vf n)
{
    VEC_EACH(i)
    {
        /* NaN goes through a harmless power: x is then NaN as well */
        const int32_t power = n.x[i] > -127.0f && n.x[i] < 128.0f ? (int32_t)n.x[i] : 0;
        const uint32_t bits = (uint32_t)(power + 127) << 23;
        float factor;
        memcpy(&factor, &bits, sizeof factor);
        x.x[i] *= factor;
    }
    return x;
}

VEC_INLINE vf vec_zero_if_less(vf a, vf b, vf x)
{
    VEC_EACH(i) x.x[i] = a.x[i] < b.x[i] ? 0.0f : x.x[i];
    return x;
}

VEC_INLINE float vec_bits_to_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

VEC_INLINE uint32_t vec_float_to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Normal numbers shift into place, the exponent is rebiased by 112 (224 to infinity and NaN);
 * subnormals are mantissa * 2^-24, which the multiplication computes exactly. */
VEC_INLINE float vec_from_f16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    const uint32_t exponent = (half >> 10) & 31u;
    const uint32_t mantissa = half & 0x3ffu;
    if (exponent == 0) {
        const float small = (float)mantissa * 0x1p-24f;
        return vec_bits_to_float(sign | vec_float_to_bits(small));
    }
    const uint32_t rebias = exponent == 31 ? 224 : 112;
    return vec_bits_to_float(sign | (exponent + rebias) << 23 | mantissa << 13);
}

/* Shifts right with the dropped bits rounded to nearest even. */
VEC_INLINE uint32_t vec_shift_even(uint32_t x, uint32_t shift)
{
    const uint32_t half = 1u << (shift - 1);
    return (x + half - 1 + ((x >> shift) & 1u)) >> shift;
}

VEC_INLINE uint16_t vec_to_f16(float x)
{
    const uint32_t bits = vec_float_to_bits(x);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | ((bits >> 13) & 0x3ffu));
    }
    if (magnitude >= 0x477ff000u) { /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude >=
        0x38800000u) { /* 2^-14: normal; a carry moves into the exponent as it should */
        return (uint16_t)(sign | (vec_shift_even(magnitude, 13) - (112u << 10)));
    }
    const uint32_t exponent = magnitude >> 23;
    if (exponent < 102) { /* below half of the smallest subnormal, 2^-25 */
        return (uint16_t)sign;
    }
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign | vec_shift_even(mantissa, 126 - exponent));
}

VEC_INLINE uint16_t vec_to_bf16(float x)
{
    const uint32_t bits = vec_float_to_bits(x);
    return (uint16_t)(x != x ? (bits | 0x400000u) >> 16 : vec_shift_even(bits, 16));
}

VEC_INLINE size_t vec_clip(size_t count)
{
    return count < VEC_LANES ? count : VEC_LANES;
}

VEC_INLINE vf vec_load_f32(const void *p, size_t count)
{
    vf r = {{0}};
    memcpy(r.x, p, vec_clip(count) * sizeof r.x[0]);
    return r;
}

VEC_INLINE vf vec_load_f16(const void *p, size_t count)
{
    uint16_t halves[VEC_LANES] = {0};
    memcpy(halves, p, vec_clip(count) * sizeof halves[0]);
    vf r;
    VEC_EACH(i) r.x[i] = vec_from_f16(halves[i]);
    return r;
}

VEC_INLINE vf vec_load_bf16(const void *p, size_t count)
{
    uint16_t halves[VEC_LANES] = {0};
    memcpy(halves, p, vec_clip(count) * sizeof halves[0]);
    vf r;
    VEC_EACH(i) r.x[i] = vec_bits_to_float((uint32_t)halves[i] << 16);
    return r;
}

VEC_INLINE void vec_store_f32(void *p, vf x, size_t count)
{
    memcpy(p, x.x, vec_clip(count) * sizeof x.x[0]);
}

VEC_INLINE void vec_store_f16(void *p, vf x, size_t count)
{
    uint16_t halves[VEC_LANES];
    VEC_EACH(i) halves[i] = vec_to_f16(x.x[i]);
    memcpy(p, halves, vec_clip(count) * sizeof halves[0]);
}

VEC_INLINE void vec_store_bf16(void *p, vf x, size_t count)
{
    uint16_t halves[VEC_LANES];
    VEC_EACH(i) halves[i] = vec_to_bf16(x.x[i]);
    memcpy(p, halves, vec_clip(count) * sizeof halves[0]);
}

VEC_INLINE vf vec_div(vf a, vf b)
{
    VEC_EACH(i) a.x[i] /= b.x[i];
    return a;
}

VEC_INLINE vf vec_abs(vf x)
{
    VEC_EACH(i) x.x[i] = fabsf(x.x[i]);
    return x;
}

/* |x| with the sign of y */
VEC_INLINE vf vec_copysign(vf x, vf y)
{
    VEC_EACH(i) x.x[i] = copysignf(x.x[i], y.x[i]);
    return x;
}

/* x where a < b, else y */
VEC_INLINE vf vec_if_less(vf a, vf b, vf x, vf y)
{
    VEC_EACH(i) y.x[i] = a.x[i] < b.x[i] ? x.x[i] : y.x[i];
    return y;
}

VEC_INLINE vf vec_load_int8(const void *p, size_t count)
{
    int8_t bytes[VEC_LANES] = {0};
    memcpy(bytes, p, vec_clip(count));
    vf r;
    VEC_EACH(i) r.x[i] = (float)bytes[i];
    return r;
}

/* As f16 the seven low bits, moved up by seven, are the value over 2^8, subnormals included; the
 * one NaN pattern of e4m3 would be 480 / 2^8. */
VEC_INLINE float vec_from_e4m3(uint8_t byte)
{
    const uint16_t low = byte & 0x7f;
    const uint16_t half = (uint16_t)((byte & 0x80) << 8 | (low == 0x7f ? 0x7e00 : low << 7));
    return vec_from_f16(half);
}

VEC_INLINE vf vec_load_e4m3(const void *p, size_t count)
{
    uint8_t bytes[VEC_LANES] = {0};
    memcpy(bytes, p, vec_clip(count));
    vf r;
    VEC_EACH(i) r.x[i] = vec_from_e4m3(bytes[i]);
    return r;
}

/* The baseline has no portable prefetch. */
VEC_INLINE void vec_prefetch(const void *p)
{
    (void)p;
}

VEC_INLINE float vec_max_lane(vf x)
{
    const float a = x.x[0] > x.x[1] ? x.x[0] : x.x[1];
    const float b = x.x[2] > x.x[3] ? x.x[2] : x.x[3];
    return a > b ? a : b;
}

VEC_INLINE float vec_sum(vf x)
{
    return (x.x[0] + x.x[2]) + (x.x[1] + x.x[3]);
}

VEC_INLINE void vec_sums(const vf *x, int count, float *out)
{
    for (int i = 0; i < count; i++) {
        out[i] = vec_sum(x[i]);
    }
}

#endif
