/* SPDX-License-Identifier: MIT
 *
 * The golden vectors: each file named on the command line is one call of the public operator with
 * the answer that it must give. Prints a line a case, then the counts; exit status 1 when a case
 * failed or nothing ran. With --reference as the first argument the float64 reference of the tests
 * answers in the library's place, which is what proves the reference.
 *
 * The form of a file: a line `pkv-vector 1`, lines `KEY VALUE...`, lines `tensor NAME DTYPE NDIM
 * d0 d1 ...` each followed by a line with all its numbers, `expect OK` or `expect
 * INVALID_ARGUMENT`, the tensors of the answer, `end`. PKV_TEST_ISA and PKV_TEST_THREADS (default
 * 2) steer the run. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/reference.h"

enum { MAX_ENTRIES = 64, MAX_TENSORS = 32, MAX_NDIM = 5, MAX_BATCH = 64 };

struct entry {
    const char *key;
    const char *value; /* the rest of the line */
};

struct tensor {
    const char *name;
    const char *type;
    int ndim;
    size_t dims[MAX_NDIM];
    size_t count;
    double *numbers;
};

struct vector {
    char *text; /* the file, cut into words that the rest points to */
    struct entry entries[MAX_ENTRIES];
    size_t num_entries;
    struct tensor tensors[MAX_TENSORS];
    size_t num_tensors;
    char fault[256]; /* "" = well formed */
};

static bool fault(struct vector *vector, const char *format, ...) PKV_PRINTF(2, 3);
static bool fault(struct vector *vector, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(vector->fault, sizeof vector->fault, format, arguments);
    va_end(arguments);
    return false;
}

/* Reading */

static const char *const known_keys[] = {
    "name",        "op",           "form",           "dtype",         "cache_dtype", "num_heads",
    "head_dim",    "v_width",      "v_in_k",         "batch",         "q_lens",      "kv_lens",
    "block_size",  "num_blocks",   "max_seqs",       "max_seq",       "is_causal",   "q_scale",
    "softcap",     "kept_prefix",  "sliding_window", "rotary_mode",   "norm_order",  "expect",
    "qk_norm_eps", "kv_num_heads", "smooth_softmax", "rotary_offset", "why"};

static bool is_known(const char *key)
{
    for (size_t i = 0; i < sizeof known_keys / sizeof known_keys[0]; i++) {
        if (strcmp(key, known_keys[i]) == 0) {
            return true;
        }
    }
    return false;
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        return NULL;
    }
    const long bytes = ftell(file);
    char *text = bytes < 0 ? NULL : reference_alloc((size_t)bytes + 1, 1);
    rewind(file);
    if (text != NULL && fread(text, 1, (size_t)bytes, file) != (size_t)bytes) {
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
}

/* Cuts the next line off *rest; NULL at the end of the file. */
static char *next_line(char **rest)
{
    char *line = *rest;
    if (line == NULL || *line == '\0') {
        return NULL;
    }
    char *end = strchr(line, '\n');
    *rest = end != NULL ? end + 1 : NULL;
    if (end != NULL) {
        *end = '\0';
    }
    return line;
}

/* Cuts the next word off *rest; NULL when there is none. */
static char *next_word(char **rest)
{
    char *word = *rest + strspn(*rest, " ");
    if (*word == '\0') {
        return NULL;
    }
    char *end = word + strcspn(word, " ");
    *rest = *end != '\0' ? end + 1 : end;
    *end = '\0';
    return word;
}

static bool read_numbers(struct vector *vector, struct tensor *tensor, char *line)
{
    char *at = line;
    for (size_t i = 0; i < tensor->count; i++) {
        char *end = at;
        tensor->numbers[i] = at != NULL ? strtod(at, &end) : 0;
        if (end == at) {
            return fault(vector, "tensor %s ends after %zu of %zu numbers", tensor->name, i,
                         tensor->count);
        }
        at = end;
    }
    if (at != NULL && at[strspn(at, " ")] != '\0') {
        return fault(vector, "tensor %s has more than %zu numbers", tensor->name, tensor->count);
    }
    return true;
}

