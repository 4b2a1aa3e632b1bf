/* SPDX-License-Identifier: MIT
 *
 * gqa_share.c: cascade. Rows of one query whose tables begin with the same blocks read the same
 * keys; a shared unit attends a span for all of them at once, so the span is read once. It leaves a
 * partial result per span, as split units do, and each row's fold merges them before its own: the
 * arithmetic per query and its order are those of the row alone, so sharing never shows in the
 * result.
 *
 * Only spans that every member sees whole are shared: no window, no mask, keys below the new one. A
 * set of kin goes through its spans together until tables part; then it is divided, and each part
 * goes on by itself. Rows start as kin when their first blocks are equal, found by hashing. */
#include <string.h>

#include "attn/plan.h"
#include "attn/visible.h"

/* Rows [begin, end) of the order share the spans before `span`. */
struct kin {
    int32_t begin;
    int32_t end;
    int32_t span;
};

static const struct gqa_row *row_at(const pkv_plan *plan, int32_t at)
{
    const int32_t *order = plan->order.memory;
    return (const struct gqa_row *)plan->rows.memory + order[at];
}

/* Whole spans below the row's new key. */
static int32_t past_spans(const struct gqa_row *row)
{
    return (row->kv_len - row->q_len) / SPAN_KEYS;
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

/* Moves the rows that share `span` with the first one next to it; returns where they end. */
static int32_t gather_kin(pkv_plan *plan, const struct kin *kin, int32_t span)
{
    int32_t *order = plan->order.memory;
    int32_t end = kin->begin + 1;
    for (int32_t i = end; i < kin->end; i++) {
        if (same_span(plan, kin->begin, i, span)) {
            const int32_t row = order[i];
            order[i] = order[end];
            order[end] = row;
            end++;
        }
    }
    return end;
}

/* A source of partial results at the end of the row's list. */
static bool add_source(pkv_workspace *workspace, pkv_plan *plan, int32_t row, int32_t num_spans,
                       const struct source *source)
{
    struct share *share = (struct share *)plan->shares.memory + row;
    const int32_t index = plan->num_sources;
    if (!plan_push(workspace, &plan->sources, &plan->num_sources, source, sizeof *source)) {
        return false;
    }
    if (share->last_source >= 0) {
        ((struct source *)plan->sources.memory)[share->last_source].next = index;
    } else {
        share->first_source = index;
    }
    share->last_source = index;
    share->num_spans = num_spans;
    return true;
}

/* Units for the spans [span0, span1) of rows order[begin, begin + count), and the rows' word of
 * them. The rows are copied: their order goes on changing as the set is divided. */
static bool share_unit(pkv_workspace *workspace, pkv_plan *plan, int32_t begin, int32_t count,
                       int32_t span0, int32_t span1)
{
    const int32_t *order = (const int32_t *)plan->order.memory + begin;
    const int64_t rows = (int64_t)count * plan_group(plan);
    struct unit unit = {
        .row = order[0],
        .q1 = 1,
        .partial = plan->num_partials,
        .first_member = plan->num_members,
        .num_members = count,
        .num_heads = plan_heads(plan, rows, SPAN_KEYS * rows),
    };
    unit.cost = SPAN_KEYS * rows * unit.num_heads;
    for (int32_t i = 0; i < count; i++) {
        const struct source source = {-1, plan->num_partials, span1 - span0, i, count};
        if (!plan_push(workspace, &plan->members, &plan->num_members, &order[i], sizeof order[i]) ||
            !add_source(workspace, plan, order[i], span1, &source)) {
            return false;
        }
    }
    for (unit.span0 = span0; unit.span0 < span1; unit.span0++) {
        unit.span1 = unit.span0 + 1;
        if (!plan_push_units(workspace, plan, unit)) {
            return false;
        }
        unit.partial++;
    }
    plan->num_partials += span1 - span0;
    plan->num_read_keys += (int64_t)(span1 - span0) * SPAN_KEYS * plan->shape.kv_heads;
    return true;
}

/* The same for a whole set, as many rows at once as a unit takes. */
static bool share_spans(pkv_workspace *workspace, pkv_plan *plan, const struct kin *kin,
                        int32_t span1)
{
    for (int32_t begin = kin->begin; begin < kin->end; begin += plan->block_queries) {
        const int32_t count = min_i32(kin->end - begin, plan->block_queries);
        if (!share_unit(workspace, plan, begin, count, kin->span, span1)) {
            return false;
        }
    }
    return true;
}

/* One set: as far as all of it goes together; then its two parts wait their turn. */
static bool share_set(pkv_workspace *workspace, pkv_plan *plan, struct kin kin)
{
    int32_t span = kin.span;
    int32_t end = gather_kin(plan, &kin, span);
    while (end == kin.end) {
        span++;
        end = gather_kin(plan, &kin, span);
    }
    if (span > kin.span && !share_spans(workspace, plan, &kin, span)) {
        return false;
    }
    const struct kin parts[] = {{kin.begin, end, span}, {end, kin.end, span}};
    for (size_t i = 0; i < 2; i++) {
        if (parts[i].end - parts[i].begin > 1 &&
            !plan_push(workspace, &plan->kin, &plan->num_kin, &parts[i], sizeof parts[i])) {
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
    uint32_t at = (uint32_t)block * 2654435761u >> 7 & chains->mask;
    while (chains->heads[at] >= 0 && rows[chains->heads[at]].table[0] != block) {
        at = (at + 1) & chains->mask;
    }
    return &chains->heads[at];
}

static bool start(pkv_workspace *workspace, pkv_plan *plan, struct chains *chains)
{
    const size_t num_rows = (size_t)plan->num_rows + 1;
    size_t buckets = 2;
    while (buckets < 2 * num_rows) {
        buckets *= 2;
    }
    const struct pkv_hooks *hooks = &workspace->hooks;
    if (!buffer_grow(hooks, &plan->order, num_rows * sizeof(int32_t)) ||
        !buffer_grow(hooks, &plan->shares, num_rows * sizeof(struct share)) ||
        !buffer_grow(hooks, &plan->chains, (buckets + num_rows) * sizeof(int32_t))) {
        return false;
    }
    struct share *shares = plan->shares.memory;
    for (int32_t b = 0; b < plan->num_rows; b++) {
        shares[b] = (struct share){-1, -1, 0};
    }
    *chains = (struct chains){plan->chains.memory, (int32_t *)plan->chains.memory + buckets,
                              (uint32_t)(buckets - 1)};
    memset(chains->heads, 0xff, buckets * sizeof chains->heads[0]);
    return true;
}

/* Puts the rows of each chain next to each other; two or more are a set. */
static bool start_sets(pkv_workspace *workspace, pkv_plan *plan, const struct chains *chains)
{
    int32_t *order = plan->order.memory;
    int32_t count = 0;
    for (uint32_t i = 0; i <= chains->mask; i++) {
        const int32_t begin = count;
        for (int32_t b = chains->heads[i]; b >= 0; b = chains->next[b]) {
            order[count++] = b;
        }
        const struct kin set = {begin, count, 0};
        if (count - begin > 1 &&
            !plan_push(workspace, &plan->kin, &plan->num_kin, &set, sizeof set)) {
            return false;
        }
    }
    return true;
}

bool plan_share_rows(pkv_workspace *workspace, pkv_plan *plan)
{
    const struct gqa_row *rows = plan->rows.memory;
    struct chains chains;
    if (!start(workspace, plan, &chains)) {
        return false;
    }
    if (plan->shape.sliding_window > 0 || plan->shape.not_causal || plan->shape.has_mask) {
        return true;
    }
    for (int32_t b = 0; b < plan->num_rows; b++) {
        if (rows[b].table != NULL && rows[b].q_len == 1 && past_spans(&rows[b]) > 0) {
            int32_t *head = bucket_of(&chains, rows, rows[b].table[0]);
            chains.next[b] = *head;
            *head = b;
        }
    }
    if (!start_sets(workspace, plan, &chains)) {
        return false;
    }
    while (plan->num_kin > 0) {
        plan->num_kin--;
        const struct kin *stack = plan->kin.memory;
        if (!share_set(workspace, plan, stack[plan->num_kin])) {
            return false;
        }
    }
    return true;
}
