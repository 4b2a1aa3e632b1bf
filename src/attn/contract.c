/* SPDX-License-Identifier: MIT
 *
 * contract.c: the overloaded parameter list, translated into pkv_gqa's arguments. Nothing is
 * computed here: shapes become counts, the rank of kvcache_start becomes the form. */
#include <float.h>
#include <math.h>

#include "pagedkv/contract.h"

#include "attn/workspace.h"
#include "base/error.h"

/* A call under translation; integers that pkv_gqa reads by pointer lie in the workspace. */
struct shim {
    const struct pkv_contract_args *in;
    struct pkv_gqa_args out;
    int32_t *kv_lens;     /* [batch] */
    int32_t *cu_seqlens;  /* [batch + 1] */
    int64_t *kept_prefix; /* [batch] */
};

static bool is_float(const struct pkv_tensor *t)
{
    return t->type == PKV_TENSOR_F32 || t->type == PKV_TENSOR_F16 || t->type == PKV_TENSOR_BF16;
}

static bool is_integer(const struct pkv_tensor *t)
{
    return t->type == PKV_TENSOR_INT32 || t->type == PKV_TENSOR_INT64;
}

static int64_t count_of(const struct pkv_tensor *t)
{
    int64_t count = 1;
    for (int32_t i = 0; i < t->rank; i++) {
        count *= t->dims[i];
    }
    return count;
}

/* Rank and the range of every dimension. Absent is fine. */
static enum pkv_status check_tensor(const struct pkv_tensor *t, const char *name)
{
    if (t == NULL) {
        return PKV_OK;
    }
    if (t->rank < 0 || t->rank > 4) {
        return INVALID("%s: rank %d, outside [0, 4]", name, t->rank);
    }
    int64_t count = 1;
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->dims[i] < 0 || t->dims[i] > INT32_MAX) {
            return INVALID("%s: dimension %d is %lld", name, i, (long long)t->dims[i]);
        }
        if (t->dims[i] > 0 && count > INT64_MAX / t->dims[i]) {
            return INVALID("%s: its size overflows", name);
        }
        count *= t->dims[i];
    }
    if (t->data == NULL && count > 0) {
        return INVALID("%s: no data", name);
    }
    return PKV_OK;
}

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
        const enum pkv_status status = check_tensor(all[i].tensor, all[i].name);
        if (status != PKV_OK) {
            return status;
        }
    }
    return PKV_OK;
}

/* An integer vector of the given length; length < 0: any. */
static enum pkv_status check_vector(const struct pkv_tensor *t, enum pkv_tensor_type type,
                                    int64_t length, const char *name)
{
    if (t != NULL && (t->type != type || t->rank != 1 || (length >= 0 && t->dims[0] != length))) {
        return INVALID("%s: type %d, rank %d, length %lld: wants a vector of %lld", name,
                       (int)t->type, t->rank, t->rank > 0 ? (long long)t->dims[0] : 1LL,
                       (long long)length);
    }
    return PKV_OK;
}

