/* SPDX-License-Identifier: MIT
 *
 * dot.c: dot and dot_packed. With D channels, u = UNIT and B = sum |q||k|:
 *
 *   dot      (D + 3) u B: a product is rounded once and passes fewer than D + 2 additions; and as
 *            often half of the smallest subnormal
 *   packed   a lane adds up both parts: (parts D + 3) u B. The high part of q is off by 2^-8 of q
 *            at most, the low part by 2^-8 of that: with both, q has 16 bits and the result is off
 *            by 2^-16 B; the high part alone is for q that are bf16 numbers. Subnormal factors and
 *            sums count as zero, each time an error below 2^-126 (times the other factor)
 *
 * Beside the values it checks what "a result does not depend on the rows beside it" rests on: a
 * score has the same bits computed alone, beside any queries and keys, in a job of two groups, with
 * a prefetch or without, and with keys that were widened before. */
#include "kernels/cells.h"

#include <math.h>
#include <string.h>

enum { MAX_ALONE = 192 };

struct dots {
    struct cells keys;
    enum pkv_dtype dtype;
    int parts; /* of q; 0: not packed */
    kernel_dot *kernel;
    const double *wide_q[MAX_QUERIES];
    size_t q_stride, q_floats;
    float *q, *scores;
};

static float q_before[MAX_QUERIES * MAX_STRIDE];

/* Queries, each padded with zeros; packed where the kernel wants it. With one part they
 * are bf16 numbers. */
static void place_queries(struct dots *dots, struct check *check, enum values values)
{
    const size_t width = (size_t)check->shape.width;
    const bool is_wider = random_between(&check->random, 0, 3) == 0;
    dots->q_stride = padded(width) + (is_wider ? PAD_LANES : 0);
    dots->q_floats = (size_t)check->shape.queries * dots->q_stride;
    dots->q = guarded_place(&check->input, 0, dots->q_floats * sizeof(float), sizeof(float),
                            check->shape.place);
    memset(dots->q, 0, dots->q_floats * sizeof(float));
    const enum pkv_dtype dtype = dots->parts == 1 ? PKV_BF16 : PKV_F32;
    for (int i = 0; i < check->shape.queries; i++) {
        float *q = dots->q + (size_t)i * dots->q_stride;
        dots->wide_q[i] = values_take(dtype, values, &check->random, width, NULL);
        for (size_t c = 0; c < width; c++) {
            q[c] = (float)dots->wide_q[i][c];
        }
        if (dots->parts > 0) {
            float *spare = guarded_place(&check->spare, 0, dots->q_stride * sizeof(float),
                                         sizeof(float), check->shape.place);
            check->kernels->pack(q, dots->q_stride, spare);
        }
    }
    memcpy(q_before, dots->q, dots->q_floats * sizeof(float));
}

/* From the first score to the last; between the queries lies what may not be written. */
static size_t score_bytes(const struct shape *shape)
{
    return (size_t)((shape->queries - 1) * TILE_KEYS + shape->keys) * sizeof(float);
}

/* All queries and keys, without a prefetch. */
static struct kernel_dot_job job_of(const struct dots *dots, const struct shape *shape)
{
    return (struct kernel_dot_job){
        .dtype = dots->dtype,
        .q_parts = dots->parts,
        .q = dots->q,
        .q_stride = dots->q_stride,
        .keys = dots->keys.stored,
        .num_groups = 1,
        .num_queries = shape->queries,
        .num_keys = shape->keys,
        .width = (size_t)shape->width,
        .scores = dots->scores,
    };
}

static void call_whole(struct dots *dots, struct check *check)
{
    const struct shape *shape = &check->shape;
    dots->scores =
        guarded_place(&check->output, 0, score_bytes(shape), sizeof(float), shape->place);
    struct kernel_dot_job job = job_of(dots, shape);
    if (shape->width % 2 == 0) {
        job.prefetch = (struct kernel_prefetch){
            .vectors = dots->keys.prefetched,
            .vector_bytes = dots->keys.bytes,
            .num_vectors = shape->keys,
        };
    }
    dots->kernel(&job);
    check_output_edges(check, dots->scores, score_bytes(shape));
    for (int i = 0; i + 1 < shape->queries; i++) {
        for (int j = shape->keys; j < TILE_KEYS; j++) {
            check_that(check, bits_of(dots->scores[i * TILE_KEYS + j]) == UINT32_MAX,
                       "a score beyond the last key was written");
        }
    }
}

