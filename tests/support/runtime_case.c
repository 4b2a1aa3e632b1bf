/* SPDX-License-Identifier: MIT
 *
 * The model is tags in an array, and attention over them is the definition: logits, their maximum,
 * a sum, a weighted mean, all in double. Nothing here shares code with the library. */
#include "support/runtime_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cache.h"

#define FENCE 64
#define FENCE_BYTE 0x5c

/* What stands before each piece of memory that the hooks hand out. */
struct piece {
    void *base;
    size_t bytes;
    size_t alignment;
    bool is_mapped;
};

static void *take(struct case_memory *memory, size_t bytes, size_t alignment, bool is_mapped)
{
    const size_t grain = alignment < FENCE ? FENCE : alignment;
    if (!memory->is_ready) {
        return NULL;
    }
    pthread_mutex_lock(&memory->lock);
    memory->calls++;
    const bool fails = memory->fail_at > 0 && memory->calls >= memory->fail_at;
    pthread_mutex_unlock(&memory->lock);
    char *base = fails ? NULL : malloc(bytes + grain + 2 * FENCE);
    if (base == NULL) {
        return NULL;
    }
    char *start = base + FENCE + sizeof(struct piece);
    start += (grain - (uintptr_t)start % grain) % grain;
    const struct piece piece = {base, bytes, alignment, is_mapped};
    memcpy(start - sizeof piece, &piece, sizeof piece);
    memset(start, memory->fill, bytes);
    memset(start + bytes, FENCE_BYTE, FENCE / 2);
    pthread_mutex_lock(&memory->lock);
    memory->live++;
    *(is_mapped ? &memory->map_bytes : &memory->alloc_bytes) += bytes;
    pthread_mutex_unlock(&memory->lock);
    return start;
}

static void release(struct case_memory *memory, char *start, size_t bytes, bool is_mapped)
{
    struct piece piece;
    memcpy(&piece, start - sizeof piece, sizeof piece);
    bool is_right = piece.bytes == bytes && piece.is_mapped == is_mapped;
    for (size_t i = 0; is_right && i < FENCE / 2; i++) {
        is_right = start[bytes + i] == FENCE_BYTE;
    }
    pthread_mutex_lock(&memory->lock);
    memory->live--;
    memory->num_wrong += !is_right;
    *(is_mapped ? &memory->map_bytes : &memory->alloc_bytes) -= bytes;
    pthread_mutex_unlock(&memory->lock);
    free(piece.base);
}

static void *hook_alloc(void *context, size_t bytes, size_t alignment)
{
    return take(context, bytes, alignment, false);
}

static void hook_free(void *context, void *pointer, size_t bytes, size_t alignment)
{
    (void)alignment;
    release(context, pointer, bytes, false);
}

static void *hook_map(void *context, size_t bytes, size_t alignment, int node,
                      enum pkv_map_kind kind)
{
    (void)node;
    (void)kind;
    return take(context, bytes, alignment, true);
}

static void hook_unmap(void *context, void *pointer, size_t bytes, enum pkv_map_kind kind)
{
    (void)kind;
    release(context, pointer, bytes, true);
}

static void hook_log(void *context, enum pkv_log_level level, const char *line)
{
    struct case_memory *memory = context;
    (void)level;
    pthread_mutex_lock(&memory->lock);
    if (memory->num_logged++ == 0) {
        snprintf(memory->line, sizeof memory->line, "%s", line);
    }
    pthread_mutex_unlock(&memory->lock);
}

