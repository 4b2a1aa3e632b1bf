/* SPDX-License-Identifier: MIT
 *
 * scratch.h: a worker's floats, carved for the attend or merge task at hand. Query rows are ordered
 * by (KV head, query, query head of that KV head). Strides are padded, see kernels.h. */
#ifndef PKV_ATTN_SCRATCH_H
#define PKV_ATTN_SCRATCH_H

#include "attn/gqa_shape.h"
#include "attn/kernels.h"

struct scratch {
    size_t q_stride, acc_stride;
    float *q;                                         /* [rows][q_stride] */
    float *acc;                                       /* [rows][acc_stride], of the span */
    float *total;                                     /* [rows][acc_stride] */
    float *scores;                                    /* [rows][TILE_KEYS] */
    float *max, *sum, *alpha, *total_max, *total_sum; /* [rows] */
    struct kernel_digits *digits;                     /* [rows], of q, for int8 keys */
    float *keys;                                      /* [TILE_KEYS][q_stride], a tile converted */
    float *values;                                    /* [TILE_KEYS][acc_stride] */
    size_t end;
};

/* memory NULL: only counts, in end. */
struct scratch scratch_carve(const struct gqa_shape *shape, size_t rows, float *memory);

/* The same scratch from row `first` on. */
struct scratch scratch_from(const struct scratch *s, size_t first);

/* Empty states, (max -inf, sum 0, acc 0), for `rows` query rows: of the span, and in total. */
void scratch_start_span(const struct scratch *s, size_t rows);
void scratch_start_total(const struct scratch *s, size_t rows);

#endif
