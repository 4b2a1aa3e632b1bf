/* SPDX-License-Identifier: MIT
 *
 * prepare.c: what happens to a head of q or of a new key between the activation and the dot product
 * or the store: rotation and RMS norm, in f32, and the rounding to the codes of a quantised cache.
 */
#include <math.h>
#include <string.h>

#include "attn/run.h"

/* Channel pairs (a, b) from rotary_offset on: (t, t + R/2) half-split, (2t, 2t + 1) interleaved.
 *     a' = a cos - b sin,   b' = b cos + a sin */
static void rotate(const struct pkv_attn_constants *c, float *x, const float *cosines,
                   const float *sines)
{
    const size_t half = (size_t)c->rope_width;
    const size_t step = c->rotary_mode == PKV_ROTARY_INTERLEAVED ? 2 : 1;
    const size_t apart = c->rotary_mode == PKV_ROTARY_INTERLEAVED ? 1 : half;
    float *first = x + c->rotary_offset;
    float *second = first + apart;
    for (size_t t = 0; t < half; t++) {
        const float a = first[t * step];
        const float b = second[t * step];
        first[t * step] = a * cosines[t] - b * sines[t];
        second[t * step] = b * cosines[t] + a * sines[t];
    }
}

static void rotate_at(const struct run *run, float *x, int64_t position, float *spare)
{
    const struct pkv_attn_constants *c = run->constants;
    if (c->rope_cos == NULL) {
        return;
    }
    const size_t width = (size_t)c->rope_width;
    const size_t at = (size_t)position * width * pkv_dtype_bytes(c->rope_dtype);
    run->kernels->widen(c->rope_dtype, (const char *)c->rope_cos + at, width, spare);
    run->kernels->widen(c->rope_dtype, (const char *)c->rope_sin + at, width, spare + width);
    rotate(c, x, spare, spare + width);
}

/* In double, in which the squares of f32 are exact, so that the error stays below the final
 * rounding at any width; four sums, or each addition would wait for the one before. */
static double sum_of_squares(const float *x, size_t width)
{
    double sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
    size_t c = 0;
    for (; c + 4 <= width; c += 4) {
        sum0 += (double)x[c] * (double)x[c];
        sum1 += (double)x[c + 1] * (double)x[c + 1];
        sum2 += (double)x[c + 2] * (double)x[c + 2];
        sum3 += (double)x[c + 3] * (double)x[c + 3];
    }
    for (; c < width; c++) {
        sum0 += (double)x[c] * (double)x[c];
    }
    return (sum0 + sum1) + (sum2 + sum3);
}

void norm_head(const struct kernels *kernels, float *x, size_t width, const void *gain,
               enum pkv_dtype gain_dtype, float eps)
{
    enum { GAINS = 64 };
    const double scale = 1.0 / sqrt(sum_of_squares(x, width) / (double)width + (double)eps);
    float gains[GAINS];
    for (size_t first = 0; first < width; first += GAINS) {
        const size_t count = width - first < GAINS ? width - first : GAINS;
        const char *from = (const char *)gain + first * pkv_dtype_bytes(gain_dtype);
        kernels->widen(gain_dtype, from, count, gains);
        for (size_t c = 0; c < count; c++) {
            x[first + c] = (float)((double)x[first + c] * scale * (double)gains[c]);
        }
    }
}

static void norm(const struct run *run, float *x, const void *gain, enum pkv_dtype gain_dtype)
{
    if (gain != NULL) {
        norm_head(run->kernels, x, (size_t)run->plan->shape.k_width, gain, gain_dtype,
                  run->constants->qk_norm_eps);
    }
}

void prepare_head(const struct run *run, float *x, int64_t position, const void *gain,
                  enum pkv_dtype gain_dtype, float *spare)
{
    if (run->constants->norm_order == PKV_NORM_BEFORE_ROPE) {
        norm(run, x, gain, gain_dtype);
        rotate_at(run, x, position, spare);
    } else {
        rotate_at(run, x, position, spare);
        norm(run, x, gain, gain_dtype);
    }
}

static int8_t to_int8(float x)
{
    if (isnan(x)) {
        return 0;
    }
    const float rounded = rintf(x);
    return (int8_t)(rounded < -128.0f ? -128.0f : rounded > 127.0f ? 127.0f : rounded);
}

/* Clamped first, so nothing rounds past 448 = 0x7e. A normal number keeps three mantissa bits and
 * its exponent is rebiased from 127 to 7; below 2^-6 the codes count in units of 2^-9. */
static uint8_t to_e4m3(float x)
{
    if (isnan(x)) {
        return 0x7f;
    }
    const uint8_t sign = signbit(x) ? 0x80 : 0;
    const float size = fabsf(x) < 448.0f ? fabsf(x) : 448.0f;
    if (size < 0x1p-6f) {
        return (uint8_t)(sign | (uint8_t)rintf(size * 0x1p9f));
    }
    uint32_t bits;
    memcpy(&bits, &size, sizeof bits);
    const uint32_t rounded = (bits + 0x7ffffu + ((bits >> 20) & 1u)) >> 20;
    return (uint8_t)(sign | (rounded - ((127u - 7u) << 3)));
}

void quantize_row(enum pkv_dtype dtype, const float *x, const float *scale, size_t step,
                  size_t width, void *y)
{
    if (dtype == PKV_INT8) {
        int8_t *codes = y;
        for (size_t c = 0; c < width; c++) {
            codes[c] = to_int8(x[c] / scale[c * step]);
        }
    } else {
        uint8_t *codes = y;
        for (size_t c = 0; c < width; c++) {
            codes[c] = to_e4m3(x[c] / scale[c * step]);
        }
    }
}
