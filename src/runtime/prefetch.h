/* SPDX-License-Identifier: MIT
 *
 * prefetch.h: the two turns of a prefetch that change a cache: when it is known what the tiers
 * have, blocks are taken for it; when they have been read, they are indexed. The mutex is held.
 * O(tokens + groups * blocks). */
#ifndef PKV_RUNTIME_PREFETCH_H
#define PKV_RUNTIME_PREFETCH_H

#include "runtime/namespace.h"

/* A ticket of a prompt begins: records its tokens and keys, and what is cached of it. Its prototype
 * has joined the namespaces of these fields. */
void prefetch_begin(pkv_cache *cache, int32_t ticket, const struct namespace_fields *fields,
                    const struct pkv_prompt *prompt, int32_t max_blocks);

/* The tiers were asked: holds what is cached, and takes blocks for what is to be loaded, as far as
 * there are some. The ticket is loading then, or, when nothing is to be loaded, done. */
void prefetch_take(pkv_cache *cache, int32_t ticket);

/* Everything was read, or could not be: the longest prefix that has come is indexed, and what does
 * not belong to it is released. The ticket is done. */
void prefetch_publish(pkv_cache *cache, int32_t ticket);

/* Releases what a ticket holds, last block first. */
void prefetch_drop(pkv_cache *cache, int32_t ticket);

/* Blocks of a prompt beyond the cached ones that tiers are known to have, into tier_tokens
 * [PKV_MAX_TIERS], as tokens: what a prefetch could bring. num_cached is in tokens. */
void prefetch_probe(pkv_cache *cache, const struct seq *prototype,
                    const struct namespace_fields *fields, const struct pkv_prompt *prompt,
                    int32_t max_cached, int32_t num_cached, int32_t tier_tokens[PKV_MAX_TIERS]);

#endif
