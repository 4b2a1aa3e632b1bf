/* SPDX-License-Identifier: MIT
 *
 * pagedkv/contract.h: the attention operator by the parameter list of tensor runtimes that have one
 * fused GQA operator for all cache forms. It tells the form from the rank of one tensor,
 * kvcache_start, instead of naming it. The call translates its tensors into struct pkv_gqa_args and
 * runs pkv_gqa (attn.h): the same checks, the same bits. Code of one's own is better off with
 * pkv_gqa, which names everything and has plans and tasks.
 *
 *     args = {.size = sizeof args, .query = &query, .key = &key, .value = &value,
 *             .past_key = &k_pages, .past_value = &v_pages, .kvcache_start = &block_table,
 *             .cu_seqlens_k = &lengths, .num_heads = &heads, .kv_num_heads = &kv_heads,
 *             .out_present_key = &k_pages, .out_present_value = &v_pages, .output = &output}
 *     pkv_gqa_contract(workspace, &args)
 *
 * Ownership. Nothing is kept: tensors are read, and outputs written, during the call.
 *
 * Threads. Those of the workspace (attn.h). */
#ifndef PAGEDKV_CONTRACT_H
#define PAGEDKV_CONTRACT_H

#include "pagedkv/attn.h"
#include "pagedkv/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element types of tensors. */
enum pkv_tensor_type {
    /* Those of enum pkv_dtype, with the same values: activations and float caches ... */
    PKV_TENSOR_F32 = 0,
    PKV_TENSOR_F16 = 1,
    PKV_TENSOR_BF16 = 2,
    /* ... and codes of caches that k_scale and v_scale go with. */
    PKV_TENSOR_INT8 = 3,
    PKV_TENSOR_E4M3 = 4,
    /* Lengths, slots and block tables. */
    PKV_TENSOR_INT32 = 5,
    /* Positions; kept prefixes and a start position may have either type. */
    PKV_TENSOR_INT64 = 6,
    /* Masks. One byte: 0 is false. */
    PKV_TENSOR_BOOL = 7
};

/* A packed row-major array. The tensor owns nothing. */
struct pkv_tensor {
    /* May be NULL when a dimension is 0. */
    void *data;
    enum pkv_tensor_type type;
    /* In [0, 4]; rank 0 is one element. */
    int32_t rank;
    /* dims [rank], each in [0, INT32_MAX]. */
    int64_t dims[4];
};

/* The parameter list. T is the number of new tokens of all rows, and B the number of rows. A NULL
 * pointer is an absent parameter, and its meaning then is that of a zero in struct pkv_gqa_args.
 *
 *     past     kvcache_start              form
 *     absent   absent                     NONE: no cache
 *     present  absent                     DENSE_COPY: out_present_* are the extended caches
 *     present  rank 0, int32 or int64     DENSE: the append of every row starts at that position
 *     present  rank 1 [B]                 CONTINUOUS: its values are not read, slot_ids are
 *     present  rank 2 [B][max_blocks]     PAGED: it is the block table, int32
 */
struct pkv_contract_args {
    size_t size;
    /* [T][num_heads * width], [T][kv_num_heads * width] and [T][kv_num_heads * value width] of one
     * type: f32, f16 or bf16. Widths follow from query and output. query is required. */
    const struct pkv_tensor *query, *key, *value;
    /* [rows, slots or blocks][kv_num_heads][cells][width], as the form has it. */
    const struct pkv_tensor *past_key, *past_value;
    /* See above. */
    const struct pkv_tensor *kvcache_start;
    /* int32. cu_seqlens_q [B + 1] divides the tokens into rows; absent = T / B tokens each, without
     * a cache one row. cu_seqlens_k: with the forms CONTINUOUS and PAGED [B], the length of each
     * row after the append, not cumulative in spite of its name, and required; with NONE [B + 1],
     * cumulative; absent with the others. */
    const struct pkv_tensor *cu_seqlens_q, *cu_seqlens_k;
    /* cos/sin tables [positions][pairs] of one float type, and int64 [T]. */
    const struct pkv_tensor *rope_cos, *rope_sin, *position_ids;
    /* [1 or B][1 or num_heads][queries][keys] of bool, f32 or the type of query. */
    const struct pkv_tensor *attn_mask;
    /* Absent = true. */
    const bool *is_causal;
    /* f32, one element; absent = 1 / sqrt(width). */
    const struct pkv_tensor *q_scale;
    /* Finite and >= 0; absent or 0 = off. */
    const double *softcap;
    /* Keys that a query sees, its own among them, >= 1; absent or 0 = no window. */
    const int64_t *sliding_window;
    /* A sink of 0 for every head; excludes head_sink. */
    const bool *smooth_softmax;
    /* Absent = PKV_ROTARY_HALF_SPLIT. */
    const enum pkv_rotary_mode *rotary_mode;
    /* Query heads and KV heads, from which widths follow. Required. */
    const int64_t *num_heads, *kv_num_heads;
    /* DENSE_COPY: the extended caches, written. The forms in place: absent, or the same tensors as
     * past_*. */
    const struct pkv_tensor *out_present_key, *out_present_value;
    /* f32, one element or [kv_num_heads][width] ([kv_num_heads][1][width] too). */
    const struct pkv_tensor *k_scale, *v_scale;
    /* f32 [num_heads]. */
    const struct pkv_tensor *head_sink;
    /* Norm weights [width] of any float type. */
    const struct pkv_tensor *q_norm_gain, *k_norm_gain;
    /* Finite and above 0; required with a norm weight, absent without one. */
    const double *qk_norm_eps;
    /* int32 [B], form CONTINUOUS. */
    const struct pkv_tensor *slot_ids;
    /* int32 or int64, one element of rank 0, or [B]. */
    const struct pkv_tensor *kept_prefix;
    /* [T][num_heads * value width], of the type of query; written. Required. */
    const struct pkv_tensor *output;
};

/* Runs the attention operator by the parameter list of tensor runtimes: appends and attends as
 * pkv_gqa does. What the list has no parameter for, lse, v_in_k, rotary_offset and norm_order, is
 * absent or 0.
 *
 * Returns the statuses of pkv_gqa; PKV_INVALID_ARGUMENT also for a tensor of the wrong type, rank
 * or dimensions. The workspace's thread; the cost of pkv_gqa. */
PKV_API PKV_NODISCARD enum pkv_status pkv_gqa_contract(pkv_workspace *workspace,
                                                       const struct pkv_contract_args *args);

#ifdef __cplusplus
}
#endif

#endif
