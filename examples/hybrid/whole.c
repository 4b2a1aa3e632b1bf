/* SPDX-License-Identifier: MIT
 *
 * whole.c: one pass over a text. */
#include "whole.h"

#include "report.h"

#include <pagedkv/attn.h>
#include <stdlib.h>
#include <string.h>

bool whole_create(const struct hybrid *h, int32_t capacity, struct whole *whole)
{
    *whole = (struct whole){.hybrid = h, .state = malloc(h->state_bytes)};
    if (whole->state == NULL) {
        return complain("out of memory for a state of %zu bytes", h->state_bytes);
    }
    if (pkv_workspace_create(1, PKV_ISA_BEST, NULL, &whole->workspace) != PKV_OK) {
        whole_free(whole);
        return complain("no workspace: %s", pkv_last_error());
    }
    if (!activations_create(&h->model, capacity, 1, &whole->activations)) {
        whole_free(whole);
        return false;
    }
    return true;
}

void whole_free(struct whole *whole)
{
    pkv_workspace_destroy(whole->workspace);
    activations_free(&whole->activations);
    free(whole->state);
    *whole = (struct whole){0};
}

static bool recur(struct whole *whole, int32_t recurrence, const float *q, const float *k,
                  const float *v, float *out)
{
    const struct hybrid *h = whole->hybrid;
    memset(whole->state, 0, h->state_bytes);
    whole->entries[0].hashes[recurrence] = hybrid_hash(h, whole->state);
    for (int32_t t = 0; t < whole->num_tokens; t++) {
        const struct recurrent_input in = {.normed = whole->activations.normed +
                                                     (size_t)(t * h->model.dim),
                                           .q = q + (size_t)(t * h->model.q_dim),
                                           .k = k + (size_t)(t * h->model.kv_dim),
                                           .v = v + (size_t)(t * h->model.kv_dim)};
        hybrid_update(h, recurrence, whole->state, &in, out + (size_t)(t * h->model.q_dim));
        whole->entries[t + 1].hashes[recurrence] = hybrid_hash(h, whole->state);
    }
    return true;
}

static bool attend(void *context, int32_t layer, const float *q, const float *k, const float *v,
                   float *out)
{
    struct whole *whole = context;
    const struct model *m = &whole->hybrid->model;
    if (hybrid_recurrence(layer) >= 0) {
        return recur(whole, hybrid_recurrence(layer), q, k, v, out);
    }
    const int64_t kept_prefix = m->layers[layer].kept_prefix;
    const struct pkv_gqa_args args = {.size = sizeof args,
                                      .form = PKV_CACHE_NONE,
                                      .dtype = PKV_F32,
                                      .num_heads = m->num_heads,
                                      .kv_heads = m->kv_heads,
                                      .k_width = m->head_dim,
                                      .batch = 1,
                                      .num_tokens = whole->num_tokens,
                                      .cu_seqlens_q = (const int32_t[]){0, whole->num_tokens},
                                      .q = q,
                                      .k = k,
                                      .v = v,
                                      .out = out,
                                      .sliding_window = m->layers[layer].window,
                                      .kept_prefix = &kept_prefix,
                                      .kept_prefix_count = 1,
                                      .constants = {.rope_cos = m->rope_cos,
                                                    .rope_sin = m->rope_sin,
                                                    .rope_dtype = PKV_F32,
                                                    .rope_positions = m->seq_len,
                                                    .rope_width = m->head_dim / 2,
                                                    .rotary_mode = m->rotary_mode}};
    return pkv_gqa(whole->workspace, &args) == PKV_OK ||
           complain("layer %d of a whole text: %s", layer, pkv_last_error());
}

bool whole_states(struct whole *whole, const int32_t *tokens, int32_t num_tokens,
                  struct whole_entry *entries)
{
    whole->entries = entries;
    whole->num_tokens = num_tokens;
    return forward(&whole->hybrid->model, &whole->activations, tokens, num_tokens, attend, whole);
}
