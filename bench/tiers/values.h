/* SPDX-License-Identifier: MIT
 *
 * values.h: a tier of the benchmark's own that keeps values in memory: what a tier costs that is
 * nothing but a copy. */
#ifndef BENCH_VALUES_H
#define BENCH_VALUES_H

#include "pagedkv.h"

enum { VALUES_MAX = 256 };

struct value {
    char name[PKV_MAX_TIER_NAME + 1];
    char *bytes;
    size_t length;
};

struct values {
    struct value at[VALUES_MAX];
    int32_t count;
};

/* Values are added under no lock of their own: the first store of each is by one thread. */
pkv_tier *values_open(struct values *values);
void values_close(struct values *values, pkv_tier *tier);

#endif
