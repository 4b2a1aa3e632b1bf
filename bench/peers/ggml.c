/* SPDX-License-Identifier: MIT
 *
 * ggml.c: ggml's flash_attn_ext on its CPU backend, of whose builds the one is taken that scores
 * highest on this CPU, as ggml's own loader does. It attends alone: what ours appends is part of
 * the copied cache. Its int8 is Q8_0: blocks of 32 numbers with one f16 scale before them. */
#include <dlfcn.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "measure.h"
#include "numbers.h"
#include "peer.h"

enum { TYPE_F32 = 0, TYPE_F16 = 1, TYPE_Q8_0 = 8, TYPE_BF16 = 30 };
enum { Q8_0_NUMBERS = 32, CONTEXT_BYTES = 1 << 20, HALF_INFINITY = 0xfc00 };

struct init_params {
    size_t bytes;
    void *memory;
    bool no_alloc;
};
typedef void *init_context(struct init_params params);
typedef void free_context(void *context);
typedef void *new_tensor(void *context, int type, int64_t n0, int64_t n1, int64_t n2, int64_t n3);
typedef void *flash_attention(void *context, void *q, void *k, void *v, void *mask, float scale,
                              float max_bias, float softcap);
typedef void *new_graph(void *context);
typedef void build_graph(void *graph, void *tensor);
typedef void *load_backend(const char *path);
typedef void *get_device(void *registry, size_t index);
typedef void *init_device(void *device, const char *parameters);
typedef void *get_proc(void *registry, const char *name);
typedef void set_threads(void *backend, int threads);
typedef void *alloc_tensors(void *context, void *backend);
typedef void *buffer_base(void *buffer);
typedef size_t buffer_bytes(void *buffer);
typedef void free_buffer(void *buffer);
typedef void set_tensor(void *tensor, const void *data, size_t offset, size_t bytes);
typedef void get_tensor(const void *tensor, void *data, size_t offset, size_t bytes);
typedef int compute_graph(void *backend, void *graph);

struct ggml {
    void *base; /* libggml-base.so */
    void *backend;
};

struct ggml_call {
    const struct ggml *ggml;
    const struct layer *layer;
    void *context, *buffer, *graph;
    void *q, *k, *v, *mask, *out;
};

/* The build for this CPU: "" when there is none. */
static void find_build(const char *folder, char best[PEER_MAX_PATH])
{
    typedef int score(void);
    char pattern[PEER_MAX_PATH];
    int highest = 0;
    glob_t found;
    best[0] = '\0';
    peer_path(pattern, folder, "libggml-cpu-*.so");
    if (glob(pattern, 0, NULL, &found) != 0) {
        return;
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        void *object = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
        if (object == NULL) {
            continue;
        }
        const int points = ((score *)peer_symbol(object, "ggml_backend_score"))();
        if (points > highest) {
            highest = points;
            snprintf(best, PEER_MAX_PATH, "%s", found.gl_pathv[i]);
        }
        dlclose(object);
    }
    globfree(&found);
}

/* The one shared object that a pattern finds in the folder. */
static void *open_object(const char *folder, const char *pattern)
{
    char path[PEER_MAX_PATH];
    glob_t found;
    void *object = NULL;
    peer_path(path, folder, pattern);
    if (glob(path, 0, NULL, &found) == 0) {
        object = dlopen(found.gl_pathv[0], RTLD_NOW | RTLD_LOCAL);
        globfree(&found);
    }
    return object;
}

static void *open_library(const char *folder, int threads)
{
    char bins[PEER_MAX_PATH], build_path[PEER_MAX_PATH];
    peer_path(bins, folder, "@node-llama-cpp/linux-x64/bins/linux-x64");
    void *base = open_object(bins, "libggml-base.so");
    void *loader = open_object(bins, "libggml.v*.so");
    if (base == NULL || loader == NULL) {
        return NULL;
    }
    find_build(bins, build_path);
    if (build_path[0] == '\0') {
        return NULL;
    }
    printf("ggml, build %s\n", strrchr(build_path, '/') + 1);
    void *registry = ((load_backend *)peer_symbol(loader, "ggml_backend_load"))(build_path);
    if (registry == NULL) {
        measure_fail("ggml: %s does not load", build_path);
    }
    void *device = ((get_device *)peer_symbol(base, "ggml_backend_reg_dev_get"))(registry, 0);
    struct ggml *ggml = measure_calloc(1, sizeof *ggml);
    ggml->base = base;
    ggml->backend = ((init_device *)peer_symbol(base, "ggml_backend_dev_init"))(device, NULL);
    get_proc *proc = (get_proc *)peer_symbol(base, "ggml_backend_reg_get_proc_address");
    void *const symbol = proc(registry, "ggml_backend_set_n_threads");
    set_threads *set = NULL;
    if (ggml->backend == NULL || symbol == NULL) {
        measure_fail("ggml: no CPU backend");
    }
    memcpy(&set, &symbol, sizeof set);
    set(ggml->backend, threads);
    return ggml;
}

