/* SPDX-License-Identifier: MIT
 *
 * layers.c: a row's states, token by token. The state at hand is that after token `at` of the step
 * (or before the row's first one): only a token whose parent is another one loads it anew. */
#include "layers.h"

#include "report.h"

#include <stdlib.h>
#include <string.h>

bool layers_create(const struct hybrid *hybrid, const struct activations *activations,
                   pkv_cache *cache, struct layers *layers)
{
    *layers = (struct layers){.hybrid = hybrid, .activations = activations, .cache = cache};
    layers->state = malloc(hybrid->state_bytes);
    return layers->state != NULL ||
           complain("out of memory for a state of %zu bytes", hybrid->state_bytes);
}

void layers_free(struct layers *layers)
{
    free(layers->state);
    *layers = (struct layers){0};
}

bool layers_open(struct layers *layers, pkv_step step, int32_t state_group)
{
    layers->step = step;
    layers->states = (struct pkv_state_view){.size = sizeof layers->states};
    return pkv_step_describe_states(layers->cache, step, state_group, &layers->states) == PKV_OK ||
           complain("states of a step: %s", pkv_last_error());
}

static void *state_at(const struct layers *layers, int32_t recurrence, int32_t state)
{
    const struct pkv_state_view *view = &layers->states;
    return (unsigned char *)view->first_layer + (size_t)recurrence * view->layer_stride_bytes +
           (size_t)state * view->state_stride_bytes;
}

struct whole_entry layers_reads(const struct layers *layers, int32_t row)
{
    struct whole_entry entry;
    for (int32_t r = 0; r < HYBRID_STATES; r++) {
        const void *state = state_at(layers, r, layers->states.reads[row]);
        entry.hashes[r] = hybrid_hash(layers->hybrid, state);
    }
    return entry;
}

/* The state that token t of the row begins with: its parent's, or what the row reads. */
static int32_t state_before(const struct pkv_state_view *view, int32_t row, int32_t t)
{
    const int32_t first = view->cu_seqlens_q[row];
    const int32_t parent = view->parents == NULL ? t - first - 1 : view->parents[t];
    return parent < 0 ? view->reads[row] : view->writes[first + parent];
}

static bool follows(const struct pkv_state_view *view, int32_t row, int32_t t)
{
    const int32_t first = view->cu_seqlens_q[row];
    return t > first && (view->parents == NULL || view->parents[t] == t - first - 1);
}

static void run_row(struct layers *layers, int32_t recurrence, int32_t row, const float *q,
                    const float *k, const float *v, float *out)
{
    const struct model *m = &layers->hybrid->model;
    const struct pkv_state_view *view = &layers->states;
    for (int32_t t = view->cu_seqlens_q[row]; t < view->cu_seqlens_q[row + 1]; t++) {
        const struct recurrent_input in = {.normed =
                                               layers->activations->normed + (size_t)(t * m->dim),
                                           .q = q + (size_t)(t * m->q_dim),
                                           .k = k + (size_t)(t * m->kv_dim),
                                           .v = v + (size_t)(t * m->kv_dim)};
        if (!follows(view, row, t)) {
            memcpy(layers->state, state_at(layers, recurrence, state_before(view, row, t)),
                   layers->hybrid->state_bytes);
        }
        hybrid_update(layers->hybrid, recurrence, layers->state, &in, out + (size_t)(t * m->q_dim));
        if (view->writes[t] >= 0) {
            memcpy(state_at(layers, recurrence, view->writes[t]), layers->state,
                   layers->hybrid->state_bytes);
        }
    }
}

bool layers_attend(void *context, int32_t layer, const float *q, const float *k, const float *v,
                   float *out)
{
    struct layers *layers = context;
    const int32_t recurrence = hybrid_recurrence(layer);
    for (int32_t row = 0; recurrence >= 0 && row < layers->states.num_rows; row++) {
        run_row(layers, recurrence, row, q, k, v, out);
    }
    if (recurrence >= 0) {
        return true;
    }
    const struct pkv_layer_io io = {.size = sizeof io, .q = q, .k = k, .v = v, .out = out};
    return pkv_step_attend(layers->cache, layers->step, layer, &io) == PKV_OK ||
           complain("layer %d: %s", layer, pkv_last_error());
}
