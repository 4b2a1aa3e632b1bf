/* SPDX-License-Identifier: MIT
 *
 * pagedkv/contract.h: the operator by the parameter list of runtimes that know one fused operator
 * and tell its forms apart by the rank of kvcache_start. */
#ifndef PAGEDKV_CONTRACT_H
#define PAGEDKV_CONTRACT_H

#include "pagedkv/attn.h"
#include "pagedkv/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum pkv_tensor_type {
    PKV_TENSOR_F32 = 0, /* the first five are those of enum pkv_dtype */
    PKV_TENSOR_F16 = 1,
    PKV_TENSOR_BF16 = 2,
    PKV_TENSOR_INT8 = 3,
    PKV_TENSOR_E4M3 = 4,
    PKV_TENSOR_INT32 = 5,
    PKV_TENSOR_INT64 = 6,
    PKV_TENSOR_BOOL = 7
};

/* A packed row-major array; rank 0 is one element. */
struct pkv_tensor {
    void *data;
    enum pkv_tensor_type type;
    int32_t rank;
    int64_t dims[4];
};

/* The parameter list of runtimes that know one fused operator and tell its forms apart by the rank
 * of kvcache_start. A NULL pointer is an absent parameter.
 *
 *   past absent                          no cache; kvcache_start absent
 *   past, kvcache_start absent           functional: out_present_* are the extended caches
 *   kvcache_start rank 0                 dense in place: every row's append starts there
 *   kvcache_start rank 1 [batch]         continuous cache; its values are not read
 *   kvcache_start rank 2 [batch][blocks] int32: paged, this is the block table
 *
 * query [T][num_heads * width] and so on; rows by cu_seqlens_q [batch + 1], or T / batch tokens
 * each (no cache and no cu_seqlens_q: one row). On the continuous and paged forms cu_seqlens_k
 * [batch] holds each row's total length after the append; without a cache it is [batch + 1] and
 * cumulative. */
struct pkv_contract_args {
    size_t size;
    const struct pkv_tensor *query, *key, *value;
    const struct pkv_tensor *past_key, *past_value;
    const struct pkv_tensor *kvcache_start;
    const struct pkv_tensor *cu_seqlens_q, *cu_seqlens_k;
    const struct pkv_tensor *rope_cos, *rope_sin, *position_ids;
    const struct pkv_tensor *attn_mask;
    const bool *is_causal; /* absent = true */
    const struct pkv_tensor *q_scale;
    const double *softcap;
    const int64_t *sliding_window;
    const bool *smooth_softmax;
    const enum pkv_rotary_mode *rotary_mode;
    const int64_t *num_heads, *kv_num_heads;
    const struct pkv_tensor *out_present_key, *out_present_value;
    const struct pkv_tensor *k_scale, *v_scale;
    const struct pkv_tensor *head_sink;
    const struct pkv_tensor *q_norm_gain, *k_norm_gain;
    const double *qk_norm_eps;
    const struct pkv_tensor *slot_ids;
    const struct pkv_tensor *kept_prefix;
    const struct pkv_tensor *output; /* [T][num_heads * value width], written */
};

/* pkv_gqa by that list: the same statuses, and PKV_INVALID_ARGUMENT for a tensor of the wrong type,
 * rank or length. */
PKV_API PKV_NODISCARD enum pkv_status pkv_gqa_contract(pkv_workspace *workspace,
                                                       const struct pkv_contract_args *args);

#ifdef __cplusplus
}
#endif

#endif