static bool read_tensor(struct vector *vector, char *words, char **rest)
{
    struct tensor tensor = {.count = 1};
    tensor.name = next_word(&words);
    tensor.type = next_word(&words);
    const char *ndim = next_word(&words);
    if (ndim == NULL || vector->num_tensors == MAX_TENSORS) {
        return fault(vector, "a tensor line without name, type and rank, or one too many");
    }
    tensor.ndim = atoi(ndim);
    if (tensor.ndim < 1 || tensor.ndim > MAX_NDIM) {
        return fault(vector, "tensor %s has rank %s", tensor.name, ndim);
    }
    for (int d = 0; d < tensor.ndim; d++) {
        const char *word = next_word(&words);
        tensor.dims[d] = word != NULL ? strtoul(word, NULL, 10) : 0;
        if (word == NULL || tensor.dims[d] > 1u << 24 || tensor.count > 1u << 24) {
            return fault(vector, "tensor %s: extent %d is missing or huge", tensor.name, d);
        }
        tensor.count *= tensor.dims[d];
    }
    if (next_word(&words) != NULL) {
        return fault(vector, "tensor %s has more extents than its rank", tensor.name);
    }
    tensor.numbers = reference_alloc(tensor.count, sizeof(double));
    vector->tensors[vector->num_tensors++] = tensor;
    return read_numbers(vector, &tensor, next_line(rest));
}

static bool read_lines(struct vector *vector)
{
    char *rest = vector->text;
    const char *first = next_line(&rest);
    if (first == NULL || strcmp(first, "pkv-vector 1") != 0) {
        return fault(vector, "the first line is not `pkv-vector 1`");
    }
    for (char *line = next_line(&rest); line != NULL; line = next_line(&rest)) {
        char *words = line;
        const char *key = next_word(&words);
        if (key != NULL && strcmp(key, "end") == 0) {
            return true;
        }
        if (key != NULL && strcmp(key, "tensor") == 0) {
            if (!read_tensor(vector, words, &rest)) {
                return false;
            }
            continue;
        }
        if (key == NULL || !is_known(key) || vector->num_entries == MAX_ENTRIES) {
            return fault(vector, "unknown key `%s`", key != NULL ? key : "");
        }
        const struct entry entry = {key, words};
        vector->entries[vector->num_entries++] = entry;
    }
    return fault(vector, "no line `end`");
}

static void free_vector(struct vector *vector)
{
    for (size_t i = 0; i < vector->num_tensors; i++) {
        free(vector->tensors[i].numbers);
    }
    free(vector->text);
}

/* Looking up */

static const char *text_of(const struct vector *vector, const char *key, const char *absent)
{
    for (size_t i = 0; i < vector->num_entries; i++) {
        if (strcmp(vector->entries[i].key, key) == 0) {
            return vector->entries[i].value;
        }
    }
    return absent;
}

static double number_of(const struct vector *vector, const char *key, double absent)
{
    const char *text = text_of(vector, key, NULL);
    return text != NULL ? strtod(text, NULL) : absent;
}

static int32_t count_of(const struct vector *vector, const char *key, int32_t absent)
{
    return (int32_t)number_of(vector, key, absent);
}

/* Up to MAX_BATCH numbers of a list; how many there are. */
static int32_t list_of(const struct vector *vector, const char *key, int64_t *numbers)
{
    char *at = NULL;
    const char *text = text_of(vector, key, "");
    int32_t count = 0;
    for (; count < MAX_BATCH; count++) {
        numbers[count] = strtoll(text, &at, 10);
        if (at == text) {
            break;
        }
        text = at;
    }
    return count;
}

static const struct tensor *tensor_of(const struct vector *vector, const char *name)
{
    for (size_t i = 0; i < vector->num_tensors; i++) {
        if (strcmp(vector->tensors[i].name, name) == 0) {
            return &vector->tensors[i];
        }
    }
    return NULL;
}

