/* SPDX-License-Identifier: MIT
 *
 * gqa_plan.c: splitting a step's work. A row's queries are cut into blocks of at most
 * block_queries; a block is one unit, which walks all spans that it sees, unless that would leave
 * threads idle: then its spans are dealt to several units, each of which leaves one partial result
 * per span, and a fold merges them in ascending order. A unit that holds all spans merges them in
 * the same order as it goes, so the split never shows in the result. */
#include <string.h>

#include "attn/plan.h"
#include "attn/run.h"
#include "attn/visible.h"
#include "attn/workspace.h"
#include "base/checked.h"
#include "base/error.h"

/* Query rows (queries x heads of the group) that a unit works on at once: enough to pay for a
 * tile's conversion, few enough for their scores and sums to stay in the first-level cache. */
#define UNIT_QUERY_ROWS 64

/* Units a thread should have to choose from, and below how much work a thread is not worth waking.
 */
#define UNITS_PER_THREAD 16
#define MIN_THREAD_COST ((int64_t)4096)

bool plan_push(pkv_workspace *workspace, struct buffer *list, int32_t *count, const void *item,
               size_t item_bytes)
{
    if (!buffer_grow(&workspace->hooks, list, ((size_t)*count + 1) * item_bytes)) {
        return false;
    }
    memcpy((char *)list->memory + (size_t)*count * item_bytes, item, item_bytes);
    (*count)++;
    return true;
}

struct gqa_row *gqa_plan_rows(pkv_workspace *workspace, pkv_plan *plan, int32_t num_rows)
{
    plan->ready = false;
    if (workspace->started == plan) { /* its tasks are gone */
        workspace->started = NULL;
    }
    plan->num_rows = num_rows;
    const size_t count = num_rows > 0 ? (size_t)num_rows : 1;
    if (!buffer_grow(&workspace->hooks, &plan->rows, count * sizeof(struct gqa_row))) {
        plan->num_rows = 0;
        return NULL;
    }
    return plan->rows.memory;
}

static int64_t block_cost(const struct pkv_plan *plan, const struct gqa_row *row, int32_t q0,
                          int32_t q1)
{
    const struct visible seen = visible_to(row, &plan->shape, q0, q1);
    return (int64_t)visible_count(&seen, 0, seen.end) * (q1 - q0) * plan_group(plan);
}

static int32_t block_end(const struct pkv_plan *plan, const struct gqa_row *row, int32_t q0)
{
    return min_i32(row->q_len, q0 + plan->block_queries);
}

/* The most that one unit should cost, in (visible keys x query rows), all its heads counted. */
static int64_t cost_limit(const pkv_workspace *workspace, const pkv_plan *plan)
{
    const int64_t total = plan->cost * plan->shape.kv_heads;
    return total / ((int64_t)workspace->num_threads * UNITS_PER_THREAD) + 1;
}

int32_t plan_heads(const pkv_plan *plan, int64_t rows, int64_t cost)
{
    const int32_t kv_heads = plan->shape.kv_heads;
    int32_t heads = kv_heads;
    while (heads > 1 && (kv_heads % heads != 0 || heads * cost > plan->cost_limit ||
                         heads * rows > UNIT_QUERY_ROWS)) {
        heads--;
    }
    return heads;
}

bool plan_push_units(pkv_workspace *workspace, pkv_plan *plan, struct unit unit)
{
    for (unit.head = 0; unit.head < plan->shape.kv_heads; unit.head += unit.num_heads) {
        if (!plan_push(workspace, &plan->units, &plan->num_units, &unit, sizeof unit)) {
            return false;
        }
    }
    return true;
}

