/* SPDX-License-Identifier: MIT
 *
 * Flush and reset: what is not found from then on, and what a sweep leaves. */
#include "prefix/prefix_flush.h"

#include "prefix_case.h"

#define BS 4

static void flush_takes_the_nodes_of_one_field_value(void)
{
    const struct pkv_namespace_field old[] = {prefix_case_field(PREFIX_CASE_TENANT, "t"),
                                              prefix_case_field(PREFIX_CASE_ADAPTER, "x")};
    const struct pkv_namespace_field other[] = {prefix_case_field(PREFIX_CASE_TENANT, "t"),
                                                prefix_case_field(PREFIX_CASE_ADAPTER, "y")};
    struct prefix_case fixture;
    struct prefix_swept swept;
    prefix_case_open(&fixture, &prefix_case_one_group, 32);
    struct prefix_scope scope = prefix_case_scope(&fixture, old, 2);
    struct prefix_chain held =
        prefix_case_publish(&fixture, &scope, prefix_case_tokens, NULL, 2, 0);
    prefix_case_cache(&fixture, &scope, prefix_case_tokens, 4);
    prefix_case_cache_in(&fixture, other, 2, 3);
    const uint64_t before = prefix_index_epoch(fixture.index);
    prefix_index_flush(fixture.index,
                       &(struct pkv_namespace_field){PREFIX_CASE_ADAPTER, 1, "z", 0});
    CU_ASSERT_EQUAL(prefix_index_epoch(fixture.index), before);
    prefix_index_flush(fixture.index,
                       &(struct pkv_namespace_field){PREFIX_CASE_ADAPTER, 1, "x", 0});
    CU_ASSERT_EQUAL(prefix_index_epoch(fixture.index), before + 1);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, old, 2, 4), 0); /* at once */
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, other, 2, 3), 3);
    CU_ASSERT_FALSE(prefix_index_is_live(fixture.index, held.nodes[0]));
    CU_ASSERT_EQUAL(prefix_index_attach(fixture.index, held.nodes[1], 0, 30), NO_BLOCK);
    CU_ASSERT_EQUAL(prefix_index_check(fixture.index), 0);
    prefix_case_sweep(&fixture, &swept);
    CU_ASSERT(swept.freed == 2 && swept.held == 2);
    CU_ASSERT_EQUAL(prefix_num_cached(fixture.pools[0]), 3);
    prefix_case_release(&fixture, &held);
    CU_ASSERT_EQUAL(block_pool_num_free(fixture.pools[0], PREFIX_CLASS_UNINDEXED), 32 - 3);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 3);
    prefix_scope_close(fixture.index, &scope);
    prefix_case_close(&fixture);
}

static void a_sequence_publishes_only_into_its_own_epoch(void)
{
    const struct pkv_namespace_field field = prefix_case_field(PREFIX_CASE_ADAPTER, "x");
    struct prefix_case fixture;
    struct prefix_ref node = {55, 55};
    struct prefix_swept swept;
    prefix_case_open(&fixture, &prefix_case_one_group, 8);
    struct prefix_scope scope = prefix_case_scope(&fixture, &field, 1);
    const int32_t id = scope.namespace_id[0];
    const uint64_t old = prefix_index_epoch(fixture.index);
    struct prefix_chain chain =
        prefix_case_publish(&fixture, &scope, prefix_case_tokens, NULL, 1, 0);
    prefix_index_flush(fixture.index,
                       &(struct pkv_namespace_field){PREFIX_CASE_ADAPTER, 1, "x", 0});
    const uint64_t now = prefix_index_epoch(fixture.index);
    CU_ASSERT_TRUE(prefix_index_is_current(fixture.index, id, now));
    CU_ASSERT_FALSE(prefix_index_is_current(fixture.index, id, old));
    CU_ASSERT_TRUE(prefix_index_is_current(fixture.index, 0, old));
    CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, PREFIX_ROOT, id, old, prefix_case_tokens,
                                        NULL, 0, &node),
                    PREFIX_FLUSHED);
    CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, chain.nodes[0], id, now,
                                        prefix_case_tokens + BS, NULL, 0, &node),
                    PREFIX_FLUSHED);
    CU_ASSERT_EQUAL(node.index, 55);
    /* A new one stands beside the old, before and after the sweep. */
    struct prefix_chain fresh =
        prefix_case_publish(&fixture, &scope, prefix_case_tokens, NULL, 1, 0);
    CU_ASSERT_NOT_EQUAL(fresh.blocks[0][0], chain.blocks[0][0]);
    CU_ASSERT_EQUAL(prefix_index_counters(fixture.index).collisions, 0);
    prefix_case_sweep(&fixture, &swept);
    CU_ASSERT(swept.held == 1 && swept.freed == 0);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, &field, 1, 1), 1);
    prefix_case_release(&fixture, &chain);
    prefix_case_release(&fixture, &fresh);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, &field, 1, 1), 1);
    prefix_scope_close(fixture.index, &scope);
    prefix_case_close(&fixture);
}

