/* SPDX-License-Identifier: MIT
 *
 * partial.h: the state of online softmax over one span, (max, sum, acc) per query row, and merging
 * such states in ascending order of spans, whether one task walked all of them or each left a
 * partial result for the merge phase. */
#ifndef PKV_ATTN_PARTIAL_H
#define PKV_ATTN_PARTIAL_H

#include "attn/run.h"
#include "attn/scratch.h"

/* Floats of one partial result for one KV head: [rows] maxima, [rows] sums, [rows][acc_stride]. */
static inline size_t partial_floats(const struct gqa_shape *shape, size_t rows)
{
    return rows * (padded((size_t)shape->v_width) + 2);
}

/* Lets s keep the span's state of a task of one KV head in partial result `partial` itself, which
 * spares the copy. False, and s as it was, where the state's rows would not begin with a line of
 * the cache: then it is to be saved. */
bool partial_place(const struct run *run, int32_t partial, int32_t head, size_t rows,
                   struct scratch *s);

/* The span's state into partial result `partial` of one KV head. */
void partial_save(const struct run *run, int32_t partial, int32_t head, size_t rows,
                  const struct scratch *s);

/* The span's state into the total. */
void partial_merge_span(const struct run *run, const struct scratch *s, size_t rows);

/* A merge task: all partial results of a chunk of queries, for one KV head, and its output. */
void partial_merge(const struct run *run, const struct plan_merge *merge, int32_t head,
                   float *memory);

#endif
