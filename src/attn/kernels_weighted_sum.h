/* SPDX-License-Identifier: MIT
 *
 * kernels_weighted_sum.h: sums of values by their weights, by register blocks of num_queries
 * queries x num_vecs registers of channels. A block converts each value once for all its queries;
 * how many sums are in flight never changes the order within one. Part of kernels_template.h. */
#ifndef PKV_ATTN_KERNELS_WEIGHTED_SUM_H
#define PKV_ATTN_KERNELS_WEIGHTED_SUM_H

#include "attn/kernels_convert.h"
#include "attn/vec_prefetch.h"

#define SUM_SUMS (VEC_SUM_QUERIES * VEC_SUM_VECS)

/* sums[i * num_vecs + v] += weights[i] * value over num_vecs registers of channels. */
VEC_INLINE void sum_key(enum pkv_dtype dtype, int num_queries, int num_vecs, const char *value,
                        const float *weights, size_t first, size_t count, vf *sums)
{
    vf channels[VEC_SUM_VECS];
    if (num_vecs > 1) {
        load_vecs(dtype, num_vecs, value, first, channels);
    } else {
        channels[0] = load_as(dtype, value, first, count);
    }
    for (int i = 0; i < num_queries; i++) {
        const vf weight = vec_set(weights[(size_t)i * TILE_KEYS]);
        for (int v = 0; v < num_vecs; v++) {
            sums[i * num_vecs + v] = vec_fma(weight, channels[v], sums[i * num_vecs + v]);
        }
    }
}

/* Queries from `query` on, channels [first, first + count): num_vecs whole registers, or one that
 * may be part. prefetch is NULL or not by a constant. */
VEC_INLINE void sum_block(enum pkv_dtype dtype, int num_queries, int num_vecs, int query,
                          size_t first, size_t count, struct prefetch *prefetch,
                          const struct kernel_weighted_sum_job *job)
{
    const int lines = lines_of((size_t)num_vecs * VEC_LANES * element_bytes(dtype));
    vf sums[SUM_SUMS];
    float *acc = job->acc + (size_t)query * job->acc_stride + first;
    const float *weights = job->weights + (size_t)query * TILE_KEYS;
    for (int i = 0; i < num_queries; i++) {
        const vf alpha = vec_set(job->alpha != NULL ? job->alpha[query + i] : 1.0f);
        for (int v = 0; v < num_vecs; v++) {
            const float *from = acc + (size_t)i * job->acc_stride + (size_t)v * VEC_LANES;
            sums[i * num_vecs + v] = vec_mul(vec_load(from), alpha);
        }
    }
    for (int j = 0; j < job->num_keys; j++) {
        if (prefetch != NULL) {
            prefetch_lines(prefetch, lines);
        }
        sum_key(dtype, num_queries, num_vecs, (const char *)job->values[j] + job->group_bytes,
                weights + j, first, count, sums);
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
            sum_block(dtype, num_queries, 1, query, c, left < VEC_LANES ? left : VEC_LANES, NULL,
                      job);
        }
    }
    return query;
}

VEC_INLINE void sum_queries(enum pkv_dtype dtype, struct prefetch *prefetch,
                            const struct kernel_weighted_sum_job *job)
{
    int query = 0;
    /* twice the queries convert half as often, where e4m3 is expensive to convert */
    if (dtype == PKV_E4M3 && VEC_E4M3_VECS == 1) {
        query = sum_blocks(dtype, 2 * VEC_SUM_QUERIES, VEC_SUM_VECS / 2, query, prefetch, job);
    }
    query = sum_blocks(dtype, VEC_SUM_QUERIES, VEC_SUM_VECS, query, prefetch, job);
    if (VEC_SUM_QUERIES > 3) {
        query = sum_blocks(dtype, 3, VEC_SUM_VECS, query, prefetch, job);
    }
    if (VEC_SUM_QUERIES > 2) {
        query = sum_blocks(dtype, 2, VEC_SUM_VECS, query, prefetch, job);
    }
    sum_blocks(dtype, 1, VEC_SUM_VECS, query, prefetch, job);
}

/* A group by itself: group_bytes is then the offset of its values. */
VEC_INLINE struct kernel_weighted_sum_job
sum_group_job(enum pkv_dtype dtype, const struct kernel_weighted_sum_job *given, int group)
{
    struct kernel_weighted_sum_job job = *given; /* whose fields no store to acc can change */
    const size_t row = (size_t)group * given->group_rows;
    const struct kernel_prefetch own = {
        .vectors = given->values,
        .num_vectors = given->num_keys,
        .vector_bytes = given->width * element_bytes(dtype),
        .group_bytes = given->group_bytes,
    };
    job.prefetch = prefetch_of_group(&given->prefetch, &own, given->num_groups, group);
    job.group_bytes = (size_t)group * given->group_bytes;
    job.weights += row * TILE_KEYS;
    job.alpha = given->alpha != NULL ? given->alpha + row : NULL;
    job.acc += row * given->acc_stride;
    return job;
}

VEC_INLINE void sum_group(enum pkv_dtype dtype, const struct kernel_weighted_sum_job *given,
                          int group)
{
    const struct kernel_weighted_sum_job job = sum_group_job(dtype, given, group);
    const int blocks = (given->num_queries + VEC_SUM_QUERIES - 1) / VEC_SUM_QUERIES;
    if (job.prefetch.num_vectors > 0) {
        struct prefetch prefetch = prefetch_start(&job.prefetch, group, blocks);
        sum_queries(dtype, &prefetch, &job);
    } else {
        sum_queries(dtype, NULL, &job);
    }
}

VEC_INLINE void weighted_sum_as(enum pkv_dtype dtype, const struct kernel_weighted_sum_job *job)
{
    for (int group = 0; group < job->num_groups; group++) {
        sum_group(dtype, job, group);
    }
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
