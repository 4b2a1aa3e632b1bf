/* SPDX-License-Identifier: MIT
 *
 * model_cache.h: a pkv_cache for a language model: a group for each window that its layers have,
 * rope and norms applied by the cache. */
#ifndef SERVER_MODEL_CACHE_H
#define SERVER_MODEL_CACHE_H

#include "engine.h"
#include "language_model.h"

/* Complains when the library refuses. max_step_tokens is what a step may bring. */
bool model_cache_create(const struct language_model *model, const struct engine_options *options,
                        int32_t max_step_tokens, pkv_cache **cache);

/* Bytes of keys and values that one token of a sequence of `length` tokens reads, in all layers. */
int64_t model_cache_bytes_read(const struct language_model *model, enum pkv_dtype dtype,
                               int32_t length);

/* Options of a job's sequences: its tenant is their namespace. field is theirs as long as they are
 * used. */
struct pkv_seq_options model_cache_seq_options(const struct job_request *request, uint64_t tag,
                                               struct pkv_namespace_field *field);

#endif
