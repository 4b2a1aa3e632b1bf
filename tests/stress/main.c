/* SPDX-License-Identifier: MIT
 *
 * main.c: stress [SECONDS], else PKV_STRESS_SECONDS, else 6: so long do eight clients and a stepper
 * work on small pools: a quarter of it each on a full and a window group, on one full group, on
 * groups with different block sizes, and on these with state groups beside. CUnit says what held. A
 * watchdog ends the program when a thread stands still. PKV_TEST_SEED seeds all threads; how they
 * interleave is the machine's. */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stress/world.h"

enum { PATIENCE_SECONDS = 120, NUM_VARIANTS = 4 };

static double seconds_wanted = 6;

struct run {
    struct world world;
    struct client clients[NUM_CLIENTS];
    struct stepper stepper;
    struct pkv_stats stats;
    int32_t num_held; /* blocks, when all sequences and pins had ended */
    atomic_bool is_done;
};
static struct run run;

static void sleep_ms(long milliseconds)
{
    const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* After is_over threads end, and joining them is what must not take for ever. */
static void *watch(void *argument)
{
    long long last[NUM_CLIENTS + 1] = {0};
    double moved[NUM_CLIENTS + 1];
    for (int i = 0; i <= NUM_CLIENTS; i++) {
        moved[i] = now();
    }
    while (!atomic_load(&run.is_done)) {
        sleep_ms(50);
        for (int i = 0; i <= NUM_CLIENTS; i++) {
            const long long count = atomic_load(&run.world.progress[i]);
            if (count != last[i]) {
                moved[i] = now();
                last[i] = count;
            } else if (now() - moved[i] > PATIENCE_SECONDS) {
                printf("\nthread %d stands still in: %s\n", i, atomic_load(&run.world.doing[i]));
                fflush(stdout);
                _Exit(EXIT_FAILURE);
            }
        }
    }
    return argument;
}

static void open_run(enum world_variant variant)
{
    memset(&run, 0, sizeof run);
    world_configure(&run.world, variant);
    world_open(&run.world);
    atomic_store(&run.world.now_ns, 1);
    for (int32_t i = 0; i <= NUM_CLIENTS; i++) {
        atomic_store(&run.world.doing[i], "nothing yet");
    }
    for (int32_t i = 0; i < NUM_CLIENTS; i++) {
        run.clients[i].world = &run.world;
        run.clients[i].index = i;
        run.clients[i].random.state = test_seed() + (uint64_t)i;
        replay_open(&run.clients[i].replay, &run.world);
    }
    run.stepper.world = &run.world;
    run.stepper.forward.world = &run.world;
    run.stepper.random.state = test_seed() + NUM_CLIENTS;
    replay_open(&run.stepper.replay, &run.world);
}

/* Creates sequences until the cache is closed. */
static void *create_on(void *argument)
{
    struct world *world = argument;
    enum pkv_status status = PKV_OK;
    while (status == PKV_OK) {
        pkv_seq seq;
        status = pkv_seq_create(world->cache, NULL, &seq);
        world_expect(world, "create while closing", status, PKV_OK, PKV_BUSY, PKV_OK);
        if (status == PKV_OK) {
            world_expect(world, "destroy while closing", pkv_seq_destroy(world->cache, seq), PKV_OK,
                         PKV_OK, PKV_OK);
        }
    }
    return NULL;
}

static void close_cache(struct world *world)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, create_on, world) != 0) {
        CU_FAIL_FATAL("no thread");
    }
    sleep_ms(1);
    pkv_cache_close(world->cache);
    pthread_join(thread, NULL);
}

