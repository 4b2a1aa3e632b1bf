/* SPDX-License-Identifier: MIT
 *
 * numbers.c: encodings put together from sign, exponent and fraction of n = +-2^e * 1.fraction. */
#include "numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"

enum { TABLE = 65521 };

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint16_t as_f16(int n, int shift)
{
    const int size = abs(n);
    int e = 0;
    while (size >> e > 1) {
        e++;
    }
    if (n == 0) {
        return 0;
    }
    const int fraction = (size - (1 << e)) << (10 - e);
    return (uint16_t)((n < 0 ? 0x8000 : 0) | (e - shift + 15) << 10 | fraction);
}

/* Exponents down to -6 are normal; below, the fraction counts 2^-9. */
static uint8_t as_e4m3(int n, int shift)
{
    const int size = abs(n);
    int e = 0;
    while (size >> e > 1) {
        e++;
    }
    const int sign = n < 0 ? 0x80 : 0;
    if (e - shift + 7 < 1) {
        return (uint8_t)(sign | (int)ldexp(size, 9 - shift));
    }
    return (uint8_t)(sign | (e - shift + 7) << 3 | ((size << 3 >> e) & 7));
}

static void encode(void *to, enum pkv_dtype dtype, int n, int shift)
{
    const float x = (float)ldexp(n, -shift);
    const uint16_t upper = (uint16_t)(bits_of(x) >> 16);
    const uint16_t half = as_f16(n, shift);
    switch (dtype) {
    case PKV_F32: memcpy(to, &x, sizeof x); break;
    case PKV_F16: memcpy(to, &half, sizeof half); break;
    case PKV_BF16: memcpy(to, &upper, sizeof upper); break;
    case PKV_INT8: *(int8_t *)to = (int8_t)n; break;
    case PKV_E4M3: *(uint8_t *)to = as_e4m3(n, shift); break;
    }
}

void numbers_fill(void *memory, size_t bytes, enum pkv_dtype dtype, int shift, uint64_t seed)
{
    const size_t width = pkv_dtype_bytes(dtype);
    char *table = measure_calloc(TABLE, width);
    for (size_t i = 0; i < TABLE && i * width < bytes; i++) {
        encode(table + i * width, dtype, (int)(measure_random(&seed) % 255) - 127, shift);
    }
    for (size_t at = 0; at < bytes; at += TABLE * width) {
        const size_t left = bytes - at;
        memcpy((char *)memory + at, table, left < TABLE * width ? left : TABLE * width);
    }
    free(table);
}

static float from_f16(uint16_t half)
{
    const int exponent = half >> 10 & 31;
    const int fraction = half & 1023;
    const double size =
        exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    return (float)((half & 0x8000) != 0 ? -size : size);
}

float numbers_read(const void *memory, size_t index, enum pkv_dtype dtype)
{
    if (dtype == PKV_F32) {
        return ((const float *)memory)[index];
    }
    const uint16_t half = ((const uint16_t *)memory)[index];
    if (dtype == PKV_F16) {
        return from_f16(half);
    }
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

float numbers_scale(enum pkv_dtype dtype, int shift)
{
    return dtype == PKV_INT8 ? (float)ldexp(1, -shift) : 1.0f;
}

const char *numbers_type_name(enum pkv_dtype dtype)
{
    static const char *const names[] = {"f32", "f16", "bf16", "int8", "e4m3"};
    return names[dtype];
}
