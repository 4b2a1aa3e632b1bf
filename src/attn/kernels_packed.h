/* SPDX-License-Identifier: MIT
 *
 * kernels_packed.h: dot products of bf16 pairs, which need no conversion of the keys and take two
 * channels a lane. q is split into bf16 parts: x = hi + lo with hi the nearest bf16 and lo the
 * nearest to the rest (0 beside an infinite hi), 16 bits together, which is why only calls whose
 * output is f16 or bf16 use this. Order within a dot: lane l sums channels 2l and 2l + 1 of each
 * run of PAIR_CHANNELS, lo before hi, then lanes are reduced as in kernels.h. Subnormal parts count
 * as zero. For levels whose vectors have vec_load_pairs and vec_dot_pairs. */
#ifndef PKV_ATTN_KERNELS_PACKED_H
#define PKV_ATTN_KERNELS_PACKED_H

#include "attn/kernels_dot.h"

/* One query in place: q_stride floats become q_stride hi parts and behind them q_stride lo parts.
 * Reading runs ahead of writing: both parts of the first half are kept until the second half was
 * read. */
static void pack(float *q, size_t q_stride, float *spare)
{
    uint16_t *parts = (uint16_t *)spare;
    for (size_t c = 0; c < q_stride; c += VEC_LANES) {
        const vf x = vec_load(q + c);
        vec_store_bf16(parts + c, x, VEC_LANES);
        const vf hi = vec_load_bf16(parts + c, VEC_LANES);
        const vf rest = vec_if_less(vec_abs(hi), vec_set(INFINITY), vec_sub(x, hi), vec_set(0.0f));
        vec_store_bf16(parts + q_stride + c, rest, VEC_LANES);
    }
    memcpy(q, parts, q_stride * sizeof q[0]);
}

VEC_INLINE void packed_chunk(int q_parts, int num_queries, int num_keys, const float *q,
                             size_t q_stride, const char *const *keys, size_t first, size_t count,
                             vf *sums)
{
    vpairs key[VEC_DOT_KEYS];
    for (int j = 0; j < num_keys; j++) {
        key[j] = vec_load_pairs((const uint16_t *)keys[j] + first, count);
    }
    for (int i = 0; i < num_queries; i++) {
        const uint16_t *parts = (const uint16_t *)(q + (size_t)i * q_stride) + first;
        const vpairs hi = vec_load_pairs(parts, count);
        const vpairs lo = q_parts == 2 ? vec_load_pairs(parts + q_stride, count) : hi;
        for (int j = 0; j < num_keys; j++) {
            vf *sum = &sums[i * num_keys + j];
            if (q_parts == 2) {
                *sum = vec_dot_pairs(*sum, lo, key[j]);
            }
            *sum = vec_dot_pairs(*sum, hi, key[j]);
        }
    }
}

VEC_INLINE void packed_block(int q_parts, int num_queries, int num_keys, int query, int key,
                             struct prefetch *prefetch, const struct kernel_dot_job *job)
{
    const float *q = job->q + (size_t)query * job->q_stride;
    const int lines = lines_of(VEC_DOT_KEYS * PAIR_CHANNELS * sizeof(uint16_t));
    const char *keys[VEC_DOT_KEYS];
    vf sums[DOT_SUMS];
    dot_point(job, num_keys, key, keys);
    for (int n = 0; n < num_queries * num_keys; n++) {
        sums[n] = vec_set(0.0f);
    }
    size_t c = 0;
    for (; c + PAIR_CHANNELS <= job->width; c += PAIR_CHANNELS) {
        if (prefetch != NULL) {
            prefetch_lines(prefetch, lines);
        }
        packed_chunk(q_parts, num_queries, num_keys, q, job->q_stride, keys, c, PAIR_CHANNELS,
                     sums);
    }
    if (c < job->width) {
        packed_chunk(q_parts, num_queries, num_keys, q, job->q_stride, keys, c, job->width - c,
                     sums);
    }
    dot_store(num_queries, num_keys, sums, job->scores + (size_t)query * TILE_KEYS + key);
}

/* num_queries, a constant multiple of 4 or 1, from `query` on against all keys. */
VEC_INLINE void packed_keys(int q_parts, int num_queries, int query, struct prefetch *prefetch,
                            const struct kernel_dot_job *job)
{
    int key = 0;
    for (; key + VEC_DOT_KEYS <= job->num_keys; key += VEC_DOT_KEYS) {
        packed_block(q_parts, num_queries, VEC_DOT_KEYS, query, key, prefetch, job);
    }
    for (; key < job->num_keys; key++) {
        packed_block(q_parts, num_queries, 1, query, key, NULL, job);
    }
}

VEC_INLINE void packed_queries(int q_parts, struct prefetch *prefetch,
                               const struct kernel_dot_job *job)
{
    int query = 0;
    for (; query + VEC_DOT_QUERIES <= job->num_queries; query += VEC_DOT_QUERIES) {
        packed_keys(q_parts, VEC_DOT_QUERIES, query, prefetch, job);
    }
    for (; query < job->num_queries; query++) {
        packed_keys(q_parts, 1, query, prefetch, job);
    }
}

VEC_INLINE void packed_parts(int q_parts, const struct kernel_dot_job *given)
{
    const int blocks = given->num_queries / VEC_DOT_QUERIES + given->num_queries % VEC_DOT_QUERIES;
    for (int group = 0; group < given->num_groups; group++) {
        const struct kernel_dot_job job = dot_group(given, group);
        if (job.prefetch.num_vectors > 0) {
            struct prefetch prefetch = prefetch_start(&job.prefetch, group, blocks);
            packed_queries(q_parts, &prefetch, &job);
        } else {
            packed_queries(q_parts, NULL, &job);
        }
    }
}

static void dot_packed(const struct kernel_dot_job *job)
{
    if (job->q_parts == 2) {
        packed_parts(2, job);
    } else {
        packed_parts(1, job);
    }
}

#endif
