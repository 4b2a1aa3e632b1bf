/* SPDX-License-Identifier: MIT
 *
 * contract_case.c: from the arguments of pkv_gqa back to tensors, see contract_case.h. */
#include "support/contract_case.h"

#include <stdlib.h>

/* Arrays that a call only reads, as the pointer that a tensor holds. */
static void *unconst(const void *pointer)
{
    union {
        const void *in;
        void *out;
    } p = {pointer};
    return p.out;
}

static const struct pkv_tensor **place_of(struct contract_case *x, enum contract_tensor which)
{
    struct pkv_contract_args *a = &x->args;
    const struct pkv_tensor **const places[NUM_CONTRACT_TENSORS] = {
        [QUERY] = &a->query,
        [KEY] = &a->key,
        [VALUE] = &a->value,
        [PAST_KEY] = &a->past_key,
        [PAST_VALUE] = &a->past_value,
        [KVCACHE_START] = &a->kvcache_start,
        [CU_SEQLENS_Q] = &a->cu_seqlens_q,
        [CU_SEQLENS_K] = &a->cu_seqlens_k,
        [ROPE_COS] = &a->rope_cos,
        [ROPE_SIN] = &a->rope_sin,
        [POSITION_IDS] = &a->position_ids,
        [ATTN_MASK] = &a->attn_mask,
        [Q_SCALE] = &a->q_scale,
        [PRESENT_KEY] = &a->out_present_key,
        [PRESENT_VALUE] = &a->out_present_value,
        [K_SCALE] = &a->k_scale,
        [V_SCALE] = &a->v_scale,
        [HEAD_SINK] = &a->head_sink,
        [Q_NORM_GAIN] = &a->q_norm_gain,
        [K_NORM_GAIN] = &a->k_norm_gain,
        [SLOT_IDS] = &a->slot_ids,
        [KEPT_PREFIX] = &a->kept_prefix,
        [OUTPUT] = &a->output,
    };
    return places[which];
}

void contract_case_set(struct contract_case *x, enum contract_tensor which, void *data,
                       enum pkv_tensor_type type, int32_t rank, int64_t a, int64_t b, int64_t c,
                       int64_t d)
{
    x->tensors[which] = (struct pkv_tensor){data, type, rank, {a, b, c, d}};
    *place_of(x, which) = &x->tensors[which];
}

void contract_case_absent(struct contract_case *x, enum contract_tensor which)
{
    *place_of(x, which) = NULL;
}

struct pkv_tensor *contract_case_tensor(struct contract_case *x, enum contract_tensor which)
{
    return *place_of(x, which) != NULL ? &x->tensors[which] : NULL;
}

/* An array of the call when it is there. */
static void set_input(struct contract_case *x, enum contract_tensor which, const void *data,
                      enum pkv_tensor_type type, int32_t rank, int64_t a, int64_t b)
{
    if (data != NULL) {
        contract_case_set(x, which, unconst(data), type, rank, a, b, 0, 0);
    }
}

static enum pkv_tensor_type type_of(enum pkv_dtype dtype)
{
    return (enum pkv_tensor_type)dtype;
}

static void set_activations(struct contract_case *x)
{
    const struct pkv_gqa_args *args = &x->gqa->args;
    const enum pkv_tensor_type type = type_of(args->dtype);
    const int64_t v_width = x->gqa->spec.v_width;
    const int64_t keys = reference_num_k_tokens(args);
    set_input(x, QUERY, args->q, type, 2, args->num_tokens,
              (int64_t)args->num_heads * args->k_width);
    set_input(x, KEY, args->k, type, 2, keys, (int64_t)args->kv_heads * args->k_width);
    set_input(x, VALUE, args->v, type, 2, keys, args->kv_heads * v_width);
    set_input(x, OUTPUT, args->out, type, 2, args->num_tokens, args->num_heads * v_width);
    x->num_heads = args->num_heads;
    x->kv_num_heads = args->kv_heads;
    x->args.num_heads = &x->num_heads;
    x->args.kv_num_heads = &x->kv_num_heads;
}