static bool dtype_of(const char *name, enum pkv_dtype *dtype)
{
    static const char *const names[] = {"f32", "f16", "bf16", "int8", "e4m3"};
    for (int i = 0; i < 5; i++) {
        if (strcmp(name, names[i]) == 0) {
            *dtype = (enum pkv_dtype)i;
            return true;
        }
    }
    return false;
}

/* The call */

struct call {
    bool is_gqa; /* else the read-only attend */
    bool must_refuse;
    struct pkv_gqa_args args;
    void *owned[MAX_TENSORS + 8]; /* everything below and the tensors' own arrays */
    size_t num_owned;
    void *before_k, *before_v; /* the caches before the call */
    size_t k_bytes, v_bytes, out_bytes, lse_bytes;
    float q_scale;
};

static void *own(struct call *call, size_t count, size_t bytes)
{
    void *memory = reference_alloc(count, bytes);
    call->owned[call->num_owned++] = memory;
    return memory;
}

/* A tensor in its own dtype; codes of e4m3 and int8 stay codes. NULL where it is absent. */
static void *array_of(struct call *call, struct vector *vector, const char *name,
                      enum pkv_dtype *dtype)
{
    const struct tensor *tensor = tensor_of(vector, name);
    enum pkv_dtype type = PKV_INT8;
    if (tensor == NULL) {
        return NULL;
    }
    if (strcmp(tensor->type, "bool") != 0 && !dtype_of(tensor->type, &type)) {
        fault(vector, "tensor %s has unknown type %s", name, tensor->type);
        return NULL;
    }
    void *array = own(call, tensor->count, pkv_dtype_bytes(type));
    for (size_t i = 0; i < tensor->count; i++) {
        if (type == PKV_E4M3) {
            ((uint8_t *)array)[i] = (uint8_t)tensor->numbers[i];
        } else {
            ref_store(type, array, i, tensor->numbers[i]);
        }
    }
    if (dtype != NULL) {
        *dtype = type;
    }
    return array;
}

static int32_t *int32_array_of(struct call *call, const struct vector *vector, const char *name)
{
    const struct tensor *tensor = tensor_of(vector, name);
    int32_t *array = tensor != NULL ? own(call, tensor->count, sizeof *array) : NULL;
    for (size_t i = 0; array != NULL && i < tensor->count; i++) {
        array[i] = (int32_t)tensor->numbers[i];
    }
    return array;
}

static int64_t *int64_array_of(struct call *call, const struct vector *vector, const char *name)
{
    const struct tensor *tensor = tensor_of(vector, name);
    int64_t *array = tensor != NULL ? own(call, tensor->count, sizeof *array) : NULL;
    for (size_t i = 0; array != NULL && i < tensor->count; i++) {
        array[i] = (int64_t)tensor->numbers[i];
    }
    return array;
}

static int32_t extent_of(const struct vector *vector, const char *name, int d)
{
    const struct tensor *tensor = tensor_of(vector, name);
    return tensor != NULL && d < tensor->ndim ? (int32_t)tensor->dims[d] : 0;
}

static int32_t size_of(const struct vector *vector, const char *name)
{
    const struct tensor *tensor = tensor_of(vector, name);
    return tensor != NULL ? (int32_t)tensor->count : 0;
}

