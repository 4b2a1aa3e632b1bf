/* SPDX-License-Identifier: MIT
 *
 * The blocks of nodes: equal ones become one, in which order they are evicted, and what that leaves
 * to be hit, with and without windows. */
#include "prefix/prefix_blocks.h"

#include "base/window.h"
#include "prefix_case.h"

#define BS 4

/* A10: of equal blocks one is indexed, and every table can be rewritten to its id. */
static void equal_blocks_have_one_canonical_id(void)
{
    struct prefix_case fixture;
    prefix_case_open(&fixture, &prefix_case_one_group, 8);
    struct prefix_chain a =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 2, 0);
    const int32_t free_before = pkv_pool_num_free(fixture.pools[0]);
    struct prefix_chain b =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 2, 0);
    CU_ASSERT(b.blocks[0][0] == a.blocks[0][0] && b.blocks[0][1] == a.blocks[0][1]);
    CU_ASSERT_EQUAL(pkv_pool_ref_count(fixture.pools[0], a.blocks[0][1]), 2);
    CU_ASSERT_EQUAL(pkv_pool_num_free(fixture.pools[0]), free_before);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 2);
    CU_ASSERT_EQUAL(prefix_index_node(fixture.index, a.nodes[1])->num_holders, 2);
    prefix_case_release(&fixture, &a);
    prefix_case_release(&fixture, &b);
    CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, prefix_case_tokens, 2), 2);
    prefix_case_close(&fixture);
}

/* D7: what lies behind a block that is gone is no part of a hit. */
static void the_walk_stops_at_the_first_hole(void)
{
    struct prefix_case fixture;
    prefix_case_open(&fixture, &prefix_case_one_group, 8);
    struct prefix_chain chain =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 3, 0);
    const int32_t first = chain.blocks[0][0];
    prefix_case_release(&fixture, &chain);
    CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, prefix_case_tokens, 3), 3);
    prefix_index_detach(fixture.index, 0, first);
    CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, prefix_case_tokens, 3), 0);
    CU_ASSERT_EQUAL(block_pool_class(fixture.pools[0], first), PREFIX_CLASS_UNINDEXED);
    struct prefix_chain again =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 1, 0);
    CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, prefix_case_tokens, 3), 3);
    prefix_case_release(&fixture, &again);
    prefix_case_close(&fixture);
}

/* D8: a block is evicted before the blocks that come before it in its sequence. */
static void leaves_are_evicted_before_their_parents(void)
{
    struct prefix_case fixture;
    prefix_case_open(&fixture, &prefix_case_one_group, 8);
    prefix_case_cache(&fixture, &prefix_case_plain, prefix_case_tokens, 5);
    for (int32_t left = 4; left >= 0; left--) {
        prefix_case_evict(&fixture, 1);
        CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, prefix_case_tokens, 5), left);
        CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), left);
    }
    CU_ASSERT_EQUAL(prefix_index_counters(fixture.index).evictions, 5);
    CU_ASSERT_EQUAL(prefix_index_take(fixture.index, 0), NO_BLOCK);
    prefix_case_close(&fixture);
}

/* D8: a second sequence with a part of the chain makes that part younger, not older. */
static void a_shared_prefix_outlives_its_tails(void)
{
    struct prefix_case fixture;
    prefix_case_open(&fixture, &prefix_case_one_group, 8);
    struct prefix_chain whole =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 4, 0);
    struct prefix_chain part =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 2, 0);
    prefix_case_release(&fixture, &whole);
    prefix_case_release(&fixture, &part);
    for (int32_t left = 3; left >= 0; left--) {
        prefix_case_evict(&fixture, 1);
        CU_ASSERT_EQUAL(
            prefix_case_match(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 4), left);
    }
    prefix_case_close(&fixture);
}

static void higher_classes_are_evicted_later(void)
{
    struct prefix_case fixture;
    prefix_case_open(&fixture, &prefix_case_one_group, 8);
    for (int32_t i = 0; i < PKV_NUM_PRIORITIES; i++) {
        const int32_t priority = (i + 2) % PKV_NUM_PRIORITIES;
        struct prefix_chain chain = prefix_case_publish(
            &fixture, &prefix_case_plain, prefix_case_tokens + BS * priority, NULL, 1, priority);
        prefix_case_release(&fixture, &chain);
    }
    for (int32_t priority = 0; priority < PKV_NUM_PRIORITIES; priority++) {
        CU_ASSERT_EQUAL(
            prefix_case_hit(&fixture, &prefix_case_plain, prefix_case_tokens + BS * priority, 1),
            1);
        prefix_case_evict(&fixture, 1);
        CU_ASSERT_EQUAL(
            prefix_case_hit(&fixture, &prefix_case_plain, prefix_case_tokens + BS * priority, 1),
            0);
    }
    prefix_case_close(&fixture);
}

