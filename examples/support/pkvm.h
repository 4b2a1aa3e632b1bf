/* SPDX-License-Identifier: MIT
 *
 * pkvm.h: the model files of examples/train, whose README has the format byte by byte: shape,
 * windows by layer, then weights of one type. Weights stay in the file's bytes. Numbers are
 * little-endian, so a big-endian machine is refused. */
#ifndef SUPPORT_PKVM_H
#define SUPPORT_PKVM_H

#include "model.h"

#define PKVM_MAGIC "PKVMODEL"

/* A model over bytes that stay the caller's and must outlive it, aligned to 4. Header words, their
 * products, the exact size and each weight are checked before they are believed, and nothing is
 * taken that is larger than the bytes are. `name` is for complaints. */
bool pkvm_parse(const char *name, const unsigned char *bytes, size_t num_bytes,
                struct model *model);

/* The same from a file, whose bytes the model owns. */
bool pkvm_load(const char *path, struct model *model);

#endif
