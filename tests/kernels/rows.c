/* SPDX-License-Identifier: MIT
 *
 * rows.c: places rows, and walks shapes. Not every combination of shape, place and values is run,
 * which would take minutes: every shape is, with places in turn and values at random, so that each
 * pair of a width (or a number of keys, or of queries) with a place and a kind of values occurs
 * many times. */
#include "kernels/rows.h"

#include <stdio.h>
#include <string.h>

void rows_place(struct rows *rows, struct check *check, enum pkv_dtype dtype, enum values values)
{
    static float floats[TILE_KEYS][MOST_WIDTH];
    static unsigned char before[TILE_KEYS][MOST_WIDTH * sizeof(float)];
    const size_t element = pkv_dtype_bytes(dtype);
    const size_t width = (size_t)check->shape.width;
    rows->count = (size_t)check->shape.keys;
    rows->bytes = width * element;
    rows->before = before;
    for (size_t j = 0; j < rows->count; j++) {
        void *row = guarded_place(&check->rows, (int)j, rows->bytes, element, check->shape.place);
        rows->wide[j] = values_take(dtype, values, &check->random, width, row);
        rows->stored[j] = row;
        rows->prefetched[rows->count - 1 - j] = row;
        rows->floats[j] = floats[j];
        for (size_t c = 0; c < width; c++) {
            floats[j][c] = (float)rows->wide[j][c];
        }
        memcpy(before[j], row, rows->bytes);
    }
}

void rows_check_unchanged(const struct rows *rows, struct check *check)
{
    for (size_t j = 0; j < rows->count; j++) {
        check_that(check, memcmp(rows->stored[j], rows->before[j], rows->bytes) == 0,
                   "a key or value row was written");
    }
}

int rows_choose(const struct rows *rows, struct test_random *random, int *chosen)
{
    int count = 0;
    for (int j = 0; j < (int)rows->count; j++) {
        if (random_between(random, 0, 1) != 0) {
            chosen[count++] = j;
        }
    }
    if (count == 0 && rows->count > 0) {
        chosen[count++] = random_between(random, 0, (int)rows->count - 1);
    }
    for (int n = count - 1; n > 0; n--) {
        const int other = random_between(random, 0, n);
        const int kept = chosen[n];
        chosen[n] = chosen[other];
        chosen[other] = kept;
    }
    return count;
}

/* The largest numbers of a dtype meet small ones alone. */
static void draw_values(struct test_random *random, enum values *rows, enum values *queries)
{
    *rows = (enum values)random_between(random, VALUES_UNIFORM, VALUES_SPECIAL);
    *queries = (enum values)random_between(random, VALUES_UNIFORM, VALUES_SPECIAL - 1);
    if (*queries == VALUES_LIMIT) {
        *queries = VALUES_SPECIAL;
    }
    if (*rows == VALUES_LIMIT) {
        *queries = VALUES_SMALL;
    }
}

void walk_tiles(struct check *check, check_tile_shape *run)
{
    const size_t num_shapes = num_shape_widths * num_shape_keys * num_shape_queries;
    for (size_t n = 0; n < num_shapes && !check->failed; n++) {
        enum values rows = VALUES_UNIFORM;
        enum values queries = VALUES_UNIFORM;
        draw_values(&check->random, &rows, &queries);
        static char names[64];
        snprintf(names, sizeof names, "%s with %s", values_name(rows), values_name(queries));
        check->shape = (struct shape){
            .queries = shape_queries[n % num_shape_queries],
            .keys = shape_keys[n / num_shape_queries % num_shape_keys],
            .width = shape_widths[n / (num_shape_queries * num_shape_keys)],
            .place = (enum place)(n % NUM_PLACES),
            .values = names,
        };
        run(check, rows, queries);
    }
}
