/* SPDX-License-Identifier: MIT
 *
 * kernels_weighted_sum.h: sums of values by their weights, by register blocks of num_queries
 * queries x num_vecs registers of channels. A block converts each value once for all its queries;
 * how many sums are in flight never changes the order within one. Part of kernels_template.h. */
#ifndef PKV_ATTN_KERNELS_WEIGHTED_SUM_H
#define PKV_ATTN_KERNELS_WEIGHTED_SUM_H

#include "attn/kernels_convert.h"
#include "attn/vec_prefetch.h"

/* Keys between two shares of the prefetch. */
#define SUM_RUN_KEYS 8

#define SUM_SUMS (VEC_SUM_QUERIES * VEC_SUM_VECS)

/* sums[i * num_vecs + v] += weights[i][j] * values[j] for a run of keys in ascending order. */
VEC_INLINE void sum_run(enum pkv_dtype dtype, int num_queries, int num_vecs,
                        const void *const *values, int num_keys, const float *weights, size_t first,
                        size_t count, vf *sums)
{
    for (int j = 0; j < num_keys; j++) {
        vf value[VEC_SUM_VECS];
        for (int v = 0; v < num_vecs; v++) {
            const size_t at = first + (size_t)v * VEC_LANES;
            value[v] = load_as(dtype, values[j], at, num_vecs > 1 ? VEC_LANES : count);
        }
        for (int i = 0; i < num_queries; i++) {
            const vf weight = vec_set(weights[(size_t)i * TILE_KEYS + (size_t)j]);
            for (int v = 0; v < num_vecs; v++) {
                sums[i * num_vecs + v] = vec_fma(weight, value[v], sums[i * num_vecs + v]);
            }
        }
    }
}

/* Queries from `query` on, channels [first, first + count): num_vecs whole registers, or one that
 * may be part. */
VEC_INLINE void sum_block(enum pkv_dtype dtype, int num_queries, int num_vecs, int query,
                          size_t first, size_t count, struct prefetch *prefetch,
                          const struct kernel_weighted_sum_job *job)
{
    vf sums[SUM_SUMS];
    float *acc = job->acc + (size_t)query * job->acc_stride + first;
    const float *weights = job->weights + (size_t)query * TILE_KEYS;
    for (int i = 0; i < num_queries; i++) {
        const vf alpha = vec_set(job->alpha[query + i]);
        for (int v = 0; v < num_vecs; v++) {
            const float *from = acc + (size_t)i * job->acc_stride + (size_t)v * VEC_LANES;
            sums[i * num_vecs + v] = vec_mul(vec_load(from), alpha);
        }
    }
    for (int begin = 0; begin < job->num_keys; begin += SUM_RUN_KEYS) {
        const int left = job->num_keys - begin;
        prefetch_share(prefetch);
        sum_run(dtype, num_queries, num_vecs, job->values + begin,
                left < SUM_RUN_KEYS ? left : SUM_RUN_KEYS, weights + begin, first, count, sums);
    }
    for (int i = 0; i < num_queries; i++) {
        for (int v = 0; v < num_vecs; v++) {
            vec_store(acc + (size_t)i * job->acc_stride + (size_t)v * VEC_LANES,
                      sums[i * num_vecs + v]);
        }
    }
}

/* Queries from `query` on by blocks of num_queries x num_vecs, constants, over all channels.
 * Returns the first query that is left over. */
VEC_INLINE int sum_blocks(enum pkv_dtype dtype, int num_queries, int num_vecs, int query,
                          struct prefetch *prefetch, const struct kernel_weighted_sum_job *job)
{
    const size_t block = (size_t)num_vecs * VEC_LANES;
    for (; query + num_queries <= job->num_queries; query += num_queries) {
        size_t c = 0;
        for (; c + block <= job->width; c += block) {
            sum_block(dtype, num_queries, num_vecs, query, c, block, prefetch, job);
        }
        for (; c < job->width; c += VEC_LANES) {
            const size_t left = job->width - c;
            sum_block(dtype, num_queries, 1, query, c, left < VEC_LANES ? left : VEC_LANES,
                      prefetch, job);
        }
    }
    return query;
}

/* The number of times that blocks of num_queries x num_vecs will call for a share. */
VEC_INLINE int sum_shares(int num_queries, int num_vecs, const struct kernel_weighted_sum_job *job)
{
    const size_t channels = (size_t)num_vecs * VEC_LANES;
    return (job->num_queries + num_queries - 1) / num_queries *
           (int)((job->width + channels - 1) / channels) *
           ((job->num_keys + SUM_RUN_KEYS - 1) / SUM_RUN_KEYS);
}

VEC_INLINE void weighted_sum_as(enum pkv_dtype dtype, const struct kernel_weighted_sum_job *given)
{
    const struct kernel_weighted_sum_job job = *given; /* whose fields no store to acc can change */
    /* twice the queries convert half as often, and e4m3 is expensive to convert */
    const bool is_wide = dtype == PKV_E4M3 && job.num_queries >= 2 * VEC_SUM_QUERIES;
    const int queries = is_wide ? 2 * VEC_SUM_QUERIES : VEC_SUM_QUERIES;
    const int vecs = is_wide ? VEC_SUM_VECS / 2 : VEC_SUM_VECS;
    struct prefetch prefetch =
        prefetch_start(&job.prefetch, job.num_keys, sum_shares(queries, vecs, &job));
    int query = 0;
    if (is_wide) {
        query = sum_blocks(dtype, 2 * VEC_SUM_QUERIES, VEC_SUM_VECS / 2, query, &prefetch, &job);
    }
    query = sum_blocks(dtype, VEC_SUM_QUERIES, VEC_SUM_VECS, query, &prefetch, &job);
    if (VEC_SUM_QUERIES > 3) {
        query = sum_blocks(dtype, 3, VEC_SUM_VECS, query, &prefetch, &job);
    }
    if (VEC_SUM_QUERIES > 2) {
        query = sum_blocks(dtype, 2, VEC_SUM_VECS, query, &prefetch, &job);
    }
    sum_blocks(dtype, 1, VEC_SUM_VECS, query, &prefetch, &job);
}

static void weighted_sum(const struct kernel_weighted_sum_job *job)
{
    switch (job->dtype) {
    case PKV_F32: weighted_sum_as(PKV_F32, job); break;
    case PKV_F16: weighted_sum_as(PKV_F16, job); break;
    case PKV_BF16: weighted_sum_as(PKV_BF16, job); break;
    case PKV_INT8: weighted_sum_as(PKV_INT8, job); break;
    case PKV_E4M3: weighted_sum_as(PKV_E4M3, job); break;
    }
}

#endif
