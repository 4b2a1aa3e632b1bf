/* SPDX-License-Identifier: MIT
 *
 * kernels_dot.h: scores of queries and keys, by register blocks of num_queries x num_keys sums. A
 * block converts each key once for all its queries; how many sums are in flight never changes the
 * order within one. Part of kernels_template.h. */
#ifndef PKV_ATTN_KERNELS_DOT_H
#define PKV_ATTN_KERNELS_DOT_H

#include "attn/kernels_convert.h"
#include "attn/vec_prefetch.h"

#define DOT_SUMS (VEC_DOT_QUERIES * VEC_DOT_KEYS)

/* scores[i][j] = the sum of sums[i * num_keys + j]'s lanes. */
VEC_INLINE void dot_store(int num_queries, int num_keys, const vf *sums, float *scores)
{
    const int num_sums = num_queries * num_keys;
    float reduced[DOT_SUMS];
    if (num_sums % 4 == 0) {
        vec_sums(sums, num_sums, reduced);
    } else {
        for (int n = 0; n < num_sums; n++) {
            reduced[n] = vec_sum(sums[n]);
        }
    }
    for (int i = 0; i < num_queries; i++) {
        memcpy(scores + (size_t)i * TILE_KEYS, reduced + i * num_keys,
               (size_t)num_keys * sizeof reduced[0]);
    }
}

VEC_INLINE void dot_point(const struct kernel_dot_job *job, int num_keys, int key,
                          const char **keys)
{
    for (int j = 0; j < num_keys; j++) {
        keys[j] = (const char *)job->keys[key + j] + job->group_bytes;
    }
}

/* sums[i * num_keys + j] += q[i] * keys[j] over one register of channels. */
VEC_INLINE void dot_chunk(enum pkv_dtype dtype, int num_queries, int num_keys, const float *q,
                          size_t q_stride, const char *const *keys, size_t first, size_t count,
                          vf *sums)
{
    vf key[VEC_DOT_KEYS];
    for (int j = 0; j < num_keys; j++) {
        key[j] = load_as(dtype, keys[j], first, count);
    }
    for (int i = 0; i < num_queries; i++) {
        const vf query = vec_load(q + (size_t)i * q_stride + first);
        for (int j = 0; j < num_keys; j++) {
            sums[i * num_keys + j] = vec_fma(query, key[j], sums[i * num_keys + j]);
        }
    }
}

/* The same for e4m3 over the registers that are converted together. */
VEC_INLINE void dot_wide_chunk(int num_queries, int num_keys, const float *q, size_t q_stride,
                               const char *const *keys, size_t first, vf *sums)
{
    vwords words[VEC_DOT_KEYS];
    for (int j = 0; j < num_keys; j++) {
        words[j] = vec_load_words((const uint8_t *)keys[j] + first);
    }
    for (int v = 0; v < VEC_E4M3_VECS; v++) {
        vf key[VEC_DOT_KEYS];
        for (int j = 0; j < num_keys; j++) {
            key[j] = vec_of_words(&words[j], v);
        }
        const float *at = q + first + (size_t)v * VEC_LANES;
        for (int i = 0; i < num_queries; i++) {
            const vf query = vec_load_once(at + (size_t)i * q_stride);
            for (int j = 0; j < num_keys; j++) {
                sums[i * num_keys + j] = vec_fma(query, key[j], sums[i * num_keys + j]);
            }
        }
    }
}

/* Queries from `query` on against keys from `key` on. prefetch is NULL or not by a constant. */
VEC_INLINE void dot_block(enum pkv_dtype dtype, int num_queries, int num_keys, int query, int key,
                          struct prefetch *prefetch, const struct kernel_dot_job *job)
{
    const float *q = job->q + (size_t)query * job->q_stride;
    const int lines = lines_of(VEC_DOT_KEYS * VEC_LANES * element_bytes(dtype));
    const char *keys[VEC_DOT_KEYS];
    vf sums[DOT_SUMS];
    dot_point(job, num_keys, key, keys);
    for (int n = 0; n < num_queries * num_keys; n++) {
        sums[n] = vec_set(0.0f);
    }
    const size_t wide = (size_t)vecs_at_once(dtype) * VEC_LANES;
    size_t c = 0;
    for (; wide > VEC_LANES && c + wide <= job->width; c += wide) {
        if (prefetch != NULL) {
            prefetch_lines(prefetch, lines_of(VEC_DOT_KEYS * wide));
        }
        dot_wide_chunk(num_queries, num_keys, q, job->q_stride, keys, c, sums);
    }
    for (; c + VEC_LANES <= job->width; c += VEC_LANES) {
        if (prefetch != NULL) {
            prefetch_lines(prefetch, lines);
        }
        dot_chunk(dtype, num_queries, num_keys, q, job->q_stride, keys, c, VEC_LANES, sums);
    }
    if (c < job->width) {
        dot_chunk(dtype, num_queries, num_keys, q, job->q_stride, keys, c, job->width - c, sums);
    }
    dot_store(num_queries, num_keys, sums, job->scores + (size_t)query * TILE_KEYS + key);
}

