/* SPDX-License-Identifier: MIT
 *
 * naive.c: attention by the book. Keys and queries are rotated, then the query at position f sees
 * key j when f - window < j <= f, or when j < kept_prefix; weights are exp(x_j - max) / sum, in
 * double. */
#include "naive.h"

#include "forward.h"
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One sequence: k and v are [num_layers][capacity][kv_dim]. */
struct dense_cache {
    const struct model *model;
    const struct model_layer *layer; /* at hand, and the position of the token */
    int32_t position;
    int32_t capacity;
    float *k;
    float *v;
    double *weights; /* [capacity] */
    float *q;        /* [q_dim], the rotated query */
};

/* Rope on adjacent channels: pair i of each head turns by position * 10000^(-2i / head_dim). */
static void rotate(const struct model *m, float *x, int32_t position, int32_t heads)
{
    const int32_t width = m->head_dim / 2;
    const float *cosines = m->rope_cos + (size_t)position * (size_t)width;
    const float *sines = m->rope_sin + (size_t)position * (size_t)width;
    for (int32_t pair = 0; pair < heads * width; pair++) {
        float *at = x + (size_t)pair * 2;
        const float c = cosines[pair % width];
        const float s = sines[pair % width];
        const float real = at[0];
        const float imaginary = at[1];
        at[0] = real * c - imaginary * s;
        at[1] = real * s + imaginary * c;
    }
}

static bool sees(const struct dense_cache *cache, int32_t j)
{
    const struct model_layer *l = cache->layer;
    return l->window == 0 || j > cache->position - l->window || j < l->kept_prefix;
}

/* Fills cache->weights for the keys 0..position of one head, 0 where a key is not seen. */
static void softmax_scores(struct dense_cache *cache, const float *q, const float *keys)
{
    const int32_t width = cache->model->head_dim;
    const size_t stride = (size_t)cache->model->kv_dim;
    double highest = -INFINITY;
    for (int32_t j = 0; j <= cache->position; j++) {
        double x = 0;
        for (int32_t i = 0; i < width; i++) {
            x += (double)q[i] * (double)keys[(size_t)j * stride + (size_t)i];
        }
        cache->weights[j] = x / sqrt((double)width);
        if (sees(cache, j) && cache->weights[j] > highest) {
            highest = cache->weights[j];
        }
    }
    double sum = 0;
    for (int32_t j = 0; j <= cache->position; j++) {
        cache->weights[j] = sees(cache, j) ? exp(cache->weights[j] - highest) : 0;
        sum += cache->weights[j];
    }
    for (int32_t j = 0; j <= cache->position; j++) {
        cache->weights[j] /= sum;
    }
}

static bool attend_dense(void *context, int32_t layer, const float *q, const float *k,
                         const float *v, float *out)
{
    struct dense_cache *cache = context;
    const struct model *m = cache->model;
    const size_t kv_dim = (size_t)m->kv_dim;
    const size_t base = (size_t)layer * (size_t)cache->capacity * kv_dim;
    const size_t cell = base + (size_t)cache->position * kv_dim;
    cache->layer = &m->layers[layer];
    memcpy(cache->k + cell, k, kv_dim * sizeof *k);
    memcpy(cache->v + cell, v, kv_dim * sizeof *v);
    memcpy(cache->q, q, (size_t)m->q_dim * sizeof *q);
    rotate(m, cache->k + cell, cache->position, m->kv_heads);
    rotate(m, cache->q, cache->position, m->num_heads);
    for (int32_t head = 0; head < m->num_heads; head++) {
        const size_t channel = (size_t)(head / (m->num_heads / m->kv_heads) * m->head_dim);
        const size_t row = (size_t)(head * m->head_dim);
        softmax_scores(cache, cache->q + row, cache->k + base + channel);
        for (size_t i = 0; i < (size_t)m->head_dim; i++) {
            double sum = 0;
            for (size_t j = 0; j <= (size_t)cache->position; j++) {
                sum += cache->weights[j] * (double)cache->v[base + channel + j * kv_dim + i];
            }
            out[row + i] = (float)sum;
        }
    }
    return true;
}

static bool decode(struct dense_cache *cache, struct activations *a, struct request *request,
                   float *margin)
{
    const struct model *m = cache->model;
    for (cache->position = 0; !request->ended; cache->position++) {
        const int32_t *token = &request->tokens[cache->position];
        if (!forward(m, a, token, 1, attend_dense, cache)) {
            return false;
        }
        if (cache->position + 1 < request->num_tokens) {
            continue;
        }
        int32_t next = 0;
        float lead = 0;
        if (!next_token(m, a, 0, &next, &lead)) {
            return false;
        }
        if (lead < *margin) {
            *margin = lead;
        }
        request_take(m, request, next);
    }
    return true;
}

bool naive_decode(const struct model *model, struct request_list *requests, float *margin)
{
    if (model->rotary_mode != PKV_ROTARY_INTERLEAVED || model->layers[0].q_norm.data != NULL) {
        return complain("a naive decode has no norms of heads and rope on adjacent channels only");
    }
    struct dense_cache cache = {.model = model, .capacity = request_longest(requests)};
    const size_t cells = (size_t)model->num_layers * (size_t)cache.capacity;
    struct activations a = {0};
    cache.k = calloc(cells, (size_t)model->kv_dim * sizeof(float));
    cache.v = calloc(cells, (size_t)model->kv_dim * sizeof(float));
    cache.weights = calloc((size_t)cache.capacity, sizeof(double));
    cache.q = calloc((size_t)model->q_dim, sizeof(float));
    bool ok = cache.k != NULL && cache.v != NULL && cache.weights != NULL && cache.q != NULL;
    if (!ok) {
        complain("out of memory for a dense cache of %d tokens", cache.capacity);
    }
    ok = ok && activations_create(model, 1, 1, &a);
    *margin = INFINITY;
    for (int32_t r = 0; ok && r < requests->count; r++) {
        ok = decode(&cache, &a, &requests->items[r], margin);
    }
    activations_free(&a);
    free(cache.k);
    free(cache.v);
    free(cache.weights);
    free(cache.q);
    return ok;
}
