/* SPDX-License-Identifier: MIT
 *
 * Which arrays a layer's constants have, and how long each is, is written down once, in
 * constants_copy. Everything here ran through gqa_constants_check before. */
#include "runtime/constants.h"

#include <string.h>

#include "runtime/config.h"

static const void *copy_array(struct carver *carver, const void *from, size_t count, size_t bytes)
{
    if (from == NULL) {
        return NULL;
    }
    void *to = carve(carver, count, bytes);
    if (to != NULL) {
        memcpy(to, from, count * bytes);
    }
    return to;
}

static bool has_same_cos_sin(const struct pkv_attn_constants *a, const struct pkv_attn_constants *b)
{
    return a->rope_cos == b->rope_cos && a->rope_sin == b->rope_sin &&
           a->rope_dtype == b->rope_dtype && a->rope_positions == b->rope_positions &&
           a->rope_width == b->rope_width;
}

static void copy_cos_sin(const struct pkv_cache_config *config, int32_t i, struct carver *carver,
                         struct pkv_layer_config *copies)
{
    const struct pkv_attn_constants *from = &config->layers[i].constants;
    for (int32_t j = 0; j < i; j++) {
        if (!has_same_cos_sin(from, &config->layers[j].constants)) {
            continue;
        }
        if (copies != NULL) {
            copies[i].constants.rope_cos = copies[j].constants.rope_cos;
            copies[i].constants.rope_sin = copies[j].constants.rope_sin;
        }
        return;
    }
    const size_t row_bytes = (size_t)from->rope_width * pkv_dtype_bytes(from->rope_dtype);
    const size_t num_rows = (size_t)from->rope_positions;
    const void *rope_cos = copy_array(carver, from->rope_cos, num_rows, row_bytes);
    const void *rope_sin = copy_array(carver, from->rope_sin, num_rows, row_bytes);
    if (copies != NULL) {
        copies[i].constants.rope_cos = rope_cos;
        copies[i].constants.rope_sin = rope_sin;
    }
}

void constants_copy(const struct pkv_cache_config *config, int32_t i, struct carver *carver,
                    struct pkv_layer_config *copies)
{
    const struct pkv_attn_constants *from = &config->layers[i].constants;
    struct pkv_attn_constants to = *from;
    to.q_scale = copy_array(carver, from->q_scale, 1, sizeof(float));
    to.head_sink =
        copy_array(carver, from->head_sink, (size_t)from->head_sink_count, sizeof(float));
    to.q_norm_gain = copy_array(carver, from->q_norm_gain, (size_t)from->q_norm_gain_count,
                                pkv_dtype_bytes(from->q_norm_gain_dtype));
    to.k_norm_gain = copy_array(carver, from->k_norm_gain, (size_t)from->k_norm_gain_count,
                                pkv_dtype_bytes(from->k_norm_gain_dtype));
    to.k_scale = copy_array(carver, from->k_scale, (size_t)from->k_scale_count, sizeof(float));
    to.v_scale = copy_array(carver, from->v_scale, (size_t)from->v_scale_count, sizeof(float));
    if (copies != NULL) {
        copies[i].constants = to;
    }
    copy_cos_sin(config, i, carver, copies);
}

int64_t constants_rope_positions(const struct pkv_cache_config *config)
{
    int64_t least = INT64_MAX;
    for (int32_t i = 0; i < config->num_layers; i++) {
        const struct pkv_attn_constants *constants = &config->layers[i].constants;
        if (!config_is_state_layer(config, i) && constants->rope_cos != NULL &&
            constants->rope_positions < least) {
            least = constants->rope_positions;
        }
    }
    return least;
}
