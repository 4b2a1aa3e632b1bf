/* SPDX-License-Identifier: MIT
 *
 * checkpoint.c: the file as it should be, compared with the file as it is.
 *
 *   file size = 28 + 4 * (sum of the tensors' elements, and the rope tables where they are kept)
 *
 * The rope tables of old files are skipped: they follow from seq_len and head_dim. */
#include "checkpoint.h"

#include "report.h"
#include "tensors.h"
#include "tokenizer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_WORDS = 7, HEADER_BYTES = 4 * HEADER_WORDS };

/* The seven words into the model, with what this format does not say. */
static bool parse_header(const char *path, const unsigned char *header, struct model *m,
                         bool *own_classifier)
{
    int32_t words[HEADER_WORDS];
    for (int i = 0; i < HEADER_WORDS; i++) {
        words[i] = load_i32(header + 4 * i);
    }
    *own_classifier = words[5] < 0;
    *m = (struct model){
        .dim = words[0],
        .hidden_dim = words[1],
        .num_layers = words[2],
        .num_heads = words[3],
        .kv_heads = words[4],
        .vocab_size = words[5] < 0 && words[5] > INT32_MIN ? -words[5] : words[5],
        .seq_len = words[6],
        .begin_id = TOKEN_BEGIN,
        .end_id = TOKEN_END,
        .norm_eps = 1e-5f,
        .rope_theta = 10000,
        .rotary_mode = PKV_ROTARY_INTERLEAVED,
    };
    if (!model_check_word(path, "dim", m->dim, MODEL_MAX_DIM) ||
        !model_check_word(path, "n_heads", m->num_heads, m->dim)) {
        return false;
    }
    if (m->dim % m->num_heads != 0) {
        return complain("%s: dim %d does not give %d heads of even width", path, m->dim,
                        m->num_heads);
    }
    m->head_dim = m->dim / m->num_heads;
    return model_check_shape(path, m);
}

/* A file between its header and its weights. */
struct input {
    const char *path;
    FILE *file;
    size_t num_weights;
    size_t num_rope; /* elements of rope tables to skip, before the classifier */
    float *weights;
};

/* Compares the size that follows from the header with the file's. The shape is within bounds, so
 * the rope tables cannot pass size_t. */
static bool check_size(struct input *in, const struct model *m, bool own_classifier)
{
    const size_t tables = (size_t)m->seq_len * (size_t)m->head_dim;
    if (!tensors_count(m, own_classifier, &in->num_weights) ||
        in->num_weights > (SIZE_MAX - HEADER_BYTES) / sizeof(float) - tables) {
        return complain("%s: the header names more weights than memory can hold", in->path);
    }
    if (fseek(in->file, 0, SEEK_END) != 0) {
        return complain("%s: %s", in->path, strerror(errno));
    }
    const long end = ftell(in->file);
    if (end < 0 || fseek(in->file, HEADER_BYTES, SEEK_SET) != 0) {
        return complain("%s: %s", in->path, strerror(errno));
    }
    const size_t size = (size_t)end;
    const size_t plain = HEADER_BYTES + in->num_weights * sizeof(float);
    const size_t legacy = plain + tables * sizeof(float);
    if (size != plain && size != legacy) {
        return complain("%s: %zu bytes, but the header makes it %zu (or %zu without rope tables)",
                        in->path, size, legacy, plain);
    }
    in->num_rope = size == legacy ? tables : 0;
    return true;
}

/* Reads `count` weights at `first`, in pieces, and refuses one that is not finite. */
static bool read_weights(struct input *in, size_t first, size_t count)
{
    unsigned char piece[4096];
    for (size_t done = 0; done < count;) {
        size_t now = count - done;
        if (now > sizeof piece / 4) {
            now = sizeof piece / 4;
        }
        if (fread(piece, 4, now, in->file) != now) {
            return complain("%s: ends before its last weight", in->path);
        }
        for (size_t i = 0; i < now; i++) {
            const float weight = load_f32(piece + 4 * i);
            if (!isfinite(weight)) {
                return complain("%s: weight %zu is not finite", in->path, first + done + i);
            }
            in->weights[first + done + i] = weight;
        }
        done += now;
    }
    return true;
}

/* All weights into an array that the model owns. */
static bool read_all(struct input *in, struct model *m, bool own_classifier)
{
    in->weights = malloc(in->num_weights * sizeof *in->weights);
    if (in->weights == NULL) {
        return complain("%s: out of memory for %zu weights", in->path, in->num_weights);
    }
    m->owner = in->weights;
    m->release = free;
    tensors_place(m, own_classifier, in->weights);
    const size_t tail = own_classifier ? (size_t)m->vocab_size * (size_t)m->dim : 0;
    const size_t head = in->num_weights - tail;
    if (!read_weights(in, 0, head)) {
        return false;
    }
    const size_t behind = HEADER_BYTES + (head + in->num_rope) * sizeof(float);
    if (tail > 0 && fseek(in->file, (long)behind, SEEK_SET) != 0) {
        return complain("%s: %s", in->path, strerror(errno));
    }
    return read_weights(in, head, tail);
}

static bool load_from(struct input *in, struct model *m)
{
    unsigned char header[HEADER_BYTES];
    const size_t got = fread(header, 1, sizeof header, in->file);
    if (ferror(in->file)) {
        return complain("%s: %s", in->path, strerror(errno));
    }
    if (got != sizeof header) {
        return complain("%s: %zu bytes are no checkpoint; its header alone has %d", in->path, got,
                        HEADER_BYTES);
    }
    bool own_classifier = false;
    return parse_header(in->path, header, m, &own_classifier) &&
           check_size(in, m, own_classifier) && model_create(in->path, m) &&
           read_all(in, m, own_classifier);
}

bool checkpoint_load(const char *path, struct model *model)
{
    memset(model, 0, sizeof *model);
    struct input in = {.path = path, .file = fopen(path, "rb")};
    if (in.file == NULL) {
        return complain("%s: %s", path, strerror(errno));
    }
    const bool ok = load_from(&in, model);
    fclose(in.file);
    if (!ok) {
        model_free(model);
    }
    return ok;
}
