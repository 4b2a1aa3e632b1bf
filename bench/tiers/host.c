/* SPDX-License-Identifier: MIT
 *
 * host.c: layers that are not attended are marked as if they were, so a sequence is made in no
 * time; what their pages hold is of no consequence to those that move it. */
#include "host.h"

#include <stdlib.h>
#include <string.h>

#include "numbers.h"
#include "pages/page_store.h"
#include "runtime/cache.h"
#include "runtime/handle.h"
#include "tiers/record.h"

enum { CONTENT_SHIFT = 64, WORK_NS = 1000000 };

static void configure(struct host *host, enum pkv_dtype dtype, pkv_tier *tier,
                      const char *swap_path)
{
    host->scale = numbers_scale(dtype, NUMBERS_CACHE_SHIFT);
    host->tiers[0] = tier;
    host->group = (struct pkv_group_config){.kv_heads = HOST_KV_HEADS,
                                            .k_width = HOST_WIDTH,
                                            .k_dtype = dtype,
                                            .v_dtype = dtype,
                                            .block_size = HOST_BLOCK,
                                            .num_blocks = HOST_BLOCKS};
    for (int32_t i = 0; i < HOST_LAYERS; i++) {
        host->layers[i] = (struct pkv_layer_config){.num_heads = HOST_HEADS};
        if (pkv_dtype_bytes(dtype) == 1) {
            struct pkv_attn_constants *constants = &host->layers[i].constants;
            constants->k_scale = constants->v_scale = &host->scale;
            constants->k_scale_count = constants->v_scale_count = 1;
        }
    }
    host->config = (struct pkv_cache_config){
        .size = sizeof host->config,
        .groups = &host->group,
        .num_groups = 1,
        .layers = host->layers,
        .num_layers = HOST_LAYERS,
        .dtype = pkv_dtype_bytes(dtype) == 1 ? PKV_F32 : dtype,
        .max_seqs = 4,
        .max_seq_len = HOST_BLOCKS * HOST_BLOCK,
        .max_step_tokens = HOST_CHUNK,
        .prefix_cache = true,
        .swap_path = swap_path,
        .tiers = host->tiers,
        .num_tiers = tier != NULL,
        .max_store_blocks = HOST_BLOCKS,
        .no_write_behind = true,
    };
    host->config.swap_bytes = host_bytes(host, HOST_TOKENS);
}

/* No two pieces begin alike. */
static void fill(struct host *host)
{
    struct pkv_piece pieces[HOST_PIECES];
    host_pieces(host, 0, pieces);
    const size_t spare = (size_t)HOST_BLOCKS * HOST_PIECES * CONTENT_SHIFT;
    char *content = measure_calloc(1, pieces[0].length + spare);
    numbers_fill(content, pieces[0].length + spare, host->group.k_dtype, NUMBERS_CACHE_SHIFT, 1);
    for (int32_t b = 0; b < HOST_BLOCKS; b++) {
        host_pieces(host, b, pieces);
        for (int32_t p = 0; p < HOST_PIECES; p++) {
            const size_t shift = (size_t)(b * HOST_PIECES + p) * CONTENT_SHIFT;
            memcpy(pieces[p].bytes, content + shift, pieces[p].length);
        }
    }
    free(content);
}

void host_open(struct host *host, enum pkv_dtype dtype, pkv_tier *tier, const char *swap_path)
{
    memset(host, 0, sizeof *host);
    configure(host, dtype, tier, swap_path);
    measure_must(pkv_cache_create(&host->config, &host->cache), "pkv_cache_create");
    host->activation_bytes = (size_t)HOST_CHUNK * HOST_HEADS * HOST_WIDTH * sizeof(float);
    host->activations = measure_calloc(3, host->activation_bytes);
    numbers_fill(host->activations, 2 * host->activation_bytes, host->config.dtype,
                 NUMBERS_QUERY_SHIFT, 2);
    for (int32_t i = 0; i < HOST_BLOCKS * HOST_BLOCK; i++) {
        host->tokens[i] = i + 1;
    }
    fill(host);
}

void host_close(struct host *host)
{
    measure_must(pkv_cache_destroy(host->cache, false), "pkv_cache_destroy");
    free(host->activations);
}

size_t host_bytes(const struct host *host, int32_t num_tokens)
{
    return (size_t)num_tokens * HOST_PIECES * HOST_KV_HEADS * HOST_WIDTH *
           pkv_dtype_bytes(host->group.k_dtype);
}

