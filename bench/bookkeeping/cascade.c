/* SPDX-License-Identifier: MIT
 *
 * cascade.c: decode steps of 32 rows of 4096 + 64 keys in a managed cache, once forks of one
 * prompt, once prompts that were each computed, in turns. Layer 0 owns the pages with as many query
 * heads as KV heads, so that filling is cheap; layer 1 shares them, and is what is timed. */
#include <stdio.h>
#include <stdlib.h>

#include "parts.h"
#include "server.h"

enum { SHARING_ROWS = 32, OWN = 64, HEADS = 32, HEAD_WIDTH = 128, TURNS = 9 };
enum { ALL_KEYS = KEYS + OWN, ROOM = 2 * TURNS + BLOCK_SIZE };

static void open_model(struct server *server, int32_t kv_heads, enum pkv_dtype dtype)
{
    const int32_t blocks = (ALL_KEYS + ROOM) / BLOCK_SIZE + 1;
    server_init(server, 2 * SHARING_ROWS + 1, ALL_KEYS + ROOM, 0);
    server->group.num_blocks =
        SHARING_ROWS * blocks + blocks + SHARING_ROWS * ((OWN + ROOM) / BLOCK_SIZE + 2);
    server->group.kv_heads = kv_heads;
    server->group.k_width = HEAD_WIDTH;
    server->group.k_dtype = server->group.v_dtype = dtype;
    server->config.dtype = dtype;
    server->config.max_step_tokens = 1024;
    server->layers[0].num_heads = kv_heads;
    server->layers[1] = (struct pkv_layer_config){.num_heads = HEADS, .shares_kv = true};
    server->config.num_layers = 2;
    server_open(server);
}

/* Children of one prompt, each with tokens of its own. */
static void fill_sharing(struct server *server, pkv_seq *seqs)
{
    const int32_t *tokens = server->token_ids;
    const pkv_seq prompt = server_seq(server);
    for (int32_t n = 0; n < KEYS; n += server->config.max_step_tokens) {
        server_write(server, prompt, tokens, 0, server->config.max_step_tokens);
    }
    measure_must(pkv_seq_fork(server->cache, prompt, KEYS, SHARING_ROWS, seqs), "pkv_seq_fork");
    server_end(server, prompt);
    for (int32_t i = 0; i < SHARING_ROWS; i++) {
        server_write(server, seqs[i], tokens, 0, OWN);
    }
}

static void fill_separate(struct server *server, pkv_seq *seqs)
{
    const int32_t chunk = server->config.max_step_tokens;
    for (int32_t i = 0; i < SHARING_ROWS; i++) {
        seqs[i] = server_seq(server);
        for (int32_t n = 0; n < ALL_KEYS; n += chunk) {
            const int32_t rest = ALL_KEYS - n;
            server_write(server, seqs[i], server->token_ids, 0, rest < chunk ? rest : chunk);
        }
    }
}

/* Seconds of layer 1 in a decode step. */
static double decode(struct server *server, const pkv_seq *seqs)
{
    const size_t half = (size_t)server->config.max_step_tokens * HEADS * HEAD_WIDTH;
    struct pkv_layer_io io = {.size = sizeof io, .q = server->activations};
    struct pkv_batch batch = {.size = sizeof batch, .seqs = seqs, .num_rows = SHARING_ROWS};
    pkv_step step;
    batch.token_ids = server->token_ids;
    batch.num_required_rows = SHARING_ROWS;
    io.out = (float *)server->activations + half;
    io.k = io.v = server->activations;
    measure_must(pkv_step_begin(server->cache, &batch, &step, NULL), "pkv_step_begin");
    measure_must(pkv_step_attend(server->cache, step, 0, &io), "pkv_step_attend");
    io.k = io.v = NULL;
    const double start = measure_now();
    const enum pkv_status status = pkv_step_attend(server->cache, step, 1, &io);
    const double time = measure_now() - start;
    measure_must(status, "pkv_step_attend");
    measure_must(pkv_step_commit(server->cache, step, NULL), "pkv_step_commit");
    return time;
}

static void bench_model(const char *name, int32_t kv_heads, enum pkv_dtype dtype, double target)
{
    static pkv_seq sharing[SHARING_ROWS], separate[SHARING_ROWS];
    struct server server;
    struct samples with = {0}, without = {0}, ratios = {0};
    open_model(&server, kv_heads, dtype);
    fill_sharing(&server, sharing);
    fill_separate(&server, separate);
    for (int i = 0; i < TURNS; i++) {
        const double shared = decode(&server, sharing);
        const double single = decode(&server, separate);
        samples_add(&with, shared);
        samples_add(&without, single);
        samples_add(&ratios, single / shared);
    }
    printf("cascade, %-8s %d rows, %d + %d keys: %7.2f ms, without sharing %7.2f ms: %.2fx "
           "(target %.1fx: %.2f of it)\n",
           name, SHARING_ROWS, KEYS, OWN, 1e3 * samples_median(&with),
           1e3 * samples_median(&without), samples_median(&ratios), target,
           samples_median(&ratios) / target);
    server_close(&server);
}

void bench_cascade(void)
{
    bench_model("MHA f16", 32, PKV_F16, 4.5);
    bench_model("L8 f32", 8, PKV_F32, 2.5);
    bench_model("L8 bf16", 8, PKV_BF16, 1.4);
}
