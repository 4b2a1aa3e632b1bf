/* SPDX-License-Identifier: MIT
 *
 * gqa.h: the operator behind its validation: a plan of rows, and one layer run by it. The raw calls
 * of attn.h fill these after they checked everything; the runtime, whose tables the library built,
 * fills them directly. */
#ifndef PKV_ATTN_GQA_H
#define PKV_ATTN_GQA_H

#include "pagedkv/attn.h"

/* One row of the batch. table[j / block_size] is the block of key j; table NULL: the row lies in
 * the one block (cache row) `block`. */
struct gqa_row {
    const int32_t *table;
    int32_t block;
    int32_t q_begin; /* first token of the row in the packed q, k, v, out */
    int32_t q_len;
    int32_t kv_len;      /* keys after the append */
    int32_t kept_prefix; /* in [0, kv_len] */
    int32_t copy_src; /* copy on write: cells [0, copy_cells) of this block go into the block of the
                         first */
    int32_t copy_cells; /* new cell before the append; copy_cells 0 = no copy */
};

/* What all rows of a plan have in common. Geometry of the cache without its pointers. */
struct gqa_shape {
    int32_t kv_heads;
    int32_t k_width;
    int32_t v_width;
    bool v_in_k;
    int32_t block_size;
    int32_t sliding_window; /* 0 = none; already clamped to INT32_MAX */
    bool not_causal;
    bool has_mask;
    int32_t max_heads; /* the largest num_heads that will be run by this plan */
    bool all_new; /* cache-less with rope or norm: every key of a row is stored by the run, key j
                     from token block + j */
};

struct gqa_mask;

/* One layer's pointers, all checked by the caller. Strides are resolved (none is 0). */
struct gqa_layer {
    enum pkv_dtype dtype;
    int32_t num_heads;
    const void *q, *k, *v; /* k NULL: nothing is appended. q NULL: nothing is attended */
    void *out;
    float *lse; /* or NULL */
    size_t q_stride, k_stride, v_stride, out_stride;
    struct pkv_kv_view cache;
    const struct pkv_kv_view *copy_from; /* where rows' copies are read; NULL = the cache itself */
    const struct pkv_attn_constants *constants; /* checked */
    const int64_t *position_ids;                /* [tokens] or NULL */
    const struct gqa_mask *mask;                /* or NULL */
};

/* attn_mask, [batch or 1][heads or 1][queries][keys]: the entry of (row, head, i, j) lies at
 * row * row_stride + head * head_stride + i * query_stride + j, where a broadcast stride is 0. */
struct gqa_mask {
    const void *entries;
    enum pkv_dtype dtype; /* PKV_INT8: bytes, 0 excludes; else added, -inf excludes */
    size_t row_stride, head_stride, query_stride;
};

/* Room for num_rows rows, whose content the caller then fills; the plan's earlier content is gone.
 * NULL when there is no memory. */
struct gqa_row *gqa_plan_rows(pkv_workspace *workspace, pkv_plan *plan, int32_t num_rows);

/* Splits the work of the rows just filled. PKV_NO_MEMORY. */
enum pkv_status gqa_plan_split(pkv_workspace *workspace, pkv_plan *plan,
                               const struct gqa_shape *shape);

/* Keys that one layer by this plan reads: once for each block of queries and KV head, and once for
 * rows that share them. */
int64_t gqa_plan_read_keys(const pkv_plan *plan);

/* Appends and attends one layer. Takes no memory. */
void gqa_run_layer(pkv_workspace *workspace, const pkv_plan *plan, const struct gqa_layer *layer);

/* The same in pieces, for callers with threads of their own: started, each phase's tasks are run in
 * any order by any threads, phase after phase; worker < num_threads names the scratch. The layer is
 * copied. */
void gqa_start_layer(pkv_workspace *workspace, const pkv_plan *plan, const struct gqa_layer *layer);
int32_t gqa_num_tasks(const pkv_workspace *workspace, enum pkv_phase phase);
void gqa_run_task(pkv_workspace *workspace, enum pkv_phase phase, int32_t task, int worker);

/* OpenMP's team size here and now; 1 in a serial build. */
int gqa_default_threads(void);

/* Strides of 0 become those of the packed order; v_width 0 becomes k_width. */
void gqa_resolve_view(struct pkv_kv_view *view);

/* What constants are checked against. v_width is resolved; k_dtype and v_dtype are the cache's. */
struct gqa_geometry {
    int32_t num_heads;
    int32_t kv_heads;
    int32_t k_width;
    int32_t v_width;
    bool v_in_k;
    enum pkv_dtype k_dtype;
    enum pkv_dtype v_dtype;
};

/* Refuses a layer whose out or lse lies over an input or over the cache. Its strides are resolved.
 */
enum pkv_status gqa_check_overlap(const struct gqa_layer *layer, const struct gqa_shape *shape,
                                  int32_t num_tokens);

/* Refuses what the constants of a layer may not be, naming the field. name is the text before it in
 * the last error, such as "layers[3].". */
enum pkv_status gqa_check_constants(const struct pkv_attn_constants *constants,
                                    const struct gqa_geometry *geometry, const char *name);

#endif
