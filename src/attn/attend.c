/* SPDX-License-Identifier: MIT
 *
 * attend.c: the queries of a task against its keys, for one or several KV heads.
 *
 * Keys are taken in spans of SPAN_KEYS and these in tiles of TILE_KEYS, both cut at absolute key
 * indices. A span starts from the empty state (max -inf, sum 0, acc 0), runs its tiles through
 * online softmax, and is then merged into the total; spans and tiles of which a query sees nothing
 * change nothing. So each query's arithmetic is a function of its own visible keys, whichever task
 * computes it.
 *
 * In a tile, the queries that see all of it go through the kernels together; each of the others
 * goes alone with the list of keys that it sees. Pointers are formed to visible keys only. All
 * heads of a task take a tile together (tile.h), and it prefetches the beginning of the next. */
#include "attn/attend.h"

#include "attn/append.h"
#include "attn/output.h"
#include "attn/partial.h"
#include "attn/query.h"
#include "attn/tile.h"
#include "attn/tile_mask.h"
#include "attn/visible.h"

size_t attend_scratch_floats(const struct gqa_shape *shape, size_t num_query_rows)
{
    return scratch_carve(shape, num_query_rows, NULL).end;
}

/* The part of tile [from, to) that `seen` admits, for one KV head. */
static void gather_seen(const struct run *run, const struct gqa_row *row, int32_t head,
                        const struct visible *seen, int32_t from, int32_t to, struct tile *tile)
{
    struct visible_keys keys = visible_next(seen, from, to);
    tile->count = 0;
    for (; keys.begin < keys.end; keys = visible_next(seen, keys.end, to)) {
        tile_gather(run, row, head, keys.begin, keys.end, tile);
    }
}

/* Query rows [row0, row1) of each KV head of the task against the tile of its first head. */
static void attend_heads(const struct run *run, const struct plan_task *task, size_t row0,
                         size_t row1, const struct tile *tile, const struct tile *next,
                         const struct scratch *s)
{
    const struct scratch part = scratch_from(s, row0);
    const struct tile_rows rows = {task->num_heads, query_rows(run, task), row1 - row0};
    tile_attend(run, &rows, tile, next, NULL, &part);
}

/* The first query after i that does not see all of tile [from, to). */
static int32_t end_of_whole(const struct run *run, const struct plan_task *task, int32_t i,
                            int32_t from, int32_t to)
{
    int32_t end = i + 1;
    while (end < task->q1) {
        const struct visible seen =
            visible_to_query(&run->rows[task->row], &run->plan->shape, task->head, end);
        if (visible_count(&seen, from, to) != to - from) {
            break;
        }
        end++;
    }
    return end;
}

/* All queries of the task against tile [from, to), which some of them see. whole, when not NULL, is
 * that tile gathered already; next is the tile to prefetch or NULL. */
static void attend_tile(const struct run *run, const struct plan_task *task, int32_t from,
                        int32_t to, const struct tile *whole, const struct tile *next,
                        const struct scratch *s)
{
    const struct gqa_row *row = &run->rows[task->row];
    const size_t heads = (size_t)run->heads_per_kv;
    struct tile part;
    for (int32_t i = task->q0, end; i < task->q1; i = end) {
        const struct visible seen = visible_to_query(row, &run->plan->shape, task->head, i);
        const int32_t keys = visible_count(&seen, from, to);
        end = keys == to - from ? end_of_whole(run, task, i, from, to) : i + 1;
        if (keys == 0) {
            continue;
        }
        const struct tile *tile = whole;
        if (whole == NULL || keys != whole->count) {
            gather_seen(run, row, task->head, &seen, from, to, &part);
            tile = &part;
        }
        const bool is_last = keys == TILE_KEYS && end == task->q1;
        attend_heads(run, task, (size_t)(i - task->q0) * heads, (size_t)(end - task->q0) * heads,
                     tile, is_last ? next : NULL, s);
    }
}

/* Gathers the task's next tile from key `from` on, when it is whole and visible to all queries, so
 * that it is worth prefetching. */
static bool gather_next(const struct run *run, const struct plan_task *task,
                        const struct visible *seen, int64_t from, struct tile *next)
{
    const int64_t first = visible_next(seen, from, seen->end).begin;
    next->first = first / TILE_KEYS * TILE_KEYS;
    next->count = 0;
    if (next->first + TILE_KEYS > seen->end ||
        visible_count(seen, next->first, next->first + TILE_KEYS) != TILE_KEYS) {
        return false;
    }
    tile_gather(run, &run->rows[task->row], task->head, (int32_t)next->first,
                (int32_t)next->first + TILE_KEYS, next);
    return true;
}

/* The tile that was prefetched last, in whichever span that was, and room for the next. */
struct tile_pair {
    struct tile *prefetched;
    struct tile *spare;
};

