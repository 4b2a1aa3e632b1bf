/* SPDX-License-Identifier: MIT
 *
 * options_case.c: see options_case.h. */
#include "support/options_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Making */

static void *keep(struct options_case *c, size_t count, enum pkv_dtype dtype)
{
    if (c->num_arrays == OPTIONS_MAX_ARRAYS) {
        CU_FAIL_FATAL("the case has too many arrays");
    }
    void *array = reference_alloc(count, pkv_dtype_bytes(dtype));
    c->arrays[c->num_arrays++] = array;
    return array;
}

/* base + spread * [-1, 1) */
static void *random_array(struct options_case *c, size_t count, enum pkv_dtype dtype, double base,
                          double spread)
{
    void *array = keep(c, count, dtype);
    for (size_t i = 0; i < count; i++) {
        ref_store(dtype, array, i, base + spread * random_unit(&c->random));
    }
    return array;
}

void options_case_init(struct options_case *c, uint64_t seed)
{
    memset(c, 0, sizeof *c);
    case_init(&c->runtime);
    c->runtime.config.num_layers = 0;
    c->runtime.config.max_seq_len = OPTIONS_POSITIONS;
    c->runtime.groups[0].num_blocks = 128;
    c->num_positions = OPTIONS_POSITIONS;
    c->random.state = seed;
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(1, test_isa(), NULL, &c->workspace));
}

static void add_rope(struct options_case *c, const struct pkv_group_config *group, unsigned options,
                     struct pkv_attn_constants *to)
{
    const bool is_partial = (options & WITH_PARTIAL) != 0;
    const int32_t half = is_partial ? group->k_width / 4 : group->k_width / 2;
    const enum pkv_dtype dtype = (options & WITH_BF16_ROPE) != 0 ? PKV_BF16 : PKV_F32;
    const size_t count = (size_t)c->num_positions * (size_t)half;
    to->rope_cos = random_array(c, count, dtype, 0, 1.1);
    to->rope_sin = random_array(c, count, dtype, 0, 1.1);
    to->rope_dtype = dtype;
    to->rope_positions = c->num_positions;
    to->rope_width = half;
    to->rotary_offset = is_partial ? group->k_width - 2 * half - 1 : 0;
    to->rotary_mode =
        (options & WITH_INTERLEAVED) != 0 ? PKV_ROTARY_INTERLEAVED : PKV_ROTARY_HALF_SPLIT;
}

static void add_norm(struct options_case *c, const struct pkv_group_config *group, unsigned options,
                     struct pkv_attn_constants *to)
{
    to->q_norm_gain = random_array(c, (size_t)group->k_width, PKV_F32, 1, 0.5);
    to->q_norm_gain_count = group->k_width;
    to->k_norm_gain = random_array(c, (size_t)group->k_width, PKV_F16, 1, 0.5);
    to->k_norm_gain_dtype = PKV_F16;
    to->k_norm_gain_count = group->k_width;
    to->qk_norm_eps = 1e-5f;
    to->norm_order = (options & WITH_NORM_FIRST) != 0 ? PKV_NORM_BEFORE_ROPE : PKV_NORM_AFTER_ROPE;
}

static bool is_code(enum pkv_dtype dtype)
{
    return dtype == PKV_INT8 || dtype == PKV_E4M3;
}

static const float *scales_of(struct options_case *c, enum pkv_dtype dtype, int32_t count)
{
    const double base = 1.3 / (dtype == PKV_INT8 ? 127 : 448);
    return random_array(c, (size_t)count, PKV_F32, base, 0.4 * base);
}

static void add_scales(struct options_case *c, const struct pkv_group_config *group,
                       unsigned options, struct pkv_attn_constants *to)
{
    const bool is_each = (options & WITH_SCALE_PER_CHANNEL) != 0;
    const int32_t v_width = group->v_width != 0 ? group->v_width : group->k_width;
    if (is_code(group->k_dtype)) {
        to->k_scale_count = is_each ? group->kv_heads * group->k_width : 1;
        to->k_scale = scales_of(c, group->k_dtype, to->k_scale_count);
    }
    if (is_code(group->v_dtype) && !group->v_in_k) {
        to->v_scale_count = is_each ? group->kv_heads * v_width : 1;
        to->v_scale = scales_of(c, group->v_dtype, to->v_scale_count);
    }
}

