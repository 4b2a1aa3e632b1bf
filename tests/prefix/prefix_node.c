/* SPDX-License-Identifier: MIT
 *
 * The life of nodes: when they are freed, made anew, and stale. */
#include "prefix/prefix_node.h"

#include "prefix_case.h"

#define BS 4

/* D12: a parent whose place was taken by another node meanwhile has no children. */
static void a_stale_parent_has_no_children(void)
{
    struct prefix_config config = prefix_case_one_group;
    struct prefix_case fixture;
    struct prefix_ref node = {55, 55};
    config.num_nodes = 1;
    prefix_case_open(&fixture, &config, 4);
    prefix_case_cache(&fixture, &prefix_case_plain, prefix_case_tokens, 1);
    const struct prefix_ref old =
        prefix_index_find(fixture.index, PREFIX_ROOT, 0, prefix_case_tokens, NULL);
    prefix_index_detach(fixture.index, 0, prefix_index_block(fixture.index, old, 0));
    prefix_case_cache(&fixture, &prefix_case_plain, prefix_case_tokens + BS, 1);
    const struct prefix_ref now =
        prefix_index_find(fixture.index, PREFIX_ROOT, 0, prefix_case_tokens + BS, NULL);
    CU_ASSERT(now.index == old.index && now.generation != old.generation);
    CU_ASSERT_EQUAL(prefix_index_find(fixture.index, old, 0, prefix_case_tokens, NULL).index,
                    PREFIX_NONE);
    CU_ASSERT_EQUAL(
        prefix_index_find(fixture.index, PREFIX_ROOT, PREFIX_NONE, prefix_case_tokens + BS, NULL)
            .index,
        PREFIX_NONE);
    CU_ASSERT_EQUAL(
        prefix_index_insert(fixture.index, old, 0, 1, prefix_case_tokens, NULL, 0, &node),
        PREFIX_FLUSHED);
    CU_ASSERT_EQUAL(prefix_index_attach(fixture.index, old, 0, 0), NO_BLOCK);
    CU_ASSERT_EQUAL(prefix_index_block(fixture.index, old, 0), NO_BLOCK);
    CU_ASSERT_PTR_NULL(prefix_index_tokens(fixture.index, old));
    CU_ASSERT_PTR_NULL(prefix_index_extra(fixture.index, old));
    CU_ASSERT_FALSE(prefix_index_is_live(fixture.index, old));
    prefix_index_hold(fixture.index, old);
    prefix_index_release(fixture.index, old);
    prefix_index_raise(fixture.index, old, 3);
    prefix_index_hold(fixture.index, PREFIX_ROOT);
    prefix_index_release(fixture.index, PREFIX_ROOT);
    prefix_index_raise(fixture.index, PREFIX_ROOT, 3);
    CU_ASSERT_EQUAL(node.index, 55);
    CU_ASSERT_EQUAL(prefix_index_node(fixture.index, now)->priority, 0);
    prefix_case_close(&fixture);
}

/* I1: the index has a fixed number of nodes, and a full one takes no memory. */
static void insert_fails_cleanly_when_no_node_is_free(void)
{
    struct prefix_config config = prefix_case_one_group;
    struct prefix_case fixture;
    struct prefix_ref node = {55, 55};
    config.num_nodes = 3;
    prefix_case_open(&fixture, &config, 8);
    const long calls = fixture.memory.calls;
    struct prefix_chain chain =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 3, 0);
    CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, chain.nodes[2], 0, 1,
                                        prefix_case_tokens + 12, NULL, 3, &node),
                    PREFIX_NOT_NOW);
    CU_ASSERT_EQUAL(node.index, 55);
    CU_ASSERT_EQUAL(prefix_index_node(fixture.index, chain.nodes[0])->priority, 0);
    CU_ASSERT_EQUAL(prefix_index_counters(fixture.index).not_indexed, 1);
    prefix_case_release(&fixture, &chain);
    prefix_case_evict(&fixture, 1);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 2);
    CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, PREFIX_ROOT, 0, 1, prefix_case_tokens + 12,
                                        NULL, 3, &node),
                    PREFIX_NEW);
    prefix_index_release(fixture.index, node);
    CU_ASSERT_PTR_NULL(prefix_index_node(fixture.index, node));
    CU_ASSERT_EQUAL(fixture.memory.calls, calls);
    prefix_case_close(&fixture);
}

