/* SPDX-License-Identifier: MIT
 *
 * pkvm.c: a cursor that moves over the bytes, one weight after the other.
 *
 *   size = 64 + 4 * layers + element bytes * (vocab * dim + dim + layers * (2 * dim +
 *          2 * q_dim * dim + 2 * kv_dim * dim + 3 * hidden_dim * dim)) */
#include "pkvm.h"

#include "report.h"

#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, HEADER_BYTES = 64, NUM_WORDS = 14, MAX_FILE = 1 << 30 };

/* The header's words behind the magic. */
enum word {
    WORD_VERSION,
    WORD_DTYPE,
    WORD_DIM,
    WORD_HIDDEN_DIM,
    WORD_LAYERS,
    WORD_HEADS,
    WORD_KV_HEADS,
    WORD_HEAD_DIM,
    WORD_VOCAB,
    WORD_BEGIN,
    WORD_END,
    WORD_SEQ_LEN,
    WORD_ROPE_THETA,
    WORD_RESERVED
};

struct cursor {
    const char *name;
    const unsigned char *next;
    enum pkv_dtype dtype;
};

/* The codes of the format are those of enum pkv_dtype. */
static bool take_dtype(const char *name, int32_t code, enum pkv_dtype *dtype)
{
    if (code != PKV_F32 && code != PKV_F16 && code != PKV_BF16) {
        return complain("%s: dtype %d is not 0 (f32), 1 (f16) or 2 (bf16)", name, code);
    }
    *dtype = (enum pkv_dtype)code;
    return true;
}

static bool parse_header(const char *name, const unsigned char *header, struct model *m,
                         enum pkv_dtype *dtype)
{
    int32_t w[NUM_WORDS];
    for (int i = 0; i < NUM_WORDS; i++) {
        w[i] = load_i32(header + sizeof PKVM_MAGIC - 1 + 4 * i);
    }
    if (w[WORD_VERSION] != VERSION || w[WORD_RESERVED] != 0) {
        return complain("%s: version %d with %d reserved, not %d with 0", name, w[WORD_VERSION],
                        w[WORD_RESERVED], VERSION);
    }
    *m = (struct model){
        .dim = w[WORD_DIM],
        .hidden_dim = w[WORD_HIDDEN_DIM],
        .num_layers = w[WORD_LAYERS],
        .num_heads = w[WORD_HEADS],
        .kv_heads = w[WORD_KV_HEADS],
        .head_dim = w[WORD_HEAD_DIM],
        .vocab_size = w[WORD_VOCAB],
        .seq_len = w[WORD_SEQ_LEN],
        .begin_id = w[WORD_BEGIN],
        .end_id = w[WORD_END],
        .norm_eps = 1e-5f,
        .rope_theta = w[WORD_ROPE_THETA],
        .byte_vocabulary = true,
        .rotary_mode = PKV_ROTARY_INTERLEAVED,
    };
    if (!take_dtype(name, w[WORD_DTYPE], dtype) || !model_check_shape(name, m)) {
        return false;
    }
    if (m->begin_id < 256 || m->end_id < 256 || m->begin_id == m->end_id) {
        return complain("%s: begin %d and end %d are not two ids behind the 256 bytes", name,
                        m->begin_id, m->end_id);
    }
    return true;
}

/* The shape is within bounds, so no sum or product here reaches 2^63. */
static bool check_size(const char *name, const struct model *m, enum pkv_dtype dtype,
                       size_t num_bytes)
{
    const uint64_t dim = (uint64_t)m->dim;
    const uint64_t layers = (uint64_t)m->num_layers;
    const uint64_t q_dim = (uint64_t)m->num_heads * (uint64_t)m->head_dim;
    const uint64_t kv_dim = (uint64_t)m->kv_heads * (uint64_t)m->head_dim;
    const uint64_t of_layer = 2 + 2 * q_dim + 2 * kv_dim + 3 * (uint64_t)m->hidden_dim;
    const uint64_t elements = dim * ((uint64_t)m->vocab_size + 1 + layers * of_layer);
    const uint64_t size = HEADER_BYTES + 4 * layers + pkv_dtype_bytes(dtype) * elements;
    if (num_bytes != size) {
        return complain("%s: %zu bytes, but the header makes it %llu", name, num_bytes,
                        (unsigned long long)size);
    }
    if ((uint64_t)m->seq_len * (uint64_t)m->head_dim * sizeof(float) > size ||
        layers * sizeof(struct model_layer) > size) {
        return complain("%s: %d positions or %d layers take more memory than the file has", name,
                        m->seq_len, m->num_layers);
    }
    return true;
}