static struct pkv_attn_constants constants_of(struct options_case *c,
                                              const struct pkv_group_config *group,
                                              int32_t num_heads, unsigned options)
{
    struct pkv_attn_constants to = {.q_scale = NULL};
    if ((options & WITH_ROPE) != 0) {
        add_rope(c, group, options, &to);
    }
    if ((options & (WITH_NORM | WITH_NORM_FIRST)) != 0) {
        add_norm(c, group, options, &to);
    }
    if ((options & WITH_SINK) != 0) {
        to.head_sink = random_array(c, (size_t)num_heads, PKV_F32, 0, 4);
        to.head_sink_count = num_heads;
    }
    if ((options & WITH_Q_SCALE) != 0) {
        to.q_scale = random_array(c, 1, PKV_F32, 0.5, 0.3);
    }
    to.softcap = (options & WITH_SOFTCAP) != 0 ? 1.5f : 0;
    to.smooth_softmax = (options & WITH_SMOOTH) != 0;
    add_scales(c, group, options, &to);
    return to;
}

struct pkv_layer_config *options_case_layer(struct options_case *c, int32_t group,
                                            int32_t num_heads, unsigned options)
{
    const int32_t at = c->runtime.config.num_layers;
    struct pkv_layer_config *layer = case_add_layer(&c->runtime, group);
    layer->num_heads = num_heads;
    c->constants[at] = constants_of(c, &c->runtime.groups[group], num_heads, options);
    return layer;
}

/* A layer that reads a quantised page must scale as its owner did. */
struct pkv_layer_config *options_case_sharer(struct options_case *c, int32_t owner,
                                             int32_t num_heads, unsigned options)
{
    const int32_t at = c->runtime.config.num_layers;
    struct pkv_layer_config *layer =
        options_case_layer(c, c->runtime.layers[owner].group, num_heads, options);
    layer->shares_kv = true;
    layer->kv_layer = owner;
    c->constants[at].k_scale = c->constants[owner].k_scale;
    c->constants[at].v_scale = c->constants[owner].v_scale;
    c->constants[at].k_scale_count = c->constants[owner].k_scale_count;
    c->constants[at].v_scale_count = c->constants[owner].v_scale_count;
    return layer;
}

/* Lends a copy of an array to the config. */
static void *lend(void **lent, size_t *num_lent, const void *array, size_t bytes)
{
    if (array == NULL) {
        return NULL;
    }
    void *copy = malloc(bytes + sizeof bytes);
    memcpy(copy, &bytes, sizeof bytes);
    lent[(*num_lent)++] = copy;
    return memcpy((char *)copy + sizeof bytes, array, bytes);
}

static struct pkv_attn_constants lend_all(const struct pkv_attn_constants *from, void **lent,
                                          size_t *num_lent)
{
    struct pkv_attn_constants to = *from;
    const size_t table_bytes =
        (size_t)from->rope_positions * (size_t)from->rope_width * pkv_dtype_bytes(from->rope_dtype);
    to.q_scale = lend(lent, num_lent, from->q_scale, sizeof(float));
    to.head_sink =
        lend(lent, num_lent, from->head_sink, (size_t)from->head_sink_count * sizeof(float));
    to.rope_cos = lend(lent, num_lent, from->rope_cos, table_bytes);
    to.rope_sin = lend(lent, num_lent, from->rope_sin, table_bytes);
    to.q_norm_gain =
        lend(lent, num_lent, from->q_norm_gain,
             (size_t)from->q_norm_gain_count * pkv_dtype_bytes(from->q_norm_gain_dtype));
    to.k_norm_gain =
        lend(lent, num_lent, from->k_norm_gain,
             (size_t)from->k_norm_gain_count * pkv_dtype_bytes(from->k_norm_gain_dtype));
    to.k_scale = lend(lent, num_lent, from->k_scale, (size_t)from->k_scale_count * sizeof(float));
    to.v_scale = lend(lent, num_lent, from->v_scale, (size_t)from->v_scale_count * sizeof(float));
    return to;
}

