/* SPDX-License-Identifier: MIT
 *
 * int8.c: scores and sums of int8 as whole numbers. With u = UNIT:
 *
 *   dot   q is rounded to multiples of grain * size, after a quotient and a product, rounded
 *         too; four roundings follow: grain size / 2 sum |k| + 8 u sum |q||k|
 *   sum   weights are rounded to multiples of 2^(e - 23), at most 2^-23 of the largest, and six
 *         roundings follow: 2^-24 max p sum |v| + 8 u (|acc alpha| + sum p |v|)
 *
 * Beside the values: the same bits alone as beside any queries and keys, queries that are left to
 * dot stay as they were, and what is read stays unwritten. */
#include "kernels/cells.h"

#include <math.h>
#include <string.h>

static float q[MAX_QUERIES * MAX_STRIDE], before[MAX_QUERIES * MAX_STRIDE];
static float scores[MAX_QUERIES * TILE_KEYS], weights[MAX_QUERIES * TILE_KEYS];
static float acc[MAX_QUERIES * MAX_STRIDE], old_acc[MAX_QUERIES * MAX_STRIDE];
static struct kernel_digits digits[MAX_QUERIES];
static unsigned char transposed[TILE_KEYS * MAX_STRIDE];

/* Alone, a query and a key, or a query, have the bits that they have together. */
static void compare_dot_alone(struct check *check, const struct kernel_dot_job *job)
{
    for (int n = 0; n < job->num_queries * job->num_keys && n < 192; n++) {
        const int i = random_between(&check->random, 0, job->num_queries - 1);
        const int j = random_between(&check->random, 0, job->num_keys - 1);
        float alone[TILE_KEYS] = {0};
        struct kernel_dot_job one = *job;
        one.q += (size_t)i * job->q_stride;
        one.digits += i;
        one.keys += j;
        one.num_queries = 1;
        one.num_keys = n % 2 == 0 ? 1 : job->num_keys - j;
        one.scores = alone;
        if (digits[i].count > 0) {
            check->kernels->dot_int8(&one);
            check_bits(check, "computed alone, the score", (size_t)i, (size_t)j, alone[0],
                       scores[i * TILE_KEYS + j]);
        }
    }
}

static void compare_scores(struct check *check, const struct cells *keys, int i,
                           const double *wide_q)
{
    const int width = check->shape.width;
    for (int j = 0; j < check->shape.keys; j++) {
        double sum = 0, size = 0, codes = 0;
        for (int c = 0; c < width; c++) {
            sum += wide_q[c] * keys->wide[j][c];
            size += fabs(wide_q[c] * keys->wide[j][c]);
            codes += fabs(keys->wide[j][c]);
        }
        const double half = 0.5 * (double)digits[i].grain * (double)digits[i].size;
        check_value(check, "scores", (size_t)i, (size_t)j, scores[i * TILE_KEYS + j], sum,
                    half * codes * (1 + 4 * UNIT) + 8 * UNIT * size + 2 * TINY * (codes + 1));
    }
}

/* Queries of which some have one number that is far above the others, or below. */
static void place_queries(struct check *check, enum values values, const double **wide_q)
{
    const size_t width = (size_t)check->shape.width, stride = padded(width);
    memset(q, 0, sizeof q);
    for (int i = 0; i < check->shape.queries; i++) {
        const float scale = random_between(&check->random, 0, 1) != 0 ? 0x1p-9f : 0x1p-13f;
        float *one = q + (size_t)i * stride;
        wide_q[i] = values_take(PKV_F32, values, &check->random, width, one);
        memcpy(before + (size_t)i * stride, one, stride * sizeof q[0]);
        check->kernels->pack_int8(one, stride, scale, &digits[i]);
        if (digits[i].count == 0) {
            check_that(check, memcmp(one, before + (size_t)i * stride, stride * sizeof q[0]) == 0,
                       "a query without digits was written");
        }
    }
}

static void run_dot(struct check *check, enum values key_values, enum values query_values)
{
    struct cells keys;
    const double *wide_q[MAX_QUERIES];
    const struct shape *shape = &check->shape;
    cells_place(&keys, check, PKV_INT8, key_values);
    place_queries(check, query_values, wide_q);
    struct kernel_dot_job job = {
        .dtype = PKV_INT8,
        .q = q,
        .q_stride = padded((size_t)shape->width),
        .keys = keys.stored,
        .num_groups = 1,
        .num_queries = shape->queries,
        .num_keys = shape->keys,
        .width = (size_t)shape->width,
        .scores = scores,
        .digits = digits,
        .transposed = transposed,
    };
    if (shape->width % 2 == 0) {
        job.prefetch = (struct kernel_prefetch){
            .vectors = keys.prefetched, .vector_bytes = keys.bytes, .num_vectors = shape->keys};
    }
    memset(scores, 0xff, sizeof scores);
    check->kernels->dot_int8(&job);
    for (int i = 0; i < shape->queries && !check->failed; i++) {
        for (int j = shape->keys; j < TILE_KEYS; j++) {
            check_that(check, bits_of(scores[i * TILE_KEYS + j]) == UINT32_MAX,
                       "a score beyond the last key was written");
        }
        if (digits[i].count > 0) {
            compare_scores(check, &keys, i, wide_q[i]);
        }
    }
    compare_dot_alone(check, &job);
    cells_check_unchanged(&keys, check);
}

