/* SPDX-License-Identifier: MIT
 *
 * check_args.c: scalars, presence, options and strides of a raw call. */
#include "attn/check_args.h"

#include "attn/check_cache.h"
#include "attn/gqa_constants.h"
#include "attn/token_stride.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/minmax.h"

static bool is_known(enum pkv_dtype dtype)
{
    return pkv_dtype_bytes(dtype) != 0;
}

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

/* Which of q, k, v, out and present each kind of call has. */
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
    if (args->not_causal && args->cu_bidirectional != NULL) {
        return INVALID(
            "cu_bidirectional is set beside not_causal, where every query sees all keys");
    }
    if (args->not_causal && args->parents != NULL) {
        return INVALID("parents is set beside not_causal, where every query sees all keys");
    }
    if (args->bidirectional != NULL && args->cu_bidirectional == NULL) {
        return INVALID("cu_bidirectional is NULL and bidirectional is not");
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

/* Selected blocks but for the lists, which are checked with the rows. */
static enum pkv_status check_selection(const struct pkv_gqa_args *args)
{
    const int64_t by_head = (int64_t)args->batch * args->kv_heads;
    if (args->cu_selected == NULL) {
        return args->selected == NULL && args->num_selected_lists == 0 &&
                       args->selection_size == 0 && args->selected_newest == 0
                   ? PKV_OK
                   : INVALID("cu_selected is NULL, but something is said of selected blocks");
    }
    if (args->sliding_window != 0) {
        return INVALID("cu_selected is set beside sliding_window = %lld: selected_newest is the "
                       "window of selected blocks",
                       (long long)args->sliding_window);
    }
    if (args->num_selected_lists != args->batch && args->num_selected_lists != by_head) {
        return INVALID("num_selected_lists = %d, neither batch = %d nor batch * kv_heads",
                       args->num_selected_lists, args->batch);
    }
    if (args->selection_size < 0 || (args->selection_size == 0 && args->form != PKV_CACHE_PAGED)) {
        return INVALID("selection_size = %d: at least 1, or 0 with form = paged",
                       args->selection_size);
    }
    if (args->selected_newest < 0) {
        return INVALID("selected_newest = %lld, negative", (long long)args->selected_newest);
    }
    return args->not_causal && args->selected_newest != 0
               ? INVALID("selected_newest needs the causal bound")
               : PKV_OK;
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
        const struct token_stride_rows rows = {
            .num_tokens = args->num_tokens,
            .dtype = args->dtype,
            .width = (size_t)all[i].heads * (size_t)all[i].width,
        };
        const enum pkv_status status =
            token_stride_resolve(all[i].name, all[i].stride, &rows, all[i].resolved);
        if (status != PKV_OK) {
            return status;
        }
    }
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
    const struct gqa_constants_geometry geometry = {
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
    return gqa_constants_check(&args->constants, &geometry, "");
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
        status = check_selection(args);
    }
    if (status == PKV_OK) {
        status = check_constants(args);
    }
    return status == PKV_OK ? check_mask(args) : status;
}

/* shape->block_size is there. */
static void set_selection(const struct pkv_gqa_args *args, struct gqa_shape *shape)
{
    shape->selection_size = args->selection_size != 0 ? args->selection_size : shape->block_size;
    shape->selected_newest = (int32_t)min_i64(args->selected_newest, INT32_MAX);
    shape->selects_by_head = args->num_selected_lists != args->batch;
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
    if (args->cu_selected != NULL) {
        set_selection(args, &call->shape);
    }
    return status;
}
