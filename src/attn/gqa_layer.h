/* SPDX-License-Identifier: MIT
 *
 * gqa_layer.h: what one layer brings to a plan: its tensors, its cache, its constants. All of it is
 * checked by the caller; strides are resolved, none is 0. */
#ifndef PKV_ATTN_GQA_LAYER_H
#define PKV_ATTN_GQA_LAYER_H

#include "pagedkv/attn.h"

/* attn_mask, [batch or 1][heads or 1][queries][keys]: the entry of (row, head, i, j) lies at
 * row * row_stride + head * head_stride + i * query_stride + j, where a broadcast stride is 0. */
struct gqa_layer_mask {
    const void *entries;
    enum pkv_dtype dtype; /* PKV_INT8: bytes, 0 excludes; else added, -inf excludes */
    size_t row_stride, head_stride, query_stride;
};

struct gqa_layer {
    enum pkv_dtype dtype;
    int32_t num_heads;
    const void *q, *k, *v; /* k NULL: nothing is appended. q NULL: nothing is attended */
    void *out;
    float *lse; /* or NULL */
    size_t q_stride, k_stride, v_stride, out_stride;
    struct pkv_kv_view cache;
    const struct pkv_kv_view *copy_from; /* where rows' copies are read; NULL = the cache itself */
    const struct pkv_attn_constants *constants;
    const int64_t *position_ids; /* [tokens] or NULL */
    const struct gqa_layer_mask *mask;
};

/* A layer that points to nothing of the caller's frame. Not to be copied: it points into itself. */
struct gqa_layer_copy {
    struct gqa_layer layer;
    struct gqa_layer_mask mask;
    struct pkv_kv_view copy_from;
    struct pkv_attn_constants constants;
};

void gqa_layer_copy(struct gqa_layer_copy *copy, const struct gqa_layer *layer);

#endif
