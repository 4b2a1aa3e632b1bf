/* SPDX-License-Identifier: MIT
 *
 * quantize.c: int8 and e4m3 codes of f32. */
#include "attn/quantize.h"

#include <math.h>
#include <string.h>

static int8_t to_int8(float x)
{
    if (isnan(x)) {
        return 0;
    }
    const float rounded = rintf(x);
    return (int8_t)(rounded < -128.0f ? -128.0f : rounded > 127.0f ? 127.0f : rounded);
}

/* Clamped first, so nothing rounds past 448 = 0x7e. A normal number keeps three mantissa bits and
 * its exponent is rebiased from 127 to 7; below 2^-6 codes are multiples of
 * 2^-9. */
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

void quantize_head(enum pkv_dtype dtype, const float *x, const float *scale, size_t step,
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
