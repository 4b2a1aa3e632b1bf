/* SPDX-License-Identifier: MIT
 *
 * check_args.c: scalars, presence and geometry of a raw call. */
#include "attn/check.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"

#define INVALID(...) refuse(PKV_INVALID_ARGUMENT, __VA_ARGS__)

static bool is_known(enum pkv_dtype dtype)
{
    return pkv_dtype_bytes(dtype) != 0;
}

/* ---- views --------------------------------------------------------------------------------- */

void gqa_resolve_view(struct pkv_kv_view *view)
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

/* Bytes from the first element of a strided array to its last; false on overflow. */
static bool view_bytes(const struct pkv_kv_view *view, bool is_key, size_t *bytes)
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

static enum pkv_status check_view_half(const struct pkv_kv_view *view, const char *name,
                                       bool is_key)
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
    gqa_resolve_view(view);
    if (view->v_width != v_width) {
        return INVALID("%s.v_width = %d, not the call's %d", name, view->v_width, v_width);
    }
    const enum pkv_status status = check_view_half(view, name, true);
    return status != PKV_OK || args->v_in_k ? status : check_view_half(view, name, false);
}

/* ---- the call ------------------------------------------------------------------------------ */

static enum pkv_status check_heads(const struct pkv_gqa_args *args)
{
    if ((int)args->form < PKV_CACHE_NONE || (int)args->form > PKV_CACHE_PAGED) {
        return INVALID("form = %d is none", (int)args->form);
    }
    if (!dtype_is_float(args->dtype)) {
        return INVALID("dtype = %d, not a float type", (int)args->dtype);
    }
    if (args->num_heads < 1 || args->kv_heads < 1) {
        return INVALID("num_heads = %d, kv_heads = %d, below 1", args->num_heads, args->kv_heads);
    }
    if (args->num_heads % args->kv_heads != 0) {
        return INVALID("num_heads = %d is no multiple of kv_heads = %d", args->num_heads,
                       args->kv_heads);
    }
    if (args->k_width < 1 || args->v_width < 0) {
        return INVALID("k_width = %d, v_width = %d, out of range", args->k_width, args->v_width);
    }
    if (args->v_in_k && args->v_width > args->k_width) {
        return INVALID("v_width = %d, above k_width = %d with v_in_k", args->v_width,
                       args->k_width);
    }
    if (args->batch < 0 || args->num_tokens < 0) {
        return INVALID("batch = %d, num_tokens = %d, negative", args->batch, args->num_tokens);
    }
    if (args->batch == 0 && args->num_tokens != 0) {
        return INVALID("num_tokens = %d with batch = 0", args->num_tokens);
    }
    return PKV_OK;
}

/* Which of q, k, v, out, present stand for what kind of call. */
static enum pkv_status check_presence(const struct pkv_gqa_args *args, enum call_kind kind)
{
    if (args->v_in_k ? args->v != NULL : (args->k == NULL) != (args->v == NULL)) {
        return INVALID(args->v_in_k ? "v is set beside v_in_k" : "%s is NULL and %s is not",
                       args->k == NULL ? "k" : "v", args->k == NULL ? "v" : "k");
    }
    if (kind == CALL_APPEND && (args->q != NULL || args->out != NULL || args->lse != NULL)) {
        return INVALID("q, out and lse are absent in an append");
    }
    if (kind == CALL_READ_ONLY && args->k != NULL) {
        return INVALID("k and v are absent in a read-only attend");
    }
    if (args->form == PKV_CACHE_NONE) {
        if (kind != CALL_GQA) {
            return INVALID("form = none: there is no cache to append to or to read");
        }
        if (args->past.k != NULL || args->past.v != NULL) {
            return INVALID("past is set with form = none");
        }
        if (args->k == NULL && args->num_tokens > 0) {
            return INVALID("k is NULL with form = none");
        }
    }
    const bool has_present = args->present.k != NULL || args->present.v != NULL;
    if (has_present && (args->k == NULL || args->form == PKV_CACHE_NONE)) {
        return INVALID("present is set on a call that appends nothing");
    }
    if (args->form != PKV_CACHE_DENSE_COPY && has_present &&
        (args->present.k != args->past.k || args->present.v != args->past.v)) {
        return INVALID("present is not past: this form appends in place");
    }
    return PKV_OK;
}

