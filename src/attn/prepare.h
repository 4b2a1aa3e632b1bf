/* SPDX-License-Identifier: MIT
 *
 * prepare.h: what happens to a head of q or of a new key before it is used: rotation and RMS norm,
 * in f32 and in the layer's order. */
#ifndef PKV_ATTN_PREPARE_H
#define PKV_ATTN_PREPARE_H

#include "attn/run.h"

/* x [k_width] rotated by row `position` of the cos/sin tables, when there are any, and normed with
 * the norm weight, when it is not NULL. spare [2 * rope_width] is overwritten. */
void prepare_head(const struct run *run, float *x, int64_t position, const void *norm_weight,
                  enum pkv_dtype weight_dtype, float *spare);

#endif
