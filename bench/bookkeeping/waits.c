/* SPDX-License-Identifier: MIT
 *
 * waits.c: how long a call has to wait while another thread walks through the whole cache. One
 * thread reads the usage of a group again and again, a call of nanoseconds; another checks,
 * flushes, resets and visits. Of each such walk the longest call is taken; their median says how
 * long the mutex is held, their longest contains whatever else the machine did. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "parts.h"
#include "server.h"

enum { WAIT_BLOCKS = 4096, ROUNDS = 7, NUM_WALKS = 4 };

struct asker {
    pkv_cache *cache;
    atomic_int span; /* calls that begin now belong to this stretch of time; -1: stop */
    atomic_int seen; /* the last one that a call began in */
    double longest;  /* of the calls of the one before */
};

static void *ask(void *argument)
{
    struct asker *asker = argument;
    double longest = 0;
    for (int span = 0; span >= 0; span = atomic_load(&asker->span)) {
        if (span != atomic_load(&asker->seen)) {
            asker->longest = longest;
            longest = 0;
            atomic_store(&asker->seen, span);
        }
        struct pkv_group_usage usage = {.size = sizeof usage};
        const double start = measure_now();
        measure_must(pkv_cache_usage(asker->cache, 0, &usage), "pkv_cache_usage");
        const double time = measure_now() - start;
        longest = time > longest ? time : longest;
    }
    return NULL;
}

/* Begins another stretch, and returns the longest call of the one that ends. */
static double next_span(struct asker *asker)
{
    const int span = atomic_load(&asker->seen) + 1;
    atomic_store(&asker->span, span);
    while (atomic_load(&asker->seen) != span) {
    }
    return asker->longest;
}

static bool pass(void *context, const struct pkv_block_info *info)
{
    (void)context;
    (void)info;
    return true;
}

static const struct pkv_namespace_field tenant = {1, 1, "t", 0};

static void walk_through(pkv_cache *cache, int walk)
{
    switch (walk) {
    case 0: measure_must(pkv_cache_visit(cache, pass, NULL, NULL), "pkv_cache_visit"); break;
    case 1: measure_must(pkv_cache_check(cache) == 0 ? PKV_OK : PKV_CORRUPT, "check"); break;
    case 2: measure_must(pkv_namespace_flush(cache, &tenant, NULL), "pkv_namespace_flush"); break;
    default: measure_must(pkv_cache_reset(cache, false, NULL), "pkv_cache_reset"); break;
    }
}

void bench_waits(void)
{
    static const char *const names[NUM_WALKS] = {"visit", "check", "flush", "reset"};
    const struct pkv_seq_options options = {
        .size = sizeof options, .namespace_fields = &tenant, .num_namespace_fields = 1};
    struct samples waits[NUM_WALKS] = {{0}}, alone = {0}, times[NUM_WALKS] = {{0}};
    struct server server;
    struct asker asker = {.span = 0, .seen = 0};
    pthread_t thread;
    uint64_t seed = 0;
    server_init(&server, ROWS, KEYS, WAIT_BLOCKS);
    server.config.prefix_cache = true;
    server_open(&server);
    asker.cache = server.cache;
    if (pthread_create(&thread, NULL, ask, &asker) != 0) {
        measure_fail("no thread");
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int walk = 0; walk < NUM_WALKS; walk++) {
            if (walk != 1) { /* check leaves everything as it was */
                server_fill(&server, walk == 2 ? &options : NULL, WAIT_BLOCKS, 1000 * ++seed);
            }
            next_span(&asker);
            measure_pause(2);
            samples_add(&alone, next_span(&asker));
            const double start = measure_now();
            walk_through(server.cache, walk);
            samples_add(&times[walk], measure_now() - start);
            samples_add(&waits[walk], next_span(&asker));
        }
    }
    atomic_store(&asker.span, -1);
    pthread_join(thread, NULL);
    printf("longest wait of another thread, %d blocks: alone for 2 ms %.1f us (longest %.1f)\n",
           WAIT_BLOCKS, 1e6 * samples_median(&alone), 1e6 * samples_max(&alone));
    for (int walk = 0; walk < NUM_WALKS; walk++) {
        printf("  during %s, which takes %7.1f us  %9.1f us    longest %9.1f us\n", names[walk],
               1e6 * samples_median(&times[walk]), 1e6 * samples_median(&waits[walk]),
               1e6 * samples_max(&waits[walk]));
    }
    server_close(&server);
}
