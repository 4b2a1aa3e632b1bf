/* SPDX-License-Identifier: MIT
 *
 * partial.c: requests whose prefix hit ends inside a block, so that its first cells are copied,
 * beside such as hit whole blocks alone and compute these tokens again, and such as have one token
 * behind a block's edge. One layer of 32 query and 8 KV heads of width 128, blocks of 64; each hits
 * other blocks, which no CPU cache holds. Admission, begin and attend are timed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "limits.h"
#include "numbers.h"
#include "parts.h"
#include "server.h"

enum { HEADS = 32, KV_HEADS = 8, HEAD_WIDTH = 128, SIZE = 64, PROMPT_BLOCKS = 2 };
enum { NUM_PROMPTS = 512, NUM_TOKENS = PROMPT_BLOCKS * SIZE, TURNS = 41 };
enum { STREAM_BYTES = 1 << 28, NUM_COPIES = 3 };

struct pair {
    struct server copying, computing;
    int32_t source; /* the prompt that is hit next, the youngest ones first */
};

/* Fills the pool, so that every page is there. */
static void open_server(struct server *server, enum pkv_dtype dtype, bool no_partial_hits)
{
    static float scale;
    server_init(server, 1, NUM_TOKENS, NUM_PROMPTS * PROMPT_BLOCKS);
    server->group.kv_heads = KV_HEADS;
    server->group.k_width = HEAD_WIDTH;
    server->group.block_size = SIZE;
    server->group.k_dtype = server->group.v_dtype = dtype;
    server->layers[0].num_heads = HEADS;
    if (pkv_dtype_bytes(dtype) == 1) {
        struct pkv_attn_constants *constants = &server->layers[0].constants;
        scale = numbers_scale(dtype, NUMBERS_CACHE_SHIFT);
        constants->k_scale = constants->v_scale = &scale;
        constants->k_scale_count = constants->v_scale_count = 1;
    } else {
        server->config.dtype = dtype;
    }
    server->config.max_step_tokens = NUM_TOKENS;
    server->config.prefix_cache = true;
    server->config.no_partial_hits = no_partial_hits;
    server_open(server);
    for (int32_t i = 0; i < NUM_PROMPTS; i++) {
        int32_t tokens[NUM_TOKENS];
        const pkv_seq seq = server_seq(server);
        server_tokens(tokens, NUM_TOKENS, (uint64_t)i + 1);
        server_write(server, seq, tokens, 0, NUM_TOKENS);
        server_end(server, seq);
    }
}

/* Seconds of a request with so many tokens of a cached prompt and one of its own. */
static double request(struct server *server, int32_t source, int32_t common, int32_t num_copied)
{
    int32_t tokens[NUM_TOKENS];
    const int32_t n = common + 1;
    struct pkv_admission admission = {.size = sizeof admission};
    server_tokens(tokens, NUM_TOKENS, (uint64_t)source + 1);
    tokens[common] ^= 1;
    const struct pkv_prompt prompt = server_prompt(tokens, n);
    const pkv_seq seq = server_seq(server);
    const double start = measure_now();
    const enum pkv_status status =
        pkv_seq_admit(server->cache, seq, &prompt, 0, n, &admission, NULL);
    const double admitted = measure_now() - start;
    measure_must(status, "pkv_seq_admit");
    if (admission.num_copied != num_copied || admission.num_cached != SIZE + num_copied) {
        measure_fail("a hit of %d tokens, %d copied", (int)admission.num_cached,
                     (int)admission.num_copied);
    }
    const int32_t from = (int32_t)admission.num_cached, q_len = n - from;
    const struct step_time step = server_step(server, &seq, &q_len, tokens + from, 1);
    server_end(server, seq);
    return admitted + step.begin + step.attend;
}

static double stream(void)
{
    char *memory = measure_calloc(STREAM_BYTES, 1);
    struct samples rates = {0};
    memset(memory, 1, STREAM_BYTES); /* untouched, it would be one page of zeros */
    for (int i = 0; i < TURNS; i++) {
        samples_add(&rates, STREAM_BYTES / limits_read(2, memory, STREAM_BYTES));
    }
    free(memory);
    return samples_median(&rates);
}

static void bench_copies(struct pair *pair, enum pkv_dtype dtype, int32_t num_copied, double read)
{
    struct samples edge = {0}, copied = {0}, computed = {0}, costs = {0};
    for (int i = 0; i < TURNS; i++) {
        const double whole = request(&pair->copying, pair->source--, SIZE, 0);
        const double copy = request(&pair->copying, pair->source--, SIZE + num_copied, num_copied);
        samples_add(&edge, whole);
        samples_add(&copied, copy);
        samples_add(&costs, copy - whole);
        samples_add(&computed, request(&pair->computing, pair->source, SIZE + num_copied, 0));
    }
    const double bytes = 2.0 * num_copied * KV_HEADS * HEAD_WIDTH * (double)pkv_dtype_bytes(dtype);
    printf("hit inside a block, L8 %-4s, %2d cells copied   %7.1f us, at its edge %6.1f, computed "
           "again %7.1f    copy %6.1f us a layer: %5.1f GB/s read and written (stream read %.1f)\n",
           numbers_type_name(dtype), num_copied, 1e6 * samples_median(&copied),
           1e6 * samples_median(&edge), 1e6 * samples_median(&computed),
           1e6 * samples_median(&costs), 1e-9 * 2 * bytes / samples_median(&costs), 1e-9 * read);
}

void bench_partial(void)
{
    static const enum pkv_dtype types[] = {PKV_F32, PKV_F16, PKV_BF16, PKV_INT8};
    static const int32_t copies[NUM_COPIES] = {16, 32, SIZE - 1};
    const double read = stream();
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        static struct pair pair;
        open_server(&pair.copying, types[i], false);
        open_server(&pair.computing, types[i], true);
        pair.source = NUM_PROMPTS - 1;
        for (int j = 0; j < NUM_COPIES; j++) {
            bench_copies(&pair, types[i], copies[j], read);
        }
        server_close(&pair.computing);
        server_close(&pair.copying);
    }
}
