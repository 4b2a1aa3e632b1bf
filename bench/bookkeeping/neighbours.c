/* SPDX-License-Identifier: MIT
 *
 * neighbours.c: how long the runs of adjacent blocks are that sequences have, after requests of
 * mixed life: prompts of many lengths, of which half begin like others, forks, and cached blocks
 * that are evicted. Beside it the same requests with free blocks taken in the order in which they
 * became free: before each step all blocks without content are put into a queue of the pool. */
#include <stdio.h>

#include "alloc/block_pool.h"
#include "runtime/cache.h"
#include "server.h"

enum { LIVE = 64, POOL = 2560, REQUESTS = 100000, BEGINNINGS = 16, MAX_TOKENS = 1600 };

struct life {
    struct server server;
    bool in_order; /* of becoming free */
    uint64_t random;
    pkv_seq seqs[LIVE];
    int32_t left[LIVE]; /* tokens to come */
    int32_t num_live;
    int32_t num_ended;
    int32_t prompt[MAX_TOKENS];
    int32_t num_tokens; /* of the prompt that waits; 0 none */
    double num_blocks, num_runs;
};

static int32_t pick(struct life *life, int32_t low, int32_t high)
{
    return low + (int32_t)(measure_random(&life->random) % (uint64_t)(high - low + 1));
}

/* Of 16 to 1024 tokens, short ones as often as long ones. */
static void make_prompt(struct life *life)
{
    const int32_t limit = 16 << pick(life, 0, 6);
    life->num_tokens = pick(life, limit / 2, limit);
    server_tokens(life->prompt, life->num_tokens, measure_random(&life->random));
    if (pick(life, 0, 1) == 0) {
        const int32_t beginning = pick(life, 1, BEGINNINGS);
        const int32_t shared = 24 * beginning;
        server_tokens(life->prompt, shared, (uint64_t)beginning);
        life->num_tokens += shared;
    }
}

/* One of ten requests has two answers. */
static void begin_decoding(struct life *life, pkv_seq seq)
{
    life->seqs[life->num_live] = seq;
    life->left[life->num_live++] = pick(life, 1, 192);
    if (life->num_live < LIVE && pick(life, 0, 9) == 0) {
        pkv_seq child;
        measure_must(pkv_seq_fork(life->server.cache, seq, life->num_tokens, 1, &child),
                     "pkv_seq_fork");
        life->seqs[life->num_live] = child;
        life->left[life->num_live++] = pick(life, 1, 64);
    }
}

static void put_in_order(struct life *life)
{
    pkv_pool *pool = life->server.cache->groups[0].blocks.pool;
    while (life->in_order && block_pool_num_free(pool, 0) > 0) {
        block_pool_move(pool, block_pool_head(pool, 0), 1);
    }
}

/* False when there is no room now. A watermark is left for what forked children will need. */
static bool start_request(struct life *life)
{
    struct pkv_admission admission = {.size = sizeof admission};
    if (life->num_tokens == 0) {
        make_prompt(life);
    }
    const struct pkv_prompt prompt = server_prompt(life->prompt, life->num_tokens);
    const pkv_seq seq = server_seq(&life->server);
    const enum pkv_status status =
        pkv_seq_admit(life->server.cache, seq, &prompt, 192, life->num_tokens, &admission, NULL);
    if (status == PKV_NO_BLOCKS) {
        server_end(&life->server, seq);
        return false;
    }
    measure_must(status, "pkv_seq_admit");
    put_in_order(life);
    server_write(&life->server, seq, life->prompt, admission.num_cached, life->num_tokens);
    begin_decoding(life, seq);
    life->num_tokens = 0;
    return true;
}

static void decode(struct life *life)
{
    int32_t tokens[LIVE];
    for (int32_t i = 0; i < life->num_live; i++) {
        tokens[i] = pick(life, 0, INT32_MAX - 1);
    }
    put_in_order(life);
    server_step(&life->server, life->seqs, NULL, tokens, life->num_live);
    for (int32_t i = life->num_live - 1; i >= 0; i--) {
        if (--life->left[i] == 0) {
            server_end(&life->server, life->seqs[i]);
            life->seqs[i] = life->seqs[--life->num_live];
            life->left[i] = life->left[life->num_live];
            life->num_ended++;
        }
    }
}

static void sample(struct life *life)
{
    struct pkv_stats stats = {.size = sizeof stats};
    measure_must(pkv_cache_stats(life->server.cache, &stats), "pkv_cache_stats");
    life->num_blocks += (double)stats.table_blocks;
    life->num_runs += (double)stats.table_runs;
}

/* The mean length of runs over the second half of the requests. */
static double mean_run(bool prefix_cache, bool in_order, struct pkv_stats *stats)
{
    static struct life life;
    life = (struct life){.in_order = in_order, .random = 1};
    server_init(&life.server, LIVE, 2 * MAX_TOKENS, POOL);
    life.server.config.prefix_cache = prefix_cache;
    life.server.config.watermark_blocks = POOL / 20;
    server_open(&life.server);
    life.server.skips_attention = true;
    for (int32_t step = 0; life.num_ended < REQUESTS; step++) {
        while (life.num_live < LIVE && start_request(&life)) {
        }
        decode(&life);
        if (life.num_ended > REQUESTS / 2 && step % 16 == 0) {
            sample(&life);
        }
    }
    measure_must(pkv_cache_stats(life.server.cache, stats), "pkv_cache_stats");
    for (int32_t i = 0; i < life.num_live; i++) {
        server_end(&life.server, life.seqs[i]);
    }
    server_close(&life.server);
    return life.num_blocks / life.num_runs;
}

void bench_neighbours(void)
{
    for (int prefix_cache = 0; prefix_cache < 2; prefix_cache++) {
        struct pkv_stats stats = {.size = sizeof stats};
        const double in_order = mean_run(prefix_cache != 0, true, &stats);
        const double mean = mean_run(prefix_cache != 0, false, &stats);
        printf("mean run of adjacent blocks, %d requests, %d blocks, prefix cache %s %6.1f    "
               "in order of becoming free %.1f    hit rate %.2f, %llu evicted\n",
               REQUESTS, POOL, prefix_cache ? "on " : "off", mean, in_order,
               stats.queried_tokens > 0 ? (double)stats.hit_tokens / (double)stats.queried_tokens
                                        : 0,
               (unsigned long long)stats.evicted_blocks);
    }
}
