/* SPDX-License-Identifier: MIT
 *
 * tile_mask.c: a tile under a mask. A key whose entry is -inf is left out rather than added, since
 * nothing of it may be read; so each query head gathers its own keys and goes through the kernels
 * alone. */
#include "attn/tile_mask.h"

#include <math.h>

#include "attn/tile.h"
#include "attn/visible.h"

/* What the mask adds to the score of the key at this entry; -inf leaves it out. */
static float entry_at(const struct run *run, size_t entry)
{
    const struct gqa_layer_mask *mask = run->layer->mask;
    float added = 0.0f;
    if (mask->dtype == PKV_INT8) {
        return ((const uint8_t *)mask->entries)[entry] != 0 ? 0.0f : -INFINITY;
    }
    const char *from = (const char *)mask->entries + entry * pkv_dtype_bytes(mask->dtype);
    run->kernels->widen(mask->dtype, from, 1, &added);
    return added;
}

/* The tile becomes the keys of `part` that query i and head `head` see and the mask leaves to them;
 * bias is what it adds to their scores. */
static void gather_unmasked(const struct run *run, const struct plan_task *task, int32_t kv_head,
                            int32_t query_head, int32_t i, const struct visible *seen,
                            struct visible_keys part, struct tile *tile, float *bias)
{
    const struct gqa_layer_mask *mask = run->layer->mask;
    const size_t at = (size_t)task->row * mask->row_stride +
                      (size_t)query_head * mask->head_stride + (size_t)i * mask->query_stride;
    struct visible_keys keys = visible_next(seen, part.begin, part.end);
    tile->count = 0;
    for (; keys.begin < keys.end; keys = visible_next(seen, keys.end, part.end)) {
        for (int32_t key = keys.begin; key < keys.end; key++) {
            const float added = entry_at(run, at + (size_t)key);
            if (added != -INFINITY) {
                bias[tile->count] = added;
                tile_gather(run, &run->rows[task->row], kv_head, key, key + 1, tile);
            }
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
        const struct visible seen = visible_to_query(row, &run->plan->shape, head, i);
        for (int32_t g = 0; g < run->heads_per_kv; g++) {
            const int32_t query_head = head * run->heads_per_kv + g;
            const size_t r = (size_t)(i - task->q0) * (size_t)run->heads_per_kv + (size_t)g;
            gather_unmasked(run, task, head, query_head, i, &seen, (struct visible_keys){from, to},
                            &tile, bias);
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
