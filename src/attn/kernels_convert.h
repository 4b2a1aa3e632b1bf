/* SPDX-License-Identifier: MIT
 *
 * kernels_convert.h: registers of floats from memory of any dtype, and the kernels that convert
 * whole arrays. Part of kernels_template.h. */
#ifndef PKV_ATTN_KERNELS_CONVERT_H
#define PKV_ATTN_KERNELS_CONVERT_H

#include "attn/vec_words.h"

/* `count` elements from `first` on. dtype is a constant after inlining, here and in the register
 * blocks of the other kernels. */
VEC_INLINE vf load_as(enum pkv_dtype dtype, const void *vector, size_t first, size_t count)
{
    switch (dtype) {
    case PKV_F16: return vec_load_f16((const uint16_t *)vector + first, count);
    case PKV_BF16: return vec_load_bf16((const uint16_t *)vector + first, count);
    case PKV_INT8: return vec_load_int8((const int8_t *)vector + first, count);
    case PKV_E4M3: return vec_load_e4m3((const uint8_t *)vector + first, count);
    case PKV_F32: break;
    }
    return vec_load_f32((const float *)vector + first, count);
}

/* Whole registers of channels that are converted together. */
VEC_INLINE int vecs_at_once(enum pkv_dtype dtype)
{
    return dtype == PKV_E4M3 ? VEC_E4M3_VECS : 1;
}

/* num_vecs whole registers of channels from `first` on. */
VEC_INLINE void load_vecs(enum pkv_dtype dtype, int num_vecs, const void *vector, size_t first,
                          vf *out)
{
    const bool is_wide = num_vecs > 1 && num_vecs == vecs_at_once(dtype);
    vwords words;
    if (is_wide) {
        words = vec_load_words((const uint8_t *)vector + first);
    }
    for (int v = 0; v < num_vecs; v++) {
        out[v] = is_wide ? vec_of_words(&words, v)
                         : load_as(dtype, vector, first + (size_t)v * VEC_LANES, VEC_LANES);
    }
}

VEC_INLINE size_t element_bytes(enum pkv_dtype dtype)
{
    switch (dtype) {
    case PKV_F16:
    case PKV_BF16: return sizeof(uint16_t);
    case PKV_INT8:
    case PKV_E4M3: return sizeof(uint8_t);
    case PKV_F32: break;
    }
    return sizeof(float);
}

/* Whole registers first: a store of part of one is expensive. */
VEC_INLINE void widen_as(enum pkv_dtype dtype, const void *x, size_t count, float *y)
{
    const size_t wide = (size_t)vecs_at_once(dtype) * VEC_LANES;
    size_t i = 0;
    for (; wide > VEC_LANES && i + wide <= count; i += wide) {
        vf vecs[VEC_E4M3_VECS];
        load_vecs(dtype, VEC_E4M3_VECS, x, i, vecs);
        for (int v = 0; v < VEC_E4M3_VECS; v++) {
            vec_store(y + i + (size_t)v * VEC_LANES, vecs[v]);
        }
    }
    for (; i + VEC_LANES <= count; i += VEC_LANES) {
        vec_store(y + i, load_as(dtype, x, i, VEC_LANES));
    }
    if (i < count) {
        vec_store_f32(y + i, load_as(dtype, x, i, count - i), count - i);
    }
}

static void widen(enum pkv_dtype dtype, const void *x, size_t count, float *y)
{
    switch (dtype) {
    case PKV_F32: memcpy(y, x, count * sizeof y[0]); break;
    case PKV_F16: widen_as(PKV_F16, x, count, y); break;
    case PKV_BF16: widen_as(PKV_BF16, x, count, y); break;
    case PKV_INT8: widen_as(PKV_INT8, x, count, y); break;
    case PKV_E4M3: widen_as(PKV_E4M3, x, count, y); break;
    }
}

static void narrow_to_f16(const float *x, size_t count, uint16_t *y)
{
    for (size_t i = 0; i < count; i += VEC_LANES) {
        vec_store_f16(y + i, vec_load_f32(x + i, count - i), count - i);
    }
}

static void narrow_to_bf16(const float *x, size_t count, uint16_t *y)
{
    for (size_t i = 0; i < count; i += VEC_LANES) {
        vec_store_bf16(y + i, vec_load_f32(x + i, count - i), count - i);
    }
}

static void narrow(enum pkv_dtype dtype, const float *x, size_t count, void *y)
{
    switch (dtype) {
    case PKV_F16: narrow_to_f16(x, count, y); break;
    case PKV_BF16: narrow_to_bf16(x, count, y); break;
    default: memcpy(y, x, count * sizeof x[0]); break;
    }
}

#endif
