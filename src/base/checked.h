/* SPDX-License-Identifier: MIT
 *
 * checked.h: products and sums of sizes that say when they do not fit, and of costs that stop at
 * the largest number. */
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
