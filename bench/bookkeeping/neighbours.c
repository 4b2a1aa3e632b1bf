/* SPDX-License-Identifier: MIT
 *
 * neighbours.c: how long the runs of adjacent blocks are that sequences have after requests of
 * mixed life, beside the same requests with free blocks taken in the order in which they became
 * free; and, with the prefix cache, by the share of blank blocks (config.min_blank_percent), in a
 * pool that the sequences nearly fill and in one twice as large. */
#include <stdio.h>

#include "churn.h"
#include "parts.h"
#include "server.h"

enum { POOL = 2560 };

static double hit_rate(const struct pkv_stats *stats)
{
    return stats->queried_tokens > 0 ? (double)stats->hit_tokens / (double)stats->queried_tokens
                                     : 0;
}

static void bench_blank(void)
{
    static const int32_t percents[] = {0, 5, 12, 25, 50};
    for (int32_t i = 0; i < 10; i++) {
        struct pkv_stats stats = {.size = sizeof stats};
        const struct churn_pool pool = {.block_size = BLOCK_SIZE,
                                        .num_blocks = i < 5 ? POOL : 2 * POOL,
                                        .prefix_cache = true,
                                        .min_blank_percent = percents[i % 5]};
        const double mean = churn_mean_run(&pool, &stats);
        printf("%d blocks, %2d %% blank, mean run %5.1f    hit rate %.3f, %llu evicted\n",
               pool.num_blocks, pool.min_blank_percent, mean, hit_rate(&stats),
               (unsigned long long)stats.evicted_blocks);
        fflush(stdout);
    }
}

void bench_neighbours(void)
{
    for (int prefix_cache = 0; prefix_cache < 2; prefix_cache++) {
        struct pkv_stats stats = {.size = sizeof stats};
        struct churn_pool pool = {BLOCK_SIZE, POOL, prefix_cache != 0, true, 0};
        const double in_order = churn_mean_run(&pool, &stats);
        pool.in_order = false;
        const double mean = churn_mean_run(&pool, &stats);
        printf("mean run of adjacent blocks, %d requests, %d blocks, prefix cache %s %6.1f    "
               "in order of becoming free %.1f    hit rate %.2f, %llu evicted\n",
               CHURN_REQUESTS, POOL, prefix_cache ? "on " : "off", mean, in_order, hit_rate(&stats),
               (unsigned long long)stats.evicted_blocks);
    }
    bench_blank();
}
