/* SPDX-License-Identifier: MIT
 *
 * Memory of an index, its observer, and reading it. */
#include "prefix/prefix_index.h"

#include "prefix_case.h"

#define BS 4

static void create_takes_what_size_says(void)
{
    const int32_t num_blocks[2] = {9, 9};
    struct prefix_sizes sizes;
    struct prefix_case fixture;
    ASSERT_STATUS(PKV_OK, prefix_index_size(&prefix_case_two_groups, num_blocks, &sizes));
    prefix_case_open(&fixture, &prefix_case_two_groups, 9);
    CU_ASSERT_EQUAL(fixture.memory.live_bytes,
                    2 * block_pool_bytes(9) + sizes.metadata_bytes + sizes.mapped_bytes);
    CU_ASSERT_EQUAL(prefix_index_num_nodes(fixture.index), 36);
    prefix_case_close(&fixture);
    prefix_index_destroy(NULL);

    struct prefix_config config = prefix_case_two_groups;
    config.num_nodes = INT32_MAX;
    ASSERT_STATUS(PKV_NEVER_FITS, prefix_index_size(&config, num_blocks, &sizes));
    config.num_nodes = INT32_MAX / 2;
    config.max_namespaces = 1;
    config.block_size = INT32_MAX;
    sizes = (struct prefix_sizes){55, 55};
    ASSERT_STATUS(PKV_NEVER_FITS, prefix_index_size(&config, num_blocks, &sizes));
    CU_ASSERT(sizes.metadata_bytes == 55 && sizes.mapped_bytes == 55);
}

static void create_fails_cleanly_at_every_allocation(void)
{
    struct test_memory memory = {0};
    struct pkv_hooks hooks = test_hooks(&memory);
    struct prefix_config config = prefix_case_two_groups;
    struct prefix_index *index = NULL;
    pkv_pool *pools[2] = {NULL, NULL};
    ASSERT_STATUS(PKV_OK, pkv_pool_create(5, NULL, &pools[0]));
    ASSERT_STATUS(PKV_OK, pkv_pool_create(5, NULL, &pools[1]));
    config.pools = pools;
    long failures = 0;
    for (memory.fail_at = 1; prefix_index_create(&config, &hooks, &index) != PKV_OK;) {
        CU_ASSERT(index == NULL && memory.live == 0 && memory.live_bytes == 0);
        memory.fail_at = ++failures + 1;
    }
    CU_ASSERT_EQUAL(failures, 4);
    memory.fail_at = 0;
    CU_ASSERT_EQUAL(prefix_index_check(index), 0);
    prefix_index_destroy(index);
    CU_ASSERT(memory.live == 0 && memory.live_bytes == 0);
    index = NULL;
    config.num_nodes = INT32_MAX;
    ASSERT_STATUS(PKV_NEVER_FITS, prefix_index_create(&config, &hooks, &index));
    hooks.free = NULL;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  prefix_index_create(&prefix_case_two_groups, &hooks, &index));
    CU_ASSERT(index == NULL && memory.live == 0);
    pkv_pool_destroy(pools[0]);
    pkv_pool_destroy(pools[1]);
}

/* Of the second node group 0 is lost, then group 1; of the first group 0, then group 1. */
static void the_observer_sees_every_block_of_a_node_come_and_go(void)
{
    struct prefix_case fixture;
    prefix_case_open(&fixture, &prefix_case_two_groups, 8);
    struct prefix_chain chain =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 2, 0);
    const struct pkv_block_key keys[2] = {prefix_index_node(fixture.index, chain.nodes[0])->key,
                                          prefix_index_node(fixture.index, chain.nodes[1])->key};
    CU_ASSERT_EQUAL(fixture.log.calls, 4);
    prefix_index_detach(fixture.index, 0, chain.blocks[0][1]);
    CU_ASSERT_EQUAL(fixture.log.calls, 5);
    prefix_index_detach(fixture.index, 1, chain.blocks[1][1]);
    CU_ASSERT_EQUAL(fixture.log.calls, 6);
    prefix_case_release(&fixture, &chain);
    prefix_case_evict(&fixture, 1);
    CU_ASSERT_EQUAL(fixture.log.calls, 7);
    while (prefix_index_take(fixture.index, 1) != NO_BLOCK) {
    }
    static const enum prefix_change changes[] = {PREFIX_STORED, PREFIX_STORED, PREFIX_REMOVED,
                                                 PREFIX_REMOVED};
    static const int32_t which[] = {0, 1, 1, 0};
    CU_ASSERT_EQUAL(fixture.log.calls, 8);
    CU_ASSERT_EQUAL_FATAL(fixture.log.count, 4);
    for (int32_t i = 0; i < 4; i++) {
        CU_ASSERT_EQUAL(fixture.log.change[i], changes[i]);
        CU_ASSERT_EQUAL(fixture.log.key[i].low, keys[which[i]].low);
    }
    prefix_case_close(&fixture);
}

static void used_nodes_have_their_tokens_and_blocks(void)
{
    struct prefix_case fixture;
    int32_t count = 0;
    prefix_case_open(&fixture, &prefix_case_one_group, 8);
    CU_ASSERT_EQUAL(prefix_case_next(fixture.index, 0).index, PREFIX_NONE);
    struct prefix_chain chain =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 5, 0);
    prefix_index_detach(fixture.index, 0, chain.blocks[0][4]);
    prefix_case_release(&fixture, &chain);
    struct prefix_ref at = prefix_case_next(fixture.index, 0);
    for (; at.index != PREFIX_NONE; at = prefix_case_next(fixture.index, at.index + 1)) {
        const int32_t depth = prefix_index_node(fixture.index, at)->depth;
        CU_ASSERT_EQUAL(prefix_index_tokens(fixture.index, at)[0], prefix_case_tokens[depth * BS]);
        const struct prefix_ref found =
            prefix_index_node_of(fixture.index, 0, prefix_index_block(fixture.index, at, 0));
        CU_ASSERT(found.index == at.index && found.generation == at.generation);
        count++;
    }
    CU_ASSERT_EQUAL(count, 4);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 4);
    CU_ASSERT_EQUAL(prefix_index_node_of(fixture.index, 0, 7).index, PREFIX_NONE);
    prefix_case_close(&fixture);
}

static const struct test_case cases[] = {
    TEST(create_takes_what_size_says),
    TEST(create_fails_cleanly_at_every_allocation),
    TEST(the_observer_sees_every_block_of_a_node_come_and_go),
    TEST(used_nodes_have_their_tokens_and_blocks),
    TEST_END,
};
const struct test_suite suite_prefix_index = {"prefix_index", cases};
