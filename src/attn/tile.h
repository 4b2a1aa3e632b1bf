/* SPDX-License-Identifier: MIT
 *
 * tile.h: query rows against one tile of keys: gathering its cells, converting them where that
 * pays, then dot, softmax and weighted_sum. Which tiles there are, and what becomes of the sums, is
 * attend.c's. */
#ifndef PKV_ATTN_TILE_H
#define PKV_ATTN_TILE_H

#include "attn/run.h"
#include "attn/scratch.h"

/* Cells of one KV head, key by key, as the kernels take them. Those of the next KV head lie one
 * head stride further on. */
struct tile {
    const void *keys[TILE_KEYS];
    const void *values[TILE_KEYS];
    int32_t count;
    int64_t first; /* the key that it begins with, for a tile to prefetch */
};

/* Adds the cells of keys [from, to) to the tile. */
void tile_gather(const struct run *run, const struct gqa_row *row, int32_t head, int32_t from,
                 int32_t to, struct tile *tile);

/* Who attends a tile: the first num_rows query rows of each of num_heads KV heads, whose first rows
 * lie head_rows apart. */
struct tile_rows {
    int32_t num_heads;
    size_t head_rows;
    size_t num_rows;
};

/* Query rows of s against a tile that each of them sees whole, its cells being those of the first
 * KV head. next, when not NULL, is the tile to prefetch; bias, when not NULL, is added to each
 * score of the one head. */
void tile_attend(const struct run *run, const struct tile_rows *rows, const struct tile *tile,
                 const struct tile *next, const float *bias, const struct scratch *s);

#endif
