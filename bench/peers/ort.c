/* SPDX-License-Identifier: MIT
 *
 * ort.c: ONNX Runtime's GroupQueryAttention through its C API, whose table is called by index. The
 * past and the present cache are two values over one buffer, so nothing is copied and the new
 * tokens are appended in place, as in a server that binds its buffers. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"
#include "numbers.h"
#include "onnx.h"
#include "peer.h"

enum { API_VERSION = 16, LOG_ERRORS = 3, ARENA_ALLOCATOR = 1, DEFAULT_MEMORY = 0, MAX_DIMS = 4 };

/* Places in the table of functions. */
enum {
    GET_ERROR_MESSAGE = 2,
    CREATE_ENV = 3,
    CREATE_SESSION_FROM_ARRAY = 8,
    RUN = 9,
    CREATE_SESSION_OPTIONS = 10,
    SET_INTRA_OP_NUM_THREADS = 24,
    CREATE_TENSOR_WITH_DATA = 49,
    CREATE_CPU_MEMORY_INFO = 69,
    RELEASE_SESSION = 95,
    RELEASE_VALUE = 96
};

/* Objects of the API are opaque; a status is NULL or an error. */
struct api_base {
    peer_function *const *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
};
typedef const char *error_message(const void *status);
typedef void *create_env(int level, const char *id, void **env);
typedef void *create_session(void *env, const void *model, size_t bytes, void *options,
                             void **session);
typedef void *run_session(void *session, void *options, const char *const *input_names,
                          void *const *inputs, size_t num_inputs, const char *const *output_names,
                          size_t num_outputs, void **outputs);
typedef void *create_options(void **options);
typedef void *set_threads(void *options, int threads);
typedef void *create_tensor(void *info, void *data, size_t bytes, const int64_t *dims,
                            size_t num_dims, int type, void **value);
typedef void *create_memory_info(int allocator, int memory, void **info);
typedef void release(void *object);

struct ort {
    peer_function *const *api;
    void *env, *options, *info;
};

struct ort_call {
    const struct ort *ort;
    const struct layer *layer;
    void *session;
    void *inputs[ONNX_NUM_INPUTS + ONNX_NUM_SCALES];
    void *outputs[ONNX_NUM_OUTPUTS];
    size_t num_inputs;
    void *k, *v, *out;
    size_t cache_bytes;
    int32_t *lens, total;
    float scale;
};

static void must(const struct ort *ort, void *status, const char *what)
{
    if (status != NULL) {
        measure_fail("ONNX Runtime: %s: %s", what,
                     ((error_message *)ort->api[GET_ERROR_MESSAGE])(status));
    }
}

static void *open_library(const char *folder, int threads)
{
    char path[PEER_MAX_PATH];
    peer_path(path, folder, "onnxruntime-node/bin/napi-v6/linux/x64/libonnxruntime.so.1");
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) {
        return NULL;
    }
    typedef const struct api_base *get_base(void);
    const struct api_base *base = ((get_base *)peer_symbol(object, "OrtGetApiBase"))();
    struct ort *ort = measure_calloc(1, sizeof *ort);
    ort->api = base->get_api(API_VERSION);
    if (ort->api == NULL) {
        measure_fail("ONNX Runtime %s has no API %d", base->get_version(), API_VERSION);
    }
    printf("ONNX Runtime %s\n", base->get_version());
    peer_function *const *api = ort->api;
    must(ort, ((create_env *)api[CREATE_ENV])(LOG_ERRORS, "bench", &ort->env), "environment");
    must(ort, ((create_options *)api[CREATE_SESSION_OPTIONS])(&ort->options), "options");
    must(ort, ((set_threads *)api[SET_INTRA_OP_NUM_THREADS])(ort->options, threads), "threads");
    must(ort,
         ((create_memory_info *)api[CREATE_CPU_MEMORY_INFO])(ARENA_ALLOCATOR, DEFAULT_MEMORY,
                                                             &ort->info),
         "memory");
    return ort;
}

static const char *type_name(enum pkv_dtype cache)
{
    return cache == PKV_F32 || cache == PKV_F16 || cache == PKV_INT8 ? numbers_type_name(cache)
                                                                     : NULL;
}

/* f16 goes through f32 and is rounded once, as ours is; int8 quantises the probabilities too. */
static double tolerance(enum pkv_dtype cache)
{
    return cache == PKV_F32 ? 1e-4 : cache == PKV_F16 ? 4e-3 : 2e-2;
}

static void *tensor(const struct ort *ort, void *data, size_t bytes, const int64_t *dims,
                    size_t num_dims, int type)
{
    void *value = NULL;
    create_tensor *create = (create_tensor *)ort->api[CREATE_TENSOR_WITH_DATA];
    must(ort, create(ort->info, data, bytes, dims, num_dims, type, &value), "tensor");
    return value;
}

/* [rows][q_len][channels] of the activations' type. */
static void *activation(const struct ort_call *call, void *data, int32_t channels)
{
    const struct layer_spec *spec = &call->layer->spec;
    const int64_t dims[] = {spec->rows, spec->q_len, channels};
    const size_t count = (size_t)dims[0] * (size_t)dims[1] * (size_t)dims[2];
    const enum pkv_dtype dtype = call->layer->dtype;
    return tensor(call->ort, data, count * pkv_dtype_bytes(dtype), dims, 3, onnx_type(dtype));
}

