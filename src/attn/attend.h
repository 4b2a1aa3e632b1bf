/* SPDX-License-Identifier: MIT
 *
 * attend.h: the attend tasks of a plan. */
#ifndef PKV_ATTN_ATTEND_H
#define PKV_ATTN_ATTEND_H

#include "attn/run.h"

/* A task of one row: its new keys are stored first, unless the append phase has done so. Writes the
 * outputs of its queries, or the partial results that the plan gave it. */
void attend_own(const struct run *run, const struct plan_task *task, float *memory);

/* A task of several rows that share its span; leaves one partial result per KV head. */
void attend_shared(const struct run *run, const struct plan_task *task, float *memory);

/* Floats of scratch that one worker needs for tasks of at most num_query_rows query rows. */
size_t attend_scratch_floats(const struct gqa_shape *shape, size_t num_query_rows);

#endif
