/* SPDX-License-Identifier: MIT
 *
 * shared_prefix.c: rows of one query whose tables begin with the same blocks read the same keys. A
 * shared task attends a span for all of them at once, so the span is read once. It leaves a partial
 * result per span and row, as any task that covers a part of the spans does, and each row's merge
 * takes these before its own: per query, the arithmetic and its order are those of the row alone,
 * so sharing never shows in the result.
 *
 * Only spans that each of the rows sees whole are shared: no window, selection or mask, keys below
 * the new one. Rows with the same first block (found by hashing) form a set. A set goes through its
 * spans together until tables differ; then it is divided in two, and each part goes on by itself.
 */
#include "attn/shared_prefix.h"

#include <string.h>

#include "attn/kernels.h"
#include "base/build.h"
#include "base/checked.h"
#include "base/minmax.h"

/* Each table's first entry lies in a page of its own: so many rows ahead it is loaded. */
#define PREFETCH_ROWS 16

/* Rows search_order[begin, end) share all spans before `span`. */
struct row_set {
    int32_t begin;
    int32_t end;
    int32_t span;
};

static const struct gqa_row *row_at(const pkv_plan *plan, int32_t at)
{
    const int32_t *order = plan->search_order.memory;
    return (const struct gqa_row *)plan->rows.memory + order[at];
}

/* Whole spans below the row's new key. */
static int32_t past_spans(const struct gqa_row *row)
{
    return gqa_row_past(row) / SPAN_KEYS;
}

static bool same_span(const pkv_plan *plan, int32_t a, int32_t b, int32_t span)
{
    const struct gqa_row *x = row_at(plan, a);
    const struct gqa_row *y = row_at(plan, b);
    if (span >= past_spans(x) || span >= past_spans(y)) {
        return false;
    }
    const int64_t block_size = plan->shape.block_size;
    const size_t first = (size_t)((int64_t)span * SPAN_KEYS / block_size);
    const size_t last = (size_t)((((int64_t)span + 1) * SPAN_KEYS - 1) / block_size);
    return memcmp(x->table + first, y->table + first, (last - first + 1) * sizeof x->table[0]) == 0;
}

/* Moves the rows that share `span` with the first row of the set next to it; returns their end. */
static int32_t gather_equal_span(pkv_plan *plan, const struct row_set *set, int32_t span)
{
    int32_t *order = plan->search_order.memory;
    int32_t end = set->begin + 1;
    for (int32_t i = end; i < set->end; i++) {
        if (same_span(plan, set->begin, i, span)) {
            const int32_t row = order[i];
            order[i] = order[end];
            order[end] = row;
            end++;
        }
    }
    return end;
}

/* Appends a part to the row's list; its shared spans now end at num_spans. */
static bool add_part(pkv_plan *plan, int32_t row, int32_t num_spans,
                     const struct plan_shared_part *part)
{
    struct plan_shared *shared = (struct plan_shared *)plan->shared.memory + row;
    const int32_t index = plan->num_shared_parts;
    if (!buffer_push(plan->hooks, &plan->shared_parts, &plan->num_shared_parts, part,
                     sizeof *part)) {
        return false;
    }
    if (shared->last_part >= 0) {
        struct plan_shared_part *parts = plan->shared_parts.memory;
        parts[shared->last_part].next = index;
    } else {
        shared->first_part = index;
    }
    shared->last_part = index;
    shared->num_spans = num_spans;
    return true;
}

/* Records rows[0, count) as the rows of one task, each with its part of the partial results of
 * num_spans spans, the last before end_span. The ids are copied: their order goes on changing as
 * the set is divided. */
static bool record_rows(pkv_plan *plan, const int32_t *rows, int32_t count, int32_t num_spans,
                        int32_t end_span)
{
    for (int32_t i = 0; i < count; i++) {
        const struct plan_shared_part part = {-1, plan->num_partials, num_spans, i, count};
        if (!buffer_push(plan->hooks, &plan->shared_rows, &plan->num_shared_rows, &rows[i],
                         sizeof rows[i]) ||
            !add_part(plan, rows[i], end_span, &part)) {
            return false;
        }
    }
    return true;
}

/* Tasks for the spans [span0, span1) of rows search_order[begin, begin + count). */
static bool share_among(pkv_plan *plan, int32_t begin, int32_t count, int32_t span0, int32_t span1)
{
    const int32_t *order = (const int32_t *)plan->search_order.memory + begin;
    const int64_t rows = (int64_t)count * gqa_shape_heads_per_kv(&plan->shape);
    const struct plan_task task = {
        .row = order[0],
        .q1 = 1,
        .first_shared_row = plan->num_shared_rows,
        .num_shared_rows = count,
        .num_heads = plan_task_heads(plan, rows, SPAN_KEYS * rows),
    };
    const int64_t cost = SPAN_KEYS * rows * task.num_heads;
    if (!plan_can_number(plan, span1 - span0) ||
        !record_rows(plan, order, count, span1 - span0, span1)) {
        return false;
    }
    for (int32_t span = span0; span < span1; span++) {
        const int32_t partial = plan->num_partials + span - span0;
        if (!plan_push_tasks(plan, &task, span, span + 1, partial, cost)) {
            return false;
        }
    }
    const int64_t keys = (int64_t)(span1 - span0) * SPAN_KEYS * plan->shape.kv_heads;
    plan->num_read_keys = capped_add(plan->num_read_keys, keys);
    plan->num_partials += span1 - span0;
    return true;
}

