/* SPDX-License-Identifier: MIT
 *
 * carve.h: cutting arrays from one run of memory. The same calls run twice: without memory they
 * only count, so that what is counted is what is taken. Each array begins on a cache line. */
#ifndef PKV_BASE_CARVE_H
#define PKV_BASE_CARVE_H

#include "base/checked.h"
#include "base/hooks.h"

struct carver {
    unsigned char *base; /* NULL: count */
    size_t used;
    bool overflows;
};

/* count * bytes, zeroed as the memory is; NULL while counting. */
static inline void *carve(struct carver *carver, size_t count, size_t bytes)
{
    size_t total = 0;
    size_t used = 0;
    if (!checked_mul(count, bytes, &total) || !checked_round_up(total, HOOKS_CACHE_LINE, &total) ||
        !checked_add(carver->used, total, &used)) {
        carver->overflows = true;
        return NULL;
    }
    void *memory = carver->base != NULL ? carver->base + carver->used : NULL;
    carver->used = used;
    return memory;
}

#endif
