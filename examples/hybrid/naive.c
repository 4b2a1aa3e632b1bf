/* SPDX-License-Identifier: MIT
 *
 * naive.c: the formulas of hybrid.h, written down once more. */
#include "naive.h"

#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WIDTH = 32, MAX_CHANNELS = 256 };

bool naive_create(const struct hybrid *h, int32_t capacity, struct naive *naive)
{
    const size_t inputs = (size_t)capacity * (size_t)h->num_channels;
    const size_t cells = (size_t)(h->model.kv_dim * h->model.head_dim);
    *naive = (struct naive){.hybrid = h};
    naive->inputs = calloc(HYBRID_STATES * inputs, sizeof *naive->inputs);
    naive->matrices = calloc(HYBRID_STATES * cells, sizeof *naive->matrices);
    if (naive->inputs == NULL || naive->matrices == NULL) {
        naive_free(naive);
        return complain("out of memory for a naive computation of %d tokens", capacity);
    }
    if (!dense_create(&h->model, capacity, &naive->attention) ||
        !activations_create(&h->model, 1, 1, &naive->activations)) {
        naive_free(naive);
        return false;
    }
    return true;
}

void naive_free(struct naive *naive)
{
    free(naive->inputs);
    free(naive->matrices);
    dense_free(&naive->attention);
    activations_free(&naive->activations);
    *naive = (struct naive){0};
}

/* --- a token in a recurrent layer */

static float *input_at(const struct naive *naive, int32_t recurrence, int32_t position)
{
    const size_t row = (size_t)recurrence * (size_t)naive->attention.capacity + (size_t)position;
    return naive->inputs + row * (size_t)naive->hybrid->num_channels;
}

static void convolve(const struct naive *naive, int32_t recurrence, double *y)
{
    const struct hybrid *h = naive->hybrid;
    const float *conv = h->recurrences[recurrence].conv;
    for (int32_t c = 0; c < h->num_channels; c++) {
        double sum = 0;
        for (int32_t i = 0; i < CONV_WIDTH; i++) {
            const int32_t position = naive->attention.position - CONV_WIDTH + 1 + i;
            if (position >= 0) {
                sum += (double)conv[c * CONV_WIDTH + i] *
                       (double)input_at(naive, recurrence, position)[c];
            }
        }
        y[c] = sum / (1 + exp(-sum));
    }
}

static void normalise(double *head, int32_t width)
{
    double sum = 1e-6;
    for (int32_t i = 0; i < width; i++) {
        sum += head[i] * head[i];
    }
    for (int32_t i = 0; i < width; i++) {
        head[i] /= sqrt(sum);
    }
}

/* s = s * transition + beta * v k^T */
static void multiply_head(double *s, int32_t width, double decay, double beta, const double *k,
                          const double *v)
{
    double transition[MAX_WIDTH][MAX_WIDTH];
    double row[MAX_WIDTH];
    for (int32_t i = 0; i < width; i++) {
        for (int32_t j = 0; j < width; j++) {
            transition[i][j] = decay * ((i == j ? 1.0 : 0.0) - beta * k[i] * k[j]);
        }
    }
    for (int32_t r = 0; r < width; r++) {
        memcpy(row, s + r * width, (size_t)width * sizeof *row);
        for (int32_t j = 0; j < width; j++) {
            double sum = beta * v[r] * k[j];
            for (int32_t i = 0; i < width; i++) {
                sum += row[i] * transition[i][j];
            }
            s[r * width + j] = sum;
        }
    }
}

static void read_head(const double *s, int32_t width, const double *q, float *out)
{
    for (int32_t r = 0; r < width; r++) {
        double sum = 0;
        for (int32_t i = 0; i < width; i++) {
            sum += s[r * width + i] * q[i];
        }
        out[r] = (float)sum;
    }
}

static void recur(struct naive *naive, int32_t recurrence, float *out)
{
    const struct hybrid *h = naive->hybrid;
    const struct model *m = &h->model;
    const struct recurrence *r = &h->recurrences[recurrence];
    const int32_t width = m->head_dim;
    const int32_t sharing = m->num_heads / m->kv_heads;
    double y[MAX_CHANNELS];
    convolve(naive, recurrence, y);
    for (int32_t head = 0; head < m->num_heads + m->kv_heads; head++) {
        normalise(y + head * width, width);
    }
    for (int32_t head = 0; head < m->kv_heads; head++) {
        double *s = naive->matrices + (recurrence * m->kv_heads + head) * width * width;
        const double *k = y + m->q_dim + head * width;
        const float *normed = naive->activations.normed;
        multiply_head(s, width, (double)hybrid_gate(h, r->decay, head, normed, DECAY_BIAS),
                      (double)hybrid_gate(h, r->write, head, normed, 0), k, k + m->kv_dim);
        for (int32_t i = head * sharing; i < (head + 1) * sharing; i++) {
            read_head(s, width, y + i * width, out + i * width);
        }
    }
}

static bool attend(void *context, int32_t layer, const float *q, const float *k, const float *v,
                   float *out)
{
    struct naive *naive = context;
    const struct model *m = &naive->hybrid->model;
    const int32_t recurrence = hybrid_recurrence(layer);
    if (recurrence < 0) {
        return dense_attend(&naive->attention, layer, q, k, v, out);
    }
    float *input = input_at(naive, recurrence, naive->attention.position);
    memcpy(input, q, (size_t)m->q_dim * sizeof *input);
    memcpy(input + m->q_dim, k, (size_t)m->kv_dim * sizeof *input);
    memcpy(input + m->q_dim + m->kv_dim, v, (size_t)m->kv_dim * sizeof *input);
    recur(naive, recurrence, out);
    return true;
}

bool naive_continue(struct naive *naive, const struct sampler *sampler, float min_lead,
                    int32_t *tokens, int32_t num_prompt, int32_t num_tokens, float *leads,
                    float *smallest)
{
    const struct model *m = &naive->hybrid->model;
    struct activations *a = &naive->activations;
    memset(naive->matrices, 0,
           (size_t)(HYBRID_STATES * m->kv_dim * m->head_dim) * sizeof *naive->matrices);
    *smallest = INFINITY;
    for (int32_t at = 0; at + 1 < num_tokens && *smallest >= min_lead; at++) {
        naive->attention.position = at;
        if (!forward(m, a, tokens + at, 1, attend, naive)) {
            return false;
        }
        if (at + 1 >= num_prompt) {
            float *lead = &leads[at + 1 - num_prompt];
            if (!logits_of(m, a, 0)) {
                return false;
            }
            tokens[at + 1] = sampler_choose(sampler, a->logits, m->vocab_size, at + 1, lead);
            *smallest = *lead < *smallest ? *lead : *smallest;
        }
    }
    return true;
}
