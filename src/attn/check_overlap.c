/* SPDX-License-Identifier: MIT
 *
 * check_overlap.c: the pointers of a call: those that are needed are there, and outputs overlap
 * neither inputs nor caches nor each other. */
#include "attn/check.h"
#include "base/error.h"

#define INVALID(...) refuse(PKV_INVALID_ARGUMENT, __VA_ARGS__)

/* count pieces of `bytes` bytes, `stride` bytes apart. */
struct extent {
    const char *name;
    uintptr_t base;
    size_t bytes;
    size_t stride;
    size_t count;
};

static size_t reach(const struct extent *e)
{
    return (e->count - 1) * e->stride + e->bytes;
}

/* Arrays of one stride may be interleaved, as the parts of a fused QKV row are. */
static bool overlap(const struct extent *a, const struct extent *b)
{
    if (a->base == 0 || b->base == 0 || a->count == 0 || b->count == 0) {
        return false;
    }
    if (a->base + reach(a) <= b->base || b->base + reach(b) <= a->base) {
        return false;
    }
    if (a->stride != b->stride) {
        return true;
    }
    const size_t behind = a->base >= b->base
                              ? (a->base - b->base) % a->stride
                              : (a->stride - (b->base - a->base) % a->stride) % a->stride;
    return behind < b->bytes || behind + a->bytes > a->stride;
}

/* Rows of k and v: those of q, unless a cache-less call counts its own. */
static size_t num_key_tokens(const struct pkv_gqa_args *args)
{
    const int32_t *cu = args->form == PKV_CACHE_NONE ? args->cu_seqlens_k : NULL;
    const int32_t tokens = cu != NULL ? cu[args->batch] : args->num_tokens;
    return tokens > 0 ? (size_t)tokens : 0;
}

static struct extent tokens_of(const char *name, const void *base, size_t stride, int32_t heads,
                               int32_t width, const struct pkv_gqa_args *args)
{
    const size_t element = pkv_dtype_bytes(args->dtype);
    return (struct extent){name, (uintptr_t)base, (size_t)heads * (size_t)width * element,
                           stride * element, (size_t)args->num_tokens};
}

/* A cache whole; check_args has shown that the sizes do not overflow. */
static struct extent cache_of(const char *name, const struct pkv_kv_view *view, bool is_key)
{
    const size_t blocks = (size_t)view->num_blocks - 1;
    const size_t heads = (size_t)view->kv_heads - 1;
    const size_t cells = (size_t)view->block_size - 1;
    const size_t elements = is_key ? blocks * view->k_block_stride + heads * view->k_head_stride +
                                         cells * view->k_cell_stride + (size_t)view->k_width
                                   : blocks * view->v_block_stride + heads * view->v_head_stride +
                                         cells * view->v_cell_stride + (size_t)view->v_width;
    const size_t bytes = elements * pkv_dtype_bytes(is_key ? view->k_dtype : view->v_dtype);
    const void *base = is_key ? view->k : view->v;
    return (struct extent){name, (uintptr_t)base, bytes, bytes, base != NULL ? 1 : 0};
}

static enum pkv_status check_apart(const struct extent *a, const struct extent *b)
{
    return overlap(a, b) ? INVALID("%s overlaps %s", a->name, b->name) : PKV_OK;
}

static enum pkv_status check_needed(const struct call *call)
{
    const struct pkv_gqa_args *args = call->args;
    if (args->num_tokens == 0) {
        return PKV_OK;
    }
    if (call->attends && (args->q == NULL || args->out == NULL)) {
        return INVALID("%s is NULL", args->q == NULL ? "q" : "out");
    }
    if (!call->attends && args->k == NULL) {
        return INVALID("k is NULL: nothing to append");
    }
    return PKV_OK;
}

static struct extent array_of(const char *name, const void *base, size_t count, size_t element)
{
    const size_t bytes = count * element;
    return (struct extent){name, (uintptr_t)base, bytes, bytes, base != NULL && bytes > 0 ? 1 : 0};
}

/* No output lies over this input. */
static enum pkv_status check_input(const struct extent *out, const struct extent *lse,
                                   const struct extent *input)
{
    const enum pkv_status status = check_apart(out, input);
    return status == PKV_OK ? check_apart(lse, input) : status;
}