void options_case_open(struct options_case *c)
{
    void *lent[8 * CASE_MAX_LAYERS];
    size_t num_lent = 0;
    for (int32_t i = 0; i < c->runtime.config.num_layers; i++) {
        c->runtime.layers[i].constants = lend_all(&c->constants[i], lent, &num_lent);
    }
    case_open(&c->runtime);
    while (num_lent > 0) {
        size_t bytes = 0;
        memcpy(&bytes, lent[--num_lent], sizeof bytes);
        memset(lent[num_lent], 0xff, bytes + sizeof bytes);
        free(lent[num_lent]);
    }
}

void options_case_close(struct options_case *c)
{
    case_close(&c->runtime);
    while (c->num_arrays > 0) {
        free(c->arrays[--c->num_arrays]);
    }
    pkv_workspace_destroy(c->workspace);
}

/* Steps */

int64_t options_case_position(const struct options_case *c, uint32_t tag, int32_t natural)
{
    return c->has_positions ? (int64_t)(tag * 2654435761u % (uint32_t)c->num_positions) : natural;
}

enum pkv_status options_case_begin(struct options_case *c, struct case_step *step)
{
    pkv_seq seqs[CASE_MAX_ROWS];
    int32_t q_lens[CASE_MAX_ROWS];
    static const int32_t token_ids[CASE_MAX_LENGTH];
    int64_t positions[CASE_MAX_LENGTH];
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = seqs,
                                    .q_lens = q_lens,
                                    .num_rows = step->num_rows,
                                    .num_required_rows = step->num_rows,
                                    .token_ids = token_ids,
                                    .position_ids = c->has_positions ? positions : NULL};
    step->num_tokens = 0;
    for (int32_t i = 0; i < step->num_rows; i++) {
        struct case_seq *seq = step->rows[i].seq;
        seqs[i] = seq->handle;
        q_lens[i] = step->rows[i].q_len;
        for (int32_t t = 0; t < q_lens[i]; t++) {
            const uint32_t tag = c->runtime.next_tag++;
            seq->tags[seq->length + t] = tag;
            positions[step->num_tokens++] = options_case_position(c, tag, seq->length + t);
        }
    }
    step->shortage.size = sizeof step->shortage;
    return pkv_step_begin(c->runtime.cache, &batch, &step->handle, &step->shortage);
}

/* One layer's side of a step: activations of the new tokens, and what came out. */
struct layer_run {
    const struct options_case *c;
    const struct pkv_layer_config *config;
    const struct pkv_group_config *group;
    const struct pkv_attn_constants *constants;
    int32_t layer, owner;
    int32_t k_width, v_width;
    size_t num_tokens;
    void *q, *k, *v;
    void *out[2]; /* managed, raw */
    float *lse[2];
    size_t out_bytes, lse_bytes;
    struct pkv_kv_view pages;
    size_t k_bytes, v_bytes;
    char *before, *after; /* keys, then values of the layer's pages */
};

/* what: 0 key, 1 value, 2 query, as in case_value; heads x width of one token at `at`. */
static void fill_token(const struct layer_run *run, void *array, size_t at, uint32_t tag, int what)
{
    const int32_t heads = what == 2 ? run->config->num_heads : run->group->kv_heads;
    const int32_t width = what == 1 ? run->v_width : run->k_width;
    const int32_t layer = what == 2 ? run->layer : run->owner;
    for (int32_t i = 0; i < heads * width; i++) {
        ref_store(run->c->runtime.config.dtype, array,
                  at * (size_t)heads * (size_t)width + (size_t)i,
                  case_value(tag, layer, what, i / width, i % width));
    }
}