/* D8: a parent is at least as important as its most important child. */
static void a_parent_is_never_in_a_lower_class_than_its_child(void)
{
    struct prefix_case fixture;
    prefix_case_open(&fixture, &prefix_case_two_groups, 8);
    struct prefix_chain low =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 3, 0);
    const int32_t parent_block = low.blocks[0][0];
    const int32_t out_block = low.blocks[1][0];
    (void)prefix_index_drop(fixture.index, 1, out_block, true);
    block_pool_hold(fixture.pools[1], low.blocks[1][0]);
    prefix_case_release(&fixture, &low);
    block_pool_hold(fixture.pools[1], out_block);
    (void)prefix_index_drop(fixture.index, 1, out_block, true);
    CU_ASSERT_EQUAL(block_pool_class(fixture.pools[0], parent_block), PREFIX_CLASS_PRIORITY);
    const int32_t other[] = {0, 1, 2, 3, 9, 9, 9, 9};
    struct prefix_chain high = prefix_case_publish(&fixture, &prefix_case_plain, other, NULL, 1, 0);
    struct prefix_ref child = PREFIX_ROOT;
    prefix_case_release(&fixture, &high);
    block_pool_hold(fixture.pools[1], out_block);
    (void)prefix_index_drop(fixture.index, 1, out_block, true);
    const struct prefix_ref root =
        prefix_index_find(fixture.index, PREFIX_ROOT, 0, prefix_case_tokens, NULL);
    CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, root, 0, 1, other + BS, NULL, 2, &child),
                    PREFIX_NEW);
    CU_ASSERT_EQUAL(prefix_index_node(fixture.index, root)->priority, 2);
    CU_ASSERT_EQUAL(block_pool_class(fixture.pools[0], parent_block),
                    PREFIX_CLASS_PRIORITY + 2 * PREFIX_NUM_STANDINGS);
    CU_ASSERT_EQUAL(block_pool_class(fixture.pools[1], out_block), PREFIX_CLASS_OUT_OF_WINDOW);
    const struct prefix_ref middle =
        prefix_index_find(fixture.index, root, 0, prefix_case_tokens + BS, NULL);
    CU_ASSERT_EQUAL(prefix_index_node(fixture.index, middle)->priority, 0);
    prefix_index_raise(fixture.index, child, 3);
    prefix_index_raise(fixture.index, child, 1);
    CU_ASSERT_EQUAL(prefix_index_node(fixture.index, child)->priority, 3);
    CU_ASSERT_EQUAL(prefix_index_node(fixture.index, root)->priority, 3);
    prefix_index_release(fixture.index, child);
    prefix_case_close(&fixture);
}

/* --- windows */

/* D11: in a window group a hit needs only the blocks that its last window sees. */
static void a_window_limits_the_hit_to_what_it_needs(void)
{
    const struct prefix_window window[] = {{8, 0}};
    struct prefix_case fixture;
    struct prefix_ref nodes[6];
    prefix_case_open(&fixture, &prefix_case_one_group, 8);
    struct prefix_chain chain =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 6, 0);
    for (int32_t i = 0; i < 3; i++) {
        prefix_index_detach(fixture.index, 0, chain.blocks[0][i]);
    }
    CU_ASSERT_EQUAL(
        prefix_index_match(fixture.index, &prefix_case_plain, prefix_case_tokens, NULL, 5, nodes),
        5);
    CU_ASSERT_EQUAL(prefix_index_resident(fixture.index, nodes, 5, window, NULL),
                    5); /* 20 tokens */
    CU_ASSERT_EQUAL(prefix_index_resident(fixture.index, nodes, 4, window, NULL), 0);
    CU_ASSERT_EQUAL(prefix_index_resident(fixture.index, nodes, 5,
                                          (const struct prefix_window[]){{8, 1}}, NULL),
                    0);
    CU_ASSERT_EQUAL(prefix_index_resident(fixture.index, nodes, 5,
                                          (const struct prefix_window[]){{9, 0}}, NULL),
                    5);
    CU_ASSERT_EQUAL(prefix_index_resident(fixture.index, nodes, 5,
                                          (const struct prefix_window[]){{10, 0}}, NULL),
                    0);
    CU_ASSERT_EQUAL(prefix_index_resident(fixture.index, nodes, 4,
                                          (const struct prefix_window[]){{1, 0}}, NULL),
                    4);
    prefix_index_detach(fixture.index, 0, chain.blocks[0][3]);
    CU_ASSERT_EQUAL(prefix_index_resident(fixture.index, nodes, 5, window, NULL), 0);
    prefix_case_release(&fixture, &chain);
    prefix_case_close(&fixture);
}

