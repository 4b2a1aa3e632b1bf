/* SPDX-License-Identifier: MIT
 *
 * language_model.h: what the server serves: a model, its vocabulary, and a name. */
#ifndef SERVER_LANGUAGE_MODEL_H
#define SERVER_LANGUAGE_MODEL_H

#include "codec.h"
#include "model.h"

struct language_model {
    char name[64];
    struct model model;
    struct codec codec;
};

/* Opens what lies at a path: a directory with config.json, safetensors and tokenizer.json; or a
 * file that examples/support can load, with tokenizer.bin in its folder unless its ids are bytes.
 * "" = the embedded model. Complains when it fails. */
bool language_model_open(const char *path, struct language_model *lm);
void language_model_close(struct language_model *lm);

#endif
