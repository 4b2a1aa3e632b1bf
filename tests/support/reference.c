/* SPDX-License-Identifier: MIT
 *
 * reference.c: see reference.h. The order of operations is that of docs/operator.md: rotate and
 * norm, round into the cache, then per (row, query, head) dot, scale, softcap, mask, softmax with
 * the sink in the denominator, weighted sum. Nothing between the inputs and the outputs is rounded
 * but what a cache stores. */
#include "support/reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WIDTH = 1024 };

/* One sequence of the call. Its new keys are tokens k_begin.. of k, at cells kv_len - k_len.. */
struct row {
    int32_t b;
    int32_t q_begin, q_len;
    int32_t k_begin, k_len;
    int32_t kv_len;
};

void *reference_alloc(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes > 0 ? bytes : 1);
    if (memory == NULL) {
        fprintf(stderr, "the tests are out of memory\n");
        abort();
    }
    return memory;
}

static int32_t v_width_of(const struct pkv_gqa_args *args)
{
    return args->v_width != 0 ? args->v_width : args->k_width;
}

static struct row row_of(const struct pkv_gqa_args *args, int32_t b)
{
    const int32_t *cu_q = args->cu_seqlens_q;
    const int32_t *cu_k = args->cu_seqlens_k;
    struct row row = {.b = b};
    row.q_begin = cu_q != NULL ? cu_q[b] : b;
    row.q_len = cu_q != NULL ? cu_q[b + 1] - cu_q[b] : 1;
    row.k_begin = row.q_begin;
    row.k_len = args->k != NULL ? row.q_len : 0;
    if (args->form == PKV_CACHE_NONE) {
        row.k_begin = cu_k != NULL ? cu_k[b] : row.q_begin;
        row.k_len = cu_k != NULL ? cu_k[b + 1] - cu_k[b] : row.q_len;
        row.kv_len = row.k_len;
    } else if (args->form == PKV_CACHE_DENSE_COPY) {
        row.kv_len = args->past.block_size + row.q_len;
    } else {
        row.kv_len = args->kv_lens[b];
    }
    return row;
}

int32_t reference_kv_len(const struct pkv_gqa_args *args, int32_t b)
{
    return row_of(args, b).kv_len;
}

int32_t reference_num_k_tokens(const struct pkv_gqa_args *args)
{
    const bool own_keys = args->form == PKV_CACHE_NONE && args->cu_seqlens_k != NULL;
    return own_keys ? args->cu_seqlens_k[args->batch] : args->num_tokens;
}

void reference_locate(const struct pkv_gqa_args *args, int32_t b, int32_t j, int32_t *block,
                      int32_t *cell)
{
    *block = b;
    *cell = j;
    if (args->form == PKV_CACHE_PAGED) {
        const int32_t *table = args->block_table + (size_t)b * (size_t)args->max_blocks;
        *block = table[j / args->past.block_size];
        *cell = j % args->past.block_size;
    } else if (args->form == PKV_CACHE_CONTINUOUS && args->slot_ids != NULL) {
        *block = args->slot_ids[b];
    }
}

struct pkv_kv_view reference_view(struct pkv_kv_view view)
{
    const size_t cells = (size_t)view.block_size;
    const size_t heads = (size_t)view.kv_heads;
    view.v_width = view.v_width != 0 ? view.v_width : view.k_width;
    view.k_cell_stride = view.k_cell_stride != 0 ? view.k_cell_stride : (size_t)view.k_width;
    view.v_cell_stride = view.v_cell_stride != 0 ? view.v_cell_stride : (size_t)view.v_width;
    view.k_head_stride = view.k_head_stride != 0 ? view.k_head_stride : cells * view.k_cell_stride;
    view.v_head_stride = view.v_head_stride != 0 ? view.v_head_stride : cells * view.v_cell_stride;
    view.k_block_stride =
        view.k_block_stride != 0 ? view.k_block_stride : heads * view.k_head_stride;
    view.v_block_stride =
        view.v_block_stride != 0 ? view.v_block_stride : heads * view.v_head_stride;
    return view;
}

