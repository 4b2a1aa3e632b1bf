/* SPDX-License-Identifier: MIT
 *
 * What stays cached when memory is short: windows in front of retention points. */
#include "reuse_case.h"

static struct prefix_seq seq;

/* A request in steps of at most 8 tokens: `shared` tokens that all have, then fresh ones. Returns
 * what it adopted. */
static int32_t serve(struct runtime_case *c, int32_t request, int32_t shared, int32_t length)
{
    int32_t num_cached = -1;
    ASSERT_STATUS(PKV_OK, prefix_create(c, &seq, 0, NULL));
    for (int32_t i = shared; i < length; i++) {
        seq.ids[i] = 1000 * (request + 1) + i;
    }
    ASSERT_STATUS(PKV_OK, prefix_admit(c, &seq, length, 0, &num_cached));
    while (seq.seq.length < length) {
        const int32_t left = length - seq.seq.length;
        prefix_append(c, &seq, left < 8 ? left : 8);
    }
    prefix_destroy(c, &seq);
    CU_ASSERT_EQUAL(case_check(c), 0);
    return num_cached;
}

/* A full group that holds everything, and one with a window whose blocks are few. */
static void open_two_groups(struct runtime_case *c, int64_t window, int32_t num_window_blocks)
{
    prefix_init(c);
    c->groups[0].num_blocks = 512;
    c->config.max_seqs = 4;
    c->config.max_seq_len = 256;
    c->config.max_step_tokens = 8;
    struct pkv_group_config *group = case_add_group(c);
    group->sliding_window = window;
    group->num_blocks = num_window_blocks;
    case_add_layer(c, 1);
    case_open(c);
}

static void serve_six(int32_t num_window_blocks, int32_t num_fresh)
{
    struct runtime_case c;
    open_two_groups(&c, 8, num_window_blocks);
    for (int32_t request = 0; request < 6; request++) {
        const int32_t cached = serve(&c, request, 40, 40 + num_fresh);
        CU_ASSERT(request > 0 || cached == 0);
        CU_ASSERT(request < 2 || cached == 40);
    }
    case_close(&c);
}

/* K1: a window group keeps the window in front of the branch point of a shared prompt. */
static void a_window_group_keeps_the_branch_of_a_shared_prompt(void)
{
    for (int32_t num_blocks = 8; num_blocks <= 40; num_blocks++) {
        serve_six(num_blocks, 100);
        serve_six(num_blocks, 24);
    }
}

/* K1: the end of what a sequence held is hit by its next turn, though the window left it behind. */
static void a_window_group_keeps_the_end_of_a_turn(void)
{
    struct runtime_case c;
    open_two_groups(&c, 8, 10);
    CU_ASSERT_EQUAL(serve(&c, 0, 0, 47), 0);
    /* Ends 3 tokens behind its last full block, whose window begins a block before its own. */
    CU_ASSERT_EQUAL(serve(&c, 0, 0, 60), 44);
    CU_ASSERT_EQUAL(serve(&c, 0, 0, 80), 60);
    case_close(&c);
}

/* K1: a preempted sequence finds its window again. */
static void a_window_group_keeps_what_a_preempted_sequence_held(void)
{
    struct runtime_case c;
    int32_t num_cached = 0;
    open_two_groups(&c, 8, 10);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &seq, 0, NULL));
    for (int32_t i = 0; i < 5; i++) {
        prefix_append(&c, &seq, 8);
    }
    prefix_append(&c, &seq, 3);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &seq.seq, 0));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &seq, 43, 0, &num_cached));
    CU_ASSERT_EQUAL(num_cached, 40);
    prefix_destroy(&c, &seq);
    case_close(&c);
}

/* K14: a prompt whose cached beginning is no longer than the window, or a little, is found. */
static void a_prefix_no_longer_than_the_window_is_found(void)
{
    static const int32_t lengths[] = {962, 1008, 1024, 1040, 2048};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct runtime_case c;
        const int32_t expected = lengths[i] / 16 * 16;
        prefix_init(&c);
        c.groups[0].block_size = 16;
        c.groups[0].sliding_window = 1024;
        c.groups[0].num_blocks = 400;
        c.config.max_seq_len = 2724;
        c.config.max_step_tokens = 256;
        case_open(&c);
        static int32_t ids[2724];
        for (int32_t token = 0; token < 2724; token++) {
            ids[token] = token < expected ? token : 10000 + token;
        }
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &seq, 0, NULL));
        while (seq.seq.length < lengths[i]) {
            const int32_t left = lengths[i] - seq.seq.length;
            prefix_append(&c, &seq, left < 256 ? left : 256);
        }
        prefix_destroy(&c, &seq);
        struct pkv_admission admission = {.size = sizeof admission};
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &seq, 0, NULL));
        ASSERT_STATUS(PKV_OK, pkv_seq_admit(c.cache, seq.seq.handle, PROMPT(ids, 2724), 0, 2724,
                                            &admission, NULL));
        CU_ASSERT_EQUAL(admission.num_cached, expected);
        prefix_destroy(&c, &seq);
        case_close(&c);
    }
}

static const struct test_case cases[] = {
    TEST(a_window_group_keeps_the_branch_of_a_shared_prompt),
    TEST(a_window_group_keeps_the_end_of_a_turn),
    TEST(a_window_group_keeps_what_a_preempted_sequence_held),
    TEST(a_prefix_no_longer_than_the_window_is_found),
    TEST_END,
};
const struct test_suite suite_runtime_retention = {"runtime_retention", cases};
