/* SPDX-License-Identifier: MIT
 *
 * contract_options.c: an absent option is its default, a present one is checked as far as its
 * translation needs. */
#include "attn/contract_options.h"

#include <float.h>
#include <math.h>

#include "attn/tensor.h"
#include "base/error.h"

static enum pkv_status take_rope(const struct pkv_contract_args *in, struct pkv_gqa_args *out)
{
    struct pkv_attn_constants *c = &out->constants;
    if ((in->rope_cos == NULL) != (in->rope_sin == NULL)) {
        return INVALID("rope_cos and rope_sin go together");
    }
    if (in->rope_cos != NULL) {
        if (in->rope_cos->rank != 2 || in->rope_sin->rank != 2 || !tensor_is_float(in->rope_cos) ||
            in->rope_cos->type != in->rope_sin->type ||
            in->rope_cos->dims[0] != in->rope_sin->dims[0] ||
            in->rope_cos->dims[1] != in->rope_sin->dims[1]) {
            return INVALID("rope_cos and rope_sin are [positions][pairs] of one float type");
        }
        c->rope_cos = in->rope_cos->data;
        c->rope_sin = in->rope_sin->data;
        c->rope_dtype = (enum pkv_dtype)in->rope_cos->type;
        c->rope_positions = in->rope_cos->dims[0];
        c->rope_width = (int32_t)in->rope_cos->dims[1];
    }
    c->rotary_mode = in->rotary_mode != NULL ? *in->rotary_mode : PKV_ROTARY_HALF_SPLIT;
    out->position_ids = in->position_ids != NULL ? in->position_ids->data : NULL;
    return tensor_check_vector(in->position_ids, PKV_TENSOR_INT64, out->num_tokens, "position_ids");
}

static enum pkv_status take_norm_weight(const struct pkv_tensor *weight, const char *name,
                                        const void **data, enum pkv_dtype *dtype, int32_t *count)
{
    if (weight == NULL) {
        return PKV_OK;
    }
    if (weight->rank != 1 || !tensor_is_float(weight)) {
        return INVALID("%s: a float vector", name);
    }
    *data = weight->data;
    *dtype = (enum pkv_dtype)weight->type;
    *count = (int32_t)weight->dims[0];
    return PKV_OK;
}

static enum pkv_status take_norm(const struct pkv_contract_args *in, struct pkv_gqa_args *out)
{
    struct pkv_attn_constants *c = &out->constants;
    if (in->qk_norm_eps != NULL) {
        c->qk_norm_eps = (float)*in->qk_norm_eps;
        if (!(c->qk_norm_eps > 0) || isinf(c->qk_norm_eps)) {
            return INVALID("qk_norm_eps = %g, not positive and finite", *in->qk_norm_eps);
        }
    }
    const enum pkv_status status = take_norm_weight(in->q_norm_gain, "q_norm_gain", &c->q_norm_gain,
                                                    &c->q_norm_gain_dtype, &c->q_norm_gain_count);
    return status != PKV_OK ? status
                            : take_norm_weight(in->k_norm_gain, "k_norm_gain", &c->k_norm_gain,
                                               &c->k_norm_gain_dtype, &c->k_norm_gain_count);
}

/* A scale is one element, or [kv_heads][width] or [kv_heads][1][width]; its values pkv_gqa checks.
 */
static enum pkv_status check_scale(const struct pkv_tensor *t, const char *name, int32_t kv_heads,
                                   int32_t width)
{
    if (t == NULL || tensor_count(t) == 1) {
        return PKV_OK;
    }
    const bool is_channels = t->rank == 2 || (t->rank == 3 && t->dims[1] == 1);
    if (!is_channels || t->dims[0] != kv_heads || t->dims[t->rank - 1] != width) {
        return INVALID("%s: neither one element nor [%d][%d]", name, kv_heads, width);
    }
    return PKV_OK;
}