/* Queries from `query` on by blocks of num_queries, a constant, against all keys; what keys are
 * left over go one by one. Returns the first query that is left over. */
VEC_INLINE int dot_blocks(enum pkv_dtype dtype, int num_queries, int query,
                          struct prefetch *prefetch, const struct kernel_dot_job *job)
{
    for (; query + num_queries <= job->num_queries; query += num_queries) {
        int key = 0;
        for (; key + VEC_DOT_KEYS <= job->num_keys; key += VEC_DOT_KEYS) {
            dot_block(dtype, num_queries, VEC_DOT_KEYS, query, key, prefetch, job);
        }
        for (; key < job->num_keys; key++) {
            dot_block(dtype, num_queries, 1, query, key, NULL, job);
        }
    }
    return query;
}

VEC_INLINE void dot_queries(enum pkv_dtype dtype, struct prefetch *prefetch,
                            const struct kernel_dot_job *job)
{
    int query = dot_blocks(dtype, VEC_DOT_QUERIES, 0, prefetch, job);
    if (VEC_DOT_QUERIES > 3) {
        query = dot_blocks(dtype, 3, query, prefetch, job);
    }
    if (VEC_DOT_QUERIES > 2) {
        query = dot_blocks(dtype, 2, query, prefetch, job);
    }
    dot_blocks(dtype, 1, query, prefetch, job);
}

/* A group by itself: group_bytes is then the offset of its keys. */
VEC_INLINE struct kernel_dot_job dot_group(const struct kernel_dot_job *given, int group)
{
    struct kernel_dot_job job = *given; /* whose fields no store to scores can change */
    const size_t row = (size_t)group * given->group_rows;
    const struct kernel_prefetch own = {
        .vectors = given->keys,
        .num_vectors = given->num_keys,
        .vector_bytes = given->width * element_bytes(given->dtype),
        .group_bytes = given->group_bytes,
    };
    job.prefetch = prefetch_of_group(&given->prefetch, &own, given->num_groups, group);
    job.group_bytes = (size_t)group * given->group_bytes;
    job.q += row * given->q_stride;
    job.scores += row * TILE_KEYS;
    return job;
}

VEC_INLINE void dot_as(enum pkv_dtype dtype, const struct kernel_dot_job *given)
{
    const int blocks = (given->num_queries + VEC_DOT_QUERIES - 1) / VEC_DOT_QUERIES;
    for (int group = 0; group < given->num_groups; group++) {
        const struct kernel_dot_job job = dot_group(given, group);
        if (job.prefetch.num_vectors > 0) {
            struct prefetch prefetch = prefetch_start(&job.prefetch, group, blocks);
            dot_queries(dtype, &prefetch, &job);
        } else {
            dot_queries(dtype, NULL, &job);
        }
    }
}

/* A function for each dtype: with all of them in one, gcc runs out of registers for the pointers to
 * keys and queries, and blocks are 6 % slower. */
static void dot_f32(const struct kernel_dot_job *job)
{
    dot_as(PKV_F32, job);
}

static void dot_f16(const struct kernel_dot_job *job)
{
    dot_as(PKV_F16, job);
}

static void dot_bf16(const struct kernel_dot_job *job)
{
    dot_as(PKV_BF16, job);
}

static void dot_int8(const struct kernel_dot_job *job)
{
    dot_as(PKV_INT8, job);
}

static void dot_e4m3(const struct kernel_dot_job *job)
{
    dot_as(PKV_E4M3, job);
}

static void dot(const struct kernel_dot_job *job)
{
    static kernel_dot *const by_dtype[NUM_DTYPES] = {[PKV_F32] = dot_f32,
                                                     [PKV_F16] = dot_f16,
                                                     [PKV_BF16] = dot_bf16,
                                                     [PKV_INT8] = dot_int8,
                                                     [PKV_E4M3] = dot_e4m3};
    by_dtype[job->dtype](job);
}

#endif
