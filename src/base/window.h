/* SPDX-License-Identifier: MIT
 *
 * window.h: where a sliding window begins. Reclaiming, attending, lookup and truncation all call
 * these functions, so that none of them rounds differently from the others.
 *
 * A query at position `length` (the next one of a row that holds `length` keys) sees the keys
 * j > length - window, its own among them; window 0 is no window. Callers add the
 * blocks of a kept prefix, which are always needed. */
#ifndef PKV_BASE_WINDOW_H
#define PKV_BASE_WINDOW_H

#include <stdint.h>

/* length and window >= 0. */
static inline int64_t first_needed_key(int64_t length, int64_t window)
{
    return window == 0 || window > length ? 0 : length - window + 1;
}

/* The block of that key; no later query of the row needs an earlier one. */
static inline int32_t first_needed_block(int64_t length, int64_t window, int32_t block_size)
{
    return (int32_t)(first_needed_key(length, window) / block_size);
}

#endif