/* sum q k, sum |q||k|, and sum |q| + |k| */
struct reference {
    double sum, size, factors;
};

static struct reference refer(const double *q, const double *k, int width)
{
    struct reference r = {0, 0, 0};
    for (int c = 0; c < width; c++) {
        r.sum += q[c] * k[c];
        r.size += fabs(q[c] * k[c]);
        r.factors += fabs(q[c]) + fabs(k[c]);
    }
    return r;
}

static double tolerance_of(const struct dots *dots, const struct reference *r, int width)
{
    const double d = width;
    if (dots->parts == 0) {
        return (d + 3) * UNIT * r->size + 2 * (d + 1) * TINY;
    }
    const double n = dots->parts;
    const double split = n == 2 ? 0x1p-16 : 0;
    return ((n * d + 3) * UNIT * (1 + 0x1p-7) + split) * r->size +
           n * SMALLEST_NORMAL * (r->factors + d + 1);
}

/* A low part of 0, or a subnormal factor, which counts as 0, makes NaN with an infinite other
 * factor: packed, NaN may stand for an infinity. */
static bool is_allowed_nan(const struct dots *dots, double expected, float actual)
{
    return dots->parts > 0 && isinf(expected) && isnan(actual);
}

static void compare_values(const struct dots *dots, struct check *check)
{
    const struct shape *shape = &check->shape;
    for (int i = 0; i < shape->queries && !check->failed; i++) {
        for (int j = 0; j < shape->keys; j++) {
            const struct reference r = refer(dots->wide_q[i], dots->keys.wide[j], shape->width);
            const float actual = dots->scores[i * TILE_KEYS + j];
            if (!is_allowed_nan(dots, r.sum, actual)) {
                check_value(check, "scores", (size_t)i, (size_t)j, actual, r.sum,
                            tolerance_of(dots, &r, shape->width));
            }
        }
    }
}

/* One query and one key. All pairs, or a sample where there are many. */
static void compare_alone(const struct dots *dots, struct check *check)
{
    const struct shape *shape = &check->shape;
    const int pairs = shape->queries * shape->keys;
    for (int n = 0; n < pairs && n < MAX_ALONE; n++) {
        const int pair = pairs <= MAX_ALONE ? n : random_between(&check->random, 0, pairs - 1);
        const int i = pair / shape->keys;
        const int j = pair % shape->keys;
        float alone = 0;
        struct kernel_dot_job job = job_of(dots, shape);
        job.q += (size_t)i * dots->q_stride;
        job.keys += j;
        job.num_queries = job.num_keys = 1;
        job.scores = &alone;
        dots->kernel(&job);
        check_bits(check, "computed alone, the score", (size_t)i, (size_t)j, alone,
                   dots->scores[i * TILE_KEYS + j]);
    }
}

/* A random run of queries with random keys in random order. */
static void compare_group(const struct dots *dots, struct check *check)
{
    static float scores[MAX_QUERIES * TILE_KEYS];
    const void *keys[TILE_KEYS];
    int chosen[TILE_KEYS];
    const int first = random_between(&check->random, 0, check->shape.queries - 1);
    const int queries = random_between(&check->random, 1, check->shape.queries - first);
    const int num_keys = cells_choose(&dots->keys, &check->random, chosen);
    for (int n = 0; n < num_keys; n++) {
        keys[n] = dots->keys.stored[chosen[n]];
    }
    struct kernel_dot_job job = job_of(dots, &check->shape);
    job.q += (size_t)first * dots->q_stride;
    job.keys = keys;
    job.num_queries = queries;
    job.num_keys = num_keys;
    job.scores = scores;
    dots->kernel(&job);
    for (int i = 0; i < queries; i++) {
        for (int n = 0; n < num_keys; n++) {
            check_bits(check, "in another group, the score", (size_t)(first + i), (size_t)chosen[n],
                       scores[i * TILE_KEYS + n],
                       dots->scores[(first + i) * TILE_KEYS + chosen[n]]);
        }
    }
}

