/* SPDX-License-Identifier: MIT
 *
 * run.h: one layer under way: what its tasks share, and the tasks. Tasks of a phase are independent
 * of each other and none waits; scratch belongs to the worker that runs the task. */
#ifndef PKV_ATTN_RUN_H
#define PKV_ATTN_RUN_H

#include "attn/workspace.h"

struct run {
    const pkv_plan *plan;
    const struct gqa_layer *layer;
    const struct gqa_row *rows;
    const struct kernels *kernels;
    float *partials;
    const struct pkv_attn_constants *constants; /* of the layer */
    int32_t group;                              /* query heads of a KV head in this layer */
    enum pkv_dtype v_dtype;                     /* of the stored values: the keys' with v_in_k */
    int packed_parts;                           /* of q; 0: the dot products take it as f32 */
    float logit_scale;                          /* q_scale, K's unit, and k_scale if one number */
};

/* Where cell `cell` of block `block`, KV head `head`, lies. */
static inline char *run_key_cell(const struct pkv_kv_view *view, int32_t block, int32_t head,
                                 int32_t cell)
{
    const size_t element = (size_t)block * view->k_block_stride +
                           (size_t)head * view->k_head_stride + (size_t)cell * view->k_cell_stride;
    return (char *)view->k + element * pkv_dtype_bytes(view->k_dtype);
}

static inline char *run_value_cell(const struct pkv_kv_view *view, int32_t block, int32_t head,
                                   int32_t cell)
{
    const size_t element = (size_t)block * view->v_block_stride +
                           (size_t)head * view->v_head_stride + (size_t)cell * view->v_cell_stride;
    return (char *)view->v + element * pkv_dtype_bytes(view->v_dtype);
}

/* The block that holds key `key` of the row; its cell there is key % block_size. */
static inline int32_t run_block_of(const struct gqa_row *row, int32_t block_size, int32_t key)
{
    return row->table != NULL ? row->table[key / block_size] : row->block;
}

/* Stores new cells of the row that lie in keys [from, to) for one KV head, rounded to the cache's
 * dtypes; with_copy first carries out the row's copy on write. */
void append_cells(const struct run *run, const struct gqa_row *row, int32_t head, int64_t from,
                  int64_t to, bool with_copy, float *scratch);

/* x [k_width], a head of q or of a new key, rotated by row `position` of the planes and normed with
 * gain (NULL = not), in the layer's order. spare [2 * rope_width] is overwritten. */
void prepare_head(const struct run *run, float *x, int64_t position, const void *gain,
                  enum pkv_dtype gain_dtype, float *spare);

/* x [width] / sqrt(mean(x^2) + eps) * gain, in place. */
void norm_head(const struct kernels *kernels, float *x, size_t width, const void *gain,
               enum pkv_dtype gain_dtype, float eps);

/* The position at which rope turns the token whose key is the row's `key`. */
static inline int64_t run_position(const struct run *run, const struct gqa_row *row, int32_t key)
{
    const int64_t *ids = run->layer->position_ids;
    const int32_t first_query = row->kv_len - row->q_len;
    return ids != NULL ? ids[row->q_begin + key - first_query] : key;
}

/* y[c] = x[c] / scale[c * step] as codes of an int8 or e4m3 cache: rounded half to even and clamped
 * to
 * [-128, 127] or +-448. NaN becomes 0 or e4m3's NaN. step is 0 (one scale) or 1. */
void quantize_row(enum pkv_dtype dtype, const float *x, const float *scale, size_t step,
                  size_t width, void *y);

/* The scales of one KV head: x [kv_heads][width] or one number. */
static inline const float *scale_of_head(const float *scales, int32_t count, int32_t head,
                                         int32_t width)
{
    return count == 1 ? scales : scales + (size_t)head * (size_t)width;
}

/* A unit and a unit with members, all their KV heads, and a fold for one. They write the outputs of
 * their queries; a unit with partials, and any with members, its partial results instead. */
void attend_unit(const struct run *run, const struct unit *unit, float *scratch);
void attend_shared(const struct run *run, const struct unit *unit, float *scratch);
void attend_fold(const struct run *run, const struct fold *fold, int32_t head, float *scratch);

/* Floats of scratch that one worker needs for units of at most num_query_rows rows of q. */
size_t attend_scratch_floats(const struct gqa_shape *shape, size_t num_query_rows);

#endif