static void make_run(const struct options_case *c, const struct case_step *step, int32_t layer,
                     struct layer_run *run)
{
    const struct pkv_layer_config *config = &c->runtime.layers[layer];
    const struct pkv_group_config *group = &c->runtime.groups[config->group];
    const size_t element = pkv_dtype_bytes(c->runtime.config.dtype);
    const size_t tokens = (size_t)step->num_tokens;
    *run = (struct layer_run){
        .c = c,
        .config = config,
        .group = group,
        .constants = &c->constants[layer],
        .layer = layer,
        .owner = config->shares_kv ? config->kv_layer : layer,
        .k_width = group->k_width,
        .v_width = group->v_width != 0 ? group->v_width : group->k_width,
        .num_tokens = tokens,
    };
    const size_t heads = (size_t)config->num_heads, kv_heads = (size_t)group->kv_heads;
    run->q = reference_alloc(tokens * heads * (size_t)run->k_width, element);
    run->k = reference_alloc(tokens * kv_heads * (size_t)run->k_width, element);
    run->v = reference_alloc(tokens * kv_heads * (size_t)run->v_width, element);
    run->out_bytes = tokens * heads * (size_t)run->v_width * element;
    run->lse_bytes = tokens * heads * sizeof(float);
    for (int i = 0; i < 2; i++) {
        run->out[i] = memset(reference_alloc(run->out_bytes, 1), 0xff, run->out_bytes);
        run->lse[i] = memset(reference_alloc(run->lse_bytes, 1), 0xff, run->lse_bytes);
    }
    size_t at = 0;
    for (int32_t i = 0; i < step->num_rows; i++) {
        const struct case_seq *seq = step->rows[i].seq;
        for (int32_t t = 0; t < step->rows[i].q_len; t++, at++) {
            fill_token(run, run->q, at, seq->tags[seq->length + t], 2);
            fill_token(run, run->k, at, seq->tags[seq->length + t], 0);
            fill_token(run, run->v, at, seq->tags[seq->length + t], 1);
        }
    }
    ASSERT_STATUS(PKV_OK, pkv_cache_view(c->runtime.cache, layer, &run->pages));
    const struct pkv_kv_view view = reference_view(run->pages);
    run->k_bytes = reference_k_span(&view) * pkv_dtype_bytes(view.k_dtype);
    run->v_bytes = group->v_in_k ? 0 : reference_v_span(&view) * pkv_dtype_bytes(view.v_dtype);
    run->before = reference_alloc(run->k_bytes + run->v_bytes, 1);
    run->after = reference_alloc(run->k_bytes + run->v_bytes, 1);
}

static void free_run(struct layer_run *run)
{
    free(run->q);
    free(run->k);
    free(run->v);
    for (int i = 0; i < 2; i++) {
        free(run->out[i]);
        free(run->lse[i]);
    }
    free(run->before);
    free(run->after);
}

static void save_pages(const struct layer_run *run, char *to)
{
    memcpy(to, run->pages.k, run->k_bytes);
    if (run->v_bytes > 0) {
        memcpy(to + run->k_bytes, run->pages.v, run->v_bytes);
    }
}

static void restore_pages(const struct layer_run *run, const char *from)
{
    memcpy(run->pages.k, from, run->k_bytes);
    if (run->v_bytes > 0) {
        memcpy(run->pages.v, from + run->k_bytes, run->v_bytes);
    }
}

static bool differs(const struct layer_run *run, const char *what, size_t at)
{
    printf("\n  layer %d, seed %llu: %s, at %zu\n", run->layer, (unsigned long long)test_seed(),
           what, at);
    return false;
}

static struct pkv_layer_io io_of(const struct layer_run *run)
{
    const bool shares = run->config->shares_kv;
    const struct pkv_layer_io io = {.size = sizeof io,
                                    .q = run->q,
                                    .k = shares ? NULL : run->k,
                                    .v = shares || run->group->v_in_k ? NULL : run->v,
                                    .out = run->out[0],
                                    .lse = run->lse[0]};
    return io;
}

/* What raw calls of this layer have in common. */
static struct pkv_gqa_args common_args(const struct layer_run *run)
{
    const struct pkv_gqa_args args = {.size = sizeof args,
                                      .dtype = run->c->runtime.config.dtype,
                                      .num_heads = run->config->num_heads,
                                      .kv_heads = run->group->kv_heads,
                                      .k_width = run->k_width,
                                      .v_width = run->v_width,
                                      .v_in_k = run->group->v_in_k,
                                      .sliding_window = run->group->sliding_window,
                                      .constants = *run->constants};
    return args;
}

/* On the pages of the step */