static bool fill_geometry(struct call *call, struct vector *vector)
{
    struct pkv_gqa_args *args = &call->args;
    const char *form = text_of(vector, "form", "");
    const char *op = text_of(vector, "op", "");
    const char *expect = text_of(vector, "expect", "");
    args->size = sizeof *args;
    args->form = strcmp(form, "paged") == 0        ? PKV_CACHE_PAGED
                 : strcmp(form, "continuous") == 0 ? PKV_CACHE_CONTINUOUS
                 : strcmp(form, "dense") == 0      ? PKV_CACHE_DENSE
                                                   : PKV_CACHE_NONE;
    call->is_gqa = strcmp(op, "gqa") == 0;
    call->must_refuse = strcmp(expect, "INVALID_ARGUMENT") == 0;
    if (args->form == PKV_CACHE_NONE || !dtype_of(text_of(vector, "dtype", ""), &args->dtype) ||
        (!call->is_gqa && strcmp(op, "attention_over_cache") != 0) ||
        (!call->must_refuse && strcmp(expect, "OK") != 0)) {
        return fault(vector, "form, dtype, op or expect is absent or unknown");
    }
    args->num_heads = count_of(vector, "num_heads", 0);
    args->kv_heads = count_of(vector, "kv_num_heads", 0);
    args->k_width = count_of(vector, "head_dim", 0);
    args->v_width = count_of(vector, "v_width", 0);
    args->v_in_k = count_of(vector, "v_in_k", 0) != 0;
    args->batch = count_of(vector, "batch", 0);
    args->not_causal = count_of(vector, "is_causal", 1) == 0;
    args->sliding_window = (int64_t)number_of(vector, "sliding_window", 0);
    return true;
}

static bool fill_lengths(struct call *call, struct vector *vector)
{
    struct pkv_gqa_args *args = &call->args;
    int64_t q_lens[MAX_BATCH], kv_lens[MAX_BATCH], kept[MAX_BATCH];
    if (list_of(vector, "q_lens", q_lens) != args->batch ||
        list_of(vector, "kv_lens", kv_lens) != args->batch) {
        return fault(vector, "q_lens or kv_lens has not one number a row");
    }
    int32_t *cu_seqlens = own(call, (size_t)args->batch + 1, sizeof *cu_seqlens);
    int32_t *totals = own(call, (size_t)args->batch, sizeof *totals);
    for (int32_t b = 0; b < args->batch; b++) {
        cu_seqlens[b + 1] = cu_seqlens[b] + (int32_t)q_lens[b];
        totals[b] = (int32_t)kv_lens[b];
    }
    args->num_tokens = cu_seqlens[args->batch];
    args->cu_seqlens_q = cu_seqlens;
    args->kv_lens = totals;
    args->kept_prefix_count = list_of(vector, "kept_prefix", kept);
    if (args->kept_prefix_count > 0) {
        int64_t *copy = own(call, MAX_BATCH, sizeof *copy);
        memcpy(copy, kept, (size_t)args->kept_prefix_count * sizeof *copy);
        args->kept_prefix = copy;
    }
    return true;
}

static void fill_constants(struct call *call, struct vector *vector)
{
    struct pkv_attn_constants *constants = &call->args.constants;
    if (text_of(vector, "q_scale", NULL) != NULL) {
        call->q_scale = (float)number_of(vector, "q_scale", 0);
        constants->q_scale = &call->q_scale;
    }
    constants->softcap = (float)number_of(vector, "softcap", 0);
    constants->smooth_softmax = count_of(vector, "smooth_softmax", 0) != 0;
    constants->head_sink = array_of(call, vector, "head_sink", NULL);
    constants->head_sink_count = size_of(vector, "head_sink");
    constants->rope_cos = array_of(call, vector, "rope_cos", &constants->rope_dtype);
    constants->rope_sin = array_of(call, vector, "rope_sin", &constants->rope_dtype);
    constants->rope_positions = extent_of(vector, "rope_cos", 0);
    constants->rope_width = extent_of(vector, "rope_cos", 1);
    constants->rotary_offset = count_of(vector, "rotary_offset", 0);
    if (strcmp(text_of(vector, "rotary_mode", ""), "interleaved") == 0) {
        constants->rotary_mode = PKV_ROTARY_INTERLEAVED;
    }
    constants->q_norm_gain = array_of(call, vector, "q_norm_gain", &constants->q_norm_gain_dtype);
    constants->k_norm_gain = array_of(call, vector, "k_norm_gain", &constants->k_norm_gain_dtype);
    constants->q_norm_gain_count = size_of(vector, "q_norm_gain");
    constants->k_norm_gain_count = size_of(vector, "k_norm_gain");
    constants->qk_norm_eps = (float)number_of(vector, "qk_norm_eps", 0);
    if (strcmp(text_of(vector, "norm_order", ""), "before_rope") == 0) {
        constants->norm_order = PKV_NORM_BEFORE_ROPE;
    }
    constants->k_scale = array_of(call, vector, "k_scale", NULL);
    constants->v_scale = array_of(call, vector, "v_scale", NULL);
    constants->k_scale_count = size_of(vector, "k_scale");
    constants->v_scale_count = size_of(vector, "v_scale");
}

