/* SPDX-License-Identifier: MIT
 *
 * server.c: creates, feeds and ends a server. */
#include "server.h"

#include <stdlib.h>

#include "numbers.h"
#include "runtime/cache.h"

void server_init(struct server *server, int32_t max_seqs, int32_t max_seq_len, int32_t num_blocks)
{
    *server = (struct server){.group = {.kv_heads = 1,
                                        .k_width = WIDTH,
                                        .k_dtype = PKV_BF16,
                                        .v_dtype = PKV_BF16,
                                        .block_size = BLOCK_SIZE,
                                        .num_blocks = num_blocks},
                              .layers = {{.num_heads = 1}},
                              .config = {.size = sizeof server->config,
                                         .num_groups = 1,
                                         .num_layers = 1,
                                         .dtype = PKV_F32,
                                         .max_seqs = max_seqs,
                                         .max_seq_len = max_seq_len,
                                         .max_step_tokens = STEP_TOKENS}};
    server->config.groups = &server->group;
    server->config.layers = server->layers;
}

/* q, k, v and out may be as wide as the widest layer's. */
static int32_t widest(const struct server *server)
{
    int32_t heads = server->group.kv_heads;
    for (int32_t i = 0; i < server->config.num_layers; i++) {
        heads = server->layers[i].num_heads > heads ? server->layers[i].num_heads : heads;
    }
    return heads * server->group.k_width;
}

void server_open(struct server *server)
{
    const size_t tokens = (size_t)server->config.max_step_tokens;
    const size_t bytes = tokens * (size_t)widest(server) * sizeof(float);
    server->config.hooks = counting_hooks(&server->counting);
    measure_must(pkv_cache_create(&server->config, &server->cache), "pkv_cache_create");
    server->activations = measure_calloc(2, bytes);
    server->token_ids = measure_calloc(tokens, sizeof(int32_t));
    numbers_fill(server->activations, bytes, server->config.dtype, NUMBERS_QUERY_SHIFT, 1);
}

void server_close(struct server *server)
{
    measure_must(pkv_cache_destroy(server->cache, false), "pkv_cache_destroy");
    free(server->activations);
    free(server->token_ids);
}

void server_skip_layers(struct server *server)
{
    for (int32_t layer = 0; layer < server->config.num_layers; layer++) {
        server->cache->layers[layer].is_attended = true;
    }
}

static void attend(struct server *server, pkv_step step)
{
    const size_t half = (size_t)server->config.max_step_tokens * (size_t)widest(server);
    struct pkv_layer_io io = {.size = sizeof io, .q = server->activations};
    io.out = (float *)server->activations + half;
    for (int32_t layer = 0; layer < server->config.num_layers; layer++) {
        io.k = io.v = server->layers[layer].shares_kv ? NULL : server->activations;
        measure_must(pkv_step_attend(server->cache, step, layer, &io), "pkv_step_attend");
    }
}

struct step_time server_step(struct server *server, const pkv_seq *seqs, const int32_t *q_lens,
                             const int32_t *token_ids, int32_t rows)
{
    struct pkv_batch batch = {.size = sizeof batch, .seqs = seqs, .q_lens = q_lens};
    pkv_step open;
    batch.token_ids = token_ids;
    batch.num_rows = batch.num_required_rows = rows;
    const int64_t calls = server->counting.calls;
    const double start = measure_now();
    const enum pkv_status began = pkv_step_begin(server->cache, &batch, &open, NULL);
    const double middle = measure_now();
    measure_must(began, "pkv_step_begin");
    if (server->skips_attention) {
        server_skip_layers(server);
    } else {
        attend(server, open);
    }
    const double late = measure_now();
    const enum pkv_status committed = pkv_step_commit(server->cache, open, NULL);
    const double end = measure_now();
    measure_must(committed, "pkv_step_commit");
    return (struct step_time){middle - start, late - middle, end - late,
                              server->counting.calls - calls};
}

void server_write(struct server *server, pkv_seq seq, const int32_t *tokens, int32_t from,
                  int32_t n)
{
    while (from < n) {
        const int32_t rest = n - from;
        const int32_t limit = server->config.max_step_tokens;
        const int32_t q_len = rest < limit ? rest : limit;
        server_step(server, &seq, &q_len, tokens + from, 1);
        from += q_len;
    }
}

pkv_seq server_seq(struct server *server)
{
    pkv_seq seq;
    measure_must(pkv_seq_create(server->cache, NULL, &seq), "pkv_seq_create");
    return seq;
}

void server_end(struct server *server, pkv_seq seq)
{
    measure_must(pkv_seq_destroy(server->cache, seq), "pkv_seq_destroy");
}

void server_tokens(int32_t *tokens, int32_t n, uint64_t seed)
{
    uint64_t state = seed;
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)(measure_random(&state) >> 1);
    }
    if (n > 0) {
        tokens[0] = (int32_t)seed;
    }
}

struct pkv_prompt server_prompt(const int32_t *tokens, int32_t n)
{
    return (struct pkv_prompt){
        .size = sizeof(struct pkv_prompt), .token_ids = tokens, .num_tokens = n};
}

void server_fill(struct server *server, const struct pkv_seq_options *options, int32_t num_blocks,
                 uint64_t seed)
{
    int32_t tokens[PROMPT];
    for (int32_t i = 0; i < num_blocks / (PROMPT / BLOCK_SIZE); i++) {
        pkv_seq seq;
        measure_must(pkv_seq_create(server->cache, options, &seq), "pkv_seq_create");
        server_tokens(tokens, PROMPT, seed + (uint64_t)i);
        server_write(server, seq, tokens, 0, PROMPT);
        server_end(server, seq);
    }
}
