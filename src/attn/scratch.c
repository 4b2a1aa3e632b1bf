/* SPDX-License-Identifier: MIT
 *
 * scratch.c: the layout of a worker's scratch, told once for its size and its addresses. */
#include "attn/scratch.h"

#include <math.h>
#include <string.h>

#include "base/hooks.h"

/* Kernels include nothing of base. */
_Static_assert(LINE_BYTES == HOOKS_CACHE_LINE, "the lines of one cache");
_Static_assert(NUM_DTYPES == PKV_E4M3 + 1, "dtypes are counted from 0 to the last");

struct scratch scratch_carve(const struct gqa_shape *shape, size_t rows, float *memory)
{
    struct scratch s = {.q_stride = padded((size_t)shape->k_width),
                        .acc_stride = padded((size_t)shape->v_width)};
    const size_t lanes = padded(rows);
    float *digits = NULL;
    size_t at = 0;
    const struct {
        float **part;
        size_t floats;
    } parts[] = {
        {&s.q, rows * s.q_stride},
        {&s.acc, rows * s.acc_stride},
        {&s.total, rows * s.acc_stride},
        {&s.scores, rows * TILE_KEYS},
        {&s.max, lanes},
        {&s.sum, lanes},
        {&s.alpha, lanes},
        {&s.total_max, lanes},
        {&s.total_sum, lanes},
        {&digits, padded(rows * (sizeof(struct kernel_digits) / sizeof(float)))},
        {&s.keys, TILE_KEYS * s.q_stride},
        {&s.values, TILE_KEYS * s.acc_stride},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        *parts[i].part = memory != NULL ? memory + at : NULL;
        at += parts[i].floats;
    }
    s.digits = (struct kernel_digits *)digits;
    s.end = at;
    return s;
}

struct scratch scratch_from(const struct scratch *s, size_t first)
{
    struct scratch part = *s;
    part.q += first * s->q_stride;
    part.acc += first * s->acc_stride;
    part.total += first * s->acc_stride;
    part.scores += first * TILE_KEYS;
    part.max += first;
    part.sum += first;
    part.alpha += first;
    part.total_max += first;
    part.total_sum += first;
    part.digits += first;
    return part;
}

static void start_states(float *max, float *sum, float *acc, size_t rows, size_t stride)
{
    for (size_t r = 0; r < rows; r++) {
        max[r] = -INFINITY;
        sum[r] = 0.0f;
    }
    memset(acc, 0, rows * stride * sizeof acc[0]);
}

void scratch_start_span(const struct scratch *s, size_t rows)
{
    start_states(s->max, s->sum, s->acc, rows, s->acc_stride);
}

void scratch_start_total(const struct scratch *s, size_t rows)
{
    start_states(s->total_max, s->total_sum, s->total, rows, s->acc_stride);
}
