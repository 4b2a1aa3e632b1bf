/* SPDX-License-Identifier: MIT
 *
 * bound.c: bounds of dot products. They have the same bits at every level, so bits are compared:
 * with the sums of kernels.h in plain C, lane by lane. That they are bounds is judged by what is
 * made of them, in attn/block_rank.c. */
#include "kernels/check.h"

#include <math.h>
#include <string.h>

enum { LANES = 16, MAX_BOUND_QUERIES = 9 };

/* The order that is promised: lane c % 16 takes channel c, below before above; then halves. */
static float plain_bound(const float *q, const float *bounds, size_t width, float share)
{
    const float *above = q + padded(width);
    float lanes[LANES] = {0};
    for (size_t c = 0; c < width; c++) {
        const float least = bounds[c] + fabsf(bounds[c]) * -share;
        const float greatest = bounds[width + c] + fabsf(bounds[width + c]) * share;
        lanes[c % LANES] += q[c] * least;
        lanes[c % LANES] += above[c] * greatest;
    }
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lanes[i] += lanes[i + half];
        }
    }
    return lanes[0];
}

static void bound_array(struct check *check, enum values values, size_t width, int num_queries,
                        enum place place)
{
    const size_t stride = 2 * padded(width);
    const size_t rows = (size_t)num_queries;
    float *q = guarded_place(&check->input, 0, rows * stride * sizeof *q, sizeof *q, PLACE_ENDS);
    float *bounds =
        guarded_place(&check->cells, 0, 2 * width * sizeof *bounds, sizeof *bounds, place);
    float *scores = guarded_place(&check->output, 0, rows * sizeof *scores, sizeof *scores, place);
    float before[2 * MAX_WIDTH];
    memset(q, 0, rows * stride * sizeof *q);
    for (size_t part = 0; part < 2 * rows; part++) {
        values_take(PKV_F32, VALUES_UNIFORM, &check->random, width, q + part * padded(width));
    }
    values_take(PKV_F32, values, &check->random, 2 * width, bounds);
    memcpy(before, bounds, 2 * width * sizeof *bounds);
    check->shape = (struct shape){num_queries, 1, (int)width, place, values_name(values)};
    const struct kernel_bound_job job = {
        .q = q,
        .q_stride = stride,
        .num_queries = num_queries,
        .width = width,
        .bounds = bounds,
        .next = width % 2 ? bounds : NULL,
        .share = 0x1p-10f,
        .scores = scores,
    };
    check->kernels->bound(&job);
    for (size_t i = 0; i < rows; i++) {
        check_bits(check, "score", i, 0, scores[i],
                   plain_bound(q + i * stride, bounds, width, job.share));
    }
    check_output_edges(check, scores, rows * sizeof *scores);
    check_that(check, memcmp(before, bounds, 2 * width * sizeof *bounds) == 0,
               "bounds were written");
}

void check_bound(struct check *check)
{
    for (size_t w = 0; w < num_shape_widths && !check->failed; w++) {
        for (int values = VALUES_UNIFORM; values <= VALUES_SPECIAL; values++) {
            for (int place = 0; place < NUM_PLACES && !check->failed; place++) {
                bound_array(check, (enum values)values, (size_t)shape_widths[w],
                            1 + (int)(w + (size_t)values) % MAX_BOUND_QUERIES, (enum place)place);
            }
        }
    }
}
