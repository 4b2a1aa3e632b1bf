/* SPDX-License-Identifier: MIT
 *
 * model.c: the shape of a model and its rope tables. */
#include "model.h"

#include "report.h"
#include "widen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool model_check_word(const char *name, const char *word, int32_t value, int32_t high)
{
    if (value < 1 || value > high) {
        return complain("%s: %s = %d, outside [1, %d]", name, word, value, high);
    }
    return true;
}

bool model_check_shape(const char *name, const struct model *m)
{
    if (!model_check_word(name, "dim", m->dim, MODEL_MAX_DIM) ||
        !model_check_word(name, "hidden_dim", m->hidden_dim, MODEL_MAX_DIM) ||
        !model_check_word(name, "n_layers", m->num_layers, MODEL_MAX_LAYERS) ||
        !model_check_word(name, "n_heads", m->num_heads, MODEL_MAX_DIM) ||
        !model_check_word(name, "n_kv_heads", m->kv_heads, m->num_heads) ||
        !model_check_word(name, "head_dim", m->head_dim, MODEL_MAX_DIM / m->num_heads) ||
        !model_check_word(name, "vocab_size", m->vocab_size, MODEL_MAX_VOCAB) ||
        !model_check_word(name, "seq_len", m->seq_len, MODEL_MAX_SEQ_LEN)) {
        return false;
    }
    if (m->head_dim % 2 != 0) {
        return complain("%s: heads of %d channels are not of even width", name, m->head_dim);
    }
    if (m->num_heads % m->kv_heads != 0) {
        return complain("%s: %d heads cannot share %d KV heads", name, m->num_heads, m->kv_heads);
    }
    if (m->begin_id >= m->vocab_size || m->end_id >= m->vocab_size) {
        return complain("%s: a vocabulary of %d has no begin and end", name, m->vocab_size);
    }
    if (!isfinite(m->norm_eps) || m->norm_eps < 0 || !isfinite(m->rope_theta) ||
        m->rope_theta < 1) {
        return complain("%s: epsilon %g or rope theta %g makes no sense", name, (double)m->norm_eps,
                        m->rope_theta);
    }
    return true;
}

/* The tables follow from two words of a header, so those of a short file could be of any size. */
static bool check_rope(const char *name, const struct model *m)
{
    const size_t bytes = (size_t)m->seq_len * (size_t)m->head_dim * sizeof(float);
    if (bytes > MODEL_MAX_ROPE_BYTES) {
        return complain("%s: %d positions of heads of %d channels take rope tables of %zu bytes, "
                        "above %d",
                        name, m->seq_len, m->head_dim, bytes, MODEL_MAX_ROPE_BYTES);
    }
    return true;
}

double model_frequency(const struct model *model, int32_t i)
{
    return pow(model->rope_theta, -2.0 * (double)i / (double)model->head_dim);
}

/* cos and sin of position * frequency, rounded once from double. */
void model_set_frequency(struct model *model, int32_t i, double frequency)
{
    const size_t width = (size_t)model->head_dim / 2;
    for (size_t position = 0; position < (size_t)model->seq_len; position++) {
        model->rope_cos[position * width + (size_t)i] = (float)cos((double)position * frequency);
        model->rope_sin[position * width + (size_t)i] = (float)sin((double)position * frequency);
    }
}

bool model_create(const char *name, struct model *model)
{
    if (!model_check_shape(name, model) || !check_rope(name, model)) {
        return false;
    }
    const size_t pairs = (size_t)model->seq_len * (size_t)model->head_dim / 2;
    float *cosines = calloc(pairs, sizeof *cosines);
    float *sines = calloc(pairs, sizeof *sines);
    struct model_layer *layers = calloc((size_t)model->num_layers, sizeof *layers);
    if (cosines == NULL || sines == NULL || layers == NULL) {
        free(cosines);
        free(sines);
        free(layers);
        return complain("%s: out of memory for %d layers and %d positions", name, model->num_layers,
                        model->seq_len);
    }
    model->q_dim = model->num_heads * model->head_dim;
    model->kv_dim = model->kv_heads * model->head_dim;
    model->rope_cos = cosines;
    model->rope_sin = sines;
    model->layers = layers;
    for (int32_t i = 0; i < model->head_dim / 2; i++) {
        model_set_frequency(model, i, model_frequency(model, i));
    }
    return true;
}

bool model_check_finite(const char *name, const char *weight, const struct weight *w)
{
    float *scratch = malloc((size_t)w->columns * sizeof *scratch);
    if (scratch == NULL) {
        return complain("%s: out of memory for a row of %d", name, w->columns);
    }
    bool ok = true;
    for (int32_t r = 0; ok && r < w->rows; r++) {
        const float *row = weight_row(w, r, scratch);
        for (int32_t c = 0; ok && c < w->columns; c++) {
            ok = isfinite(row[c]) || complain("%s: %s[%d][%d] is not finite", name, weight, r, c);
        }
    }
    free(scratch);
    return ok;
}

void model_set_window(struct model *model, int32_t window, int32_t kept_prefix)
{
    for (int32_t layer = 0; layer < model->num_layers; layer++) {
        model->layers[layer].window = window;
        model->layers[layer].kept_prefix = kept_prefix;
    }
}

const float *weight_row(const struct weight *w, int32_t row, float *scratch)
{
    const size_t first = (size_t)row * (size_t)w->columns;
    if (w->dtype == PKV_F32) {
        return (const float *)w->data + first;
    }
    const uint16_t *in = (const uint16_t *)w->data + first;
    if (w->dtype == PKV_F16) {
        widen_f16(in, w->columns, scratch);
    } else {
        widen_bf16(in, w->columns, scratch);
    }
    return scratch;
}

void model_free(struct model *model)
{
    if (model->release != NULL) {
        model->release(model->owner);
    }
    free(model->layers);
    free(model->rope_cos);
    free(model->rope_sin);
    memset(model, 0, sizeof *model);
}