static const char *type_name(enum pkv_dtype cache)
{
    static const char *const names[] = {"f32", "f16", "bf16", "q8_0"};
    return cache <= PKV_INT8 ? names[cache] : NULL;
}

/* f16: sums of values are kept in f16. bf16, q8_0: queries are rounded to the cache's type. */
static double tolerance(enum pkv_dtype cache)
{
    return cache == PKV_F32 ? 1e-4 : cache == PKV_F16 ? 1e-2 : 4e-2;
}

static int type_of(enum pkv_dtype cache)
{
    static const int types[] = {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_Q8_0};
    return types[cache];
}

/* The f16 number 2^-7, the scale of every block. */
static void *pack_q8_0(const int8_t *numbers, size_t count, size_t *bytes)
{
    const uint16_t scale = (15 - NUMBERS_CACHE_SHIFT) << 10;
    const size_t block_bytes = sizeof scale + Q8_0_NUMBERS;
    *bytes = count / Q8_0_NUMBERS * block_bytes;
    char *blocks = measure_calloc(*bytes, 1);
    for (size_t i = 0; i < count / Q8_0_NUMBERS; i++) {
        memcpy(blocks + i * block_bytes, &scale, sizeof scale);
        memcpy(blocks + i * block_bytes + sizeof scale, numbers + i * Q8_0_NUMBERS, Q8_0_NUMBERS);
    }
    return blocks;
}

static void set_cache(const struct ggml_call *call, bool values)
{
    const struct layer_spec *spec = &call->layer->spec;
    const size_t count =
        (size_t)spec->rows * (size_t)spec->kv_heads * (size_t)spec->keys * (size_t)spec->width;
    size_t bytes = count * pkv_dtype_bytes(spec->cache);
    void *packed = measure_calloc(bytes, 1);
    peer_pack(call->layer, values, packed);
    if (spec->cache == PKV_INT8) {
        void *blocks = pack_q8_0(packed, count, &bytes);
        free(packed);
        packed = blocks;
    }
    set_tensor *set = (set_tensor *)peer_symbol(call->ggml->base, "ggml_backend_tensor_set");
    set(values ? call->v : call->k, packed, 0, bytes);
    free(packed);
}

/* Ours are [rows][q_len][heads][width], theirs [rows][heads][q_len][width] and always f32. */
static void set_queries(const struct ggml_call *call)
{
    const struct layer_spec *spec = &call->layer->spec;
    const size_t heads = (size_t)spec->heads, width = (size_t)spec->width;
    const size_t q_len = (size_t)spec->q_len;
    const size_t count = (size_t)spec->rows * q_len * heads * width;
    float *q = measure_calloc(count, sizeof q[0]);
    for (size_t i = 0; i < count; i++) {
        const size_t channel = i % width, query = i / width % q_len;
        const size_t head = i / width / q_len % heads, row = i / width / q_len / heads;
        const size_t at = ((row * q_len + query) * heads + head) * width + channel;
        q[i] = numbers_read(call->layer->q, at, call->layer->dtype);
    }
    set_tensor *set = (set_tensor *)peer_symbol(call->ggml->base, "ggml_backend_tensor_set");
    set(call->q, q, 0, count * sizeof q[0]);
    free(q);
}

/* 0 where query i sees the key, -inf above its own. */
static void set_mask(const struct ggml_call *call)
{
    const struct layer_spec *spec = &call->layer->spec;
    const size_t keys = (size_t)spec->keys, queries = (size_t)spec->q_len;
    uint16_t *mask = measure_calloc(keys * queries, sizeof mask[0]);
    for (size_t i = 0; i < queries; i++) {
        for (size_t j = keys - queries + i + 1; j < keys; j++) {
            mask[i * keys + j] = HALF_INFINITY;
        }
    }
    set_tensor *set = (set_tensor *)peer_symbol(call->ggml->base, "ggml_backend_tensor_set");
    set(call->mask, mask, 0, keys * queries * sizeof mask[0]);
    free(mask);
}

