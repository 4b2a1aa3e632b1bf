/* SPDX-License-Identifier: MIT
 *
 * bound.c: bounds of dot products. They have the same bits at every level, so bits are compared:
 * with the sums of kernels.h in plain C, lane by lane. That they are bounds is judged by what is
 * made of them, in attn/block_rank.c. */
#include "kernels/check.h"

#include <math.h>
#include <string.h>

enum { LANES = 16, MAX_BOUND_QUERIES = 9, MAX_BOUND_HEADS = 2 };

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

/* The largest of a KV head's scores. */
static float plain_best(const struct kernel_bound_job *job, size_t head)
{
    float best = -INFINITY;
    for (size_t i = head * (size_t)job->num_queries; i < (head + 1) * (size_t)job->num_queries;
         i++) {
        const float score = job->slack[i] + plain_bound(job->q + i * job->q_stride,
                                                        job->bounds + head * 2 * job->width,
                                                        job->width, job->share);
        if (!isfinite(score)) {
            return INFINITY;
        }
        best = fmaxf(best, score);
    }
    return best;
}

static void bound_array(struct check *check, enum values values, size_t width, int num_heads,
                        int num_queries, enum place place)
{
    const size_t stride = 2 * padded(width);
    const size_t rows = (size_t)num_queries * (size_t)num_heads;
    const size_t count = (size_t)num_heads * 2 * width;
    const size_t best_bytes = (size_t)num_heads * sizeof(float);
    float *q = guarded_place(&check->input, 0, rows * stride * sizeof *q, sizeof *q, PLACE_ENDS);
    float *bounds = guarded_place(&check->cells, 0, count * sizeof *bounds, sizeof *bounds, place);
    float *best = guarded_place(&check->output, 0, best_bytes, sizeof *best, place);
    float before[MAX_BOUND_HEADS * 2 * MAX_WIDTH], slack[MAX_BOUND_HEADS * MAX_BOUND_QUERIES];
    memset(q, 0, rows * stride * sizeof *q);
    for (size_t part = 0; part < 2 * rows; part++) {
        values_take(PKV_F32, VALUES_UNIFORM, &check->random, width, q + part * padded(width));
    }
    values_take(PKV_F32, VALUES_UNIFORM, &check->random, rows, slack);
    values_take(PKV_F32, values, &check->random, count, bounds);
    memcpy(before, bounds, count * sizeof *bounds);
    check->shape = (struct shape){num_queries, num_heads, (int)width, place, values_name(values)};
    const struct kernel_bound_job job = {
        .q = q,
        .q_stride = stride,
        .slack = slack,
        .num_heads = num_heads,
        .num_queries = num_queries,
        .width = width,
        .bounds = bounds,
        .next = width % 2 ? bounds : NULL,
        .share = 0x1p-10f,
        .best = best,
    };
    check->kernels->bound(&job);
    for (size_t h = 0; h < (size_t)num_heads; h++) {
        check_bits(check, "best", h, 0, best[h], plain_best(&job, h));
    }
    check_output_edges(check, best, best_bytes);
    check_that(check, memcmp(before, bounds, count * sizeof *bounds) == 0, "bounds were written");
}

void check_bound(struct check *check)
{
    for (size_t w = 0; w < num_shape_widths && !check->failed; w++) {
        for (int values = VALUES_UNIFORM; values <= VALUES_SPECIAL; values++) {
            for (int place = 0; place < NUM_PLACES && !check->failed; place++) {
                bound_array(check, (enum values)values, (size_t)shape_widths[w],
                            1 + (int)(w + (size_t)place) % MAX_BOUND_HEADS,
                            1 + (int)(w + (size_t)values) % MAX_BOUND_QUERIES, (enum place)place);
            }
        }
    }
}