/* D9: after a reset nothing is found, and what is held stays valid for its holders. */
static void reset_orphans_everything(void)
{
    struct prefix_case fixture;
    struct prefix_swept swept;
    prefix_case_open(&fixture, &prefix_case_one_group, 16);
    struct prefix_chain held =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 3, 2);
    prefix_case_cache(&fixture, &prefix_case_plain, prefix_case_tokens, 5);
    const int32_t block = held.blocks[0][1];
    prefix_index_reset(fixture.index);
    CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, prefix_case_tokens, 5), 0);
    CU_ASSERT_FALSE(prefix_index_is_current(fixture.index, 0, 1));
    prefix_case_sweep(&fixture, &swept);
    CU_ASSERT(swept.freed == 2 && swept.held == 3);
    CU_ASSERT_EQUAL(pkv_pool_ref_count(fixture.pools[0], block), 1); /* its holder goes on */
    CU_ASSERT_EQUAL(prefix_index_node_of(fixture.index, 0, block).index, PREFIX_NONE);
    prefix_case_release(&fixture, &held);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 0);
    CU_ASSERT_EQUAL(pkv_pool_num_free(fixture.pools[0]), 16);
    CU_ASSERT_EQUAL(block_pool_num_free(fixture.pools[0], PREFIX_CLASS_UNINDEXED), 16);
    prefix_case_cache(&fixture, &prefix_case_plain, prefix_case_tokens, 5);
    CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, prefix_case_tokens, 5), 5);
    prefix_case_close(&fixture);
}

/* A cached chain of two blocks in "y", then one in "x" of three blocks in both groups, held in
 * group 0 and free in group 1. */
struct two_chains {
    struct prefix_case fixture;
    struct prefix_scope x;
    struct prefix_chain old;
    struct pkv_block_key keys[3]; /* of its nodes */
};

static void open_two_chains(struct two_chains *c, int32_t masked_key_bits)
{
    const struct pkv_namespace_field y = prefix_case_field(PREFIX_CASE_ADAPTER, "y");
    const struct pkv_namespace_field x = prefix_case_field(PREFIX_CASE_ADAPTER, "x");
    const struct prefix_config config = {
        .block_size = BS, .num_groups = 2, .masked_key_bits = masked_key_bits};
    prefix_case_open(&c->fixture, &config, 32);
    prefix_case_cache_in(&c->fixture, &y, 1, 2);
    c->x = prefix_case_scope(&c->fixture, &x, 1);
    c->old = prefix_case_publish(&c->fixture, &c->x, prefix_case_tokens, NULL, 3, 0);
    for (int32_t i = 2; i >= 0; i--) {
        c->keys[i] = prefix_index_node(c->fixture.index, c->old.nodes[i])->key;
        (void)prefix_index_drop(c->fixture.index, 1, c->old.blocks[1][i], false);
    }
    c->fixture.log.count = 0;
}

static void close_two_chains(struct two_chains *c)
{
    for (int32_t i = 2; i >= 0; i--) {
        CU_ASSERT_EQUAL(pkv_pool_ref_count(c->fixture.pools[0], c->old.blocks[0][i]), 1);
        (void)prefix_index_drop(c->fixture.index, 0, c->old.blocks[0][i], false);
    }
    prefix_index_release(c->fixture.index, c->old.nodes[2]);
    prefix_scope_close(c->fixture.index, &c->x);
    prefix_case_close(&c->fixture);
}

/* What the observer was told from change `from` on: the end of each of the chain's nodes, then its
 * beginning. */
static void assert_exchanged(const struct two_chains *c, int32_t from)
{
    const struct prefix_case_log *log = &c->fixture.log;
    CU_ASSERT_EQUAL_FATAL(log->count, from + 2 * 3);
    for (int32_t i = 0; i < 2 * 3; i++) {
        const struct pkv_block_key *key = &c->keys[i / 2];
        CU_ASSERT_EQUAL(log->change[from + i], i % 2 == 0 ? PREFIX_REMOVED : PREFIX_STORED);
        CU_ASSERT(log->key[from + i].low == key->low && log->key[from + i].high == key->high);
    }
}

