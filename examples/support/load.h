/* SPDX-License-Identifier: MIT
 *
 * load.h: a model from a path, by what the file begins with: files of examples/train say what they
 * are, anything else is taken for a llama2.c checkpoint, which has no mark. */
#ifndef SUPPORT_LOAD_H
#define SUPPORT_LOAD_H

#include "model.h"

/* False after a complaint; then the model is zeroed. The caller frees the model. */
bool model_load(const char *path, struct model *model);

#endif
