/* SPDX-License-Identifier: MIT
 *
 * check_cache.c: views of caches against the geometry of the call, and the cache that a call
 * without one attends: its own keys and values. */
#include "attn/check_cache.h"

#include "attn/view.h"
#include "base/error.h"
#include "base/sized.h"

enum pkv_status check_view_half(const struct pkv_kv_view *view, const char *name, bool is_key)
{
    const char half = is_key ? 'k' : 'v';
    const size_t width = (size_t)(is_key ? view->k_width : view->v_width);
    const size_t cell = is_key ? view->k_cell_stride : view->v_cell_stride;
    const size_t head = is_key ? view->k_head_stride : view->v_head_stride;
    const size_t block = is_key ? view->k_block_stride : view->v_block_stride;
    size_t bytes = 0;
    if (cell < width || head < width || block < width) {
        return INVALID("%s.%c strides (%zu, %zu, %zu): one is below the width %zu", name, half,
                       block, head, cell, width);
    }
    if (!view_bytes(view, is_key, &bytes)) {
        return INVALID("%s.%c: its bytes overflow", name, half);
    }
    return PKV_OK;
}

static enum pkv_status check_view(const struct pkv_gqa_args *args, const struct pkv_kv_view *raw,
                                  const char *name, struct pkv_kv_view *view)
{
    const int32_t v_width = args->v_width != 0 ? args->v_width : args->k_width;
    if (raw->k == NULL) {
        return INVALID("%s.k is NULL", name);
    }
    if ((raw->v == NULL) != args->v_in_k) {
        return INVALID(args->v_in_k ? "%s.v is set beside v_in_k" : "%s.v is NULL", name);
    }
    if (raw->num_blocks < 1 || raw->block_size < 1) {
        return INVALID("%s: num_blocks = %d, block_size = %d, below 1", name, raw->num_blocks,
                       raw->block_size);
    }
    if (raw->kv_heads != args->kv_heads || raw->k_width != args->k_width) {
        return INVALID("%s: kv_heads = %d, k_width = %d, not the call's %d and %d", name,
                       raw->kv_heads, raw->k_width, args->kv_heads, args->k_width);
    }
    *view = *raw;
    if (args->v_in_k) {
        view->v_width = v_width;
        view->v_dtype = raw->k_dtype;
    }
    view_resolve(view);
    if (view->v_width != v_width) {
        return INVALID("%s.v_width = %d, not the call's %d", name, view->v_width, v_width);
    }
    enum pkv_status status =
        sized_check_reserved(raw == &args->past ? "past." : "present.", raw->reserved);
    if (status == PKV_OK) {
        status = check_view_half(view, name, true);
    }
    return status != PKV_OK || args->v_in_k ? status : check_view_half(view, name, false);
}

/* The extended cache [batch][kv_heads][S + q_len] of the functional form beside past's S. */
static enum pkv_status check_dense_copy(const struct pkv_gqa_args *args, struct call *call)
{
    const bool is_empty = args->past.k == NULL || args->past.block_size == 0;
    if (args->past.block_size < 0 || (is_empty && args->past.block_size > 0)) {
        return INVALID("past.k is NULL with past.block_size = %d", args->past.block_size);
    }
    if (!is_empty) {
        const enum pkv_status status = check_view(args, &args->past, "past", &call->past);
        if (status != PKV_OK) {
            return status;
        }
        if (args->past.num_blocks != args->batch) {
            return INVALID("past.num_blocks = %d, not batch = %d", args->past.num_blocks,
                           args->batch);
        }
    }
    if (args->k == NULL || args->num_tokens == 0) { /* nothing is appended, nothing written */
        call->cache = call->past;
        return PKV_OK;
    }
    const enum pkv_status status = check_view(args, &args->present, "present", &call->present);
    if (status != PKV_OK) {
        return status;
    }
    const struct pkv_kv_view *past = &call->past;
    const struct pkv_kv_view *present = &call->present;
    if (present->num_blocks != args->batch ||
        (!is_empty && (past->k_dtype != present->k_dtype || past->v_dtype != present->v_dtype))) {
        return INVALID("present: num_blocks = %d or its dtypes are not those of past and batch",
                       present->num_blocks);
    }
    call->cache = call->present;
    return PKV_OK;
}

/* The call's own k and v as a cache: one endless block in which row b begins at token
 * cu_seqlens_k[b].
 * Keys that are rotated or normed are stored in the workspace instead, packed. */
static void view_activations(const struct pkv_gqa_args *args, struct call *call)
{
    const size_t k_width = (size_t)args->k_width;
    const size_t v_width = (size_t)call->shape.v_width;
    const size_t packed = (size_t)args->kv_heads * k_width;
    const size_t k_stride = call->shape.all_new ? packed : call->k_stride;
    struct pkv_kv_view *cache = &call->cache;
    *cache = (struct pkv_kv_view){
        .k_dtype = args->dtype,
        .v_dtype = args->dtype,
        .num_blocks = INT32_MAX,
        .kv_heads = args->kv_heads,
        .block_size = INT32_MAX,
        .k_width = args->k_width,
        .v_width = call->shape.v_width,
        .k_block_stride = k_stride,
        .k_head_stride = k_width,
        .k_cell_stride = k_stride,
        .v_block_stride = call->v_stride,
        .v_head_stride = v_width,
        .v_cell_stride = call->v_stride,
    };
}

enum pkv_status check_caches(const struct pkv_gqa_args *args, struct call *call)
{
    if (args->batch == 0) {
        return PKV_OK;
    }
    if (args->form == PKV_CACHE_NONE) {
        view_activations(args, call);
        return PKV_OK;
    }
    if (args->form == PKV_CACHE_DENSE_COPY) {
        return check_dense_copy(args, call);
    }
    const enum pkv_status status = check_view(args, &args->past, "past", &call->past);
    if (status != PKV_OK) {
        return status;
    }
    if (args->form != PKV_CACHE_PAGED && args->slot_ids == NULL &&
        args->past.num_blocks < args->batch) {
        return INVALID("batch = %d, but past has %d rows", args->batch, args->past.num_blocks);
    }
    call->cache = call->past;
    return PKV_OK;
}