static void set_cache(struct contract_case *x, enum contract_tensor key, enum contract_tensor value,
                      const struct pkv_kv_view *view)
{
    contract_case_set(x, key, view->k, type_of(view->k_dtype), 4, view->num_blocks, view->kv_heads,
                      view->block_size, view->k_width);
    contract_case_set(x, value, view->v, type_of(view->v_dtype), 4, view->num_blocks,
                      view->kv_heads, view->block_size, x->gqa->spec.v_width);
}

/* The caches, and the start by the form. */
static void set_caches(struct contract_case *x, uint64_t variant)
{
    const struct gqa_case *c = x->gqa;
    const struct pkv_gqa_args *args = &c->args;
    const bool is_in_place = args->form != PKV_CACHE_DENSE_COPY && variant % 2 == 0;
    if (args->form == PKV_CACHE_NONE) {
        return;
    }
    set_cache(x, PAST_KEY, PAST_VALUE, &args->past);
    if (args->form == PKV_CACHE_DENSE_COPY) {
        set_cache(x, PRESENT_KEY, PRESENT_VALUE, &args->present);
    } else if (is_in_place && args->k != NULL) {
        set_cache(x, PRESENT_KEY, PRESENT_VALUE, &args->past);
    }
    if (args->form == PKV_CACHE_PAGED) {
        contract_case_set(x, KVCACHE_START, c->block_table, PKV_TENSOR_INT32, 2, args->batch,
                          args->max_blocks, 0, 0);
    } else if (args->form == PKV_CACHE_CONTINUOUS) {
        for (int32_t b = 0; b < CASE_MAX_ROWS; b++) {
            x->unread[b] = b % 2 == 0 ? INT32_MIN : INT32_MAX;
        }
        contract_case_set(x, KVCACHE_START, x->unread, PKV_TENSOR_INT32, 1, args->batch, 0, 0, 0);
    } else if (args->form == PKV_CACHE_DENSE) {
        const bool is_narrow = variant % 3 == 0;
        x->narrow_start = c->kv_lens[0] - c->spec.q_lens[0];
        x->start = x->narrow_start;
        contract_case_set(x, KVCACHE_START, is_narrow ? (void *)&x->narrow_start : &x->start,
                          is_narrow ? PKV_TENSOR_INT32 : PKV_TENSOR_INT64, 0, 0, 0, 0, 0);
    }
}

static bool has_equal_rows(const struct case_spec *spec)
{
    for (int32_t b = 1; b < spec->batch; b++) {
        if (spec->q_lens[b] != spec->q_lens[0]) {
            return false;
        }
    }
    return spec->form != PKV_CACHE_NONE || spec->batch == 1;
}

static void set_rows(struct contract_case *x, uint64_t variant)
{
    struct gqa_case *c = x->gqa;
    const struct pkv_gqa_args *args = &c->args;
    const int64_t batch = args->batch;
    if (!has_equal_rows(&c->spec) || variant % 2 == 0) {
        contract_case_set(x, CU_SEQLENS_Q, c->cu_seqlens_q, PKV_TENSOR_INT32, 1, batch + 1, 0, 0,
                          0);
    }
    if (args->form == PKV_CACHE_PAGED || args->form == PKV_CACHE_CONTINUOUS) {
        contract_case_set(x, CU_SEQLENS_K, c->kv_lens, PKV_TENSOR_INT32, 1, batch, 0, 0, 0);
    }
    set_input(x, CU_SEQLENS_K, args->cu_seqlens_k, PKV_TENSOR_INT32, 1, batch + 1, 0);
    set_input(x, SLOT_IDS, args->slot_ids, PKV_TENSOR_INT32, 1, batch, 0);
    set_input(x, KEPT_PREFIX, args->kept_prefix, PKV_TENSOR_INT64,
              args->kept_prefix_count == 1 ? 0 : 1, batch, 0);
    set_input(x, POSITION_IDS, args->position_ids, PKV_TENSOR_INT64, 1, args->num_tokens, 0);
    if (args->sliding_window != 0) {
        x->sliding_window = args->sliding_window;
        x->args.sliding_window = &x->sliding_window;
    }
    x->is_causal = !args->not_causal;
    x->args.is_causal = args->not_causal || variant % 2 == 0 ? &x->is_causal : NULL;
    if (args->attn_mask != NULL) {
        contract_case_set(
            x, ATTN_MASK, unconst(args->attn_mask),
            args->mask_dtype == PKV_INT8 ? PKV_TENSOR_BOOL : type_of(args->mask_dtype), 4,
            args->mask_batch, args->mask_heads, args->mask_queries, args->mask_keys);
    }
}

