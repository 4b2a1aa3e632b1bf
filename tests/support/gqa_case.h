/* SPDX-License-Identifier: MIT
 *
 * gqa_case.h: builds whole calls of the operator for tests, runs them, and judges the answer by the
 * float64 reference.
 *
 * What a case holds is a function of (seed, row id, KV head, position, channel): the same row in
 * another batch, cache form, permutation of blocks or cut into calls has the same numbers, so two
 * cases can be compared bit by bit. Every array ends (or begins) at a page that cannot be touched;
 * every cell that no query may see, every gap between strides and every output is poisoned first.
 */
#ifndef PKV_TEST_GQA_CASE_H
#define PKV_TEST_GQA_CASE_H

#include <stdio.h>

#include "support/reference.h"

enum { CASE_MAX_ROWS = 8, CASE_MAX_RANGES = 4, CASE_MAX_REGIONS = 40 };

/* Options of the call beside its geometry; details follow from the seed. */
enum case_option {
    CASE_Q_SCALE = 1 << 0,
    CASE_ROPE = 1 << 1,
    CASE_POSITION_IDS = 1 << 2, /* with CASE_ROPE */
    CASE_NORM = 1 << 3,
    CASE_SINK = 1 << 4,
    CASE_SMOOTH = 1 << 5, /* not beside CASE_SINK */
    CASE_SOFTCAP = 1 << 6,
    CASE_MASK = 1 << 7,
    CASE_SELECTION = 1 << 8, /* of tests that draw calls: they draw a selection, too */
    CASE_TREE = 1 << 9       /* the same: and trees of drafts */
};

struct case_spec {
    uint64_t seed;   /* of the numbers and the options' details */
    uint64_t layout; /* of the order of blocks and slots and of the side of the guard pages */
    enum pkv_cache_form form;
    enum pkv_dtype dtype, k_dtype, v_dtype; /* NONE: the cache is in dtype */
    int32_t kv_heads, group, k_width, v_width;
    bool v_in_k;
    int32_t batch;
    int32_t row_ids[CASE_MAX_ROWS];
    int32_t q_lens[CASE_MAX_ROWS], kv_lens[CASE_MAX_ROWS];
    int32_t block_size; /* PAGED */
    int64_t window;
    int64_t kept[CASE_MAX_ROWS];
    int32_t kept_count;
    struct pkv_token_range ranges[CASE_MAX_ROWS][CASE_MAX_RANGES]; /* bidirectional */
    int32_t num_ranges[CASE_MAX_ROWS];
    int32_t selection_size; /* keys of a selected block; 0 = nothing is selected */
    int64_t selected_newest;
    int32_t selected_share; /* percent of the blocks */
    bool selects_by_head;
    int32_t tree_shape; /* of tree_case.h; 0 = no parents are given */
    bool not_causal, read_only, without_lse;
    bool padded;     /* every stride is larger than packed */
    bool cell_major; /* [block][cell][head][channel] */
    bool evicted;    /* table entries that are not needed are -1 */
    int poison;      /* 0 NaN, 1 infinity, 2 something large and finite */
    double loudness; /* factor of q; 0 = 1 */
    unsigned options;
};

enum region_kind { REGION_INPUT = 1, REGION_CACHE = 2, REGION_OUTPUT = 4 };

/* bytes at start, inside pages map..map + map_bytes that end in guards on both sides */
struct case_region {
    enum region_kind kind;
    char *map;
    size_t map_bytes;
    char *start;
    size_t bytes;
    char *before; /* the accessible pages at the last snapshot */
};

/* One call. Pointers of args into the case's own arrays, which a test may change by those below. */
struct gqa_case {
    struct case_spec spec;
    struct pkv_gqa_args args;
    int32_t *cu_seqlens_q, *cu_seqlens_k, *kv_lens, *block_table, *slot_ids;
    int64_t *kept_prefix, *position_ids;
    struct pkv_token_range *bidirectional;
    int32_t *cu_bidirectional;
    int32_t *cu_selected, *selected, *parents;
    float q_scale;
    enum pkv_isa isa; /* that the case was checked on; BEST before */
    struct case_region regions[CASE_MAX_REGIONS];
    size_t num_regions;
};