size_t reference_k_index(const struct pkv_kv_view *view, int32_t block, int32_t head, int32_t cell)
{
    return (size_t)block * view->k_block_stride + (size_t)head * view->k_head_stride +
           (size_t)cell * view->k_cell_stride;
}

size_t reference_v_index(const struct pkv_kv_view *view, int32_t block, int32_t head, int32_t cell)
{
    return (size_t)block * view->v_block_stride + (size_t)head * view->v_head_stride +
           (size_t)cell * view->v_cell_stride;
}

static bool is_empty(const struct pkv_kv_view *view)
{
    return view->num_blocks <= 0 || view->kv_heads <= 0 || view->block_size <= 0;
}

size_t reference_k_span(const struct pkv_kv_view *view)
{
    return is_empty(view) ? 0
                          : reference_k_index(view, view->num_blocks - 1, view->kv_heads - 1,
                                              view->block_size - 1) +
                                (size_t)view->k_width;
}

size_t reference_v_span(const struct pkv_kv_view *view)
{
    return is_empty(view) ? 0
                          : reference_v_index(view, view->num_blocks - 1, view->kv_heads - 1,
                                              view->block_size - 1) +
                                (size_t)view->v_width;
}

double reference_ulp(enum pkv_dtype dtype, double x)
{
    const int mantissa = dtype == PKV_F32 ? 23 : dtype == PKV_F16 ? 10 : 7;
    const int min_exponent = dtype == PKV_F16 ? -14 : -126;
    int exponent = min_exponent + 1;
    if (x != 0 && isfinite(x)) {
        frexp(x, &exponent);
    }
    return ldexp(1, (exponent - 1 < min_exponent ? min_exponent : exponent - 1) - mantissa);
}

/* Codes in the order of their values: e4m3 is sign and magnitude. */
static int code_rank(enum pkv_dtype dtype, uint8_t code)
{
    if (dtype == PKV_INT8) {
        return code < 128 ? code : code - 256;
    }
    return code < 128 ? code : 128 - code;
}

int reference_code_steps(enum pkv_dtype dtype, uint8_t a, uint8_t b)
{
    return abs(code_rank(dtype, a) - code_rank(dtype, b));
}

/* Rotates in place; size bounds the magnitudes that each channel was made of. */
static void rotate(const struct pkv_attn_constants *constants, int64_t position, double *x,
                   double *size)
{
    const int32_t half = constants->rope_width;
    const bool interleaved = constants->rotary_mode == PKV_ROTARY_INTERLEAVED;
    for (int32_t t = 0; t < half; t++) {
        const size_t at = (size_t)position * (size_t)half + (size_t)t;
        const double c = ref_load(constants->rope_dtype, constants->rope_cos, at);
        const double s = ref_load(constants->rope_dtype, constants->rope_sin, at);
        const int32_t u = constants->rotary_offset + (interleaved ? 2 * t : t);
        const int32_t w = constants->rotary_offset + (interleaved ? 2 * t + 1 : t + half);
        const double xu = x[u], xw = x[w], size_u = size[u], size_w = size[w];
        x[u] = xu * c - xw * s;
        x[w] = xw * c + xu * s;
        size[u] = size_u * fabs(c) + size_w * fabs(s);
        size[w] = size_w * fabs(c) + size_u * fabs(s);
    }
}

static void normalise(const struct pkv_attn_constants *constants, const void *weight,
                      enum pkv_dtype weight_dtype, int32_t width, double *x, double *size)
{
    double sum = 0;
    for (int32_t c = 0; c < width; c++) {
        sum += x[c] * x[c];
    }
    const double rms = sqrt(sum / width + (double)constants->qk_norm_eps);
    for (int32_t c = 0; c < width; c++) {
        const double g = ref_load(weight_dtype, weight, (size_t)c);
        x[c] = x[c] / rms * g;
        size[c] = size[c] / rms * fabs(g);
    }
}

