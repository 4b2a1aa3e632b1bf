/* SPDX-License-Identifier: MIT
 *
 * gqa_constants.h: the check of what a model fixes per layer: by a raw call each time, by a cache
 * once at create. */
#ifndef PKV_ATTN_GQA_CONSTANTS_H
#define PKV_ATTN_GQA_CONSTANTS_H

#include "pagedkv/attn.h"

/* What constants are checked against. v_width is resolved; k_dtype and v_dtype are the cache's. */
struct gqa_constants_geometry {
    int32_t num_heads;
    int32_t kv_heads;
    int32_t k_width;
    int32_t v_width;
    bool v_in_k;
    enum pkv_dtype k_dtype;
    enum pkv_dtype v_dtype;
};

/* Refuses what the constants of a layer may not be, naming the field. name is the text before it in
 * the last error, such as "layers[3].". PKV_INVALID_ARGUMENT. O(head_sink + scales). */
enum pkv_status gqa_constants_check(const struct pkv_attn_constants *constants,
                                    const struct gqa_constants_geometry *geometry,
                                    const char *name);

/* The scale of keys by itself. */
enum pkv_status gqa_constants_check_k_scale(const float *scale, int32_t count,
                                            const struct pkv_kv_view *keys);

#endif
