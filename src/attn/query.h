/* SPDX-License-Identifier: MIT
 *
 * query.h: q of an attend task in f32, as the dot products take it. */
#ifndef PKV_ATTN_QUERY_H
#define PKV_ATTN_QUERY_H

#include "attn/run.h"
#include "attn/scratch.h"

/* Queries that each KV head of the task has: the rows that share a span have one each. */
static inline int32_t query_count(const struct plan_task *task)
{
    return task->num_shared_rows > 0 ? task->num_shared_rows : task->q1 - task->q0;
}

/* Query rows of one KV head of the task. */
static inline size_t query_rows(const struct run *run, const struct plan_task *task)
{
    return (size_t)query_count(task) * (size_t)run->heads_per_kv;
}

/* Fills s->q with all query rows of the task; s->keys is overwritten. */
void query_load(const struct run *run, const struct plan_task *task, const struct scratch *s);

#endif
