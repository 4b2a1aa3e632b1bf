/* SPDX-License-Identifier: MIT
 *
 * gqa_constants.c: what a layer may fix for its life, checked against its geometry: by a raw call
 * each time, by a cache once at create. */
#include "attn/gqa_constants.h"

#include <math.h>

#include "attn/kernels.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/sized.h"

static enum pkv_status check_logits(const struct pkv_attn_constants *c, const char *name)
{
    if (c->q_scale != NULL && !isfinite(*c->q_scale)) {
        return INVALID("%sq_scale = %g, not finite", name, (double)*c->q_scale);
    }
    if (!isfinite(c->softcap) || c->softcap < 0) {
        return INVALID("%ssoftcap = %g, negative or not finite", name, (double)c->softcap);
    }
    return PKV_OK;
}

static enum pkv_status check_sink(const struct pkv_attn_constants *c, int32_t num_heads,
                                  const char *name)
{
    if (c->smooth_softmax && c->head_sink != NULL) {
        return INVALID("%ssmooth_softmax and head_sink exclude each other", name);
    }
    if (c->head_sink_count != (c->head_sink != NULL ? num_heads : 0)) {
        return INVALID("%shead_sink_count = %d, not one for each of %d query heads", name,
                       c->head_sink_count, num_heads);
    }
    for (int32_t h = 0; h < c->head_sink_count; h++) {
        if (isnan(c->head_sink[h]) || c->head_sink[h] == INFINITY) {
            return INVALID("%shead_sink[%d] = %g: only finite values and -inf", name, h,
                           (double)c->head_sink[h]);
        }
    }
    return PKV_OK;
}

static enum pkv_status check_rope(const struct pkv_attn_constants *c, int32_t k_width,
                                  const char *name)
{
    if ((c->rope_cos == NULL) != (c->rope_sin == NULL)) {
        return INVALID("%srope_%s is NULL and the other table is not", name,
                       c->rope_cos == NULL ? "cos" : "sin");
    }
    if ((int)c->rotary_mode < PKV_ROTARY_HALF_SPLIT ||
        (int)c->rotary_mode > PKV_ROTARY_INTERLEAVED) {
        return INVALID("%srotary_mode = %d is none", name, (int)c->rotary_mode);
    }
    if (c->rope_cos == NULL) {
        if (c->rotary_mode != PKV_ROTARY_HALF_SPLIT || c->rotary_offset != 0) {
            return INVALID("%srotary_mode or rotary_offset is set without rope_cos and rope_sin",
                           name);
        }
        return PKV_OK;
    }
    if (!dtype_is_float(c->rope_dtype)) {
        return INVALID("%srope_dtype = %d, not a float type", name, (int)c->rope_dtype);
    }
    if (c->rope_width < 1 || c->rotary_offset < 0 ||
        (int64_t)c->rotary_offset + 2 * (int64_t)c->rope_width > k_width) {
        return INVALID("%srope_width = %d pairs from rotary_offset = %d on pass the %d channels",
                       name, c->rope_width, c->rotary_offset, k_width);
    }
    if (c->rope_positions < 1) {
        return INVALID("%srope_positions = %lld, below 1", name, (long long)c->rope_positions);
    }
    return PKV_OK;
}

/* One norm weight; field is its name. */
static enum pkv_status check_norm_weight(const void *weight, enum pkv_dtype dtype, int32_t count,
                                         int32_t k_width, const char *name, const char *field)
{
    if (weight == NULL && count != 0) {
        return INVALID("%s%s is NULL with %s_count = %d", name, field, field, count);
    }
    if (weight == NULL) {
        return PKV_OK;
    }
    if (!dtype_is_float(dtype)) {
        return INVALID("%s%s_dtype = %d, not a float type", name, field, (int)dtype);
    }
    if (count != k_width) {
        return INVALID("%s%s_count = %d, not k_width = %d", name, field, count, k_width);
    }
    return PKV_OK;
}