static void rotate_and_normalise(const struct pkv_attn_constants *constants, const void *weight,
                                 enum pkv_dtype weight_dtype, int32_t width, int64_t position,
                                 double *x, double *size)
{
    const bool norm_first = constants->norm_order == PKV_NORM_BEFORE_ROPE;
    for (int32_t c = 0; c < width; c++) {
        size[c] = fabs(x[c]);
    }
    if (weight != NULL && norm_first) {
        normalise(constants, weight, weight_dtype, width, x, size);
    }
    if (constants->rope_cos != NULL) {
        rotate(constants, position, x, size);
    }
    if (weight != NULL && !norm_first) {
        normalise(constants, weight, weight_dtype, width, x, size);
    }
}

/* The scale of channel c of KV head g; 1 for a float cache. */
static double scale_of(const float *scale, int32_t count, int32_t width, int32_t g, int32_t c)
{
    if (scale == NULL) {
        return 1;
    }
    return (double)scale[count == 1 ? 0 : (size_t)g * (size_t)width + (size_t)c];
}

/* New token i's parent among the row's new tokens; -1 = none. */
static int32_t parent_of(const struct pkv_gqa_args *args, const struct row *row, int32_t i)
{
    return args->parents != NULL ? args->parents[row->q_begin + i] : i - 1;
}

/* The position of the token whose key is key j: a new one's depth is counted up to its root. */
static int64_t tree_position(const struct pkv_gqa_args *args, const struct row *row, int64_t j)
{
    const int64_t past = (int64_t)row->kv_len - row->q_len;
    int64_t depth = 0;
    if (args->parents == NULL || j < past || j >= row->kv_len) {
        return j;
    }
    for (int32_t i = parent_of(args, row, (int32_t)(j - past)); i >= 0;
         i = parent_of(args, row, i)) {
        depth++;
    }
    return past + depth;
}

/* Whether new token i is, or descends from, the one whose key is j; keys before the call are
 * everyone's. */
static bool descends_from(const struct pkv_gqa_args *args, const struct row *row, int32_t i,
                          int32_t j)
{
    const int32_t past = row->kv_len - row->q_len;
    while (i >= 0 && past + i != j) {
        i = parent_of(args, row, i);
    }
    return j < past || i >= 0;
}

static int64_t position_of(const struct pkv_gqa_args *args, const struct row *row, int32_t token,
                           int32_t natural)
{
    return args->position_ids != NULL ? args->position_ids[row->q_begin + token]
                                      : tree_position(args, row, natural);
}

static void append_key(const struct pkv_gqa_args *args, struct reference *ref,
                       const struct row *row, int32_t i, int32_t g)
{
    const struct pkv_attn_constants *constants = &args->constants;
    const struct pkv_kv_view *cache = &ref->cache;
    const int32_t width = args->k_width;
    const size_t stride =
        args->k_stride != 0 ? args->k_stride : (size_t)args->kv_heads * (size_t)width;
    const size_t token = (size_t)(row->k_begin + i);
    const int32_t j = row->kv_len - row->k_len + i;
    double x[MAX_WIDTH];
    double *size = ref->k_size + (token * (size_t)args->kv_heads + (size_t)g) * (size_t)width;
    int32_t block, cell;
    for (int32_t c = 0; c < width; c++) {
        x[c] =
            ref_load(args->dtype, args->k, token * stride + (size_t)g * (size_t)width + (size_t)c);
    }
    rotate_and_normalise(constants, constants->k_norm_gain, constants->k_norm_gain_dtype, width,
                         position_of(args, row, i, j), x, size);
    reference_locate(args, row->b, j, &block, &cell);
    for (int32_t c = 0; c < width; c++) {
        const double scale = scale_of(constants->k_scale, constants->k_scale_count, width, g, c);
        ref_store(cache->k_dtype, cache->k, reference_k_index(cache, block, g, cell) + (size_t)c,
                  x[c] / scale);
    }
}