void case_init(struct runtime_case *c)
{
    memset(c, 0, sizeof *c);
    pthread_mutex_init(&c->memory.lock, NULL);
    c->memory.is_ready = true;
    c->memory.fill = 0xff;
    c->next_tag = 1;
    c->groups[0].kv_heads = 1;
    c->groups[0].k_width = 2;
    c->groups[0].block_size = 4;
    c->groups[0].num_blocks = 16;
    c->layers[0].num_heads = 1;
    c->config.size = sizeof c->config;
    c->config.groups = c->groups;
    c->config.num_groups = 1;
    c->config.layers = c->layers;
    c->config.num_layers = 1;
    c->config.max_seqs = 8;
    c->config.max_seq_len = 64;
    c->config.max_step_tokens = 64;
    c->config.num_threads = 1;
    c->config.isa = test_isa();
    c->config.poison_freed = true;
    c->config.hooks = (struct pkv_hooks){
        .context = &c->memory,
        .alloc = hook_alloc,
        .free = hook_free,
        .map_pages = hook_map,
        .unmap_pages = hook_unmap,
        .log = hook_log,
    };
}

struct pkv_group_config *case_add_group(struct runtime_case *c)
{
    struct pkv_group_config *group = &c->groups[c->config.num_groups++];
    *group = c->groups[0];
    return group;
}

struct pkv_layer_config *case_add_layer(struct runtime_case *c, int32_t group)
{
    struct pkv_layer_config *layer = &c->layers[c->config.num_layers++];
    memset(layer, 0, sizeof *layer);
    layer->group = group;
    layer->num_heads = c->groups[group].kv_heads;
    return layer;
}

void case_open(struct runtime_case *c)
{
    CU_ASSERT_FATAL(c->memory.is_ready);
    ASSERT_STATUS(PKV_OK, pkv_cache_create(&c->config, &c->cache));
    test_eager_threads(c->cache->workspace);
    if (c->cache == NULL) {
        CU_FAIL_FATAL("no cache to test");
    }
    CU_ASSERT_EQUAL(case_check(c), 0);
}

void case_close(struct runtime_case *c)
{
    CU_ASSERT_EQUAL(case_check(c), 0);
    ASSERT_STATUS(PKV_OK, pkv_cache_destroy(c->cache, false));
    c->cache = NULL;
    CU_ASSERT_EQUAL(c->memory.live, 0);
    CU_ASSERT_EQUAL(c->memory.alloc_bytes, 0);
    CU_ASSERT_EQUAL(c->memory.map_bytes, 0);
    CU_ASSERT_EQUAL(c->memory.num_wrong, 0);
    pthread_mutex_destroy(&c->memory.lock);
    c->memory.is_ready = false;
}

int32_t case_check(struct runtime_case *c)
{
    const int32_t broken = pkv_cache_check(c->cache);
    if (broken != 0) {
        printf("\n    check: %d broken, first \"%s\"\n", (int)broken, c->memory.line);
    }
    return broken;
}

int32_t case_free(struct runtime_case *c, int32_t group)
{
    struct pkv_group_usage usage = {.size = sizeof usage};
    ASSERT_STATUS(PKV_OK, pkv_cache_usage(c->cache, group, &usage));
    CU_ASSERT_EQUAL(usage.free + usage.held, usage.num_blocks);
    CU_ASSERT(usage.promised >= 0 && usage.promised <= usage.free);
    return usage.free - usage.promised;
}

int32_t case_taken(struct runtime_case *c, int32_t group)
{
    struct pkv_group_usage usage = {.size = sizeof usage};
    ASSERT_STATUS(PKV_OK, pkv_cache_usage(c->cache, group, &usage));
    return usage.held;
}

int32_t case_held(struct runtime_case *c, int32_t group)
{
    struct pkv_group_usage usage = {.size = sizeof usage};
    ASSERT_STATUS(PKV_OK, pkv_cache_usage(c->cache, group, &usage));
    CU_ASSERT_EQUAL(usage.free + usage.held, usage.num_blocks);
    return usage.held + usage.promised;
}

int32_t case_length(struct runtime_case *c, pkv_seq seq)
{
    int32_t length = -1;
    ASSERT_STATUS(PKV_OK, pkv_seq_length(c->cache, seq, &length));
    return length;
}

enum pkv_status case_create(struct runtime_case *c, struct case_seq *seq,
                            const struct pkv_seq_options *options)
{
    const enum pkv_status status = pkv_seq_create(c->cache, options, &seq->handle);
    if (status == PKV_OK) {
        seq->length = 0;
        seq->kept_prefix =
            options != NULL && options->kept_prefix != NULL ? *options->kept_prefix : -1;
    }
    return status;
}