static void *copy_of(struct call *call, const void *bytes, size_t count)
{
    void *copy = own(call, count, 1);
    if (count > 0) {
        memcpy(copy, bytes, count);
    }
    return copy;
}

static void fill_cache(struct call *call, struct vector *vector)
{
    struct pkv_kv_view *past = &call->args.past;
    past->k = array_of(call, vector, "past_key", &past->k_dtype);
    past->v = array_of(call, vector, "past_value", &past->v_dtype);
    past->num_blocks = extent_of(vector, "past_key", 0);
    past->kv_heads = extent_of(vector, "past_key", 1);
    past->block_size = extent_of(vector, "past_key", 2);
    past->k_width = extent_of(vector, "past_key", 3);
    past->v_width = extent_of(vector, "past_value", 3);
    call->k_bytes = (size_t)size_of(vector, "past_key") * pkv_dtype_bytes(past->k_dtype);
    call->v_bytes = (size_t)size_of(vector, "past_value") * pkv_dtype_bytes(past->v_dtype);
    call->before_k = copy_of(call, past->k, call->k_bytes);
    call->before_v = copy_of(call, past->v, call->v_bytes);
}

static void fill_tensors(struct call *call, struct vector *vector)
{
    struct pkv_gqa_args *args = &call->args;
    args->q = array_of(call, vector, "query", NULL);
    args->k = array_of(call, vector, "key", NULL);
    args->v = array_of(call, vector, "value", NULL);
    args->block_table = int32_array_of(call, vector, "block_table");
    args->max_blocks = extent_of(vector, "block_table", 1);
    args->slot_ids = int32_array_of(call, vector, "slot_ids");
    args->position_ids = int64_array_of(call, vector, "position_ids");
    args->attn_mask = array_of(call, vector, "attn_mask", &args->mask_dtype);
    args->mask_batch = extent_of(vector, "attn_mask", 0);
    args->mask_heads = extent_of(vector, "attn_mask", 1);
    args->mask_queries = extent_of(vector, "attn_mask", 2);
    args->mask_keys = extent_of(vector, "attn_mask", 3);
    const int32_t v_width = args->v_width != 0 ? args->v_width : args->k_width;
    const size_t rows = (size_t)args->num_tokens * (size_t)args->num_heads;
    call->out_bytes = rows * (size_t)v_width * pkv_dtype_bytes(args->dtype);
    call->lse_bytes = rows * sizeof(float);
    args->out = own(call, call->out_bytes, 1);
    args->lse = own(call, call->lse_bytes, 1);
    memset(args->out, 0xa5, call->out_bytes);
    memset(args->lse, 0xa5, call->lse_bytes);
}

/* A call that must succeed is only made when every array has the size that its scalars say. */
static bool check_sizes(const struct call *call, struct vector *vector)
{
    const struct pkv_gqa_args *args = &call->args;
    const int32_t v_width = args->v_width != 0 ? args->v_width : args->k_width;
    const int32_t k_heads = args->kv_heads * args->num_tokens;
    const struct {
        const char *name;
        int32_t count;
        bool required;
    } sizes[] = {
        {"query", args->num_tokens * args->num_heads * args->k_width, true},
        {"key", k_heads * args->k_width, call->is_gqa},
        {"value", k_heads * v_width, call->is_gqa && !args->v_in_k},
        {"past_value",
         args->past.num_blocks * args->kv_heads * args->past.block_size * args->past.v_width,
         !args->v_in_k},
        {"block_table", args->batch * args->max_blocks, args->form == PKV_CACHE_PAGED},
        {"output", args->num_tokens * args->num_heads * v_width, true},
        {"lse", args->num_tokens * args->num_heads, true},
        {"present_key", size_of(vector, "past_key"), call->is_gqa},
        {"present_value", size_of(vector, "past_value"), call->is_gqa && !args->v_in_k},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const int32_t count = size_of(vector, sizes[i].name);
        if (sizes[i].required && count != sizes[i].count) {
            return fault(vector, "tensor %s has %" PRId32 " elements, not %" PRId32, sizes[i].name,
                         count, sizes[i].count);
        }
    }
    return true;
}