static void append_value(const struct pkv_gqa_args *args, struct reference *ref,
                         const struct row *row, int32_t i, int32_t g)
{
    const struct pkv_attn_constants *constants = &args->constants;
    const struct pkv_kv_view *cache = &ref->cache;
    const int32_t width = v_width_of(args);
    const size_t stride =
        args->v_stride != 0 ? args->v_stride : (size_t)args->kv_heads * (size_t)width;
    const size_t token = (size_t)(row->k_begin + i);
    int32_t block, cell;
    reference_locate(args, row->b, row->kv_len - row->k_len + i, &block, &cell);
    for (int32_t c = 0; c < width; c++) {
        const double x =
            ref_load(args->dtype, args->v, token * stride + (size_t)g * (size_t)width + (size_t)c);
        const double scale = scale_of(constants->v_scale, constants->v_scale_count, width, g, c);
        ref_store(cache->v_dtype, cache->v, reference_v_index(cache, block, g, cell) + (size_t)c,
                  x / scale);
    }
}

/* The view of what the call attends over, still with the caller's pointers (NONE: without). */
static struct pkv_kv_view attended_view(const struct pkv_gqa_args *args)
{
    if (args->form == PKV_CACHE_DENSE_COPY) {
        return reference_view(args->present);
    }
    if (args->form != PKV_CACHE_NONE) {
        return reference_view(args->past);
    }
    struct pkv_kv_view view = {.k_dtype = args->dtype,
                               .v_dtype = args->dtype,
                               .num_blocks = args->batch,
                               .kv_heads = args->kv_heads,
                               .block_size = 1,
                               .k_width = args->k_width,
                               .v_width = v_width_of(args)};
    for (int32_t b = 0; b < args->batch; b++) {
        const int32_t kv_len = reference_kv_len(args, b);
        view.block_size = kv_len > view.block_size ? kv_len : view.block_size;
    }
    return reference_view(view);
}

static void *copy_of(const void *bytes, size_t count)
{
    void *copy = reference_alloc(count, 1);
    if (bytes != NULL && count > 0) {
        memcpy(copy, bytes, count);
    }
    return copy;
}

/* DENSE_COPY: the past becomes the head of the present. */
static void copy_past(const struct pkv_gqa_args *args, struct reference *ref)
{
    const struct pkv_kv_view past = reference_view(args->past);
    const struct pkv_kv_view *to = &ref->cache;
    for (int32_t b = 0; b < args->batch; b++) {
        for (int32_t at = 0; at < past.kv_heads * past.block_size; at++) {
            const int32_t g = at / past.block_size;
            const int32_t cell = at % past.block_size;
            const size_t k_bytes = pkv_dtype_bytes(past.k_dtype);
            memcpy((char *)to->k + reference_k_index(to, b, g, cell) * k_bytes,
                   (const char *)past.k + reference_k_index(&past, b, g, cell) * k_bytes,
                   (size_t)past.k_width * k_bytes);
            if (args->v_in_k) {
                continue;
            }
            const size_t v_bytes = pkv_dtype_bytes(past.v_dtype);
            memcpy((char *)to->v + reference_v_index(to, b, g, cell) * v_bytes,
                   (const char *)past.v + reference_v_index(&past, b, g, cell) * v_bytes,
                   (size_t)past.v_width * v_bytes);
        }
    }
}

