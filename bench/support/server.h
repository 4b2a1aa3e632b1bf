/* SPDX-License-Identifier: MIT
 *
 * server.h: a managed cache with activations to feed it. Whatever cannot be measured ends the
 * program. */
#ifndef BENCH_SERVER_H
#define BENCH_SERVER_H

#include "counting.h"
#include "measure.h"
#include "pagedkv.h"

enum { BLOCK_SIZE = 16, WIDTH = 16, ROWS = 256, KEYS = 4096, STEP_TOKENS = 4096, PROMPT = 1024 };

struct server {
    struct counting counting;
    struct pkv_group_config group;
    struct pkv_layer_config layers[2];
    struct pkv_cache_config config;
    pkv_cache *cache;
    bool skips_attention; /* a step's keys are never computed: long sequences are made in no time */
    void *activations;
    int32_t *token_ids; /* [max_step_tokens], zeros that a caller may overwrite */
};

/* Times of the three parts of a step, and hook calls in all of it. */
struct step_time {
    double begin, attend, commit;
    int64_t hook_calls;
};

/* One layer of one narrow bf16 head: change what a part is about, then open. */
void server_init(struct server *server, int32_t max_seqs, int32_t max_seq_len, int32_t num_blocks);
void server_open(struct server *server);
void server_close(struct server *server);

/* A step of these rows; q_lens NULL = one token each. */
struct step_time server_step(struct server *server, const pkv_seq *seqs, const int32_t *q_lens,
                             const int32_t *token_ids, int32_t rows);

/* What stands for attending in a step of a server that skips it. */
void server_skip_layers(struct server *server);

/* Writes tokens [from, n) of a sequence, in steps as large as they may be. */
void server_write(struct server *server, pkv_seq seq, const int32_t *tokens, int32_t from,
                  int32_t n);

pkv_seq server_seq(struct server *server);
void server_end(struct server *server, pkv_seq seq);

/* Leaves num_blocks cached blocks behind, of prompts of PROMPT tokens from this seed on. */
void server_fill(struct server *server, const struct pkv_seq_options *options, int32_t num_blocks,
                 uint64_t seed);

/* n tokens that begin like those of no other seed. */
void server_tokens(int32_t *tokens, int32_t n, uint64_t seed);

struct pkv_prompt server_prompt(const int32_t *tokens, int32_t n);

#endif
