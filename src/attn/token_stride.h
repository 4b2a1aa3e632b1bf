/* SPDX-License-Identifier: MIT
 *
 * token_stride.h: how far the tokens of q, k, v and out lie apart, in elements. */
#ifndef PKV_ATTN_TOKEN_STRIDE_H
#define PKV_ATTN_TOKEN_STRIDE_H

#include "pagedkv/base.h"

/* A tensor of num_tokens tokens, each of `width` elements. */
struct token_stride_rows {
    int32_t num_tokens;
    enum pkv_dtype dtype;
    size_t width;
};

/* *resolved is the caller's stride, or the width where that is 0. PKV_INVALID_ARGUMENT, with `name`
 * for the stride: tokens overlap, or the bytes of all overflow. */
enum pkv_status token_stride_resolve(const char *name, size_t stride,
                                     const struct token_stride_rows *rows, size_t *resolved);

#endif