void reference_append(const struct pkv_gqa_args *args, struct reference *ref)
{
    const struct reference none = {.out = NULL};
    *ref = none;
    ref->cache = attended_view(args);
    ref->k_bytes = reference_k_span(&ref->cache) * pkv_dtype_bytes(ref->cache.k_dtype);
    ref->v_bytes =
        args->v_in_k ? 0 : reference_v_span(&ref->cache) * pkv_dtype_bytes(ref->cache.v_dtype);
    ref->cache.k = copy_of(ref->cache.k, ref->k_bytes);
    ref->cache.v = args->v_in_k ? NULL : copy_of(ref->cache.v, ref->v_bytes);
    if (args->form == PKV_CACHE_DENSE_COPY && args->past.k != NULL) {
        copy_past(args, ref);
    }
    ref->k_size = reference_alloc((size_t)reference_num_k_tokens(args) * (size_t)args->kv_heads,
                                  (size_t)args->k_width * sizeof(double));
    for (int32_t b = 0; b < args->batch; b++) {
        const struct row row = row_of(args, b);
        for (int32_t at = 0; at < row.k_len * args->kv_heads; at++) {
            append_key(args, ref, &row, at / args->kv_heads, at % args->kv_heads);
            if (!args->v_in_k) {
                append_value(args, ref, &row, at / args->kv_heads, at % args->kv_heads);
            }
        }
    }
}

/* What the mask says of one key: false = excluded, else *bias is added to the logit. */
static bool mask_admits(const struct pkv_gqa_args *args, int32_t b, int32_t i, int32_t h, int32_t j,
                        double *bias)
{
    *bias = 0;
    if (args->attn_mask == NULL) {
        return true;
    }
    const size_t mask_b = args->mask_batch == 1 ? 0 : (size_t)b;
    const size_t mask_h = args->mask_heads == 1 ? 0 : (size_t)h;
    const size_t line = (mask_b * (size_t)args->mask_heads + mask_h) * (size_t)args->mask_queries;
    const size_t at = (line + (size_t)i) * (size_t)args->mask_keys + (size_t)j;
    if (args->mask_dtype == PKV_INT8) {
        return ((const uint8_t *)args->attn_mask)[at] != 0;
    }
    *bias = ref_load(args->mask_dtype, args->attn_mask, at);
    return *bias != -(double)INFINITY;
}

/* The last key that a query at this position may see: of its bidirectional range, or its own. */
static int64_t last_seen(const struct pkv_gqa_args *args, int32_t b, int64_t position)
{
    const int32_t *cu = args->cu_bidirectional;
    for (int32_t i = cu != NULL ? cu[b] : 0; cu != NULL && i < cu[b + 1]; i++) {
        if (args->bidirectional[i].begin <= position && position < args->bidirectional[i].end) {
            return args->bidirectional[i].end - 1;
        }
    }
    return position;
}

/* Whether the list of the query head's KV head has key j, or the newest keys have. */
static bool is_selected(const struct pkv_gqa_args *args, int32_t b, int32_t h, int32_t j,
                        int64_t position)
{
    const int32_t size = args->selection_size != 0 ? args->selection_size : args->past.block_size;
    const bool by_head = args->num_selected_lists != args->batch;
    const int32_t kv_head = h / (args->num_heads / args->kv_heads);
    const int32_t list = by_head ? b * args->kv_heads + kv_head : b;
    for (int32_t i = args->cu_selected[list]; i < args->cu_selected[list + 1]; i++) {
        if (args->selected[i] == j / size) {
            return true;
        }
    }
    return args->selected_newest > 0 && j > position - args->selected_newest;
}

bool reference_sees(const struct pkv_gqa_args *args, int32_t b, int32_t i, int32_t h, int32_t j,
                    double *bias)
{
    const struct row row = row_of(args, b);
    const int64_t query_position = tree_position(args, &row, (int64_t)row.kv_len - row.q_len + i);
    const int64_t position = tree_position(args, &row, j);
    int64_t kept = 0;
    if (args->kept_prefix != NULL) {
        kept = args->kept_prefix[args->kept_prefix_count == 1 ? 0 : b];
    }
    if (j >= row.kv_len || (!args->not_causal && position > last_seen(args, b, query_position))) {
        return false;
    }
    if (args->parents != NULL && !descends_from(args, &row, i, j)) {
        return false;
    }
    if (args->sliding_window > 0 && position <= query_position - args->sliding_window &&
        position >= kept) {
        return false;
    }
    if (args->cu_selected != NULL && !is_selected(args, b, h, j, query_position)) {
        return false;
    }
    return mask_admits(args, b, i, h, j, bias);
}

