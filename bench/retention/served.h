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
    /* With num_states there is a state group too, of one layer whose state has the bytes of the
     * keys and values of SERVED_STATE_TOKENS tokens. */
    int32_t num_states;
    int32_t snapshot_interval;
    int64_t segment_tokens;
};

enum { SERVED_STATE_TOKENS = 1024 };

/* States of the state group, as often as a request had been served. */
struct served_states {
    int32_t max_cached; /* snapshots */
    int32_t max_used;   /* held ones too */
    double mean_cached;
};

/* Prompt tokens that were adopted. blocks, if not NULL, receives those of the two groups. */
int64_t served_tokens(const struct trace *trace, const struct serving *serving, int32_t *blocks);

/* The same with a state group. */
int64_t served_with_states(const struct trace *trace, const struct serving *serving,
                           struct served_states *states);

#endif
