/* SPDX-License-Identifier: MIT
 *
 * visible.h: which keys a query sees, the one place that knows:
 *
 *   j < end(f)   and   (j in a block of the list  or  j > f - W)
 *
 * for a query at position f. With a sliding window W the list is one block, the kept prefix; with
 * selected blocks W is the number of newest keys (0 = none). Without either every j < end(f) is
 * seen. end(f) is f + 1, or the end of the bidirectional range that f is in; it never falls as f
 * grows. In a tree of drafts end is where the new keys begin, and of these a query sees those that
 * its bits name (tree.h). Consecutive queries see the union, which is the list and one range up to
 * the end of the last of them. Spans outside both are never visited, so a step's cost follows what
 * is seen, not the length. Each function is O(log of the list) unless it says otherwise. */
#ifndef PKV_ATTN_VISIBLE_H
#define PKV_ATTN_VISIBLE_H

#include "attn/gqa_row.h"
#include "attn/kernels.h"
#include "attn/token_range.h"
#include "base/minmax.h"
#include "base/window.h"

/* Keys [first, end), first <= end, and below first those of num_blocks blocks of block_keys keys,
 * whose numbers ascend. */
struct visible {
    const int32_t *blocks;
    int32_t num_blocks;
    int32_t block_keys; /* >= 1 */
    int32_t first;
    int32_t end;
    const uint64_t *drafts; /* of one query of a tree, or NULL: it sees key end + a too */
    int32_t num_drafts;     /* where bit a is set, of so many */
};

/* Keys [begin, end), none when they are the same. */
struct visible_keys {
    int32_t begin, end;
};

/* The kept prefix is block 0 of so many keys. */
static inline void visible_add_prefix(struct visible *seen, int32_t prefix)
{
    static const int32_t first_block = 0;
    const int32_t keys = min_i32(prefix, seen->end);
    if (keys >= seen->first) { /* one range */
        seen->first = 0;
    } else if (keys > 0) {
        seen->blocks = &first_block;
        seen->num_blocks = 1;
        seen->block_keys = keys;
    }
}

/* What queries [q0, q1) of the row see between them; q0 < q1. head is a KV head: each may have a
 * list of its own. Of a tree, whose depths do not grow with the numbers of its queries, these are
 * the keys from the first that a root sees to the last query's: not all of them are seen. */
static inline struct visible visible_to(const struct gqa_row *row, const struct gqa_shape *shape,
                                        int32_t head, int32_t q0, int32_t q1)
{
    const int32_t past = gqa_row_past(row);
    const int32_t end = token_ranges_seen_end(row->ranges, row->num_ranges, past + q1 - 1);
    struct visible seen = {.block_keys = 1, .end = shape->not_causal ? row->kv_len : end};
    if (shape->sliding_window > 0) {
        const int32_t first_query = row->depths != NULL ? 0 : q0;
        seen.first = (int32_t)first_needed_key(past + first_query, shape->sliding_window);
        visible_add_prefix(&seen, row->kept_prefix);
    } else if (shape->selection_size > 0) {
        const int32_t *cu = row->cu_selected + (shape->selects_by_head ? head : 0);
        seen.num_blocks = cu[1] - cu[0];
        seen.blocks = seen.num_blocks > 0 ? row->selected + cu[0] : NULL;
        seen.block_keys = shape->selection_size;
        seen.first = shape->selected_newest > 0
                         ? (int32_t)first_needed_key(past + q0, shape->selected_newest)
                         : seen.end;
    }
    return seen;
}

/* What query i of the row sees, exactly. */
static inline struct visible
visible_to_query(const struct gqa_row *row, const struct gqa_shape *shape, int32_t head, int32_t i)
{
    if (row->depths == NULL) {
        return visible_to(row, shape, head, i, i + 1);
    }
    const int32_t past = gqa_row_past(row);
    struct visible seen = {
        .block_keys = 1,
        .end = past,
        .drafts = gqa_row_drafts(row, i),
        .num_drafts = i + 1,
    };
    if (shape->sliding_window > 0) {
        const int64_t first = first_needed_key(past + row->depths[i], shape->sliding_window);
        seen.first = (int32_t)min_i64(first, past);
        visible_add_prefix(&seen, row->kept_prefix);
    }
    return seen;
}

/* True when a key that is new, at or behind seen->end, is among a tree's drafts that are seen. */
static inline bool visible_has_draft(const struct visible *seen, int64_t key)
{
    const int64_t a = key - seen->end;
    return a < seen->num_drafts && (seen->drafts[a / 64] >> a % 64 & 1) != 0;
}

/* The first drafts of keys [from, to) that are seen and lie side by side; {to, to} for none. O(to -
 * from). */
static inline struct visible_keys visible_next_drafts(const struct visible *seen, int64_t from,
                                                      int64_t to)
{
    const int64_t last = min_i64(to, (int64_t)seen->end + seen->num_drafts);
    int64_t begin = from > seen->end ? from : seen->end;
    while (begin < last && !visible_has_draft(seen, begin)) {
        begin++;
    }
    int64_t end = begin;
    while (end < last && visible_has_draft(seen, end)) {
        end++;
    }
    return (struct visible_keys){(int32_t)begin, (int32_t)end};
}

