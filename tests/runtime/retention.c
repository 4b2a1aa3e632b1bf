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

/* K1: windows that stay cached keep the nodes before them; when these are short, old windows go,
 * and new prompts are found. */
static void old_windows_do_not_keep_new_prompts_out(void)
{
    struct runtime_case c;
    open_two_groups(&c, 8, 512);
    for (int32_t request = 0; request < 60; request++) {
        CU_ASSERT_EQUAL(serve(&c, request, 0, 240), 0);
        CU_ASSERT_EQUAL(serve(&c, request, 0, 241), 240);
    }
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

static struct pkv_seq_options lasting(int32_t priority, uint64_t retention_ns)
{
    const struct pkv_seq_options options = {
        .size = sizeof options, .priority = priority, .retention_ns = retention_ns};
    return options;
}

static void open_small(struct runtime_case *c, int32_t num_blocks)
{
    prefix_init(c);
    c->groups[0].num_blocks = num_blocks;
    case_open(c);
}

/* Admits, writes and ends a prompt of ids base, base + 1, ..; what it adopted. */
static int32_t serve_prompt(struct runtime_case *c, int32_t base, int32_t length,
                            const struct pkv_seq_options *options)
{
    int32_t num_cached = -1;
    ASSERT_STATUS(PKV_OK, prefix_create(c, &seq, base, options));
    ASSERT_STATUS(PKV_OK, prefix_admit(c, &seq, length, 0, &num_cached));
    prefix_append(c, &seq, length - seq.seq.length);
    prefix_destroy(c, &seq);
    CU_ASSERT_EQUAL(case_check(c), 0);
    return num_cached;
}

/* Two prompts in turn beside a cached one of high priority: hits of the last of so many rounds. */
static int32_t hits_in_turn(struct runtime_case *c, int32_t num_rounds)
{
    int32_t hits = 0;
    for (int32_t round = 0; round < num_rounds; round++) {
        hits = serve_prompt(c, 1000, 13, NULL);
        hits += serve_prompt(c, 2000, 13, NULL);
    }
    return hits;
}

static void set_clock(struct runtime_case *c, uint64_t now_ns)
{
    ASSERT_STATUS(PKV_OK, pkv_prefix_expire(c->cache, now_ns, NULL));
    CU_ASSERT_EQUAL(case_check(c), 0);
}

/* K5: a priority that nobody uses any more ends, and its blocks go to those who use theirs. */
static void a_priority_lasts_as_long_as_it_is_used(void)
{
    struct runtime_case c;
    const struct pkv_seq_options for_ever = lasting(3, 0);
    const struct pkv_seq_options a_second = lasting(3, 1000000000);
    open_small(&c, 8);
    serve_prompt(&c, 0, 24, &for_ever);
    set_clock(&c, 2000000001);
    CU_ASSERT_EQUAL(hits_in_turn(&c, 3), 0);
    case_close(&c);
    open_small(&c, 8);
    set_clock(&c, 1);
    serve_prompt(&c, 0, 24, &a_second);
    set_clock(&c, 2000000001);
    CU_ASSERT_EQUAL(hits_in_turn(&c, 2), 24);
    CU_ASSERT_EQUAL(hits_in_turn(&c, 1), 24);
    case_close(&c);
}

/* K5: every hit begins the time of a priority anew. */
static void a_hit_refreshes_a_priority(void)
{
    struct runtime_case c;
    const struct pkv_seq_options options = lasting(3, 100);
    open_small(&c, 8);
    set_clock(&c, 1);
    serve_prompt(&c, 0, 13, &options);
    set_clock(&c, 90);
    CU_ASSERT_EQUAL(serve_prompt(&c, 0, 13, &options), 12);
    set_clock(&c, 180);
    for (int32_t i = 0; i < 10; i++) {
        CU_ASSERT_EQUAL(serve_prompt(&c, 3000 + 100 * i, 13, NULL), 0);
    }
    CU_ASSERT_EQUAL(serve_prompt(&c, 0, 13, &options), 12);
    set_clock(&c, 281);
    for (int32_t i = 0; i < 10; i++) {
        CU_ASSERT_EQUAL(serve_prompt(&c, 3000 + 100 * i, 13, NULL), 0);
    }
    CU_ASSERT_EQUAL(serve_prompt(&c, 0, 13, &options), 0);
    case_close(&c);
}

static int32_t set_priority(struct runtime_case *c, int32_t base, int32_t from, int32_t to,
                            int32_t priority)
{
    int32_t ids[64];
    int32_t num_changed = -1;
    for (int32_t i = 0; i < 64; i++) {
        ids[i] = base + i;
    }
    ASSERT_STATUS(PKV_OK, pkv_prefix_set_priority(c->cache, NULL, PROMPT(ids, 64), from, to,
                                                  priority, &num_changed));
    CU_ASSERT_EQUAL(case_check(c), 0);
    return num_changed;
}

/* K5: a finished branch that is let go of is evicted before anything else. */
static void a_branch_that_is_let_go_of_is_evicted_first(void)
{
    struct runtime_case c;
    const struct pkv_seq_options high = lasting(3, 0);
    open_small(&c, 12);
    serve_prompt(&c, 0, 13, NULL);
    serve_prompt(&c, 100, 25, &high);
    CU_ASSERT_EQUAL(set_priority(&c, 100, 0, 64, PKV_PRIORITY_EVICT_FIRST), 24);
    CU_ASSERT_EQUAL(set_priority(&c, 100, 0, 64, PKV_PRIORITY_EVICT_FIRST), 0);
    serve_prompt(&c, 200, 25, NULL);
    CU_ASSERT_EQUAL(serve_prompt(&c, 0, 13, NULL), 12);
    CU_ASSERT_EQUAL(serve_prompt(&c, 100, 25, NULL), 8);
    /* It was computed again, so it is kept like any other. */
    CU_ASSERT_EQUAL(set_priority(&c, 100, 0, 64, 0), 0);
    case_close(&c);
}

/* K5: a priority of a range counts for what comes before it, too, and not for what follows. */
static void a_range_of_tokens_gets_its_priority(void)
{
    struct runtime_case c;
    open_small(&c, 13);
    serve_prompt(&c, 0, 33, NULL);
    CU_ASSERT_EQUAL(set_priority(&c, 0, 5, 16, 2), 8);
    CU_ASSERT_EQUAL(set_priority(&c, 0, 0, 16, 2), 0);
    serve_prompt(&c, 100, 33, NULL);
    CU_ASSERT_EQUAL(serve_prompt(&c, 0, 33, NULL), 16);
    CU_ASSERT_EQUAL(set_priority(&c, 0, 0, 4, 0), 0); /* what follows has 2 */
    CU_ASSERT_EQUAL(set_priority(&c, 0, 8, 64, 0), 8);
    CU_ASSERT_EQUAL(set_priority(&c, 0, 0, 7, 0), 0);
    CU_ASSERT_EQUAL(set_priority(&c, 0, 0, 8, 0), 8);
    case_close(&c);
}

/* K5: what a running sequence of higher priority shares keeps its priority. */
static void what_a_running_sequence_shares_keeps_its_priority(void)
{
    static struct prefix_seq holder;
    struct runtime_case c;
    const struct pkv_seq_options high = lasting(3, 0);
    const struct pkv_seq_options low = lasting(1, 0);
    int32_t num_cached = 0;
    open_small(&c, 16);
    serve_prompt(&c, 0, 33, &high);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &holder, 0, &low));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &holder, 17, 0, &num_cached));
    CU_ASSERT_EQUAL(num_cached, 16);
    CU_ASSERT_EQUAL(set_priority(&c, 0, 0, 64, 0), 32);
    CU_ASSERT_EQUAL(set_priority(&c, 0, 0, 16, 1), 0); /* it was lowered to that alone */
    CU_ASSERT_EQUAL(set_priority(&c, 0, 0, 64, PKV_PRIORITY_EVICT_FIRST), 16);
    prefix_destroy(&c, &holder);
    CU_ASSERT_EQUAL(set_priority(&c, 0, 0, 64, PKV_PRIORITY_EVICT_FIRST), 16);
    case_close(&c);
}