static void copy_cells(const struct layer_run *run, const struct pkv_page_copy *copy)
{
    const struct pkv_kv_view view = reference_view(run->pages);
    const size_t k_bytes = pkv_dtype_bytes(view.k_dtype), v_bytes = pkv_dtype_bytes(view.v_dtype);
    for (int32_t at = 0; at < view.kv_heads * copy->num_cells; at++) {
        const int32_t g = at / copy->num_cells, cell = at % copy->num_cells;
        memcpy((char *)view.k + reference_k_index(&view, copy->dst, g, cell) * k_bytes,
               (char *)view.k + reference_k_index(&view, copy->src, g, cell) * k_bytes,
               (size_t)view.k_width * k_bytes);
        if (run->v_bytes > 0) {
            memcpy((char *)view.v + reference_v_index(&view, copy->dst, g, cell) * v_bytes,
                   (char *)view.v + reference_v_index(&view, copy->src, g, cell) * v_bytes,
                   (size_t)view.v_width * v_bytes);
        }
    }
}

/* A row without tokens needs nothing. It may hold a block that another row, the block's writer,
 * appends to beyond this one's length, which a raw call would refuse. */
static void fill_table(const struct pkv_step_view *view, int32_t *table)
{
    for (int32_t i = 0; i < view->num_rows; i++) {
        const int32_t *entries =
            view->block_tables + (size_t)view->table_rows[i] * view->table_stride;
        const bool is_idle = view->cu_seqlens_q[i] == view->cu_seqlens_q[i + 1];
        for (int32_t block = 0; block < view->max_blocks; block++) {
            *table++ = is_idle ? -1 : entries[block];
        }
    }
}

static struct pkv_gqa_args page_args(const struct layer_run *run, const struct pkv_step_view *view,
                                     int32_t *table)
{
    struct pkv_gqa_args args = common_args(run);
    const bool is_paged = run->group->storage == PKV_STORAGE_PAGED;
    args.form = is_paged ? PKV_CACHE_PAGED : PKV_CACHE_CONTINUOUS;
    args.batch = view->num_rows;
    args.num_tokens = view->num_tokens;
    args.cu_seqlens_q = view->cu_seqlens_q;
    args.kv_lens = view->kv_lens;
    args.position_ids = run->constants->rope_cos != NULL ? view->position_ids : NULL;
    args.kept_prefix = view->kept_prefix;
    args.kept_prefix_count = view->num_rows;
    args.past = run->pages;
    args.q = run->q;
    args.k = run->config->shares_kv ? NULL : run->k;
    args.v = run->config->shares_kv || run->group->v_in_k ? NULL : run->v;
    args.out = run->out[1];
    args.lse = run->lse[1];
    if (is_paged) {
        fill_table(view, table);
        args.block_table = table;
        args.max_blocks = view->max_blocks;
    } else {
        args.slot_ids = view->slot_ids;
    }
    return args;
}

/* Every element of the pages: the same bits, or a new channel within the bound of operator.md. */
static bool cells_are_right(const struct layer_run *run, const struct reference *ref,
                            enum pkv_dtype dtype, const void *got, const void *want, size_t bytes,
                            bool is_transformed)
{
    const size_t element = pkv_dtype_bytes(dtype);
    double size = 0;
    for (size_t i = 0; is_transformed &&
                       i < run->num_tokens * (size_t)run->group->kv_heads * (size_t)run->k_width;
         i++) {
        size = fmax(size, ref->k_size[i]);
    }
    for (size_t i = 0; i < bytes / element; i++) {
        const char *x = (const char *)got + i * element;
        const char *y = (const char *)want + i * element;
        if (memcmp(x, y, element) == 0) {
            continue;
        }
        const double a = ref_load(dtype, got, i), b = ref_load(dtype, want, i);
        const bool is_near =
            is_code(dtype) ? reference_code_steps(dtype, (uint8_t)*x, (uint8_t)*y) <= 1
                           : is_transformed && fabs(a - b) <= reference_ulp(dtype, b) + 4e-7 * size;
        if (!is_near) {
            return differs(run, "a stored channel is not that of the reference", i);
        }
    }
    return true;
}

/* One query and head, which has kv_len keys. */
static bool head_is_right(const struct layer_run *run, const struct reference *ref, size_t head,
                          int32_t kv_len)
{
    const enum pkv_dtype dtype = run->c->runtime.config.dtype;
    const size_t width = (size_t)run->v_width;
    const double bound = 4 * 0x1p-24 * (run->k_width + kv_len) * (1 + ref->logit_size[head]);
    const double sums = bound * ref->value_size[head];
    for (size_t i = head * width; i < (head + 1) * width; i++) {
        const double rounding = reference_ulp(dtype, fabs(ref->out[i]) + sums) / 2;
        if (!(fabs(ref_load(dtype, run->out[0], i) - ref->out[i]) <= sums + rounding)) {
            return differs(run, "out is not that of the reference", i);
        }
    }
    const double lse = (double)run->lse[0][head];
    return fabs(lse - ref->lse[head]) <= bound + 0x1p-23 * fabs(ref->lse[head]) ||
           differs(run, "lse is not that of the reference", head);
}