/* query, key, value [T][hidden] and the head arithmetic. */
static enum pkv_status take_activations(struct shim *shim)
{
    const struct pkv_contract_args *in = shim->in;
    struct pkv_gqa_args *out = &shim->out;
    if (in->query == NULL || in->output == NULL || in->num_heads == NULL ||
        in->kv_num_heads == NULL) {
        return INVALID("query, output, num_heads and kv_num_heads are needed");
    }
    const struct pkv_tensor *const hidden[] = {in->query, in->output, in->key, in->value};
    for (size_t i = 0; i < 4; i++) {
        if (hidden[i] != NULL &&
            (hidden[i]->rank != 2 || hidden[i]->type != in->query->type || !is_float(in->query))) {
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
static enum pkv_status take_form(struct shim *shim)
{
    const struct pkv_contract_args *in = shim->in;
    const struct pkv_tensor *start = in->kvcache_start;
    struct pkv_gqa_args *out = &shim->out;
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
    } else if (start->rank == 1 && is_integer(start)) {
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

static enum pkv_status take_queries(struct shim *shim)
{
    struct pkv_gqa_args *out = &shim->out;
    if (shim->in->cu_seqlens_q != NULL) {
        out->cu_seqlens_q = shim->in->cu_seqlens_q->data;
        return PKV_OK;
    }
    if (out->batch > 0 && out->num_tokens % out->batch != 0) {
        return INVALID("%d query rows do not divide by batch = %d, and cu_seqlens_q is absent",
                       out->num_tokens, out->batch);
    }
    for (int32_t b = 0; b <= out->batch; b++) {
        shim->cu_seqlens[b] = b * (out->batch > 0 ? out->num_tokens / out->batch : 0);
    }
    out->cu_seqlens_q = shim->cu_seqlens;
    return PKV_OK;
}

/* Without a cache k and v have the rows that cu_seqlens_k ends at, or those of q. */
static enum pkv_status check_key_rows(const struct shim *shim)
{
    const struct pkv_contract_args *in = shim->in;
    if (shim->out.form != PKV_CACHE_NONE || in->key == NULL || in->value == NULL) {
        return PKV_OK;
    }
    const int32_t *cu = in->cu_seqlens_k != NULL ? in->cu_seqlens_k->data : NULL;
    const int64_t rows = cu != NULL ? cu[shim->out.batch] : shim->out.num_tokens;
    if (in->key->dims[0] != rows || in->value->dims[0] != rows) {
        return INVALID(
            "key and value have %lld and %lld rows, not the %lld of cu_seqlens_k or query",
            (long long)in->key->dims[0], (long long)in->value->dims[0], (long long)rows);
    }
    return PKV_OK;
}

/* Totals after the append: given for rows of the continuous and paged forms, start + q_len for
 * dense. */
static enum pkv_status take_lengths(struct shim *shim)
{
    const struct pkv_contract_args *in = shim->in;
    struct pkv_gqa_args *out = &shim->out;
    const bool has_rows = out->form == PKV_CACHE_CONTINUOUS || out->form == PKV_CACHE_PAGED;
    const int64_t length = out->form == PKV_CACHE_NONE ? (int64_t)out->batch + 1 : out->batch;
    enum pkv_status status =
        check_vector(in->cu_seqlens_k, PKV_TENSOR_INT32, length, "cu_seqlens_k");
    if (status != PKV_OK) {
        return status;
    }
    if (has_rows && in->cu_seqlens_k == NULL) {
        return INVALID("cu_seqlens_k is absent: this form wants each row's length");
    }
    if (has_rows) {
        out->kv_lens = in->cu_seqlens_k->data;
    } else if (out->form == PKV_CACHE_NONE) {
        out->cu_seqlens_k = in->cu_seqlens_k != NULL ? in->cu_seqlens_k->data : NULL;
    } else if (in->cu_seqlens_k != NULL) {
        return INVALID("cu_seqlens_k: the dense forms take none");
    } else if (out->form == PKV_CACHE_DENSE) {
        const struct pkv_tensor *start = in->kvcache_start;
        if (!is_integer(start)) {
            return INVALID("kvcache_start: not an integer");
        }
        const int64_t at = start->type == PKV_TENSOR_INT32 ? *(const int32_t *)start->data
                                                           : *(const int64_t *)start->data;
        for (int32_t b = 0; b < out->batch; b++) {
            const int64_t total = at + out->cu_seqlens_q[b + 1] - out->cu_seqlens_q[b];
            if (at < 0 || at > out->past.block_size || total > INT32_MAX) {
                return INVALID("kvcache_start = %lld, outside the cache", (long long)at);
            }
            shim->kv_lens[b] = (int32_t)total;
        }
        out->kv_lens = shim->kv_lens;
    }
    return PKV_OK;
}

/* int32 or int64, one or [batch]. */
static enum pkv_status take_kept_prefix(struct shim *shim)
{
    const struct pkv_tensor *kept = shim->in->kept_prefix;
    struct pkv_gqa_args *out = &shim->out;
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
        shim->kept_prefix[i] =
            is_wide ? ((const int64_t *)kept->data)[i] : ((const int32_t *)kept->data)[i];
    }
    out->kept_prefix = shim->kept_prefix;
    out->kept_prefix_count = count;
    return PKV_OK;
}

static enum pkv_status take_rope(struct shim *shim)
{
    const struct pkv_contract_args *in = shim->in;
    struct pkv_attn_constants *c = &shim->out.constants;
    if ((in->rope_cos == NULL) != (in->rope_sin == NULL)) {
        return INVALID("rope_cos and rope_sin go together");
    }
    if (in->rope_cos != NULL) {
        if (in->rope_cos->rank != 2 || in->rope_sin->rank != 2 || !is_float(in->rope_cos) ||
            in->rope_cos->type != in->rope_sin->type ||
            in->rope_cos->dims[0] != in->rope_sin->dims[0] ||
            in->rope_cos->dims[1] != in->rope_sin->dims[1]) {
            return INVALID("rope_cos and rope_sin are [positions][pairs] of one float type");
        }
        c->rope_cos = in->rope_cos->data;
        c->rope_sin = in->rope_sin->data;
        c->rope_dtype = (enum pkv_dtype)in->rope_cos->type;
        c->rope_positions = in->rope_cos->dims[0];
        c->rope_width = (int32_t)in->rope_cos->dims[1];
    }
    c->rotary_mode = in->rotary_mode != NULL ? *in->rotary_mode : PKV_ROTARY_HALF_SPLIT;
    shim->out.position_ids = in->position_ids != NULL ? in->position_ids->data : NULL;
    return check_vector(in->position_ids, PKV_TENSOR_INT64, shim->out.num_tokens, "position_ids");
}

static enum pkv_status take_gain(const struct pkv_tensor *gain, const char *name, const void **data,
                                 enum pkv_dtype *dtype, int32_t *count)
{
    if (gain == NULL) {
        return PKV_OK;
    }
    if (gain->rank != 1 || !is_float(gain)) {
        return INVALID("%s: a float vector", name);
    }
    *data = gain->data;
    *dtype = (enum pkv_dtype)gain->type;
    *count = (int32_t)gain->dims[0];
    return PKV_OK;
}

static enum pkv_status take_norm(struct shim *shim)
{
    const struct pkv_contract_args *in = shim->in;
    struct pkv_attn_constants *c = &shim->out.constants;
    if (in->qk_norm_eps != NULL) {
        c->qk_norm_eps = (float)*in->qk_norm_eps;
        if (!(c->qk_norm_eps > 0) || isinf(c->qk_norm_eps)) {
            return INVALID("qk_norm_eps = %g, not positive and finite", *in->qk_norm_eps);
        }
    }
    const enum pkv_status status = take_gain(in->q_norm_gain, "q_norm_gain", &c->q_norm_gain,
                                             &c->q_norm_gain_dtype, &c->q_norm_gain_count);
    return status != PKV_OK ? status
                            : take_gain(in->k_norm_gain, "k_norm_gain", &c->k_norm_gain,
                                        &c->k_norm_gain_dtype, &c->k_norm_gain_count);
}

/* A scale is one element, or [kv_heads][width] or [kv_heads][1][width]; its values pkv_gqa checks.
 */
static enum pkv_status check_scale(const struct pkv_tensor *t, const char *name, int32_t kv_heads,
                                   int32_t width)
{
    if (t == NULL || count_of(t) == 1) {
        return PKV_OK;
    }
    const bool is_channels = t->rank == 2 || (t->rank == 3 && t->dims[1] == 1);
    if (!is_channels || t->dims[0] != kv_heads || t->dims[t->rank - 1] != width) {
        return INVALID("%s: neither one element nor [%d][%d]", name, kv_heads, width);
    }
    return PKV_OK;
}

/* f32 arrays whose lengths pkv_gqa checks. */
static enum pkv_status take_floats(const struct pkv_tensor *t, const char *name, const float **data,
                                   int32_t *count)
{
    if (t == NULL) {
        return PKV_OK;
    }
    if (t->type != PKV_TENSOR_F32 || count_of(t) < 1 || count_of(t) > INT32_MAX) {
        return INVALID("%s: f32 values", name);
    }
    *data = t->data;
    *count = (int32_t)count_of(t);
    return PKV_OK;
}

static enum pkv_status take_logits(struct shim *shim)
{
    const struct pkv_contract_args *in = shim->in;
    struct pkv_gqa_args *out = &shim->out;
    struct pkv_attn_constants *c = &out->constants;
    int32_t num_scales = 0;
    if (in->head_sink != NULL && in->head_sink->rank != 1) {
        return INVALID("head_sink: rank %d, not 1", in->head_sink->rank);
    }
    enum pkv_status status = take_floats(in->q_scale, "q_scale", &c->q_scale, &num_scales);
    if (status == PKV_OK && num_scales > 1) {
        status = INVALID("q_scale: %d elements, not one", num_scales);
    }
    if (status == PKV_OK) {
        status = take_floats(in->head_sink, "head_sink", &c->head_sink, &c->head_sink_count);
    }
    if (status == PKV_OK) {
        status = check_scale(in->k_scale, "k_scale", out->kv_heads, out->k_width);
    }
    if (status == PKV_OK) {
        status = check_scale(in->v_scale, "v_scale", out->kv_heads, out->v_width);
    }
    if (status == PKV_OK) {
        status = take_floats(in->k_scale, "k_scale", &c->k_scale, &c->k_scale_count);
    }
    if (status == PKV_OK) {
        status = take_floats(in->v_scale, "v_scale", &c->v_scale, &c->v_scale_count);
    }
    if (status == PKV_OK && in->softcap != NULL &&
        !(*in->softcap >= 0 && *in->softcap <= FLT_MAX)) {
        status = INVALID("softcap = %g, negative or not finite", *in->softcap);
    }
    c->softcap = in->softcap != NULL ? (float)*in->softcap : 0.0f;
    c->smooth_softmax = in->smooth_softmax != NULL && *in->smooth_softmax;
    out->sliding_window = in->sliding_window != NULL ? *in->sliding_window : 0;
    out->not_causal = in->is_causal != NULL && !*in->is_causal;
    return status;
}

static enum pkv_status take_mask(struct shim *shim)
{
    const struct pkv_tensor *mask = shim->in->attn_mask;
    struct pkv_gqa_args *out = &shim->out;
    if (mask == NULL) {
        return PKV_OK;
    }
    if (mask->rank != 4 || (mask->type != PKV_TENSOR_BOOL && !is_float(mask))) {
        return INVALID("attn_mask: [batch or 1][heads or 1][queries][keys] of bool or float");
    }
    out->attn_mask = mask->data;
    out->mask_dtype = mask->type == PKV_TENSOR_BOOL ? PKV_INT8 : (enum pkv_dtype)mask->type;
    out->mask_batch = (int32_t)mask->dims[0];
    out->mask_heads = (int32_t)mask->dims[1];
    out->mask_queries = (int32_t)mask->dims[2];
    out->mask_keys = (int32_t)mask->dims[3];
    return PKV_OK;
}

/* Room for the derived integers: [batch] int64, then [batch] and [batch + 1] int32. */
static enum pkv_status take_room(pkv_workspace *workspace, struct shim *shim)
{
    const size_t batch = (size_t)shim->out.batch;
    const size_t bytes = batch * sizeof(int64_t) + (2 * batch + 1) * sizeof(int32_t);
    if (!buffer_grow(&workspace->hooks, &workspace->contract_rows, bytes)) {
        return refuse(PKV_NO_MEMORY, "no memory for the lengths of %d rows", shim->out.batch);
    }
    shim->kept_prefix = workspace->contract_rows.memory;
    shim->kv_lens = (int32_t *)(shim->kept_prefix + batch);
    shim->cu_seqlens = shim->kv_lens + batch;
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

static enum pkv_status take_caches(struct shim *shim)
{
    const struct pkv_contract_args *in = shim->in;
    enum pkv_status status = take_view(in->past_key, in->past_value, "past", &shim->out.past);
    if (status == PKV_OK) {
        status = take_view(in->out_present_key, in->out_present_value, "out_present",
                           &shim->out.present);
    }
    return status == PKV_OK ? check_present(in) : status;
}

static enum pkv_status take_rows(struct shim *shim)
{
    const struct pkv_contract_args *in = shim->in;
    enum pkv_status status = take_queries(shim);
    if (status == PKV_OK) {
        status = take_lengths(shim);
    }
    if (status == PKV_OK) {
        status = check_key_rows(shim);
    }
    if (status == PKV_OK) {
        status = check_vector(in->slot_ids, PKV_TENSOR_INT32, shim->out.batch, "slot_ids");
    }
    shim->out.slot_ids = in->slot_ids != NULL ? in->slot_ids->data : NULL;
    return status == PKV_OK ? take_kept_prefix(shim) : status;
}

enum pkv_status pkv_gqa_contract(pkv_workspace *workspace, const struct pkv_contract_args *args)
{
    if (workspace == NULL || args == NULL || args->size != sizeof *args) {
        return INVALID("workspace or args is NULL, or args.size is not its size");
    }
    struct shim shim = {.in = args, .out = {.size = sizeof shim.out}};
    enum pkv_status (*const steps[])(struct shim *) = {take_activations, take_caches, take_form};
    enum pkv_status (*const more[])(struct shim *) = {take_rows, take_rope, take_norm, take_logits,
                                                      take_mask};
    enum pkv_status status = check_tensors(args);
    if (status == PKV_OK) {
        status = check_vector(args->cu_seqlens_q, PKV_TENSOR_INT32, -1, "cu_seqlens_q");
    }
    if (status == PKV_OK && args->cu_seqlens_q != NULL && args->cu_seqlens_q->dims[0] < 1) {
        status = INVALID("cu_seqlens_q is empty");
    }
    for (size_t i = 0; status == PKV_OK && i < sizeof steps / sizeof steps[0]; i++) {
        status = steps[i](&shim);
    }
    if (status == PKV_OK) {
        status = take_room(workspace, &shim);
    }
    for (size_t i = 0; status == PKV_OK && i < sizeof more / sizeof more[0]; i++) {
        status = more[i](&shim);
    }
    return status == PKV_OK ? pkv_gqa(workspace, &shim.out) : status;
}
