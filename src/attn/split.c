/* SPDX-License-Identifier: MIT
 *
 * split.c: cutting the work of a step. A row's queries are cut into blocks of at most
 * block_queries. A block is one task, which walks all spans that it sees, unless that would leave
 * threads idle: then its spans are dealt to several tasks, each of which leaves one partial result
 * per span, and a merge combines them in ascending order. A task that covers all spans merges them
 * in the same order as it goes, so the split never shows in the result.
 *
 * Costs are visible keys x query rows. */
#include "attn/split.h"

#include "attn/shared_prefix.h"
#include "attn/visible.h"
#include "base/checked.h"
#include "base/error.h"

/* Tasks that a thread should have to choose from. */
#define TASKS_PER_THREAD 16

/* What one thread does in a nanosecond, about: bytes that it reads, and operations. Keys and values
 * are counted with two bytes a channel, whatever the cache's dtype is, which is a layer's. */
#define BYTES_PER_NS 32
#define OPERATIONS_PER_NS 128

static int32_t block_end(const struct pkv_plan *plan, const struct gqa_row *row, int32_t q0)
{
    return row->q_len - q0 > plan->block_queries ? q0 + plan->block_queries : row->q_len;
}

/* Max cost of one task, all its heads counted. Division is of no use to one
 * thread. */
static int64_t cost_limit(const pkv_plan *plan)
{
    const int64_t tasks = (int64_t)plan->num_active * TASKS_PER_THREAD;
    return plan->num_active > 1 ? plan->cost / tasks + 1 : INT64_MAX;
}

/* Cuts the spans of a block between tasks of about the cost limit; *partials counts the spans.
 * O(tasks): a long row has many more spans than there are threads to deal them to. */
static bool cut_spans(pkv_plan *plan, const struct visible *seen, const struct plan_task *task,
                      int32_t *partials)
{
    const int32_t num_spans = visible_num_spans(seen);
    const int64_t rows =
        (int64_t)(task->q1 - task->q0) * gqa_shape_heads_per_kv(&plan->shape) * task->num_heads;
    const int64_t keys = divide_up(plan->cost_limit, rows);
    int32_t span0 = task->span0;
    while (span0 < num_spans) {
        const int32_t span1 = visible_span_end(seen, span0, keys);
        const int32_t seen_keys =
            visible_count(seen, (int64_t)span0 * SPAN_KEYS, (int64_t)span1 * SPAN_KEYS);
        if (!plan_push_tasks(plan, task, span0, span1, task->partial + *partials,
                             seen_keys * rows)) {
            return false;
        }
        *partials += visible_spans_between(seen, span0, span1);
        span0 = visible_span(seen, span1);
    }
    return true;
}

/* The block's spans from the end of its shared prefix on, as several tasks with partial results and
 * a merge of these and the shared ones. When that makes only one task and nothing is shared, the
 * task keeps its result and there is no merge. */
static bool split_into_partials(pkv_plan *plan, const struct visible *seen, struct plan_task task)
{
    const struct plan_shared *shared = (const struct plan_shared *)plan->shared.memory + task.row;
    const int32_t first_task = plan->num_tasks;
    int32_t partials = 0;
    if (!plan_can_number(plan, visible_num_spans(seen)) ||
        !cut_spans(plan, seen, &task, &partials)) {
        return false;
    }
    const int32_t num_cuts =
        (plan->num_tasks - first_task) / (gqa_shape_heads_alike(&plan->shape) / task.num_heads);
    if (num_cuts > 1 || shared->first_part >= 0) {
        const struct plan_merge merge = {
            task.row, task.q0, task.q1, task.head, shared->first_part, task.partial, partials,
        };
        plan->num_partials = max_i32(plan->num_partials, task.partial + partials);
        return buffer_push(plan->hooks, &plan->merges, &plan->num_merges, &merge, sizeof merge);
    }
    struct plan_task *tasks = plan->tasks.memory;
    for (int32_t i = first_task; i < plan->num_tasks; i++) {
        tasks[i].partial = -1;
    }
    return true;
}

