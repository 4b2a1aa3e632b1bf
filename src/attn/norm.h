/* SPDX-License-Identifier: MIT
 *
 * norm.h: the RMS norm of one head. */
#ifndef PKV_ATTN_NORM_H
#define PKV_ATTN_NORM_H

#include "attn/kernels.h"

/* x [width] = x / sqrt(mean(x^2) + eps) * weight, in place; weight [width] of weight_dtype. */
void norm_head(const struct kernels *kernels, float *x, size_t width, const void *weight,
               enum pkv_dtype weight_dtype, float eps);

#endif
