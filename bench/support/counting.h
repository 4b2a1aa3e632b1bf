/* SPDX-License-Identifier: MIT
 *
 * counting.h: hooks that count. Handed to a cache or workspace, they tell whether a call took or
 * returned memory. */
#ifndef BENCH_COUNTING_H
#define BENCH_COUNTING_H

#include "pagedkv/base.h"

enum { MAX_MAPPINGS = 64 };

struct mapping {
    void *memory;
    size_t bytes;
    enum pkv_map_kind kind;
};

/* The mappings are those there are; a cache maps at create and at destroy alone. */
struct counting {
    _Atomic int64_t calls; /* of any of the four, since the start */
    int num_mappings;
    struct mapping mappings[MAX_MAPPINGS];
};

/* Bytes of the mappings of one kind that have pages behind them. */
size_t counting_resident(const struct counting *counting, enum pkv_map_kind kind);

/* All four allocating hooks, counting into *counting, which must outlive their use. */
struct pkv_hooks counting_hooks(struct counting *counting);

#endif
