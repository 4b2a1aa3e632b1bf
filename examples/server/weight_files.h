/* SPDX-License-Identifier: MIT
 *
 * weight_files.h: the weights of a folder, mapped: model.safetensors, or the shards that
 * model.safetensors.index.json names. */
#ifndef SERVER_WEIGHT_FILES_H
#define SERVER_WEIGHT_FILES_H

#include "model.h"

struct weight_files;

/* Complains when it fails. */
bool weight_files_open(const char *folder, struct weight_files **files);

/* Places a weight of exactly that shape (a vector has one row); complains when there is none. */
bool weight_files_take(struct weight_files *files, const char *name, int32_t rows, int32_t columns,
                       struct weight *w);

/* The name of a weight that nobody took, NULL when all were. Tables of rope, which older models
 * bring, and `except` (may be NULL) do not count. */
const char *weight_files_unused(const struct weight_files *files, const char *except);

/* NULL is accepted. */
void weight_files_free(void *files);

#endif