static bool make_call(struct call *call, struct vector *vector)
{
    if (!fill_geometry(call, vector) || !fill_lengths(call, vector)) {
        return false;
    }
    fill_constants(call, vector);
    fill_cache(call, vector);
    fill_tensors(call, vector);
    return vector->fault[0] == '\0' && (call->must_refuse || check_sizes(call, vector));
}

static void free_call(struct call *call)
{
    for (size_t i = 0; i < call->num_owned; i++) {
        free(call->owned[i]);
    }
}

/* Judging */

enum verdict { PASSED, FAILED, SKIPPED };

static bool is_near(double got, double want, double tolerance)
{
    return got == want || (isnan(got) && isnan(want)) ||
           fabs(got - want) <= tolerance + tolerance * fabs(want);
}

static enum verdict fail(const char *name, const char *what, size_t i, double got, double want)
{
    printf("FAIL %s: %s[%zu] = %.9g, expected %.9g\n", name, what, i, got, want);
    return FAILED;
}

/* K or V of a cache before and after, and what the file expects. */
struct side {
    const char *name;
    enum pkv_dtype dtype;
    const void *before, *after;
    const struct tensor *expected;
    size_t width;
    bool is_transformed; /* rotated or normed on its way in */
};

static bool cell_is_right(const struct side *side, size_t at)
{
    const double want = side->expected->numbers[at];
    if (side->dtype == PKV_INT8 || side->dtype == PKV_E4M3) {
        const uint8_t code = ((const uint8_t *)side->after)[at];
        return reference_code_steps(side->dtype, code, (uint8_t)(int)want) <= 1;
    }
    double rounded = 0;
    unsigned char store[sizeof(float)];
    ref_store(side->dtype, store, 0, want);
    rounded = ref_load(side->dtype, store, 0);
    const double got = ref_load(side->dtype, side->after, at);
    const double slack = 1e-6 + 1e-6 * fabs(rounded);
    const double bound =
        side->is_transformed ? fmax(reference_ulp(side->dtype, rounded), slack) : 0;
    return got == rounded || fabs(got - rounded) <= bound;
}

/* is_new[n * block_size + c] says of which cells the call appends. */
static bool *new_cells(const struct call *call)
{
    const struct pkv_gqa_args *args = &call->args;
    bool *is_new = reference_alloc((size_t)args->past.num_blocks, (size_t)args->past.block_size);
    for (int32_t b = 0; call->is_gqa && b < args->batch; b++) {
        const int32_t q_len = args->cu_seqlens_q[b + 1] - args->cu_seqlens_q[b];
        for (int32_t j = args->kv_lens[b] - q_len; j < args->kv_lens[b]; j++) {
            int32_t block = 0, cell = 0;
            reference_locate(args, b, j, &block, &cell);
            is_new[(size_t)block * (size_t)args->past.block_size + (size_t)cell] = true;
        }
    }
    return is_new;
}

