/* SPDX-License-Identifier: MIT
 *
 * retention: how many prompt tokens are found when memory is short: by the library, by a simulation
 * of its order of eviction and of others on the same trace, and by Belady's, which knows what
 * comes. */
#include <stdio.h>

#include "served.h"
#include "simulated.h"

static struct trace trace;

enum { NUM_BLANK = 4 };
static const int32_t blank_percents[NUM_BLANK] = {0, 5, 12, 25};

static double percent(int64_t tokens)
{
    return 100.0 * (double)tokens / (double)trace_prompt_tokens(&trace);
}

static void print_row(const char *name, int64_t window, int32_t full_blocks, int32_t window_blocks)
{
    const struct serving serving = {.window = window,
                                    .full_blocks = full_blocks,
                                    .window_blocks = window_blocks,
                                    .max_seqs = 4};
    const int64_t served = served_tokens(&trace, &serving, NULL);
    printf("%-24s %4d %5d %5d  %7.1f %7.1f", name, (int)window, (int)full_blocks,
           (int)window_blocks, percent(trace_shared_tokens(&trace)), percent(served));
    for (int policy = 0; policy < NUM_POLICIES; policy++) {
        printf(" %*.1f", policy == POLICY_LIBRARY ? 9 : 7,
               percent(simulated_tokens(&trace, (enum policy)policy, window, full_blocks,
                                        window_blocks)));
    }
    printf("\n");
}

/* Memory of so many blocks, divided by the library. */
static void print_shared(const char *name, int64_t window, int32_t num_blocks)
{
    const size_t block_bytes = TRACE_BLOCK * 2 * sizeof(float);
    const struct serving serving = {
        .window = window, .bytes = (size_t)num_blocks * block_bytes, .max_seqs = 4};
    int32_t blocks[2];
    const int64_t served = served_tokens(&trace, &serving, blocks);
    printf("%-24s %4d %5d %5d  %7.1f %7.1f  %lld tokens\n", name, (int)window, (int)blocks[0],
           (int)blocks[1], percent(trace_shared_tokens(&trace)), percent(served),
           (long long)served);
}

static void print_all_shared(void)
{
    printf("\nby bytes\n");
    for (int32_t num_prompts = 5; num_prompts <= 8; num_prompts += 3) {
        const char *name = num_prompts == 5 ? "5 system prompts" : "8 system prompts";
        trace_of_system_prompts(&trace, num_prompts, 300, 1);
        print_shared(name, 64, 600);
        print_shared(name, 256, 600);
        trace_free(&trace);
    }
    trace_of_chats(&trace, 12, 12, false, 1);
    print_shared("12 chats in turn", 64, 1200);
    print_shared("12 chats in turn", 256, 1200);
    trace_free(&trace);
}

/* --- block sizes */

/* The same memory in blocks of 16 and of 64 tokens, hits of whole blocks and others. */
static void print_sizes(const char *name, int64_t window, int32_t full_tokens,
                        int32_t window_tokens)
{
    printf("%-24s %4d %6d %6d ", name, (int)window, (int)full_tokens, (int)window_tokens);
    for (int32_t i = 0; i < 4; i++) {
        const int32_t block_size = i < 2 ? 16 : 64;
        const struct serving serving = {.window = window,
                                        .full_blocks = full_tokens / block_size,
                                        .window_blocks = window_tokens / block_size,
                                        .max_seqs = 1,
                                        .block_size = block_size,
                                        .is_partial = i % 2 != 0};
        printf(" %8.1f", percent(served_tokens(&trace, &serving, NULL)));
    }
    printf("\n");
    fflush(stdout);
}

static void compare_sizes(void)
{
    printf("\n%-24s %4s %6s %6s  %8s %8s %8s %8s\n", "prompt tokens found, %", "W", "full",
           "window", "16 whole", "16", "64 whole", "64");
    trace_of_sessions(&trace, 4, 8, 96, 16);
    print_sizes("D13, times 4", 32, -64, 512);
    print_sizes("D13, times 4", 32, -64, 1024);
    print_sizes("D13, times 4", 0, 1024, 0);
    trace_free(&trace);
    trace_of_system_prompts(&trace, 5, 300, 1);
    print_sizes("5 system prompts", 0, 6400, 0);
    print_sizes("5 system prompts", 64, 6400, 3200);
    print_sizes("5 system prompts", 256, 12800, 6400);
    trace_free(&trace);
    for (int32_t is_random = 0; is_random < 2; is_random++) {
        trace_of_chats(&trace, 12, 12, is_random != 0, 1);
        const char *name = is_random ? "12 chats at random" : "12 chats in turn";
        print_sizes(name, 64, 12000, 12000);
        print_sizes(name, 64, 12000, 848);
        print_sizes(name, 256, 12000, 12000);
        print_sizes(name, 256, 12000, 2560);
        trace_free(&trace);
    }
    trace_of_turns(&trace, 4, 32, 2000, 1);
    print_sizes("2000 turns of 32 chats", 0, 1 << 18, 0);
    print_sizes("2000 turns of 32 chats", 0, 32768, 0);
    print_sizes("2000 turns of 32 chats", 0, 16384, 0);
    print_sizes("2000 turns of 32 chats", 128, 32768, 16384);
    print_sizes("2000 turns of 32 chats", 512, 32768, 32768);
    trace_free(&trace);
}