/* What belongs to one form only. */
static enum pkv_status check_form(const struct pkv_gqa_args *args)
{
    const bool is_paged = args->form == PKV_CACHE_PAGED;
    if (is_paged && (args->max_blocks < 0 || (args->block_table == NULL && args->batch > 0))) {
        return INVALID("block_table is NULL or max_blocks = %d negative", args->max_blocks);
    }
    if (!is_paged && (args->block_table != NULL || args->max_blocks != 0)) {
        return INVALID("block_table is set, but form is not paged");
    }
    if (args->form != PKV_CACHE_CONTINUOUS && args->slot_ids != NULL) {
        return INVALID("slot_ids is set, but form is not continuous");
    }
    if (args->form != PKV_CACHE_NONE && args->cu_seqlens_k != NULL) {
        return INVALID("cu_seqlens_k is set, but form is not none: caches take kv_lens");
    }
    const bool takes_lengths = args->form != PKV_CACHE_NONE && args->form != PKV_CACHE_DENSE_COPY;
    if (takes_lengths && args->kv_lens == NULL && args->batch > 0) {
        return INVALID("kv_lens is NULL");
    }
    if (!takes_lengths && args->kv_lens != NULL) {
        return INVALID("kv_lens is set, but this form takes none");
    }
    return PKV_OK;
}

static enum pkv_status check_window(const struct pkv_gqa_args *args)
{
    if (args->sliding_window < 0) {
        return INVALID("sliding_window = %lld, negative", (long long)args->sliding_window);
    }
    if (args->not_causal && (args->sliding_window != 0 || args->kept_prefix != NULL)) {
        return INVALID("sliding_window and kept_prefix need the causal bound");
    }
    if (args->kept_prefix == NULL && args->kept_prefix_count != 0) {
        return INVALID("kept_prefix is NULL with kept_prefix_count = %d", args->kept_prefix_count);
    }
    if (args->kept_prefix != NULL && args->kept_prefix_count != 1 &&
        args->kept_prefix_count != args->batch) {
        return INVALID("kept_prefix_count = %d, neither 1 nor batch = %d", args->kept_prefix_count,
                       args->batch);
    }
    for (int32_t i = 0; args->kept_prefix != NULL && i < args->kept_prefix_count; i++) {
        if (args->kept_prefix[i] < 0) {
            return INVALID("kept_prefix[%d] = %lld, negative", i, (long long)args->kept_prefix[i]);
        }
    }
    return PKV_OK;
}

static enum pkv_status check_token_stride(const struct pkv_gqa_args *args, size_t stride,
                                          int32_t heads, int32_t width, const char *name,
                                          size_t *resolved)
{
    const size_t packed = (size_t)heads * (size_t)width;
    size_t reach = 0;
    if (stride != 0 && stride < packed) {
        return INVALID("%s = %zu, below %d heads of width %d", name, stride, heads, width);
    }
    *resolved = stride != 0 ? stride : packed;
    if (!checked_mul((size_t)args->num_tokens + 1, *resolved, &reach) ||
        !checked_mul(reach, pkv_dtype_bytes(args->dtype), &reach)) {
        return INVALID("%s = %zu: the bytes of %d tokens overflow", name, *resolved,
                       args->num_tokens);
    }
    return PKV_OK;
}

