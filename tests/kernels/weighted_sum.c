/* SPDX-License-Identifier: MIT
 *
 * weighted_sum.c: acc * alpha + sum p v. With n keys, u = UNIT and B = |acc alpha| + sum |p||v| a
 * channel is off by (n + 3) u B at most: n + 1 products, each rounded once, and n additions; and as
 * often half of the smallest subnormal. Beside the values it checks that an accumulator has the
 * same bits alone, beside any queries, in a job of two groups, with values that come in two jobs,
 * with a prefetch or without, with values that were widened before, and channel by channel whatever
 * the width. */
#include "kernels/cells.h"

#include <math.h>
#include <string.h>

struct sums {
    struct cells values;
    const double *p[MAX_QUERIES], *acc[MAX_QUERIES], *alpha;
    float *stored_p, *stored_alpha;
    size_t p_bytes, acc_stride, acc_floats;
    float *result;
    bool is_finite; /* p and alpha: then zeros of the padding stay zeros */
};

static float acc_before[MAX_QUERIES * MAX_STRIDE], p_before[MAX_QUERIES * TILE_KEYS];

/* Weights beyond the last key are NaN. */
static void place_weights(struct sums *sums, struct check *check, enum values weights)
{
    const size_t queries = (size_t)check->shape.queries;
    const size_t keys = (size_t)check->shape.keys;
    sums->p_bytes = ((queries - 1) * TILE_KEYS + keys) * sizeof(float);
    sums->stored_p =
        guarded_place(&check->input, 0, sums->p_bytes, sizeof(float), check->shape.place);
    sums->stored_alpha =
        guarded_place(&check->spare, 0, queries * sizeof(float), sizeof(float), check->shape.place);
    for (size_t i = 0; i < queries; i++) {
        sums->p[i] =
            values_take(PKV_F32, weights, &check->random, keys, sums->stored_p + i * TILE_KEYS);
    }
    sums->alpha = values_take(PKV_F32, VALUES_WEIGHT, &check->random, queries, sums->stored_alpha);
    sums->is_finite = weights != VALUES_SPECIAL;
    memcpy(p_before, sums->stored_p, sums->p_bytes);
}

static void place_accumulators(struct sums *sums, struct check *check)
{
    static const enum values kinds[] = {VALUES_UNIFORM, VALUES_UNIFORM,   VALUES_HUGE,
                                        VALUES_ZERO,    VALUES_SUBNORMAL, VALUES_SPECIAL};
    const enum values kind = kinds[random_u64(&check->random) % (sizeof kinds / sizeof kinds[0])];
    const size_t width = (size_t)check->shape.width;
    const bool is_wider = random_between(&check->random, 0, 3) == 0;
    sums->acc_stride = padded(width) + (is_wider ? PAD_LANES : 0);
    sums->acc_floats = (size_t)check->shape.queries * sums->acc_stride;
    sums->result = guarded_place(&check->output, 0, sums->acc_floats * sizeof(float), sizeof(float),
                                 check->shape.place);
    memset(sums->result, 0, sums->acc_floats * sizeof(float));
    for (int i = 0; i < check->shape.queries; i++) {
        sums->acc[i] = values_take(PKV_F32, kind, &check->random, width,
                                   sums->result + (size_t)i * sums->acc_stride);
    }
    memcpy(acc_before, sums->result, sums->acc_floats * sizeof(float));
}

/* All queries and values, without a prefetch. */
static struct kernel_weighted_sum_job job_of(const struct sums *sums, const struct check *check)
{
    return (struct kernel_weighted_sum_job){
        .dtype = check->dtype,
        .weights = sums->stored_p,
        .alpha = sums->stored_alpha,
        .values = sums->values.stored,
        .num_groups = 1,
        .num_queries = check->shape.queries,
        .num_keys = check->shape.keys,
        .width = (size_t)check->shape.width,
        .acc = sums->result,
        .acc_stride = sums->acc_stride,
    };
}