static void compare_sums(struct check *check, const struct cells *values, int i, const double *p,
                         float alpha)
{
    const size_t stride = padded((size_t)check->shape.width);
    double largest = 0;
    for (int j = 0; j < check->shape.keys; j++) {
        largest = fmax(largest, p[j]);
    }
    for (int c = 0; c < check->shape.width; c++) {
        double sum = (double)old_acc[(size_t)i * stride + (size_t)c] * (double)alpha;
        double size = fabs(sum), codes = 0;
        for (int j = 0; j < check->shape.keys; j++) {
            sum += p[j] * values->wide[j][c];
            size += fabs(p[j] * values->wide[j][c]);
            codes += fabs(values->wide[j][c]);
        }
        check_value(check, "acc", (size_t)i, (size_t)c, acc[(size_t)i * stride + (size_t)c], sum,
                    0x1p-24 * fmax(largest, SMALLEST_NORMAL) * codes + 8 * UNIT * size + 2 * TINY);
    }
}

static void compare_sum_alone(struct check *check, const struct kernel_weighted_sum_job *job)
{
    static float alone[MAX_STRIDE];
    for (int i = 0; i < job->num_queries && !check->failed; i++) {
        struct kernel_weighted_sum_job one = *job;
        one.weights += (size_t)i * TILE_KEYS;
        one.alpha += i;
        one.num_queries = 1;
        one.acc = alone;
        memcpy(alone, old_acc + (size_t)i * job->acc_stride, job->acc_stride * sizeof alone[0]);
        check->kernels->weighted_sum_int8(&one);
        for (size_t c = 0; c < job->acc_stride; c++) {
            check_bits(check, "computed alone, acc", (size_t)i, c, alone[c],
                       acc[(size_t)i * job->acc_stride + c]);
        }
    }
}

/* Weights as a softmax leaves them: in [0, 1], and zeros behind the last. Kinds take turns: at
 * random, equal, one far above the others, tiny ones. */
static void place_weights(struct check *check, const double **p, float *alpha)
{
    static double wide[MAX_QUERIES][TILE_KEYS];
    memset(weights, 0, sizeof weights);
    for (int i = 0; i < check->shape.queries; i++) {
        const int kind = random_between(&check->random, 0, 3);
        for (int j = 0; j < check->shape.keys; j++) {
            const float unit = (float)fabs(random_unit(&check->random));
            const float some[] = {unit, 0.7f, j == 0 ? 1.0f : unit * 0x1p-20f, unit * 0x1p-120f};
            const float weight = some[kind];
            weights[i * TILE_KEYS + j] = weight;
            wide[i][j] = (double)weight;
        }
        p[i] = wide[i];
        alpha[i] = (float)fabs(random_unit(&check->random));
    }
}

static void run_sum(struct check *check, enum values values, enum values unused)
{
    struct cells cells;
    const double *p[MAX_QUERIES];
    float alpha[MAX_QUERIES];
    const struct shape *shape = &check->shape;
    const size_t width = (size_t)shape->width, stride = padded(width);
    (void)unused;
    if (shape->keys == 0) {
        return;
    }
    cells_place(&cells, check, PKV_INT8, values);
    place_weights(check, p, alpha);
    check->kernels->pack_weights(weights, shape->queries, shape->keys);
    memset(acc, 0, sizeof acc);
    for (int i = 0; i < shape->queries; i++) {
        values_take(PKV_F32, VALUES_UNIFORM, &check->random, width, acc + (size_t)i * stride);
    }
    memcpy(old_acc, acc, sizeof acc);
    struct kernel_weighted_sum_job job = {
        .dtype = PKV_INT8,
        .weights = weights,
        .alpha = alpha,
        .values = cells.stored,
        .num_groups = 1,
        .num_queries = shape->queries,
        .num_keys = shape->keys,
        .width = width,
        .acc = acc,
        .acc_stride = stride,
    };
    check->kernels->weighted_sum_int8(&job);
    for (int i = 0; i < shape->queries && !check->failed; i++) {
        compare_sums(check, &cells, i, p[i], alpha[i]);
        for (size_t c = width; c < stride; c++) {
            check_that(check, acc[(size_t)i * stride + c] == 0.0f, "the padding is not zero");
        }
    }
    compare_sum_alone(check, &job);
    cells_check_unchanged(&cells, check);
}

void check_int8_dot(struct check *check)
{
    walk_tiles(check, run_dot);
}

void check_int8_sum(struct check *check)
{
    walk_tiles(check, run_sum);
}
