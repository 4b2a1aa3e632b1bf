/* SPDX-License-Identifier: MIT */
#include "fingerprint.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { ROPE_POSITIONS = 16 };

static XXH128_hash_t hash_bytes(XXH128_hash_t before, const void *bytes, size_t num_bytes)
{
    const XXH128_hash_t both[2] = {before, XXH3_128bits(bytes, num_bytes)};
    return XXH3_128bits(both, sizeof both);
}

static XXH128_hash_t hash_weight(XXH128_hash_t before, const struct weight *w)
{
    const int32_t shape[] = {w->data != NULL, (int32_t)w->dtype, w->rows, w->columns};
    const XXH128_hash_t hash = hash_bytes(before, shape, sizeof shape);
    return w->data == NULL
               ? hash
               : hash_bytes(hash, w->data,
                            (size_t)w->rows * (size_t)w->columns * pkv_dtype_bytes(w->dtype));
}

static XXH128_hash_t hash_layer(XXH128_hash_t hash, const struct model_layer *layer)
{
    const struct weight *weights[] = {
        &layer->attn_norm, &layer->wq,       &layer->wk, &layer->wv, &layer->q_norm, &layer->k_norm,
        &layer->wo,        &layer->ffn_norm, &layer->w1, &layer->w3, &layer->w2};
    const int32_t windows[] = {layer->window, layer->kept_prefix};
    hash = hash_bytes(hash, windows, sizeof windows);
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++) {
        hash = hash_weight(hash, weights[i]);
    }
    return hash;
}

void fingerprint_of_model(const struct model *model, unsigned char bytes[FINGERPRINT_BYTES])
{
    const int32_t shape[] = {
        model->dim,      model->hidden_dim, model->num_layers, model->num_heads,
        model->kv_heads, model->head_dim,   model->vocab_size, (int32_t)model->rotary_mode};
    const int32_t positions = model->seq_len < ROPE_POSITIONS ? model->seq_len : ROPE_POSITIONS;
    const size_t rope_bytes =
        (size_t)positions * (size_t)(model->head_dim / 2) * sizeof *model->rope_cos;
    XXH128_hash_t hash = XXH3_128bits(shape, sizeof shape);
    hash = hash_bytes(hash, &model->norm_eps, sizeof model->norm_eps);
    hash = hash_bytes(hash, model->rope_cos, rope_bytes);
    hash = hash_bytes(hash, model->rope_sin, rope_bytes);
    hash = hash_weight(hash, &model->embedding);
    for (int32_t i = 0; i < model->num_layers; i++) {
        hash = hash_layer(hash, &model->layers[i]);
    }
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    memcpy(bytes, canonical.digest, FINGERPRINT_BYTES);
}