enum pkv_status case_fork(struct runtime_case *c, const struct case_seq *seq, int32_t at,
                          struct case_seq *child)
{
    pkv_seq handle = {0};
    const enum pkv_status status = pkv_seq_fork(c->cache, seq->handle, at, 1, &handle);
    if (status == PKV_OK) {
        *child = *seq;
        child->handle = handle;
        child->length = at;
    } else {
        CU_ASSERT_EQUAL(handle.id, 0);
    }
    return status;
}

enum pkv_status case_truncate(struct runtime_case *c, struct case_seq *seq, int32_t length)
{
    const enum pkv_status status = pkv_seq_truncate(c->cache, seq->handle, length);
    if (status == PKV_OK) {
        seq->length = length;
    }
    CU_ASSERT_EQUAL(case_length(c, seq->handle), seq->length);
    return status;
}

enum pkv_status case_admit(struct runtime_case *c, struct case_seq *seq, int32_t num_tokens,
                           int32_t reserve_tokens, struct pkv_shortage *shortage)
{
    static const int32_t token_ids[CASE_MAX_LENGTH];
    struct pkv_admission admission = {sizeof admission, -1, -1, -1, -1, {0}};
    const enum pkv_status status =
        pkv_seq_admit(c->cache, seq->handle, PROMPT(token_ids, num_tokens), reserve_tokens,
                      num_tokens, &admission, shortage);
    if (status == PKV_OK) {
        CU_ASSERT_EQUAL(admission.num_cached, 0);
        CU_ASSERT_EQUAL(admission.num_to_write, num_tokens);
    } else {
        CU_ASSERT_EQUAL(admission.num_to_write, -1);
    }
    return status;
}

void case_row(struct case_step *step, struct case_seq *seq, int32_t q_len)
{
    const struct case_row row = {seq, q_len, 0xcbf29ce484222325u};
    step->rows[step->num_rows++] = row;
}

bool case_is_row(const struct case_step *step, const struct case_seq *seq)
{
    for (int32_t i = 0; i < step->num_rows; i++) {
        if (step->rows[i].seq == seq) {
            return true;
        }
    }
    return false;
}

/* A batch and the arrays that it points to. */
struct batch_arrays {
    struct pkv_batch batch;
    pkv_seq seqs[CASE_MAX_ROWS];
    int32_t q_lens[CASE_MAX_ROWS];
    int32_t token_ids[CASE_MAX_LENGTH];
};

static void fill_batch(struct batch_arrays *arrays, const struct case_step *step,
                       int32_t num_required_rows)
{
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = arrays->seqs,
                                    .q_lens = arrays->q_lens,
                                    .num_rows = step->num_rows,
                                    .num_required_rows = num_required_rows,
                                    .token_ids = arrays->token_ids};
    int32_t num_tokens = 0;
    for (int32_t i = 0; i < step->num_rows; i++) {
        const struct case_row *row = &step->rows[i];
        arrays->seqs[i] = row->seq->handle;
        arrays->q_lens[i] = row->q_len;
        for (int32_t t = 0; t < row->q_len && num_tokens < CASE_MAX_LENGTH; t++) {
            arrays->token_ids[num_tokens++] = t;
        }
    }
    arrays->batch = batch;
}

enum pkv_status case_fits(struct runtime_case *c, const struct case_step *step,
                          int32_t num_required_rows, struct pkv_shortage *shortage)
{
    struct batch_arrays arrays;
    fill_batch(&arrays, step, num_required_rows);
    return pkv_step_fits(c->cache, &arrays.batch, shortage);
}

