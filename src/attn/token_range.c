/* SPDX-License-Identifier: MIT
 *
 * token_range.c: the check of a list. */
#include "attn/token_range.h"

static const char *fault_of(const struct pkv_token_range *range, int32_t end_before, int32_t past,
                            int32_t length)
{
    if (range->begin < 0) {
        return "begins below 0";
    }
    if (range->end <= range->begin) {
        return "is empty";
    }
    if (range->begin < end_before) {
        return "begins before the one before it has ended";
    }
    if (range->begin >= length) {
        return "lies outside the row, behind its last token";
    }
    if (range->end > length) {
        return "is cut: it goes on behind the row's last token";
    }
    if (range->begin < past && range->end > past) {
        return "is cut: it begins before the row's first new token";
    }
    return NULL;
}

struct token_range_fault token_ranges_check(const struct pkv_token_range *ranges, int32_t count,
                                            int32_t past, int32_t length)
{
    int32_t end_before = 0;
    for (int32_t i = 0; i < count; i++) {
        const char *text = fault_of(&ranges[i], end_before, past, length);
        if (text != NULL) {
            return (struct token_range_fault){text, i};
        }
        end_before = ranges[i].end;
    }
    return (struct token_range_fault){NULL, count};
}
