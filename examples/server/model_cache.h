/* SPDX-License-Identifier: MIT
 *
 * model_cache.h: a pkv_cache for a language model, and whose blocks are whose. */
#ifndef SERVER_MODEL_CACHE_H
#define SERVER_MODEL_CACHE_H

#include "engine.h"
#include "language_model.h"

/* Complains when the library refuses. max_step_tokens is what a step may bring. With tiers, or
 * where texts are saved, the whole model is read, for its fingerprint. */
bool model_cache_create(const struct language_model *lm, const struct engine_options *options,
                        const struct tiers *tiers, int32_t max_step_tokens, pkv_cache **cache);

/* Options of a job's sequences: its tenant is their namespace. field is theirs as long as they are
 * used. */
struct pkv_seq_options model_cache_seq_options(const struct job_request *request, uint64_t tag,
                                               struct pkv_namespace_field *field);

#endif
