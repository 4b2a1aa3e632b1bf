/* SPDX-License-Identifier: MIT
 *
 * counting.h: hooks that count. Handed to a cache or workspace, they tell whether a call took or
 * returned memory. */
#ifndef BENCH_COUNTING_H
#define BENCH_COUNTING_H

#include "pagedkv/base.h"

struct counting {
    _Atomic int64_t calls; /* of any of the four, since the start */
};

/* All four allocating hooks, counting into *counting, which must outlive their use. */
struct pkv_hooks counting_hooks(struct counting *counting);

#endif
