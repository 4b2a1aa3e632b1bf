/* SPDX-License-Identifier: MIT
 *
 * forward.c: the dense part of the model in plain loops. Weights are the outer loop and tokens the
 * inner one, so that a step with many rows reads each weight once. */
#include "forward.h"

#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Independent sums, so that the compiler may use vectors without reordering anything. */
enum { LANES = 8 };

static float dot(const float *a, const float *b, int32_t count)
{
    float lanes[LANES] = {0};
    int32_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (int32_t lane = 0; lane < LANES; lane++) {
            lanes[lane] += a[i + lane] * b[i + lane];
        }
    }
    float sum = 0;
    for (int32_t lane = 0; lane < LANES; lane++) {
        sum += lanes[lane];
    }
    for (; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* out[t][r] = dot(weights[r], in[t]) */
static void multiply(float *out, const float *in, const float *weights, int32_t num_tokens,
                     int32_t rows, int32_t columns)
{
    for (int32_t r = 0; r < rows; r++) {
        const float *row = weights + (size_t)r * (size_t)columns;
        for (int32_t t = 0; t < num_tokens; t++) {
            out[(size_t)t * (size_t)rows + (size_t)r] =
                dot(row, in + (size_t)t * (size_t)columns, columns);
        }
    }
}

/* A layer's share of a tensor with rows x columns elements a layer. */
static const float *of_layer(const float *tensor, int32_t layer, int32_t rows, int32_t columns)
{
    return tensor + (size_t)layer * (size_t)rows * (size_t)columns;
}

static void rms_norm(float *out, const float *in, const float *weight, int32_t num_tokens,
                     int32_t dim)
{
    for (int32_t t = 0; t < num_tokens; t++) {
        const size_t base = (size_t)t * (size_t)dim;
        const float mean = dot(in + base, in + base, dim) / (float)dim;
        const float scale = 1.0f / sqrtf(mean + 1e-5f);
        for (int32_t i = 0; i < dim; i++) {
            out[base + (size_t)i] = in[base + (size_t)i] * scale * weight[i];
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
    const int32_t dim = m->dim;
    rms_norm(a->normed, a->x, of_layer(m->attn_norm, layer, 1, dim), n, dim);
    multiply(a->q, a->normed, of_layer(m->wq, layer, dim, dim), n, dim, dim);
    multiply(a->k, a->normed, of_layer(m->wk, layer, m->kv_dim, dim), n, m->kv_dim, dim);
    multiply(a->v, a->normed, of_layer(m->wv, layer, m->kv_dim, dim), n, m->kv_dim, dim);
    if (!attend(context, layer, a->q, a->k, a->v, a->attended)) {
        return false;
    }
    multiply(a->normed, a->attended, of_layer(m->wo, layer, dim, dim), n, dim, dim);
    add(a->x, a->normed, (size_t)n * (size_t)dim);
    return true;
}

static void feed_forward_block(const struct model *m, struct activations *a, int32_t n,
                               int32_t layer)
{
    const int32_t dim = m->dim;
    const int32_t hidden = m->hidden_dim;
    rms_norm(a->normed, a->x, of_layer(m->ffn_norm, layer, 1, dim), n, dim);
    multiply(a->gate, a->normed, of_layer(m->w1, layer, hidden, dim), n, hidden, dim);
    multiply(a->up, a->normed, of_layer(m->w3, layer, hidden, dim), n, hidden, dim);
    for (size_t i = 0; i < (size_t)n * (size_t)hidden; i++) {
        a->gate[i] = a->gate[i] / (1.0f + expf(-a->gate[i])) * a->up[i];
    }
    multiply(a->normed, a->gate, of_layer(m->w2, layer, dim, hidden), n, dim, hidden);
    add(a->x, a->normed, (size_t)n * (size_t)dim);
}

bool forward(const struct model *model, struct activations *a, const int32_t *tokens,
             int32_t num_tokens, attend_fn *attend, void *context)
{
    const size_t dim = (size_t)model->dim;
    for (int32_t t = 0; t < num_tokens; t++) {
        memcpy(a->x + (size_t)t * dim, model->embedding + (size_t)tokens[t] * dim,
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

bool next_token(const struct model *model, struct activations *a, int32_t index, int32_t *token,
                float *margin)
{
    const float *x = a->x + (size_t)index * (size_t)model->dim;
    rms_norm(a->normed, x, model->final_norm, 1, model->dim);
    multiply(a->logits, a->normed, model->classifier, 1, model->vocab_size, model->dim);
    int32_t best = 0;
    float second = -INFINITY;
    for (int32_t i = 0; i < model->vocab_size; i++) {
        if (!isfinite(a->logits[i])) {
            return complain("the model's logit of token %d is not finite", i);
        }
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

bool activations_create(const struct model *model, int32_t max_tokens, struct activations *a)
{
    memset(a, 0, sizeof *a);
    const size_t n = (size_t)max_tokens;
    a->max_tokens = max_tokens;
    a->x = calloc(n * (size_t)model->dim, sizeof(float));
    a->normed = calloc(n * (size_t)model->dim, sizeof(float));
    a->q = calloc(n * (size_t)model->dim, sizeof(float));
    a->k = calloc(n * (size_t)model->kv_dim, sizeof(float));
    a->v = calloc(n * (size_t)model->kv_dim, sizeof(float));
    a->attended = calloc(n * (size_t)model->dim, sizeof(float));
    a->gate = calloc(n * (size_t)model->hidden_dim, sizeof(float));
    a->up = calloc(n * (size_t)model->hidden_dim, sizeof(float));
    a->logits = calloc((size_t)model->vocab_size, sizeof(float));
    if (a->x && a->normed && a->q && a->k && a->v && a->attended && a->gate && a->up && a->logits) {
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
    memset(a, 0, sizeof *a);
}