static void call_whole(struct sums *sums, struct check *check)
{
    const struct shape *shape = &check->shape;
    const size_t bytes = sums->acc_floats * sizeof(float);
    struct kernel_weighted_sum_job job = job_of(sums, check);
    if (shape->width % 2 == 0) {
        job.prefetch = (struct kernel_prefetch){
            .vectors = sums->values.prefetched,
            .vector_bytes = sums->values.bytes,
            .num_vectors = shape->keys,
        };
    }
    check->kernels->weighted_sum(&job);
    check_output_edges(check, sums->result, bytes);
    check_that(check, memcmp(p_before, sums->stored_p, sums->p_bytes) == 0, "p was written");
    for (int i = 0; i < shape->queries; i++) {
        check_that(check, (double)sums->stored_alpha[i] == sums->alpha[i], "alpha was written");
    }
}

static void compare_values(const struct sums *sums, struct check *check, int query)
{
    double sum[MAX_WIDTH];
    double size[MAX_WIDTH];
    const int width = check->shape.width;
    const int keys = check->shape.keys;
    for (int c = 0; c < width; c++) {
        sum[c] = sums->acc[query][c] * sums->alpha[query];
        size[c] = fabs(sum[c]);
    }
    for (int j = 0; j < keys; j++) {
        const double p = sums->p[query][j];
        const double *value = sums->values.wide[j];
        for (int c = 0; c < width; c++) {
            sum[c] += p * value[c];
            size[c] += fabs(p * value[c]);
        }
    }
    const float *result = sums->result + (size_t)query * sums->acc_stride;
    for (int c = 0; c < width; c++) {
        check_value(check, "acc", (size_t)query, (size_t)c, result[c], sum[c],
                    (keys + 3) * UNIT * size[c] + 2 * (keys + 1) * TINY);
    }
    for (size_t c = (size_t)width; c < sums->acc_stride && sums->is_finite; c++) {
        check_value(check, "padding of acc", (size_t)query, c, result[c], 0, 0);
    }
}

/* Queries [first, first + count) from their first state once more, with these values. */
static void compare_again(const struct sums *sums, struct check *check, const char *what,
                          enum pkv_dtype dtype, const void *const *values, int first, int count,
                          int width)
{
    static float again[MAX_QUERIES * MAX_STRIDE];
    const size_t begin = (size_t)first * sums->acc_stride;
    memcpy(again, acc_before + begin, (size_t)count * sums->acc_stride * sizeof(float));
    struct kernel_weighted_sum_job job = job_of(sums, check);
    job.dtype = dtype;
    job.weights += first * TILE_KEYS;
    job.alpha += first;
    job.values = values;
    job.num_queries = count;
    job.width = (size_t)width;
    job.acc = again;
    check->kernels->weighted_sum(&job);
    for (int i = 0; i < count; i++) {
        for (int c = 0; c < width; c++) {
            const size_t at = (size_t)i * sums->acc_stride + (size_t)c;
            check_bits(check, what, (size_t)(first + i), (size_t)c, again[at],
                       sums->result[begin + at]);
        }
    }
}

static void compare_accumulators(const struct sums *sums, struct check *check, const char *what,
                                 const float *acc, const float *expected)
{
    for (int i = 0; i < check->shape.queries; i++) {
        for (int c = 0; c < check->shape.width; c++) {
            const size_t at = (size_t)i * sums->acc_stride + (size_t)c;
            check_bits(check, what, (size_t)i, (size_t)c, acc[at], expected[at]);
        }
    }
}