static void close_run(void)
{
    struct world *world = &run.world;
    stepper_finish(&run.stepper);
    close_cache(world);
    world_quiet(world);
    if (world->config.num_tiers > 0) {
        world_expect(world, "flush", pkv_tier_flush(world->cache, UINT64_MAX, NULL), PKV_OK, PKV_OK,
                     PKV_OK);
    }
    world_expect(world, "expire", pkv_prefix_expire(world->cache, UINT64_MAX, NULL), PKV_OK, PKV_OK,
                 PKV_OK);
    for (int32_t g = 0; g < world->config.num_groups; g++) {
        struct pkv_group_usage usage = {.size = sizeof usage};
        world_expect(world, "usage", pkv_cache_usage(world->cache, g, &usage), PKV_OK, PKV_OK,
                     PKV_OK);
        run.num_held += usage.held;
    }
    run.stats.size = sizeof run.stats;
    world_expect(world, "stats", pkv_cache_stats(world->cache, &run.stats), PKV_OK, PKV_OK, PKV_OK);
    world_expect(world, "destroy", pkv_cache_destroy(world->cache, false), PKV_OK, PKV_OK, PKV_OK);
    memory_tier_close(&world->tier);
    for (int32_t i = 0; i < NUM_CLIENTS; i++) {
        replay_close(&run.clients[i].replay);
    }
    replay_close(&run.stepper.replay);
}

static void live(enum world_variant variant)
{
    pthread_t threads[NUM_CLIENTS + 1], watchdog;
    open_run(variant);
    bool is_started = pthread_create(&watchdog, NULL, watch, NULL) == 0 &&
                      pthread_create(&threads[NUM_CLIENTS], NULL, stepper_live, &run.stepper) == 0;
    for (int32_t i = 0; i < NUM_CLIENTS && is_started; i++) {
        is_started = pthread_create(&threads[i], NULL, client_live, &run.clients[i]) == 0;
    }
    if (!is_started) {
        CU_FAIL_FATAL("no thread");
    }
    sleep_ms((long)(1000 * seconds_wanted / NUM_VARIANTS));
    atomic_store(&run.world.is_over, true);
    for (int32_t i = 0; i <= NUM_CLIENTS; i++) {
        pthread_join(threads[i], NULL);
    }
    atomic_store(&run.is_done, true);
    pthread_join(watchdog, NULL);
    close_run();
}

/* H3: tables of an open step are constant while other threads work, and none of them waits for
 * ever. */
static void a_full_and_a_window_group_keep_no_thread_waiting(void)
{
    live(WORLD_TWO_GROUPS);
}

static void a_full_group_keeps_no_thread_waiting(void)
{
    live(WORLD_ONE_GROUP);
}

static void groups_with_different_block_sizes_keep_no_thread_waiting(void)
{
    live(WORLD_MIXED_SIZES);
}

static void state_groups_keep_no_thread_waiting(void)
{
    live(WORLD_STATES);
}

static void every_answer_is_one_that_an_order_of_calls_explains(void)
{
    CU_ASSERT_EQUAL(atomic_load(&run.world.wrong_answers), 0);
}

static void every_output_has_the_bits_of_its_sequence_alone(void)
{
    CU_ASSERT_EQUAL(atomic_load(&run.world.wrong_bits), 0);
}

/* Hits, forks, rewinds, paths of trees and dropped rows all leave the state of the text. */
static void every_state_read_is_that_of_its_text(void)
{
    CU_ASSERT_EQUAL(atomic_load(&run.world.wrong_states), 0);
}

/* A11: free and held blocks are all blocks whenever no call is under way. */
static void whenever_nothing_moves_free_and_held_are_all_blocks(void)
{
    CU_ASSERT_EQUAL(atomic_load(&run.world.unsound), 0);
}

/* I1: what sequences came and went leaves no memory behind. */
static void in_the_end_nothing_is_held_and_no_byte_is_left(void)
{
    CU_ASSERT_EQUAL(run.num_held, 0);
    CU_ASSERT_EQUAL(run.stats.num_seqs, 0);
    CU_ASSERT_EQUAL(run.stats.num_pins, 0);
    CU_ASSERT_EQUAL(run.world.memory.live, 0);
    CU_ASSERT_EQUAL(run.world.memory.live_bytes, 0);
}

static void say(const char *name, long long count)
{
    printf("%s%lld %s", strcmp(name, "calls") == 0 ? "\n    " : ", ", count, name);
    CU_ASSERT(count > 0); /* or the run was no test */
}

