/* SPDX-License-Identifier: MIT
 *
 * append.c: new keys and values into their cells, one KV head at a time. Keys are rotated and
 * normed first where the layer says so. A value that already has the cache's dtype is copied bit by
 * bit; any other goes through f32, which holds each of them exactly, and is rounded once. */
#include "attn/append.h"

#include <string.h>

#include "attn/prepare.h"
#include "attn/quantize.h"
#include "attn/view.h"

static const void *token_of(const void *base, enum pkv_dtype dtype, size_t stride, int32_t token,
                            int32_t head, int32_t width)
{
    const size_t element = (size_t)token * stride + (size_t)head * (size_t)width;
    return (const char *)base + element * pkv_dtype_bytes(dtype);
}

/* x in f32 as codes or floats of the cache. scales are those of the side, for quantised caches. */
static void store(const struct run *run, const float *x, enum pkv_dtype dtype, const float *scales,
                  int32_t scale_count, int32_t head, int32_t width, void *cell)
{
    if (scales == NULL) {
        run->kernels->narrow(dtype, x, (size_t)width, cell);
    } else {
        quantize_head(dtype, x, quantize_scales_of_head(scales, scale_count, head, width),
                      scale_count > 1, (size_t)width, cell);
    }
}

static void store_key(const struct run *run, const struct gqa_row *row, int32_t head, int32_t key,
                      void *cell, float *scratch)
{
    const struct gqa_layer *layer = run->layer;
    const struct pkv_attn_constants *c = run->constants;
    const int32_t width = run->plan->shape.k_width;
    const int32_t token = gqa_row_token_of_key(row, &run->plan->shape, key);
    const void *x = token_of(layer->k, layer->dtype, layer->k_stride, token, head, width);
    const bool is_raw = c->rope_cos == NULL && c->k_norm_gain == NULL;
    if (is_raw && layer->cache.k_dtype == layer->dtype) {
        memcpy(cell, x, (size_t)width * pkv_dtype_bytes(layer->dtype));
        return;
    }
    run->kernels->widen(layer->dtype, x, (size_t)width, scratch);
    if (!is_raw) {
        prepare_head(run, scratch, run_position(run, row, key), c->k_norm_gain,
                     c->k_norm_gain_dtype, scratch + width);
    }
    store(run, scratch, layer->cache.k_dtype, c->k_scale, c->k_scale_count, head, width, cell);
}

static void store_value(const struct run *run, const struct gqa_row *row, int32_t head, int32_t key,
                        void *cell, float *scratch)
{
    const struct gqa_layer *layer = run->layer;
    const struct pkv_attn_constants *c = run->constants;
    const int32_t width = run->plan->shape.v_width;
    const int32_t token = gqa_row_token_of_key(row, &run->plan->shape, key);
    const void *x = token_of(layer->v, layer->dtype, layer->v_stride, token, head, width);
    if (layer->cache.v_dtype == layer->dtype) {
        memcpy(cell, x, (size_t)width * pkv_dtype_bytes(layer->dtype));
        return;
    }
    run->kernels->widen(layer->dtype, x, (size_t)width, scratch);
    store(run, scratch, layer->cache.v_dtype, c->v_scale, c->v_scale_count, head, width, cell);
}

/* Cells [0, copy_cells) of copy_src into the block of the first new cell. */
static void copy_on_write(const struct run *run, const struct gqa_row *row, int32_t head)
{
    const struct gqa_shape *shape = &run->plan->shape;
    const struct pkv_kv_view *to = &run->layer->cache;
    const struct pkv_kv_view *from = run->layer->copy_from != NULL ? run->layer->copy_from : to;
    const int32_t block =
        gqa_row_block_of_key(row, shape->block_size, gqa_row_first_new(row, shape));
    const size_t k_bytes = (size_t)shape->k_width * pkv_dtype_bytes(to->k_dtype);
    const size_t v_bytes = (size_t)shape->v_width * pkv_dtype_bytes(to->v_dtype);
    for (int32_t c = 0; c < row->copy_cells; c++) {
        memcpy(view_key(to, block, head, c), view_key(from, row->copy_src, head, c), k_bytes);
        if (!shape->v_in_k) {
            memcpy(view_value(to, block, head, c), view_value(from, row->copy_src, head, c),
                   v_bytes);
        }
    }
}

void append_keys(const struct run *run, const struct gqa_row *row, int32_t head, int64_t from,
                 int64_t to, float *scratch)
{
    const struct gqa_shape *shape = &run->plan->shape;
    const struct pkv_kv_view *cache = &run->layer->cache;
    const int32_t first_new = gqa_row_first_new(row, shape);
    const int32_t first = from > first_new ? (int32_t)from : first_new;
    const int32_t end = to < row->kv_len ? (int32_t)to : row->kv_len;
    for (int32_t key = first; key < end; key++) {
        const int32_t block = gqa_row_block_of_key(row, shape->block_size, key);
        const int32_t cell = key % shape->block_size;
        store_key(run, row, head, key, view_key(cache, block, head, cell), scratch);
        if (run->layer->v != NULL) {
            store_value(run, row, head, key, view_value(cache, block, head, cell), scratch);
        }
    }
}

void append_row(const struct run *run, const struct gqa_row *row, int32_t head, float *scratch)
{
    if (row->copy_cells > 0) {
        copy_on_write(run, row, head);
    }
    append_keys(run, row, head, 0, INT64_MAX, scratch);
}