/* A spec that is plain: f32, paged, one KV head of width 8, block_size 4, no rows. */
struct case_spec case_plain(uint64_t seed);
void case_add_row(struct case_spec *spec, int32_t row_id, int32_t q_len, int32_t kv_len);
void case_add_range(struct case_spec *spec, int32_t row, int32_t begin, int32_t end);

struct gqa_case *gqa_case_make(const struct case_spec *spec);
void gqa_case_free(struct gqa_case *c);

/* A zeroed array between guards that the call may only read. */
void *gqa_case_input(struct gqa_case *c, size_t count, size_t bytes);

/* Records every byte; then the first region of the kinds (a sum) that has changed, or -1. */
void gqa_case_snapshot(struct gqa_case *c);
int gqa_case_changed(const struct gqa_case *c, int kinds);

/* pkv_gqa, or the read-only attend for a read-only spec. */
enum pkv_status gqa_case_call(const struct gqa_case *c, pkv_workspace *workspace);

/* Made and called; asserts PKV_OK. */
struct gqa_case *gqa_case_run(const struct case_spec *spec, pkv_workspace *workspace);

/* Tokens begin..end of a case that is one packed row without past, as a call of their own that
 * appends to what the calls before it left. */
enum pkv_status gqa_case_call_chunk(const struct gqa_case *c, pkv_workspace *workspace,
                                    int32_t begin, int32_t end);

/* Runs the case and compares with the reference; false after a line that says what differs. A
 * refusal is false too. */
bool gqa_case_check(struct gqa_case *c, pkv_workspace *workspace);

/* How far the sums over kv_len keys may be off, before the rounding of the output and in units of
 * the largest |V|; at = token * num_heads + head. */
double gqa_case_bound(const struct gqa_case *c, const struct reference *ref, size_t at,
                      int32_t kv_len);

/* The output of query i of row b, all heads, and its bytes; the lse likewise. */
const void *gqa_case_out(const struct gqa_case *c, int32_t b, int32_t i);
size_t gqa_case_out_bytes(const struct gqa_case *c);
const float *gqa_case_lse(const struct gqa_case *c, int32_t b, int32_t i);

/* True when outputs and lse of the rows are the same bits: query i of row b of one is query j of
 * row d of the other. */
bool gqa_case_same_row(const struct gqa_case *a, int32_t b, int32_t i, const struct gqa_case *c,
                       int32_t d, int32_t j);

/* The same of all rows of two cases with the same rows; prints the first that differs. */
bool gqa_case_same_rows(const struct gqa_case *a, const struct gqa_case *b);

/* The same, of a case of this spec that is made, run and freed. */
bool gqa_case_runs_same(const struct gqa_case *expected, const struct case_spec *spec,
                        pkv_workspace *workspace);

/* Calls written by hand: packed f32 arrays, one token a row; case_run asserts PKV_OK of pkv_gqa. */
struct pkv_kv_view case_f32_view(float *k, float *v, int32_t num_blocks, int32_t kv_heads,
                                 int32_t block_size, int32_t width);
struct pkv_gqa_args case_f32_args(enum pkv_cache_form form, int32_t batch, int32_t num_heads,
                                  int32_t kv_heads, int32_t width);
void case_run(const struct pkv_gqa_args *args);

/* Within 1e-5 of want and 1e-6. */
bool case_is_close(double got, double want);
#define ASSERT_CLOSE(got, want)                                                                    \
    do {                                                                                           \
        if (!case_is_close((double)(got), (want))) {                                               \
            printf("\n  " #got " = %.9g, expected %.9g\n", (double)(got), (double)(want));         \
        }                                                                                          \
        CU_ASSERT(case_is_close((double)(got), (want)));                                           \
    } while (0)

/* A workspace on the tested instruction set, which takes threads for the smallest work; the test
 * fails when there is none. */
pkv_workspace *case_workspace(int num_threads);

#endif
