/* SPDX-License-Identifier: MIT
 *
 * tile_mask.c: a tile under a mask. A key whose entry is -inf is left out rather than added, since
 * nothing of it may be read; so each query head gathers its own keys and goes through the kernels
 * alone. */
#include "attn/tile_mask.h"

#include <math.h>

#include "attn/tile.h"
#include "attn/visible.h"

/* Adds the keys of [from, to) that the mask leaves to query i and head `head` to the tile, and what
 * it adds to their scores to bias. */
static void gather_unmasked(const struct run *run, const struct plan_task *task, int32_t kv_head,
                            int32_t query_head, int32_t i, int32_t from, int32_t to,
                            struct tile *tile, float *bias)
{
    const struct gqa_layer_mask *mask = run->layer->mask;
    const size_t at = (size_t)task->row * mask->row_stride +
                      (size_t)query_head * mask->head_stride + (size_t)i * mask->query_stride;
    for (int32_t key = from; key < to; key++) {
        const size_t entry = at + (size_t)key;
        float added = 0.0f;
        if (mask->dtype == PKV_INT8) {
            added = ((const uint8_t *)mask->entries)[entry] != 0 ? 0.0f : -INFINITY;
        } else {
            const char *from_entry =
                (const char *)mask->entries + entry * pkv_dtype_bytes(mask->dtype);
            run->kernels->widen(mask->dtype, from_entry, 1, &added);
        }
        if (added != -INFINITY) {
            bias[tile->count] = added;
            tile_gather(run, &run->rows[task->row], kv_head, key, key + 1, tile);
        }
    }
}

/* One KV head: each query head of each query has its own list of keys. */
static void attend_head(const struct run *run, const struct plan_task *task, int32_t head,
                        int32_t from, int32_t to, const struct scratch *s)
{
    const struct gqa_row *row = &run->rows[task->row];
    const struct tile_rows one_row = {1, 1, 1};
    struct tile tile;
    float bias[TILE_KEYS];
    for (int32_t i = task->q0; i < task->q1; i++) {
        const struct visible seen = visible_to(row, &run->plan->shape, i, i + 1);
        for (int32_t g = 0; g < run->heads_per_kv; g++) {
            const int32_t query_head = head * run->heads_per_kv + g;
            const size_t r = (size_t)(i - task->q0) * (size_t)run->heads_per_kv + (size_t)g;
            tile.count = 0;
            gather_unmasked(run, task, head, query_head, i, from, min_i32(to, seen.prefix), &tile,
                            bias);
            gather_unmasked(run, task, head, query_head, i, max_i32(from, seen.first),
                            min_i32(to, seen.end), &tile, bias);
            if (tile.count > 0) {
                const struct scratch one = scratch_from(s, r);
                tile_attend(run, &one_row, &tile, NULL, bias, &one);
            }
        }
    }
}

void tile_mask_attend(const struct run *run, const struct plan_task *task, int32_t from, int32_t to,
                      const struct scratch *s)
{
    const size_t rows = (size_t)(task->q1 - task->q0) * (size_t)run->heads_per_kv;
    for (int32_t h = 0; h < task->num_heads; h++) {
        const struct scratch part = scratch_from(s, (size_t)h * rows);
        attend_head(run, task, task->head + h, from, to, &part);
    }
}
