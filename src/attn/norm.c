/* SPDX-License-Identifier: MIT
 *
 * norm.c: the RMS norm of one head. Everything is f64 but the input and the result, so that a head
 * is rounded once. */
#include "attn/norm.h"

#include <math.h>

/* Norm weights that are widened at a time. */
#define PIECE 64

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

void norm_head(const struct kernels *kernels, float *x, size_t width, const void *weight,
               enum pkv_dtype weight_dtype, float eps)
{
    const double scale = 1.0 / sqrt(sum_of_squares(x, width) / (double)width + (double)eps);
    float weights[PIECE];
    for (size_t first = 0; first < width; first += PIECE) {
        const size_t count = width - first < PIECE ? width - first : PIECE;
        const char *from = (const char *)weight + first * pkv_dtype_bytes(weight_dtype);
        kernels->widen(weight_dtype, from, count, weights);
        for (size_t c = 0; c < count; c++) {
            x[first + c] = (float)((double)x[first + c] * scale * (double)weights[c]);
        }
    }
}
