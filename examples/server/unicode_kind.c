/* SPDX-License-Identifier: MIT */
#include "unicode_kind.h"

#include "unicode_ranges.h"

#include <stdbool.h>
#include <stddef.h>

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static bool is_in(const struct unicode_range *ranges, size_t count, uint32_t code)
{
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (code > ranges[middle].high) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < count && code >= ranges[low].low;
}

/* The property White_Space. */
static bool is_space(uint32_t code)
{
    return (code >= 0x09 && code <= 0x0d) || code == 0x20 || code == 0x85 || code == 0xa0 ||
           code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

enum unicode_kind unicode_kind(uint32_t code)
{
    if (is_space(code)) {
        return UNICODE_SPACE;
    }
    if (is_in(unicode_letters, COUNT(unicode_letters), code)) {
        return UNICODE_LETTER;
    }
    return is_in(unicode_numbers, COUNT(unicode_numbers), code) ? UNICODE_NUMBER : UNICODE_OTHER;
}