static void *cache(const struct ort_call *call, void *data)
{
    const struct layer_spec *spec = &call->layer->spec;
    const int64_t dims[MAX_DIMS] = {spec->rows, spec->kv_heads, spec->keys, spec->width};
    return tensor(call->ort, data, call->cache_bytes, dims, MAX_DIMS, onnx_type(spec->cache));
}

static void create_values(struct ort_call *call)
{
    const struct layer *layer = call->layer;
    const struct layer_spec *spec = &layer->spec;
    const int64_t rows = spec->rows, one = 1;
    const size_t lens_bytes = (size_t)spec->rows * sizeof call->lens[0];
    const int32_t q = spec->heads * spec->width, kv = spec->kv_heads * spec->width;
    void *const inputs[] = {
        activation(call, layer->q, q),
        activation(call, layer->k, kv),
        activation(call, layer->v, kv),
        cache(call, call->k),
        cache(call, call->v),
        tensor(call->ort, call->lens, lens_bytes, &rows, 1, ONNX_INT32),
        tensor(call->ort, &call->total, sizeof call->total, &one, 1, ONNX_INT32),
        tensor(call->ort, &call->scale, sizeof call->scale, &one, 1, ONNX_FLOAT),
        tensor(call->ort, &call->scale, sizeof call->scale, &one, 1, ONNX_FLOAT),
    };
    memcpy(call->inputs, inputs, sizeof inputs);
    call->num_inputs = ONNX_NUM_INPUTS + (spec->cache == PKV_INT8 ? ONNX_NUM_SCALES : 0);
    call->outputs[0] = activation(call, call->out, q);
    call->outputs[1] = cache(call, call->k);
    call->outputs[2] = cache(call, call->v);
}

static void *prepare(void *library, const struct layer *layer)
{
    const struct layer_spec *spec = &layer->spec;
    const struct ort *ort = library;
    struct ort_call *call = measure_calloc(1, sizeof *call);
    unsigned char model[ONNX_MAX_BYTES];
    call->ort = ort;
    call->layer = layer;
    call->scale = layer->scale;
    call->total = spec->keys;
    call->lens = measure_calloc((size_t)spec->rows, sizeof call->lens[0]);
    for (int32_t row = 0; row < spec->rows; row++) {
        call->lens[row] = spec->keys - 1; /* the operator counts from the last key */
    }
    call->cache_bytes = (size_t)spec->rows * (size_t)spec->kv_heads * (size_t)spec->keys *
                        (size_t)spec->width * pkv_dtype_bytes(spec->cache);
    call->k = peer_map(call->cache_bytes);
    call->v = peer_map(call->cache_bytes);
    peer_pack(layer, false, call->k);
    peer_pack(layer, true, call->v);
    const size_t outputs = (size_t)(spec->rows * spec->q_len) * (size_t)(spec->heads * spec->width);
    call->out = measure_calloc(outputs, pkv_dtype_bytes(layer->dtype));
    const size_t bytes = onnx_model(layer, model);
    create_session *create = (create_session *)ort->api[CREATE_SESSION_FROM_ARRAY];
    must(ort, create(ort->env, model, bytes, ort->options, &call->session), "session");
    create_values(call);
    return call;
}

static void run(void *argument)
{
    struct ort_call *call = argument;
    run_session *function = (run_session *)call->ort->api[RUN];
    must(call->ort,
         function(call->session, NULL, onnx_inputs, call->inputs, call->num_inputs, onnx_outputs,
                  ONNX_NUM_OUTPUTS, call->outputs),
         "run");
}

static void output(void *argument, float *out)
{
    const struct ort_call *call = argument;
    const struct layer_spec *spec = &call->layer->spec;
    const size_t count = (size_t)(spec->rows * spec->q_len) * (size_t)(spec->heads * spec->width);
    for (size_t i = 0; i < count; i++) {
        out[i] = numbers_read(call->out, i, call->layer->dtype);
    }
}

static void finish(void *argument)
{
    struct ort_call *call = argument;
    release *release_value = (release *)call->ort->api[RELEASE_VALUE];
    for (size_t i = 0; i < sizeof call->inputs / sizeof call->inputs[0]; i++) {
        release_value(call->inputs[i]);
    }
    for (size_t i = 0; i < ONNX_NUM_OUTPUTS; i++) {
        release_value(call->outputs[i]);
    }
    ((release *)call->ort->api[RELEASE_SESSION])(call->session);
    peer_unmap(call->k, call->cache_bytes);
    peer_unmap(call->v, call->cache_bytes);
    free(call->lens);
    free(call->out);
    free(call);
}

const struct peer peer_ort = {
    .name = "ONNX Runtime",
    .package = "onnxruntime-node",
    .open = open_library,
    .type_name = type_name,
    .tolerance = tolerance,
    .prepare = prepare,
    .run = run,
    .output = output,
    .finish = finish,
};
