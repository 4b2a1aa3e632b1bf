/* SPDX-License-Identifier: MIT
 *
 * rows.h: the keys or values of one tile, each row in a guarded area of its own, with the doubles
 * that its elements stand for; and the shapes that dot and weighted_sum walk. */
#ifndef PKV_TEST_KERNELS_ROWS_H
#define PKV_TEST_KERNELS_ROWS_H

#include "kernels/check.h"

struct rows {
    size_t count, bytes;               /* of a row */
    const void *stored[TILE_KEYS];     /* what kernels read */
    const void *prefetched[TILE_KEYS]; /* the same in another order */
    const double *wide[TILE_KEYS];
    float *floats[TILE_KEYS]; /* the same as f32, not guarded */
    unsigned char (*before)[MOST_WIDTH * sizeof(float)];
};

/* Rows of check->shape: keys x width. */
void rows_place(struct rows *rows, struct check *check, enum pkv_dtype dtype, enum values values);

/* Fails the case when a row was written. */
void rows_check_unchanged(const struct rows *rows, struct check *check);

/* A random choice of rows in random order, as indices; returns how many, at least one of a tile
 * that has any. */
int rows_choose(const struct rows *rows, struct test_random *random, int *chosen);

/* Calls `run` for every width, number of keys and of queries; places take turns. Kinds of values
 * are drawn for the rows and for what they are multiplied with, so that no sum can overflow. */
typedef void check_tile_shape(struct check *check, enum values rows, enum values queries);
void walk_tiles(struct check *check, check_tile_shape *run);

#endif
