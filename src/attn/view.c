/* SPDX-License-Identifier: MIT
 *
 * view.c: the defaults and the size of a cache that a pkv_kv_view describes. */
#include "attn/view.h"

#include "base/checked.h"

void view_resolve(struct pkv_kv_view *view)
{
    const size_t cells = (size_t)view->block_size;
    const size_t heads = (size_t)view->kv_heads;
    if (view->v_width == 0) {
        view->v_width = view->k_width;
    }
    if (view->k_cell_stride == 0) {
        view->k_cell_stride = (size_t)view->k_width;
    }
    if (view->v_cell_stride == 0) {
        view->v_cell_stride = (size_t)view->v_width;
    }
    if (view->k_head_stride == 0) {
        view->k_head_stride = cells * view->k_cell_stride;
    }
    if (view->v_head_stride == 0) {
        view->v_head_stride = cells * view->v_cell_stride;
    }
    if (view->k_block_stride == 0) {
        view->k_block_stride = heads * view->k_head_stride;
    }
    if (view->v_block_stride == 0) {
        view->v_block_stride = heads * view->v_head_stride;
    }
}

bool view_bytes(const struct pkv_kv_view *view, bool is_key, size_t *bytes)
{
    const size_t counts[] = {(size_t)view->num_blocks, (size_t)view->kv_heads,
                             (size_t)view->block_size};
    const size_t strides[] = {is_key ? view->k_block_stride : view->v_block_stride,
                              is_key ? view->k_head_stride : view->v_head_stride,
                              is_key ? view->k_cell_stride : view->v_cell_stride};
    size_t elements = (size_t)(is_key ? view->k_width : view->v_width);
    for (size_t i = 0; i < 3; i++) {
        size_t reach = 0;
        if (!checked_mul(counts[i] - 1, strides[i], &reach) ||
            !checked_add(elements, reach, &elements)) {
            return false;
        }
    }
    return checked_mul(elements, pkv_dtype_bytes(is_key ? view->k_dtype : view->v_dtype), bytes);
}
