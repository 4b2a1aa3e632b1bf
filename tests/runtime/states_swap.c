/* SPDX-License-Identifier: MIT
 *
 * Sequences with state groups that are swapped out and come back. Every step compares the states
 * that it reads with its sequence's text (states_case.h), and what is freed is poisoned, swap
 * memory too: so a state that was not copied, or came back wrong, is seen by the next step. */
#include "states_case.h"

static struct state_seq x, y, z;

static void open_swapping(struct runtime_case *c, int32_t num_states, size_t swap_bytes)
{
    states_init(c);
    c->groups[2].num_blocks = c->groups[3].num_blocks = num_states;
    c->config.swap_bytes = swap_bytes;
    case_open(c);
}

static enum pkv_status swap_out(struct runtime_case *c, const struct state_seq *seq)
{
    return pkv_seq_swap_out(c->cache, seq->handle, NULL);
}

static enum pkv_status swap_in(struct runtime_case *c, const struct state_seq *seq)
{
    return pkv_seq_swap_in(c->cache, seq->handle, NULL);
}

static struct pkv_group_usage usage_of(struct runtime_case *c, int32_t g)
{
    struct pkv_group_usage usage = {.size = sizeof usage};
    ASSERT_STATUS(PKV_OK, pkv_cache_usage(c->cache, g, &usage));
    return usage;
}

/* Others take every state and every block that is free, and release them poisoned. */
static void overwrite_free(struct runtime_case *c)
{
    for (int32_t i = 0; i < 40; i++) {
        (void)states_serve(c, &z, 100000 * (i + 1), 30, 9);
        states_destroy(c, &z);
    }
}

static void states_come_back_bit_by_bit(void)
{
    for (int32_t length = 37; length <= 41; length++) {
        struct runtime_case c;
        open_swapping(&c, 24, 1 << 20);
        (void)states_serve(&c, &x, 0, length, 7);
        for (int32_t i = 0; i < 4; i++) {
            ASSERT_STATUS(PKV_OK, swap_out(&c, &x));
            CU_ASSERT_EQUAL(usage_of(&c, 2).held, 0);
            overwrite_free(&c);
            ASSERT_STATUS(PKV_OK, swap_in(&c, &x));
            CU_ASSERT(usage_of(&c, 2).held == 1 && case_check(&c) == 0);
            states_append(&c, &x, 1 + i);
        }
        CU_ASSERT_EQUAL(prefix_stats(&c).used_swap_units, 0);
        case_close(&c);
    }
}

/* Every length that it could be cut to or forked at, it still can. */
static void a_ring_of_states_comes_back_whole(void)
{
    for (int32_t back = 0; back <= 5; back++) {
        struct runtime_case c;
        states_init(&c);
        c.groups[2].max_rewind = c.groups[3].max_rewind = 5;
        c.config.swap_bytes = 1 << 20;
        case_open(&c);
        ASSERT_STATUS(PKV_OK, states_create(&c, &x, 0, 5));
        ASSERT_STATUS(PKV_OK, states_admit(&c, &x, 30, NULL));
        states_append(&c, &x, 30);
        states_append(&c, &x, 2);
        CU_ASSERT_EQUAL(usage_of(&c, 2).held, 6);
        ASSERT_STATUS(PKV_OK, swap_out(&c, &x));
        overwrite_free(&c);
        ASSERT_STATUS(PKV_OK, swap_in(&c, &x));
        CU_ASSERT_EQUAL(usage_of(&c, 2).held, 6);
        ASSERT_STATUS(PKV_OK, states_fork(&c, &x, 32 - back, &y));
        ASSERT_STATUS(PKV_OK, states_truncate(&c, &x, 32 - back));
        y.ids[32 - back] = 777;
        states_append(&c, &x, 3);
        states_append(&c, &y, 3);
        CU_ASSERT_EQUAL(case_check(&c), 0);
        case_close(&c);
    }
}

