/* SPDX-License-Identifier: MIT */
#include "prefix_case.h"

#include <string.h>

const struct prefix_scope prefix_case_plain = {.count = 1};
const struct prefix_config prefix_case_one_group = {.block_size = 4, .num_groups = 1};
const struct prefix_config prefix_case_two_groups = {.block_size = 4, .num_groups = 2};

const int32_t prefix_case_tokens[64] = {
    0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
    22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
    44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};

static void record_change(void *context, enum prefix_change change, struct prefix_ref node)
{
    struct prefix_case *fixture = context;
    struct prefix_case_log *log = &fixture->log;
    const struct prefix_node *read = prefix_index_node(fixture->index, node);
    CU_ASSERT_FATAL(read != NULL);
    log->calls++;
    const int32_t last = log->count - 1;
    const bool is_same = last >= 0 && last < PREFIX_CASE_LOG && log->change[last] == change &&
                         prefix_key_equals(log->key[last], read->key);
    if (!is_same && log->count < PREFIX_CASE_LOG) {
        log->change[log->count] = change;
        log->key[log->count] = read->key;
        log->count++;
    }
}

void prefix_case_open(struct prefix_case *fixture, const struct prefix_config *config,
                      int32_t num_blocks)
{
    memset(fixture, 0, sizeof *fixture);
    const struct pkv_hooks hooks = test_hooks(&fixture->memory);
    fixture->config = *config;
    fixture->config.pools = fixture->pools;
    fixture->config.seed = config->seed != 0 ? config->seed : 0x1234567887654321u;
    fixture->config.observer = record_change;
    fixture->config.observer_context = fixture;
    for (int32_t group = 0; group < config->num_groups; group++) {
        ASSERT_STATUS(PKV_OK, pkv_pool_create(num_blocks, &hooks, &fixture->pools[group]));
    }
    ASSERT_STATUS(PKV_OK, prefix_index_create(&fixture->config, &hooks, &fixture->index));
    CU_ASSERT_FATAL(fixture->index != NULL);
}

void prefix_case_close(struct prefix_case *fixture)
{
    CU_ASSERT_EQUAL(prefix_index_check(fixture->index), 0);
    prefix_index_destroy(fixture->index);
    for (int32_t group = 0; group < fixture->config.num_groups; group++) {
        CU_ASSERT_EQUAL(pkv_pool_check(fixture->pools[group]), 0);
        pkv_pool_destroy(fixture->pools[group]);
    }
    CU_ASSERT_EQUAL(fixture->memory.live, 0);
    CU_ASSERT_EQUAL(fixture->memory.live_bytes, 0);
}

/* A block of the group for the node: its own, or else a new one. */
static int32_t publish_block(struct prefix_case *fixture, struct prefix_ref node, int32_t group)
{
    const int32_t mine = prefix_index_take(fixture->index, group);
    CU_ASSERT_FATAL(mine != NO_BLOCK);
    const int32_t canonical = prefix_index_attach(fixture->index, node, group, mine);
    CU_ASSERT_FATAL(canonical != NO_BLOCK);
    if (canonical != mine) {
        block_pool_hold(fixture->pools[group], canonical);
        (void)prefix_index_drop(fixture->index, group, mine, false);
    }
    return canonical;
}

struct prefix_chain prefix_case_publish(struct prefix_case *fixture,
                                        const struct prefix_scope *scope, const int32_t *tokens,
                                        const uint64_t *extra, int32_t num_blocks, int32_t priority)
{
    const size_t block_size = (size_t)fixture->config.block_size;
    const uint64_t epoch = prefix_index_epoch(fixture->index);
    struct prefix_chain chain = {.count = num_blocks};
    struct prefix_ref parent = PREFIX_ROOT;
    CU_ASSERT_FATAL(num_blocks <= PREFIX_CASE_CHAIN);
    for (int32_t i = 0; i < num_blocks; i++) {
        const enum prefix_insert answer = prefix_index_insert(
            fixture->index, parent, prefix_scope_at(scope, i), epoch,
            tokens + (size_t)i * block_size, extra == NULL ? NULL : extra + (size_t)i * block_size,
            priority, &chain.nodes[i]);
        CU_ASSERT_FATAL(answer == PREFIX_NEW || answer == PREFIX_FOUND);
        prefix_index_release(fixture->index, parent);
        parent = chain.nodes[i];
        for (int32_t group = 0; group < fixture->config.num_groups; group++) {
            chain.blocks[group][i] = publish_block(fixture, parent, group);
        }
    }
    CU_ASSERT_EQUAL(prefix_index_check(fixture->index), 0);
    return chain;
}

void prefix_case_release(struct prefix_case *fixture, struct prefix_chain *chain)
{
    for (int32_t i = chain->count - 1; i >= 0; i--) {
        for (int32_t group = 0; group < fixture->config.num_groups; group++) {
            (void)prefix_index_drop(fixture->index, group, chain->blocks[group][i], false);
        }
    }
    prefix_index_release(fixture->index, chain->nodes[chain->count - 1]);
    chain->count = 0;
    CU_ASSERT_EQUAL(prefix_index_check(fixture->index), 0);
}

