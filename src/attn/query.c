/* SPDX-License-Identifier: MIT
 *
 * query.c: widening, rotating and norming q, once a task and never rounded. */
#include "attn/query.h"

#include <string.h>

#include "attn/prepare.h"

/* The scale of a quantised channel moves from the stored keys into q, which is linear in them. */
static void scale_channels(float *x, const float *scales, size_t width)
{
    for (size_t c = 0; c < width; c++) {
        x[c] *= scales[c];
    }
}

/* One query of a row, its query heads of KV head `head` one below the other: rotated, normed,
 * padded with zeros, and packed where the dot products want it so. */
static void load_query(const struct run *run, const struct gqa_row *row, int32_t query,
                       int32_t head, float *to, struct kernel_digits *digits, float *spare)
{
    const struct gqa_layer *layer = run->layer;
    const struct pkv_attn_constants *c = run->constants;
    const size_t width = (size_t)run->plan->shape.k_width;
    const size_t stride = padded(width);
    const size_t element = pkv_dtype_bytes(layer->dtype);
    const size_t token = (size_t)(row->q_begin + query);
    const int64_t position = run_position(run, row, gqa_row_past(row) + query);
    for (int32_t g = 0; g < run->heads_per_kv; g++, to += stride) {
        const size_t at = token * layer->q_stride + (size_t)(head * run->heads_per_kv + g) * width;
        run->kernels->widen(layer->dtype, (const char *)layer->q + at * element, width, to);
        prepare_head(run, to, position, c->q_norm_gain, c->q_norm_gain_dtype, spare);
        if (c->k_scale_count > 1) {
            scale_channels(to, c->k_scale + (size_t)head * width, width);
        }
        memset(to + width, 0, (stride - width) * sizeof to[0]);
        if (run->packed_parts > 0) {
            run->kernels->pack(to, stride, spare);
        } else if (run->int8_keys) {
            run->kernels->pack_int8(to, stride, run->logit_scale, &digits[g]);
        }
    }
}

/* The i-th query of the task: of its own row, or the one query of the i-th row that shares. */
static void load_task_query(const struct run *run, const struct plan_task *task, int32_t i,
                            int32_t head, float *to, struct kernel_digits *digits, float *spare)
{
    if (task->num_shared_rows == 0) {
        load_query(run, &run->rows[task->row], task->q0 + i, head, to, digits, spare);
        return;
    }
    const int32_t *rows = run->plan->shared_rows.memory;
    load_query(run, &run->rows[rows[task->first_shared_row + i]], 0, head, to, digits, spare);
}

void query_load(const struct run *run, const struct plan_task *task, const struct scratch *s)
{
    const size_t query_floats = (size_t)run->heads_per_kv * s->q_stride;
    float *q = s->q;
    struct kernel_digits *digits = s->digits;
    for (int32_t h = 0; h < task->num_heads; h++) {
        for (int32_t i = 0; i < query_count(task); i++) {
            load_task_query(run, task, i, task->head + h, q, digits, s->keys);
            q += query_floats;
            digits += run->heads_per_kv;
        }
    }
}
