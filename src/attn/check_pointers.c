/* SPDX-License-Identifier: MIT
 *
 * check_pointers.c: lists every array of a call, and compares the two that are written with all
 * others. Sizes were checked before and do not overflow. */
#include "attn/check_pointers.h"

#include "attn/overlap.h"
#include "attn/view.h"
#include "base/error.h"

struct outputs {
    struct overlap_array out;
    struct overlap_array lse;
};

/* [num_tokens][heads * width], stride elements from token to token. */
static struct overlap_array tokens_of(const char *name, const void *base, enum pkv_dtype dtype,
                                      size_t stride, int32_t heads, int32_t width,
                                      size_t num_tokens)
{
    const size_t element = pkv_dtype_bytes(dtype);
    return (struct overlap_array){
        .name = name,
        .base = (uintptr_t)base,
        .bytes = (size_t)heads * (size_t)width * element,
        .stride = stride * element,
        .count = num_tokens,
    };
}

static struct overlap_array lse_of(const float *lse, int32_t num_heads, size_t num_tokens)
{
    return overlap_packed("lse", lse, num_tokens * (size_t)num_heads, sizeof *lse);
}

/* One side of a cache as a whole. */
static struct overlap_array cache_of(const char *name, const struct pkv_kv_view *view, bool is_key)
{
    const void *base = is_key ? view->k : view->v;
    size_t bytes = 0;
    if (base == NULL || !view_bytes(view, is_key, &bytes)) {
        return (struct overlap_array){.name = name};
    }
    return overlap_packed(name, base, bytes, 1);
}

/* No output lies over any of these. */
static enum pkv_status check_inputs(const struct outputs *outputs,
                                    const struct overlap_array *inputs, size_t count)
{
    enum pkv_status status = PKV_OK;
    for (size_t i = 0; status == PKV_OK && i < count; i++) {
        status = overlap_check(&outputs->out, &inputs[i]);
        if (status == PKV_OK) {
            status = overlap_check(&outputs->lse, &inputs[i]);
        }
    }
    return status;
}

/* The integers and constants of a call. */
static enum pkv_status check_small_inputs(const struct pkv_gqa_args *args,
                                          const struct outputs *outputs)
{
    const struct pkv_attn_constants *c = &args->constants;
    const size_t batch = (size_t)args->batch;
    const size_t table = (size_t)c->rope_positions * (size_t)c->rope_width;
    const size_t mask = (size_t)args->mask_batch * (size_t)args->mask_heads *
                        (size_t)args->mask_queries * (size_t)args->mask_keys;
    const struct overlap_array inputs[] = {
        overlap_packed("cu_seqlens_q", args->cu_seqlens_q, batch + 1, sizeof(int32_t)),
        overlap_packed("cu_seqlens_k", args->cu_seqlens_k, batch + 1, sizeof(int32_t)),
        overlap_packed("kv_lens", args->kv_lens, batch, sizeof(int32_t)),
        overlap_packed("block_table", args->block_table, batch * (size_t)args->max_blocks,
                       sizeof(int32_t)),
        overlap_packed("slot_ids", args->slot_ids, batch, sizeof(int32_t)),
        overlap_packed("kept_prefix", args->kept_prefix, (size_t)args->kept_prefix_count,
                       sizeof(int64_t)),
        overlap_packed("position_ids", args->position_ids, (size_t)args->num_tokens,
                       sizeof(int64_t)),
        overlap_packed("parents", args->parents, (size_t)args->num_tokens, sizeof(int32_t)),
        overlap_packed("attn_mask", args->attn_mask, mask, pkv_dtype_bytes(args->mask_dtype)),
        overlap_packed("rope_cos", c->rope_cos, table, pkv_dtype_bytes(c->rope_dtype)),
        overlap_packed("rope_sin", c->rope_sin, table, pkv_dtype_bytes(c->rope_dtype)),
        overlap_packed("head_sink", c->head_sink, (size_t)c->head_sink_count, sizeof(float)),
        overlap_packed("q_norm_gain", c->q_norm_gain, (size_t)c->q_norm_gain_count,
                       pkv_dtype_bytes(c->q_norm_gain_dtype)),
        overlap_packed("k_norm_gain", c->k_norm_gain, (size_t)c->k_norm_gain_count,
                       pkv_dtype_bytes(c->k_norm_gain_dtype)),
        overlap_packed("k_scale", c->k_scale, (size_t)c->k_scale_count, sizeof(float)),
        overlap_packed("v_scale", c->v_scale, (size_t)c->v_scale_count, sizeof(float)),
        overlap_packed("q_scale", c->q_scale, 1, sizeof(float)),
    };
    return check_inputs(outputs, inputs, sizeof inputs / sizeof inputs[0]);
}