enum pkv_status case_begin(struct runtime_case *c, struct case_step *step,
                           int32_t num_required_rows)
{
    struct batch_arrays arrays;
    fill_batch(&arrays, step, num_required_rows);
    const struct pkv_step none = {0};
    step->handle = none;
    step->shortage.size = sizeof step->shortage;
    const enum pkv_status status =
        pkv_step_begin(c->cache, &arrays.batch, &step->handle, &step->shortage);
    if (status != PKV_OK) {
        CU_ASSERT_EQUAL(step->handle.id, 0);
        return status;
    }
    CU_ASSERT_NOT_EQUAL(step->handle.id, 0);
    CU_ASSERT(step->shortage.row >= num_required_rows && step->shortage.row <= step->num_rows);
    if (step->shortage.row >= 0 && step->shortage.row <= step->num_rows) {
        step->num_rows = step->shortage.row;
    }
    step->num_tokens = 0;
    for (int32_t i = 0; i < step->num_rows; i++) {
        struct case_seq *seq = step->rows[i].seq;
        for (int32_t t = 0; t < step->rows[i].q_len; t++) {
            seq->tags[seq->length + t] = c->next_tag++;
        }
        step->num_tokens += step->rows[i].q_len;
    }
    return status;
}

double case_value(uint32_t tag, int32_t layer, int what, int32_t head, int32_t channel)
{
    uint64_t z = ((uint64_t)tag << 32) ^ ((uint64_t)layer << 24) ^ ((uint64_t)what << 20) ^
                 ((uint64_t)head << 10) ^ (uint64_t)channel;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)(int)((z >> 40) % 128) / 64 - 1;
}

/* The geometry of one layer, resolved. */
struct shape {
    enum pkv_dtype dtype;
    int32_t owner; /* the layer whose pages it reads */
    int32_t num_heads, kv_heads, k_width, v_width;
    bool shares_kv, v_in_k;
    int64_t window, kept_prefix;
    double scale;
};

static struct shape shape_of(const struct runtime_case *c, int32_t layer)
{
    const struct pkv_layer_config *config = &c->layers[layer];
    const struct pkv_group_config *group = &c->groups[config->group];
    const struct shape shape = {
        .dtype = c->config.dtype,
        .owner = config->shares_kv ? config->kv_layer : layer,
        .num_heads = config->num_heads,
        .kv_heads = group->kv_heads,
        .k_width = group->k_width,
        .v_width = group->v_width != 0 ? group->v_width : group->k_width,
        .shares_kv = config->shares_kv,
        .v_in_k = group->v_in_k,
        .window = group->sliding_window,
        .kept_prefix = group->kept_prefix,
        .scale = config->constants.q_scale != NULL ? (double)*config->constants.q_scale
                                                   : 1 / sqrt(group->k_width),
    };
    return shape;
}

static double stored_value(const struct shape *shape, uint32_t tag, int32_t head, int32_t channel)
{
    return case_value(tag, shape->owner, shape->v_in_k ? 0 : 1, head, channel);
}

static bool is_seen(const struct shape *shape, const struct case_seq *seq, int64_t key,
                    int64_t query)
{
    const int64_t prefix = seq->kept_prefix >= 0 ? seq->kept_prefix : shape->kept_prefix;
    return shape->window == 0 || key > query - shape->window || key < prefix;
}

/* Dense attention of one query and head: *lse, the sum of |q||k| of the keys seen (the largest),
 * and the weights p[0..position], 0 where a key is not seen. */
static double attend_query(const struct shape *shape, const struct case_seq *seq, const double *q,
                           int32_t position, int32_t kv_head, double *p, double *lse)
{
    double largest = -INFINITY;
    double magnitude = 0;
    for (int32_t j = 0; j <= position; j++) {
        double dot = 0;
        double sum = 0;
        for (int32_t d = 0; d < shape->k_width; d++) {
            const double k = case_value(seq->tags[j], shape->owner, 0, kv_head, d);
            dot += q[d] * k;
            sum += fabs(q[d] * k);
        }
        p[j] = is_seen(shape, seq, j, position) ? dot * shape->scale : -INFINITY;
        largest = fmax(largest, p[j]);
        magnitude = fmax(magnitude, sum);
    }
    double total = 0;
    for (int32_t j = 0; j <= position; j++) {
        p[j] = exp(p[j] - largest);
        total += p[j];
    }
    for (int32_t j = 0; j <= position; j++) {
        p[j] /= total;
    }
    *lse = largest + log(total);
    return magnitude;
}

