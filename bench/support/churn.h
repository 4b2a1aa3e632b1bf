/* SPDX-License-Identifier: MIT
 *
 * churn.h: a managed cache that has served 100000 requests of mixed life: prompts of 8 to 1024
 * tokens, short ones as often as long ones, of which half begin like others, one of ten with two
 * answers. It runs no attention, and is the same every time. What is asked is where the blocks of
 * its sequences then lie. */
#ifndef BENCH_CHURN_H
#define BENCH_CHURN_H

#include "pagedkv/metrics.h"

enum {
    CHURN_REQUESTS = 100000,
    CHURN_MIN_TOKENS = 65536, /* what a pool has room for, at least */
    CHURN_MAX_ROWS = 64,
    CHURN_MIN_KEYS = 16
};

struct churn_pool {
    int32_t block_size, num_blocks;
    bool prefix_cache;
    bool in_order; /* ids are handed out in the order in which they became free, as by a queue */
    int32_t min_blank_percent;
};

/* The mean length of runs of adjacent blocks in the tables of the second half of the requests, and
 * the cache's figures at their end. */
double churn_mean_run(const struct churn_pool *pool, struct pkv_stats *stats);

/* The block tables [rows][max_blocks] of sequences of `keys` tokens that came in between after all
 * these requests, 32 steps apart, with their last tokens decoded. At most CHURN_MAX_ROWS of at
 * least CHURN_MIN_KEYS; the pool has room for twice as many tokens, and CHURN_MIN_TOKENS. */
void churn_tables(const struct churn_pool *pool, int32_t rows, int32_t keys, int32_t *tables);

#endif