int32_t prefix_case_match(struct prefix_case *fixture, const struct prefix_scope *scope,
                          const int32_t *tokens, const uint64_t *extra, int32_t num_blocks)
{
    struct prefix_ref nodes[PREFIX_CASE_CHAIN];
    CU_ASSERT_FATAL(num_blocks <= PREFIX_CASE_CHAIN);
    return prefix_index_match(fixture->index, scope, tokens, extra, num_blocks, nodes);
}

int32_t prefix_case_hit(struct prefix_case *fixture, const struct prefix_scope *scope,
                        const int32_t *tokens, int32_t num_blocks)
{
    const struct prefix_window full[PREFIX_CASE_GROUPS] = {{0, 0}, {0, 0}};
    struct prefix_ref nodes[PREFIX_CASE_CHAIN];
    CU_ASSERT_FATAL(num_blocks <= PREFIX_CASE_CHAIN);
    const int32_t count =
        prefix_index_match(fixture->index, scope, tokens, NULL, num_blocks, nodes);
    return prefix_index_resident(fixture->index, nodes, count, full, NULL);
}

void prefix_case_cache(struct prefix_case *fixture, const struct prefix_scope *scope,
                       const int32_t *tokens, int32_t num_blocks)
{
    struct prefix_chain chain = prefix_case_publish(fixture, scope, tokens, NULL, num_blocks, 0);
    prefix_case_release(fixture, &chain);
}

void prefix_case_evict(struct prefix_case *fixture, uint64_t count)
{
    const uint64_t until = prefix_index_counters(fixture->index).evictions + count;
    while (prefix_index_counters(fixture->index).evictions < until) {
        CU_ASSERT_FATAL(prefix_index_take(fixture->index, 0) != NO_BLOCK);
    }
    CU_ASSERT_EQUAL(prefix_index_check(fixture->index), 0);
}

struct pkv_namespace_field prefix_case_field(int32_t tag, const char *bytes)
{
    return (struct pkv_namespace_field){tag, (int32_t)strlen(bytes), bytes, 0};
}

struct prefix_scope prefix_case_scope(struct prefix_case *fixture,
                                      const struct pkv_namespace_field *fields, int32_t num_fields)
{
    struct prefix_scope scope = {0};
    ASSERT_STATUS(PKV_OK, prefix_scope_open(fixture->index, fields, num_fields, &scope));
    CU_ASSERT_FATAL(scope.count > 0);
    return scope;
}

int32_t prefix_case_hit_in(struct prefix_case *fixture, const struct pkv_namespace_field *fields,
                           int32_t num_fields, int32_t num_blocks)
{
    struct prefix_scope scope = {0};
    ASSERT_STATUS(PKV_OK, prefix_scope_find(fixture->index, fields, num_fields, &scope));
    return prefix_case_hit(fixture, &scope, prefix_case_tokens, num_blocks);
}

void prefix_case_cache_in(struct prefix_case *fixture, const struct pkv_namespace_field *fields,
                          int32_t num_fields, int32_t num_blocks)
{
    struct prefix_scope scope = prefix_case_scope(fixture, fields, num_fields);
    prefix_case_cache(fixture, &scope, prefix_case_tokens, num_blocks);
    prefix_scope_close(fixture->index, &scope);
}

void prefix_case_sweep(struct prefix_case *fixture, struct prefix_swept *swept)
{
    *swept = (struct prefix_swept){0, 0};
    while (!prefix_index_sweep(fixture->index, 2, swept)) {
        CU_ASSERT_EQUAL(prefix_index_check(fixture->index), 0);
    }
    CU_ASSERT_TRUE(prefix_index_sweep(fixture->index, 1000, swept));
}

enum pkv_status prefix_case_set_quota(struct prefix_case *fixture, int32_t tag, const char *bytes,
                                      int64_t quota)
{
    const struct pkv_namespace_field field = prefix_case_field(tag, bytes);
    return prefix_index_set_quota(fixture->index, &field, quota);
}

struct prefix_ref prefix_case_next(const struct prefix_index *index, int32_t from)
{
    for (int32_t i = from; i < index->nodes.num_touched; i++) {
        if (index->nodes.nodes[i].is_used) {
            return prefix_node_ref(&index->nodes, i);
        }
    }
    return PREFIX_ROOT;
}

int32_t prefix_case_longest_run(uint64_t bits)
{
    int32_t first = 0;
    int32_t length = 0;
    int32_t limit = 1; /* to count as longer */
    for (int32_t bit = 0; bit < 64; bit++) {
        length = (bits >> bit & 1) != 0 ? length + 1 : 0;
        if (length >= limit) {
            first = bit + 1 - length;
            limit *= 2;
        }
    }
    return first;
}
