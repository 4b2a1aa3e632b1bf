/* SPDX-License-Identifier: MIT
 *
 * call.h: a raw call of attn.h while it is checked: the caller's arguments with their defaults
 * filled in, and what is kept of them beside a plan. */
#ifndef PKV_ATTN_CALL_H
#define PKV_ATTN_CALL_H

#include "attn/gqa_shape.h"
#include "pagedkv/attn.h"

enum call_kind { CALL_GQA, CALL_APPEND, CALL_READ_ONLY };

struct call {
    const struct pkv_gqa_args *args;
    bool attends; /* q is there */
    bool appends; /* k is there and goes into a cache */
    struct pkv_kv_view past;
    struct pkv_kv_view present;
    struct pkv_kv_view cache; /* what is attended: past, present, or (NONE) the call's k and v */
    struct gqa_shape shape;
    size_t q_stride, k_stride, v_stride, out_stride;
};

/* How far the rows of a call reach into its cos/sin tables and its mask. Planned, and compared
 * again by each run, whose tables and mask may be others. */
struct call_reach {
    int32_t q_len;
    int32_t kv_len;
    int64_t position;  /* -1: none */
    bool has_negative; /* a row's first position is below 0 */
    bool is_uneven;    /* a row has another number of keys than of queries */
};

/* What a run must find as it was planned. */
struct call_planned {
    enum pkv_cache_form form;
    enum pkv_dtype dtype;
    int32_t num_heads;
    int32_t num_tokens;
    struct pkv_kv_view cache; /* geometry and dtypes; pointers unused */
    struct pkv_kv_view past;  /* DENSE_COPY: what is copied from */
    struct call_reach reach;
    bool has_k;
    bool all_new; /* gqa_shape */
    bool has_mask;
    int32_t sliding_window;
    int32_t selection_size;
    int32_t selected_newest;
    bool selects_by_head;
    bool not_causal;
    bool v_in_k;
};

#endif
