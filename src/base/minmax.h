/* SPDX-License-Identifier: MIT
 *
 * minmax.h: the smaller and the larger of two counts. */
#ifndef PKV_BASE_MINMAX_H
#define PKV_BASE_MINMAX_H

#include <stdint.h>

static inline int32_t min_i32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int32_t max_i32(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

#endif