/* Cuts the spans of a block between units of about the cost limit; *partials counts the spans. */
static bool cut_spans(pkv_workspace *workspace, pkv_plan *plan, const struct visible *seen,
                      struct unit unit, int32_t *partials)
{
    const int32_t num_spans = visible_num_spans(seen);
    const int64_t rows = (int64_t)(unit.q1 - unit.q0) * plan_group(plan) * unit.num_heads;
    const int32_t first_partial = unit.partial;
    int32_t span = unit.span0;
    while (span < num_spans) {
        const int64_t from = (int64_t)span * SPAN_KEYS;
        unit.cost += visible_count(seen, from, from + SPAN_KEYS) * rows;
        unit.span1 = span + 1;
        ++*partials;
        span = visible_span(seen, span + 1);
        if (unit.cost >= plan->cost_limit || span >= num_spans) {
            if (!plan_push_units(workspace, plan, unit)) {
                return false;
            }
            unit.span0 = span;
            unit.partial = first_partial + *partials;
            unit.cost = 0;
        }
    }
    return true;
}

/* One block of queries: units of all spans when they cost less than the limit and nobody shares
 * any; otherwise units of about the limit, and a fold when that makes more than one, or others have
 * shared before. */
static bool split_block(pkv_workspace *workspace, pkv_plan *plan, int32_t row_idx, int32_t q0)
{
    const struct gqa_row *row = (const struct gqa_row *)plan->rows.memory + row_idx;
    const struct share *share = (const struct share *)plan->shares.memory + row_idx;
    const int32_t q1 = block_end(plan, row, q0);
    const struct visible seen = visible_to(row, &plan->shape, q0, q1);
    const int64_t rows = (int64_t)(q1 - q0) * plan_group(plan);
    const int32_t keys = visible_count(&seen, 0, seen.end);
    struct unit unit = {
        .row = row_idx,
        .q0 = q0,
        .q1 = q1,
        .num_heads = plan_heads(plan, rows, min_i32(keys, SPAN_KEYS) * rows),
        .span0 = visible_span(&seen, share->num_spans),
        .partial = plan->num_partials,
    };
    const int64_t cost = keys * rows * unit.num_heads;
    const int64_t own_keys = visible_count(&seen, (int64_t)unit.span0 * SPAN_KEYS, seen.end);
    plan->num_read_keys += own_keys * plan->shape.kv_heads;
    if (share->first_source < 0 && cost < plan->cost_limit) {
        unit.partial = -1;
        unit.span1 = visible_num_spans(&seen);
        unit.cost = cost;
        return plan_push_units(workspace, plan, unit);
    }
    const int32_t first_unit = plan->num_units;
    int32_t partials = 0;
    if (!cut_spans(workspace, plan, &seen, unit, &partials)) {
        return false;
    }
    const int32_t num_cuts =
        (plan->num_units - first_unit) / (plan->shape.kv_heads / unit.num_heads);
    if (num_cuts > 1 || share->first_source >= 0) {
        const struct fold fold = {row_idx, q0, q1, share->first_source, plan->num_partials,
                                  partials};
        plan->num_partials += partials;
        return plan_push(workspace, &plan->folds, &plan->num_folds, &fold, sizeof fold);
    }
    struct unit *units = plan->units.memory;
    for (int32_t i = first_unit; i < plan->num_units; i++) {
        units[i].partial = -1;
    }
    return true;
}

static bool split_rows(pkv_workspace *workspace, pkv_plan *plan)
{
    const struct gqa_row *rows = plan->rows.memory;
    plan->cost = 0;
    for (int32_t b = 0; b < plan->num_rows; b++) {
        for (int32_t q0 = 0; q0 < rows[b].q_len; q0 = block_end(plan, &rows[b], q0)) {
            plan->cost += block_cost(plan, &rows[b], q0, block_end(plan, &rows[b], q0));
        }
    }
    plan->cost_limit = cost_limit(workspace, plan);
    if (!plan_share_rows(workspace, plan)) {
        return false;
    }
    for (int32_t b = 0; b < plan->num_rows; b++) {
        if (appends_first(plan, &rows[b]) &&
            !plan_push(workspace, &plan->appends, &plan->num_appends, &b, sizeof b)) {
            return false;
        }
        for (int32_t q0 = 0; q0 < rows[b].q_len; q0 = block_end(plan, &rows[b], q0)) {
            if (!split_block(workspace, plan, b, q0)) {
                return false;
            }
        }
    }
    return true;
}