static void everything_that_was_to_happen_happened(void)
{
    struct tally *tally = &run.world.tally;
    say("calls", atomic_load(&tally->calls));
    say("steps", atomic_load(&tally->steps));
    say("cut short", atomic_load(&tally->short_steps));
    say("aborts", atomic_load(&tally->aborts));
    say("hits", atomic_load(&tally->hits));
    say("evictions", (long long)run.stats.evicted_blocks);
    say("copies", (long long)run.stats.copied_blocks);
    say("forks", atomic_load(&tally->forks));
    say("cuts", atomic_load(&tally->cuts));
    say("pins", atomic_load(&tally->pins));
    say("trees", atomic_load(&tally->trees));
    say("wrong paths", atomic_load(&tally->refusals));
    if (run.world.config.num_tiers > 0) {
        say("prefetches", atomic_load(&tally->prefetches));
        say("tokens from the tier", atomic_load(&tally->loaded_tokens));
    }
    if (world_has_states(&run.world)) {
        say("states compared", atomic_load(&tally->checked_states));
        say("states lost", atomic_load(&tally->lost_states));
    }
    say("loads", atomic_load(&tally->loads));
    say("swaps", atomic_load(&tally->swaps));
    say("waits", atomic_load(&tally->waits));
    say("busy", atomic_load(&tally->busy));
    say("ended in a step", atomic_load(&tally->in_step_destroys));
    say("ended beside begin or commit", atomic_load(&tally->raced_destroys));
    say("quiet moments", atomic_load(&tally->quiet));
    say("sequences replayed", atomic_load(&tally->checked_requests));
    say("tokens compared", atomic_load(&tally->checked_tokens));
    printf(" ");
}

static void add_variant(const char *name, const char *first_name, void (*first)(void))
{
    const struct test_case cases[] = {
        TEST(every_answer_is_one_that_an_order_of_calls_explains),
        TEST(every_output_has_the_bits_of_its_sequence_alone),
        TEST(every_state_read_is_that_of_its_text),
        TEST(whenever_nothing_moves_free_and_held_are_all_blocks),
        TEST(in_the_end_nothing_is_held_and_no_byte_is_left),
        TEST(everything_that_was_to_happen_happened),
    };
    CU_pSuite suite = CU_add_suite(name, NULL, NULL);
    bool is_added = suite != NULL && CU_add_test(suite, first_name, first) != NULL;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0] && is_added; i++) {
        is_added = CU_add_test(suite, cases[i].name, cases[i].run) != NULL;
    }
    if (!is_added) {
        fprintf(stderr, "%s\n", CU_get_error_msg());
        exit(EXIT_FAILURE);
    }
}

int main(int argc, char **argv)
{
    const char *text = argc > 1 ? argv[1] : getenv("PKV_STRESS_SECONDS");
    char *end = NULL;
    seconds_wanted = text != NULL ? strtod(text, &end) : seconds_wanted;
    if (argc > 2 || (text != NULL && (end == text || *end != '\0' || !(seconds_wanted > 0)))) {
        fprintf(stderr, "usage: stress [SECONDS]\n");
        return 2;
    }
    if (CU_initialize_registry() != CUE_SUCCESS) {
        return EXIT_FAILURE;
    }
    add_variant("two groups", "a_full_and_a_window_group_keep_no_thread_waiting",
                a_full_and_a_window_group_keep_no_thread_waiting);
    add_variant("one group", "a_full_group_keeps_no_thread_waiting",
                a_full_group_keeps_no_thread_waiting);
    add_variant("different block sizes", "groups_with_different_block_sizes_keep_no_thread_waiting",
                groups_with_different_block_sizes_keep_no_thread_waiting);
    add_variant("state groups", "state_groups_keep_no_thread_waiting",
                state_groups_keep_no_thread_waiting);
    printf("%s; seed %llu; %.0f s\n", pkv_build_info(), (unsigned long long)test_seed(),
           seconds_wanted);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    const unsigned failures = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