static void build(struct ggml_call *call)
{
    const struct layer_spec *spec = &call->layer->spec;
    void *const base = call->ggml->base, *const context = call->context;
    new_tensor *create = (new_tensor *)peer_symbol(base, "ggml_new_tensor_4d");
    const int type = type_of(spec->cache);
    call->q = create(context, TYPE_F32, spec->width, spec->q_len, spec->heads, spec->rows);
    call->k = create(context, type, spec->width, spec->keys, spec->kv_heads, spec->rows);
    call->v = create(context, type, spec->width, spec->keys, spec->kv_heads, spec->rows);
    if (spec->q_len > 1) {
        call->mask = create(context, TYPE_F16, spec->keys, spec->q_len, 1, 1);
    }
    const float scale = 1.0f / sqrtf((float)spec->width);
    flash_attention *attention = (flash_attention *)peer_symbol(base, "ggml_flash_attn_ext");
    call->out = attention(context, call->q, call->k, call->v, call->mask, scale, 0, 0);
    call->graph = ((new_graph *)peer_symbol(base, "ggml_new_graph"))(context);
    ((build_graph *)peer_symbol(base, "ggml_build_forward_expand"))(call->graph, call->out);
}

/* Memory as ggml takes it, with huge pages advised before it is touched, as ours is. */
static void allocate(struct ggml_call *call)
{
    void *const base = call->ggml->base;
    const size_t page = (size_t)2 << 20;
    alloc_tensors *alloc = (alloc_tensors *)peer_symbol(base, "ggml_backend_alloc_ctx_tensors");
    call->buffer = alloc(call->context, call->ggml->backend);
    if (call->buffer == NULL) {
        measure_fail("ggml: no memory");
    }
    char *memory = ((buffer_base *)peer_symbol(base, "ggml_backend_buffer_get_base"))(call->buffer);
    const size_t bytes =
        ((buffer_bytes *)peer_symbol(base, "ggml_backend_buffer_get_size"))(call->buffer);
    const size_t before = (page - (uintptr_t)memory % page) % page;
    if (bytes > before + page) {
        madvise(memory + before, (bytes - before) / page * page, MADV_HUGEPAGE);
    }
}

static void *prepare(void *library, const struct layer *layer)
{
    struct ggml_call *call = measure_calloc(1, sizeof *call);
    call->ggml = library;
    call->layer = layer;
    init_context *init = (init_context *)peer_symbol(call->ggml->base, "ggml_init");
    call->context = init((struct init_params){CONTEXT_BYTES, NULL, true});
    build(call);
    allocate(call);
    set_cache(call, false);
    set_cache(call, true);
    set_queries(call);
    if (call->mask != NULL) {
        set_mask(call);
    }
    return call;
}

static void run(void *argument)
{
    struct ggml_call *call = argument;
    compute_graph *compute =
        (compute_graph *)peer_symbol(call->ggml->base, "ggml_backend_graph_compute");
    if (compute(call->ggml->backend, call->graph) != 0) {
        measure_fail("ggml: the graph failed");
    }
}

static void output(void *argument, float *out)
{
    const struct ggml_call *call = argument;
    const struct layer_spec *spec = &call->layer->spec;
    const size_t count = (size_t)(spec->rows * spec->q_len) * (size_t)(spec->heads * spec->width);
    get_tensor *get = (get_tensor *)peer_symbol(call->ggml->base, "ggml_backend_tensor_get");
    get(call->out, out, 0, count * sizeof out[0]);
}

static void finish(void *argument)
{
    struct ggml_call *call = argument;
    ((free_buffer *)peer_symbol(call->ggml->base, "ggml_backend_buffer_free"))(call->buffer);
    ((free_context *)peer_symbol(call->ggml->base, "ggml_free"))(call->context);
    free(call);
}

const struct peer peer_ggml = {
    .name = "ggml",
    .package = "@node-llama-cpp/linux-x64",
    .open = open_library,
    .type_name = type_name,
    .tolerance = tolerance,
    .prepare = prepare,
    .run = run,
    .output = output,
    .finish = finish,
};