static void flush_x(struct two_chains *c, bool everything)
{
    if (everything) {
        prefix_index_reset(c->fixture.index);
    } else {
        prefix_index_flush(c->fixture.index,
                           &(struct pkv_namespace_field){PREFIX_CASE_ADAPTER, 1, "x", 0});
    }
}

static void an_old_block_ends_before_an_equal_one_is_stored(void)
{
    for (int32_t everything = 0; everything < 2; everything++) {
        struct two_chains c;
        struct prefix_swept swept = {0, 0};
        open_two_chains(&c, 0);
        flush_x(&c, everything);
        CU_ASSERT_FALSE(prefix_index_sweep(c.fixture.index, 1, &swept)); /* one of "y" */
        CU_ASSERT(swept.held == 0 && swept.freed == 2 * everything);
        c.fixture.log.count = 0;
        struct prefix_chain fresh =
            prefix_case_publish(&c.fixture, &c.x, prefix_case_tokens, NULL, 3, 0);
        assert_exchanged(&c, 0);
        for (int32_t i = 0; i < 3; i++) { /* the old one's holder goes on, without a node */
            const int32_t block = c.old.blocks[0][i];
            CU_ASSERT_NOT_EQUAL(fresh.blocks[0][i], block);
            CU_ASSERT_EQUAL(prefix_index_node_of(c.fixture.index, 0, block).index, PREFIX_NONE);
        }
        CU_ASSERT_EQUAL(prefix_case_hit(&c.fixture, &c.x, prefix_case_tokens, 3), 3);
        prefix_case_sweep(&c.fixture, &swept);
        CU_ASSERT(swept.held == 3 && swept.freed == 3 + 2 * everything);
        prefix_case_sweep(&c.fixture, &swept); /* told once */
        CU_ASSERT(swept.held == 0 && swept.freed == 0);
        CU_ASSERT_EQUAL(c.fixture.log.count, 6 + everything); /* the other node of "y" */
        CU_ASSERT_EQUAL(prefix_case_hit(&c.fixture, &c.x, prefix_case_tokens, 3), 3);
        prefix_case_release(&c.fixture, &fresh);
        close_two_chains(&c);
    }
}

static void a_flush_during_a_sweep_ends_what_was_stored_meanwhile(void)
{
    const struct pkv_namespace_field x = prefix_case_field(PREFIX_CASE_ADAPTER, "x");
    struct two_chains c;
    struct prefix_swept swept = {0, 0};
    open_two_chains(&c, 0);
    for (int32_t round = 0; round < 3; round++) {
        flush_x(&c, false);
        prefix_case_cache_in(&c.fixture, &x, 1, 3);
        assert_exchanged(&c, 6 * round);
    }
    prefix_case_sweep(&c.fixture, &swept);
    CU_ASSERT(swept.held == 3 && swept.freed == 3 + 2 * 2 * 3);
    CU_ASSERT_EQUAL(c.fixture.log.count, 3 * 6);
    close_two_chains(&c);
}

static void a_part_of_a_chain_that_is_stored_again_leaves_the_rest_to_the_sweep(void)
{
    const struct pkv_namespace_field x = prefix_case_field(PREFIX_CASE_ADAPTER, "x");
    struct two_chains c;
    struct prefix_swept swept = {0, 0};
    open_two_chains(&c, 0);
    flush_x(&c, false);
    CU_ASSERT_FALSE(prefix_index_sweep(c.fixture.index, 3, &swept)); /* the first of "x" too */
    CU_ASSERT(swept.held == 1 && swept.freed == 1);
    prefix_case_cache_in(&c.fixture, &x, 1, 2);
    const enum prefix_change expected[] = {PREFIX_REMOVED, PREFIX_STORED, PREFIX_REMOVED,
                                           PREFIX_STORED, PREFIX_REMOVED};
    const int32_t of[] = {0, 0, 1, 1, 2};
    CU_ASSERT_TRUE(prefix_index_sweep(c.fixture.index, 1000, &swept));
    CU_ASSERT(swept.held == 3 && swept.freed == 3);
    CU_ASSERT_EQUAL_FATAL(c.fixture.log.count, 5);
    for (int32_t i = 0; i < 5; i++) {
        CU_ASSERT_EQUAL(c.fixture.log.change[i], expected[i]);
        CU_ASSERT_EQUAL(c.fixture.log.key[i].low, c.keys[of[i]].low);
    }
    close_two_chains(&c);
}

