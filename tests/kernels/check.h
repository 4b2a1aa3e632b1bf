/* SPDX-License-Identifier: MIT
 *
 * check.h: what the checks of kernels share. One case is one kernel of one table at one dtype; it
 * walks shapes, values and places in memory, and compares with a reference in double that is
 * written beside it. The first difference ends the case: later ones are silent, and loops stop at
 * `failed`. Every case draws from its own sequence, so a seed and an instruction set repeat it. */
#ifndef PKV_TEST_KERNELS_CHECK_H
#define PKV_TEST_KERNELS_CHECK_H

#include "attn/kernels.h"
#include "kernels/guarded.h"
#include "kernels/values.h"
#include "support/test.h"

/* Sets of dtypes, as bits. */
#define EVERY_DTYPE ((1u << NUM_DTYPES) - 1)
#define FLOAT_DTYPES (1u << PKV_F32 | 1u << PKV_F16 | 1u << PKV_BF16)

enum { MAX_QUERIES = 64, MAX_WIDTH = 256, MAX_STRIDE = MAX_WIDTH + PAD_LANES };

/* Half a unit in the last place of a float at 1, and the largest error of a result below 2^-126. */
#define UNIT 0x1p-24
#define TINY 0x1p-150
#define SMALLEST_NORMAL 0x1p-126

/* What is being called; -1 where the kernel has no such number. */
struct shape {
    int queries, keys, width;
    enum place place;
    const char *values;
};

struct check {
    const struct kernels *kernels;
    uint64_t seed;
    const char *kernel;
    enum pkv_dtype dtype;
    bool has_dtype;
    struct test_random random;
    struct shape shape;
    bool failed;
    struct guarded cells; /* TILE_KEYS areas of a page: keys, values */
    struct guarded input, output, spare;
};

/* Prints the call with a line of text, the first time; the case has failed. */
void check_fail(struct check *check, const char *format, ...) PKV_PRINTF(2, 3);

/* `holds`, or the case has failed with that text. */
void check_that(struct check *check, bool holds, const char *text);

/* |actual - expected| <= tolerance; NaN for NaN, an infinity for itself. [row][column] is where. */
void check_value(struct check *check, const char *what, size_t row, size_t column, float actual,
                 double expected, double tolerance);

/* The same bits, or NaN both. */
void check_bits(struct check *check, const char *what, size_t row, size_t column, float actual,
                float expected);

/* The same f16 or bf16 bits, or NaN both. */
void check_half(struct check *check, enum pkv_dtype dtype, const char *what, size_t index,
                uint16_t actual, uint16_t expected);

/* Nothing but bytes [at, at + bytes) of the output area has been written. */
void check_output_edges(struct check *check, const void *at, size_t bytes);

/* Calls `run` for arrays of 0 .. 67 (beyond two vectors of anything), 128 and 256 elements, with
 * all places and values. */
typedef void check_array(struct check *check, enum values values, size_t count, enum place place);
void check_arrays(struct check *check, check_array *run);

extern const int shape_widths[], shape_keys[], shape_queries[];
extern const size_t num_shape_widths, num_shape_keys, num_shape_queries;

/* The cases. */
void check_widen(struct check *check);
void check_narrow(struct check *check);
void check_bound(struct check *check);
void check_scale(struct check *check);
void check_merge(struct check *check);
void check_softcap(struct check *check);
void check_softmax(struct check *check);
void check_dot(struct check *check);
void check_pack(struct check *check);
void check_dot_hi(struct check *check);
void check_dot_both(struct check *check);
void check_weighted_sum(struct check *check);
void check_codes(struct check *check);
void check_int8_dot(struct check *check);
void check_int8_sum(struct check *check);

/* Times of every kernel of the tables from scalar to `isa` (BEST: all that there are). */
void bench_kernels(enum pkv_isa isa, uint64_t seed);

const char *dtype_name(enum pkv_dtype dtype);

#endif
