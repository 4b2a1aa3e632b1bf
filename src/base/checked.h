/* SPDX-License-Identifier: MIT
 *
 * checked.h: products, sums and roundings of sizes that say when they do not fit, and of costs that
 * stop at the largest number. */
#ifndef PKV_BASE_CHECKED_H
#define PKV_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool checked_mul(size_t a, size_t b, size_t *product)
{
    if (b != 0 && a > SIZE_MAX / b) {
        return false;
    }
    *product = a * b;
    return true;
}

static inline bool checked_add(size_t a, size_t b, size_t *sum)
{
    if (a > SIZE_MAX - b) {
        return false;
    }
    *sum = a + b;
    return true;
}

/* a / b, rounded up, for a >= 0 and b > 0; a may be as large as it likes. */
static inline int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* The multiple of `unit`, which is not 0, that is not below a; false when there is none. */
static inline bool checked_round_up(size_t a, size_t unit, size_t *rounded)
{
    return checked_mul(a / unit + (a % unit != 0), unit, rounded);
}

/* a, b >= 0; INT64_MAX stands for it and all above. */
static inline int64_t capped_add(int64_t a, int64_t b)
{
    return a > INT64_MAX - b ? INT64_MAX : a + b;
}

static inline int64_t capped_mul(int64_t a, int64_t b)
{
    return b != 0 && a > INT64_MAX / b ? INT64_MAX : a * b;
}

#endif
