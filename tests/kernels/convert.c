/* SPDX-License-Identifier: MIT
 *
 * convert.c: widen and narrow. They are exact or rounded once, so bits are compared: with the
 * conversions of support/test.h over every code of the narrow types, and over all ties,
 * their neighbours and random patterns of f32. */
#include "kernels/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ALL_HALVES = 65536, MAX_CODES = 4 * 65536, CHUNK = 64 };

/* ---- widen --------------------------------------------------------------------------------- */

/* Every code of a 16-bit or 8-bit dtype, or as many random floats. */
static size_t write_codes(enum pkv_dtype dtype, struct test_random *random, void *codes)
{
    const size_t count = pkv_dtype_bytes(dtype) == 1 ? 256 : ALL_HALVES;
    for (size_t i = 0; i < count; i++) {
        switch (dtype) {
        case PKV_F32: ((uint32_t *)codes)[i] = (uint32_t)random_u64(random); break;
        case PKV_F16:
        case PKV_BF16: ((uint16_t *)codes)[i] = (uint16_t)i; break;
        case PKV_INT8:
        case PKV_E4M3: ((uint8_t *)codes)[i] = (uint8_t)i; break;
        }
    }
    return count;
}

/* All codes at once, and in runs of `run`, which go through the last, partial vector. */
static void widen_all(struct check *check, size_t run)
{
    const size_t element = pkv_dtype_bytes(check->dtype);
    char *codes = guarded_place(&check->input, 0, ALL_HALVES * element, element, PLACE_ENDS);
    float *wide =
        guarded_place(&check->output, 0, ALL_HALVES * sizeof *wide, sizeof *wide, PLACE_ENDS);
    const size_t count = write_codes(check->dtype, &check->random, codes);
    run = run == 0 ? count : run;
    check->shape = (struct shape){-1, -1, (int)run, PLACE_ENDS, "all codes"};
    for (size_t i = 0; i < count; i += run) {
        check->kernels->widen(check->dtype, codes + i * element, run < count - i ? run : count - i,
                              wide + i);
    }
    for (size_t i = 0; i < count && !check->failed; i++) {
        const double value = ref_load(check->dtype, codes, i);
        check_bits(check, "y", 0, i, wide[i], (float)value / value_scale_of(check->dtype));
    }
}

static void widen_array(struct check *check, enum values values, size_t count, enum place place)
{
    const size_t element = pkv_dtype_bytes(check->dtype);
    void *x = guarded_place(&check->input, 0, count * element, element, place);
    float *y = guarded_place(&check->output, 0, count * sizeof *y, sizeof *y, place);
    char before[MAX_WIDTH * sizeof(float)];
    const double *wide = values_take(check->dtype, values, &check->random, count, x);
    memcpy(before, x, count * element);
    check->kernels->widen(check->dtype, x, count, y);
    for (size_t i = 0; i < count; i++) {
        check_bits(check, "y", 0, i, y[i], (float)wide[i]);
    }
    check_output_edges(check, y, count * sizeof *y);
    check_that(check, memcmp(before, x, count * element) == 0, "x was written");
}

void check_widen(struct check *check)
{
    widen_all(check, 0);
    widen_all(check, 3);
    check_arrays(check, widen_array);
}

/* ---- narrow -------------------------------------------------------------------------------- */

static void narrow_array(struct check *check, enum values values, size_t count, enum place place)
{
    const size_t element = pkv_dtype_bytes(check->dtype);
    float *x = guarded_place(&check->input, 0, count * sizeof *x, sizeof *x, place);
    char *y = guarded_place(&check->output, 0, count * element, element, place);
    float before[MAX_WIDTH];
    values_take(PKV_F32, values, &check->random, count, x);
    memcpy(before, x, count * sizeof *x);
    check->kernels->narrow(check->dtype, x, count, y);
    for (size_t i = 0; i < count; i++) {
        if (check->dtype == PKV_F32) {
            check_bits(check, "y", 0, i, ((float *)(void *)y)[i], x[i]);
        } else {
            uint16_t expected;
            ref_store(check->dtype, &expected, 0, (double)x[i]);
            check_half(check, check->dtype, "y", i, ((uint16_t *)(void *)y)[i], expected);
        }
    }
    check_output_edges(check, y, count * element);
    check_that(check, memcmp(before, x, count * sizeof *x) == 0, "x was written");
}

/* One stretch of a long array. */
static void narrow_stretch(struct check *check, const float *x, size_t count)
{
    uint16_t y[CHUNK];
    check->kernels->narrow(check->dtype, x, count, y);
    for (size_t i = 0; i < count; i++) {
        uint16_t expected;
        ref_store(check->dtype, &expected, 0, (double)x[i]);
        if (y[i] != expected) {
            check_half(check, check->dtype, "y", i, y[i], expected);
        }
    }
}

/* In stretches of random length, so that every lane and the partial vector see everything. */
static void narrow_all(struct check *check, const char *what, const float *x, size_t count)
{
    for (size_t i = 0; i < count && !check->failed;) {
        const size_t drawn = (size_t)random_between(&check->random, 1, CHUNK);
        const size_t run = drawn < count - i ? drawn : count - i;
        check->shape = (struct shape){-1, -1, (int)run, PLACE_MISALIGNED, what};
        narrow_stretch(check, x + i, run);
        i += run;
    }
}

/* The float of a code. The code after the largest is infinity: here it stands for the number that
 * would come next, had the format another exponent. bf16 has the exponents of f32. */
static uint32_t float_bits_of(enum pkv_dtype dtype, uint32_t code)
{
    if (dtype == PKV_BF16) {
        return code << 16;
    }
    return code == 0x7c00 ? bits_of(65536.0f) : bits_of(ref_from_f16((uint16_t)code));
}

/* For every code the number itself, the middle to the next one, and the floats beside that. */
static size_t write_ties(enum pkv_dtype dtype, float *x)
{
    const uint32_t infinity = dtype == PKV_F16 ? 0x7c00 : 0x7f80;
    size_t n = 0;
    for (uint32_t code = 0; code < infinity; code++) {
        const uint32_t low = float_bits_of(dtype, code);
        const uint32_t high = float_bits_of(dtype, code + 1);
        const uint32_t middle = dtype == PKV_F16 ? bits_of((float_of(low) + float_of(high)) / 2)
                                                 : low + (high - low) / 2;
        const uint32_t sign = (code >> 1 & 1) << 31;
        x[n++] = float_of(low | sign);
        x[n++] = float_of((middle - 1) | sign);
        x[n++] = float_of(middle | sign);
        x[n++] = float_of((middle + 1) | sign);
    }
    return n;
}

/* Any bits, among them NaN of every kind; half of them with an exponent that f16 knows. */
static void write_patterns(struct test_random *random, float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t drawn = random_u64(random);
        const uint32_t bits = (uint32_t)drawn;
        const uint32_t exponent = (uint32_t)(drawn >> 32) % 44 + 100;
        x[i] = float_of(drawn >> 63 != 0 ? bits : (bits & 0x807fffffu) | exponent << 23);
    }
}

void check_narrow(struct check *check)
{
    check_arrays(check, narrow_array);
    float *x = check->dtype == PKV_F32 ? NULL : malloc(MAX_CODES * sizeof *x);
    if (x == NULL) {
        return;
    }
    narrow_all(check, "ties of every code", x, write_ties(check->dtype, x));
    write_patterns(&check->random, x, ALL_HALVES);
    narrow_all(check, "random patterns", x, ALL_HALVES);
    free(x);
}
