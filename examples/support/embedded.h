/* SPDX-License-Identifier: MIT
 *
 * embedded.h: the model that this repository brings, examples/train/stories.pkvm, linked into the
 * program: byte-level, 4 layers, 8 query heads on 2 KV heads; even layers attend to the last 64
 * tokens, odd ones to all. It writes short stories. examples/train/README.md says how it came. */
#ifndef SUPPORT_EMBEDDED_H
#define SUPPORT_EMBEDDED_H

#include "model.h"

/* False after a complaint. The caller frees the model; its weights are the program's. */
bool embedded_load(struct model *model);

#endif
