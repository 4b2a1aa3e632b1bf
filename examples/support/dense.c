/* SPDX-License-Identifier: MIT
 *
 * dense.c: attention by the book. Keys and queries are rotated, then the query at position f sees
 * key j when f - window < j <= f, or when j < kept_prefix; weights are exp(x_j - max) / sum, in
 * double. */
#include "dense.h"

#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

bool dense_attend(void *context, int32_t layer, const float *q, const float *k, const float *v,
                  float *out)
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

bool dense_create(const struct model *model, int32_t capacity, struct dense_cache *cache)
{
    *cache = (struct dense_cache){.model = model, .capacity = capacity};
    if (model->rotary_mode != PKV_ROTARY_INTERLEAVED || model->layers[0].q_norm.data != NULL) {
        return complain("a naive decode has no norms of heads and rope on adjacent channels only");
    }
    const size_t cells = (size_t)model->num_layers * (size_t)capacity;
    cache->k = calloc(cells, (size_t)model->kv_dim * sizeof(float));
    cache->v = calloc(cells, (size_t)model->kv_dim * sizeof(float));
    cache->weights = calloc((size_t)capacity, sizeof(double));
    cache->q = calloc((size_t)model->q_dim, sizeof(float));
    if (cache->k != NULL && cache->v != NULL && cache->weights != NULL && cache->q != NULL) {
        return true;
    }
    dense_free(cache);
    return complain("out of memory for a dense cache of %d tokens", capacity);
}

void dense_free(struct dense_cache *cache)
{
    free(cache->k);
    free(cache->v);
    free(cache->weights);
    free(cache->q);
    *cache = (struct dense_cache){0};
}