static bool outputs_are_right(const struct layer_run *run, const struct pkv_gqa_args *args,
                              const struct reference *ref)
{
    const size_t heads = (size_t)args->num_heads;
    for (int32_t b = 0; b < args->batch; b++) {
        const size_t end = (size_t)args->cu_seqlens_q[b + 1] * heads;
        for (size_t head = (size_t)args->cu_seqlens_q[b] * heads; head < end; head++) {
            if (!head_is_right(run, ref, head, args->kv_lens[b])) {
                return false;
            }
        }
    }
    return true;
}

/* The raw call on the same pages, from the state before the step; pages end as they were. */
static bool raw_call_agrees(const struct layer_run *run, const struct pkv_step_view *view)
{
    int32_t *table =
        reference_alloc((size_t)view->num_rows * (size_t)view->max_blocks + 1, sizeof *table);
    const struct pkv_gqa_args args = page_args(run, view, table);
    const struct pkv_attn_constants *constants = run->constants;
    const bool is_transformed = constants->rope_cos != NULL || constants->k_norm_gain != NULL;
    struct reference ref;
    if (!run->config->shares_kv) {
        restore_pages(run, run->before);
        for (int32_t i = 0; i < view->num_copies; i++) {
            copy_cells(run, &view->copies[i]);
        }
    }
    reference_append(&args, &ref);
    ASSERT_STATUS(PKV_OK, args.k != NULL ? pkv_gqa(run->c->workspace, &args)
                                         : pkv_attention_over_cache(run->c->workspace, &args));
    bool is_right = memcmp(run->out[0], run->out[1], run->out_bytes) == 0 &&
                    memcmp(run->lse[0], run->lse[1], run->lse_bytes) == 0;
    is_right = is_right || differs(run, "the raw call on these pages differs", 0);
    if (memcmp(run->pages.k, run->after, run->k_bytes) != 0 ||
        (run->v_bytes > 0 && memcmp(run->pages.v, run->after + run->k_bytes, run->v_bytes) != 0)) {
        is_right = differs(run, "the raw call leaves other pages", 0);
    }
    is_right = is_right &&
               cells_are_right(run, &ref, run->pages.k_dtype, run->pages.k, ref.cache.k,
                               run->k_bytes, is_transformed) &&
               cells_are_right(run, &ref, run->pages.v_dtype, run->pages.v, ref.cache.v,
                               run->v_bytes, false);
    memcpy(ref.cache.k, run->pages.k, run->k_bytes);
    if (run->v_bytes > 0) {
        memcpy(ref.cache.v, run->pages.v, run->v_bytes);
    }
    reference_attend(&args, &ref);
    is_right = is_right && outputs_are_right(run, &args, &ref);
    reference_free(&ref);
    free(table);
    return is_right;
}

/* On a dense cache of one sequence's history */

struct history {
    int32_t cu[2], kv_len;
    int64_t positions[CASE_MAX_LENGTH];
    void *k, *v;
    struct pkv_kv_view cache;
};

static void make_history(const struct layer_run *run, const struct case_seq *seq, int32_t kv_len,
                         struct history *h)
{
    const size_t element = pkv_dtype_bytes(run->c->runtime.config.dtype);
    const size_t cells = (size_t)kv_len * (size_t)run->group->kv_heads;
    const size_t k_count = cells * (size_t)run->k_width, v_count = cells * (size_t)run->v_width;
    h->kv_len = kv_len;
    h->k = reference_alloc(k_count, element);
    h->v = reference_alloc(v_count, element);
    for (int32_t j = 0; j < kv_len; j++) {
        fill_token(run, h->k, (size_t)j, seq->tags[j], 0);
        fill_token(run, h->v, (size_t)j, seq->tags[j], 1);
        h->positions[j] = options_case_position(run->c, seq->tags[j], j);
    }
    h->cache = (struct pkv_kv_view){.k_dtype = run->group->k_dtype,
                                    .v_dtype = run->group->v_dtype,
                                    .num_blocks = 1,
                                    .kv_heads = run->group->kv_heads,
                                    .block_size = kv_len,
                                    .k_width = run->k_width,
                                    .v_width = run->v_width};
    h->cache.k = reference_alloc(k_count, pkv_dtype_bytes(h->cache.k_dtype));
    if (!run->group->v_in_k) {
        h->cache.v = reference_alloc(v_count, pkv_dtype_bytes(h->cache.v_dtype));
    }
}

