/* SPDX-License-Identifier: MIT
 *
 * block_bounds.c: pkv_block_bounds. A run of channels of one block and KV head is kept in
 * registers and the first-level cache while its cells go by; the scale of a quantised cache, which
 * is positive and so changes no order, multiplies the two that are left. */
#include "attn/check_cache.h"
#include "attn/gqa_constants.h"
#include "attn/overlap.h"
#include "attn/view.h"
#include "attn/workspace.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/sized.h"
#include "pagedkv/select.h"

/* Channels at a time. */
#define PIECE 64

/* What all blocks have in common. */
struct block_keys {
    const struct kernels *kernels;
    struct pkv_kv_view keys; /* resolved */
    const float *scale;      /* NULL: 1 */
    bool scale_by_channel;
    int32_t num_keys;
};

/* The least and the greatest value of each channel so far; both are NaN, or none. */
struct extremes {
    float least[PIECE], greatest[PIECE];
};

/* NaN stays: once least is NaN it is not replaced, and a NaN replaces what it is compared with. */
static void extend(struct extremes *e, const float *x)
{
    for (int c = 0; c < PIECE; c++) {
        const float least = e->least[c];
        const float greatest = e->greatest[c];
        const bool is_nan = least != least;
        e->least[c] = (is_nan | (least <= x[c])) ? least : x[c];
        e->greatest[c] = (is_nan | (greatest >= x[c])) ? greatest : x[c];
    }
}

/* Channels [first, first + count) of the block's cells in one KV head. */
static void find_extremes(const struct block_keys *s, int32_t block, int32_t head, size_t first,
                          size_t count, struct extremes *e)
{
    const size_t offset = first * pkv_dtype_bytes(s->keys.k_dtype);
    float x[PIECE] = {0};
    for (int32_t cell = 0; cell < s->num_keys; cell++) {
        const char *key = view_key(&s->keys, block, head, cell);
        s->kernels->widen(s->keys.k_dtype, key + offset, count, x);
        if (cell == 0) {
            for (int c = 0; c < PIECE; c++) {
                e->least[c] = e->greatest[c] = x[c];
            }
        }
        extend(e, x);
    }
}

static void write_head(const struct block_keys *s, int32_t block, int32_t head, float *bounds)
{
    const size_t width = (size_t)s->keys.k_width;
    const float value_scale = value_scale_of(s->keys.k_dtype);
    for (size_t first = 0; first < width; first += PIECE) {
        const size_t count = width - first < PIECE ? width - first : PIECE;
        struct extremes e;
        find_extremes(s, block, head, first, count, &e);
        for (size_t c = 0; c < count; c++) {
            const size_t at = s->scale_by_channel ? (size_t)head * width + first + c : 0;
            const float scale = s->scale != NULL ? value_scale * s->scale[at] : 1.0f;
            bounds[first + c] = e.least[c] * scale;
            bounds[width + first + c] = e.greatest[c] * scale;
        }
    }
}

/* The view and the scale. keys is resolved. */
static enum pkv_status check_keys(const struct pkv_kv_view *keys, const float *k_scale,
                                  int32_t k_scale_count)
{
    if (keys->k == NULL || pkv_dtype_bytes(keys->k_dtype) == 0) {
        return keys->k == NULL ? INVALID("keys.k is NULL")
                               : INVALID("keys.k_dtype = %d is none", (int)keys->k_dtype);
    }
    enum pkv_status status = sized_check_reserved("keys.", keys->reserved);
    if (status == PKV_OK) {
        status = check_view_half(keys, "keys", true);
    }
    return status == PKV_OK ? gqa_constants_check_k_scale(k_scale, k_scale_count, keys) : status;
}

static enum pkv_status check_counts(const struct pkv_kv_view *keys)
{
    if (keys->num_blocks < 1 || keys->block_size < 1 || keys->kv_heads < 1 || keys->k_width < 1) {
        return INVALID("keys: num_blocks = %d, block_size = %d, kv_heads = %d, k_width = %d: one "
                       "is below 1",
                       keys->num_blocks, keys->block_size, keys->kv_heads, keys->k_width);
    }
    return PKV_OK;
}

static enum pkv_status check_blocks(const struct pkv_kv_view *keys, const int32_t *blocks,
                                    int32_t num_blocks, int32_t num_keys)
{
    if (num_blocks < 0 || (num_blocks > 0 && blocks == NULL)) {
        return INVALID("blocks is NULL or num_blocks = %d negative", num_blocks);
    }
    if (num_keys < 1 || num_keys > keys->block_size) {
        return INVALID("num_keys = %d, outside [1, %d]", num_keys, keys->block_size);
    }
    for (int32_t i = 0; i < num_blocks; i++) {
        if (blocks[i] < 0 || blocks[i] >= keys->num_blocks) {
            return INVALID("blocks[%d] = %d, outside [0, %d)", i, blocks[i], keys->num_blocks);
        }
    }
    return PKV_OK;
}

/* Where the bounds go. */
static enum pkv_status check_bounds(const struct pkv_kv_view *keys, const float *bounds,
                                    size_t *block_floats)
{
    size_t bytes = 0;
    size_t key_bytes = 0;
    if (bounds == NULL) {
        return INVALID("bounds is NULL");
    }
    if (!checked_mul((size_t)keys->kv_heads * 2, (size_t)keys->k_width, block_floats) ||
        !checked_mul(*block_floats, (size_t)keys->num_blocks, &bytes) ||
        !checked_mul(bytes, sizeof *bounds, &bytes) || !view_bytes(keys, true, &key_bytes)) {
        return INVALID("bounds: the bytes of %d blocks overflow", keys->num_blocks);
    }
    return overlap_bytes(bounds, bytes, keys->k, key_bytes) ? INVALID("bounds overlaps keys.k")
                                                            : PKV_OK;
}

enum pkv_status pkv_block_bounds(pkv_workspace *workspace, const struct pkv_kv_view *keys,
                                 const float *k_scale, int32_t k_scale_count, const int32_t *blocks,
                                 int32_t num_blocks, int32_t num_keys, float *bounds)
{
    if (workspace == NULL || keys == NULL) {
        return INVALID("%s is NULL", workspace == NULL ? "workspace" : "keys");
    }
    size_t block_floats = 0;
    struct block_keys source = {
        .kernels = workspace->kernels,
        .keys = *keys,
        .scale = k_scale,
        .scale_by_channel = k_scale_count > 1,
        .num_keys = num_keys,
    };
    enum pkv_status status = check_counts(keys);
    if (status == PKV_OK) {
        view_resolve(&source.keys);
        status = check_keys(&source.keys, k_scale, k_scale_count);
    }
    if (status == PKV_OK) {
        status = check_blocks(keys, blocks, num_blocks, num_keys);
    }
    if (status == PKV_OK) {
        status = check_bounds(&source.keys, bounds, &block_floats);
    }
    if (status != PKV_OK) {
        return status;
    }
    const size_t head_floats = 2 * (size_t)keys->k_width;
    for (int32_t i = 0; i < num_blocks; i++) {
        float *to = bounds + (size_t)blocks[i] * block_floats;
        for (int32_t h = 0; h < keys->kv_heads; h++) {
            write_head(&source, blocks[i], h, to + (size_t)h * head_floats);
        }
    }
    return PKV_OK;
}