/* One chunk of queries for the KV heads alike from `head` on, in one task (times heads) when it
 * costs less than the limit and shares no span with other rows. Partial results are numbered from
 * `partial` on. */
static bool split_heads(pkv_plan *plan, int32_t row_idx, int32_t q0, int32_t head, int32_t partial)
{
    const struct gqa_row *row = (const struct gqa_row *)plan->rows.memory + row_idx;
    const struct plan_shared *shared = (const struct plan_shared *)plan->shared.memory + row_idx;
    const int32_t q1 = block_end(plan, row, q0);
    const struct visible seen = visible_to(row, &plan->shape, head, q0, q1);
    const int64_t rows = (int64_t)(q1 - q0) * gqa_shape_heads_per_kv(&plan->shape);
    const int32_t keys = visible_count(&seen, 0, seen.end);
    struct plan_task task = {
        .row = row_idx,
        .q0 = q0,
        .q1 = q1,
        .head = head,
        .num_heads = plan_task_heads(plan, rows, min_i32(keys, SPAN_KEYS) * rows),
        .span0 = visible_span(&seen, shared->num_spans),
        .partial = partial,
    };
    const int64_t own_keys = visible_count(&seen, (int64_t)task.span0 * SPAN_KEYS, seen.end);
    plan->num_read_keys =
        capped_add(plan->num_read_keys, own_keys * gqa_shape_heads_alike(&plan->shape));
    const int64_t cost = keys * rows * task.num_heads;
    if (shared->first_part >= 0 || cost >= plan->cost_limit) {
        return split_into_partials(plan, &seen, task);
    }
    return plan_push_tasks(plan, &task, task.span0, visible_num_spans(&seen), -1, cost);
}

static bool split_block(pkv_plan *plan, int32_t row_idx, int32_t q0)
{
    const int32_t partial = plan->num_partials;
    const int32_t alike = gqa_shape_heads_alike(&plan->shape);
    for (int32_t h = 0; h < plan->shape.kv_heads; h += alike) {
        if (!split_heads(plan, row_idx, q0, h, partial)) {
            return false;
        }
    }
    return true;
}

/* Keys that queries [q0, q1) of a row see, summed over KV heads. */
static int64_t keys_of_heads(const pkv_plan *plan, const struct gqa_row *row, int32_t q0,
                             int32_t q1)
{
    const int32_t alike = gqa_shape_heads_alike(&plan->shape);
    int64_t keys = 0;
    for (int32_t h = 0; h < plan->shape.kv_heads; h += alike) {
        const struct visible seen = visible_to(row, &plan->shape, h, q0, q1);
        keys += (int64_t)visible_count(&seen, 0, seen.end) * alike;
    }
    return keys;
}

/* The cost of all rows, as if nothing were shared, and the keys that they read. */
static int64_t rows_cost(const pkv_plan *plan, int64_t *keys)
{
    const struct gqa_row *rows = plan->rows.memory;
    int64_t cost = 0;
    for (int32_t b = 0; b < plan->num_rows; b++) {
        for (int32_t q0 = 0, q1; q0 < rows[b].q_len; q0 = q1) {
            q1 = block_end(plan, &rows[b], q0);
            const int64_t seen_keys = keys_of_heads(plan, &rows[b], q0, q1);
            const int64_t query_rows = (int64_t)(q1 - q0) * gqa_shape_heads_per_kv(&plan->shape);
            *keys = capped_add(*keys, seen_keys);
            cost = capped_add(cost, capped_mul(seen_keys, query_rows));
        }
    }
    return cost;
}

/* As many threads as have work for thread_ns each: a call that is over before another thread wakes
 * is better off alone. It depends on the sizes of the call, not on a clock. */