static void free_history(struct history *h)
{
    free(h->k);
    free(h->v);
    free(h->cache.k);
    free(h->cache.v);
}

/* All keys at once by the owner's constants, then this layer's queries over them. */
static bool history_agrees(const struct layer_run *run, const struct case_row *row, size_t token,
                           const int64_t *kept_prefix)
{
    struct history h;
    const int32_t kv_len = row->seq->length + row->q_len;
    const bool has_rope = run->constants->rope_cos != NULL;
    const size_t heads = (size_t)run->config->num_heads;
    const size_t row_bytes = run->out_bytes / run->num_tokens * (size_t)row->q_len;
    const size_t q_at =
        token * heads * (size_t)run->k_width * pkv_dtype_bytes(run->c->runtime.config.dtype);
    make_history(run, row->seq, kv_len, &h);
    struct pkv_gqa_args args = common_args(run);
    args.form = PKV_CACHE_DENSE;
    args.batch = 1;
    args.cu_seqlens_q = h.cu;
    args.kv_lens = &h.kv_len;
    args.past = h.cache;
    args.kept_prefix = kept_prefix;
    args.kept_prefix_count = 1;
    args.num_tokens = h.cu[1] = kv_len;
    h.cu[0] = 0;
    args.k = h.k;
    args.v = run->group->v_in_k ? NULL : h.v;
    args.constants = run->c->constants[run->owner];
    args.num_heads = run->c->runtime.layers[run->owner].num_heads;
    args.position_ids = args.constants.rope_cos != NULL ? h.positions : NULL;
    ASSERT_STATUS(PKV_OK, pkv_append(run->c->workspace, &args));
    args.k = args.v = NULL;
    args.constants = *run->constants;
    args.num_heads = run->config->num_heads;
    args.num_tokens = h.cu[1] = row->q_len;
    args.position_ids = has_rope ? h.positions + row->seq->length : NULL;
    args.q = (const char *)run->q + q_at;
    args.out = run->out[1];
    args.lse = run->lse[1];
    ASSERT_STATUS(PKV_OK, pkv_attention_over_cache(run->c->workspace, &args));
    const bool is_same =
        memcmp(args.out, (const char *)run->out[0] + token * (run->out_bytes / run->num_tokens),
               row_bytes) == 0 &&
        memcmp(args.lse, run->lse[0] + token * heads, (size_t)row->q_len * heads * sizeof(float)) ==
            0;
    free_history(&h);
    return is_same || differs(run, "a row's whole history in a dense cache differs", token);
}

bool options_case_attend(struct options_case *c, struct case_step *step, int32_t layer)
{
    struct layer_run run;
    struct pkv_step_view view = {.size = sizeof view};
    make_run(c, step, layer, &run);
    const struct pkv_layer_io io = io_of(&run);
    save_pages(&run, run.before);
    step->attended = pkv_step_attend(c->runtime.cache, step->handle, layer, &io);
    save_pages(&run, run.after);
    bool is_right = step->attended == PKV_OK;
    ASSERT_STATUS(PKV_OK, step->attended);
    ASSERT_STATUS(PKV_OK, pkv_step_describe(c->runtime.cache, step->handle,
                                            c->runtime.layers[layer].group, &view));
    if (is_right && step->num_tokens > 0) {
        is_right = raw_call_agrees(&run, &view);
        size_t token = 0;
        for (int32_t i = 0; is_right && i < step->num_rows; i++) {
            if (step->rows[i].q_len > 0) {
                is_right = history_agrees(&run, &step->rows[i], token, &view.kept_prefix[i]);
            }
            token += (size_t)step->rows[i].q_len;
        }
    }
    free_run(&run);
    return is_right;
}
