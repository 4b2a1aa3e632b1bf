/* SPDX-License-Identifier: MIT
 *
 * layer.h: one attention layer to be measured: a cache full of random numbers, in shuffled blocks,
 * in blocks as a pool hands them out after churn, or in cache rows; queries; and the plan by which
 * the operator runs on it, again and again. */
#ifndef BENCH_LAYER_H
#define BENCH_LAYER_H

#include "pagedkv.h"

/* What the runs do besides attending. */
enum layer_work {
    WORK_STEP = 0,     /* append the new tokens, as every decode step does */
    WORK_READ = 1,     /* attend alone */
    WORK_ROPE_NORM = 2 /* rotate and norm q and k, append, attend */
};

/* Where the blocks of a row lie in the pool. */
enum layer_order {
    ORDER_SHUFFLED = 0,
    ORDER_CHURNED = 1,       /* as a pool hands them out after requests of mixed life */
    ORDER_CHURNED_CACHED = 2 /* the same with a prefix cache, which is full */
};

struct layer_spec {
    int32_t heads, kv_heads, width;
    int32_t
        latent;   /* values are so many first channels of the keys (v_in_k); 0 = they are stored */
    int32_t rows; /* sequences of the batch */
    int32_t q_len;
    int32_t keys;       /* of each row, the q_len new ones among them */
    int32_t block_size; /* 0: continuous, in cache rows of `keys` cells */
    int32_t window;     /* 0 = none. Blocks that no query sees are not mapped */
    int32_t kept_prefix;
    int32_t shared;   /* so many first keys lie in blocks that all rows share; paged only */
    int32_t selected; /* so many blocks of a row are selected, evenly spread, its last one among
                         them; the others are not mapped. 0 = no selection; paged only */
    bool sinks;
    int32_t pool_tokens; /* cells that the pages have in all; 0 = just those that are mapped */
    enum layer_order order;
    enum layer_work work;
    enum pkv_dtype cache;
    int threads;
    enum pkv_isa isa;
};

struct layer {
    struct layer_spec spec;
    enum pkv_dtype dtype; /* of q, k, v and out: the cache's, f32 beside int8 and e4m3 */
    char *pages;          /* K, then V unless it is in K */
    size_t pages_bytes;
    bool has_lent_pages;
    int32_t *table, *lens, *cu_seqlens, *slots;
    int32_t *selected, *cu_selected;
    char *q, *k, *v, *out;
    float *rope, *norm_weight, *sink;
    float scale;
    int64_t kept_prefix;
    const char **runs; /* the cache as the tables order it */
    size_t num_runs, run_bytes;
    struct pkv_gqa_args args;
    pkv_workspace *workspace;
    pkv_plan *plan;
};

/* Pages that the spec needs, without making it. */
size_t layer_pages_bytes(const struct layer_spec *spec);

/* Makes the layer and plans it, over pages of its own, or over those of a lender (NULL none) that
 * has as many bytes of the same dtype and lives longer. Ends the program when that cannot be. */
void layer_create(const struct layer_spec *spec, const struct layer *lender, struct layer *layer);
void layer_destroy(struct layer *layer);

/* One step's plan, and one run by it. */
void layer_plan(struct layer *layer);
void layer_run(struct layer *layer);

/* Seconds in which the threads read what one run must read, in the order in which a row's keys
 * stand: K of four blocks, then V of the same; of cache rows 64 cells of a head at a time. No
 * reader of whole blocks can be faster than that by much. */
double layer_read(const struct layer *layer);

/* The place of key (value) `position` of a row. */
const void *layer_key(const struct layer *layer, int32_t row, int32_t head, int32_t position);
const void *layer_value(const struct layer *layer, int32_t row, int32_t head, int32_t position);

/* K and V that one run must read, once for each KV head and shared ones once for all rows. */
double layer_bytes(const struct layer_spec *spec);

/* 2 for each channel of a key and of a value, for each query head of each query and each key that
 * it sees. */
double layer_flops(const struct layer_spec *spec);

#endif
