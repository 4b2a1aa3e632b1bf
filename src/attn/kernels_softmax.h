/* SPDX-License-Identifier: MIT
 *
 * kernels_softmax.h: online softmax of one tile. A whole tile goes SOFTMAX_QUERIES queries at a
 * time through a loop of constant length; a query that has not seen a key yet, and a tile that is
 * not whole, go one by one, with the same bits. Part of kernels_template.h. */
#ifndef PKV_ATTN_KERNELS_SOFTMAX_H
#define PKV_ATTN_KERNELS_SOFTMAX_H

#include "attn/kernels_math.h"

/* Queries whose chains of dependent operations overlap. */
#define SOFTMAX_QUERIES 4

/* No score above -inf: weights of 0, and the state as it was. The vector maximum passes over NaN,
 * so it may still be there: then the state is NaN from here on. */
static float softmax_of_nothing(float *scores, size_t num_keys, float *max, float *sum)
{
    float factor = 1.0f;
    for (size_t j = 0; j < padded(num_keys); j++) {
        if (j < num_keys && scores[j] != scores[j]) {
            *max = *sum = factor = NAN;
        } else {
            scores[j] = 0.0f;
        }
    }
    return factor;
}

/* exp(max - new_max), which is exactly 1 for most tiles: the maximum is found early. */
VEC_INLINE float decay_of(float max, float new_max)
{
    float alpha[VEC_LANES];
    if (max == new_max) {
        return 1.0f;
    }
    vec_store(alpha, exp_of(vec_set(max - new_max)));
    return alpha[0];
}

/* The largest of max and a query's num_keys scores, a multiple of VEC_LANES, times scale. */
VEC_INLINE float largest_of(const float *scores, size_t num_keys, float scale, float max)
{
    vf largest = vec_set(max);
    for (size_t j = 0; j < num_keys; j += VEC_LANES) {
        largest = vec_max(vec_mul(vec_load(scores + j), vec_set(scale)), largest);
    }
    return vec_max_lane(largest);
}

/* num_queries from `query` on against num_keys, a multiple of VEC_LANES; both constants in the
 * usual case. */
VEC_INLINE void softmax_block(int num_queries, size_t num_keys, float scale, const float *new_max,
                              int query, const struct kernel_softmax_job *job)
{
    float *scores = job->scores + (size_t)query * TILE_KEYS;
    vf total[SOFTMAX_QUERIES];
    for (int i = 0; i < num_queries; i++) {
        total[i] = vec_set(0.0f);
    }
    for (size_t j = 0; j < num_keys; j += VEC_LANES) {
        for (int i = 0; i < num_queries; i++) {
            float *at = scores + (size_t)i * TILE_KEYS + j;
            const vf score = vec_mul(vec_load(at), vec_set(scale));
            const vf p = exp_of(vec_sub(score, vec_set(new_max[i])));
            vec_store(at, p);
            total[i] = vec_add(total[i], p);
        }
    }
    for (int i = 0; i < num_queries; i++) {
        const float alpha = decay_of(job->max[query + i], new_max[i]);
        job->sum[query + i] = job->sum[query + i] * alpha + vec_sum(total[i]);
        job->max[query + i] = new_max[i];
        job->alpha[query + i] = alpha;
    }
}

/* One query and any number of keys: scaled first, then padded with -inf. */
static void softmax_any(int query, const struct kernel_softmax_job *job)
{
    float *scores = job->scores + (size_t)query * TILE_KEYS;
    const size_t num_keys = (size_t)job->num_keys, end = padded(num_keys);
    for (size_t j = 0; j < num_keys; j++) {
        scores[j] *= job->scale;
    }
    for (size_t j = num_keys; j < end; j++) {
        scores[j] = -INFINITY;
    }
    const float new_max = largest_of(scores, end, 1.0f, job->max[query]);
    if (new_max == -INFINITY) { /* -inf - -inf would be NaN */
        job->alpha[query] =
            softmax_of_nothing(scores, num_keys, &job->max[query], &job->sum[query]);
    } else {
        softmax_block(1, end, 1.0f, &new_max, query, job);
    }
}

/* num_queries, a constant, against a whole tile, if each of them has seen a key by then. */
VEC_INLINE bool softmax_whole(int num_queries, int query, const struct kernel_softmax_job *job)
{
    const float *scores = job->scores + (size_t)query * TILE_KEYS;
    float new_max[SOFTMAX_QUERIES];
    bool is_seen = true;
    for (int i = 0; i < num_queries; i++) {
        new_max[i] =
            largest_of(scores + (size_t)i * TILE_KEYS, TILE_KEYS, job->scale, job->max[query + i]);
        is_seen = is_seen && new_max[i] != -INFINITY;
    }
    if (is_seen) {
        softmax_block(num_queries, TILE_KEYS, job->scale, new_max, query, job);
    }
    return is_seen;
}

static void softmax(const struct kernel_softmax_job *given)
{
    const struct kernel_softmax_job job = *given; /* whose fields no store to scores can change */
    int query = 0;
    while (job.num_keys == TILE_KEYS && query + SOFTMAX_QUERIES <= job.num_queries &&
           softmax_whole(SOFTMAX_QUERIES, query, &job)) {
        query += SOFTMAX_QUERIES;
    }
    for (; query < job.num_queries; query++) {
        if (job.num_keys != TILE_KEYS || !softmax_whole(1, query, &job)) {
            softmax_any(query, &job);
        }
    }
}

#endif