/* --- blank blocks */

/* One group without a window, by the share of its blocks that is kept blank. */
static void print_blank(const char *name, int32_t num_blocks)
{
    printf("%-24s %5d", name, (int)num_blocks);
    for (int32_t i = 0; i < NUM_BLANK; i++) {
        const struct serving serving = {
            .full_blocks = num_blocks, .max_seqs = 4, .min_blank_percent = blank_percents[i]};
        printf(" %7.1f", percent(served_tokens(&trace, &serving, NULL)));
        fflush(stdout);
    }
    printf("\n");
}

static void compare_blank(void)
{
    printf("\n%-24s %5s", "prompt tokens found, %", "full");
    for (int32_t i = 0; i < NUM_BLANK; i++) {
        printf("  %2d %% bl", blank_percents[i]);
    }
    printf("\n");
    trace_of_system_prompts(&trace, 5, 300, 1);
    print_blank("5 system prompts", 400);
    trace_free(&trace);
    for (int32_t is_random = 0; is_random < 2; is_random++) {
        trace_of_chats(&trace, 12, 12, is_random != 0, 1);
        print_blank(is_random ? "12 chats at random" : "12 chats in turn", 750);
        trace_free(&trace);
    }
    trace_of_turns(&trace, 4, 32, 1000, 1);
    print_blank("1000 turns of 32 chats", 2048);
    trace_free(&trace);
}

/* --- snapshots */

enum { STATES_FULL_BLOCKS = 4096 }; /* room for the keys of all chats */

static void print_states(int32_t num_states, int32_t interval, int32_t segment)
{
    const struct serving serving = {.full_blocks = STATES_FULL_BLOCKS,
                                    .max_seqs = 1,
                                    .num_states = num_states,
                                    .snapshot_interval = interval,
                                    .segment_tokens = segment};
    const double keys = STATES_FULL_BLOCKS * TRACE_BLOCK;
    struct served_states states;
    const double found = percent(served_with_states(&trace, &serving, &states));
    printf("%7d %8d %7d  %7d %7.0f  %10.2f  %7.1f\n", (int)num_states, (int)interval, (int)segment,
           (int)states.max_cached, states.mean_cached,
           (double)states.max_cached * SERVED_STATE_TOKENS / keys, found);
    fflush(stdout);
}

/* Snapshots at multiples of an interval; of a segment of so many tokens one stays. */
static void compare_states(void)
{
    static const int32_t num_states[] = {8192, 128, 64, 32};
    static const int32_t kinds[][2] = {{16, 0}, {128, 0}, {16, 512}, {16, 2048}};
    const struct serving keys_alone = {.full_blocks = STATES_FULL_BLOCKS, .max_seqs = 1};
    trace_of_turns(&trace, 4, 32, 2000, 1);
    printf("\n2000 turns of 32 chats, states of the bytes of the keys and values of %d "
           "tokens;\nwithout them %.1f %% are found\n",
           SERVED_STATE_TOKENS, percent(served_tokens(&trace, &keys_alone, NULL)));
    printf("%7s %8s %7s  %7s %7s  %10s  %7s\n", "states", "interval", "segment", "most", "mean",
           "of keys", "found, %");
    for (size_t i = 0; i < sizeof num_states / sizeof *num_states; i++) {
        for (size_t j = 0; j < sizeof kinds / sizeof *kinds; j++) {
            print_states(num_states[i], kinds[j][0], kinds[j][1]);
        }
    }
    trace_free(&trace);
}

int main(void)
{
    printf("%-24s %4s %5s %5s  %7s %7s %9s %7s %7s %7s %7s\n", "prompt tokens found, %", "W",
           "full", "window", "endless", "library", "simulated", "before", "LRU", "MRU", "Belady");
    for (uint64_t seed = 1; seed <= 3; seed++) {
        trace_of_system_prompts(&trace, 5, 300, seed);
        print_row("5 system prompts", 64, 400, 120);
        print_row("5 system prompts", 256, 800, 200);
        trace_free(&trace);
    }
    for (int is_random = 0; is_random < 2; is_random++) {
        trace_of_chats(&trace, 12, 12, is_random != 0, 1);
        const char *name = is_random ? "12 chats at random" : "12 chats in turn";
        print_row(name, 64, 750, 750);
        print_row(name, 64, 750, 53);
        print_row(name, 256, 750, 750);
        print_row(name, 256, 750, 160);
        trace_free(&trace);
    }
    print_all_shared();
    compare_sizes();
    compare_blank();
    compare_states();
    return 0;
}
