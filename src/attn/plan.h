/* SPDX-License-Identifier: MIT
 *
 * plan.h: the work of a step in three phases of tasks: appends (of rows whose append must be done
 * before any of their keys is read), attend tasks, merges of partial results. A plan is filled by
 * split.c and read by every layer's run.
 *
 *   An attend task covers, for num_heads KV heads, either queries [q0, q1) of one row against its
 *   spans [span0, span1), or the one query of each of several rows against a span that they share.
 *   A task that covers all spans of its queries writes the output. Any other leaves one partial
 *   result per visible span and KV head, numbered from `partial` on, and a merge combines those of
 *   one chunk of queries in ascending order of spans.
 *
 *   Where KV heads have lists of selected blocks of their own, a task and a merge are of one head,
 *   and the heads count their partial results from the same number on.
 *
 * num_* count what is in force in the buffers, which keep their size from step to step. */
#ifndef PKV_ATTN_PLAN_H
#define PKV_ATTN_PLAN_H

#include "attn/buffer.h"
#include "attn/call.h"
#include "attn/gqa_row.h"
#include "attn/gqa_shape.h"

/* Max query rows (queries x query heads) of a task: enough to pay for a tile's conversion, few
 * enough for their scores and sums to stay in the first-level cache. */
#define MAX_TASK_ROWS 64

struct plan_task {
    int32_t row;
    int32_t q0, q1;
    int32_t head, num_heads;
    int32_t span0, span1;
    int32_t partial;          /* -1: it covers all spans */
    int32_t first_shared_row; /* index into shared_rows */
    int32_t num_shared_rows;  /* 0: it is the row's own */
    int64_t cost;             /* visible keys x query rows */
};

/* The partial results of queries [q0, q1): those of shared spans (a list from first_part on,
 * -1 = none), then num_partials of their own. */
struct plan_merge {
    int32_t row;
    int32_t q0, q1;
    int32_t head; /* the first of those that see the same keys */
    int32_t first_part;
    int32_t partial;
    int32_t num_partials;
};

/* A row's part of the partial results of num_partials shared spans: its query is the index-th of
 * the num_rows that attended together. */
struct plan_shared_part {
    int32_t next; /* in the row's list, -1 = last */
    int32_t partial;
    int32_t num_partials;
    int32_t index;
    int32_t num_rows;
};

/* A row's list of parts, and how many of its first spans they cover. */
struct plan_shared {
    int32_t first_part;
    int32_t last_part;
    int32_t num_spans;
};

struct pkv_plan {
    pkv_workspace *workspace; /* that it was made with */
    const struct pkv_hooks *hooks;
    int32_t num_threads;
    bool ready; /* split, and not refused since */
    struct gqa_shape shape;
    struct call_planned call; /* of a raw call */

    int32_t num_rows, num_appends, num_tasks, num_merges, num_partials;
    struct buffer rows;        /* struct gqa_row */
    struct buffer ranges;      /* struct pkv_token_range, of a raw call's rows */
    struct buffer selected;    /* int32_t: cu_selected, then the blocks, likewise */
    struct buffer trees;       /* uint64_t: bits and depths of the rows that are trees (tree.h) */
    struct buffer appends;     /* int32_t, indices of rows */
    struct buffer tasks;       /* struct plan_task */
    struct buffer merges;      /* struct plan_merge */
    struct buffer first_tasks; /* int32_t [num_threads + 1]: worker w begins with [w, w + 1) */

    int32_t num_shared_parts, num_shared_rows;
    struct buffer shared;       /* struct plan_shared [num_rows] */
    struct buffer shared_parts; /* struct plan_shared_part */
    struct buffer shared_rows;  /* int32_t, the rows of shared tasks */
    int32_t num_search_sets;
    struct buffer search_order, search_sets, search_chains; /* shared_prefix.c's, while it looks */

    int32_t block_queries; /* max queries of a task */
    size_t partial_floats; /* of one partial result and KV head */
    size_t scratch_floats; /* of one worker */
    int32_t num_active;    /* threads that are worth waking, of num_threads */
    int64_t thread_ns;     /* >= 1: of work that one has to have for that */
    int64_t cost;          /* of all tasks, all heads counted; capped */
    int64_t cost_limit;    /* that one task should not exceed by much */
    int64_t num_read_keys; /* see gqa_plan_read_keys; capped */
};

/* An empty plan; NULL when there is no memory. hooks must outlive it. */
pkv_plan *plan_create(pkv_workspace *workspace, const struct pkv_hooks *hooks, int32_t num_threads);
void plan_destroy(pkv_plan *plan);

/* Adds the task for each num_heads of the KV heads alike from task->head on, with these spans,
 * partial and cost: what differs between the cuts of a block goes past *task, which stays as it is
 * and is fast to copy. false when there is no memory. */
bool plan_push_tasks(pkv_plan *plan, const struct plan_task *task, int32_t span0, int32_t span1,
                     int32_t partial, int64_t cost);

/* True when there are numbers for so many more partial results. */
bool plan_can_number(const pkv_plan *plan, int32_t num_partials);

/* KV heads that one task should take: a divisor of those that see the same keys, as many as keep
 * its query rows (`rows` per KV head) within MAX_TASK_ROWS and its cost (`cost` per KV head) within
 * the limit. */
int32_t plan_task_heads(const pkv_plan *plan, int64_t rows, int64_t cost);

/* True for a row whose append is a phase of its own: several tasks read its new keys, it copies, or
 * its tasks may pass over new keys, which nobody selected. */
static inline bool plan_appends_first(const pkv_plan *plan, const struct gqa_row *row)
{
    const bool selects = plan->shape.selection_size > 0 && row->q_len > 0;
    return row->q_len > plan->block_queries || row->copy_cells > 0 || selects;
}

#endif