/* One row's keys and values of KV head g as doubles; cells that are mapped nowhere stay 0. */
static void load_row(const struct pkv_gqa_args *args, const struct reference *ref,
                     const struct row *row, int32_t g, double *keys, double *values)
{
    const struct pkv_attn_constants *constants = &args->constants;
    const struct pkv_kv_view *cache = &ref->cache;
    const int32_t k_width = args->k_width;
    const int32_t v_width = v_width_of(args);
    for (int32_t j = 0; j < row->kv_len; j++) {
        int32_t block, cell;
        reference_locate(args, row->b, j, &block, &cell);
        double *key = keys + (size_t)j * (size_t)k_width;
        double *value = values + (size_t)j * (size_t)v_width;
        for (int32_t c = 0; block >= 0 && c < k_width; c++) {
            const size_t at = reference_k_index(cache, block, g, cell) + (size_t)c;
            key[c] = ref_load(cache->k_dtype, cache->k, at) *
                     scale_of(constants->k_scale, constants->k_scale_count, k_width, g, c);
        }
        for (int32_t c = 0; block >= 0 && c < v_width; c++) {
            const size_t at = args->v_in_k ? 0 : reference_v_index(cache, block, g, cell);
            value[c] = args->v_in_k ? key[c]
                                    : ref_load(cache->v_dtype, cache->v, at + (size_t)c) *
                                          scale_of(constants->v_scale, constants->v_scale_count,
                                                   v_width, g, c);
        }
    }
}

/* One (query, head): the loaded query and what is found on the way. */
struct query {
    int32_t i, h;
    double x[MAX_WIDTH], size[MAX_WIDTH];
    double sink;
    double logit_size, value_size;
};

static void load_query(const struct pkv_gqa_args *args, const struct row *row, struct query *query)
{
    const struct pkv_attn_constants *constants = &args->constants;
    const size_t width = (size_t)args->k_width;
    const size_t stride = args->q_stride != 0 ? args->q_stride : (size_t)args->num_heads * width;
    const size_t at = (size_t)(row->q_begin + query->i) * stride + (size_t)query->h * width;
    for (size_t c = 0; c < width; c++) {
        query->x[c] = ref_load(args->dtype, args->q, at + c);
    }
    const int32_t query_position = row->kv_len - row->q_len + query->i;
    rotate_and_normalise(constants, constants->q_norm_gain, constants->q_norm_gain_dtype,
                         args->k_width, position_of(args, row, query->i, query_position), query->x,
                         query->size);
    query->sink = constants->smooth_softmax ? 0 : -(double)INFINITY;
    if (constants->head_sink != NULL) {
        query->sink = (double)constants->head_sink[query->h];
    }
    query->logit_size = isfinite(query->sink) ? fabs(query->sink) : 0;
    query->value_size = 0;
}

static double logit_of(const struct pkv_gqa_args *args, struct query *query, const double *key,
                       double bias)
{
    const struct pkv_attn_constants *constants = &args->constants;
    const double scale =
        constants->q_scale != NULL ? (double)*constants->q_scale : 1 / sqrt(args->k_width);
    const double cap = (double)constants->softcap;
    double dot = 0, size = 0;
    for (int32_t c = 0; c < args->k_width; c++) {
        dot += query->x[c] * key[c];
        size += query->size[c] * fabs(key[c]);
    }
    query->logit_size = fmax(query->logit_size, fabs(scale) * size + fabs(bias));
    const double x = scale * dot;
    return (cap > 0 ? cap * tanh(x / cap) : x) + bias;
}

