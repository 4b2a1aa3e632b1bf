/* SPDX-License-Identifier: MIT
 *
 * served.h: a trace served by the library itself. */
#ifndef BENCH_SERVED_H
#define BENCH_SERVED_H

#include <stddef.h>

#include "trace.h"

/* A full group and one with a window, of equal layers; blocks of 0 share `bytes`. With a window of
 * 0 there is the full group alone, and with full_blocks below 0 the window group alone. */
struct serving {
    int64_t window;
    int32_t full_blocks;
    int32_t window_blocks;
    size_t bytes;
    int32_t max_seqs;   /* of the cache; one runs at a time */
    int32_t block_size; /* 0 = TRACE_BLOCK */
    bool is_partial;    /* hits may end inside a block */
    int32_t min_blank_percent;
};

/* Prompt tokens that were adopted. blocks, if not NULL, receives those of the two groups. */
int64_t served_tokens(const struct trace *trace, const struct serving *serving, int32_t *blocks);

#endif
