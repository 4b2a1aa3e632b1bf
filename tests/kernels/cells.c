/* SPDX-License-Identifier: MIT
 *
 * cells.c: places cells, and walks shapes. Not every combination of shape, place and values is run,
 * which would take minutes: every shape is, with places in turn and values at random, so that each
 * pair of a width (or a number of keys, or of queries) with a place and a kind of values occurs
 * many times. */
#include "kernels/cells.h"

#include <stdio.h>
#include <string.h>

void cells_place(struct cells *cells, struct check *check, enum pkv_dtype dtype, enum values values)
{
    static float floats[TILE_KEYS][MAX_WIDTH];
    static unsigned char before[TILE_KEYS][MAX_WIDTH * sizeof(float)];
    const size_t element = pkv_dtype_bytes(dtype);
    const size_t width = (size_t)check->shape.width;
    cells->count = (size_t)check->shape.keys;
    cells->bytes = width * element;
    cells->before = before;
    for (size_t j = 0; j < cells->count; j++) {
        void *cell =
            guarded_place(&check->cells, (int)j, cells->bytes, element, check->shape.place);
        cells->wide[j] = values_take(dtype, values, &check->random, width, cell);
        cells->stored[j] = cell;
        cells->prefetched[cells->count - 1 - j] = cell;
        cells->floats[j] = floats[j];
        for (size_t c = 0; c < width; c++) {
            floats[j][c] = (float)cells->wide[j][c];
        }
        memcpy(before[j], cell, cells->bytes);
    }
}

void cells_check_unchanged(const struct cells *cells, struct check *check)
{
    for (size_t j = 0; j < cells->count; j++) {
        check_that(check, memcmp(cells->stored[j], cells->before[j], cells->bytes) == 0,
                   "a key or value was written");
    }
}

size_t cells_step(const struct cells *cells)
{
    return cells->count < 2
               ? 0
               : (size_t)((const char *)cells->stored[1] - (const char *)cells->stored[0]);
}

int cells_choose(const struct cells *cells, struct test_random *random, int *chosen)
{
    int count = 0;
    for (int j = 0; j < (int)cells->count; j++) {
        if (random_between(random, 0, 1) != 0) {
            chosen[count++] = j;
        }
    }
    if (count == 0 && cells->count > 0) {
        chosen[count++] = random_between(random, 0, (int)cells->count - 1);
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
static void draw_values(struct test_random *random, enum values *cells, enum values *queries)
{
    *cells = (enum values)random_between(random, VALUES_UNIFORM, VALUES_SPECIAL);
    *queries = (enum values)random_between(random, VALUES_UNIFORM, VALUES_SPECIAL - 1);
    if (*queries == VALUES_LIMIT) {
        *queries = VALUES_SPECIAL;
    }
    if (*cells == VALUES_LIMIT) {
        *queries = VALUES_SMALL;
    }
}

void walk_tiles(struct check *check, check_tile_shape *run)
{
    const size_t num_shapes = num_shape_widths * num_shape_keys * num_shape_queries;
    for (size_t n = 0; n < num_shapes && !check->failed; n++) {
        enum values cells = VALUES_UNIFORM;
        enum values queries = VALUES_UNIFORM;
        draw_values(&check->random, &cells, &queries);
        static char names[64];
        snprintf(names, sizeof names, "%s with %s", values_name(cells), values_name(queries));
        check->shape = (struct shape){
            .queries = shape_queries[n % num_shape_queries],
            .keys = shape_keys[n / num_shape_queries % num_shape_keys],
            .width = shape_widths[n / (num_shape_queries * num_shape_keys)],
            .place = (enum place)(n % NUM_PLACES),
            .values = names,
        };
        run(check, cells, queries);
    }
}
