/* SPDX-License-Identifier: MIT
 *
 * host.h: a managed cache of the shape of Llama-3 8B with room for one prompt: 32 layers of 32
 * query and 8 KV heads of width 128. Whatever cannot be measured ends the program. */
#ifndef BENCH_HOST_H
#define BENCH_HOST_H

#include <pthread.h>
#include <stdatomic.h>

#include "measure.h"
#include "pagedkv.h"

enum {
    HOST_LAYERS = 32,
    HOST_HEADS = 32,
    HOST_KV_HEADS = 8,
    HOST_WIDTH = 128,
    HOST_BLOCK = 64,
    HOST_TOKENS = 4096, /* the prompt; one more follows, which is never cached */
    HOST_BLOCKS = HOST_TOKENS / HOST_BLOCK + 1,
    HOST_CHUNK = 512, /* of a prefill */
    HOST_CHUNKS = HOST_TOKENS / HOST_CHUNK,
    HOST_PIECES = 2 * HOST_LAYERS, /* of a block: K and V of each layer */
    HOST_EVERY = 8                 /* a measured prefill attends each layer of so many */
};

struct host {
    struct pkv_cache_config config;
    struct pkv_group_config group;
    struct pkv_layer_config layers[HOST_LAYERS];
    float scale;
    pkv_tier *tiers[1];
    pkv_cache *cache;
    int32_t tokens[HOST_BLOCKS * HOST_BLOCK];
    void *activations;
    size_t activation_bytes; /* of each of q, k = v, out */
    /* a second thread that works for the tier */
    pthread_t helper;
    atomic_bool helper_ends;
};

/* Opens a cache of this dtype with a tier (NULL none), and swap memory in a file of a folder (NULL
 * anonymous). All pages have content. */
void host_open(struct host *host, enum pkv_dtype dtype, pkv_tier *tier, const char *swap_path);
void host_close(struct host *host);

/* Bytes of keys and values of so many tokens. */
size_t host_bytes(const struct host *host, int32_t num_tokens);

/* A sequence of the first tokens of the prompt, as if computed; published, or not. Pages hold what
 * they held. */
pkv_seq host_make(struct host *host, int32_t num_tokens, bool is_published);
void host_end(struct host *host, pkv_seq seq);

/* Attends the whole prompt in chunks and ends the sequence, whose blocks stay cached; adds the
 * seconds of each chunk, for all layers, to chunks [HOST_CHUNKS]. */
void host_prefill(struct host *host, struct samples *chunks);

/* Nothing is cached any more; with `scrub`, pages are zeros. */
void host_empty(struct host *host, bool scrub);

/* A hash of the sequence's first blocks. */
uint64_t host_digest(const struct host *host, pkv_seq seq, int32_t num_tokens);

/* The pieces [HOST_PIECES] of a block's pages. */
void host_pieces(const struct host *host, int32_t block, struct pkv_piece *pieces);

/* Starts and ends a thread that works beside the caller. */
void host_start_helper(struct host *host);
void host_end_helper(struct host *host);

#endif
