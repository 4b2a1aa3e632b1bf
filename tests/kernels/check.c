/* SPDX-License-Identifier: MIT
 *
 * check.c: verdicts, and the line that a failure prints: kernel, instruction set, seed, shape,
 * place, values, where, both numbers, tolerance, distance in units of the last place. */
#include "kernels/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

const int shape_widths[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,  12,  13,
                            14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,  25,  26,
                            27, 28, 29, 30, 31, 32, 33, 64, 80, 96, 100, 128, 256};
const int shape_keys[] = {0, 1, 3, 4, 5, 15, 16, 17, 63, 64};
const int shape_queries[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 64};
const size_t num_shape_widths = sizeof shape_widths / sizeof shape_widths[0];
const size_t num_shape_keys = sizeof shape_keys / sizeof shape_keys[0];
const size_t num_shape_queries = sizeof shape_queries / sizeof shape_queries[0];

const char *dtype_name(enum pkv_dtype dtype)
{
    static const char *const names[] = {"f32", "f16", "bf16", "int8", "e4m3"};
    return names[dtype];
}

static void print_number(const char *name, int number)
{
    if (number >= 0) {
        printf(", %s %d", name, number);
    }
}

void check_fail(struct check *check, const char *format, ...)
{
    if (check->failed) {
        return;
    }
    check->failed = true;
    printf("FAILED %s %s%s%s: seed %" PRIu64, pkv_isa_name(check->kernels->isa), check->kernel,
           check->has_dtype ? " " : "", check->has_dtype ? dtype_name(check->dtype) : "",
           check->seed);
    print_number("queries", check->shape.queries);
    print_number("keys", check->shape.keys);
    print_number("width", check->shape.width);
    printf(", %s, values %s\n    ", place_name(check->shape.place), check->shape.values);
    va_list list;
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    putchar('\n');
}

void check_that(struct check *check, bool holds, const char *text)
{
    if (!holds) {
        check_fail(check, "%s", text);
    }
}

/* Floats in the order of their values as integers: neighbours differ by 1. */
static int64_t ordered(uint32_t bits, uint32_t sign)
{
    const int64_t magnitude = (int64_t)(bits & (sign - 1));
    return (bits & sign) != 0 ? -magnitude : magnitude;
}

static int64_t ulps_between(uint32_t a, uint32_t b, uint32_t sign)
{
    const int64_t distance = ordered(a, sign) - ordered(b, sign);
    return distance < 0 ? -distance : distance;
}

static void fail_value(struct check *check, const char *what, size_t row, size_t column,
                       float actual, double expected, double tolerance)
{
    char distance[48] = "";
    if (!isnan(actual) && !isnan(expected)) {
        snprintf(distance, sizeof distance, ", %" PRId64 " ulp apart",
                 ulps_between(bits_of(actual), bits_of((float)expected), 0x80000000u));
    }
    check_fail(check, "%s[%zu][%zu] = %.9g (%a), expected %.17g, tolerance %.3g%s", what, row,
               column, (double)actual, (double)actual, expected, tolerance, distance);
}

void check_value(struct check *check, const char *what, size_t row, size_t column, float actual,
                 double expected, double tolerance)
{
    const double difference = fabs((double)actual - expected);
    const bool is_same = isnan(expected)   ? isnan(actual)
                         : isinf(expected) ? (double)actual == expected
                                           : difference <= tolerance;
    if (!is_same) {
        fail_value(check, what, row, column, actual, expected, tolerance);
    }
}

void check_bits(struct check *check, const char *what, size_t row, size_t column, float actual,
                float expected)
{
    if (bits_of(actual) != bits_of(expected) && !(isnan(actual) && isnan(expected))) {
        fail_value(check, what, row, column, actual, (double)expected, 0);
    }
}

static bool is_nan_half(enum pkv_dtype dtype, uint16_t bits)
{
    return (bits & 0x7fff) > (dtype == PKV_F16 ? 0x7c00 : 0x7f80);
}

void check_half(struct check *check, enum pkv_dtype dtype, const char *what, size_t index,
                uint16_t actual, uint16_t expected)
{
    if (actual != expected && !(is_nan_half(dtype, actual) && is_nan_half(dtype, expected))) {
        check_fail(check, "%s[%zu] = 0x%04x (%g), expected 0x%04x (%g), %" PRId64 " ulp apart",
                   what, index, actual, ref_load(dtype, &actual, 0), expected,
                   ref_load(dtype, &expected, 0), ulps_between(actual, expected, 0x8000));
    }
}

void check_output_edges(struct check *check, const void *at, size_t bytes)
{
    check_that(check, guarded_is_clean(&check->output, 0, at, bytes),
               "bytes before or behind the output were written");
}

/* Starts after -1; false at the end. */
static bool next_count(int *count)
{
    *count += *count < 67 ? 1 : *count < 128 ? 128 - *count : 128;
    return *count <= 256;
}

void check_arrays(struct check *check, check_array *run)
{
    for (int count = -1; next_count(&count);) {
        for (int n = 0; n < NUM_PLACES * NUM_VALUES && !check->failed; n++) {
            const enum place place = (enum place)(n % NUM_PLACES);
            const enum values values = (enum values)(n / NUM_PLACES);
            check->shape = (struct shape){-1, -1, count, place, values_name(values)};
            run(check, values, (size_t)count, place);
        }
    }
}
