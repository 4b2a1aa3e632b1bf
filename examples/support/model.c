/* SPDX-License-Identifier: MIT
 *
 * model.c: where each weight stands. One table of the tensors, in the order of the file, serves
 * the size check, the pointers and the random model.
 *
 *   file size = 28 + 4 * (sum of the tensors' elements, and the rope tables where they are kept)
 *
 * The rope tables of old checkpoints are skipped: they follow from seq_len and head_dim. */
#include "model.h"

#include "report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_WORDS = 7, HEADER_BYTES = 4 * HEADER_WORDS };
enum { MAX_DIM = 1 << 16, MAX_LAYERS = 1 << 12, MAX_VOCAB = 1 << 24, MAX_SEQ_LEN = 1 << 20 };
enum { MAX_ROPE_BYTES = 1 << 26 }; /* 128 Ki positions of heads of 128 channels */
enum { NUM_TENSORS = 12, TENSOR_FINAL_NORM = 10, TENSOR_CLASSIFIER = 11 };

/* count tensors (one a layer) of rows x columns elements. A norm has one row. */
struct tensor {
    const float **place;
    int32_t count;
    int32_t rows;
    int32_t columns;
};

static void list_tensors(struct model *m, struct tensor tensors[NUM_TENSORS])
{
    const int32_t layers = m->num_layers;
    const int32_t classifiers = m->own_classifier ? 1 : 0;
    const struct tensor list[NUM_TENSORS] = {
        {&m->embedding, 1, m->vocab_size, m->dim},
        {&m->attn_norm, layers, 1, m->dim},
        {&m->wq, layers, m->dim, m->dim},
        {&m->wk, layers, m->kv_dim, m->dim},
        {&m->wv, layers, m->kv_dim, m->dim},
        {&m->wo, layers, m->dim, m->dim},
        {&m->ffn_norm, layers, 1, m->dim},
        {&m->w1, layers, m->hidden_dim, m->dim},
        {&m->w2, layers, m->dim, m->hidden_dim},
        {&m->w3, layers, m->hidden_dim, m->dim},
        {&m->final_norm, 1, 1, m->dim},
        {&m->classifier, classifiers, m->vocab_size, m->dim},
    };
    memcpy(tensors, list, sizeof list);
}

/* *total += a * b * c, or false when size_t cannot hold it (as bytes, with the header). */
static bool add_product(size_t a, size_t b, size_t c, size_t *total)
{
    const size_t limit = (SIZE_MAX - HEADER_BYTES) / sizeof(float);
    if (b != 0 && a > limit / b) {
        return false;
    }
    if (c != 0 && a * b > limit / c) {
        return false;
    }
    if (a * b * c > limit - *total) {
        return false;
    }
    *total += a * b * c;
    return true;
}

static bool count_weights(struct model *m, size_t *num_weights)
{
    struct tensor tensors[NUM_TENSORS];
    list_tensors(m, tensors);
    size_t total = 0;
    for (int i = 0; i < NUM_TENSORS; i++) {
        const struct tensor *t = &tensors[i];
        if (!add_product((size_t)t->count, (size_t)t->rows, (size_t)t->columns, &total)) {
            return false;
        }
    }
    *num_weights = total;
    return true;
}

/* Sets the pointers; the classifier without elements of its own is the embedding. */
static void place_tensors(struct model *m)
{
    struct tensor tensors[NUM_TENSORS];
    list_tensors(m, tensors);
    const float *next = m->weights;
    for (int i = 0; i < NUM_TENSORS; i++) {
        *tensors[i].place = next;
        next += (size_t)tensors[i].count * (size_t)tensors[i].rows * (size_t)tensors[i].columns;
    }
    if (!m->own_classifier) {
        m->classifier = m->embedding;
    }
}

/* The tables follow from two words of the header, so those of a short file could be of any size. */
static bool check_rope(const char *path, const struct model *m)
{
    const size_t bytes = (size_t)m->seq_len * (size_t)m->head_dim * sizeof(float);
    if (bytes > MAX_ROPE_BYTES) {
        return complain("%s: %d positions of heads of %d channels take rope tables of %zu bytes, "
                        "above %d",
                        path, m->seq_len, m->head_dim, bytes, MAX_ROPE_BYTES);
    }
    return true;
}

