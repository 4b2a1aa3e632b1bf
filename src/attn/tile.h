/* SPDX-License-Identifier: MIT
 *
 * tile.h: query rows against one tile of keys: gathering its cells, converting them where that
 * pays, and the three kernels in a row. Which tiles there are, and what becomes of the sums, is
 * attend.c's. */
#ifndef PKV_ATTN_TILE_H
#define PKV_ATTN_TILE_H

#include "attn/run.h"
#include "attn/scratch.h"

/* Cells of one KV head, key by key, as the kernels take them. */
struct tile {
    const void *keys[TILE_KEYS];
    const void *values[TILE_KEYS];
    int32_t count;
    int64_t first; /* the key that it begins with, for tiles gathered ahead */
};

/* Adds the cells of keys [from, to) to the tile. */
void tile_gather(const struct run *run, const struct gqa_row *row, int32_t head, int32_t from,
                 int32_t to, struct tile *tile);

/* The same cells of a KV head `heads` further on. */
void tile_shift(const struct run *run, const struct tile *tile, int32_t heads,
                struct tile *shifted);

/* num_rows query rows, the first of s, against a tile that each of them sees whole. ahead, when not
 * NULL, has at least as many cells, which will be wanted next; bias, when not NULL, is added to
 * each score. */
void tile_attend(const struct run *run, size_t num_rows, const struct tile *tile,
                 const struct tile *ahead, const float *bias, const struct scratch *s);

/* Queries [q0, q1) of the task against keys [from, to) of a tile under the layer's mask, each query
 * head with the keys that the mask leaves to it. */
void tile_attend_masked(const struct run *run, const struct plan_task *task, int32_t from,
                        int32_t to, const struct scratch *s);

#endif
