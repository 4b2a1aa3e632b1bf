/* SPDX-License-Identifier: MIT
 *
 * visible.h: which keys a query sees, the one place that knows:
 *
 *   j < end(f)   and   (j < P  or  j > f - W)
 *
 * for a query at position f, kept prefix P and window W (0 = none). end(f) is f + 1, or the end of
 * the bidirectional range that f is in; it never falls as f grows. A block of consecutive queries
 * sees the union, which is the prefix and one range up to the end of the last of them. Spans
 * outside both are never visited, so a step's cost follows the window, not the length. */
#ifndef PKV_ATTN_VISIBLE_H
#define PKV_ATTN_VISIBLE_H

#include "attn/gqa_row.h"
#include "attn/kernels.h"
#include "attn/token_range.h"
#include "base/minmax.h"
#include "base/window.h"

/* Keys [0, prefix) and [first, end), prefix <= first. Empty ranges are legal. */
struct visible {
    int32_t prefix;
    int32_t first;
    int32_t end;
};

/* What queries [q0, q1) of the row see between them; q0 < q1. */
static inline struct visible visible_to(const struct gqa_row *row, const struct gqa_shape *shape,
                                        int32_t q0, int32_t q1)
{
    const int32_t past = gqa_row_past(row);
    const int32_t end = token_ranges_seen_end(row->ranges, row->num_ranges, past + q1 - 1);
    struct visible seen = {0, 0, shape->not_causal ? row->kv_len : end};
    if (shape->sliding_window > 0) {
        seen.first = (int32_t)first_needed_key(past + q0, shape->sliding_window);
        seen.prefix = min_i32(row->kept_prefix, seen.end);
    }
    if (seen.prefix >= seen.first) { /* one range */
        seen.prefix = 0;
        seen.first = 0;
    }
    return seen;
}

/* The number of keys in [from, to) that are seen. */
static inline int32_t visible_count(const struct visible *seen, int64_t from, int64_t to)
{
    const int64_t in_prefix = (to < seen->prefix ? to : seen->prefix) - from;
    const int64_t in_range =
        (to < seen->end ? to : seen->end) - (from > seen->first ? from : seen->first);
    return (int32_t)((in_prefix > 0 ? in_prefix : 0) + (in_range > 0 ? in_range : 0));
}

/* The first span >= span that holds a key that is seen; a number past the last one when none does.
 */
static inline int32_t visible_span(const struct visible *seen, int32_t span)
{
    const int64_t from = (int64_t)span * SPAN_KEYS;
    if (from < seen->prefix || from >= seen->first) {
        return span;
    }
    return max_i32(span, seen->first / SPAN_KEYS);
}

static inline int32_t visible_num_spans(const struct visible *seen)
{
    return seen->end / SPAN_KEYS + (seen->end % SPAN_KEYS != 0);
}

/* How many spans of [span0, span1) visible_span stops at. */
static inline int32_t visible_spans_between(const struct visible *seen, int32_t span0,
                                            int32_t span1)
{
    const int32_t prefix_end = seen->prefix / SPAN_KEYS + (seen->prefix % SPAN_KEYS != 0);
    const int32_t first = max_i32(seen->first / SPAN_KEYS, prefix_end);
    return max_i32(0, min_i32(span1, prefix_end) - span0) +
           max_i32(0, span1 - max_i32(span0, first));
}

/* The least end, after span0, of spans from span0 on that hold so many keys that are seen, > 0; the
 * last span's when there are fewer. O(1). */
static inline int32_t visible_span_end(const struct visible *seen, int32_t span0, int64_t keys)
{
    const int64_t from = (int64_t)span0 * SPAN_KEYS;
    const int64_t in_prefix = seen->prefix > from ? seen->prefix - from : 0;
    const int64_t first = from > seen->first ? from : seen->first;
    const int64_t wanted = min_i64(keys, seen->end);
    const int64_t to = wanted <= in_prefix ? from + wanted : first + wanted - in_prefix;
    return (int32_t)((min_i64(to, seen->end) + SPAN_KEYS - 1) / SPAN_KEYS);
}

#endif
