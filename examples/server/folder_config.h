/* SPDX-License-Identifier: MIT
 *
 * folder_config.h: config.json of a model's folder, as Hugging Face's transformers write it. What
 * would change the numbers and is not built here (biases, quantized weights, other activations and
 * rope scalings than Llama 3's) is refused in words. */
#ifndef SERVER_FOLDER_CONFIG_H
#define SERVER_FOLDER_CONFIG_H

#include "model.h"

enum { MAX_END_IDS = 16 };

struct folder_config {
    bool tied;     /* the classifier is the embedding */
    bool qk_norms; /* of each head */
    int32_t num_ends;
    int32_t ends[MAX_END_IDS]; /* ids that end a text, those of generation_config.json too */
};

/* Reads the configuration and creates the model with everything but its weights: windows and the
 * rope tables included, which cover as many positions as MODEL_MAX_ROPE_BYTES allows. Complains
 * when it fails; the model is then zero. */
bool folder_config_read(const char *folder, struct folder_config *config, struct model *model);

#endif