/* D11: the least of the groups' hits is no common one; a shorter length is tried. */
static void groups_agree_on_one_length(void)
{
    const struct prefix_window windows[] = {{0, 0}, {5, 2}};
    struct prefix_case fixture;
    struct prefix_ref nodes[6];
    prefix_case_open(&fixture, &prefix_case_two_groups, 8);
    struct prefix_chain chain =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 6, 0);
    CU_ASSERT_EQUAL(
        prefix_index_match(fixture.index, &prefix_case_plain, prefix_case_tokens, NULL, 6, nodes),
        6);
    CU_ASSERT_EQUAL(prefix_index_resident(fixture.index, nodes, 6, windows, NULL), 6);
    prefix_index_detach(fixture.index, 0, chain.blocks[0][5]);
    prefix_index_detach(fixture.index, 1, chain.blocks[1][4]);
    CU_ASSERT_EQUAL(
        prefix_index_match(fixture.index, &prefix_case_plain, prefix_case_tokens, NULL, 6, nodes),
        6);
    CU_ASSERT_EQUAL(prefix_index_resident(fixture.index, nodes, 6, windows, NULL), 4);
    prefix_index_detach(fixture.index, 1, chain.blocks[1][3]);
    prefix_index_detach(fixture.index, 1, chain.blocks[1][1]);
    CU_ASSERT_EQUAL(prefix_index_resident(fixture.index, nodes, 6, windows, NULL), 3);
    prefix_index_detach(fixture.index, 1, chain.blocks[1][2]);
    CU_ASSERT_EQUAL(prefix_index_resident(fixture.index, nodes, 6, windows, NULL), 1);
    prefix_index_detach(fixture.index, 1, chain.blocks[1][0]);
    CU_ASSERT_EQUAL(prefix_index_resident(fixture.index, nodes, 6, windows, NULL), 0);
    CU_ASSERT_EQUAL(prefix_index_resident(fixture.index, nodes, 0, windows, NULL), 0);
    prefix_case_release(&fixture, &chain);
    prefix_case_close(&fixture);
}

/* D13: blocks that left their window are evicted before those that a hit needs. */
static void out_of_window_blocks_go_after_plain_and_before_cached_ones(void)
{
    struct prefix_case fixture;
    prefix_case_open(&fixture, &prefix_case_one_group, 8);
    struct prefix_chain chain =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 6, 0);
    struct prefix_ref nodes[6];
    for (int32_t i = 0; i < 3; i++) {
        (void)prefix_index_drop(fixture.index, 0, chain.blocks[0][i], true);
    }
    for (int32_t i = 5; i >= 3; i--) {
        (void)prefix_index_drop(fixture.index, 0, chain.blocks[0][i], false);
    }
    prefix_index_release(fixture.index, chain.nodes[5]);
    static const int32_t order[] = {6, 7, 0, 1, 2};
    for (int32_t i = 0; i < 5; i++) {
        CU_ASSERT_EQUAL(prefix_index_take(fixture.index, 0), order[i]);
    }
    /* Their nodes stay while a descendant has a block, so the last window is found. */
    CU_ASSERT_EQUAL(
        prefix_index_match(fixture.index, &prefix_case_plain, prefix_case_tokens, NULL, 6, nodes),
        6);
    CU_ASSERT_EQUAL(prefix_index_resident(fixture.index, nodes, 6,
                                          (const struct prefix_window[]){{8, 0}}, NULL),
                    6);
    CU_ASSERT_EQUAL(prefix_index_take(fixture.index, 0), 5);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 5);
    CU_ASSERT_EQUAL(prefix_index_take(fixture.index, 0), 4);
    CU_ASSERT_EQUAL(prefix_index_take(fixture.index, 0), 3);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 0);
    prefix_case_close(&fixture);
}

