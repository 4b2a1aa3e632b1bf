/* SPDX-License-Identifier: MIT
 *
 * neighbours.c: how long the runs of adjacent blocks are that sequences have after requests of
 * mixed life, beside the same requests with free blocks taken in the order in which they became
 * free. */
#include <stdio.h>

#include "churn.h"
#include "parts.h"
#include "server.h"

enum { POOL = 2560 };

void bench_neighbours(void)
{
    for (int prefix_cache = 0; prefix_cache < 2; prefix_cache++) {
        struct pkv_stats stats = {.size = sizeof stats};
        struct churn_pool pool = {BLOCK_SIZE, POOL, prefix_cache != 0, true};
        const double in_order = churn_mean_run(&pool, &stats);
        pool.in_order = false;
        const double mean = churn_mean_run(&pool, &stats);
        printf("mean run of adjacent blocks, %d requests, %d blocks, prefix cache %s %6.1f    "
               "in order of becoming free %.1f    hit rate %.2f, %llu evicted\n",
               CHURN_REQUESTS, POOL, prefix_cache ? "on " : "off", mean, in_order,
               stats.queried_tokens > 0 ? (double)stats.hit_tokens / (double)stats.queried_tokens
                                        : 0,
               (unsigned long long)stats.evicted_blocks);
    }
}
