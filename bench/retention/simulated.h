/* SPDX-License-Identifier: MIT
 *
 * simulated.h: the same trace under other orders of eviction, which the library does not have. */
#ifndef BENCH_SIMULATED_H
#define BENCH_SIMULATED_H

#include "trace.h"

enum policy {
    POLICY_LIBRARY, /* out of the window and not retained, then the longest unused: a check */
    POLICY_WINDOWS, /* the order before retention points: out of the window, then longest unused */
    POLICY_LRU,     /* the longest unused */
    POLICY_MRU,     /* the most recently used */
    POLICY_BELADY,  /* whose next use is furthest, knowing the trace */
    NUM_POLICIES
};

/* Prompt tokens that are adopted, with pools of so many blocks. */
int64_t simulated_tokens(const struct trace *trace, enum policy policy, int64_t window,
                         int32_t full_blocks, int32_t window_blocks);

#endif
