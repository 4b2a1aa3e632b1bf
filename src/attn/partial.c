/* SPDX-License-Identifier: MIT
 *
 * partial.c: where partial results lie, and the arithmetic of merging: both sides are scaled by exp
 * of their maximum minus the larger one, then added. */
#include "attn/partial.h"

#include <math.h>
#include <string.h>

#include "attn/output.h"

/* (max, sum, acc) into (total_max, total_sum, total): the sums are rescaled to the larger maximum.
 * Nothing merged is nothing changed, and merging into nothing is a copy. */
static void merge_state(const struct kernels *kernels, float *total_max, float *total_sum,
                        float *total, float max, float sum, const float *acc, size_t width)
{
    if (max == -INFINITY) {
        return;
    }
    if (*total_max == -INFINITY) {
        *total_max = max;
        *total_sum = sum;
        memcpy(total, acc, width * sizeof total[0]);
        return;
    }
    const float larger = *total_max > max ? *total_max : max;
    const float keep = expf(*total_max - larger);
    const float add = expf(max - larger);
    kernels->merge(total, keep, acc, add, width);
    *total_sum = *total_sum * keep + sum * add;
    *total_max = larger;
}

static float *partial_of(const struct run *run, int32_t partial, int32_t head)
{
    const size_t index = (size_t)partial * (size_t)run->plan->shape.kv_heads + (size_t)head;
    return run->partials + index * run->plan->partial_floats;
}

bool partial_place(const struct run *run, int32_t partial, int32_t head, size_t rows,
                   struct scratch *s)
{
    float *to = partial_of(run, partial, head);
    if ((uintptr_t)(to + 2 * rows) % LINE_BYTES != 0) {
        return false;
    }
    s->max = to;
    s->sum = to + rows;
    s->acc = to + 2 * rows;
    return true;
}

void partial_save(const struct run *run, int32_t partial, int32_t head, size_t rows,
                  const struct scratch *s)
{
    float *to = partial_of(run, partial, head);
    memcpy(to, s->max, rows * sizeof to[0]);
    memcpy(to + rows, s->sum, rows * sizeof to[0]);
    memcpy(to + 2 * rows, s->acc, rows * s->acc_stride * sizeof to[0]);
}

static void merge_rows(const struct run *run, const struct scratch *s, size_t rows,
                       const float *max, const float *sum, const float *acc)
{
    for (size_t r = 0; r < rows; r++) {
        merge_state(run->kernels, &s->total_max[r], &s->total_sum[r], s->total + r * s->acc_stride,
                    max[r], sum[r], acc + r * s->acc_stride, s->acc_stride);
    }
}

void partial_merge_span(const struct run *run, const struct scratch *s, size_t rows)
{
    merge_rows(run, s, rows, s->max, s->sum, s->acc);
}

/* The row's part of what shared tasks left: of the rows that attended together, its own alone. */
static void merge_shared_parts(const struct run *run, int32_t first_part, int32_t head,
                               const struct scratch *s)
{
    const struct plan_shared_part *parts = run->plan->shared_parts.memory;
    const size_t rows = (size_t)run->heads_per_kv; /* query rows of one query */
    for (int32_t i = first_part; i >= 0; i = parts[i].next) {
        const size_t all_rows = (size_t)parts[i].num_rows * rows;
        const size_t first = (size_t)parts[i].index * rows;
        for (int32_t p = 0; p < parts[i].num_partials; p++) {
            const float *partial = partial_of(run, parts[i].partial + p, head);
            merge_rows(run, s, rows, partial + first, partial + all_rows + first,
                       partial + 2 * all_rows + first * s->acc_stride);
        }
    }
}

void partial_merge(const struct run *run, const struct plan_merge *merge, int32_t head,
                   float *memory)
{
    const size_t rows = (size_t)(merge->q1 - merge->q0) * (size_t)run->heads_per_kv;
    const struct scratch s = scratch_carve(&run->plan->shape, rows, memory);
    scratch_start_total(&s, rows);
    merge_shared_parts(run, merge->first_part, head, &s);
    for (int32_t i = 0; i < merge->num_partials; i++) {
        const float *partial = partial_of(run, merge->partial + i, head);
        merge_rows(run, &s, rows, partial, partial + rows, partial + 2 * rows);
    }
    output_write(run, merge->row, merge->q0, merge->q1, head, &s);
}