/* With every node in one bucket and every key alike to a search. */
static void only_the_flushed_of_an_equal_key_end_early(void)
{
    const struct pkv_namespace_field y = prefix_case_field(PREFIX_CASE_ADAPTER, "y");
    struct two_chains c;
    struct prefix_swept swept = {0, 0};
    open_two_chains(&c, PREFIX_KEY_BITS);
    flush_x(&c, false);
    prefix_case_cache_in(&c.fixture, &y, 1, 3);   /* two are found, the third is new */
    prefix_case_cache_in(&c.fixture, NULL, 0, 2); /* both new */
    CU_ASSERT_EQUAL(c.fixture.log.count, 3);
    for (int32_t i = 0; i < c.fixture.log.count; i++) {
        CU_ASSERT_EQUAL(c.fixture.log.change[i], PREFIX_STORED);
    }
    for (int32_t i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(prefix_index_block(c.fixture.index, c.old.nodes[i], 0), c.old.blocks[0][i]);
    }
    prefix_case_sweep(&c.fixture, &swept);
    CU_ASSERT(swept.held == 3 && swept.freed == 3);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&c.fixture, &y, 1, 3), 3);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&c.fixture, NULL, 0, 3), 2);
    close_two_chains(&c);
}

static void after_the_sweep_nothing_ends_early(void)
{
    const struct pkv_namespace_field x = prefix_case_field(PREFIX_CASE_ADAPTER, "x");
    struct two_chains c;
    struct prefix_swept swept = {0, 0};
    open_two_chains(&c, 0);
    prefix_case_cache_in(&c.fixture, &x, 1, 3); /* no flush: found, all three */
    CU_ASSERT_EQUAL(c.fixture.log.count, 0);
    flush_x(&c, false);
    prefix_case_sweep(&c.fixture, &swept);
    CU_ASSERT(swept.held == 3 && swept.freed == 3);
    CU_ASSERT_EQUAL(c.fixture.log.count, 3);
    prefix_case_cache_in(&c.fixture, &x, 1, 3);
    CU_ASSERT_EQUAL(c.fixture.log.count, 6);
    CU_ASSERT_EQUAL(c.fixture.log.change[3], PREFIX_STORED);
    prefix_case_sweep(&c.fixture, &swept);
    CU_ASSERT(swept.held == 0 && swept.freed == 0);
    close_two_chains(&c);
}

/* What a flush has taken is no eviction, though it ends before the sweep to make room for a node.
 */
static void a_flushed_block_that_ends_for_a_node_is_not_counted_as_evicted(void)
{
    const struct pkv_namespace_field x = prefix_case_field(PREFIX_CASE_ADAPTER, "x");
    const struct pkv_namespace_field y = prefix_case_field(PREFIX_CASE_ADAPTER, "y");
    const struct prefix_config config = {.block_size = BS, .num_groups = 1, .num_nodes = 3};
    struct prefix_case fixture;
    struct prefix_swept swept = {0, 0};
    prefix_case_open(&fixture, &config, 8);
    prefix_case_cache_in(&fixture, &x, 1, 3);
    prefix_index_flush(fixture.index, &x);
    prefix_case_cache_in(&fixture, &y, 1, 2);
    CU_ASSERT_EQUAL(prefix_index_counters(fixture.index).evictions, 0);
    CU_ASSERT_EQUAL(prefix_case_hit_in(&fixture, &y, 1, 2), 2);
    prefix_case_cache_in(&fixture, NULL, 0, 3);
    CU_ASSERT(prefix_index_counters(fixture.index).evictions > 0);
    prefix_case_sweep(&fixture, &swept);
    prefix_case_close(&fixture);
}

/* A live node without block and holder, whose one child was flushed and has a free block. */
static struct prefix_ref parent_of_a_flushed_child(struct prefix_case *fixture,
                                                   struct prefix_scope *scope,
                                                   struct prefix_ref *child)
{
    struct pkv_namespace_field x = prefix_case_field(PREFIX_CASE_ADAPTER, "x");
    x.begins_at = BS;
    *scope = prefix_case_scope(fixture, &x, 1);
    struct prefix_chain chain = prefix_case_publish(fixture, scope, prefix_case_tokens, NULL, 2, 0);
    const struct prefix_ref parent = chain.nodes[0];
    const int32_t block = chain.blocks[0][0];
    *child = chain.nodes[1];
    prefix_case_release(fixture, &chain);
    prefix_index_detach(fixture->index, 0, block);
    prefix_index_flush(fixture->index,
                       &(struct pkv_namespace_field){PREFIX_CASE_ADAPTER, 1, "x", 0});
    CU_ASSERT_TRUE(prefix_index_is_live(fixture->index, parent));
    fixture->log.count = 0;
    return parent;
}