/* D8: the end of a prompt is lowered to a priority that lasts, after that of the whole has ended:
 * what comes before it lasts as long. */
static void a_lowered_priority_counts_for_what_comes_before_it(void)
{
    struct runtime_case c;
    const struct pkv_seq_options for_a_while = lasting(3, 10);
    open_small(&c, 12);
    set_clock(&c, 1);
    serve_prompt(&c, 100, 25, &for_a_while);
    set_clock(&c, 50);
    CU_ASSERT_EQUAL(set_priority(&c, 100, 16, 24, 2), 8);
    for (int32_t i = 0; i < 6; i++) {
        CU_ASSERT_EQUAL(serve_prompt(&c, 1000 * (i + 1), 24, NULL), 0);
    }
    CU_ASSERT_EQUAL(serve_prompt(&c, 100, 25, NULL), 24);
    case_close(&c);
}

/* D8: a priority that has ended is taken from the end of a prompt: that is evicted first. */
static void what_is_lowered_late_is_evicted_before_what_comes_before_it(void)
{
    struct runtime_case c;
    const struct pkv_seq_options for_a_while = lasting(1, 10);
    open_small(&c, 12);
    set_clock(&c, 1);
    serve_prompt(&c, 100, 25, &for_a_while);
    set_clock(&c, 50);
    CU_ASSERT_EQUAL(set_priority(&c, 100, 8, 24, 0), 16);
    serve_prompt(&c, 0, 33, NULL);
    CU_ASSERT_EQUAL(serve_prompt(&c, 100, 25, NULL), 12);
    case_close(&c);
}

