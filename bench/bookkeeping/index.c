/* SPDX-License-Identifier: MIT
 *
 * index.c: what a prompt's tokens cost to look up, and how large the index is. A probe is timed:
 * the hash of each block, the walk, the comparison of all tokens, and the dry run of an
 * admission. */
#include <stdio.h>
#include <stdlib.h>

#include "parts.h"
#include "server.h"

enum { INDEX_BLOCKS = 65536, LONGEST = 4096, PROBES = 301, WINDOW = 64 };

/* A window makes filling cheap; its blocks stay cached, and the walk does not depend on it. */
static void open_index(struct server *server)
{
    server_init(server, 4, LONGEST * BLOCK_SIZE + BLOCK_SIZE, INDEX_BLOCKS + LONGEST);
    server->group.sliding_window = WINDOW;
    server->config.prefix_cache = true;
    server_open(server);
}

static double probe(struct server *server, const int32_t *tokens, int32_t num_blocks)
{
    const int32_t n = num_blocks * BLOCK_SIZE + 1;
    const struct pkv_prompt prompt = server_prompt(tokens, n);
    struct pkv_probe answer = {.size = sizeof answer};
    const double start = measure_now();
    const enum pkv_status status =
        pkv_cache_probe(server->cache, NULL, &prompt, 0, n, &answer, NULL);
    const double time = measure_now() - start;
    measure_must(status, "pkv_cache_probe");
    if (answer.num_cached != n - 1) {
        measure_fail("a probe found %d of %d tokens", answer.num_cached, n - 1);
    }
    return time / (n - 1);
}

static void bench_match(int32_t num_blocks)
{
    struct server server;
    struct samples warm = {0}, large = {0}, ratios = {0};
    const int32_t num_chains = INDEX_BLOCKS / num_blocks;
    const int32_t n = num_blocks * BLOCK_SIZE + 1;
    int32_t *tokens = measure_calloc((size_t)num_chains * (size_t)n, sizeof *tokens);
    open_index(&server);
    for (int32_t c = 0; c < num_chains; c++) {
        const pkv_seq seq = server_seq(&server);
        server_tokens(tokens + (size_t)c * (size_t)n, n, (uint64_t)c);
        server_write(&server, seq, tokens + (size_t)c * (size_t)n, 0, n);
        server_end(&server, seq);
    }
    for (int32_t i = 0; i < PROBES; i++) {
        /* The chain after the last one, which all others have pushed out of L2 since. */
        const int32_t *chain = tokens + (size_t)(i % num_chains) * (size_t)n;
        const double first = probe(&server, chain, num_blocks);
        const double again = probe(&server, chain, num_blocks);
        samples_add(&large, first);
        samples_add(&warm, again);
        samples_add(&ratios, first / again);
    }
    printf("match, %4d blocks, verified      warm %5.2f ns a token (target 3: %.2f of it)    "
           "out of L2 %5.2f ns (target 8: %.2f of it)    ratio %.2f\n",
           num_blocks, 1e9 * samples_median(&warm), 1e9 * samples_median(&warm) / 3,
           1e9 * samples_median(&large), 1e9 * samples_median(&large) / 8, samples_median(&ratios));
    server_close(&server);
    free(tokens);
}

static void bench_memory(void)
{
    struct server server;
    struct pkv_stats stats = {.size = sizeof stats};
    server_init(&server, 1, BLOCK_SIZE, INDEX_BLOCKS);
    server.config.prefix_cache = true;
    server_open(&server);
    measure_must(pkv_cache_stats(server.cache, &stats), "pkv_cache_stats");
    printf("index memory                     %.1f bytes a block (block_size %d, %d nodes for %d "
           "blocks: %.1f a node)\n",
           (double)stats.index_bytes / INDEX_BLOCKS, BLOCK_SIZE, stats.max_nodes, INDEX_BLOCKS,
           (double)stats.index_bytes / stats.max_nodes);
    server_close(&server);
}

void bench_index(void)
{
    bench_match(64);
    bench_match(512);
    bench_match(LONGEST);
    bench_memory();
}

/* ---- hit rate -------------------------------------------------------------------------------- */

enum { SESSIONS = 4, FIRST = 24, GROWTH = 4, ROUNDS = 8, SESSION_LENGTH = FIRST + ROUNDS * GROWTH };

static int32_t admit(struct server *server, pkv_seq seq, const int32_t *tokens, int32_t n)
{
    const struct pkv_prompt prompt = server_prompt(tokens, n);
    struct pkv_admission admission = {.size = sizeof admission};
    measure_must(pkv_seq_admit(server->cache, seq, &prompt, 0, n, &admission, NULL),
                 "pkv_seq_admit");
    return admission.num_cached;
}

void bench_hit_rate(void)
{
    struct server server;
    struct pkv_stats stats = {.size = sizeof stats};
    int32_t tokens[SESSIONS][SESSION_LENGTH];
    int32_t least = SESSION_LENGTH;
    server_init(&server, SESSIONS, SESSION_LENGTH + GROWTH, 32);
    server.group.block_size = 4;
    server.group.sliding_window = 8;
    server.config.prefix_cache = true;
    server_open(&server);
    for (int32_t round = 0; round < ROUNDS; round++) {
        for (int32_t s = 0; s < SESSIONS; s++) {
            const int32_t n = FIRST + GROWTH * round;
            const pkv_seq seq = server_seq(&server);
            server_tokens(tokens[s], SESSION_LENGTH, (uint64_t)s);
            const int32_t hit = admit(&server, seq, tokens[s], n);
            least = round > 0 && hit < least ? hit : least;
            server_write(&server, seq, tokens[s], hit, n);
            server_end(&server, seq);
        }
    }
    measure_must(pkv_cache_stats(server.cache, &stats), "pkv_cache_stats");
    printf("hit rate, %d sessions in turn, window 8, 32 blocks of 4: %.1f %% of %llu tokens; least "
           "hit after the first round %d (lesson D13: >= 20)\n",
           SESSIONS, 100.0 * (double)stats.hit_tokens / (double)stats.queried_tokens,
           (unsigned long long)stats.queried_tokens, least);
    server_close(&server);
}