/* A layer's arrays. starts and strides are in elements, by what: keys, values, queries. */
struct arrays {
    char *input, *output;
    float *lse;
    struct pkv_layer_io io;
    size_t starts[3], strides[3];
    size_t input_elements, out_stride;
};

/* Packed: all queries, then all keys, then all values. Fused: the three of a token in one row. */
static void lay_out(const struct runtime_case *c, const struct shape *shape, size_t tokens,
                    struct arrays *arrays)
{
    const size_t q = (size_t)shape->num_heads * (size_t)shape->k_width;
    const size_t k = (size_t)shape->kv_heads * (size_t)shape->k_width;
    const size_t v = (size_t)shape->kv_heads * (size_t)shape->v_width;
    const size_t elements[3] = {k, v, q};
    const size_t stride = q + k + v + 1;
    arrays->starts[0] = c->fused ? q : tokens * q;
    arrays->starts[1] = c->fused ? q + k : tokens * (q + k);
    arrays->starts[2] = 0;
    for (int what = 0; what < 3; what++) {
        arrays->strides[what] = c->fused ? stride : elements[what];
    }
    arrays->input_elements = tokens * stride;
    arrays->out_stride = (size_t)shape->num_heads * (size_t)shape->v_width + (c->fused ? 3 : 0);
}

static void fill_heads(const struct shape *shape, uint32_t tag, int32_t layer, int what, char *at)
{
    const int32_t heads = what == 2 ? shape->num_heads : shape->kv_heads;
    const int32_t width = what == 1 ? shape->v_width : shape->k_width;
    for (int32_t i = 0; i < heads * width; i++) {
        ref_store(shape->dtype, at, (size_t)i, case_value(tag, layer, what, i / width, i % width));
    }
}

static void fill_token(const struct runtime_case *c, const struct shape *shape, uint32_t tag,
                       int32_t layer, size_t token, const struct arrays *arrays)
{
    const size_t element = pkv_dtype_bytes(shape->dtype);
    for (int what = 0; what < 3; what++) {
        char *at = arrays->input + (arrays->starts[what] + token * arrays->strides[what]) * element;
        fill_heads(shape, tag, layer, what, at);
        if (what == 2 && c->mean) {
            memset(at, 0, (size_t)(shape->num_heads * shape->k_width) * element);
        }
    }
}

/* Everything that is not written below is NaN: padding, and outputs before the call. */
static void make_arrays(const struct runtime_case *c, const struct case_step *step,
                        const struct shape *shape, int32_t layer, struct arrays *arrays)
{
    const size_t element = pkv_dtype_bytes(shape->dtype);
    const size_t tokens = (size_t)step->num_tokens + 1;
    lay_out(c, shape, tokens, arrays);
    arrays->input = malloc(arrays->input_elements * element);
    arrays->output = malloc(tokens * arrays->out_stride * element);
    arrays->lse = malloc(tokens * (size_t)shape->num_heads * sizeof(float));
    memset(arrays->input, 0xff, arrays->input_elements * element);
    memset(arrays->output, 0xff, tokens * arrays->out_stride * element);
    size_t token = 0;
    for (int32_t i = 0; i < step->num_rows; i++) {
        const struct case_seq *seq = step->rows[i].seq;
        for (int32_t t = 0; t < step->rows[i].q_len; t++, token++) {
            fill_token(c, shape, seq->tags[seq->length + t], layer, token, arrays);
        }
    }
    const char *k = arrays->input + arrays->starts[0] * element;
    const char *v = arrays->input + arrays->starts[1] * element;
    const struct pkv_layer_io io = {
        .size = sizeof io,
        .q = arrays->input,
        .k = shape->shares_kv ? NULL : k,
        .v = shape->shares_kv || shape->v_in_k ? NULL : v,
        .out = arrays->output,
        .lse = c->next_tag % 2 == 0 ? arrays->lse : NULL,
        .q_stride = c->fused ? arrays->strides[2] : 0,
        .k_stride = c->fused && !shape->shares_kv ? arrays->strides[0] : 0,
        .v_stride = c->fused && !shape->shares_kv && !shape->v_in_k ? arrays->strides[1] : 0,
        .out_stride = c->fused ? arrays->out_stride : 0,
    };
    arrays->io = io;
}

