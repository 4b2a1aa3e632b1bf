/* SPDX-License-Identifier: MIT
 *
 * output.c: the end of a query: the sink joins the denominator, the sums are divided by it, scaled
 * as quantised values want it, and rounded once. */
#include "attn/output.h"

#include <math.h>

#include "attn/quantize.h"

/* The sink of a query head: a logit without a key, raw. -inf is none. */
static float sink_of(const struct run *run, size_t query_head)
{
    if (run->constants->smooth_softmax) {
        return 0.0f;
    }
    return run->constants->head_sink != NULL ? run->constants->head_sink[query_head] : -INFINITY;
}

/* The softmax of one query as its tiles left it, and the factor that turns sums into the output. */
struct denominator {
    float max;
    float sum;
    float factor;
};

/* A sink enters here, once, whatever the split:
 *     sum + exp(sink - max), with everything rescaled to the larger of max and sink.
 * A query that saw nothing has factor 0. */
static struct denominator close_sum(float max, float sum, float sink)
{
    if (sink == -INFINITY) {
        return (struct denominator){max, sum, sum == 0.0f ? 0.0f : 1.0f / sum};
    }
    const float larger = max > sink ? max : sink;
    const float keep = max == -INFINITY ? 0.0f : expf(max - larger);
    const float with_sink = sum * keep + expf(sink - larger);
    return (struct denominator){larger, with_sink, keep / with_sink};
}

/* total [v_width] times factor and the scales of V: one number goes with the factor, scales per
 * channel after it. */
static void scale_total(const struct run *run, int32_t head, float factor, float *total)
{
    const struct gqa_shape *shape = &run->plan->shape;
    const struct pkv_attn_constants *c = run->constants;
    const size_t width = (size_t)shape->v_width;
    const float *scales = shape->v_in_k ? c->k_scale : c->v_scale;
    const int32_t num_scales = shape->v_in_k ? c->k_scale_count : c->v_scale_count;
    factor *= value_scale_of(run->v_dtype);
    run->kernels->scale(total, width,
                        scales != NULL && num_scales == 1 ? factor * scales[0] : factor);
    if (scales != NULL && num_scales > 1) {
        const int32_t channels = shape->v_in_k ? shape->k_width : shape->v_width;
        const float *of_head = quantize_scales_of_head(scales, num_scales, head, channels);
        for (size_t i = 0; i < width; i++) {
            total[i] *= of_head[i];
        }
    }
}

/* One query of one query head: out, and lse = the natural logarithm of the denominator. */
static void write_query(const struct run *run, size_t token, int32_t head, size_t query_head,
                        const struct denominator *end, float *total)
{
    const struct gqa_layer *layer = run->layer;
    const size_t width = (size_t)run->plan->shape.v_width;
    const size_t at = token * layer->out_stride + query_head * width;
    scale_total(run, head, end->factor, total);
    run->kernels->narrow(layer->dtype, total, width,
                         (char *)layer->out + at * pkv_dtype_bytes(layer->dtype));
    if (layer->lse != NULL) {
        layer->lse[token * (size_t)layer->num_heads + query_head] =
            end->max == -INFINITY ? -INFINITY : end->max + logf(end->sum);
    }
}

void output_write(const struct run *run, int32_t row_idx, int32_t q0, int32_t q1, int32_t head,
                  const struct scratch *s)
{
    size_t r = 0;
    for (int32_t i = q0; i < q1; i++) {
        const size_t token = (size_t)(run->rows[row_idx].q_begin + i);
        for (int32_t g = 0; g < run->heads_per_kv; g++, r++) {
            const size_t query_head = (size_t)(head * run->heads_per_kv + g);
            const struct denominator end =
                close_sum(s->total_max[r], s->total_sum[r], sink_of(run, query_head));
            write_query(run, token, head, query_head, &end, s->total + r * s->acc_stride);
        }
    }
}