static void nodes_are_used_again_oldest_first(void)
{
    struct prefix_config config = prefix_case_one_group;
    struct prefix_case fixture;
    struct prefix_ref nodes[3];
    config.num_nodes = 3;
    prefix_case_open(&fixture, &config, 8);
    for (int32_t i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, PREFIX_ROOT, 0, 1,
                                            prefix_case_tokens + BS * i, NULL, 0, &nodes[i]),
                        PREFIX_NEW);
    }
    prefix_index_release(fixture.index, nodes[1]);
    prefix_index_release(fixture.index, nodes[0]);
    prefix_index_release(fixture.index, nodes[2]);
    for (int32_t i = 0; i < 3; i++) {
        static const int32_t order[] = {1, 0, 2};
        struct prefix_ref node = PREFIX_ROOT;
        CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, PREFIX_ROOT, 0, 1,
                                            prefix_case_tokens + 20 + i, NULL, 0, &node),
                        PREFIX_NEW);
        CU_ASSERT_EQUAL(node.index, nodes[order[i]].index);
        CU_ASSERT_EQUAL(node.generation, nodes[order[i]].generation + 1);
    }
    prefix_case_close(&fixture);
}

/* A window shorter than a block: the newest block goes before the next is full. */
static void a_holder_keeps_a_node_without_a_block(void)
{
    struct prefix_case fixture;
    struct prefix_ref next = PREFIX_ROOT;
    prefix_case_open(&fixture, &prefix_case_one_group, 2);
    struct prefix_chain chain =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 1, 0);
    CU_ASSERT_TRUE(prefix_index_drop(fixture.index, 0, chain.blocks[0][0], true));
    CU_ASSERT_NOT_EQUAL(prefix_index_take(fixture.index, 0), chain.blocks[0][0]);
    CU_ASSERT_EQUAL(prefix_index_take(fixture.index, 0), chain.blocks[0][0]);
    const struct prefix_node *node = prefix_index_node(fixture.index, chain.nodes[0]);
    CU_ASSERT(node != NULL && node->num_blocks == 0 && node->num_holders == 1);
    CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, chain.nodes[0], 0, 1,
                                        prefix_case_tokens + BS, NULL, 0, &next),
                    PREFIX_NEW);
    prefix_index_release(fixture.index, chain.nodes[0]);
    CU_ASSERT_EQUAL(prefix_index_attach(fixture.index, next, 0, 1), 1);
    prefix_index_release(fixture.index, next);
    CU_ASSERT_EQUAL(prefix_index_check(fixture.index), 0);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 2);
    CU_ASSERT_EQUAL(prefix_case_match(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 2),
                    2);
    CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, prefix_case_tokens, 2), 0);
    prefix_index_detach(fixture.index, 0, 1);
    prefix_index_detach(fixture.index, 0, 1);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 0); /* the parent followed */
    CU_ASSERT_EQUAL(block_pool_class(fixture.pools[0], 1), BLOCK_POOL_HELD);
    prefix_case_close(&fixture);
}

static const struct test_case cases[] = {
    TEST(a_stale_parent_has_no_children),
    TEST(insert_fails_cleanly_when_no_node_is_free),
    TEST(nodes_are_used_again_oldest_first),
    TEST(a_holder_keeps_a_node_without_a_block),
    TEST_END,
};
const struct test_suite suite_prefix_node = {"prefix_node", cases};
