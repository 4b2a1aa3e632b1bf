/* SPDX-License-Identifier: MIT
 *
 * kernels.h: the arithmetic, one table of functions per instruction set. A kernel knows nothing of
 * pages, sequences or threads: it gets one pointer per key or value vector, counts and strides, and
 * writes floats. All of them share one order of operations, which is what makes the bits of a
 * query's result independent of how its keys are cut up:
 *
 *   dot           lane l of VEC_LANES sums channels l, l + VEC_LANES, .. in ascending order by
 *                 fused multiply-add, then lanes are reduced in halves (i + n/2, i + n/4, ..)
 *   softmax       over one tile of at most TILE_KEYS scores; its sum is reduced as a dot is
 *   weighted_sum  per channel, the tile's keys in ascending order
 *   bound         lane l of 16 sums channels l, l + 16, .., then lanes in halves; nothing is fused
 *
 * Nothing is read past a vector's last channel. Scratch (q, acc, scores) is padded to a multiple of
 * PAD_LANES floats a query, and the padding of q and acc is zero. */
#ifndef PKV_ATTN_KERNELS_H
#define PKV_ATTN_KERNELS_H

#include "pagedkv/attn.h"

/* Tiles and spans are cut at absolute key indices, multiples of these. */
#define TILE_KEYS 64
#define SPAN_KEYS 512

/* The widest vector register of any instruction set, in floats. */
#define PAD_LANES 16

#define NUM_DTYPES 5

#define LINE_BYTES 64 /* of a processor's cache */

static inline size_t padded(size_t channels)
{
    return (channels + PAD_LANES - 1) / PAD_LANES * PAD_LANES;
}

/* Every kernel reads e4m3 as its value over 2^8, which is what its bits are as f16: a product a
 * register less, and exact. What the kernels make of such values is multiplied by this later. */
#define E4M3_VALUE_SCALE 256.0f

static inline float value_scale_of(enum pkv_dtype dtype)
{
    return dtype == PKV_E4M3 ? E4M3_VALUE_SCALE : 1.0f;
}

/* y[i] = x[i] / value_scale_of(dtype), exactly; x of any dtype. x and y do not overlap. */
typedef void kernel_widen(enum pkv_dtype dtype, const void *x, size_t count, float *y);

/* y[i] = x[i] rounded to nearest even; NaN stays NaN. y of a float dtype. */
typedef void kernel_narrow(enum pkv_dtype dtype, const float *x, size_t count, void *y);

/* Key or value vectors that will be wanted soon, brought into the second-level cache by a job while
 * it computes. During group g these are the job's own vectors of group g + distance, as far as it
 * has one; then those below, group by group, which are wanted after the job. At most as many bytes
 * are brought with a group as it loads. */
struct kernel_prefetch {
    const void *const *vectors; /* [num_vectors] */
    int num_vectors;            /* 0: none */
    size_t vector_bytes;        /* > 0 */
    size_t offset;              /* from each of vectors to the first group's */
    size_t group_bytes;         /* from there to the next group's */
    int distance;               /* below the number of groups; 0: none of the job's own */
};

/* A job has groups of queries (a KV head each), which see keys or values of their own: those of
 * group g lie g * group_bytes behind the first group's, and its queries are rows g * group_rows on.
 * One job for all heads of a run of cells reads the run in the order in which it lies. */

/* What pack_int8 has to say of a query: multiples of grain * size, in `count` digits of 8 bits. */
struct kernel_digits {
    int32_t count;     /* 3, 4, or 0: q stays as it was, and dot is for it */
    float size, grain; /* the largest |q[c]|, and 1 over its multiple */
    int32_t start[4];  /* of the sums of each digit */
    int32_t reserved;
};

/* scores[i][j] = dot(q[i], keys[j]) / value_scale_of(dtype) over width channels, for
 * i < num_queries, j < num_keys, in each group. scores overlaps nothing else. */
struct kernel_dot_job {
    enum pkv_dtype dtype; /* of keys */
    int q_parts;          /* dot_packed alone: how many of q's parts, 1 or 2 */
    const float *q;       /* [num_queries][q_stride] */
    size_t q_stride;
    const void *const *keys; /* [num_keys] */
    int num_groups;
    size_t group_rows, group_bytes;
    int num_queries; /* of a group */
    int num_keys;
    size_t width;
    float *scores; /* [num_queries][TILE_KEYS] */
    struct kernel_prefetch prefetch;
    /* dot_int8 alone; those of a query without digits are made up */
    const struct kernel_digits *digits; /* [num_queries] */
    void *transposed;                   /* scratch of TILE_KEYS * padded(width) bytes */
};
typedef void kernel_dot(const struct kernel_dot_job *job);

/* One query of q, q_stride floats, rewritten in place as the parts that dot_packed reads; spare
 * [q_stride]. dot_packed may give NaN where an infinite factor meets a part that is 0 or
 * subnormal. */
typedef void kernel_pack(float *q, size_t q_stride, float *spare);

/* The largest |score_scale * q[c] * key| for which a query has so many digits; with more than the
 * most it has none. docs/numerics.md says why. */
