/* SPDX-License-Identifier: MIT
 *
 * contract.c: the overloaded parameter list, translated into pkv_gqa's arguments. Nothing is
 * computed here: shapes become counts, the rank of kvcache_start becomes the form. What the
 * parameters of a row and the options become is contract_rows.c's and contract_options.c's. */
#include "attn/contract_options.h"
#include "attn/contract_rows.h"
#include "attn/tensor.h"
#include "base/error.h"
#include "base/sized.h"

static enum pkv_status check_tensors(const struct pkv_contract_args *in)
{
    const struct {
        const struct pkv_tensor *tensor;
        const char *name;
    } all[] = {
        {in->query, "query"},
        {in->key, "key"},
        {in->value, "value"},
        {in->past_key, "past_key"},
        {in->past_value, "past_value"},
        {in->kvcache_start, "kvcache_start"},
        {in->cu_seqlens_q, "cu_seqlens_q"},
        {in->cu_seqlens_k, "cu_seqlens_k"},
        {in->rope_cos, "rope_cos"},
        {in->rope_sin, "rope_sin"},
        {in->position_ids, "position_ids"},
        {in->attn_mask, "attn_mask"},
        {in->q_scale, "q_scale"},
        {in->out_present_key, "out_present_key"},
        {in->out_present_value, "out_present_value"},
        {in->k_scale, "k_scale"},
        {in->v_scale, "v_scale"},
        {in->head_sink, "head_sink"},
        {in->q_norm_gain, "q_norm_gain"},
        {in->k_norm_gain, "k_norm_gain"},
        {in->slot_ids, "slot_ids"},
        {in->kept_prefix, "kept_prefix"},
        {in->output, "output"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const enum pkv_status status = tensor_check(all[i].tensor, all[i].name);
        if (status != PKV_OK) {
            return status;
        }
    }
    return PKV_OK;
}

/* query, key, value [T][hidden] and the head arithmetic. */
static enum pkv_status take_activations(const struct pkv_contract_args *in,
                                        struct pkv_gqa_args *out)
{
    if (in->query == NULL || in->output == NULL || in->num_heads == NULL ||
        in->kv_num_heads == NULL) {
        return INVALID("query, output, num_heads and kv_num_heads are needed");
    }
    const struct pkv_tensor *const hidden[] = {in->query, in->output, in->key, in->value};
    for (size_t i = 0; i < 4; i++) {
        if (hidden[i] != NULL && (hidden[i]->rank != 2 || hidden[i]->type != in->query->type ||
                                  !tensor_is_float(in->query))) {
            return INVALID("query, key, value and output are [T][hidden] of one float type");
        }
        if (hidden[i] != NULL && hidden[i]->dims[0] != in->query->dims[0] &&
            !(i >= 2 && in->past_key == NULL)) {
            return INVALID("query, key, value and output have different numbers of rows");
        }
    }
    const int64_t heads = *in->num_heads;
    const int64_t kv_heads = *in->kv_num_heads;
    if (in->output->dims[1] < 1 || in->query->dims[1] < 1) {
        return INVALID("query and output have widths of %lld and %lld",
                       (long long)in->query->dims[1], (long long)in->output->dims[1]);
    }
    if (heads < 1 || heads > INT32_MAX || kv_heads < 1 || kv_heads > INT32_MAX ||
        in->query->dims[1] % heads != 0 || in->output->dims[1] % heads != 0) {
        return INVALID("num_heads = %lld, kv_num_heads = %lld do not divide the widths",
                       (long long)heads, (long long)kv_heads);
    }
    out->dtype = (enum pkv_dtype)in->query->type;
    out->num_heads = (int32_t)heads;
    out->kv_heads = (int32_t)kv_heads;
    out->k_width = (int32_t)(in->query->dims[1] / heads);
    out->v_width = (int32_t)(in->output->dims[1] / heads);
    out->num_tokens = (int32_t)in->query->dims[0];
    if ((in->key != NULL && in->key->dims[1] != kv_heads * out->k_width) ||
        (in->value != NULL && in->value->dims[1] != kv_heads * out->v_width)) {
        return INVALID("key or value: its width is not kv_num_heads times the head's");
    }
    out->q = in->query->data;
    out->k = in->key != NULL ? in->key->data : NULL;
    out->v = in->value != NULL ? in->value->data : NULL;
    out->out = in->output->data;
    return PKV_OK;
}

static enum pkv_status take_view(const struct pkv_tensor *key, const struct pkv_tensor *value,
                                 const char *name, struct pkv_kv_view *view)
{
    if ((key == NULL) != (value == NULL)) {
        return INVALID("%s: keys without values or values without keys", name);
    }
    if (key == NULL) {
        return PKV_OK;
    }
    if (key->rank != 4 || value->rank != 4 || key->type > PKV_TENSOR_E4M3 ||
        value->type > PKV_TENSOR_E4M3) {
        return INVALID("%s: rank or type is not that of a cache", name);
    }
    for (int32_t i = 0; i < 3; i++) {
        if (key->dims[i] != value->dims[i]) {
            return INVALID("%s: keys and values have different shapes", name);
        }
    }
    if (key->dims[3] < 1 || value->dims[3] < 1) {
        return INVALID("%s: heads of width %lld and %lld", name, (long long)key->dims[3],
                       (long long)value->dims[3]);
    }
    *view = (struct pkv_kv_view){
        .k = key->data,
        .v = value->data,
        .k_dtype = (enum pkv_dtype)key->type,
        .v_dtype = (enum pkv_dtype)value->type,
        .num_blocks = (int32_t)key->dims[0],
        .kv_heads = (int32_t)key->dims[1],
        .block_size = (int32_t)key->dims[2],
        .k_width = (int32_t)key->dims[3],
        .v_width = (int32_t)value->dims[3],
    };
    return PKV_OK;
}

/* The form by the rank of kvcache_start, and the batch that goes with it. */
static enum pkv_status take_form(const struct pkv_contract_args *in, struct pkv_gqa_args *out)
{
    const struct pkv_tensor *start = in->kvcache_start;
    const int64_t rows_of_q = in->cu_seqlens_q != NULL ? in->cu_seqlens_q->dims[0] - 1 : 1;
    if (in->past_key == NULL) {
        if (start != NULL) {
            return INVALID("kvcache_start without past_key");
        }
        out->form = PKV_CACHE_NONE;
        out->batch = (int32_t)rows_of_q;
    } else if (start == NULL) {
        out->form = PKV_CACHE_DENSE_COPY;
        out->batch = out->past.num_blocks;
    } else if (start->rank == 0) {
        out->form = PKV_CACHE_DENSE;
        out->batch = out->past.num_blocks;
    } else if (start->rank == 1 && tensor_is_integer(start)) {
        out->form = PKV_CACHE_CONTINUOUS;
        out->batch = (int32_t)start->dims[0];
    } else if (start->rank == 2 && start->type == PKV_TENSOR_INT32) {
        out->form = PKV_CACHE_PAGED;
        out->batch = (int32_t)start->dims[0];
        out->max_blocks = (int32_t)start->dims[1];
        out->block_table = start->data;
    } else {
        return INVALID("kvcache_start: rank %d, type %d select no form", start->rank,
                       (int)start->type);
    }
    if (in->cu_seqlens_q != NULL && rows_of_q != out->batch) {
        return INVALID("cu_seqlens_q: %lld rows, the cache's batch is %d", (long long)rows_of_q,
                       out->batch);
    }
    return PKV_OK;
}

/* In place, the presents are the pasts: the same arrays in the same shape. */
static enum pkv_status check_present(const struct pkv_contract_args *in)
{
    const struct pkv_tensor *const pairs[][2] = {{in->past_key, in->out_present_key},
                                                 {in->past_value, in->out_present_value}};
    for (size_t i = 0; in->kvcache_start != NULL && i < 2; i++) {
        const struct pkv_tensor *past = pairs[i][0];
        const struct pkv_tensor *present = pairs[i][1];
        bool is_same = true;
        for (int32_t d = 0; past != NULL && present != NULL && d < 4; d++) {
            is_same = is_same && past->dims[d] == present->dims[d] && past->type == present->type;
        }
        if (!is_same) {
            return INVALID("out_present_%s: its shape or type is not that of past_%s",
                           i == 0 ? "key" : "value", i == 0 ? "key" : "value");
        }
    }
    return PKV_OK;
}

static enum pkv_status take_caches(const struct pkv_contract_args *in, struct pkv_gqa_args *out)
{
    enum pkv_status status = take_view(in->past_key, in->past_value, "past", &out->past);
    if (status == PKV_OK) {
        status =
            take_view(in->out_present_key, in->out_present_value, "out_present", &out->present);
    }
    return status == PKV_OK ? check_present(in) : status;
}

/* cu_seqlens_q before the others: its length gives the batch. */
static enum pkv_status check_row_ends(const struct pkv_tensor *cu_seqlens_q)
{
    const enum pkv_status status =
        tensor_check_vector(cu_seqlens_q, PKV_TENSOR_INT32, -1, "cu_seqlens_q");
    if (status == PKV_OK && cu_seqlens_q != NULL && cu_seqlens_q->dims[0] < 1) {
        return INVALID("cu_seqlens_q is empty");
    }
    return status;
}

/* Everything into the arguments of the raw call. */
static enum pkv_status take_all(pkv_workspace *workspace, const struct pkv_contract_args *args,
                                struct pkv_gqa_args *out)
{
    enum pkv_status status = check_tensors(args);
    if (status == PKV_OK) {
        status = check_row_ends(args->cu_seqlens_q);
    }
    if (status == PKV_OK) {
        status = take_activations(args, out);
    }
    if (status == PKV_OK) {
        status = take_caches(args, out);
    }
    if (status == PKV_OK) {
        status = take_form(args, out);
    }
    if (status == PKV_OK) {
        status = contract_take_rows(workspace, args, out);
    }
    return status == PKV_OK ? contract_take_options(args, out) : status;
}

enum pkv_status pkv_gqa_contract(pkv_workspace *workspace, const struct pkv_contract_args *given)
{
    struct pkv_contract_args args;
    if (workspace == NULL) {
        return INVALID("workspace is NULL");
    }
    enum pkv_status status = sized_read("args", given, output, &args);
    struct pkv_gqa_args out = {.size = sizeof out};
    if (status == PKV_OK) {
        status = take_all(workspace, &args, &out);
    }
    return status == PKV_OK ? pkv_gqa(workspace, &out) : status;
}