/* The span's state of all queries, from the empty one. */
static void attend_span(const struct run *run, const struct plan_task *task, int32_t span,
                        const struct visible *seen, const struct scratch *s,
                        struct tile_pair *tiles)
{
    const int64_t span_end = ((int64_t)span + 1) * SPAN_KEYS;
    scratch_start_span(s, query_rows(run, task) * (size_t)task->num_heads);
    for (int64_t from = (int64_t)span * SPAN_KEYS; from < span_end; from += TILE_KEYS) {
        if (visible_count(seen, from, from + TILE_KEYS) == 0) {
            continue;
        }
        const int64_t to = from + TILE_KEYS < seen->end ? from + TILE_KEYS : seen->end;
        if (run->layer->mask != NULL) {
            tile_mask_attend(run, task, (int32_t)from, (int32_t)to, s);
            continue;
        }
        const struct tile *whole = tiles->prefetched;
        struct tile *next = tiles->spare;
        const bool is_gathered = whole->count == TILE_KEYS && whole->first == from;
        const bool has_next = gather_next(run, task, seen, from + TILE_KEYS, next);
        attend_tile(run, task, (int32_t)from, (int32_t)to, is_gathered ? whole : NULL,
                    has_next ? next : NULL, s);
        tiles->spare = tiles->prefetched;
        tiles->prefetched = next;
    }
}

static void save_partials(const struct run *run, const struct plan_task *task, int32_t partial,
                          const struct scratch *s)
{
    const size_t rows = query_rows(run, task);
    for (int32_t h = 0; h < task->num_heads; h++) {
        const struct scratch part = scratch_from(s, (size_t)h * rows);
        partial_save(run, partial, task->head + h, rows, &part);
    }
}

static void write_outputs(const struct run *run, const struct plan_task *task,
                          const struct scratch *s)
{
    const size_t rows = query_rows(run, task);
    for (int32_t h = 0; h < task->num_heads; h++) {
        const struct scratch part = scratch_from(s, (size_t)h * rows);
        output_write(run, task->row, task->q0, task->q1, task->head + h, &part);
    }
}

/* The new keys in the task's spans. Rows of few queries have one task a span and KV head, so their
 * append needs no phase of its own. */
static void append_own(const struct run *run, const struct plan_task *task, float *scratch)
{
    const struct gqa_row *row = &run->rows[task->row];
    if (run->layer->k == NULL || plan_appends_first(run->plan, row)) {
        return;
    }
    for (int32_t h = 0; h < task->num_heads; h++) {
        append_keys(run, row, task->head + h, (int64_t)task->span0 * SPAN_KEYS,
                    (int64_t)task->span1 * SPAN_KEYS, scratch);
    }
}

void attend_own(const struct run *run, const struct plan_task *task, float *memory)
{
    const struct visible seen =
        visible_to(&run->rows[task->row], &run->plan->shape, task->head, task->q0, task->q1);
    const size_t rows = query_rows(run, task) * (size_t)task->num_heads;
    const struct scratch s = scratch_carve(&run->plan->shape, rows, memory);
    const bool is_whole = task->partial < 0;
    struct tile room[2];
    struct tile_pair tiles = {&room[0], &room[1]};
    tiles.prefetched->count = 0;
    append_own(run, task, s.q);
    query_load(run, task, &s);
    scratch_start_total(&s, rows);
    int32_t partial = task->partial;
    for (int32_t span = task->span0; span < task->span1; span = visible_span(&seen, span + 1)) {
        struct scratch state = s;
        const bool is_placed = !is_whole && task->num_heads == 1 &&
                               partial_place(run, partial, task->head, rows, &state);
        attend_span(run, task, span, &seen, &state, &tiles);
        if (is_whole) {
            partial_merge_span(run, &s, rows);
        } else if (!is_placed) {
            save_partials(run, task, partial, &s);
        }
        partial++;
    }
    if (is_whole) {
        write_outputs(run, task, &s);
    }
}

/* Each row sees the span whole, so all query rows go through its tiles together. */
void attend_shared(const struct run *run, const struct plan_task *task, float *memory)
{
    const struct gqa_row *row = &run->rows[task->row];
    const size_t rows = query_rows(run, task);
    const size_t all_rows = rows * (size_t)task->num_heads;
    const struct scratch s = scratch_carve(&run->plan->shape, all_rows, memory);
    const int32_t begin = task->span0 * SPAN_KEYS;
    const int32_t end = begin + SPAN_KEYS;
    struct tile room[2];
    query_load(run, task, &s);
    scratch_start_span(&s, all_rows);
    room[0].count = 0;
    tile_gather(run, row, task->head, begin, begin + TILE_KEYS, &room[0]);
    for (int32_t from = begin, i = 0; from < end; from += TILE_KEYS, i = 1 - i) {
        struct tile *next = &room[1 - i];
        const bool has_next = from + TILE_KEYS < end;
        next->count = 0;
        if (has_next) {
            tile_gather(run, row, task->head, from + TILE_KEYS, from + 2 * TILE_KEYS, next);
        }
        attend_heads(run, task, 0, rows, &room[i], has_next ? next : NULL, &s);
    }
    save_partials(run, task, task->partial, &s);
}