/* The number of drafts of keys [from, to) that are seen. O(to - from). */
static inline int32_t visible_count_drafts(const struct visible *seen, int64_t from, int64_t to)
{
    int32_t count = 0;
    struct visible_keys keys = visible_next_drafts(seen, from, to);
    while (keys.begin < keys.end) {
        count += keys.end - keys.begin;
        keys = visible_next_drafts(seen, keys.end, to);
    }
    return count;
}

/* The number of blocks of the list below block number `block`. */
static inline int32_t visible_blocks_below(const struct visible *seen, int32_t block)
{
    int32_t low = 0;
    int32_t high = seen->num_blocks;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (seen->blocks[middle] < block) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The number of keys of the list, below first, in front of key. */
static inline int64_t visible_listed_below(const struct visible *seen, int64_t key)
{
    const int32_t to = (int32_t)min_i64(key, seen->first);
    const int32_t block = to / seen->block_keys;
    const int32_t below = visible_blocks_below(seen, block);
    const bool is_inside = below < seen->num_blocks && seen->blocks[below] == block;
    return (int64_t)below * seen->block_keys + (is_inside ? to % seen->block_keys : 0);
}

/* The number of keys in [from, to) that are seen. */
static inline int32_t visible_count(const struct visible *seen, int64_t from, int64_t to)
{
    const int64_t in_range = min_i64(to, seen->end) - (from > seen->first ? from : seen->first);
    int64_t listed = 0;
    if (seen->num_blocks > 0 && from < seen->first && from < to) {
        listed = visible_listed_below(seen, to) - visible_listed_below(seen, from);
    }
    if (seen->drafts != NULL) {
        listed += visible_count_drafts(seen, from, to);
    }
    return (int32_t)(listed + (in_range > 0 ? in_range : 0));
}

/* The first keys of [from, to) that are seen and stand side by side: all of a block, or of the
 * range. None when there are no more. */
static inline struct visible_keys visible_next(const struct visible *seen, int64_t from, int64_t to)
{
    const int64_t last = min_i64(to, seen->end);
    int64_t begin = from > seen->first ? from : seen->first;
    int64_t end = last;
    if (from < seen->first && seen->num_blocks > 0) {
        const int32_t at = visible_blocks_below(seen, (int32_t)from / seen->block_keys);
        const int64_t block_begin =
            at < seen->num_blocks ? (int64_t)seen->blocks[at] * seen->block_keys : begin;
        if (block_begin < seen->first) {
            begin = block_begin > from ? block_begin : from;
            end = min_i64(min_i64(block_begin + seen->block_keys, seen->first), last);
        }
    }
    if (begin < end) {
        return (struct visible_keys){(int32_t)begin, (int32_t)end};
    }
    return seen->drafts != NULL ? visible_next_drafts(seen, from, to)
                                : (struct visible_keys){(int32_t)last, (int32_t)last};
}

static inline int32_t visible_num_spans(const struct visible *seen)
{
    return seen->end / SPAN_KEYS + (seen->end % SPAN_KEYS != 0);
}

/* The first span >= span that holds a key that is seen; a number past the last one when none does.
 */
static inline int32_t visible_span(const struct visible *seen, int32_t span)
{
    const int64_t from = (int64_t)span * SPAN_KEYS;
    const struct visible_keys next = visible_next(seen, from, seen->end);
    return next.begin < next.end ? max_i32(span, next.begin / SPAN_KEYS)
                                 : max_i32(span, visible_num_spans(seen));
}

/* How many spans of [span0, span1) visible_span stops at. O(blocks of the list that it meets). */
static inline int32_t visible_spans_between(const struct visible *seen, int32_t span0,
                                            int32_t span1)
{
    const int32_t end = min_i32(span1, visible_num_spans(seen));
    const int32_t first = seen->first / SPAN_KEYS;
    int32_t count = 0;
    int32_t span = visible_span(seen, span0);
    while (span < end && span < first) {
        count++;
        span = visible_span(seen, span + 1);
    }
    return count + max_i32(0, end - span);
}

/* The least end, after span0, of spans from span0 on that hold so many keys that are seen, > 0; the
 * last span's when there are fewer. */
static inline int32_t visible_span_end(const struct visible *seen, int32_t span0, int64_t keys)
{
    const int64_t from = (int64_t)span0 * SPAN_KEYS;
    const int64_t before = visible_listed_below(seen, from);
    const int64_t listed = visible_listed_below(seen, seen->first) - before;
    const int64_t wanted = min_i64(keys, seen->end);
    int64_t to = 0;
    if (wanted <= listed) {
        const int64_t last = before + wanted - 1; /* of the keys of the list */
        to = (int64_t)seen->blocks[last / seen->block_keys] * seen->block_keys +
             last % seen->block_keys + 1;
    } else {
        to = (from > seen->first ? from : seen->first) + wanted - listed;
    }
    return (int32_t)((min_i64(to, seen->end) + SPAN_KEYS - 1) / SPAN_KEYS);
}

#endif