static enum pkv_status check_strides(const struct pkv_gqa_args *args, struct call *call)
{
    const struct {
        size_t stride;
        int32_t heads, width;
        const char *name;
        size_t *resolved;
    } all[] = {
        {args->q_stride, args->num_heads, args->k_width, "q_stride", &call->q_stride},
        {args->k_stride, args->kv_heads, args->k_width, "k_stride", &call->k_stride},
        {args->v_stride, args->kv_heads, call->shape.v_width, "v_stride", &call->v_stride},
        {args->out_stride, args->num_heads, call->shape.v_width, "out_stride", &call->out_stride},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const enum pkv_status status = check_token_stride(
            args, all[i].stride, all[i].heads, all[i].width, all[i].name, all[i].resolved);
        if (status != PKV_OK) {
            return status;
        }
    }
    return PKV_OK;
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

/* The call's own k and v as a cache: one endless block whose row b begins at token cu_seqlens_k[b].
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

static enum pkv_status check_caches(const struct pkv_gqa_args *args, struct call *call)
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

/* The mask's presence and shape; its rows and columns are checked against lengths later. */
static enum pkv_status check_mask(const struct pkv_gqa_args *args)
{
    if (args->attn_mask == NULL) {
        return PKV_OK;
    }
    if (args->mask_dtype != PKV_INT8 && args->mask_dtype != PKV_F32 &&
        args->mask_dtype != args->dtype) {
        return INVALID("mask_dtype = %d, neither bytes nor f32 nor the activations'",
                       (int)args->mask_dtype);
    }
    if (args->mask_batch != 1 && args->mask_batch != args->batch) {
        return INVALID("mask_batch = %d, neither 1 nor batch = %d", args->mask_batch, args->batch);
    }
    if (args->mask_heads != 1 && args->mask_heads != args->num_heads) {
        return INVALID("mask_heads = %d, neither 1 nor num_heads = %d", args->mask_heads,
                       args->num_heads);
    }
    if (args->mask_queries < 0 || args->mask_keys < 0) {
        return INVALID("mask_queries = %d, mask_keys = %d, negative", args->mask_queries,
                       args->mask_keys);
    }
    return PKV_OK;
}

/* The constants against the call; a cache that is not there has the activations' dtype. */
static enum pkv_status check_constants(const struct pkv_gqa_args *args)
{
    const bool from_present = args->form == PKV_CACHE_DENSE_COPY && args->past.k == NULL;
    const struct pkv_kv_view *view = from_present ? &args->present : &args->past;
    const bool has_cache = args->form != PKV_CACHE_NONE;
    const struct gqa_geometry geometry = {
        .num_heads = args->num_heads,
        .kv_heads = args->kv_heads,
        .k_width = args->k_width,
        .v_width = args->v_width != 0 ? args->v_width : args->k_width,
        .v_in_k = args->v_in_k,
        .k_dtype = has_cache ? view->k_dtype : args->dtype,
        .v_dtype = !has_cache     ? args->dtype
                   : args->v_in_k ? view->k_dtype
                                  : view->v_dtype,
    };
    if (!is_known(geometry.k_dtype) || !is_known(geometry.v_dtype)) {
        return INVALID("%s = %d is none", is_known(geometry.k_dtype) ? "v_dtype" : "k_dtype",
                       (int)(is_known(geometry.k_dtype) ? geometry.v_dtype : geometry.k_dtype));
    }
    if (args->position_ids != NULL && args->constants.rope_cos == NULL) {
        return INVALID("position_ids is set without rope_cos and rope_sin");
    }
    return gqa_check_constants(&args->constants, &geometry, "");
}

static enum pkv_status check_options(const struct pkv_gqa_args *args, enum call_kind kind)
{
    enum pkv_status status = check_heads(args);
    if (status == PKV_OK) {
        status = check_presence(args, kind);
    }
    if (status == PKV_OK) {
        status = check_form(args);
    }
    if (status == PKV_OK) {
        status = check_window(args);
    }
    if (status == PKV_OK) {
        status = check_constants(args);
    }
    return status == PKV_OK ? check_mask(args) : status;
}

enum pkv_status check_args(const struct pkv_gqa_args *args, enum call_kind kind, struct call *call)
{
    *call = (struct call){.args = args};
    enum pkv_status status = check_options(args, kind);
    if (status != PKV_OK) {
        return status;
    }
    const bool changes_keys =
        args->constants.rope_cos != NULL || args->constants.k_norm_gain != NULL;
    call->attends = kind != CALL_APPEND;
    call->appends = args->k != NULL && args->form != PKV_CACHE_NONE;
    call->shape = (struct gqa_shape){
        .kv_heads = args->kv_heads,
        .k_width = args->k_width,
        .v_width = args->v_width != 0 ? args->v_width : args->k_width,
        .v_in_k = args->v_in_k,
        .sliding_window =
            args->sliding_window < INT32_MAX ? (int32_t)args->sliding_window : INT32_MAX,
        .not_causal = args->not_causal,
        .has_mask = args->attn_mask != NULL,
        .max_heads = args->num_heads,
        .all_new = args->form == PKV_CACHE_NONE && changes_keys,
    };
    status = check_strides(args, call);
    if (status == PKV_OK) {
        status = check_caches(args, call);
    }
    call->shape.block_size = call->cache.block_size > 0 ? call->cache.block_size : 1;
    return status;
}
