/* SPDX-License-Identifier: MIT
 *
 * tile.h: query rows against one tile of keys: gathering its cells, converting them where that
 * pays, then dot, softmax and weighted_sum. Which tiles there are, and what becomes of the sums, is
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
    int64_t first; /* the key that it begins with, for a tile to prefetch */
};

/* Adds the cells of keys [from, to) to the tile. */
void tile_gather(const struct run *run, const struct gqa_row *row, int32_t head, int32_t from,
                 int32_t to, struct tile *tile);

/* The same cells of a KV head `heads` further on. */
void tile_shift(const struct run *run, const struct tile *tile, int32_t heads,
                struct tile *shifted);

/* The first num_query_rows query rows of s against a tile that each of them sees whole. next, when
 * not NULL, is prefetched and has at least as many cells; bias, when not NULL, is added to each
 * score. */
void tile_attend(const struct run *run, size_t num_query_rows, const struct tile *tile,
                 const struct tile *next, const float *bias, const struct scratch *s);

#endif
