/* SPDX-License-Identifier: MIT
 *
 * served.h: a trace served by the library itself. */
#ifndef BENCH_SERVED_H
#define BENCH_SERVED_H

#include <stddef.h>

#include "trace.h"

/* A full group and one with a window, of equal layers; blocks of 0 share `bytes`. */
struct serving {
    int64_t window;
    int32_t full_blocks;
    int32_t window_blocks;
    size_t bytes;
    int32_t max_seqs; /* of the cache; one runs at a time */
};

/* Prompt tokens that were adopted. blocks, if not NULL, receives those of the two groups. */
int64_t served_tokens(const struct trace *trace, const struct serving *serving, int32_t *blocks);

#endif
