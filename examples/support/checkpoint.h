/* SPDX-License-Identifier: MIT
 *
 * checkpoint.h: llama2.c checkpoint files: seven int32 (dim, hidden_dim, layers, heads, KV heads,
 * vocabulary, positions), then the weights of tensors.h. A negative vocabulary: the classifier is
 * not the embedding. Old files have rope tables before the classifier. */
#ifndef SUPPORT_CHECKPOINT_H
#define SUPPORT_CHECKPOINT_H

#include "model.h"

/* Everything in the file is checked before it is believed: header words, their products, the exact
 * size of the file, and that each weight is finite. */
bool checkpoint_load(const char *path, struct model *model);

#endif