/* f32 arrays whose lengths pkv_gqa checks. */
static enum pkv_status take_floats(const struct pkv_tensor *t, const char *name, const float **data,
                                   int32_t *count)
{
    if (t == NULL) {
        return PKV_OK;
    }
    if (t->type != PKV_TENSOR_F32 || tensor_count(t) < 1 || tensor_count(t) > INT32_MAX) {
        return INVALID("%s: f32 values", name);
    }
    *data = t->data;
    *count = (int32_t)tensor_count(t);
    return PKV_OK;
}

/* The scales of a quantised cache. */
static enum pkv_status take_scales(const struct pkv_contract_args *in, struct pkv_gqa_args *out)
{
    struct pkv_attn_constants *c = &out->constants;
    enum pkv_status status = check_scale(in->k_scale, "k_scale", out->kv_heads, out->k_width);
    if (status == PKV_OK) {
        status = check_scale(in->v_scale, "v_scale", out->kv_heads, out->v_width);
    }
    if (status == PKV_OK) {
        status = take_floats(in->k_scale, "k_scale", &c->k_scale, &c->k_scale_count);
    }
    return status == PKV_OK ? take_floats(in->v_scale, "v_scale", &c->v_scale, &c->v_scale_count)
                            : status;
}

/* What changes scores before or in the softmax. */
static enum pkv_status take_logits(const struct pkv_contract_args *in, struct pkv_gqa_args *out)
{
    struct pkv_attn_constants *c = &out->constants;
    int32_t num_q_scales = 0;
    if (in->head_sink != NULL && in->head_sink->rank != 1) {
        return INVALID("head_sink: rank %d, not 1", in->head_sink->rank);
    }
    enum pkv_status status = take_floats(in->q_scale, "q_scale", &c->q_scale, &num_q_scales);
    if (status == PKV_OK && num_q_scales > 1) {
        status = INVALID("q_scale: %d elements, not one", num_q_scales);
    }
    if (status == PKV_OK) {
        status = take_floats(in->head_sink, "head_sink", &c->head_sink, &c->head_sink_count);
    }
    c->smooth_softmax = in->smooth_softmax != NULL && *in->smooth_softmax;
    return status;
}

static enum pkv_status take_softcap(const struct pkv_contract_args *in, struct pkv_gqa_args *out)
{
    const double softcap = in->softcap != NULL ? *in->softcap : 0;
    if (!(softcap >= 0 && softcap <= FLT_MAX)) {
        return INVALID("softcap = %g, negative or not finite", softcap);
    }
    out->constants.softcap = (float)softcap;
    return PKV_OK;
}

/* Which keys a query sees: causality, window, mask. */
static enum pkv_status take_visibility(const struct pkv_contract_args *in, struct pkv_gqa_args *out)
{
    const struct pkv_tensor *mask = in->attn_mask;
    out->sliding_window = in->sliding_window != NULL ? *in->sliding_window : 0;
    out->not_causal = in->is_causal != NULL && !*in->is_causal;
    if (mask == NULL) {
        return PKV_OK;
    }
    if (mask->rank != 4 || (mask->type != PKV_TENSOR_BOOL && !tensor_is_float(mask))) {
        return INVALID("attn_mask: [batch or 1][heads or 1][queries][keys] of bool or float");
    }
    out->attn_mask = mask->data;
    out->mask_dtype = mask->type == PKV_TENSOR_BOOL ? PKV_INT8 : (enum pkv_dtype)mask->type;
    out->mask_batch = (int32_t)mask->dims[0];
    out->mask_heads = (int32_t)mask->dims[1];
    out->mask_queries = (int32_t)mask->dims[2];
    out->mask_keys = (int32_t)mask->dims[3];
    return PKV_OK;
}

enum pkv_status contract_take_options(const struct pkv_contract_args *in, struct pkv_gqa_args *out)
{
    enum pkv_status (*const options[])(const struct pkv_contract_args *, struct pkv_gqa_args *) = {
        take_rope, take_norm, take_logits, take_scales, take_softcap, take_visibility,
    };
    enum pkv_status status = PKV_OK;
    for (size_t i = 0; status == PKV_OK && i < sizeof options / sizeof options[0]; i++) {
        status = options[i](in, out);
    }
    return status;
}