/* logits and seen are scratch of kv_len elements. */
static void attend_query(const struct pkv_gqa_args *args, struct reference *ref,
                         const struct row *row, struct query *query, const double *keys,
                         const double *values, double *logits, bool *seen)
{
    const size_t k_width = (size_t)args->k_width;
    const size_t v_width = (size_t)v_width_of(args);
    const size_t at =
        (size_t)(row->q_begin + query->i) * (size_t)args->num_heads + (size_t)query->h;
    double top = query->sink;
    for (int32_t j = 0; j < row->kv_len; j++) {
        double bias = 0;
        seen[j] = reference_sees(args, row->b, query->i, query->h, j, &bias);
        logits[j] = seen[j] ? logit_of(args, query, keys + (size_t)j * k_width, bias) : 0;
        if (seen[j] && (isnan(logits[j]) || logits[j] > top)) {
            top = logits[j];
        }
    }
    double *out = ref->out + at * v_width;
    ref->lse[at] = top;
    if (top == -(double)INFINITY) {
        return;
    }
    double sum = exp(query->sink - top);
    for (int32_t j = 0; j < row->kv_len; j++) {
        sum += seen[j] ? exp(logits[j] - top) : 0;
    }
    for (int32_t j = 0; j < row->kv_len; j++) {
        const double weight = seen[j] ? exp(logits[j] - top) / sum : 0;
        for (size_t c = 0; seen[j] && c < v_width; c++) {
            const double value = values[(size_t)j * v_width + c];
            out[c] += weight * value;
            query->value_size = fmax(query->value_size, fabs(value));
        }
    }
    ref->lse[at] = top + log(sum);
    ref->logit_size[at] = query->logit_size;
    ref->value_size[at] = query->value_size;
}

static void attend_row(const struct pkv_gqa_args *args, struct reference *ref,
                       const struct row *row)
{
    const size_t kv_len = (size_t)row->kv_len;
    const int32_t group = args->num_heads / args->kv_heads;
    double *keys = reference_alloc(kv_len * (size_t)args->k_width, sizeof(double));
    double *values = reference_alloc(kv_len * (size_t)v_width_of(args), sizeof(double));
    double *logits = reference_alloc(kv_len, sizeof(double));
    bool *seen = reference_alloc(kv_len, sizeof(bool));
    for (int32_t h = 0; h < args->num_heads; h++) {
        if (h % group == 0) {
            load_row(args, ref, row, h / group, keys, values);
        }
        for (int32_t i = 0; i < row->q_len; i++) {
            struct query query = {.i = i, .h = h};
            load_query(args, row, &query);
            attend_query(args, ref, row, &query, keys, values, logits, seen);
        }
    }
    free(keys);
    free(values);
    free(logits);
    free(seen);
}

void reference_attend(const struct pkv_gqa_args *args, struct reference *ref)
{
    const size_t cells = (size_t)args->num_tokens * (size_t)args->num_heads;
    ref->out = reference_alloc(cells * (size_t)v_width_of(args), sizeof(double));
    ref->lse = reference_alloc(cells, sizeof(double));
    ref->logit_size = reference_alloc(cells, sizeof(double));
    ref->value_size = reference_alloc(cells, sizeof(double));
    for (int32_t b = 0; b < args->batch; b++) {
        const struct row row = row_of(args, b);
        if (row.q_len > 0) {
            attend_row(args, ref, &row);
        }
    }
}

void reference_free(struct reference *ref)
{
    const struct reference none = {.out = NULL};
    free(ref->cache.k);
    free(ref->cache.v);
    free(ref->k_size);
    free(ref->out);
    free(ref->lse);
    free(ref->logit_size);
    free(ref->value_size);
    *ref = none;
}
