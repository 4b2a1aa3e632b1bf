/* SPDX-License-Identifier: MIT
 *
 * token_range.h: lists of bidirectional ranges, as callers give them with a row, a step or a
 * prompt. A sound list of a row with new tokens [past, length):
 *
 *   0 <= begin < end <= length,  end <= the next one's begin,  end <= past or begin >= past */
#ifndef PKV_ATTN_TOKEN_RANGE_H
#define PKV_ATTN_TOKEN_RANGE_H

#include "pagedkv/attn.h"

/* What is wrong with a list and where: NULL and count for a sound one. O(count). */
struct token_range_fault {
    const char *text; /* completes "range [b, e) ..." */
    int32_t at;
};
struct token_range_fault token_ranges_check(const struct pkv_token_range *ranges, int32_t count,
                                            int32_t past, int32_t length);

/* Where what the query at this position sees ends: behind its range, or behind its own key. The
 * list is sound. O(log count). */
static inline int32_t token_ranges_seen_end(const struct pkv_token_range *ranges, int32_t count,
                                            int32_t position)
{
    int32_t low = 0;
    int32_t high = count; /* the first range that ends behind position is in [low, high] */
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (ranges[middle].end <= position) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < count && ranges[low].begin <= position ? ranges[low].end : position + 1;
}

#endif
