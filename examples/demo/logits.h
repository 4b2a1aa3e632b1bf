/* SPDX-License-Identifier: MIT
 *
 * logits.h: the numbers of one forward pass, for comparison with another implementation. */
#ifndef DEMO_LOGITS_H
#define DEMO_LOGITS_H

#include "model.h"

/* Puts the begin and a text through the model on a paged cache, in steps of 48 tokens, and prints
 * the logits after its last byte, one a line, as C prints floats exactly. */
bool print_logits(const struct model *model, const char *text);

#endif
