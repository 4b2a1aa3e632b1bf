/* SPDX-License-Identifier: MIT
 *
 * What is evicted first does not change because blocks are on their way to a tier when their
 * sequences end: leaves before parents, and what left a window before what a hit needs. */
#include "tier_case.h"

static struct prefix_seq x, y;

/* Works on `count` transfers, then lets them take effect. */
static void work_on(struct runtime_case *c, int count)
{
    for (int i = 0; i < count; i++) {
        ASSERT_STATUS(PKV_OK, pkv_tier_work(c->cache, 0, NULL));
    }
    ASSERT_STATUS(PKV_OK, pkv_tier_poll(c->cache, NULL));
    CU_ASSERT_EQUAL(case_check(c), 0);
}

/* D8: a prefix never loses its beginning while its end is cached. Of 40 blocks, three transfers,
 * the blocks come free at one poll or at three, behind the end of their sequence; then some of them
 * are taken. */
static void what_was_stored_is_evicted_from_its_end(void)
{
    for (int num_polls = 1; num_polls <= 3; num_polls++) {
        struct runtime_case c;
        memory_tier_open(&tier_memory, "memory");
        prefix_init(&c);
        c.groups[0].num_blocks = 44;
        c.config.max_seq_len = 200;
        c.config.max_step_tokens = 200;
        c.config.tiers = &tier_memory.tier;
        c.config.num_tiers = 1;
        c.config.max_store_blocks = 44;
        case_open(&c);
        prefix_warm(&c, &x, 100, 160);
        for (int poll = 0; poll < num_polls; poll++) {
            work_on(&c, poll + 1 < num_polls ? 1 : 3);
        }
        CU_ASSERT_EQUAL(tier_case_stats(&c).waiting_stores, 0);
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &y, 5000, NULL));
        for (int32_t taken = 4; taken < 40; taken += 3) {
            prefix_append(&c, &y, 4 * taken + 4 - y.seq.length);
            CU_ASSERT_EQUAL(prefix_hit(&c, &x, 161), 4 * (43 - taken));
        }
        case_close(&c);
        memory_tier_close(&tier_memory);
    }
}

/* A request in steps of at most 8 tokens, 40 that all have and then fresh ones; what it adopted.
 * Workers work behind each step, or once it has ended. */
static int32_t serve(struct runtime_case *c, int32_t request, int32_t length, bool works_at_once)
{
    int32_t num_cached = -1;
    ASSERT_STATUS(PKV_OK, prefix_create(c, &x, 0, NULL));
    for (int32_t i = 40; i < length; i++) {
        x.ids[i] = 1000 * (request + 1) + i;
    }
    ASSERT_STATUS(PKV_OK, prefix_admit(c, &x, length, 0, &num_cached));
    while (x.seq.length < length) {
        const int32_t left = length - x.seq.length;
        prefix_append(c, &x, left < 8 ? left : 8);
        if (works_at_once) {
            tier_case_work_and_poll(c);
        }
    }
    prefix_destroy(c, &x);
    tier_case_work_and_poll(c);
    return num_cached;
}

/* K1: a window group keeps the window in front of the branch of a shared prompt, with a tier too:
 * what a store held when its window had passed goes before it. */
static void a_window_group_with_a_tier_keeps_the_branch_of_a_shared_prompt(void)
{
    for (int32_t num_blocks = 8; num_blocks <= 40; num_blocks++) {
        for (int variant = 0; variant < 4; variant++) {
            struct runtime_case c;
            memory_tier_open(&tier_memory, "memory");
            prefix_init(&c);
            c.groups[0].num_blocks = 512;
            c.config.max_seqs = 4;
            c.config.max_seq_len = 256;
            c.config.max_step_tokens = 8;
            struct pkv_group_config *group = case_add_group(&c);
            group->sliding_window = 8;
            group->num_blocks = num_blocks + variant / 2; /* and one that waits to be stored */
            (void)case_add_layer(&c, 1);
            c.config.tiers = &tier_memory.tier;
            c.config.num_tiers = 1;
            c.config.max_store_blocks = 0; /* an eighth of each group */
            case_open(&c);
            for (int32_t request = 0; request < 6; request++) {
                const int32_t cached =
                    serve(&c, request, variant % 2 == 0 ? 140 : 64, variant / 2 == 0);
                CU_ASSERT(request > 0 || cached == 0);
                CU_ASSERT(request < 2 || cached == 40);
            }
            case_close(&c);
            memory_tier_close(&tier_memory);
        }
    }
}

/* D13: blocks whose window had passed while they waited to be stored go before the last window of a
 * chain, where its next turn is hit, however many requests come in between. */
static void what_left_a_window_while_it_waited_is_evicted_first(void)
{
    struct runtime_case c;
    memory_tier_open(&tier_memory, "memory");
    prefix_init(&c);
    c.groups[0].num_blocks = 512;
    c.config.max_seq_len = 256;
    c.config.max_step_tokens = 8;
    struct pkv_group_config *group = case_add_group(&c);
    group->sliding_window = 8;
    group->num_blocks = 60;
    (void)case_add_layer(&c, 1);
    c.config.tiers = &tier_memory.tier;
    c.config.num_tiers = 1;
    c.config.max_store_blocks = 512;
    case_open(&c);
    prefix_warm(&c, &y, 100000, 8);
    for (int32_t request = 0; request < 10; request++) {
        CU_ASSERT_EQUAL(serve(&c, request, 140, false), request == 0 ? 0 : 40);
    }
    CU_ASSERT_EQUAL(prefix_hit(&c, &y, 9), 8);
    case_close(&c);
    memory_tier_close(&tier_memory);
}

static const struct test_case cases[] = {
    TEST(what_was_stored_is_evicted_from_its_end),
    TEST(what_left_a_window_while_it_waited_is_evicted_first),
    TEST(a_window_group_with_a_tier_keeps_the_branch_of_a_shared_prompt),
    TEST_END,
};

const struct test_suite suite_runtime_tiers_order = {"runtime_tiers_order", cases};