/* The same for a whole set up to span1, as many rows at once as a task takes. */
static bool share_spans(pkv_plan *plan, const struct row_set *set, int32_t span1)
{
    for (int32_t begin = set->begin; begin < set->end; begin += plan->block_queries) {
        const int32_t count = min_i32(set->end - begin, plan->block_queries);
        if (!share_among(plan, begin, count, set->span, span1)) {
            return false;
        }
    }
    return true;
}

/* One set: shares the spans that all of it has, then pushes the two parts that it divides into. */
static bool share_set(pkv_plan *plan, struct row_set set)
{
    int32_t span = set.span;
    int32_t end = gather_equal_span(plan, &set, span);
    while (end == set.end) {
        span++;
        end = gather_equal_span(plan, &set, span);
    }
    if (span > set.span && !share_spans(plan, &set, span)) {
        return false;
    }
    const struct row_set parts[] = {{set.begin, end, span}, {end, set.end, span}};
    for (size_t i = 0; i < 2; i++) {
        if (parts[i].end - parts[i].begin > 1 &&
            !buffer_push(plan->hooks, &plan->search_sets, &plan->num_search_sets, &parts[i],
                         sizeof parts[i])) {
            return false;
        }
    }
    return true;
}

/* Chains of rows by first block: chain[head of a bucket] .. next[row] .. -1, in an open-addressed
 * table of at least twice as many buckets as rows. */
struct chains {
    int32_t *heads;
    int32_t *next;
    uint32_t mask;
};

static int32_t *bucket_of(const struct chains *chains, const struct gqa_row *rows, int32_t block)
{
    /* By the high bits of the product: sequences begin at multiples of powers of two. */
    const uint64_t hash = (uint32_t)block * 2654435761u;
    uint32_t at = (uint32_t)(hash * (chains->mask + UINT64_C(1)) >> 32);
    while (chains->heads[at] >= 0 && rows[chains->heads[at]].table[0] != block) {
        at = (at + 1) & chains->mask;
    }
    return &chains->heads[at];
}

static bool start_search(pkv_plan *plan, struct chains *chains)
{
    const size_t num_rows = (size_t)plan->num_rows + 1;
    size_t buckets = 2;
    while (buckets < 2 * num_rows) {
        buckets *= 2;
    }
    const struct pkv_hooks *hooks = plan->hooks;
    if (!buffer_grow(hooks, &plan->search_order, num_rows * sizeof(int32_t)) ||
        !buffer_grow(hooks, &plan->shared, num_rows * sizeof(struct plan_shared)) ||
        !buffer_grow(hooks, &plan->search_chains, (buckets + num_rows) * sizeof(int32_t))) {
        return false;
    }
    struct plan_shared *shared = plan->shared.memory;
    for (int32_t b = 0; b < plan->num_rows; b++) {
        shared[b] = (struct plan_shared){-1, -1, 0};
    }
    *chains =
        (struct chains){plan->search_chains.memory, (int32_t *)plan->search_chains.memory + buckets,
                        (uint32_t)(buckets - 1)};
    memset(chains->heads, 0xff, buckets * sizeof chains->heads[0]);
    return true;
}

/* Puts the rows of each chain next to each other; two or more are a set. */
static bool start_sets(pkv_plan *plan, const struct chains *chains)
{
    int32_t *order = plan->search_order.memory;
    int32_t count = 0;
    for (uint32_t i = 0; i <= chains->mask; i++) {
        const int32_t begin = count;
        for (int32_t b = chains->heads[i]; b >= 0; b = chains->next[b]) {
            order[count++] = b;
        }
        const struct row_set set = {begin, count, 0};
        if (count - begin > 1 && !buffer_push(plan->hooks, &plan->search_sets,
                                              &plan->num_search_sets, &set, sizeof set)) {
            return false;
        }
    }
    return true;
}

bool shared_prefix_split(pkv_plan *plan)
{
    const struct gqa_row *rows = plan->rows.memory;
    struct chains chains;
    if (!start_search(plan, &chains)) {
        return false;
    }
    const struct gqa_shape *shape = &plan->shape;
    if (shape->sliding_window > 0 || shape->selection_size > 0 || shape->not_causal ||
        shape->has_mask) {
        return true;
    }
    for (int32_t b = 0; b < plan->num_rows; b++) {
        const int32_t ahead = min_i32(b + PREFETCH_ROWS, plan->num_rows - 1);
        if (rows[ahead].table != NULL) {
            PKV_PREFETCH(rows[ahead].table);
        }
        if (rows[b].table != NULL && rows[b].q_len == 1 && past_spans(&rows[b]) > 0) {
            int32_t *head = bucket_of(&chains, rows, rows[b].table[0]);
            chains.next[b] = *head;
            *head = b;
        }
    }
    if (!start_sets(plan, &chains)) {
        return false;
    }
    while (plan->num_search_sets > 0) {
        plan->num_search_sets--;
        const struct row_set *stack = plan->search_sets.memory;
        if (!share_set(plan, stack[plan->num_search_sets])) {
            return false;
        }
    }
    return true;
}