/* The values of a tile in two jobs, of which the first alone scales what was there. */
static void compare_two_jobs(const struct sums *sums, struct check *check)
{
    static float acc[MAX_QUERIES * MAX_STRIDE];
    const int keys = check->shape.keys;
    const int first = keys > 0 ? random_between(&check->random, 1, keys) : 0;
    memcpy(acc, acc_before, sums->acc_floats * sizeof(float));
    struct kernel_weighted_sum_job job = job_of(sums, check);
    job.acc = acc;
    job.num_keys = first;
    check->kernels->weighted_sum(&job);
    job.alpha = NULL;
    job.weights += first;
    job.values += first;
    job.num_keys = keys - first;
    check->kernels->weighted_sum(&job);
    compare_accumulators(sums, check, "in two jobs, acc", acc, sums->result);
}

/* Two groups of queries in one job, the second with values one further on, and each by itself. */
static void compare_two_groups(const struct sums *sums, struct check *check)
{
    static float together[MAX_QUERIES * MAX_STRIDE], alone[MAX_QUERIES * MAX_STRIDE];
    const int queries = check->shape.queries / 2;
    const size_t rows = (size_t)(check->shape.queries - queries);
    struct kernel_weighted_sum_job job = job_of(sums, check);
    job.num_queries = queries;
    job.num_keys = check->shape.keys - 1;
    if (queries == 0 || job.num_keys < 1) {
        return;
    }
    memcpy(together, acc_before, sums->acc_floats * sizeof(float));
    memcpy(alone, acc_before, sums->acc_floats * sizeof(float));
    for (size_t group = 0; group < 2; group++) {
        struct kernel_weighted_sum_job one = job;
        one.weights += group * rows * TILE_KEYS;
        one.alpha += group * rows;
        one.values += group;
        one.acc = alone + group * rows * sums->acc_stride;
        check->kernels->weighted_sum(&one);
    }
    job.num_groups = 2;
    job.group_rows = rows;
    job.group_bytes = cells_step(&sums->values);
    job.acc = together;
    job.prefetch = (struct kernel_prefetch){
        .vectors = sums->values.prefetched,
        .vector_bytes = sums->values.bytes,
        .num_vectors = check->shape.keys / 2,
    };
    check->kernels->weighted_sum(&job);
    compare_accumulators(sums, check, "in one of two groups, acc", together, alone);
}

static void compare_bits(const struct sums *sums, struct check *check)
{
    const struct shape *shape = &check->shape;
    const void *const *stored = sums->values.stored;
    const void *widened[TILE_KEYS];
    for (int j = 0; j < shape->keys; j++) {
        widened[j] = sums->values.floats[j];
    }
    for (int i = 0; i < shape->queries && !check->failed; i++) {
        compare_again(sums, check, "computed alone, acc", check->dtype, stored, i, 1, shape->width);
    }
    const int first = random_between(&check->random, 0, shape->queries - 1);
    const int count = random_between(&check->random, 1, shape->queries - first);
    compare_again(sums, check, "in another group, acc", check->dtype, stored, first, count,
                  shape->width);
    compare_again(sums, check, "with widened values, acc", PKV_F32, widened, 0, shape->queries,
                  shape->width);
    compare_again(sums, check, "at another width, acc", check->dtype, stored, 0, shape->queries,
                  random_between(&check->random, 1, shape->width));
    compare_two_jobs(sums, check);
    compare_two_groups(sums, check);
}

static void run_sums(struct check *check, enum values values, enum values weights)
{
    struct sums sums = {.p_bytes = 0};
    const bool is_usual = random_between(&check->random, 0, 1) != 0 && values != VALUES_LIMIT;
    cells_place(&sums.values, check, check->dtype, values);
    place_weights(&sums, check, is_usual ? VALUES_WEIGHT : weights);
    place_accumulators(&sums, check);
    call_whole(&sums, check);
    for (int i = 0; i < check->shape.queries && !check->failed; i++) {
        compare_values(&sums, check, i);
    }
    compare_bits(&sums, check);
    cells_check_unchanged(&sums.values, check);
}

void check_weighted_sum(struct check *check)
{
    walk_tiles(check, run_sums);
}
