/* SPDX-License-Identifier: MIT
 *
 * lengths.c: begin and commit of one token, and pkv_seq_truncate by one, on sequences of 1k to 512k
 * tokens. Attention is left out: that it reads every key is no news. As many tokens as a block has
 * are timed together, since one takes less than the clock. */
#include <stdio.h>

#include "parts.h"
#include "server.h"

enum { TURNS = 201, SHORTEST = 1024, LONGEST = 512 * 1024, NUM_LENGTHS = 4 };

struct times {
    struct samples step, cut;
};

static void measure_one(struct server *server, pkv_seq seq, int32_t length, struct times *times)
{
    const double start = measure_now();
    for (int32_t i = 0; i < BLOCK_SIZE; i++) {
        struct pkv_batch batch = {.size = sizeof batch, .seqs = &seq, .num_rows = 1};
        pkv_step step;
        batch.token_ids = server->token_ids;
        batch.num_required_rows = 1;
        measure_must(pkv_step_begin(server->cache, &batch, &step, NULL), "pkv_step_begin");
        server_skip_layers(server);
        measure_must(pkv_step_commit(server->cache, step, NULL), "pkv_step_commit");
    }
    const double middle = measure_now();
    for (int32_t i = BLOCK_SIZE - 1; i >= 0; i--) {
        measure_must(pkv_seq_truncate(server->cache, seq, length + i), "pkv_seq_truncate");
    }
    samples_add(&times->step, (middle - start) / BLOCK_SIZE);
    samples_add(&times->cut, (measure_now() - middle) / BLOCK_SIZE);
}

static void bench_length(int num_threads, bool prefix_cache)
{
    struct times times[NUM_LENGTHS] = {0};
    pkv_seq seqs[NUM_LENGTHS];
    int32_t lengths[NUM_LENGTHS];
    struct server server;
    server_init(&server, NUM_LENGTHS, LONGEST + 2 * BLOCK_SIZE, 2 * LONGEST / BLOCK_SIZE);
    server.config.prefix_cache = prefix_cache;
    server.config.num_threads = num_threads;
    server.skips_attention = true;
    server_open(&server);
    for (int i = 0; i < NUM_LENGTHS; i++) {
        lengths[i] = i == 0 ? SHORTEST : 8 * lengths[i - 1];
        seqs[i] = server_seq(&server);
        for (int32_t n = 0; n < lengths[i]; n += STEP_TOKENS) {
            const int32_t rest = lengths[i] - n;
            server_tokens(server.token_ids, STEP_TOKENS, (uint64_t)(n + i));
            server_write(&server, seqs[i], server.token_ids, 0,
                         rest < STEP_TOKENS ? rest : STEP_TOKENS);
        }
    }
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < NUM_LENGTHS; i++) {
            measure_one(&server, seqs[i], lengths[i], &times[i]);
        }
    }
    for (int i = 0; i < NUM_LENGTHS; i++) {
        printf("one row of %6d tokens, %d thread%s, prefix cache %s  begin + commit %7.3f us "
               "(%.2f of 1k)    truncate by 1 %6.3f us (%.2f)\n",
               lengths[i], num_threads, num_threads == 1 ? " " : "s", prefix_cache ? "on " : "off",
               1e6 * samples_median(&times[i].step),
               samples_median(&times[i].step) / samples_median(&times[0].step),
               1e6 * samples_median(&times[i].cut),
               samples_median(&times[i].cut) / samples_median(&times[0].cut));
    }
    server_close(&server);
}

void bench_lengths(void)
{
    for (int num_threads = 1; num_threads <= 2; num_threads++) {
        bench_length(num_threads, false);
        bench_length(num_threads, true);
    }
}
