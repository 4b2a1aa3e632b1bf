/* SPDX-License-Identifier: MIT
 *
 * The checker finds every kind of damage. */
#include "prefix/prefix_check.h"

#include <stdio.h>
#include <string.h>

#include "prefix_case.h"

/* One way to break an index of a chain of three (one held) and a dead node; false at the end. */
static bool break_index(struct prefix_index *index, int how)
{
    struct prefix_node_table *table = &index->nodes;
    struct prefix_namespace_table *namespaces = &index->namespaces;
    struct prefix_node *nodes = table->nodes;
    switch (how) {
    case 0: nodes[0].next = 1; break;
    case 1: table->buckets[prefix_node_bucket(table, nodes[1].key)] = 0; break;
    case 2: table->buckets[prefix_node_bucket(table, nodes[1].key)] = 99; break;
    case 3: nodes[1].key.low ^= 1; break;
    case 4: table->num_used = 2; break;
    case 5: table->free_head = 0; break;
    case 6: table->free_tail = 1; break;
    case 7: table->free_head = 1; break;
    case 8: nodes[1].parent.generation++; break;
    case 9: nodes[2].priority = 1; break;
    case 10: nodes[1].priority = PKV_NUM_PRIORITIES; break;
    case 11: nodes[0].num_children = 0; break;
    case 12: nodes[1].num_blocks = 2; break;
    case 13: prefix_node_blocks(table, 1)[0] = 77; break;
    case 14: prefix_node_blocks(table, 1)[0] = NO_BLOCK; break;
    case 15: index->block_nodes[0][0] = 2; break;
    case 16: index->block_nodes[0][7] = 1; break;
    case 17: index->block_nodes[0][7] = -5; break;
    case 18: nodes[1].depth = 0; break;
    case 19: nodes[1].num_holders = -1; break;
    case 20: nodes[1].namespace_id = 50; break;
    case 21: prefix_node_tokens(table, 1)[0] ^= 1; break;
    case 22: block_pool_move(index->pools[0], 7, PREFIX_CLASS_PRIORITY); break;
    case 23: block_pool_move(index->pools[0], 1, PREFIX_CLASS_UNINDEXED); break;
    case 24: namespaces->fields.records[0].refs++; break;
    case 25: namespaces->fields.records[0].cached++; break;
    case 26: namespaces->records[1].refs = 0; break;
    case 27: index->sweep_left = 99; break;
    case 28: memset(namespaces->fields.buckets, 0, 4 * (size_t)namespaces->num_buckets); break;
    case 29: namespaces->buckets[0] = 99; break;
    case 30: nodes[3].generation = 0, nodes[3].is_used = true; break;
    default: return false;
    }
    return true;
}

static void check_reports_every_kind_of_damage(void)
{
    bool is_broken = true;
    for (int how = 0; is_broken; how++) {
        struct prefix_case fixture;
        prefix_case_open(&fixture, &prefix_case_one_group, 8);
        const struct pkv_namespace_field field = prefix_case_field(1, "t");
        struct prefix_scope scope = prefix_case_scope(&fixture, &field, 1);
        struct prefix_chain chain =
            prefix_case_publish(&fixture, &scope, prefix_case_tokens, NULL, 4, 0);
        prefix_index_detach(fixture.index, 0, chain.blocks[0][3]);
        prefix_case_release(&fixture, &chain);
        prefix_scope_close(fixture.index, &scope);
        CU_ASSERT(prefix_index_check(fixture.index) == 0 && fixture.memory.num_logged == 0);
        is_broken = break_index(fixture.index, how);
        const int32_t faults = prefix_index_check(fixture.index);
        if (is_broken != (faults > 0)) {
            printf("check missed damage %d\n", how);
        }
        CU_ASSERT_EQUAL(is_broken, faults > 0);
        CU_ASSERT_EQUAL(fixture.memory.num_logged, faults);
        prefix_index_destroy(fixture.index);
        pkv_pool_destroy(fixture.pools[0]);
        CU_ASSERT_EQUAL(fixture.memory.live, 0);
    }
}

static const struct test_case cases[] = {
    TEST(check_reports_every_kind_of_damage),
    TEST_END,
};
const struct test_suite suite_prefix_check = {"prefix_check", cases};
