/* SPDX-License-Identifier: MIT
 *
 * cells.h: the keys or values of one tile, each in a guarded area of its own, with the doubles
 * that its elements stand for; and the shapes that dot and weighted_sum walk. */
#ifndef PKV_TEST_KERNELS_CELLS_H
#define PKV_TEST_KERNELS_CELLS_H

#include "kernels/check.h"

struct cells {
    size_t count;
    size_t bytes;                      /* of one */
    const void *stored[TILE_KEYS];     /* what kernels read */
    const void *prefetched[TILE_KEYS]; /* the same in another order */
    const double *wide[TILE_KEYS];
    float *floats[TILE_KEYS]; /* the same as f32, not guarded */
    unsigned char (*before)[MAX_WIDTH * sizeof(float)];
};

/* As many as check->shape has keys, of its width. */
void cells_place(struct cells *cells, struct check *check, enum pkv_dtype dtype,
                 enum values values);

/* Fails the case when a cell was written. */
void cells_check_unchanged(const struct cells *cells, struct check *check);

/* Bytes from each cell to the next, which are the same: 0 when there are fewer than two. */
size_t cells_step(const struct cells *cells);

/* A random choice of cells in random order, as indices; returns how many, at least one of a tile
 * that has any. */
int cells_choose(const struct cells *cells, struct test_random *random, int *chosen);

/* Calls `run` for every width, number of keys and of queries; places take turns. Kinds of values
 * are drawn for the cells and for what they are multiplied with, so that no sum can overflow. */
typedef void check_tile_shape(struct check *check, enum values cells, enum values queries);
void walk_tiles(struct check *check, check_tile_shape *run);

#endif