static enum verdict judge_side(const char *name, const struct call *call, const struct side *side)
{
    const struct pkv_kv_view *past = &call->args.past;
    const size_t cells = (size_t)past->block_size;
    const size_t heads = (size_t)past->kv_heads;
    const size_t total = (size_t)past->num_blocks * heads * cells * side->width;
    const size_t bytes = pkv_dtype_bytes(side->dtype);
    bool *is_new = new_cells(call);
    enum verdict verdict = PASSED;
    for (size_t at = 0; at < total && verdict == PASSED; at++) {
        const size_t cell = at / side->width;
        const size_t block = cell / (cells * heads);
        const bool appended = is_new[block * cells + cell % cells];
        const bool same = memcmp((const char *)side->before + at * bytes,
                                 (const char *)side->after + at * bytes, bytes) == 0;
        if (appended ? !cell_is_right(side, at) : !same) {
            const double want =
                appended ? side->expected->numbers[at] : ref_load(side->dtype, side->before, at);
            verdict = fail(name, side->name, at, ref_load(side->dtype, side->after, at), want);
        }
    }
    free(is_new);
    return verdict;
}

/* k and v: the caches after the call. */
static enum verdict judge_caches(const char *name, const struct call *call,
                                 const struct vector *vector, const void *k, const void *v)
{
    const struct pkv_attn_constants *constants = &call->args.constants;
    const struct pkv_kv_view *past = &call->args.past;
    const bool is_transformed = constants->rope_cos != NULL || constants->k_norm_gain != NULL;
    const struct side keys = {
        "present_key",         past->k_dtype, call->before_k, k, tensor_of(vector, "present_key"),
        (size_t)past->k_width, is_transformed};
    const struct side values = {
        "present_value",       past->v_dtype, call->before_v, v, tensor_of(vector, "present_value"),
        (size_t)past->v_width, false};
    const enum verdict verdict = judge_side(name, call, &keys);
    if (verdict != PASSED || call->args.v_in_k) {
        return verdict;
    }
    return judge_side(name, call, &values);
}

static enum verdict judge_floats(const char *name, const char *what, const double *got,
                                 const struct tensor *want, double tolerance)
{
    for (size_t i = 0; i < want->count; i++) {
        if (!is_near(got[i], want->numbers[i], tolerance)) {
            return fail(name, what, i, got[i], want->numbers[i]);
        }
    }
    return PASSED;
}

/* Compares a result, as doubles, with the vector's: the operator's own, or the reference's. */
static enum verdict judge(const char *name, const struct call *call, const struct vector *vector,
                          const double *out, const double *lse, const void *k, const void *v,
                          double tolerance)
{
    enum verdict verdict = judge_caches(name, call, vector, k, v);
    if (verdict == PASSED) {
        verdict = judge_floats(name, "output", out, tensor_of(vector, "output"), tolerance);
    }
    if (verdict == PASSED) {
        verdict = judge_floats(name, "lse", lse, tensor_of(vector, "lse"), tolerance);
    }
    return verdict;
}

static enum verdict judge_refusal(const char *name, const struct call *call)
{
    const struct pkv_gqa_args *args = &call->args;
    const unsigned char *out = args->out;
    const unsigned char *lse = (const unsigned char *)args->lse;
    for (size_t i = 0; i < call->out_bytes; i++) {
        if (out[i] != 0xa5) {
            return fail(name, "byte of output after a refusal", i, out[i], 0xa5);
        }
    }
    for (size_t i = 0; i < call->lse_bytes; i++) {
        if (lse[i] != 0xa5) {
            return fail(name, "byte of lse after a refusal", i, lse[i], 0xa5);
        }
    }
    if (memcmp(args->past.k, call->before_k, call->k_bytes) != 0 ||
        (call->v_bytes > 0 && memcmp(args->past.v, call->before_v, call->v_bytes) != 0)) {
        printf("FAIL %s: the cache changed although the call refused\n", name);
        return FAILED;
    }
    return PASSED;
}

/* Running */

/* The tolerances of docs/operator.md, Numerics, for inputs of unit scale. */
static double tolerance_of(enum pkv_dtype dtype)
{
    return dtype == PKV_F32 ? 2e-5 : dtype == PKV_F16 ? 1e-3 : 8e-3;
}