void host_pieces(const struct host *host, int32_t block, struct pkv_piece *pieces)
{
    page_store_pieces(host->cache->groups[0].blocks.pages, block, pieces);
}

/* Attends each layer of `every`, and passes the others over; 0 = all. Returns seconds. */
static double run_layers(struct host *host, pkv_step step, int32_t every)
{
    char *q = host->activations;
    struct pkv_layer_io io = {.size = sizeof io, .q = q};
    io.k = io.v = q + host->activation_bytes;
    io.out = q + 2 * host->activation_bytes;
    double seconds = 0;
    for (int32_t layer = 0; layer < HOST_LAYERS; layer++) {
        if (every != 0 && layer % every == 0) {
            const double begin = measure_now();
            measure_must(pkv_step_attend(host->cache, step, layer, &io), "pkv_step_attend");
            seconds += measure_now() - begin;
        }
        host->cache->layers[layer].is_attended = true;
    }
    return seconds;
}

/* One step of tokens [from, from + n); returns the seconds of attending. */
static double step(struct host *host, pkv_seq seq, int32_t from, int32_t n, int32_t every)
{
    struct pkv_batch batch = {.size = sizeof batch,
                              .seqs = &seq,
                              .q_lens = &n,
                              .num_rows = 1,
                              .num_required_rows = 1,
                              .token_ids = host->tokens + from};
    pkv_step open;
    measure_must(pkv_step_begin(host->cache, &batch, &open, NULL), "pkv_step_begin");
    const double seconds = run_layers(host, open, every);
    measure_must(pkv_step_commit(host->cache, open, NULL), "pkv_step_commit");
    return seconds;
}

static pkv_seq create(struct host *host, bool is_published)
{
    const struct pkv_seq_options options = {.size = sizeof options, .no_publish = !is_published};
    pkv_seq seq;
    measure_must(pkv_seq_create(host->cache, &options, &seq), "pkv_seq_create");
    return seq;
}

pkv_seq host_make(struct host *host, int32_t num_tokens, bool is_published)
{
    const pkv_seq seq = create(host, is_published);
    for (int32_t from = 0; from < num_tokens; from += HOST_CHUNK) {
        const int32_t rest = num_tokens - from;
        (void)step(host, seq, from, rest < HOST_CHUNK ? rest : HOST_CHUNK, 0);
    }
    return seq;
}

void host_end(struct host *host, pkv_seq seq)
{
    measure_must(pkv_seq_destroy(host->cache, seq), "pkv_seq_destroy");
}

void host_prefill(struct host *host, struct samples *chunks)
{
    const pkv_seq seq = create(host, true);
    for (int32_t i = 0; i < HOST_CHUNKS; i++) {
        samples_add(&chunks[i],
                    HOST_EVERY * step(host, seq, i * HOST_CHUNK, HOST_CHUNK, HOST_EVERY));
    }
    host_end(host, seq);
}

void host_empty(struct host *host, bool scrub)
{
    host_end(host, host_make(host, HOST_BLOCKS * HOST_BLOCK, false));
    for (int32_t i = 0; scrub && i < HOST_BLOCKS; i++) {
        page_store_fill(host->cache->groups[0].blocks.pages, i, 0);
    }
}

uint64_t host_digest(const struct host *host, pkv_seq seq, int32_t num_tokens)
{
    struct pkv_piece pieces[HOST_PIECES];
    const int32_t index = (int32_t)(seq.id & HANDLE_INDEX_MASK);
    const int32_t *table = seq_table_entries(&host->cache->groups[0].tables, index);
    uint64_t digest = 0;
    for (int32_t i = 0; i < num_tokens / HOST_BLOCK; i++) {
        host_pieces(host, table[i], pieces);
        digest = digest * 31 + record_hash(pieces, HOST_PIECES);
    }
    return digest;
}

static void *help(void *context)
{
    struct host *host = context;
    while (!atomic_load(&host->helper_ends)) {
        measure_must(pkv_tier_work(host->cache, WORK_NS, NULL), "pkv_tier_work");
    }
    return NULL;
}

void host_start_helper(struct host *host)
{
    atomic_store(&host->helper_ends, false);
    if (pthread_create(&host->helper, NULL, help, host) != 0) {
        measure_fail("no thread");
    }
}

void host_end_helper(struct host *host)
{
    atomic_store(&host->helper_ends, true);
    pthread_join(host->helper, NULL);
}
