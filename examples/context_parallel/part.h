/* SPDX-License-Identifier: MIT
 *
 * part.h: the pages of one process: contiguous whole blocks of one long sequence, which begins and
 * goes on in the pages of other processes. A part attends to its own keys alone; what it gets is
 * an attention state, to be merged with those of the other parts (reduce.h).
 *
 * The operator counts positions from a row's first key, and here that is the part's first key. What
 * a query at position p of the sequence sees of the keys [begin, end) of a part is therefore said
 * in one of three ways:
 *
 *     p < begin            nothing: the state over no keys
 *     begin <= p < end     a causal row of the part's keys, whose last positions the queries are
 *     p >= end             not_causal: all keys; with a window those that a mask admits
 *
 * A chunk of a prompt may have queries of all three kinds. Rope takes the positions of the
 * sequence, by position_ids. No sink here: it is applied once, to the merged state. */
#ifndef CONTEXT_PARALLEL_PART_H
#define CONTEXT_PARALLEL_PART_H

#include <pagedkv.h>

/* One layer, one sequence. */
struct shape {
    const char *name;
    int32_t num_heads, kv_heads, width, block_size;
    int32_t length;      /* tokens of the prompt */
    int32_t num_queries; /* of its last chunk */
    int32_t num_decodes; /* tokens after it */
    int32_t window, kept_prefix;
    enum pkv_dtype dtype, cache_dtype;
    bool has_rope, has_sink;
};

struct part {
    const struct shape *shape;
    pkv_workspace *workspace;
    /* Positions: begin is a multiple of block_size, and so is end but for the last part's. */
    int32_t begin, end;
    int32_t max_blocks;
    int32_t *table; /* [max_blocks], in no order */
    int32_t num_blocks;
    void *k, *v; /* [num_blocks][kv_heads][block_size][width] */
    float *rope_cos, *rope_sin;
};

/* An attention state in one piece of memory: lse [num_queries][num_heads], then out. */
size_t state_bytes(const struct shape *shape, int32_t num_queries);
struct pkv_state state_in(const struct shape *shape, int32_t num_queries, void *bytes);

/* The share of process `index` of `count`, as equal as whole blocks can be; the last one has room
 * for num_decodes tokens more. */
void part_create(const struct shape *shape, pkv_workspace *workspace, int index, int count,
                 struct part *part);
void part_free(struct part *part);

/* The same share as a view of the part that is the whole sequence; it is not freed. */
struct part part_within(const struct part *whole, int index, int count);

/* Appends those tokens of [first, end) whose cells the part has. */
void part_append(struct part *part, int32_t first, int32_t end);

/* The queries of the last num_queries of `length` tokens, [num_queries][num_heads * width] of the
 * shape's dtype. */
void make_queries(const struct shape *shape, int32_t length, int32_t num_queries, void *q);

/* Attends from these queries to the keys of the part. head_sink [num_heads] is NULL unless the part
 * is the whole sequence. */
void part_attend(const struct part *part, int32_t length, int32_t num_queries, const void *q,
                 const float *head_sink, const struct pkv_state *state);

/* Ends all processes of the program unless the status is PKV_OK, or the memory is there. */
void must(enum pkv_status status);
void *must_have(void *memory);

#endif