#define INT8_MAX_TERM_OF_3 2.0f
#define INT8_MAX_TERM 512.0f

/* Query heads a KV head from which on it pays. */
#define INT8_MIN_HEADS 8

/* Widths above it have sums that do not fit. */
#define INT8_MAX_WIDTH 65536

/* One query of q, q_stride floats, rewritten in place as the digits that dot_int8 reads, unless its
 * terms are too large, NaN or infinite. score_scale is what will multiply its scores. */
typedef void kernel_pack_int8(float *q, size_t q_stride, float score_scale,
                              struct kernel_digits *digits);

/* Weights of a whole tile [num_queries][TILE_KEYS], rewritten in place as weighted_sum_int8 reads
 * them. */
typedef void kernel_pack_weights(float *weights, int num_queries, int num_keys);

/* One tile of online softmax for each query: with s[j] = scores[j] * scale and m the larger of *max
 * and all s[j],
 *     scores[j] = exp(s[j] - m)      *alpha = exp(*max - m)
 *     *sum = *sum * *alpha + sum of scores
 * and *max = m. Scores up to the next multiple of PAD_LANES are overwritten, with 0 unless m is
 * NaN. *max starts at -inf, *sum at 0. All s[j] -inf leaves max and sum as they were, alpha 1. A
 * NaN or +inf among them makes *sum NaN for good; alpha may then be anything. */
struct kernel_softmax_job {
    float *scores; /* [num_queries][TILE_KEYS] */
    int num_queries;
    int num_keys;
    float scale;
    float *max, *sum, *alpha; /* [num_queries] */
};
typedef void kernel_softmax(const struct kernel_softmax_job *job);

/* acc[i][c] = acc[i][c] * alpha[i] + sum over j of weights[i][j] * values[j][c], the values over
 * value_scale_of(dtype), in each group. acc overlaps nothing else. A tile's values may come in
 * several jobs, in ascending order and the alpha of all but the first 1, with the same bits; not so
 * those of weighted_sum_int8. */
struct kernel_weighted_sum_job {
    enum pkv_dtype dtype;      /* of values */
    const float *weights;      /* [num_queries][TILE_KEYS] */
    const float *alpha;        /* [num_queries]; NULL: 1 */
    const void *const *values; /* [num_keys] */
    int num_groups;
    size_t group_rows, group_bytes;
    int num_queries; /* of a group */
    int num_keys;
    size_t width;
    float *acc; /* [num_queries][acc_stride] */
    size_t acc_stride;
    struct kernel_prefetch prefetch;
};
typedef void kernel_weighted_sum(const struct kernel_weighted_sum_job *job);

/* One block. best[h] = the largest of its scores with the queries of KV head h, +inf if one of them
 * is not finite:
 *     slack[h][i] + the sum over channels c of
 *         below[h][i][c] * (least[h][c] - |least[h][c]| * share)
 *         + above[h][i][c] * (greatest[h][c] + |greatest[h][c]| * share)
 * A query is below, then above, each padded with zeros. The same bits at every level. */
struct kernel_bound_job {
    const float *q; /* [num_heads][num_queries][q_stride] */
    size_t q_stride;
    const float *slack; /* [num_heads][num_queries] */
    int num_heads;      /* KV heads */
    int num_queries;    /* of each */
    size_t width;
    const float *bounds; /* [num_heads]: least [width], greatest [width] */
    const float *next;   /* bounds of a block that will be wanted soon, or NULL */
    float share;
    float *best; /* [num_heads] */
};
typedef void kernel_bound(const struct kernel_bound_job *job);

/* x[i] = x[i] * factor */
typedef void kernel_scale(float *x, size_t count, float factor);

/* total[i] = total[i] * keep + x[i] * add, each product rounded by itself. total and x do not
 * overlap. */
typedef void kernel_merge(float *total, float keep, const float *x, float add, size_t count);

/* x[i] = cap * tanh(x[i] / cap); cap > 0. Saturates, NaN stays NaN. */
typedef void kernel_softcap(float *x, size_t count, float cap);

struct kernels {
    enum pkv_isa isa;
    unsigned needs; /* features of cpu.h, without which nothing below may be called */
    kernel_widen *widen;
    kernel_narrow *narrow;
    kernel_dot *dot;
    kernel_pack *pack;      /* NULL: no packed dot products at this level */
    kernel_dot *dot_packed; /* bf16 keys and packed q; NULL with pack */
    /* int8 keys and int8 values as whole numbers, and what packs for them; NULL, all four: not at
     * this level */
    kernel_pack_int8 *pack_int8;
    kernel_dot *dot_int8;
    kernel_pack_weights *pack_weights;
    kernel_weighted_sum *weighted_sum_int8;
    kernel_softmax *softmax;
    kernel_weighted_sum *weighted_sum;
    kernel_bound *bound;
    kernel_scale *scale;
    kernel_merge *merge;
    kernel_softcap *softcap;
};

/* kernels_scalar, kernels_avx2, ..: a build has those of its machine. */
#define DECLARE_TABLE(isa, value, name, machine) extern const struct kernels kernels_##name;
PKV_ISA_LIST(DECLARE_TABLE)
#undef DECLARE_TABLE

#endif