static void a_shortage_of_states_changes_nothing(void)
{
    struct runtime_case c;
    struct pkv_shortage shortage = {.size = sizeof shortage};
    open_swapping(&c, 4, 1 << 20);
    (void)states_serve(&c, &x, 0, 30, 64);
    ASSERT_STATUS(PKV_OK, swap_out(&c, &x));
    const int64_t num_units = prefix_stats(&c).used_swap_units;
    for (int32_t i = 0; i < 2; i++) {
        ASSERT_STATUS(PKV_OK, states_create(&c, i == 0 ? &y : &z, 1000 * (i + 1), 0));
        ASSERT_STATUS(PKV_OK, states_admit(&c, i == 0 ? &y : &z, 20, NULL));
    }
    ASSERT_STATUS(PKV_NO_BLOCKS, pkv_seq_swap_in(c.cache, x.handle, &shortage));
    CU_ASSERT(shortage.group == 2 && shortage.need == 2 && shortage.free == 0);
    CU_ASSERT(usage_of(&c, 0).held == 0 && usage_of(&c, 2).held == 0);
    CU_ASSERT(prefix_stats(&c).used_swap_units == num_units && case_check(&c) == 0);
    states_append(&c, &y, 20); /* what was promised is there */
    states_append(&c, &z, 20);
    states_append(&c, &y, 9);
    ASSERT_STATUS(PKV_NO_BLOCKS, pkv_wait_free(c.cache, x.handle, &shortage, 0));
    states_destroy(&c, &z);
    ASSERT_STATUS(PKV_OK, pkv_wait_free(c.cache, x.handle, &shortage, 0));
    ASSERT_STATUS(PKV_OK, swap_in(&c, &x));
    states_append(&c, &x, 5);
    case_close(&c);
}

/* A fork, which was promised nothing, comes back to a state that its parent has as part of its
 * promise: that takes a spare one. */
static void a_fork_that_comes_back_does_not_shorten_a_promise(void)
{
    struct runtime_case c;
    struct pkv_shortage shortage = {.size = sizeof shortage};
    open_swapping(&c, 3, 1 << 20);
    ASSERT_STATUS(PKV_OK, states_create(&c, &x, 0, 0));
    ASSERT_STATUS(PKV_OK, states_admit(&c, &x, 60, NULL));
    states_append(&c, &x, 40);
    ASSERT_STATUS(PKV_OK, states_fork(&c, &x, 40, &y));
    ASSERT_STATUS(PKV_OK, swap_out(&c, &y));
    ASSERT_STATUS(PKV_OK, states_create(&c, &z, 1000, 0));
    states_append(&c, &z, 1);
    ASSERT_STATUS(PKV_NO_BLOCKS, pkv_seq_swap_in(c.cache, y.handle, &shortage));
    CU_ASSERT(shortage.group == 2 && shortage.need == 1 && case_check(&c) == 0);
    states_append(&c, &x, 5); /* what was promised is there */
    states_destroy(&c, &z);
    ASSERT_STATUS(PKV_OK, swap_in(&c, &y));
    CU_ASSERT_EQUAL(case_check(&c), 0);
    case_close(&c);
}

/* A unit is what a state of the group of one layer takes: 64 bytes. A sequence of one token has a
 * key and a value of 8 bytes in each of two groups, and 3 states. */
static void states_take_units_of_swap_memory(void)
{
    struct runtime_case c;
    struct pkv_shortage shortage = {.size = sizeof shortage};
    open_swapping(&c, 24, 8 * 64);
    CU_ASSERT_EQUAL(prefix_stats(&c).swap_units, 8);
    ASSERT_STATUS(PKV_OK, states_create(&c, &x, 0, 0));
    ASSERT_STATUS(PKV_OK, states_create(&c, &y, 500, 0));
    states_append(&c, &x, 1);
    states_append(&c, &y, 1);
    ASSERT_STATUS(PKV_OK, swap_out(&c, &x));
    CU_ASSERT_EQUAL(prefix_stats(&c).used_swap_units, 5);
    ASSERT_REFUSED(PKV_NO_BLOCKS, "swap area", pkv_seq_swap_out(c.cache, y.handle, &shortage));
    CU_ASSERT(shortage.group == -1 && shortage.need == 5 && shortage.free == 3);
    CU_ASSERT(usage_of(&c, 2).held == 1 && case_check(&c) == 0);
    states_append(&c, &y, 30);
    ASSERT_REFUSED(PKV_NEVER_FITS, "swap area", pkv_seq_swap_out(c.cache, y.handle, &shortage));
    states_append(&c, &y, 1);
    ASSERT_STATUS(PKV_OK, swap_in(&c, &x));
    states_append(&c, &x, 1);
    case_close(&c);
}

