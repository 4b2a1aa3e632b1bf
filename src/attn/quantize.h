/* SPDX-License-Identifier: MIT
 *
 * quantize.h: rounding to the codes of int8 and e4m3 caches. */
#ifndef PKV_ATTN_QUANTIZE_H
#define PKV_ATTN_QUANTIZE_H

#include "pagedkv/base.h"

/* y[c] = code of x[c] / scale[c * step]: rounded half to even, clamped to [-128, 127] or +-448. NaN
 * becomes 0 or e4m3's NaN. step is 0 (one scale) or 1. */
void quantize_head(enum pkv_dtype dtype, const float *x, const float *scale, size_t step,
                   size_t width, void *y);

/* The scales of one KV head, of [kv_heads][width] or of one number. */
static inline const float *quantize_scales_of_head(const float *scales, int32_t count, int32_t head,
                                                   int32_t width)
{
    return count == 1 ? scales : scales + (size_t)head * (size_t)width;
}

#endif
