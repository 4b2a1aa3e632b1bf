/* SPDX-License-Identifier: MIT
 *
 * row_stride.h: how far the rows of a large table lie apart. */
#ifndef PKV_RUNTIME_ROW_STRIDE_H
#define PKV_RUNTIME_ROW_STRIDE_H

#include "base/hooks.h"

/* The distance between rows of [rows][count] entries, in entries: an odd number of cache lines, or
 * the same entry of many rows would compete for one set of the processor's caches. */
static inline size_t row_stride_of(int32_t count, size_t entry_bytes)
{
    const size_t entries_per_line = HOOKS_CACHE_LINE / entry_bytes;
    return (((size_t)count + entries_per_line - 1) / entries_per_line | 1) * entries_per_line;
}

#endif