static bool take(struct cursor *cursor, const char *what, int32_t rows, int32_t columns,
                 struct weight *w)
{
    *w = (struct weight){cursor->next, cursor->dtype, rows, columns};
    cursor->next += (size_t)rows * (size_t)columns * pkv_dtype_bytes(cursor->dtype);
    return model_check_finite(cursor->name, what, w);
}

static bool take_layer(struct cursor *c, const struct model *m, struct model_layer *l)
{
    return take(c, "attn_norm", 1, m->dim, &l->attn_norm) &&
           take(c, "wq", m->q_dim, m->dim, &l->wq) && take(c, "wk", m->kv_dim, m->dim, &l->wk) &&
           take(c, "wv", m->kv_dim, m->dim, &l->wv) && take(c, "wo", m->dim, m->q_dim, &l->wo) &&
           take(c, "ffn_norm", 1, m->dim, &l->ffn_norm) &&
           take(c, "w1", m->hidden_dim, m->dim, &l->w1) &&
           take(c, "w3", m->hidden_dim, m->dim, &l->w3) &&
           take(c, "w2", m->dim, m->hidden_dim, &l->w2);
}

static bool take_weights(const char *name, const unsigned char *bytes, enum pkv_dtype dtype,
                         struct model *m)
{
    struct cursor cursor = {name, bytes + HEADER_BYTES, dtype};
    for (int32_t layer = 0; layer < m->num_layers; layer++) {
        const int32_t window = load_i32(cursor.next);
        if (window < 0) {
            return complain("%s: layer %d has a window of %d", name, layer, window);
        }
        m->layers[layer].window = window;
        cursor.next += 4;
    }
    if (!take(&cursor, "embedding", m->vocab_size, m->dim, &m->embedding)) {
        return false;
    }
    for (int32_t layer = 0; layer < m->num_layers; layer++) {
        if (!take_layer(&cursor, m, &m->layers[layer])) {
            return false;
        }
    }
    m->classifier = m->embedding;
    return take(&cursor, "final_norm", 1, m->dim, &m->final_norm);
}

bool pkvm_parse(const char *name, const unsigned char *bytes, size_t num_bytes, struct model *model)
{
    static const uint16_t one = 1;
    enum pkv_dtype dtype = PKV_F32;
    memset(model, 0, sizeof *model);
    if (*(const unsigned char *)&one != 1) {
        return complain("%s: little-endian weights, which this machine cannot use", name);
    }
    if (num_bytes < HEADER_BYTES || memcmp(bytes, PKVM_MAGIC, sizeof PKVM_MAGIC - 1) != 0) {
        return complain("%s: %zu bytes that do not begin as a model", name, num_bytes);
    }
    if (parse_header(name, bytes, model, &dtype) && check_size(name, model, dtype, num_bytes) &&
        model_create(name, model) && take_weights(name, bytes, dtype, model)) {
        return true;
    }
    model_free(model);
    return false;
}

bool pkvm_load(const char *path, struct model *model)
{
    unsigned char *bytes = NULL;
    size_t num_bytes = 0;
    memset(model, 0, sizeof *model);
    if (!read_file(path, MAX_FILE, &bytes, &num_bytes)) {
        return false;
    }
    if (!pkvm_parse(path, bytes, num_bytes, model)) {
        free(bytes);
        return false;
    }
    model->owner = bytes;
    model->release = free;
    return true;
}
