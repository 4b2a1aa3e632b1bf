/* SPDX-License-Identifier: MIT
 *
 * view.h: addresses inside a cache that a pkv_kv_view describes. Element (block, head, cell,
 * channel) lies at block * block_stride + head * head_stride + cell * cell_stride + channel. */
#ifndef PKV_ATTN_VIEW_H
#define PKV_ATTN_VIEW_H

#include "pagedkv/base.h"

/* Strides of 0 become those of the packed order; v_width 0 becomes k_width. */
void view_resolve(struct pkv_kv_view *view);

/* Bytes from the first key (or value) element to the last of a resolved view with at least one of
 * each; false when they overflow. */
bool view_bytes(const struct pkv_kv_view *view, bool is_key, size_t *bytes);

/* The first channel of a key and of a value. */
static inline char *view_key(const struct pkv_kv_view *view, int32_t block, int32_t head,
                             int32_t cell)
{
    const size_t element = (size_t)block * view->k_block_stride +
                           (size_t)head * view->k_head_stride + (size_t)cell * view->k_cell_stride;
    return (char *)view->k + element * pkv_dtype_bytes(view->k_dtype);
}

static inline char *view_value(const struct pkv_kv_view *view, int32_t block, int32_t head,
                               int32_t cell)
{
    const size_t element = (size_t)block * view->v_block_stride +
                           (size_t)head * view->v_head_stride + (size_t)cell * view->v_cell_stride;
    return (char *)view->v + element * pkv_dtype_bytes(view->v_dtype);
}

#endif