/* The functional form reads past and writes present. */
static enum pkv_status check_functional(const struct overlap_array *past,
                                        const struct overlap_array *present)
{
    enum pkv_status status = PKV_OK;
    for (size_t i = 0; status == PKV_OK && i < 4; i++) {
        status = overlap_check(&present[i / 2], &past[i % 2]);
    }
    return status;
}

static enum pkv_status check_needed(const struct call *call)
{
    const struct pkv_gqa_args *args = call->args;
    if (call->attends && (args->q == NULL || args->out == NULL)) {
        return INVALID("%s is NULL", args->q == NULL ? "q" : "out");
    }
    if (!call->attends && args->k == NULL) {
        return INVALID("k is NULL: nothing to append");
    }
    return PKV_OK;
}

/* Tokens of k and v: those of q, unless a cache-less call counts its own. */
static size_t num_key_tokens(const struct pkv_gqa_args *args)
{
    const int32_t *cu = args->form == PKV_CACHE_NONE ? args->cu_seqlens_k : NULL;
    const int32_t tokens = cu != NULL ? cu[args->batch] : args->num_tokens;
    return tokens > 0 ? (size_t)tokens : 0;
}

enum pkv_status check_call_pointers(const struct call *call)
{
    const struct pkv_gqa_args *args = call->args;
    const enum pkv_dtype dtype = args->dtype;
    const size_t tokens = (size_t)args->num_tokens;
    const size_t key_tokens = num_key_tokens(args);
    const int32_t heads = args->num_heads;
    const int32_t kv_heads = args->kv_heads;
    const int32_t k_width = args->k_width;
    const int32_t v_width = call->shape.v_width;
    enum pkv_status status = tokens > 0 ? check_needed(call) : PKV_OK;
    if (status != PKV_OK || tokens == 0) {
        return status;
    }
    const struct outputs outputs = {
        tokens_of("out", args->out, dtype, call->out_stride, heads, v_width, tokens),
        lse_of(args->lse, heads, tokens),
    };
    const struct overlap_array past[] = {cache_of("past.k", &call->past, true),
                                         cache_of("past.v", &call->past, false)};
    const struct overlap_array present[] = {cache_of("present.k", &call->present, true),
                                            cache_of("present.v", &call->present, false)};
    const struct overlap_array inputs[] = {
        tokens_of("q", args->q, dtype, call->q_stride, heads, k_width, tokens),
        tokens_of("k", args->k, dtype, call->k_stride, kv_heads, k_width, key_tokens),
        tokens_of("v", args->v, dtype, call->v_stride, kv_heads, v_width, key_tokens),
        past[0],
        present[0],
        past[1],
        present[1],
    };
    status = overlap_check(&outputs.out, &outputs.lse);
    if (status == PKV_OK) {
        status = check_inputs(&outputs, inputs, sizeof inputs / sizeof inputs[0]);
    }
    if (status == PKV_OK) {
        status = check_functional(past, present);
    }
    return status == PKV_OK ? check_small_inputs(args, &outputs) : status;
}

enum pkv_status check_layer_pointers(const struct gqa_layer *layer, const struct gqa_shape *shape,
                                     int32_t num_tokens)
{
    const enum pkv_dtype dtype = layer->dtype;
    const size_t tokens = (size_t)num_tokens;
    if (num_tokens == 0) {
        return PKV_OK;
    }
    if (layer->q == NULL || layer->out == NULL) {
        return INVALID("%s is NULL", layer->q == NULL ? "q" : "out");
    }
    const struct outputs outputs = {
        tokens_of("out", layer->out, dtype, layer->out_stride, layer->num_heads, shape->v_width,
                  tokens),
        lse_of(layer->lse, layer->num_heads, tokens),
    };
    const struct overlap_array inputs[] = {
        tokens_of("q", layer->q, dtype, layer->q_stride, layer->num_heads, shape->k_width, tokens),
        tokens_of("k", layer->k, dtype, layer->k_stride, shape->kv_heads, shape->k_width, tokens),
        tokens_of("v", layer->v, dtype, layer->v_stride, shape->kv_heads, shape->v_width, tokens),
        cache_of("past.k", &layer->cache, true),
        cache_of("past.v", &layer->cache, false),
        overlap_packed("position_ids", layer->position_ids, tokens, sizeof(int64_t)),
    };
    const enum pkv_status status = overlap_check(&outputs.out, &outputs.lse);
    return status == PKV_OK ? check_inputs(&outputs, inputs, sizeof inputs / sizeof inputs[0])
                            : status;
}