/* One turn of a session with a window of 8: adopts what it can of `count` blocks, computes the
 * rest, drops what left the window, and ends. Answers the blocks adopted. */
static int32_t session_turn(struct prefix_case *fixture, const int32_t *tokens, int32_t count)
{
    const struct prefix_window window = {8, 0};
    const uint64_t epoch = prefix_index_epoch(fixture->index);
    struct prefix_ref nodes[PREFIX_CASE_CHAIN];
    int32_t blocks[PREFIX_CASE_CHAIN];
    int32_t first = 0;
    const int32_t matched =
        prefix_index_match(fixture->index, &prefix_case_plain, tokens, NULL, count - 1, nodes);
    const int32_t hit = prefix_index_resident(fixture->index, nodes, matched, &window, NULL);
    first = first_needed_block((int64_t)hit * BS, window.window, BS);
    for (int32_t i = first; i < hit; i++) {
        blocks[i] = prefix_index_block(fixture->index, nodes[i], 0);
        block_pool_hold(fixture->pools[0], blocks[i]);
    }
    struct prefix_ref newest = hit == 0 ? PREFIX_ROOT : nodes[hit - 1];
    prefix_index_hold(fixture->index, newest);
    for (int32_t i = hit; i < count; i++) {
        const struct prefix_ref parent = newest;
        blocks[i] = prefix_index_take(fixture->index, 0);
        CU_ASSERT_FATAL(blocks[i] != NO_BLOCK);
        CU_ASSERT(prefix_index_insert(fixture->index, parent, 0, epoch, tokens + (size_t)i * BS,
                                      NULL, 0, &newest) <= PREFIX_FOUND);
        prefix_index_release(fixture->index, parent);
        CU_ASSERT_EQUAL(prefix_index_attach(fixture->index, newest, 0, blocks[i]), blocks[i]);
        for (; first < first_needed_block((int64_t)(i + 1) * BS, window.window, BS); first++) {
            (void)prefix_index_drop(fixture->index, 0, blocks[first], true);
        }
    }
    for (int32_t i = count - 1; i >= first; i--) {
        (void)prefix_index_drop(fixture->index, 0, blocks[i], false);
    }
    prefix_index_release(fixture->index, newest);
    CU_ASSERT_EQUAL(prefix_index_check(fixture->index), 0);
    return hit;
}

/* D13: the last window of a session outlives the blocks behind the windows of others. */
static void sessions_in_turn_keep_their_last_windows(void)
{
    struct prefix_case fixture;
    int32_t tokens[4][32 * BS];
    prefix_case_open(&fixture, &prefix_case_one_group, 32);
    for (int32_t i = 0; i < 4 * 32 * BS; i++) {
        tokens[i / (32 * BS)][i % (32 * BS)] = i;
    }
    /* Chains of 6 .. 15 blocks: 60 of the 64 nodes. */
    for (int32_t round = 0; round < 10; round++) {
        for (int32_t session = 0; session < 4; session++) {
            const int32_t hit = session_turn(&fixture, tokens[session], 6 + round);
            CU_ASSERT(round == 0 || hit * BS >= 20);
            CU_ASSERT(round == 0 || hit == 6 + round - 1);
        }
    }
    CU_ASSERT(prefix_index_counters(fixture.index).evictions > 0);
    prefix_case_close(&fixture);
}

static const struct test_case cases[] = {
    TEST(equal_blocks_have_one_canonical_id),
    TEST(the_walk_stops_at_the_first_hole),
    TEST(leaves_are_evicted_before_their_parents),
    TEST(a_shared_prefix_outlives_its_tails),
    TEST(higher_classes_are_evicted_later),
    TEST(a_parent_is_never_in_a_lower_class_than_its_child),
    TEST(a_window_limits_the_hit_to_what_it_needs),
    TEST(groups_agree_on_one_length),
    TEST(out_of_window_blocks_go_after_plain_and_before_cached_ones),
    TEST(sessions_in_turn_keep_their_last_windows),
    TEST_END,
};
const struct test_suite suite_prefix_blocks = {"prefix_blocks", cases};