/* cos and sin of position * 10000^(-2i / head_dim), rounded once from double. */
static bool make_rope(struct model *m)
{
    const size_t width = (size_t)m->head_dim / 2;
    m->rope_cos = calloc((size_t)m->seq_len * width, sizeof(float));
    m->rope_sin = calloc((size_t)m->seq_len * width, sizeof(float));
    if (m->rope_cos == NULL || m->rope_sin == NULL) {
        return complain("out of memory for rope tables of %d positions", m->seq_len);
    }
    for (size_t i = 0; i < width; i++) {
        const double frequency = pow(10000.0, -2.0 * (double)i / (double)m->head_dim);
        for (size_t position = 0; position < (size_t)m->seq_len; position++) {
            m->rope_cos[position * width + i] = (float)cos((double)position * frequency);
            m->rope_sin[position * width + i] = (float)sin((double)position * frequency);
        }
    }
    return true;
}

static bool check_word(const char *path, const char *name, int32_t value, int32_t high)
{
    if (value < 1 || value > high) {
        return complain("%s: %s = %d, outside [1, %d]", path, name, value, high);
    }
    return true;
}

/* The seven words into the model, each within bounds and the heads dividing as they must. */
static bool parse_header(const char *path, const unsigned char *header, struct model *m)
{
    int32_t words[HEADER_WORDS];
    for (int i = 0; i < HEADER_WORDS; i++) {
        words[i] = load_i32(header + 4 * i);
    }
    m->own_classifier = words[5] < 0;
    m->dim = words[0];
    m->hidden_dim = words[1];
    m->num_layers = words[2];
    m->num_heads = words[3];
    m->kv_heads = words[4];
    m->vocab_size = words[5] < 0 && words[5] > INT32_MIN ? -words[5] : words[5];
    m->seq_len = words[6];
    if (!check_word(path, "dim", m->dim, MAX_DIM) ||
        !check_word(path, "hidden_dim", m->hidden_dim, MAX_DIM) ||
        !check_word(path, "n_layers", m->num_layers, MAX_LAYERS) ||
        !check_word(path, "n_heads", m->num_heads, m->dim) ||
        !check_word(path, "n_kv_heads", m->kv_heads, m->num_heads) ||
        !check_word(path, "vocab_size", m->vocab_size, MAX_VOCAB) ||
        !check_word(path, "seq_len", m->seq_len, MAX_SEQ_LEN)) {
        return false;
    }
    if (m->dim % m->num_heads != 0 || m->dim / m->num_heads % 2 != 0) {
        return complain("%s: dim %d does not give %d heads of even width", path, m->dim,
                        m->num_heads);
    }
    if (m->num_heads % m->kv_heads != 0) {
        return complain("%s: %d heads cannot share %d KV heads", path, m->num_heads, m->kv_heads);
    }
    if (m->vocab_size <= TOKEN_END) {
        return complain("%s: a vocabulary of %d has no begin and end", path, m->vocab_size);
    }
    m->head_dim = m->dim / m->num_heads;
    m->kv_dim = m->kv_heads * m->head_dim;
    return true;
}

/* Compares the size that follows from the header with the file's. *rope is the number of elements
 * to skip. */
static bool check_size(const char *path, FILE *file, struct model *m, size_t *rope)
{
    size_t tables = 0;
    size_t with_tables = 0;
    if (!count_weights(m, &m->num_weights) ||
        !add_product((size_t)m->seq_len, (size_t)m->head_dim, 1, &tables)) {
        return complain("%s: the header names more weights than memory can hold", path);
    }
    with_tables = m->num_weights;
    if (!add_product(tables, 1, 1, &with_tables)) {
        return complain("%s: the header names more weights than memory can hold", path);
    }
    if (fseek(file, 0, SEEK_END) != 0) {
        return complain("%s: %s", path, strerror(errno));
    }
    const long end = ftell(file);
    if (end < 0 || fseek(file, HEADER_BYTES, SEEK_SET) != 0) {
        return complain("%s: %s", path, strerror(errno));
    }
    const size_t size = (size_t)end;
    const size_t plain = HEADER_BYTES + m->num_weights * sizeof(float);
    const size_t legacy = HEADER_BYTES + with_tables * sizeof(float);
    if (size != plain && size != legacy) {
        return complain("%s: %zu bytes, but the header makes it %zu (or %zu without rope tables)",
                        path, size, legacy, plain);
    }
    *rope = size == legacy ? tables : 0;
    return true;
}

/* Reads `count` weights at `first`, in pieces, and refuses one that is not finite. */
static bool read_weights(const char *path, FILE *file, struct model *m, size_t first, size_t count)
{
    unsigned char piece[4096];
    for (size_t done = 0; done < count;) {
        size_t now = count - done;
        if (now > sizeof piece / 4) {
            now = sizeof piece / 4;
        }
        if (fread(piece, 4, now, file) != now) {
            return complain("%s: ends before its last weight", path);
        }
        for (size_t i = 0; i < now; i++) {
            const float weight = load_f32(piece + 4 * i);
            if (!isfinite(weight)) {
                return complain("%s: weight %zu is not finite", path, first + done + i);
            }
            m->weights[first + done + i] = weight;
        }
        done += now;
    }
    return true;
}