static void free_arrays(struct arrays *arrays)
{
    free(arrays->input);
    free(arrays->output);
    free(arrays->lse);
}

/* Half a unit in the last place of a result of this size. */
static double output_rounding(enum pkv_dtype dtype, double x)
{
    switch (dtype) {
    case PKV_F16: return 0x1p-11 * fabs(x) + 0x1p-25;
    case PKV_BF16: return 0x1p-8 * fabs(x);
    default: return 0x1p-24 * fabs(x);
    }
}

/* operator.md section 6: 4 * 2^-24 * (D + L) * (1 + scale * sum|q||k|) * max|V|, beside the
 * rounding of the output; |V| <= 1 here. The log-sum-exp is also rounded to f32. */
static double tolerance(const struct shape *shape, int32_t position, double magnitude)
{
    const int32_t width = shape->k_width > shape->v_width ? shape->k_width : shape->v_width;
    return 4 * 0x1p-24 * (width + position + 1) * (1 + fabs(shape->scale) * magnitude);
}

/* One query and head against the reference; false, and a line, at the first fault. */
static bool check_head(const struct runtime_case *c, const struct shape *shape,
                       const struct arrays *arrays, const struct case_seq *seq, int32_t position,
                       size_t token, int32_t layer, int32_t h)
{
    static _Thread_local double p[CASE_MAX_LENGTH];
    const char *out = arrays->output + token * arrays->out_stride * pkv_dtype_bytes(shape->dtype);
    const int32_t kv_head = h / (shape->num_heads / shape->kv_heads);
    double q[64] = {0};
    for (int32_t d = 0; !c->mean && d < shape->k_width; d++) {
        q[d] = case_value(seq->tags[position], layer, 2, h, d);
    }
    double lse = 0;
    const double magnitude = attend_query(shape, seq, q, position, kv_head, p, &lse);
    const double allowed = tolerance(shape, position, magnitude);
    for (int32_t d = 0; d < shape->v_width; d++) {
        double expected = 0;
        for (int32_t j = 0; j <= position; j++) {
            expected += p[j] * stored_value(shape, seq->tags[j], kv_head, d);
        }
        const double got = ref_load(shape->dtype, out, (size_t)(h * shape->v_width + d));
        const double rounding = output_rounding(shape->dtype, fabs(expected) + allowed);
        if (!(fabs(got - expected) <= allowed + rounding)) {
            printf("\n    layer %d, position %d, head %d, channel %d: %.9g, expected %.9g\n",
                   (int)layer, (int)position, (int)h, (int)d, got, expected);
            return false;
        }
    }
    const size_t at = token * (size_t)shape->num_heads + (size_t)h;
    const double got = arrays->io.lse == NULL ? lse : (double)arrays->lse[at];
    if (!(fabs(got - lse) <= allowed + 0x1p-23 * fabs(lse))) {
        printf("\n    layer %d, position %d, head %d: lse %.9g, expected %.9g\n", (int)layer,
               (int)position, (int)h, got, lse);
        return false;
    }
    return true;
}

static bool check_token(const struct runtime_case *c, const struct shape *shape,
                        const struct arrays *arrays, const struct case_seq *seq, int32_t position,
                        size_t token, int32_t layer)
{
    for (int32_t h = 0; h < shape->num_heads; h++) {
        if (!check_head(c, shape, arrays, seq, position, token, layer, h)) {
            return false;
        }
    }
    return true;
}