static enum verdict run_library(const char *name, const struct call *call,
                                const struct vector *vector, pkv_workspace *workspace)
{
    const struct pkv_gqa_args *args = &call->args;
    const enum pkv_status expected = call->must_refuse ? PKV_INVALID_ARGUMENT : PKV_OK;
    const enum pkv_status status =
        call->is_gqa ? pkv_gqa(workspace, args) : pkv_attention_over_cache(workspace, args);
    if (status == PKV_UNSUPPORTED) {
        printf("skip %s: option not built yet\n", name);
        return SKIPPED;
    }
    if (status != expected) {
        printf("FAIL %s: answered %s, expected %s; last error: %s\n", name, pkv_status_name(status),
               pkv_status_name(expected), pkv_last_error());
        return FAILED;
    }
    if (call->must_refuse) {
        return judge_refusal(name, call);
    }
    const size_t rows = call->lse_bytes / sizeof(float);
    const size_t count = call->out_bytes / pkv_dtype_bytes(args->dtype);
    double *out = reference_alloc(count, sizeof *out);
    double *lse = reference_alloc(rows, sizeof *lse);
    for (size_t i = 0; i < count; i++) {
        out[i] = ref_load(args->dtype, args->out, i);
    }
    for (size_t i = 0; i < rows; i++) {
        lse[i] = (double)args->lse[i];
    }
    const enum verdict verdict =
        judge(name, call, vector, out, lse, args->past.k, args->past.v, tolerance_of(args->dtype));
    free(out);
    free(lse);
    return verdict;
}

/* The files print 12 digits. */
static enum verdict run_reference(const char *name, const struct call *call,
                                  const struct vector *vector)
{
    if (call->must_refuse) {
        printf("skip %s: a refusal, nothing to compute\n", name);
        return SKIPPED;
    }
    struct reference ref;
    reference_append(&call->args, &ref);
    reference_attend(&call->args, &ref);
    const enum verdict verdict =
        judge(name, call, vector, ref.out, ref.lse, ref.cache.k, ref.cache.v, 1e-10);
    reference_free(&ref);
    return verdict;
}

/* workspace NULL: the reference answers. */
static enum verdict run_file(const char *path, pkv_workspace *workspace)
{
    struct vector vector = {.text = read_file(path)};
    struct call call = {.is_gqa = false};
    const char *name = path;
    enum verdict verdict = FAILED;
    if (vector.text == NULL) {
        printf("FAIL %s: cannot be read: %s\n", path, strerror(errno));
    } else if (!read_lines(&vector) || !make_call(&call, &vector)) {
        printf("FAIL %s: malformed: %s\n", path, vector.fault);
    } else {
        name = text_of(&vector, "name", path);
        verdict = workspace != NULL ? run_library(name, &call, &vector, workspace)
                                    : run_reference(name, &call, &vector);
    }
    if (verdict == PASSED) {
        printf("ok %s\n", name);
    }
    free_call(&call);
    free_vector(&vector);
    return verdict;
}

int main(int argc, char **argv)
{
    const bool by_reference = argc > 1 && strcmp(argv[1], "--reference") == 0;
    const char *threads = getenv("PKV_TEST_THREADS");
    pkv_workspace *workspace = NULL;
    if (!by_reference) {
        const enum pkv_status status =
            pkv_workspace_create(threads != NULL ? atoi(threads) : 2, test_isa(), NULL, &workspace);
        if (status == PKV_UNSUPPORTED) {
            printf("skipped: this machine has no %s\n", pkv_isa_name(test_isa()));
            return EXIT_SUCCESS;
        }
        if (status != PKV_OK) {
            printf("FAIL workspace: %s\n", pkv_last_error());
            return EXIT_FAILURE;
        }
        test_eager_threads(workspace);
    }
    int counts[3] = {0, 0, 0};
    for (int i = by_reference ? 2 : 1; i < argc; i++) {
        counts[run_file(argv[i], workspace)]++;
    }
    pkv_workspace_destroy(workspace);
    printf("%d passed, %d failed, %d skipped\n", counts[PASSED], counts[FAILED], counts[SKIPPED]);
    return counts[FAILED] == 0 && counts[PASSED] > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
