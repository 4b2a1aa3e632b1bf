/* SPDX-License-Identifier: MIT
 *
 * fingerprint.h: what keys and values of a model depend on, as a hash: blocks that another model
 * has stored are never found. */
#ifndef SERVER_FINGERPRINT_H
#define SERVER_FINGERPRINT_H

#include "model.h"

enum { FINGERPRINT_BYTES = 16 };

/* Over the shape, the rotation of the first positions and every weight. Reads the whole file of a
 * mapped model. */
void fingerprint_of_model(const struct model *model, unsigned char bytes[FINGERPRINT_BYTES]);

#endif