/* The padding of out, and the row past the last, keep their NaN bytes. */
static bool padding_is_untouched(const struct shape *shape, const struct arrays *arrays,
                                 size_t num_tokens)
{
    const size_t element = pkv_dtype_bytes(shape->dtype);
    const size_t out = (size_t)shape->num_heads * (size_t)shape->v_width;
    for (size_t t = 0; t <= num_tokens; t++) {
        const size_t first = t < num_tokens ? out : 0;
        const char *row = arrays->output + t * arrays->out_stride * element;
        for (size_t i = first * element; i < arrays->out_stride * element; i++) {
            if ((unsigned char)row[i] != 0xff) {
                printf("\n    output row %zu: byte %zu was written\n", t, i);
                return false;
            }
        }
    }
    return true;
}

static uint64_t digest_of(uint64_t digest, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        digest = (digest ^ (unsigned char)bytes[i]) * 0x100000001b3u;
    }
    return digest;
}

/* The layer at once, or task by task from the last to the first. */
static enum pkv_status attend_layer(struct runtime_case *c, const struct case_step *step,
                                    int32_t layer, const struct pkv_layer_io *io)
{
    if (!c->tasks) {
        return pkv_step_attend(c->cache, step->handle, layer, io);
    }
    enum pkv_status status = pkv_step_layer_begin(c->cache, step->handle, layer, io);
    for (int p = 0; status == PKV_OK && p < PKV_NUM_PHASES; p++) {
        const enum pkv_phase phase = (enum pkv_phase)p;
        int32_t task = pkv_step_num_tasks(c->cache, step->handle, phase);
        while (status == PKV_OK && task-- > 0) {
            status = pkv_step_run_task(c->cache, step->handle, phase, task, 0);
        }
    }
    return status;
}

bool case_attend(struct runtime_case *c, struct case_step *step, int32_t layer)
{
    const struct shape shape = shape_of(c, layer);
    const size_t out_bytes =
        (size_t)shape.num_heads * (size_t)shape.v_width * pkv_dtype_bytes(shape.dtype);
    struct arrays arrays;
    make_arrays(c, step, &shape, layer, &arrays);
    step->attended = attend_layer(c, step, layer, &arrays.io);
    bool is_right = step->attended == PKV_OK;
    size_t token = 0;
    for (int32_t i = 0; is_right && i < step->num_rows; i++) {
        struct case_row *row = &step->rows[i];
        for (int32_t t = 0; is_right && t < row->q_len; t++, token++) {
            is_right =
                check_token(c, &shape, &arrays, row->seq, row->seq->length + t, token, layer);
        }
        if (row->q_len > 0 && is_right) {
            const char *last =
                arrays.output + (token - 1) * arrays.out_stride * pkv_dtype_bytes(shape.dtype);
            row->digest = digest_of(row->digest, last, out_bytes);
        }
    }
    is_right = is_right && padding_is_untouched(&shape, &arrays, (size_t)step->num_tokens);
    free_arrays(&arrays);
    return is_right;
}

void case_attend_all(struct runtime_case *c, struct case_step *step)
{
    for (int32_t layer = 0; layer < c->config.num_layers; layer++) {
        const bool is_right = case_attend(c, step, layer);
        ASSERT_STATUS(PKV_OK, step->attended);
        CU_ASSERT(is_right);
    }
}

void case_commit(struct runtime_case *c, struct case_step *step, const int32_t *num_keep)
{
    ASSERT_STATUS(PKV_OK, pkv_step_commit(c->cache, step->handle, num_keep));
    for (int32_t i = 0; i < step->num_rows; i++) {
        struct case_row *row = &step->rows[i];
        row->seq->length += num_keep != NULL ? num_keep[i] : row->q_len;
        int32_t length = row->seq->length;
        const enum pkv_status status = pkv_seq_length(c->cache, row->seq->handle, &length);
        CU_ASSERT(status == PKV_OK || status == PKV_STALE_HANDLE);
        CU_ASSERT_EQUAL(length, row->seq->length);
    }
}

