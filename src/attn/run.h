/* SPDX-License-Identifier: MIT
 *
 * run.h: one layer under way, as all its tasks see it. Tasks of a phase are independent of each
 * other and none waits; each works in the scratch of the worker that runs it. */
#ifndef PKV_ATTN_RUN_H
#define PKV_ATTN_RUN_H

#include "attn/gqa_layer.h"
#include "attn/kernels.h"
#include "attn/plan.h"

struct run {
    const pkv_plan *plan;
    const struct gqa_layer *layer;
    const struct gqa_row *rows;
    const struct kernels *kernels;
    float *partials;
    const struct pkv_attn_constants *constants; /* of the layer */
    int32_t heads_per_kv;                       /* query heads per KV head in this layer */
    enum pkv_dtype v_dtype;                     /* of the stored values: the keys' with v_in_k */
    int packed_parts;                           /* of q; 0: the dot products take it as f32 */
    bool int8_keys, int8_values;                /* by whole numbers: kernels_int8.h */
    float logit_scale; /* q_scale, the keys' value scale, and k_scale if it is one number */
};

/* The position at which rope rotates the token whose key is the row's `key`. */
static inline int64_t run_position(const struct run *run, const struct gqa_row *row, int32_t key)
{
    const int64_t *ids = run->layer->position_ids;
    return ids != NULL ? ids[row->q_begin + key - gqa_row_past(row)] : gqa_row_position(row, key);
}

#endif
