/* SPDX-License-Identifier: MIT
 *
 * prefix_case.h: a prefix index with its pools, and chains of blocks published into it as the
 * runtime would. */
#ifndef PKV_TEST_PREFIX_CASE_H
#define PKV_TEST_PREFIX_CASE_H

#include "prefix/prefix_blocks.h"
#include "prefix/prefix_check.h"
#include "prefix/prefix_flush.h"
#include "prefix/prefix_match.h"
#include "prefix/prefix_publish.h"
#include "support/test.h"

#define PREFIX_CASE_GROUPS 2
#define PREFIX_CASE_CHAIN 64
#define PREFIX_CASE_LOG 256

/* The scope without fields: not opened, so never closed. */
extern const struct prefix_scope prefix_case_plain;

/* 0, 1, 2, .. */
extern const int32_t prefix_case_tokens[64];

/* Changes as the observer saw them. */
struct prefix_case_log {
    int32_t count;
    enum prefix_change change[PREFIX_CASE_LOG];
    struct prefix_key key[PREFIX_CASE_LOG];
};

struct prefix_case {
    struct test_memory memory;
    pkv_pool *pools[PREFIX_CASE_GROUPS];
    struct prefix_index *index;
    struct prefix_config config;
    struct prefix_case_log log;
};

/* Blocks of a published chain, held by it. */
struct prefix_chain {
    int32_t count;
    struct prefix_ref nodes[PREFIX_CASE_CHAIN];
    int32_t blocks[PREFIX_CASE_GROUPS][PREFIX_CASE_CHAIN];
};

/* config.pools, seed if 0, observer and defaults of 0 are filled in; num_blocks in each pool. */
void prefix_case_open(struct prefix_case *fixture, const struct prefix_config *config,
                      int32_t num_blocks);

/* Asserts that all is sound, and that destroying gives everything back. */
void prefix_case_close(struct prefix_case *fixture);

/* Takes and publishes num_blocks blocks of tokens in every group, as one sequence would: equal
 * blocks are exchanged for the canonical ones, and only the newest node keeps a holder. */
struct prefix_chain prefix_case_publish(struct prefix_case *fixture,
                                        const struct prefix_scope *scope, const int32_t *tokens,
                                        const uint64_t *extra, int32_t num_blocks,
                                        int32_t priority);

/* Drops a chain's blocks, last first, and releases its newest node. */
void prefix_case_release(struct prefix_case *fixture, struct prefix_chain *chain);

/* Publishes and releases, so that all is cached and nothing held. */
void prefix_case_cache(struct prefix_case *fixture, const struct prefix_scope *scope,
                       const int32_t *tokens, int32_t num_blocks);

/* Takes blocks of group 0 until `count` more of them were cached ones. */
void prefix_case_evict(struct prefix_case *fixture, uint64_t count);

/* How many blocks of tokens are matched, and can be adopted with full attention in all groups. */
int32_t prefix_case_match(struct prefix_case *fixture, const struct prefix_scope *scope,
                          const int32_t *tokens, const uint64_t *extra, int32_t num_blocks);
int32_t prefix_case_hit(struct prefix_case *fixture, const struct prefix_scope *scope,
                        const int32_t *tokens, int32_t num_blocks);

#endif