static void the_end_of_an_only_child_leaves_its_parent_to_the_next(void)
{
    struct prefix_case fixture;
    struct prefix_scope scope;
    struct prefix_swept swept = {0, 0};
    struct prefix_ref old, made;
    prefix_case_open(&fixture, &prefix_case_one_group, 8);
    const struct prefix_ref parent = parent_of_a_flushed_child(&fixture, &scope, &old);
    CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, parent, scope.namespace_id[1],
                                        prefix_index_epoch(fixture.index), prefix_case_tokens + BS,
                                        NULL, 0, &made),
                    PREFIX_NEW);
    CU_ASSERT(fixture.log.count == 1 && fixture.log.change[0] == PREFIX_REMOVED);
    CU_ASSERT_PTR_NULL(prefix_index_node(fixture.index, old));
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 2);
    CU_ASSERT_PTR_NOT_NULL_FATAL(prefix_index_node(fixture.index, parent));
    CU_ASSERT_EQUAL(prefix_index_node(fixture.index, parent)->num_children, 1);
    CU_ASSERT_EQUAL(prefix_index_node(fixture.index, parent)->num_holders, 0);
    CU_ASSERT_EQUAL(prefix_index_node(fixture.index, made)->parent.index, parent.index);
    CU_ASSERT_EQUAL(prefix_index_check(fixture.index), 0);
    prefix_index_release(fixture.index, made);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 0);
    prefix_case_sweep(&fixture, &swept);
    CU_ASSERT(swept.freed == 1 && swept.held == 0);
    prefix_scope_close(fixture.index, &scope);
    prefix_case_close(&fixture);
}

/* The old one is taken apart for nothing when its holder keeps the last node there is. */
static void an_end_that_frees_no_node_leaves_all_sound(void)
{
    struct prefix_config config = prefix_case_one_group;
    struct prefix_case fixture;
    struct prefix_scope scope;
    struct prefix_swept swept = {0, 0};
    struct prefix_ref old;
    struct prefix_ref made = {55, 55};
    config.num_nodes = 2;
    prefix_case_open(&fixture, &config, 8);
    const struct prefix_ref parent = parent_of_a_flushed_child(&fixture, &scope, &old);
    prefix_index_hold(fixture.index, old);
    const uint64_t epoch = prefix_index_epoch(fixture.index);
    CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, parent, scope.namespace_id[1], epoch,
                                        prefix_case_tokens + BS, NULL, 0, &made),
                    PREFIX_NOT_NOW);
    CU_ASSERT_EQUAL(made.index, 55);
    CU_ASSERT_EQUAL(prefix_index_counters(fixture.index).not_indexed, 1);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 2);
    CU_ASSERT_EQUAL(prefix_index_check(fixture.index), 0);
    prefix_index_release(fixture.index, old);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 0);
    prefix_case_sweep(&fixture, &swept);
    CU_ASSERT(swept.freed == 1 && swept.held == 0 && fixture.log.count == 1);
    prefix_scope_close(fixture.index, &scope);
    prefix_case_close(&fixture);
}

static const struct test_case cases[] = {
    TEST(flush_takes_the_nodes_of_one_field_value),
    TEST(a_sequence_publishes_only_into_its_own_epoch),
    TEST(reset_orphans_everything),
    TEST(an_old_block_ends_before_an_equal_one_is_stored),
    TEST(a_flush_during_a_sweep_ends_what_was_stored_meanwhile),
    TEST(a_part_of_a_chain_that_is_stored_again_leaves_the_rest_to_the_sweep),
    TEST(only_the_flushed_of_an_equal_key_end_early),
    TEST(after_the_sweep_nothing_ends_early),
    TEST(a_flushed_block_that_ends_for_a_node_is_not_counted_as_evicted),
    TEST(the_end_of_an_only_child_leaves_its_parent_to_the_next),
    TEST(an_end_that_frees_no_node_leaves_all_sound),
    TEST_END,
};
const struct test_suite suite_prefix_flush = {"prefix_flush", cases};