static int32_t active_threads(const pkv_plan *plan, int64_t keys)
{
    const int64_t channels = (int64_t)plan->shape.k_width + plan->shape.v_width;
    const int64_t read_ns = capped_mul(keys, 2 * channels) / BYTES_PER_NS;
    const int64_t compute_ns = capped_mul(plan->cost, 2 * channels) / OPERATIONS_PER_NS;
    const int64_t ns = read_ns > compute_ns ? read_ns : compute_ns;
    const int64_t worth = ns / plan->thread_ns;
    return worth < 1 ? 1 : worth < plan->num_threads ? (int32_t)worth : plan->num_threads;
}

static bool split_row(pkv_plan *plan, int32_t b)
{
    const struct gqa_row *row = (const struct gqa_row *)plan->rows.memory + b;
    if (plan_appends_first(plan, row) &&
        !buffer_push(plan->hooks, &plan->appends, &plan->num_appends, &b, sizeof b)) {
        return false;
    }
    for (int32_t q0 = 0; q0 < row->q_len; q0 = block_end(plan, row, q0)) {
        if (!split_block(plan, b, q0)) {
            return false;
        }
    }
    return true;
}

static bool split_rows(pkv_plan *plan)
{
    int64_t keys = 0;
    plan->cost = rows_cost(plan, &keys);
    plan->num_active = active_threads(plan, keys);
    plan->cost_limit = cost_limit(plan);
    if (!shared_prefix_split(plan)) {
        return false;
    }
    for (int32_t b = 0; b < plan->num_rows; b++) {
        if (!split_row(plan, b)) {
            return false;
        }
    }
    return true;
}

/* Which tasks each worker starts with: consecutive ones of about equal cost, the same in every
 * layer, so that a worker finds its own rows' pages in its cache. The others get none. */
static bool deal_tasks(pkv_plan *plan)
{
    const int32_t threads = plan->num_threads;
    const size_t bytes = ((size_t)threads + 1) * sizeof(int32_t);
    if (!buffer_grow(plan->hooks, &plan->first_tasks, bytes)) {
        return false;
    }
    int32_t *first = plan->first_tasks.memory;
    const struct plan_task *tasks = plan->tasks.memory;
    plan->cost = 0;
    for (int32_t i = 0; i < plan->num_tasks; i++) {
        plan->cost = capped_add(plan->cost, tasks[i].cost);
    }
    const int32_t active = plan->num_active;
    const int64_t share = plan->cost / active;
    const int64_t rest = plan->cost % active;
    int32_t task = 0;
    int64_t dealt = 0;
    for (int32_t w = 0; w <= threads; w++) {
        const int64_t due = w < active ? share * w + rest * w / active : plan->cost;
        while (task < plan->num_tasks && (dealt < due || w >= active)) {
            dealt = capped_add(dealt, tasks[task].cost);
            task++;
        }
        first[w] = task;
    }
    return true;
}

enum pkv_status split_plan(pkv_plan *plan)
{
    const int32_t kv_heads = plan->shape.kv_heads;
    plan->num_appends = plan->num_tasks = plan->num_merges = plan->num_partials = 0;
    plan->num_shared_parts = plan->num_shared_rows = plan->num_search_sets = 0;
    plan->num_read_keys = 0;
    plan->block_queries = max_i32(1, MAX_TASK_ROWS / gqa_shape_heads_per_kv(&plan->shape));
    if (!split_rows(plan) || !deal_tasks(plan)) {
        return refuse(PKV_NO_MEMORY, "no memory for a plan of %d rows", plan->num_rows);
    }
    const int64_t max_tasks = (int64_t)max_i32(plan->num_rows, plan->num_merges) * kv_heads;
    if (max_tasks > INT32_MAX) {
        return INVALID("%d rows of %d KV heads, more than %d tasks", plan->num_rows, kv_heads,
                       INT32_MAX);
    }
    return PKV_OK;
}
