/* SPDX-License-Identifier: MIT
 *
 * kernels.h: the arithmetic, one table of functions per instruction set. A kernel knows nothing of
 * pages, rows or threads: it gets one pointer per key and per value row, counts and strides, and
 * writes floats. All of them share one order of operations, which is what makes a row's bits
 * independent of how it is cut up:
 *
 *   dot      lane l of VEC_LANES sums channels l, l + VEC_LANES, .. in ascending order by fused
 *            multiply-add, then lanes fold in halves (i + n/2, i + n/4, ..)
 *   softmax  over one tile of at most TILE_KEYS scores; the sum folds as a dot does
 *   weigh    per channel, the tile's keys in ascending order
 *
 * Nothing is read past a row's last channel. Scratch rows (q, acc, scores) are padded to a multiple
 * of PAD_LANES floats, and the padding of q and acc is zero. */
#ifndef PKV_ATTN_KERNELS_H
#define PKV_ATTN_KERNELS_H

#include "pagedkv/attn.h"

/* Tiles and spans are cut at absolute key indices, multiples of these. */
#define TILE_KEYS 64
#define SPAN_KEYS 512

/* The widest vector of any instruction set, in floats. */
#define PAD_LANES 16

#define NUM_DTYPES 5

static inline size_t padded(size_t channels)
{
    return (channels + PAD_LANES - 1) / PAD_LANES * PAD_LANES;
}

/* Every kernel reads e4m3 as its value over 2^8, which is what its bits are as f16: a product a
 * vector less, and exact. Whoever uses the sums multiplies them by this. */
#define E4M3_UNIT 256.0f

static inline float unit_of(enum pkv_dtype dtype)
{
    return dtype == PKV_E4M3 ? E4M3_UNIT : 1.0f;
}

/* y[i] = x[i] / unit_of(dtype), exactly; x of the dtype that the entry stands for. x and y do not
 * overlap. */
typedef void kernel_widen(const void *x, size_t count, float *y);

/* y[i] = x[i] rounded to nearest even; NaN stays NaN. */
typedef void kernel_narrow(const float *x, size_t count, void *y);

/* Rows of row_bytes each, as they lie in the cache, that will be wanted soon: as many as the kernel
 * is given keys or values. */
struct kernel_ahead {
    const void *const *rows; /* NULL: none */
    size_t row_bytes;
};

/* scores[i][j] = dot(q[i], keys[j]) over width channels, for i < num_queries, j < num_keys, in
 * units of the keys' dtype. q [num_queries][q_stride]; scores [num_queries][TILE_KEYS]. ahead
 * may be NULL. */
typedef void kernel_dot(const float *q, size_t q_stride, int num_queries, const void *const *keys,
                        const struct kernel_ahead *ahead, int num_keys, int width, float *scores);

/* A row of q, q_stride floats, rewritten in place as the parts that dot_packed reads; spare
 * [q_stride]. dot_packed may give NaN where an infinite factor meets a part that is 0 or
 * subnormal. */
typedef void kernel_pack(float *row, size_t q_stride, float *spare);

/* One tile of online softmax for each of num_queries queries, scores [num_queries][TILE_KEYS]: with
 * s[j] = scores[j] * scale and m the larger of *max and all s[j],
 *     scores[j] = exp(s[j] - m)      *alpha = exp(*max - m)
 *     *sum = *sum * *alpha + sum of scores
 * and *max = m. Scores up to the next multiple of PAD_LANES are overwritten, with 0 unless m is
 * NaN. *max starts at -inf, *sum at 0. All s[j] -inf leaves max and sum as they were, alpha 1. A
 * NaN or +inf among them makes *sum NaN for good; alpha may then be anything. */
typedef void kernel_softmax(float *scores, int num_queries, int num_keys, float scale, float *max,
                            float *sum, float *alpha);

/* acc[i][c] = acc[i][c] * alpha[i] + sum over j of p[i][j] * values[j][c], in units of the values'
 * dtype. p [num_queries][TILE_KEYS]; acc [num_queries][acc_stride]. */
typedef void kernel_weigh(const float *p, const float *alpha, int num_queries,
                          const void *const *values, const struct kernel_ahead *ahead, int num_keys,
                          int width, float *acc, size_t acc_stride);

/* x[i] = x[i] * factor */
typedef void kernel_scale(float *x, size_t count, float factor);

/* x[i] = cap * tanh(x[i] / cap); cap > 0. Saturates, NaN stays NaN. */
typedef void kernel_softcap(float *x, size_t count, float cap);

struct kernels {
    enum pkv_isa isa;
    kernel_widen *widen[NUM_DTYPES];   /* indexed by enum pkv_dtype */
    kernel_narrow *narrow[NUM_DTYPES]; /* of float types */
    kernel_dot *dot[NUM_DTYPES];
    kernel_pack *pack;         /* NULL: no packed dot products at this level */
    kernel_dot *dot_packed[2]; /* bf16 keys; of q's first part alone, of both */
    kernel_weigh *weigh[NUM_DTYPES];
    kernel_softmax *softmax;
    kernel_scale *scale;
    kernel_softcap *softcap;
};

extern const struct kernels kernels_scalar;
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx512;
extern const struct kernels kernels_avx512bf16;

/* The table of a level, its own or (BEST) the highest; NULL when this CPU or build lacks it. */
const struct kernels *kernels_for(enum pkv_isa isa);

#endif