/* Which units each worker starts with: consecutive ones of about equal cost, the same in every
 * layer, so that a worker finds its own rows' pages in its cache. Workers that the step cannot feed
 * get none. */
static bool deal_units(pkv_workspace *workspace, pkv_plan *plan)
{
    const int32_t threads = workspace->num_threads;
    const size_t bytes = ((size_t)threads + 1) * sizeof(int32_t);
    if (!buffer_grow(&workspace->hooks, &plan->first_units, bytes)) {
        return false;
    }
    int32_t *first = plan->first_units.memory;
    const struct unit *units = plan->units.memory;
    plan->cost = 0;
    for (int32_t i = 0; i < plan->num_units; i++) {
        plan->cost += units[i].cost;
    }
    const int64_t worth = plan->cost / MIN_THREAD_COST + 1;
    const int64_t active = worth < threads ? worth : threads;
    int32_t unit = 0;
    int64_t dealt = 0;
    for (int32_t w = 0; w <= threads; w++) {
        const int64_t share = w < active ? plan->cost * w / active : plan->cost;
        while (unit < plan->num_units && (dealt < share || w >= active)) {
            dealt += units[unit].cost;
            unit++;
        }
        first[w] = unit;
    }
    return true;
}

enum pkv_status gqa_plan_split(pkv_workspace *workspace, pkv_plan *plan,
                               const struct gqa_shape *shape)
{
    plan->ready = false;
    plan->shape = *shape;
    const int32_t group = plan_group(plan);
    plan->num_appends = plan->num_units = plan->num_folds = plan->num_partials = 0;
    plan->num_sources = plan->num_members = plan->num_kin = 0;
    plan->num_read_keys = 0;
    plan->block_queries = max_i32(1, UNIT_QUERY_ROWS / group);
    const size_t query_rows = (size_t)plan->block_queries * (size_t)group;
    plan->partial_floats = query_rows * (padded((size_t)shape->v_width) + 2);
    const size_t scratch_floats = attend_scratch_floats(shape, query_rows);
    if (!split_rows(workspace, plan) || !deal_units(workspace, plan)) {
        return refuse(PKV_NO_MEMORY, "no memory for a plan of %d rows", plan->num_rows);
    }
    const int64_t most_tasks = (int64_t)max_i32(plan->num_rows, plan->num_folds) * shape->kv_heads;
    if (most_tasks > INT32_MAX) {
        return refuse(PKV_INVALID_ARGUMENT, "%d rows of %d KV heads, more than %d tasks",
                      plan->num_rows, shape->kv_heads, INT32_MAX);
    }
    size_t floats = 0;
    size_t bytes = 0;
    const size_t tiles = (size_t)plan->num_partials * (size_t)shape->kv_heads;
    if (scratch_floats > workspace->scratch_floats) {
        bytes = scratch_floats * sizeof(float) * (size_t)workspace->num_threads;
        if (!buffer_grow(&workspace->hooks, &workspace->scratch, bytes)) {
            return refuse(PKV_NO_MEMORY, "no memory for the scratch of %d threads",
                          workspace->num_threads);
        }
        workspace->scratch_floats = scratch_floats;
    }
    if (!checked_mul(tiles, plan->partial_floats, &floats) ||
        !checked_mul(floats, sizeof(float), &bytes) ||
        !buffer_grow(&workspace->hooks, &workspace->partials, bytes)) {
        return refuse(PKV_NO_MEMORY, "no memory for %d partial results", plan->num_partials);
    }
    plan->ready = true;
    return PKV_OK;
}

int64_t gqa_plan_read_keys(const pkv_plan *plan)
{
    return plan->num_read_keys;
}
