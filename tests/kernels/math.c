/* SPDX-License-Identifier: MIT
 *
 * math.c: scale, merge and softcap. What the first two round is known, so their bits are compared.
 * With u = UNIT softcap is off by 8 u of the result: 1 for x / cap, at most 6 for tanh (exp's 3,
 * halved by the slope, two roundings and a division), 1 for the product with cap. */
#include <math.h>

#include "kernels/check.h"

static float choose_float(struct check *check, const float *from, size_t count)
{
    return from[random_u64(&check->random) % count];
}

static void scale_array(struct check *check, enum values values, size_t count, enum place place)
{
    static const float factors[] = {1.0f, 0.0f, -0.0f, 0.088388346f, -3.0f, 1e-30f, 1e30f};
    const float factor = choose_float(check, factors, sizeof factors / sizeof factors[0]);
    float *x = guarded_place(&check->output, 0, count * sizeof *x, sizeof *x, place);
    const double *wide = values_take(PKV_F32, values, &check->random, count, x);
    check->kernels->scale(x, count, factor);
    for (size_t i = 0; i < count; i++) {
        /* exact in double: 48 bits and the exponents of two floats */
        check_bits(check, "x", 0, i, x[i], (float)(wide[i] * (double)factor));
    }
    check_output_edges(check, x, count * sizeof *x);
}

void check_scale(struct check *check)
{
    check_arrays(check, scale_array);
}

static void merge_array(struct check *check, enum values values, size_t count, enum place place)
{
    static const float factors[] = {1.0f, 0.0f, 0.75f, 1e-30f};
    const float keep = choose_float(check, factors, sizeof factors / sizeof factors[0]);
    const float add = choose_float(check, factors, sizeof factors / sizeof factors[0]);
    float *x = guarded_place(&check->input, 0, count * sizeof *x, sizeof *x, place);
    float *total = guarded_place(&check->output, 0, count * sizeof *x, sizeof *x, place);
    values_take(PKV_F32, values, &check->random, count, x);
    const double *wide = values_take(PKV_F32, values, &check->random, count, total);
    check->kernels->merge(total, keep, x, add, count);
    for (size_t i = 0; i < count; i++) {
        const float kept = (float)(wide[i] * (double)keep);
        const float added = (float)((double)x[i] * (double)add);
        check_bits(check, "total", 0, i, total[i], kept + added);
    }
    check_output_edges(check, total, count * sizeof *x);
}

void check_merge(struct check *check)
{
    check_arrays(check, merge_array);
}

static void softcap_array(struct check *check, enum values values, size_t count, enum place place)
{
    static const float caps[] = {1.0f, 30.0f, 50.0f, 0.001f, 30000.0f, 1e-20f, 1e20f};
    float *x = guarded_place(&check->output, 0, count * sizeof *x, sizeof *x, place);
    const double *wide = values_take(PKV_F32, values, &check->random, count, x);
    const float cap = choose_float(check, caps, sizeof caps / sizeof caps[0]);
    check->kernels->softcap(x, count, cap);
    for (size_t i = 0; i < count; i++) {
        const double expected = (double)cap * tanh(wide[i] / (double)cap);
        /* a quotient below 2^-126 is rounded to a multiple of 2^-149 */
        const double tolerance = 8 * UNIT * fabs(expected) + TINY * ((double)cap + 1);
        check_value(check, "x", 0, i, x[i], expected, tolerance);
        check_that(check, !(fabsf(x[i]) > cap), "softcap went over its cap");
    }
    check_output_edges(check, x, count * sizeof *x);
}

void check_softcap(struct check *check)
{
    check_arrays(check, softcap_array);
}
