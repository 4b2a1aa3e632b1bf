/* SPDX-License-Identifier: MIT
 *
 * random.h: models that need no file. */
#ifndef SUPPORT_RANDOM_H
#define SUPPORT_RANDOM_H

#include "model.h"

/* A model of the shape that is set in *model: dim, hidden_dim, layers, heads, KV heads, vocabulary
 * and positions; the rest is as in llama2.c. Weights keep activations near 1. It never emits its
 * begin or end, 1 and 2. */
bool model_random(uint64_t seed, struct model *model);

/* A draft of another model: its first num_layers layers (1..its own), each weight w changed to
 * w * (1 + noise * u) with u uniform in [-1, 1) from the seed, as f32. Windows are the source's. */
bool model_draft(const struct model *source, int32_t num_layers, float noise, uint64_t seed,
                 struct model *model);

#endif
