/* SPDX-License-Identifier: MIT
 *
 * checked.h: products and sums of sizes that say when they do not fit. */
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

#endif