/* Two groups of queries in one job, the second with keys one further on, some prefetched. */
static void compare_two_groups(const struct dots *dots, struct check *check)
{
    static float scores[MAX_QUERIES * TILE_KEYS];
    const struct shape *shape = &check->shape;
    struct kernel_dot_job job = job_of(dots, shape);
    job.num_groups = 2;
    job.num_queries = shape->queries / 2;
    job.group_rows = (size_t)(shape->queries - job.num_queries);
    job.group_bytes = cells_step(&dots->keys);
    job.num_keys = shape->keys - 1;
    job.scores = scores;
    job.prefetch = (struct kernel_prefetch){
        .vectors = dots->keys.prefetched,
        .vector_bytes = dots->keys.bytes,
        .num_vectors = shape->keys / 2,
    };
    if (job.num_queries == 0 || job.num_keys < 1) {
        return;
    }
    dots->kernel(&job);
    for (int n = 0; n < 2 * job.num_queries; n++) {
        const int group = n / job.num_queries;
        const size_t i = (size_t)group * job.group_rows + (size_t)(n % job.num_queries);
        for (int j = 0; j < job.num_keys; j++) {
            check_bits(check, "in one of two groups, the score", i, (size_t)j,
                       scores[i * TILE_KEYS + (size_t)j],
                       dots->scores[i * TILE_KEYS + (size_t)(j + group)]);
        }
    }
}

/* Keys that were widened before, as a staged tile has them. */
static void compare_widened(const struct dots *dots, struct check *check)
{
    static float scores[MAX_QUERIES * TILE_KEYS];
    const void *keys[TILE_KEYS];
    for (int j = 0; j < check->shape.keys; j++) {
        keys[j] = dots->keys.floats[j];
    }
    struct kernel_dot_job job = job_of(dots, &check->shape);
    job.dtype = PKV_F32;
    job.keys = keys;
    job.scores = scores;
    dots->kernel(&job);
    for (int i = 0; i < check->shape.queries; i++) {
        for (int j = 0; j < check->shape.keys; j++) {
            check_bits(check, "with widened keys, the score", (size_t)i, (size_t)j,
                       scores[i * TILE_KEYS + j], dots->scores[i * TILE_KEYS + j]);
        }
    }
}

static void run_dots(struct dots *dots, struct check *check, enum values keys, enum values queries)
{
    cells_place(&dots->keys, check, dots->dtype, keys);
    place_queries(dots, check, queries);
    call_whole(dots, check);
    compare_values(dots, check);
    compare_alone(dots, check);
    compare_group(dots, check);
    compare_two_groups(dots, check);
    if (dots->parts == 0) {
        compare_widened(dots, check);
    }
    cells_check_unchanged(&dots->keys, check);
    check_that(check, memcmp(q_before, dots->q, dots->q_floats * sizeof(float)) == 0,
               "q was written");
}

static void run_plain(struct check *check, enum values keys, enum values queries)
{
    struct dots dots = {.dtype = check->dtype, .kernel = check->kernels->dot};
    run_dots(&dots, check, keys, queries);
}

static void run_hi(struct check *check, enum values keys, enum values queries)
{
    struct dots dots = {.dtype = PKV_BF16, .parts = 1, .kernel = check->kernels->dot_packed};
    run_dots(&dots, check, keys, queries);
}

static void run_both(struct check *check, enum values keys, enum values queries)
{
    struct dots dots = {.dtype = PKV_BF16, .parts = 2, .kernel = check->kernels->dot_packed};
    run_dots(&dots, check, keys, queries);
}

void check_dot(struct check *check)
{
    walk_tiles(check, run_plain);
}

void check_dot_hi(struct check *check)
{
    walk_tiles(check, run_hi);
}

void check_dot_both(struct check *check)
{
    walk_tiles(check, run_both);
}
