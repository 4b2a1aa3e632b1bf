/* SPDX-License-Identifier: MIT
 *
 * contract_rows.c: cu_seqlens_k means totals beside a cache and cumulative lengths without one; the
 * dense form has one start for all rows instead. */
#include "attn/contract_rows.h"

#include "attn/tensor.h"
#include "attn/workspace.h"
#include "base/error.h"

/* Where derived integers go. */
struct derived {
    int32_t *kv_lens;     /* [batch] */
    int32_t *cu_seqlens;  /* [batch + 1] */
    int64_t *kept_prefix; /* [batch] */
};

static enum pkv_status grow_derived(pkv_workspace *workspace, int32_t num_rows,
                                    struct derived *derived)
{
    const size_t batch = (size_t)num_rows;
    const size_t bytes = batch * sizeof(int64_t) + (2 * batch + 1) * sizeof(int32_t);
    if (!buffer_grow(&workspace->hooks, &workspace->contract_rows, bytes)) {
        return refuse(PKV_NO_MEMORY, "no memory for the lengths of %d rows", num_rows);
    }
    derived->kept_prefix = workspace->contract_rows.memory;
    derived->kv_lens = (int32_t *)(derived->kept_prefix + batch);
    derived->cu_seqlens = derived->kv_lens + batch;
    return PKV_OK;
}

/* As many queries in each row, unless cu_seqlens_q says otherwise. */
static enum pkv_status take_queries(const struct pkv_contract_args *in, struct pkv_gqa_args *out,
                                    const struct derived *derived)
{
    if (in->cu_seqlens_q != NULL) {
        out->cu_seqlens_q = in->cu_seqlens_q->data;
        return PKV_OK;
    }
    if (out->batch > 0 && out->num_tokens % out->batch != 0) {
        return INVALID("%d query rows do not divide by batch = %d, and cu_seqlens_q is absent",
                       out->num_tokens, out->batch);
    }
    for (int32_t b = 0; b <= out->batch; b++) {
        derived->cu_seqlens[b] = b * (out->batch > 0 ? out->num_tokens / out->batch : 0);
    }
    out->cu_seqlens_q = derived->cu_seqlens;
    return PKV_OK;
}

/* Without a cache k and v have the rows that cu_seqlens_k ends at, or those of q. */
static enum pkv_status check_key_rows(const struct pkv_contract_args *in,
                                      const struct pkv_gqa_args *out)
{
    if (out->form != PKV_CACHE_NONE || in->key == NULL || in->value == NULL) {
        return PKV_OK;
    }
    const int32_t *cu = in->cu_seqlens_k != NULL ? in->cu_seqlens_k->data : NULL;
    const int64_t rows = cu != NULL ? cu[out->batch] : out->num_tokens;
    if (in->key->dims[0] != rows || in->value->dims[0] != rows) {
        return INVALID(
            "key and value have %lld and %lld rows, not the %lld of cu_seqlens_k or query",
            (long long)in->key->dims[0], (long long)in->value->dims[0], (long long)rows);
    }
    return PKV_OK;
}

/* The dense form: every row's append begins at the one number kvcache_start. */
static enum pkv_status derive_totals(const struct pkv_tensor *start, struct pkv_gqa_args *out,
                                     const struct derived *derived)
{
    if (!tensor_is_integer(start)) {
        return INVALID("kvcache_start: not an integer");
    }
    const int64_t at = start->type == PKV_TENSOR_INT32 ? *(const int32_t *)start->data
                                                       : *(const int64_t *)start->data;
    const bool is_inside = at >= 0 && at <= out->past.block_size;
    for (int32_t b = 0; b < out->batch; b++) {
        const int64_t q_len = (int64_t)out->cu_seqlens_q[b + 1] - out->cu_seqlens_q[b];
        if (!is_inside || at + q_len > INT32_MAX) {
            return INVALID("kvcache_start = %lld, outside the cache", (long long)at);
        }
        derived->kv_lens[b] = (int32_t)(at + q_len);
    }
    out->kv_lens = derived->kv_lens;
    return PKV_OK;
}

/* Totals after the append for the continuous and paged forms, start + q_len for dense. */
static enum pkv_status take_lengths(const struct pkv_contract_args *in, struct pkv_gqa_args *out,
                                    const struct derived *derived)
{
    const bool has_rows = out->form == PKV_CACHE_CONTINUOUS || out->form == PKV_CACHE_PAGED;
    const int64_t length = out->form == PKV_CACHE_NONE ? (int64_t)out->batch + 1 : out->batch;
    const enum pkv_status status =
        tensor_check_vector(in->cu_seqlens_k, PKV_TENSOR_INT32, length, "cu_seqlens_k");
    if (status != PKV_OK) {
        return status;
    }
    const int32_t *lengths = in->cu_seqlens_k != NULL ? in->cu_seqlens_k->data : NULL;
    if (out->form == PKV_CACHE_NONE) {
        out->cu_seqlens_k = lengths;
        return PKV_OK;
    }
    if (has_rows != (in->cu_seqlens_k != NULL)) {
        return has_rows ? INVALID("cu_seqlens_k is absent: this form wants each row's length")
                        : INVALID("cu_seqlens_k: the dense forms take none");
    }
    out->kv_lens = lengths;
    return out->form == PKV_CACHE_DENSE ? derive_totals(in->kvcache_start, out, derived) : PKV_OK;
}

/* int32 or int64, one or [batch]. */
static enum pkv_status take_kept_prefix(const struct pkv_contract_args *in,
                                        struct pkv_gqa_args *out, const struct derived *derived)
{
    const struct pkv_tensor *kept = in->kept_prefix;
    if (kept == NULL) {
        return PKV_OK;
    }
    const bool is_wide = kept->type == PKV_TENSOR_INT64;
    const bool is_vector = kept->rank == 1 && kept->dims[0] == out->batch;
    if ((!is_wide && kept->type != PKV_TENSOR_INT32) || (kept->rank != 0 && !is_vector)) {
        return INVALID("kept_prefix: one int32 or int64, or one for each row");
    }
    const int32_t count = kept->rank == 0 ? 1 : out->batch;
    for (int32_t i = 0; i < count; i++) {
        derived->kept_prefix[i] =
            is_wide ? ((const int64_t *)kept->data)[i] : ((const int32_t *)kept->data)[i];
    }
    out->kept_prefix = derived->kept_prefix;
    out->kept_prefix_count = count;
    return PKV_OK;
}

enum pkv_status contract_take_rows(pkv_workspace *workspace, const struct pkv_contract_args *in,
                                   struct pkv_gqa_args *out)
{
    struct derived derived = {NULL, NULL, NULL};
    enum pkv_status status = grow_derived(workspace, out->batch, &derived);
    if (status == PKV_OK) {
        status = take_queries(in, out, &derived);
    }
    if (status == PKV_OK) {
        status = take_lengths(in, out, &derived);
    }
    if (status == PKV_OK) {
        status = check_key_rows(in, out);
    }
    if (status == PKV_OK) {
        status = tensor_check_vector(in->slot_ids, PKV_TENSOR_INT32, out->batch, "slot_ids");
    }
    out->slot_ids = in->slot_ids != NULL ? in->slot_ids->data : NULL;
    return status == PKV_OK ? take_kept_prefix(in, out, &derived) : status;
}
