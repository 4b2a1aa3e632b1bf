/* SPDX-License-Identifier: MIT */
#include "lookup.h"

#include <string.h>

enum { LONGEST_MATCH = 3, SHORTEST_MATCH = 2 };

/* The end of the latest earlier place of the last `length` tokens; 0 when there is none. */
static int32_t find_earlier(const int32_t *tokens, int32_t num_tokens, int32_t length)
{
    const int32_t *last = tokens + num_tokens - length;
    for (int32_t end = num_tokens - 1; end >= length; end--) {
        if (memcmp(tokens + end - length, last, (size_t)length * sizeof *tokens) == 0) {
            return end;
        }
    }
    return 0;
}

int32_t lookup_drafts(const int32_t *tokens, int32_t num_tokens, int32_t max_drafts,
                      int32_t *drafts)
{
    int32_t end = 0;
    for (int32_t length = LONGEST_MATCH; length >= SHORTEST_MATCH && end == 0; length--) {
        end = num_tokens > length ? find_earlier(tokens, num_tokens, length) : 0;
    }
    if (end == 0) {
        return 0;
    }
    const int32_t left = num_tokens - end;
    const int32_t count = left < max_drafts ? left : max_drafts;
    memcpy(drafts, tokens + end, (size_t)count * sizeof *drafts);
    return count;
}