/* One element: rank 0 or 1; else [kv_heads][width] or [kv_heads][1][width]. */
static void set_scale(struct contract_case *x, enum contract_tensor which, const float *scale,
                      int32_t count, int64_t width, uint64_t variant)
{
    const int64_t heads = x->gqa->args.kv_heads;
    const int32_t more = (int32_t)(variant % 2);
    if (scale != NULL && count == 1) {
        contract_case_set(x, which, unconst(scale), PKV_TENSOR_F32, more, 1, 0, 0, 0);
    } else if (scale != NULL) {
        contract_case_set(x, which, unconst(scale), PKV_TENSOR_F32, 2 + more, heads,
                          more ? 1 : width, width, 0);
    }
}

static void set_constants(struct contract_case *x, uint64_t variant)
{
    const struct pkv_gqa_args *args = &x->gqa->args;
    const struct pkv_attn_constants *c = &args->constants;
    set_input(x, ROPE_COS, c->rope_cos, type_of(c->rope_dtype), 2, c->rope_positions,
              c->rope_width);
    set_input(x, ROPE_SIN, c->rope_sin, type_of(c->rope_dtype), 2, c->rope_positions,
              c->rope_width);
    set_input(x, Q_NORM_GAIN, c->q_norm_gain, type_of(c->q_norm_gain_dtype), 1,
              c->q_norm_gain_count, 0);
    set_input(x, K_NORM_GAIN, c->k_norm_gain, type_of(c->k_norm_gain_dtype), 1,
              c->k_norm_gain_count, 0);
    set_input(x, HEAD_SINK, c->head_sink, PKV_TENSOR_F32, 1, c->head_sink_count, 0);
    set_input(x, Q_SCALE, c->q_scale, PKV_TENSOR_F32, (int32_t)(variant % 2), 1, 0);
    set_scale(x, K_SCALE, c->k_scale, c->k_scale_count, args->k_width, variant);
    set_scale(x, V_SCALE, c->v_scale, c->v_scale_count, x->gqa->spec.v_width, variant / 2);
    x->rotary_mode = c->rotary_mode;
    x->softcap = (double)c->softcap;
    x->qk_norm_eps = (double)c->qk_norm_eps;
    x->smooth_softmax = c->smooth_softmax;
    const bool is_split = c->rotary_mode == PKV_ROTARY_HALF_SPLIT;
    x->args.rotary_mode = !is_split || variant % 2 == 0 ? &x->rotary_mode : NULL;
    x->args.softcap = c->softcap != 0 || variant % 2 == 0 ? &x->softcap : NULL;
    x->args.qk_norm_eps = c->qk_norm_eps != 0 ? &x->qk_norm_eps : NULL;
    x->args.smooth_softmax = c->smooth_softmax || variant % 2 == 0 ? &x->smooth_softmax : NULL;
}

struct contract_case *contract_case_make(const struct case_spec *spec, uint64_t variant)
{
    struct case_spec known = *spec;
    struct contract_case *x = reference_alloc(1, sizeof *x);
    known.without_lse = true;
    known.padded = known.cell_major = known.v_in_k = false;
    x->gqa = gqa_case_make(&known);
    x->gqa->args.constants.rotary_offset = 0;
    x->gqa->args.constants.norm_order = PKV_NORM_AFTER_ROPE;
    x->args.size = sizeof x->args;
    set_activations(x);
    set_caches(x, variant);
    set_rows(x, variant);
    set_constants(x, variant);
    return x;
}

void contract_case_free(struct contract_case *x)
{
    gqa_case_free(x->gqa);
    free(x);
}
