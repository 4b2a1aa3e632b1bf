/* SPDX-License-Identifier: MIT
 *
 * values.c: makes the pools. Numbers are rounded to their dtype by the conversions of
 * support/test.h, special ones are written as codes. */
#include "kernels/values.h"

#include <math.h>
#include <string.h>

#include "attn/kernels.h"

enum { POOL_VALUES = 2048 };

struct pool {
    double wide[POOL_VALUES];
    float stored[POOL_VALUES]; /* POOL_VALUES elements of the dtype, from the first byte on */
};

static struct pool pools[5][NUM_VALUES];

/* What the numbers of a dtype are made of: sign at the top, then exponent, then mantissa. */
struct format {
    int bits, mantissa;
    uint32_t largest, infinity, nan; /* infinity 0: none */
};

static const struct format formats[] = {
    [PKV_F32] = {32, 23, 0x7f7fffff, 0x7f800000, 0x7fc00000},
    [PKV_F16] = {16, 10, 0x7bff, 0x7c00, 0x7e00},
    [PKV_BF16] = {16, 7, 0x7f7f, 0x7f80, 0x7fc0},
    [PKV_E4M3] = {8, 3, 0x7e, 0, 0x7f},
};

float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

const char *values_name(enum values values)
{
    static const char *const names[] = {"uniform",   "equal",  "one huge", "near 100",
                                        "subnormal", "zeros",  "limits",   "NaN and infinity",
                                        "small",     "weights"};
    return names[values];
}

static void store_code(enum pkv_dtype dtype, void *array, size_t index, uint32_t code)
{
    switch (dtype) {
    case PKV_F32: ((uint32_t *)array)[index] = code; break;
    case PKV_F16:
    case PKV_BF16: ((uint16_t *)array)[index] = (uint16_t)code; break;
    case PKV_INT8:
    case PKV_E4M3: ((uint8_t *)array)[index] = (uint8_t)code; break;
    }
}

static uint32_t subnormal_code(const struct format *f, struct test_random *random)
{
    return (uint32_t)random_between(random, 1, (1 << f->mantissa) - 1);
}

/* The largest, the smallest normal, the largest and smallest subnormal, 1, 0. */
static uint32_t limit_code(const struct format *f, struct test_random *random)
{
    const uint32_t normal = 1u << f->mantissa;
    const uint32_t codes[] = {f->largest, f->largest - 1, normal, normal - 1, 1, 0};
    return codes[random_u64(random) % (sizeof codes / sizeof codes[0])];
}

/* A code without its sign for the kinds that are made of codes, -1 for the others. */
static int64_t code_of(enum pkv_dtype dtype, enum values values, struct test_random *random)
{
    const struct format *f = &formats[dtype];
    const int chance = random_between(random, 0, 60);
    if (dtype == PKV_INT8) {
        return -1;
    }
    switch (values) {
    case VALUES_SUBNORMAL: return subnormal_code(f, random);
    case VALUES_ZERO: return 0;
    case VALUES_LIMIT: return limit_code(f, random);
    case VALUES_SPECIAL:
        if (chance == 1) {
            return f->infinity != 0 ? (int64_t)f->infinity : -1;
        }
        return chance == 0 ? (int64_t)f->nan : -1;
    default: return -1;
    }
}

static double huge_of(enum pkv_dtype dtype)
{
    const double huge[] = {1e17, 60000, 1e17, 127, 448};
    return huge[dtype];
}

/* int8 has no fractions: there a unit is 127. */
static double number_of(enum pkv_dtype dtype, enum values values, struct test_random *random)
{
    const double unit = random_unit(random) * (dtype == PKV_INT8 ? 127 : 1);
    switch (values) {
    case VALUES_EQUAL: return dtype == PKV_INT8 ? 77 : 0.7;
    case VALUES_HUGE: return random_between(random, 0, 96) == 0 ? huge_of(dtype) : unit;
    case VALUES_HUNDRED: return 95 + 5 * random_unit(random);
    case VALUES_SUBNORMAL: return random_between(random, -1, 1);
    case VALUES_ZERO: return 0;
    case VALUES_LIMIT: return random_between(random, 0, 1) ? -128 : 127;
    case VALUES_SMALL: return unit * 0x1p-10;
    case VALUES_WEIGHT: return random_between(random, 0, 9) == 0 ? 0 : fabs(unit);
    default: return unit;
    }
}

static void fill_pool(enum pkv_dtype dtype, enum values values, struct test_random *random)
{
    struct pool *pool = &pools[dtype][values];
    for (size_t i = 0; i < POOL_VALUES; i++) {
        const int64_t code = code_of(dtype, values, random);
        if (code < 0) {
            ref_store(dtype, pool->stored, i, number_of(dtype, values, random));
        } else {
            const uint32_t sign = (uint32_t)(random_u64(random) & 1);
            store_code(dtype, pool->stored, i, (uint32_t)code | sign << (formats[dtype].bits - 1));
        }
        pool->wide[i] = ref_load(dtype, pool->stored, i) / (double)value_scale_of(dtype);
    }
}

void values_create(uint64_t seed)
{
    struct test_random random = {seed};
    for (int dtype = PKV_F32; dtype <= PKV_E4M3; dtype++) {
        for (int values = 0; values < NUM_VALUES; values++) {
            fill_pool((enum pkv_dtype)dtype, (enum values)values, &random);
        }
    }
}

const double *values_take(enum pkv_dtype dtype, enum values values, struct test_random *random,
                          size_t count, void *array)
{
    const struct pool *pool = &pools[dtype][values];
    const size_t offset = random_u64(random) % (POOL_VALUES - count + 1);
    const size_t element = pkv_dtype_bytes(dtype);
    if (array != NULL && count > 0) {
        memcpy(array, (const char *)pool->stored + offset * element, count * element);
    }
    return pool->wide + offset;
}
