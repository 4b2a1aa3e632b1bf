/* SPDX-License-Identifier: MIT
 *
 * contract_case.h: a gqa_case, and the same call in the overloaded parameter list, over the same
 * arrays. The list knows neither lse, rotary_offset, norm_order, strides nor values inside keys, so
 * the case goes without them. */
#ifndef PKV_TEST_CONTRACT_CASE_H
#define PKV_TEST_CONTRACT_CASE_H

#include "support/gqa_case.h"

/* The tensors of the list, in its order. */
enum contract_tensor {
    QUERY,
    KEY,
    VALUE,
    PAST_KEY,
    PAST_VALUE,
    KVCACHE_START,
    CU_SEQLENS_Q,
    CU_SEQLENS_K,
    ROPE_COS,
    ROPE_SIN,
    POSITION_IDS,
    ATTN_MASK,
    Q_SCALE,
    PRESENT_KEY,
    PRESENT_VALUE,
    K_SCALE,
    V_SCALE,
    HEAD_SINK,
    Q_NORM_GAIN,
    K_NORM_GAIN,
    SLOT_IDS,
    KEPT_PREFIX,
    OUTPUT,
    NUM_CONTRACT_TENSORS
};

/* args points into the rest, which a test may change. */
struct contract_case {
    struct gqa_case *gqa;
    struct pkv_tensor tensors[NUM_CONTRACT_TENSORS];
    int64_t num_heads, kv_num_heads, sliding_window;
    double softcap, qk_norm_eps;
    bool is_causal, smooth_softmax;
    enum pkv_rotary_mode rotary_mode;
    int64_t start; /* of the dense form, in either width */
    int32_t narrow_start;
    int32_t unread[CASE_MAX_ROWS]; /* values of a rank-1 kvcache_start */
    struct pkv_contract_args args;
};

/* variant chooses among the shapes and defaults that mean the same. Rows of PAGED and CONTINUOUS
 * cases are free; rows of DENSE ones begin their append at one position. */
struct contract_case *contract_case_make(const struct case_spec *spec, uint64_t variant);
void contract_case_free(struct contract_case *x);

/* Points the parameter at this tensor; absent takes it away. */
void contract_case_set(struct contract_case *x, enum contract_tensor which, void *data,
                       enum pkv_tensor_type type, int32_t rank, int64_t a, int64_t b, int64_t c,
                       int64_t d);
void contract_case_absent(struct contract_case *x, enum contract_tensor which);

/* NULL when the parameter is absent. */
struct pkv_tensor *contract_case_tensor(struct contract_case *x, enum contract_tensor which);

#endif
