/* SPDX-License-Identifier: MIT
 *
 * kernels_bound.h: bounds of the dot products of queries with the keys of a block. Unlike all other
 * kernels this one has the same bits at every level: BOUND_LANES lanes, whatever the register, and
 * no fused multiply-add. Part of kernels_template.h. */
#ifndef PKV_ATTN_KERNELS_BOUND_H
#define PKV_ATTN_KERNELS_BOUND_H

#include "attn/vec_words.h"

#define BOUND_LANES 16
#define BOUND_VECS (BOUND_LANES / VEC_LANES)

/* Queries at once, as many as leave registers for the bounds; they change no order. */
#define BOUND_QUERIES (VEC_LANES > 4 ? 4 : 1)

/* sums[i] += q[i] * bound, over the lanes from channel `first` on. */
VEC_INLINE void bound_terms(int num_queries, const float *q, size_t q_stride, size_t first,
                            const vf *bound, vf *sums)
{
    for (int i = 0; i < num_queries; i++) {
        for (int v = 0; v < BOUND_VECS; v++) {
            const vf x = vec_load(q + (size_t)i * q_stride + first + (size_t)v * VEC_LANES);
            vf *sum = &sums[i * BOUND_VECS + v];
            *sum = vec_add(*sum, vec_mul(x, bound[v]));
        }
    }
}

/* BOUND_LANES bounds from channel `first` on, x + |x| * share; 0 behind the last channel. */
VEC_INLINE void bound_load(const float *x, size_t first, size_t width, vf share, vf *bound)
{
    for (int v = 0; v < BOUND_VECS; v++) {
        const size_t at = first + (size_t)v * VEC_LANES;
        const vf value = at + VEC_LANES <= width ? vec_load(x + at)
                         : at < width            ? vec_load_f32(x + at, width - at)
                                                 : vec_set(0.0f);
        bound[v] = vec_add(value, vec_mul(vec_abs(value), share));
    }
}

/* Lane i and lane i + 8, i + 4, i + 2, i + 1. */
VEC_INLINE float bound_sum(const vf *sums)
{
    float lanes[BOUND_LANES];
    for (int v = 0; v < BOUND_VECS; v++) {
        vec_store(lanes + v * VEC_LANES, sums[v]);
    }
    for (int half = BOUND_LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lanes[i] += lanes[i + half];
        }
    }
    return lanes[0];
}

VEC_INLINE void bound_queries(int num_queries, int query, const struct kernel_bound_job *job)
{
    const size_t stride = job->q_stride;
    const float *below = job->q + (size_t)query * stride;
    const float *above = below + padded(job->width);
    const vf share = vec_set(job->share);
    const vf minus = vec_set(-job->share);
    vf sums[4 * BOUND_VECS];
    for (int n = 0; n < num_queries * BOUND_VECS; n++) {
        sums[n] = vec_set(0.0f);
    }
    for (size_t c = 0; c < job->width; c += BOUND_LANES) {
        vf bound[BOUND_VECS];
        if (job->next != NULL) {
            vec_prefetch(job->next + c);
            vec_prefetch(job->next + job->width + c);
        }
        bound_load(job->bounds, c, job->width, minus, bound);
        bound_terms(num_queries, below, stride, c, bound, sums);
        bound_load(job->bounds + job->width, c, job->width, share, bound);
        bound_terms(num_queries, above, stride, c, bound, sums);
    }
    for (int i = 0; i < num_queries; i++) {
        job->scores[query + i] = bound_sum(sums + i * BOUND_VECS);
    }
}

static void bound(const struct kernel_bound_job *job)
{
    int query = 0;
    for (; query + BOUND_QUERIES <= job->num_queries; query += BOUND_QUERIES) {
        bound_queries(BOUND_QUERIES, query, job);
    }
    for (; query < job->num_queries; query++) {
        bound_queries(1, query, job);
    }
}

#endif
