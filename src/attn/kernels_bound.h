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

/* The sum of lanes: lane i and lane i + 8, i + 4, i + 2, i + 1. */
VEC_INLINE void bound_sums(int num_queries, vf *sums, float *scores)
{
    vf lanes[BOUND_QUERIES];
    for (int i = 0; i < num_queries; i++) {
        vf *of_query = sums + i * BOUND_VECS;
        for (int half = BOUND_VECS / 2; half > 0; half /= 2) {
            for (int v = 0; v < half; v++) {
                of_query[v] = vec_add(of_query[v], of_query[v + half]);
            }
        }
        lanes[i] = of_query[0];
    }
    if (num_queries % 4 == 0) {
        vec_sums(lanes, num_queries, scores);
        return;
    }
    for (int i = 0; i < num_queries; i++) {
        scores[i] = vec_sum(lanes[i]);
    }
}

/* The KV head under way. */
struct bound_head {
    const float *q, *slack, *bounds;
    const float *next; /* prefetched, unless it is NULL */
    vf share, minus;
};

/* BOUND_LANES channels from c on; what is behind `width` counts as 0. The lines of `next` are
 * prefetched in the order of memory, so that the processor's own prefetcher joins in. */
VEC_INLINE void bound_chunk(const struct kernel_bound_job *job, const struct bound_head *head,
                            int num_queries, const float *q, size_t c, size_t width, vf *sums)
{
    vf bound[BOUND_VECS];
    if (head->next != NULL) {
        vec_prefetch(head->next + 2 * c);
        if (c + BOUND_LANES <= width) {
            vec_prefetch(head->next + 2 * c + BOUND_LANES);
        }
    }
    bound_load(head->bounds, c, width, head->minus, bound);
    bound_terms(num_queries, q, job->q_stride, c, bound, sums);
    bound_load(head->bounds + job->width, c, width, head->share, bound);
    bound_terms(num_queries, q + padded(job->width), job->q_stride, c, bound, sums);
}

/* The best of `best` and the scores of queries from `query` on; +inf where one is not finite. */
VEC_INLINE float bound_queries(const struct kernel_bound_job *job, const struct bound_head *head,
                               int num_queries, int query, float best)
{
    const float *q = head->q + (size_t)query * job->q_stride;
    vf sums[BOUND_QUERIES * BOUND_VECS];
    float scores[BOUND_QUERIES];
    for (int n = 0; n < num_queries * BOUND_VECS; n++) {
        sums[n] = vec_set(0.0f);
    }
    size_t c = 0;
    for (; c + BOUND_LANES <= job->width; c += BOUND_LANES) {
        bound_chunk(job, head, num_queries, q, c, c + BOUND_LANES, sums);
    }
    if (c < job->width) {
        bound_chunk(job, head, num_queries, q, c, job->width, sums);
    }
    bound_sums(num_queries, sums, scores);
    for (int i = 0; i < num_queries; i++) {
        const float score = scores[i] + head->slack[query + i];
        const float finite = fabsf(score) < INFINITY ? score : INFINITY;
        best = finite > best ? finite : best;
    }
    return best;
}

static void bound(const struct kernel_bound_job *job)
{
    const size_t stride = (size_t)job->num_queries;
    struct bound_head head = {
        .q = job->q,
        .slack = job->slack,
        .bounds = job->bounds,
        .next = job->next,
        .share = vec_set(job->share),
        .minus = vec_set(-job->share),
    };
    for (int h = 0; h < job->num_heads; h++) {
        float best = -INFINITY;
        int query = 0;
        for (; query + BOUND_QUERIES <= job->num_queries; query += BOUND_QUERIES) {
            best = bound_queries(job, &head, BOUND_QUERIES, query, best);
            head.next = NULL;
        }
        for (; query < job->num_queries; query++) {
            best = bound_queries(job, &head, 1, query, best);
            head.next = NULL;
        }
        job->best[h] = best;
        head.q += stride * job->q_stride;
        head.slack += stride;
        head.bounds += 2 * job->width;
        head.next = job->next != NULL ? job->next + (size_t)(h + 1) * 2 * job->width : NULL;
    }
}

#endif
