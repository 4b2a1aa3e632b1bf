/* SPDX-License-Identifier: MIT
 *
 * hybrid.c: the weights and the recurrence. A state is f32:
 *
 *   inputs [CONV_WIDTH - 1][num_channels]              of the last tokens, the oldest first
 *   S      [kv_heads][head_dim of v][head_dim of k] */
#include "hybrid.h"

#include "dice.h"
#include "matrix.h"
#include "random.h"
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 64, HEADS = 4, KV_HEADS = 2, VOCABULARY = 96, POSITIONS = 512, MAX_CHANNELS = 256 };

/* --- weights */

static float *fill(uint64_t *seed, float **next, size_t count, float bound)
{
    float *first = *next;
    for (size_t i = 0; i < count; i++) {
        first[i] = bound * dice_uniform(seed);
    }
    *next = first + count;
    return first;
}

/* As in a made-up model: a product has the variance of its input. */
static bool make_recurrences(uint64_t seed, struct hybrid *h)
{
    const size_t gate = (size_t)h->model.kv_heads * (size_t)h->model.dim;
    const size_t conv = (size_t)h->num_channels * CONV_WIDTH;
    h->weights = malloc(HYBRID_STATES * (2 * gate + conv) * sizeof *h->weights);
    if (h->weights == NULL) {
        return complain("out of memory for the weights of recurrent layers");
    }
    float *next = h->weights;
    for (struct recurrence *r = h->recurrences; r < h->recurrences + HYBRID_STATES; r++) {
        r->decay = fill(&seed, &next, gate, sqrtf(3.0f / (float)h->model.dim));
        r->write = fill(&seed, &next, gate, sqrtf(3.0f / (float)h->model.dim));
        r->conv = fill(&seed, &next, conv, sqrtf(3.0f / CONV_WIDTH));
    }
    return true;
}

bool hybrid_create(uint64_t seed, int32_t window, int32_t kept_prefix, struct hybrid *h)
{
    *h = (struct hybrid){.model = {.dim = DIM,
                                   .hidden_dim = DIM,
                                   .num_layers = HYBRID_LAYERS,
                                   .num_heads = HEADS,
                                   .kv_heads = KV_HEADS,
                                   .vocab_size = VOCABULARY,
                                   .seq_len = POSITIONS}};
    struct model *m = &h->model;
    if (!model_random(seed, m)) {
        return false;
    }
    m->layers[HYBRID_LAYERS - 1].window = window;
    m->layers[HYBRID_LAYERS - 1].kept_prefix = kept_prefix;
    h->num_channels = m->q_dim + 2 * m->kv_dim;
    const size_t num_inputs = (CONV_WIDTH - 1) * (size_t)h->num_channels;
    h->state_bytes = (num_inputs + (size_t)(m->kv_dim * m->head_dim)) * sizeof(float);
    if (!make_recurrences(dice_mix(seed, 1), h)) {
        hybrid_free(h);
        return false;
    }
    return true;
}

void hybrid_free(struct hybrid *h)
{
    model_free(&h->model);
    free(h->weights);
    *h = (struct hybrid){0};
}

int32_t hybrid_recurrence(int32_t layer)
{
    return layer % 2 == 0 ? layer / 2 : -1;
}

/* --- the recurrence */

/* y [num_channels] of one token; the inputs move on by it. */
static void convolve(const struct hybrid *h, const float *conv, float *inputs,
                     const struct recurrent_input *in, float *y)
{
    const size_t q_dim = (size_t)h->model.q_dim;
    const size_t kv_dim = (size_t)h->model.kv_dim;
    const size_t num_channels = (size_t)h->num_channels;
    float x[MAX_CHANNELS];
    memcpy(x, in->q, q_dim * sizeof *x);
    memcpy(x + q_dim, in->k, kv_dim * sizeof *x);
    memcpy(x + q_dim + kv_dim, in->v, kv_dim * sizeof *x);
    for (size_t c = 0; c < num_channels; c++) {
        float sum = conv[c * CONV_WIDTH + CONV_WIDTH - 1] * x[c];
        for (size_t i = 0; i + 1 < CONV_WIDTH; i++) {
            sum += conv[c * CONV_WIDTH + i] * inputs[i * num_channels + c];
        }
        y[c] = sum / (1.0f + expf(-sum));
    }
    memmove(inputs, inputs + num_channels, (CONV_WIDTH - 2) * num_channels * sizeof *inputs);
    memcpy(inputs + (CONV_WIDTH - 2) * num_channels, x, num_channels * sizeof *inputs);
}

/* Heads of length 1. */
static void normalise(float *x, int32_t num_heads, int32_t width)
{
    for (float *head = x; head < x + (size_t)num_heads * (size_t)width; head += width) {
        const float scale = 1.0f / sqrtf(matrix_dot(head, head, width) + 1e-6f);
        for (int32_t i = 0; i < width; i++) {
            head[i] *= scale;
        }
    }
}

float hybrid_gate(const struct hybrid *h, const float *weights, int32_t head, const float *normed,
                  float bias)
{
    const size_t row = (size_t)head * (size_t)h->model.dim;
    return 1.0f / (1.0f + expf(-(matrix_dot(weights + row, normed, h->model.dim) + bias)));
}

/* One KV head: row by row of S, whose product with k is that row's alone. */
static void update_head(float *s, int32_t width, float decay, float beta, const float *k,
                        const float *v)
{
    for (int32_t r = 0; r < width; r++) {
        float *row = s + (size_t)r * (size_t)width;
        const float known = matrix_dot(row, k, width);
        for (int32_t c = 0; c < width; c++) {
            row[c] = decay * (row[c] - beta * known * k[c]) + beta * v[r] * k[c];
        }
    }
}

void hybrid_update(const struct hybrid *h, int32_t recurrence, float *state,
                   const struct recurrent_input *in, float *out)
{
    const struct model *m = &h->model;
    const struct recurrence *r = &h->recurrences[recurrence];
    const int32_t width = m->head_dim;
    const size_t head_size = (size_t)(width * width);
    float y[MAX_CHANNELS];
    float *s = state + (CONV_WIDTH - 1) * (size_t)h->num_channels;
    convolve(h, r->conv, state, in, y);
    normalise(y, m->num_heads + m->kv_heads, width);
    for (int32_t head = 0; head < m->kv_heads; head++) {
        const float *k = y + m->q_dim + head * width;
        update_head(s + (size_t)head * head_size, width,
                    hybrid_gate(h, r->decay, head, in->normed, DECAY_BIAS),
                    hybrid_gate(h, r->write, head, in->normed, 0), k, k + m->kv_dim);
    }
    for (int32_t i = 0; i < m->q_dim; i++) {
        const int32_t head = i / width;
        const size_t kv_head = (size_t)(head / (m->num_heads / m->kv_heads));
        const float *row = s + kv_head * head_size + (size_t)(i % width * width);
        out[i] = matrix_dot(row, y + (size_t)(head * width), width);
    }
}

uint64_t hybrid_hash(const struct hybrid *h, const void *state)
{
    uint64_t hash = 0;
    const unsigned char *bytes = state;
    for (size_t at = 0; at + sizeof hash <= h->state_bytes; at += sizeof hash) {
        uint64_t word;
        memcpy(&word, bytes + at, sizeof word);
        hash = dice_mix(hash, word);
    }
    return hash;
}
