/* SPDX-License-Identifier: MIT
 *
 * rank_case.h: calls of pkv_block_rank drawn from a seed, and what is true of them in float64. Keys
 * lie in a pool whose blocks hold some keys each, the other cells NaN; block tables repeat blocks,
 * have entries of -1, and behind a row's candidates entries that no one may follow. */
#ifndef PKV_TEST_RANK_CASE_H
#define PKV_TEST_RANK_CASE_H

#include "support/test.h"

enum {
    RANK_MAX_ROWS = 3,
    RANK_MAX_HEADS = 3,
    RANK_MAX_LISTS = RANK_MAX_ROWS * RANK_MAX_HEADS,
    RANK_MAX_BLOCKS = 40,
    RANK_MAX_TOKENS = 16
};

/* args and rank point into the case, which is not to be moved; a copy of it points there, too. */
struct rank_case {
    int32_t width, block_size, max_blocks;
    int32_t num_lists; /* of a row */
    struct pkv_kv_view view;
    float *scale, *bounds, *norm_weight, *cos_sin;
    void *q;
    int32_t num_keys[RANK_MAX_BLOCKS]; /* of a block of the pool */
    int32_t table[RANK_MAX_ROWS * RANK_MAX_BLOCKS];
    int32_t kv_lens[RANK_MAX_ROWS], num_candidates[RANK_MAX_ROWS], cu_seqlens[RANK_MAX_ROWS + 1];
    int64_t positions[RANK_MAX_TOKENS];
    struct pkv_attn_constants rope;
    struct pkv_gqa_args args;
    struct pkv_rank_args rank;
    int32_t cu_selected[RANK_MAX_LISTS + 1], selected[RANK_MAX_LISTS * RANK_MAX_BLOCKS];
    float scores[RANK_MAX_LISTS * RANK_MAX_BLOCKS];
};

void rank_case_make(struct rank_case *c, uint64_t seed, enum pkv_dtype k_dtype);
void rank_case_free(struct rank_case *c);

/* Bounds of all blocks, then the rank; false after a refusal, of which the last error tells.
 * Scores that are not written are NaN. */
bool rank_case_run(struct rank_case *c, pkv_workspace *workspace);

/* Queries are rotated by positions of their own, and normed. */
void rank_case_use_rope_and_norm(struct rank_case *c);

/* The same queries rotated and normed, f32, packed; the caller frees them. */
float *rank_case_prepared_queries(const struct rank_case *c, pkv_workspace *workspace);

/* The table entry of block n of row b; a list's scores; whether list i of all has block n. */
int32_t rank_case_block(const struct rank_case *c, int32_t b, int32_t n);
const float *rank_case_scores(const struct rank_case *c, int32_t b, int32_t list);
bool rank_case_is_chosen(const struct rank_case *c, int32_t i, int32_t n);

/* Of block n and the queries of one list of row b, of calls without rope and norm. */
struct rank_truth {
    double largest_product; /* q . k over the keys of the block */
    double bound;
    double size; /* the largest sum of magnitudes in a bound */
};
struct rank_truth rank_case_truth(const struct rank_case *c, int32_t b, int32_t list, int32_t n);

/* Bounds of the full blocks of a call's rows, PAGED or CONTINUOUS, and lists of the `most` best;
 * bounds of all other blocks are NaN. Asserts PKV_OK. */
void rank_case_of_call(const struct pkv_gqa_args *args, pkv_workspace *workspace, int32_t most,
                       int32_t *selected, int32_t *cu_selected);

#endif