/* 36 tokens end in a snapshot, which nobody takes meanwhile. */
static void a_snapshot_that_is_still_cached_is_adopted_and_not_copied(void)
{
    struct runtime_case c;
    open_swapping(&c, 24, 1 << 20);
    (void)states_serve(&c, &x, 0, 36, 64);
    ASSERT_STATUS(PKV_OK, swap_out(&c, &x));
    CU_ASSERT(prefix_stats(&c).swap_out_bytes > 3 * 64);
    (void)states_serve(&c, &y, 0, 37, 64);
    ASSERT_STATUS(PKV_OK, swap_in(&c, &x));
    CU_ASSERT_EQUAL(prefix_stats(&c).swap_in_bytes, 0);
    CU_ASSERT_EQUAL(states_append(&c, &x, 1).num_in_place, 0); /* later hits need it */
    states_append(&c, &y, 1);
    states_destroy(&c, &x);
    states_destroy(&c, &y);
    CU_ASSERT_EQUAL(states_serve(&c, &x, 0, 37, 64), 36);
    case_close(&c);
}

static void a_snapshot_that_was_evicted_is_copied_and_can_be_found_again(void)
{
    struct runtime_case c;
    open_swapping(&c, 24, 1 << 20);
    (void)states_serve(&c, &x, 0, 36, 64);
    ASSERT_STATUS(PKV_OK, swap_out(&c, &x));
    overwrite_free(&c);
    (void)states_serve(&c, &y, 0, 20, 64);
    ASSERT_STATUS(PKV_OK, swap_in(&c, &x));
    CU_ASSERT(prefix_stats(&c).swap_in_bytes > 3 * 64 && case_check(&c) == 0);
    ASSERT_STATUS(PKV_OK, states_create(&c, &z, 0, 0));
    ASSERT_STATUS(PKV_OK, states_admit(&c, &z, 40, NULL));
    CU_ASSERT_EQUAL(z.length, 36);
    states_append(&c, &x, 3);
    states_append(&c, &z, 3);
    case_close(&c);
}

/* Steps of an admitted sequence find their states, as before it was away. */
static void the_promise_of_states_ends_and_is_made_again(void)
{
    struct runtime_case c;
    open_swapping(&c, 4, 1 << 20);
    ASSERT_STATUS(PKV_OK, states_create(&c, &x, 0, 0));
    ASSERT_STATUS(PKV_OK, states_admit(&c, &x, 40, NULL));
    states_append(&c, &x, 1);
    const int32_t promised = usage_of(&c, 2).promised;
    CU_ASSERT_EQUAL(promised, 1);
    ASSERT_STATUS(PKV_OK, swap_out(&c, &x));
    CU_ASSERT_EQUAL(usage_of(&c, 2).promised, 0);
    ASSERT_STATUS(PKV_OK, swap_in(&c, &x));
    CU_ASSERT_EQUAL(usage_of(&c, 2).promised, promised);
    ASSERT_STATUS(PKV_OK, states_create(&c, &y, 500, 0));
    ASSERT_STATUS(PKV_OK, states_create(&c, &z, 900, 0));
    ASSERT_STATUS(PKV_OK, states_admit(&c, &y, 40, NULL));
    ASSERT_STATUS(PKV_NO_BLOCKS, states_admit(&c, &z, 40, NULL));
    for (int32_t i = 1; i < 60; i++) {
        states_append(&c, &x, 1);
        states_append(&c, &y, 1);
    }
    CU_ASSERT_EQUAL(case_check(&c), 0);
    case_close(&c);
}

