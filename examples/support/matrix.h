/* SPDX-License-Identifier: MIT
 *
 * matrix.h: products of weights with packed tokens, the work of a forward pass beside attention.
 *
 * Each number is one dot product whose 16 partial sums run over columns l, l + 16, .. in order and
 * are added in halves: the same bits whatever stands beside the token in the batch, and however
 * many threads there are. A BLAS does not promise that, and so none is used: its products of one
 * and of many tokens differ, and so would the answers of a request alone and in a batch. */
#ifndef SUPPORT_MATRIX_H
#define SUPPORT_MATRIX_H

#include "model.h"

/* out[t][r] = dot(row r of w, in[t]) for t < num_tokens: in [num_tokens][w->columns], out
 * [num_tokens][w->rows]. Weights of 16 bits are widened as they are read, into scratch
 * [matrix_scratch]. threads >= 1. */
void matrix_multiply(float *out, const float *in, const struct weight *w, int32_t num_tokens,
                     int32_t threads, float *scratch);

/* Floats of scratch for weights of up to so many columns. */
size_t matrix_scratch(int32_t columns, int32_t threads);

/* The threads that there are for a wish; 0 = as many as this process may run. */
int32_t matrix_threads(int32_t wish);

float matrix_dot(const float *a, const float *b, int32_t count);

#endif