/* The integers and constants of a call. */
static enum pkv_status check_small_inputs(const struct pkv_gqa_args *args, const struct extent *out,
                                          const struct extent *lse)
{
    const struct pkv_attn_constants *c = &args->constants;
    const size_t batch = (size_t)args->batch;
    const size_t plane = (size_t)c->rope_positions * (size_t)c->rope_width;
    const size_t mask = (size_t)args->mask_batch * (size_t)args->mask_heads *
                        (size_t)args->mask_queries * (size_t)args->mask_keys;
    const struct extent inputs[] = {
        array_of("cu_seqlens_q", args->cu_seqlens_q, batch + 1, sizeof(int32_t)),
        array_of("cu_seqlens_k", args->cu_seqlens_k, batch + 1, sizeof(int32_t)),
        array_of("kv_lens", args->kv_lens, batch, sizeof(int32_t)),
        array_of("block_table", args->block_table, batch * (size_t)args->max_blocks,
                 sizeof(int32_t)),
        array_of("slot_ids", args->slot_ids, batch, sizeof(int32_t)),
        array_of("kept_prefix", args->kept_prefix, (size_t)args->kept_prefix_count,
                 sizeof(int64_t)),
        array_of("position_ids", args->position_ids, (size_t)args->num_tokens, sizeof(int64_t)),
        array_of("attn_mask", args->attn_mask, mask, pkv_dtype_bytes(args->mask_dtype)),
        array_of("rope_cos", c->rope_cos, plane, pkv_dtype_bytes(c->rope_dtype)),
        array_of("rope_sin", c->rope_sin, plane, pkv_dtype_bytes(c->rope_dtype)),
        array_of("head_sink", c->head_sink, (size_t)c->head_sink_count, sizeof(float)),
        array_of("q_norm_gain", c->q_norm_gain, (size_t)c->q_norm_gain_count,
                 pkv_dtype_bytes(c->q_norm_gain_dtype)),
        array_of("k_norm_gain", c->k_norm_gain, (size_t)c->k_norm_gain_count,
                 pkv_dtype_bytes(c->k_norm_gain_dtype)),
        array_of("k_scale", c->k_scale, (size_t)c->k_scale_count, sizeof(float)),
        array_of("v_scale", c->v_scale, (size_t)c->v_scale_count, sizeof(float)),
        array_of("q_scale", c->q_scale, 1, sizeof(float)),
    };
    enum pkv_status status = PKV_OK;
    for (size_t i = 0; status == PKV_OK && i < sizeof inputs / sizeof inputs[0]; i++) {
        status = check_input(out, lse, &inputs[i]);
    }
    return status;
}

/* The functional form reads past and writes present. */
static enum pkv_status check_functional(const struct extent *past, const struct extent *present)
{
    enum pkv_status status = PKV_OK;
    for (size_t i = 0; status == PKV_OK && i < 4; i++) {
        status = check_apart(&present[i / 2], &past[i % 2]);
    }
    return status;
}

enum pkv_status check_pointers(const struct call *call)
{
    const struct pkv_gqa_args *args = call->args;
    const enum pkv_status needed = check_needed(call);
    if (needed != PKV_OK || args->num_tokens == 0) {
        return needed;
    }
    const int32_t v_width = call->shape.v_width;
    const size_t lse_row = (size_t)args->num_heads * sizeof(float);
    const struct extent lse = {"lse", (uintptr_t)args->lse, lse_row, lse_row,
                               (size_t)args->num_tokens};
    const struct extent out =
        tokens_of("out", args->out, call->out_stride, args->num_heads, v_width, args);
    struct extent activations[] = {
        tokens_of("q", args->q, call->q_stride, args->num_heads, args->k_width, args),
        tokens_of("k", args->k, call->k_stride, args->kv_heads, args->k_width, args),
        tokens_of("v", args->v, call->v_stride, args->kv_heads, v_width, args),
    };
    activations[1].count = activations[2].count = num_key_tokens(args);
    const struct extent past[] = {cache_of("past.k", &call->past, true),
                                  cache_of("past.v", &call->past, false)};
    const struct extent present[] = {cache_of("present.k", &call->present, true),
                                     cache_of("present.v", &call->present, false)};
    enum pkv_status status = check_apart(&out, &lse);
    for (size_t i = 0; status == PKV_OK && i < sizeof activations / sizeof activations[0]; i++) {
        status = check_input(&out, &lse, &activations[i]);
    }
    for (size_t i = 0; status == PKV_OK && i < 2; i++) {
        status = check_input(&out, &lse, &past[i]);
        if (status == PKV_OK) {
            status = check_input(&out, &lse, &present[i]);
        }
    }
    if (status == PKV_OK) {
        status = check_functional(past, present);
    }
    return status == PKV_OK ? check_small_inputs(args, &out, &lse) : status;
}

enum pkv_status gqa_check_overlap(const struct gqa_layer *layer, const struct gqa_shape *shape,
                                  int32_t num_tokens)
{
    const struct pkv_gqa_args args = {
        .form = PKV_CACHE_PAGED,
        .dtype = layer->dtype,
        .num_heads = layer->num_heads,
        .kv_heads = shape->kv_heads,
        .k_width = shape->k_width,
        .num_tokens = num_tokens,
        .q = layer->q,
        .k = layer->k,
        .v = layer->v,
        .out = layer->out,
        .lse = layer->lse,
        .position_ids = layer->position_ids,
    };
    const struct call call = {
        .args = &args,
        .attends = true,
        .past = layer->cache,
        .shape = *shape,
        .q_stride = layer->q_stride,
        .k_stride = layer->k_stride,
        .v_stride = layer->v_stride,
        .out_stride = layer->out_stride,
    };
    return check_pointers(&call);
}
