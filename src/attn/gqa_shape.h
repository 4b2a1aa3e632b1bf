/* SPDX-License-Identifier: MIT
 *
 * gqa_shape.h: what all rows of a plan have in common: the cache's geometry without its pointers,
 * and the options that decide which keys a query sees. The layers that run by one plan share its
 * shape; of the query heads, which may differ between them, it holds the largest number. */
#ifndef PKV_ATTN_GQA_SHAPE_H
#define PKV_ATTN_GQA_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

struct gqa_shape {
    int32_t kv_heads;
    int32_t k_width;
    int32_t v_width;
    bool v_in_k;
    int32_t block_size;
    int32_t sliding_window; /* 0 = none; already clamped to INT32_MAX */
    bool not_causal;
    int32_t selection_size;  /* keys of a selected block; 0 = nothing is selected, all is seen */
    int32_t selected_newest; /* already clamped to INT32_MAX */
    bool selects_by_head;    /* each KV head has a list of its own */
    bool has_mask;
    int32_t max_heads; /* the largest num_heads that will be run by this plan */
    bool all_new; /* cache-less with rope or norm: every key of a row is stored by the run, key j
                     from token block + j */
};

/* KV heads that see the same keys: all, or each by itself. */
static inline int32_t gqa_shape_heads_alike(const struct gqa_shape *shape)
{
    return shape->selects_by_head ? 1 : shape->kv_heads;
}

/* Query heads per KV head, of the layer that has most query heads. */
static inline int32_t gqa_shape_heads_per_kv(const struct gqa_shape *shape)
{
    return shape->max_heads / shape->kv_heads;
}

#endif
