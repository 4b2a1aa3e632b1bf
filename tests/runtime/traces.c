/* SPDX-License-Identifier: MIT
 *
 * How much of a prompt is found when memory is short, on the traces of bench/retention: by the
 * library, and by simulations of other orders of eviction. */
#include "bench/retention/served.h"
#include "bench/retention/simulated.h"
#include "support/test.h"

static struct trace trace;

static int64_t served(int64_t window, int32_t full_blocks, int32_t window_blocks)
{
    const struct serving serving = {.window = window,
                                    .full_blocks = full_blocks,
                                    .window_blocks = window_blocks,
                                    .max_seqs = 4};
    return served_tokens(&trace, &serving, NULL);
}

/* K1: of what a cache without bounds finds of shared system prompts, nine tenths are found when the
 * window group has blocks for a few windows. */
static void system_prompts_are_found_nearly_as_often_as_without_bounds(void)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        trace_of_system_prompts(&trace, 5, 300, seed);
        const int64_t without_bounds = trace_shared_tokens(&trace);
        CU_ASSERT(10 * served(64, 400, 120) >= 9 * without_bounds);
        CU_ASSERT(10 * served(256, 800, 200) >= 9 * without_bounds);
        trace_free(&trace);
    }
}

static void find_as_many_as_others(int64_t window, int32_t full_blocks, int32_t window_blocks)
{
    static const enum policy others[] = {POLICY_WINDOWS, POLICY_LRU, POLICY_MRU};
    const int64_t found = served(window, full_blocks, window_blocks);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        CU_ASSERT(found >= simulated_tokens(&trace, others[i], window, full_blocks, window_blocks));
    }
}

static void serve_chats(bool is_random)
{
    trace_of_chats(&trace, 12, 12, is_random, 1);
    find_as_many_as_others(64, 750, 750);
    find_as_many_as_others(64, 750, 53);
    find_as_many_as_others(256, 750, 750);
    find_as_many_as_others(256, 750, 160);
    trace_free(&trace);
}

/* K1: chats that take turns, and of which two thirds fit, are found at least as often as when the
 * longest unused, the most recently used, or what left a window is evicted first. */
static void chats_in_turn_are_found_as_often_as_by_the_best_simple_order(void)
{
    serve_chats(false);
}

/* K1: the same of chats that take turns at random. */
static void chats_at_random_are_found_as_often_as_by_the_best_simple_order(void)
{
    serve_chats(true);
}

static int64_t served_by_bytes(int64_t window, int32_t num_blocks)
{
    const size_t block_bytes = TRACE_BLOCK * 2 * sizeof(float); /* K and V, as wide as one float */
    const struct serving serving = {
        .window = window, .bytes = (size_t)num_blocks * block_bytes, .max_seqs = 4};
    int32_t blocks[2];
    const int64_t found = served_tokens(&trace, &serving, blocks);
    CU_ASSERT(blocks[0] + blocks[1] <= num_blocks && blocks[0] + blocks[1] >= num_blocks - 2);
    return found;
}

/* K1: bytes find as much of system prompts as equal parts do, within four in a hundred, for windows
 * stay cached; and as much of chats as when none did, for full groups have the most to keep. */
static void bytes_are_shared_so_that_hits_do_not_fall(void)
{
    for (int32_t num_prompts = 5; num_prompts <= 8; num_prompts++) {
        trace_of_system_prompts(&trace, num_prompts, 300, 1);
        CU_ASSERT(100 * served_by_bytes(64, 1200) >= 96 * served(64, 600, 600));
        CU_ASSERT(100 * served_by_bytes(256, 1200) >= 96 * served(256, 600, 600));
        trace_free(&trace);
    }
    for (int32_t is_random = 0; is_random < 2; is_random++) {
        trace_of_chats(&trace, 12, 12, is_random != 0, 1);
        CU_ASSERT(served_by_bytes(64, 1200) >= served(64, 600, 600));
        CU_ASSERT(served_by_bytes(64, 1200) >= served(64, 1090, 110));
        CU_ASSERT(served_by_bytes(256, 1200) >= served(256, 600, 600));
        trace_free(&trace);
    }
}

static const struct test_case cases[] = {
    TEST(system_prompts_are_found_nearly_as_often_as_without_bounds),
    TEST(chats_in_turn_are_found_as_often_as_by_the_best_simple_order),
    TEST(chats_at_random_are_found_as_often_as_by_the_best_simple_order),
    TEST(bytes_are_shared_so_that_hits_do_not_fall),
    TEST_END,
};
const struct test_suite suite_runtime_traces = {"runtime_traces", cases};