static enum pkv_status check_norm(const struct pkv_attn_constants *c, int32_t k_width,
                                  const char *name)
{
    const bool has_norm = c->q_norm_gain != NULL || c->k_norm_gain != NULL;
    if ((int)c->norm_order < PKV_NORM_AFTER_ROPE || (int)c->norm_order > PKV_NORM_BEFORE_ROPE) {
        return INVALID("%snorm_order = %d is none", name, (int)c->norm_order);
    }
    if (!has_norm && (c->qk_norm_eps != 0 || c->norm_order != PKV_NORM_AFTER_ROPE)) {
        return INVALID("%sqk_norm_eps or norm_order is set without a norm weight", name);
    }
    if (has_norm && !(isfinite(c->qk_norm_eps) && c->qk_norm_eps > 0)) {
        return INVALID("%sqk_norm_eps = %g: a norm needs a positive, finite one", name,
                       (double)c->qk_norm_eps);
    }
    if (has_norm && c->rope_cos == NULL && c->norm_order == PKV_NORM_AFTER_ROPE) {
        return INVALID("%sq_norm_gain and k_norm_gain need rope_cos and rope_sin", name);
    }
    const enum pkv_status status = check_norm_weight(
        c->q_norm_gain, c->q_norm_gain_dtype, c->q_norm_gain_count, k_width, name, "q_norm_gain");
    return status != PKV_OK ? status
                            : check_norm_weight(c->k_norm_gain, c->k_norm_gain_dtype,
                                                c->k_norm_gain_count, k_width, name, "k_norm_gain");
}

/* The largest size of a code; 0 for a dtype that has no scale. */
static float largest_code(enum pkv_dtype dtype)
{
    return dtype == PKV_E4M3 ? 448.0f : dtype == PKV_INT8 ? 128.0f : 0.0f;
}

/* Every code times its scale is finite, and with it the 2^8 that kernels leave out of e4m3. */
static enum pkv_status check_scale(const float *scale, int32_t count, float code,
                                   int64_t per_channel, const char *name, const char *which)
{
    const bool is_quantised = code > 0;
    if ((scale != NULL) != is_quantised || (scale == NULL && count != 0)) {
        return INVALID("%s%s_scale is %s: it goes with an int8 or e4m3 cache, and only with one",
                       name, which, scale != NULL || count != 0 ? "set" : "NULL");
    }
    if (scale != NULL && count != 1 && count != per_channel) {
        return INVALID("%s%s_scale_count = %d, neither 1 nor %lld", name, which, count,
                       (long long)per_channel);
    }
    for (int32_t i = 0; i < count; i++) {
        if (!isfinite(scale[i]) || scale[i] <= 0) {
            return INVALID("%s%s_scale[%d] = %g, not positive and finite", name, which, i,
                           (double)scale[i]);
        }
        if (!isfinite(scale[i] * code)) {
            return INVALID("%s%s_scale[%d] = %g, so large that codes of %g overflow", name, which,
                           i, (double)scale[i], (double)code);
        }
    }
    return PKV_OK;
}

enum pkv_status gqa_constants_check_k_scale(const float *scale, int32_t count,
                                            const struct pkv_kv_view *keys)
{
    return check_scale(scale, count, largest_code(keys->k_dtype),
                       (int64_t)keys->kv_heads * keys->k_width, "", "k");
}

/* A k_scale of one number is part of the factor of the dot product. */
static enum pkv_status check_factor(const struct pkv_attn_constants *c, enum pkv_dtype k_dtype,
                                    const char *name)
{
    if (c->q_scale != NULL && c->k_scale_count == 1 &&
        !isfinite(*c->q_scale * value_scale_of(k_dtype) * c->k_scale[0])) {
        return INVALID("%sq_scale = %g with k_scale = %g: their product overflows", name,
                       (double)*c->q_scale, (double)c->k_scale[0]);
    }
    return PKV_OK;
}

enum pkv_status gqa_constants_check(const struct pkv_attn_constants *c,
                                    const struct gqa_constants_geometry *geometry, const char *name)
{
    const int64_t heads = geometry->kv_heads;
    enum pkv_status status = sized_check_reserved(name, c->reserved);
    if (status == PKV_OK) {
        status = check_logits(c, name);
    }
    if (status == PKV_OK) {
        status = check_sink(c, geometry->num_heads, name);
    }
    if (status == PKV_OK) {
        status = check_rope(c, geometry->k_width, name);
    }
    if (status == PKV_OK) {
        status = check_norm(c, geometry->k_width, name);
    }
    if (status == PKV_OK) {
        status = check_scale(c->k_scale, c->k_scale_count, largest_code(geometry->k_dtype),
                             heads * geometry->k_width, name, "k");
    }
    if (status == PKV_OK) {
        status = check_scale(c->v_scale, c->v_scale_count,
                             geometry->v_in_k ? 0 : largest_code(geometry->v_dtype),
                             heads * geometry->v_width, name, "v");
    }
    return status == PKV_OK ? check_factor(c, geometry->k_dtype, name) : status;
}