static bool load_from(const char *path, FILE *file, struct model *m)
{
    unsigned char header[HEADER_BYTES];
    const size_t got = fread(header, 1, sizeof header, file);
    if (ferror(file)) {
        return complain("%s: %s", path, strerror(errno));
    }
    if (got != sizeof header) {
        return complain("%s: %zu bytes are no checkpoint; its header alone has %d", path, got,
                        HEADER_BYTES);
    }
    size_t rope = 0;
    if (!parse_header(path, header, m) || !check_size(path, file, m, &rope) ||
        !check_rope(path, m)) {
        return false;
    }
    m->weights = malloc(m->num_weights * sizeof(float));
    if (m->weights == NULL) {
        return complain("%s: out of memory for %zu weights", path, m->num_weights);
    }
    place_tensors(m);
    const size_t tail = m->own_classifier ? (size_t)m->vocab_size * (size_t)m->dim : 0;
    const size_t head = m->num_weights - tail;
    if (!read_weights(path, file, m, 0, head)) {
        return false;
    }
    if (tail > 0 && fseek(file, (long)(HEADER_BYTES + (head + rope) * sizeof(float)), SEEK_SET)) {
        return complain("%s: %s", path, strerror(errno));
    }
    return read_weights(path, file, m, head, tail) && make_rope(m);
}

bool model_load(const char *path, struct model *model)
{
    memset(model, 0, sizeof *model);
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return complain("%s: %s", path, strerror(errno));
    }
    const bool ok = load_from(path, file, model);
    fclose(file);
    if (!ok) {
        model_free(model);
    }
    return ok;
}

/* splitmix64, mapped to [-1, 1). */
static float next_uniform(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (float)(int32_t)(z >> 32) * (1.0f / 2147483648.0f);
}

/* A uniform weight in [-a, a) has variance a^2 / 3, so a = sqrt(3 / columns) keeps a product's
 * variance at that of its input. Norms are 1; the embedding has variance 1. */
static void fill_random(uint64_t seed, struct model *m)
{
    struct tensor tensors[NUM_TENSORS];
    list_tensors(m, tensors);
    float *next = m->weights;
    for (int i = 0; i < NUM_TENSORS; i++) {
        const struct tensor *t = &tensors[i];
        const size_t count = (size_t)t->count * (size_t)t->rows * (size_t)t->columns;
        const bool is_norm = t->rows == 1;
        const float bound = i == 0 ? sqrtf(3.0f) : sqrtf(3.0f / (float)t->columns);
        for (size_t e = 0; e < count; e++) {
            next[e] = is_norm ? 1.0f : bound * next_uniform(&seed);
        }
        next += count;
    }
    float *classifier = m->weights + (m->classifier - m->weights);
    memset(classifier + (size_t)TOKEN_BEGIN * (size_t)m->dim, 0,
           2 * (size_t)m->dim * sizeof(float));
}

bool model_random(uint64_t seed, struct model *model)
{
    model->head_dim = model->dim / model->num_heads;
    model->kv_dim = model->kv_heads * model->head_dim;
    if (!count_weights(model, &model->num_weights)) {
        return complain("the random model is too large");
    }
    model->weights = malloc(model->num_weights * sizeof(float));
    if (model->weights == NULL) {
        return complain("out of memory for %zu weights", model->num_weights);
    }
    place_tensors(model);
    fill_random(seed, model);
    if (make_rope(model)) {
        return true;
    }
    model_free(model);
    return false;
}

/* The copy keeps the place of every tensor, so the layers that are left out just stand unused. */
bool model_draft(const struct model *source, int32_t num_layers, float noise, uint64_t seed,
                 struct model *model)
{
    *model = *source;
    model->rope_cos = NULL;
    model->rope_sin = NULL;
    model->weights = malloc(source->num_weights * sizeof(float));
    if (model->weights == NULL) {
        return complain("out of memory for %zu weights", source->num_weights);
    }
    for (size_t i = 0; i < source->num_weights; i++) {
        model->weights[i] = source->weights[i] * (1.0f + noise * next_uniform(&seed));
    }
    place_tensors(model);
    model->num_layers = num_layers;
    if (make_rope(model)) {
        return true;
    }
    model_free(model);
    return false;
}

void model_free(struct model *model)
{
    free(model->weights);
    free(model->rope_cos);
    free(model->rope_sin);
    memset(model, 0, sizeof *model);
}
