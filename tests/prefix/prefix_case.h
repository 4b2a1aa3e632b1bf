/* SPDX-License-Identifier: MIT
 *
 * prefix_case.h: a prefix index with its pools, and chains of blocks published into it as the
 * runtime would. */
#ifndef PKV_TEST_PREFIX_CASE_H
#define PKV_TEST_PREFIX_CASE_H

#include "prefix/prefix_blocks.h"
#include "prefix/prefix_check.h"
#include "prefix/prefix_claim.h"
#include "prefix/prefix_flush.h"
#include "prefix/prefix_match.h"
#include "prefix/prefix_publish.h"
#include "prefix/prefix_quota.h"
#include "prefix/prefix_retain.h"
#include "support/test.h"

enum { PREFIX_CASE_SALT = 1, PREFIX_CASE_TENANT, PREFIX_CASE_ADAPTER }; /* tags */

#define PREFIX_CASE_GROUPS 2
#define PREFIX_CASE_CHAIN 64
#define PREFIX_CASE_LOG 256

/* The scope without fields: not opened, so never closed. */
extern const struct prefix_scope prefix_case_plain;

/* Blocks of 4 tokens in one group, in two. */
extern const struct prefix_config prefix_case_one_group;
extern const struct prefix_config prefix_case_two_groups;

/* 0, 1, 2, .. */
extern const int32_t prefix_case_tokens[64];

/* Changes as the observer saw them; the same to the same node again is only counted. */
struct prefix_case_log {
    int32_t calls;
    int32_t count;
    enum prefix_change change[PREFIX_CASE_LOG];
    struct pkv_block_key key[PREFIX_CASE_LOG];
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

/* The first used node, flushed or not, with an index of `from` or more; PREFIX_ROOT at the end. */
struct prefix_ref prefix_case_next(const struct prefix_index *index, int32_t from);

/* How many blocks of tokens are matched, and can be adopted with full attention in all groups. */
int32_t prefix_case_match(struct prefix_case *fixture, const struct prefix_scope *scope,
                          const int32_t *tokens, const uint64_t *extra, int32_t num_blocks);
int32_t prefix_case_hit(struct prefix_case *fixture, const struct prefix_scope *scope,
                        const int32_t *tokens, int32_t num_blocks);

/* Namespaces: a field of text; an opened scope; what prefix_case_hit and prefix_case_cache do for
 * the first tokens, in the namespace of these fields. */
struct pkv_namespace_field prefix_case_field(int32_t tag, const char *bytes);
struct prefix_scope prefix_case_scope(struct prefix_case *fixture,
                                      const struct pkv_namespace_field *fields, int32_t num_fields);
int32_t prefix_case_hit_in(struct prefix_case *fixture, const struct pkv_namespace_field *fields,
                           int32_t num_fields, int32_t num_blocks);
void prefix_case_cache_in(struct prefix_case *fixture, const struct pkv_namespace_field *fields,
                          int32_t num_fields, int32_t num_blocks);
enum pkv_status prefix_case_set_quota(struct prefix_case *fixture, int32_t tag, const char *bytes,
                                      int64_t quota);

/* Sweeps to the end; *swept is what it took. */
void prefix_case_sweep(struct prefix_case *fixture, struct prefix_swept *swept);

/* The first of the longest run of bits that are set; of those that are equally long within a power
 * of two, the lowest. There is one. */
int32_t prefix_case_longest_run(uint64_t bits);

#endif