void case_abort(struct runtime_case *c, struct case_step *step)
{
    ASSERT_STATUS(PKV_OK, pkv_step_abort(c->cache, step->handle));
    for (int32_t i = 0; i < step->num_rows; i++) {
        int32_t length = step->rows[i].seq->length;
        const enum pkv_status status = pkv_seq_length(c->cache, step->rows[i].seq->handle, &length);
        CU_ASSERT(status == PKV_OK || status == PKV_STALE_HANDLE);
        CU_ASSERT_EQUAL(length, step->rows[i].seq->length);
    }
}

static enum pkv_status append(struct runtime_case *c, struct case_seq *seq, int32_t n,
                              uint64_t *digest)
{
    struct case_step step = {0};
    case_row(&step, seq, n);
    const enum pkv_status status = case_begin(c, &step, 1);
    if (status == PKV_OK) {
        case_attend_all(c, &step);
        case_commit(c, &step, NULL);
        *digest = step.rows[0].digest;
    }
    return status;
}

enum pkv_status case_append(struct runtime_case *c, struct case_seq *seq, int32_t n)
{
    uint64_t digest = 0;
    return append(c, seq, n, &digest);
}

uint64_t case_append_digest(struct runtime_case *c, struct case_seq *seq, int32_t n)
{
    uint64_t digest = 0;
    ASSERT_STATUS(PKV_OK, append(c, seq, n, &digest));
    return digest;
}

void case_table(struct runtime_case *c, struct case_seq *seq, int32_t group, int32_t *table,
                int32_t n)
{
    struct case_step step = {0};
    struct pkv_step_view view = {.size = sizeof view};
    case_row(&step, seq, 0);
    ASSERT_STATUS(PKV_OK, case_begin(c, &step, 1));
    ASSERT_STATUS(PKV_OK, pkv_step_describe(c->cache, step.handle, group, &view));
    if (view.block_tables == NULL || view.table_rows == NULL) {
        CU_FAIL_FATAL("the view has no table");
    }
    for (int32_t i = 0; i < n; i++) {
        const size_t first = (size_t)view.table_rows[0] * view.table_stride;
        table[i] = i < view.max_blocks ? view.block_tables[first + (size_t)i] : -1;
    }
    case_abort(c, &step);
}

const void *case_cell(const struct pkv_kv_view *view, bool is_value, int32_t block, int32_t head,
                      int32_t cell)
{
    const size_t width = (size_t)(is_value ? view->v_width : view->k_width);
    size_t cells = is_value ? view->v_cell_stride : view->k_cell_stride;
    size_t heads = is_value ? view->v_head_stride : view->k_head_stride;
    size_t blocks = is_value ? view->v_block_stride : view->k_block_stride;
    cells = cells != 0 ? cells : width;
    heads = heads != 0 ? heads : cells * (size_t)view->block_size;
    blocks = blocks != 0 ? blocks : heads * (size_t)view->kv_heads;
    const size_t at = (size_t)block * blocks + (size_t)head * heads + (size_t)cell * cells;
    return (const char *)(is_value ? view->v : view->k) +
           at * pkv_dtype_bytes(is_value ? view->v_dtype : view->k_dtype);
}

int32_t case_resident_blocks(int32_t length, int32_t block_size, int64_t window, int64_t prefix,
                             int32_t max_rewind)
{
    int32_t count = 0;
    for (int64_t first = 0; first < length; first += block_size) {
        const int64_t next_query = length - max_rewind > 0 ? length - max_rewind : 0;
        const int64_t last = first + block_size - 1;
        count += window == 0 || first < prefix || last > next_query - window;
    }
    return count;
}

void case_permutation(int order, int count, int *at)
{
    int left[8];
    for (int i = 0; i < count; i++) {
        left[i] = i;
    }
    for (int i = 0; i < count; i++) {
        const int pick = order % (count - i);
        order /= count - i;
        at[i] = left[pick];
        memmove(&left[pick], &left[pick + 1], (size_t)(count - i - pick - 1) * sizeof *left);
    }
}