/* K5: a branch that was let go of is kept again, when its priority is raised. */
static void a_branch_that_was_let_go_of_can_be_kept_again(void)
{
    struct runtime_case c;
    open_small(&c, 12);
    serve_prompt(&c, 100, 25, NULL);
    CU_ASSERT_EQUAL(set_priority(&c, 100, 0, 64, PKV_PRIORITY_EVICT_FIRST), 24);
    CU_ASSERT_EQUAL(set_priority(&c, 100, 0, 64, 2), 24);
    for (int32_t i = 0; i < 6; i++) {
        CU_ASSERT_EQUAL(serve_prompt(&c, 1000 * (i + 1), 24, NULL), 0);
    }
    CU_ASSERT_EQUAL(serve_prompt(&c, 100, 25, NULL), 24);
    case_close(&c);
}

static void bad_priorities_and_ranges_refuse(void)
{
    struct runtime_case c;
    const int32_t ids[8] = {0};
    int32_t num_changed = 7;
    open_small(&c, 8);
    static const int32_t bad[][3] = {
        {-1, 4, 0}, {4, 3, 0}, {0, 9, 0}, {0, 8, -2}, {0, 8, PKV_NUM_PRIORITIES}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                      pkv_prefix_set_priority(c.cache, NULL, PROMPT(ids, 8), bad[i][0], bad[i][1],
                                              bad[i][2], &num_changed));
    }
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  pkv_prefix_set_priority(c.cache, NULL, NULL, 0, 0, 0, &num_changed));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  pkv_prefix_set_priority(NULL, NULL, PROMPT(ids, 8), 0, 8, 0, &num_changed));
    CU_ASSERT_EQUAL(num_changed, 7);
    ASSERT_STATUS(PKV_OK, pkv_prefix_set_priority(c.cache, NULL, PROMPT(ids, 8), 0, 8, 0, NULL));
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(a_window_group_keeps_the_branch_of_a_shared_prompt),
    TEST(a_window_group_keeps_the_end_of_a_turn),
    TEST(a_window_group_keeps_what_a_preempted_sequence_held),
    TEST(old_windows_do_not_keep_new_prompts_out),
    TEST(a_prefix_no_longer_than_the_window_is_found),
    TEST(a_priority_lasts_as_long_as_it_is_used),
    TEST(a_hit_refreshes_a_priority),
    TEST(a_branch_that_is_let_go_of_is_evicted_first),
    TEST(a_range_of_tokens_gets_its_priority),
    TEST(what_a_running_sequence_shares_keeps_its_priority),
    TEST(a_lowered_priority_counts_for_what_comes_before_it),
    TEST(what_is_lowered_late_is_evicted_before_what_comes_before_it),
    TEST(a_branch_that_was_let_go_of_can_be_kept_again),
    TEST(bad_priorities_and_ranges_refuse),
    TEST_END,
};
const struct test_suite suite_runtime_retention = {"runtime_retention", cases};
