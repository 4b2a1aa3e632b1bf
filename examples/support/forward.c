/* SPDX-License-Identifier: MIT
 *
 * forward.c: the dense part of the model, on the products of matrix.h: a step with many rows reads
 * each weight once. */
#include "forward.h"

#include "matrix.h"
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* out[t][r] = dot(row r of the weight, in[t]) */
static void multiply(struct activations *a, float *out, const float *in, const struct weight *w,
                     int32_t num_tokens)
{
    matrix_multiply(out, in, w, num_tokens, a->threads, a->scratch);
}

static void rms_norm(struct activations *a, float *out, const float *in, const struct weight *w,
                     int32_t num_tokens, float eps)
{
    const float *weight = weight_row(w, 0, a->scratch);
    const size_t dim = (size_t)w->columns;
    for (size_t t = 0; t < (size_t)num_tokens; t++) {
        const float *x = in + t * dim;
        const float mean = matrix_dot(x, x, w->columns) / (float)w->columns;
        const float scale = 1.0f / sqrtf(mean + eps);
        for (size_t i = 0; i < dim; i++) {
            out[t * dim + i] = x[i] * scale * weight[i];
        }
    }
}

static void add(float *x, const float *y, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        x[i] += y[i];
    }
}

static bool attention_block(const struct model *m, struct activations *a, int32_t n, int32_t layer,
                            attend_fn *attend, void *context)
{
    const struct model_layer *l = &m->layers[layer];
    rms_norm(a, a->normed, a->x, &l->attn_norm, n, m->norm_eps);
    multiply(a, a->q, a->normed, &l->wq, n);
    multiply(a, a->k, a->normed, &l->wk, n);
    multiply(a, a->v, a->normed, &l->wv, n);
    if (!attend(context, layer, a->q, a->k, a->v, a->attended)) {
        return false;
    }
    multiply(a, a->normed, a->attended, &l->wo, n);
    add(a->x, a->normed, (size_t)n * (size_t)m->dim);
    return true;
}

static void feed_forward_block(const struct model *m, struct activations *a, int32_t n,
                               int32_t layer)
{
    const struct model_layer *l = &m->layers[layer];
    rms_norm(a, a->normed, a->x, &l->ffn_norm, n, m->norm_eps);
    multiply(a, a->gate, a->normed, &l->w1, n);
    multiply(a, a->up, a->normed, &l->w3, n);
    for (size_t i = 0; i < (size_t)n * (size_t)m->hidden_dim; i++) {
        a->gate[i] = a->gate[i] / (1.0f + expf(-a->gate[i])) * a->up[i];
    }
    multiply(a, a->normed, a->gate, &l->w2, n);
    add(a->x, a->normed, (size_t)n * (size_t)m->dim);
}

bool forward(const struct model *model, struct activations *a, const int32_t *tokens,
             int32_t num_tokens, attend_fn *attend, void *context)
{
    const size_t dim = (size_t)model->dim;
    for (int32_t t = 0; t < num_tokens; t++) {
        memcpy(a->x + (size_t)t * dim, weight_row(&model->embedding, tokens[t], a->scratch),
               dim * sizeof(float));
    }
    for (int32_t layer = 0; layer < model->num_layers; layer++) {
        if (!attention_block(model, a, num_tokens, layer, attend, context)) {
            return false;
        }
        feed_forward_block(model, a, num_tokens, layer);
    }
    return true;
}

void logits_of_rows(const struct model *model, struct activations *a, const int32_t *rows,
                    int32_t num_rows, float *logits)
{
    const size_t dim = (size_t)model->dim;
    for (int32_t i = 0; i < num_rows; i++) {
        rms_norm(a, a->normed + (size_t)i * dim, a->x + (size_t)rows[i] * dim, &model->final_norm,
                 1, model->norm_eps);
    }
    multiply(a, logits, a->normed, &model->classifier, num_rows);
}

bool logits_of(const struct model *model, struct activations *a, int32_t index)
{
    logits_of_rows(model, a, &index, 1, a->logits);
    for (int32_t i = 0; i < model->vocab_size; i++) {
        if (!isfinite(a->logits[i])) {
            return complain("the model's logit of token %d is not finite", i);
        }
    }
    return true;
}

bool next_token(const struct model *model, struct activations *a, int32_t index, int32_t *token,
                float *margin)
{
    if (!logits_of(model, a, index)) {
        return false;
    }
    int32_t best = 0;
    float second = -INFINITY;
    for (int32_t i = 0; i < model->vocab_size; i++) {
        if (a->logits[i] > a->logits[best]) {
            second = a->logits[best];
            best = i;
        } else if (i != best && a->logits[i] > second) {
            second = a->logits[i];
        }
    }
    *token = best;
    if (margin != NULL) {
        *margin = a->logits[best] - second;
    }
    return true;
}

static int32_t longest_row(const struct model *m)
{
    const int32_t inner = m->q_dim > m->hidden_dim ? m->q_dim : m->hidden_dim;
    return m->dim > inner ? m->dim : inner;
}

bool activations_create(const struct model *model, int32_t max_tokens, int32_t threads,
                        struct activations *a)
{
    memset(a, 0, sizeof *a);
    a->threads = matrix_threads(threads);
    const size_t n = (size_t)max_tokens;
    a->max_tokens = max_tokens;
    a->x = calloc(n * (size_t)model->dim, sizeof(float));
    a->normed = calloc(n * (size_t)model->dim, sizeof(float));
    a->q = calloc(n * (size_t)model->q_dim, sizeof(float));
    a->k = calloc(n * (size_t)model->kv_dim, sizeof(float));
    a->v = calloc(n * (size_t)model->kv_dim, sizeof(float));
    a->attended = calloc(n * (size_t)model->q_dim, sizeof(float));
    a->gate = calloc(n * (size_t)model->hidden_dim, sizeof(float));
    a->up = calloc(n * (size_t)model->hidden_dim, sizeof(float));
    a->logits = calloc((size_t)model->vocab_size, sizeof(float));
    a->scratch = calloc(matrix_scratch(longest_row(model), a->threads), sizeof(float));
    if (a->x && a->normed && a->q && a->k && a->v && a->attended && a->gate && a->up && a->logits &&
        a->scratch) {
        return true;
    }
    activations_free(a);
    return complain("out of memory for the activations of %d tokens", max_tokens);
}

void activations_free(struct activations *a)
{
    free(a->x);
    free(a->normed);
    free(a->q);
    free(a->k);
    free(a->v);
    free(a->attended);
    free(a->gate);
    free(a->up);
    free(a->logits);
    free(a->scratch);
    memset(a, 0, sizeof *a);
}