/* A state that an aborted step has lost is lost still; the text begins again. */
static void a_lost_state_is_none_when_it_comes_back(void)
{
    struct runtime_case c;
    open_swapping(&c, 24, 1 << 20);
    (void)states_serve(&c, &x, 0, 30, 64);
    states_append(&c, &x, 1);
    const struct state_row row = {&x, 1, NULL};
    pkv_step step;
    ASSERT_STATUS(PKV_OK, states_begin(&c, &row, 1, &step));
    states_run(&c, &row, step, NULL);
    ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
    ASSERT_STATUS(PKV_OK, swap_out(&c, &x));
    ASSERT_STATUS(PKV_OK, swap_in(&c, &x));
    ASSERT_REFUSED(PKV_NOT_RESIDENT, "has no state", states_begin(&c, &row, 1, &step));
    ASSERT_STATUS(PKV_OK, states_truncate(&c, &x, 0));
    states_append(&c, &x, 5);
    case_close(&c);
}

/* The slot stays, the state makes room for another sequence's. */
static void states_beside_continuous_groups_make_room(void)
{
    struct runtime_case c;
    states_init(&c);
    c.groups[0].storage = c.groups[1].storage = PKV_STORAGE_CONTINUOUS;
    c.groups[2].num_blocks = c.groups[3].num_blocks = 1;
    c.config.swap_bytes = 1 << 12;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, states_create(&c, &x, 0, 0));
    ASSERT_STATUS(PKV_OK, states_create(&c, &y, 500, 0));
    states_append(&c, &x, 9);
    for (int32_t i = 0; i < 6; i++) {
        struct state_seq *out = i % 2 == 0 ? &x : &y;
        struct state_seq *in = i % 2 == 0 ? &y : &x;
        ASSERT_STATUS(PKV_OK, swap_out(&c, out));
        ASSERT_STATUS(i == 0 ? PKV_INVALID_ARGUMENT : PKV_OK, swap_in(&c, in));
        states_append(&c, in, 1 + i);
        ASSERT_STATUS(PKV_NO_BLOCKS, swap_in(&c, out));
        CU_ASSERT_EQUAL(case_check(&c), 0);
    }
    case_close(&c);
}

static void cut_to_nothing_or_destroyed_while_away_leaves_no_state(void)
{
    struct runtime_case c;
    open_swapping(&c, 4, 1 << 20);
    for (int32_t i = 0; i < 12; i++) {
        (void)states_serve(&c, &x, 1000 * i, 30, 64);
        ASSERT_STATUS(PKV_OK, swap_out(&c, &x));
        ASSERT_REFUSED(PKV_NOT_RESIDENT, "swapped out", states_fork(&c, &x, 30, &y));
        ASSERT_REFUSED(PKV_NOT_RESIDENT, "swapped out", states_truncate(&c, &x, 30));
        if (i % 2 == 0) {
            ASSERT_STATUS(PKV_OK, states_truncate(&c, &x, 0));
            states_append(&c, &x, 3);
        }
        states_destroy(&c, &x);
        CU_ASSERT(prefix_stats(&c).used_swap_units == 0 && case_check(&c) == 0);
        CU_ASSERT(usage_of(&c, 2).held == 0 && usage_of(&c, 2).promised == 0);
    }
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(states_come_back_bit_by_bit),
    TEST(a_ring_of_states_comes_back_whole),
    TEST(a_shortage_of_states_changes_nothing),
    TEST(a_fork_that_comes_back_does_not_shorten_a_promise),
    TEST(states_take_units_of_swap_memory),
    TEST(a_snapshot_that_is_still_cached_is_adopted_and_not_copied),
    TEST(a_snapshot_that_was_evicted_is_copied_and_can_be_found_again),
    TEST(the_promise_of_states_ends_and_is_made_again),
    TEST(a_lost_state_is_none_when_it_comes_back),
    TEST(states_beside_continuous_groups_make_room),
    TEST(cut_to_nothing_or_destroyed_while_away_leaves_no_state),
    TEST_END,
};

const struct test_suite suite_runtime_states_swap = {"runtime_states_swap", cases};
