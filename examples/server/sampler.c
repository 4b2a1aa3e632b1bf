/* SPDX-License-Identifier: MIT */
#include "sampler.h"

#include <math.h>
#include <stdlib.h>

bool sampler_create(int32_t vocab_size, struct sampler *sampler)
{
    sampler->vocab_size = vocab_size;
    sampler->weights = calloc((size_t)vocab_size, sizeof *sampler->weights);
    sampler->order = calloc((size_t)vocab_size, sizeof *sampler->order);
    return sampler->weights != NULL && sampler->order != NULL;
}

void sampler_free(struct sampler *sampler)
{
    free(sampler->weights);
    free(sampler->order);
    *sampler = (struct sampler){0};
}

/* A number in [0, 1) from three others: splitmix64's finaliser (Steele, Lea and Flood, OOPSLA 2014)
 * after each. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
    x = (x ^ x >> 27) * 0x94d049bb133111ebU;
    return x ^ x >> 31;
}

static double draw(uint64_t seed, int32_t choice, int32_t index)
{
    const uint64_t bits = mix(mix(mix(seed) ^ (uint64_t)choice) ^ (uint64_t)index);
    return (double)(bits >> 11) * 0x1p-53;
}

/* The largest logit, the lowest id among equals; -1 when there is none or one is NaN. */
static int32_t largest(const float *logits, int32_t count)
{
    int32_t best = -1;
    for (int32_t i = 0; i < count; i++) {
        if (isnan(logits[i])) {
            return -1;
        }
        if (logits[i] > -INFINITY && (best < 0 || logits[i] > logits[best])) {
            best = i;
        }
    }
    return best;
}

/* order [count] is a binary heap by weights, the largest (lowest id among equals) at its root. */
static bool comes_first(const struct sampler *s, int32_t a, int32_t b)
{
    return s->weights[a] > s->weights[b] || (s->weights[a] == s->weights[b] && a < b);
}

static void sift_down(struct sampler *s, int32_t root, int32_t count)
{
    for (;;) {
        int32_t child = 2 * root + 1;
        if (child >= count) {
            return;
        }
        if (child + 1 < count && comes_first(s, s->order[child + 1], s->order[child])) {
            child++;
        }
        if (!comes_first(s, s->order[child], s->order[root])) {
            return;
        }
        const int32_t swapped = s->order[root];
        s->order[root] = s->order[child];
        s->order[child] = swapped;
        root = child;
    }
}

static void build_heap(struct sampler *s)
{
    for (int32_t i = 0; i < s->vocab_size; i++) {
        s->order[i] = i;
    }
    for (int32_t root = s->vocab_size / 2 - 1; root >= 0; root--) {
        sift_down(s, root, s->vocab_size);
    }
}

/* Takes the first of the heap's count; it stands at order[count - 1] then. */
static int32_t pop(struct sampler *s, int32_t count)
{
    const int32_t first = s->order[0];
    s->order[0] = s->order[count - 1];
    s->order[count - 1] = first;
    sift_down(s, 0, count - 1);
    return first;
}

/* Weights of softmax, the largest 1; their sum is returned. */
static double softmax(struct sampler *s, const float *logits, float top, float temperature)
{
    double sum = 0;
    for (int32_t i = 0; i < s->vocab_size; i++) {
        s->weights[i] = expf((logits[i] - top) / temperature);
        sum += (double)s->weights[i];
    }
    return sum;
}

/* The token at which the running sum of weights, in order of id, passes `target`. */
static int32_t pick_by_id(const struct sampler *s, double target, int32_t otherwise)
{
    double sum = 0;
    for (int32_t i = 0; i < s->vocab_size; i++) {
        sum += (double)s->weights[i];
        if (sum > target) {
            return i;
        }
    }
    return otherwise;
}

/* The same among the most likely tokens that reach top_p together, in falling order. */
static int32_t pick_nucleus(struct sampler *s, double sum, double top_p, double random)
{
    double kept = 0;
    int32_t count = s->vocab_size;
    build_heap(s);
    do {
        kept += (double)s->weights[pop(s, count)];
        count--;
    } while (kept < top_p * sum && count > 0);
    double passed = 0;
    int32_t i = s->vocab_size - 1;
    for (; i > count; i--) {
        passed += (double)s->weights[s->order[i]];
        if (passed > random * kept) {
            break;
        }
    }
    return s->order[i];
}

bool sampler_choose(struct sampler *sampler, const struct sampling *sampling, int32_t choice,
                    int32_t index, const float *logits, int32_t *token)
{
    const int32_t best = largest(logits, sampler->vocab_size);
    *token = best;
    if (best < 0 || sampling->temperature <= 0) {
        return best >= 0;
    }
    const double sum = softmax(sampler, logits, logits[best], sampling->temperature);
    const double random = draw(sampling->seed, choice, index);
    *token = sampling->top_p < 1 ? pick_nucleus(sampler, sum, (double)sampling->top_p, random)
                                 : pick_by_id(sampler, random * sum, best);
    return true;
}

void sampler_logprobs(struct sampler *sampler, const float *logits, struct job_piece *piece)
{
    const float top = logits[largest(logits, sampler->vocab_size)];
    const float log_sum = (float)log(softmax(sampler, logits, top, 1.0f));
    piece->logprob = logits[piece->token] - top - log_sum;
    if (piece->num_top == 0) {
        return;
    }
    for (int32_t i = 0; i < sampler->vocab_size; i++) {
        sampler->weights[i] = logits[i]; /* exp may have made unequal logits equal */
    }
    build_heap(sampler);
    if (piece->num_top > sampler->vocab_size) {
        piece->num_top = sampler->vocab_size;
    }
    for (int32_t i = 0; i < piece->num_top; i++) {
        piece->top[i].token = pop(sampler, sampler->vocab_size - i);
        piece->top[i].logprob = logits[piece->top[i].token] - top - log_sum;
    }
}
