/* SPDX-License-Identifier: MIT
 *
 * State groups: which state each row reads and writes. */
#include <string.h>

#include "states_case.h"

static struct state_seq x, y, z;

static struct pkv_group_usage usage_of(struct runtime_case *c, int32_t g)
{
    struct pkv_group_usage usage = {.size = sizeof usage};
    ASSERT_STATUS(PKV_OK, pkv_cache_usage(c->cache, g, &usage));
    return usage;
}

static void open_states(struct runtime_case *c)
{
    states_init(c);
    case_open(c);
}

static void a_new_sequence_begins_with_zeros_and_goes_on_in_place(void)
{
    struct runtime_case c;
    states_init(&c);
    c.config.prefix_cache = false;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, states_create(&c, &x, 0, 0));
    struct state_counts counts = states_append(&c, &x, 5);
    CU_ASSERT(counts.num_zero_reads == 1 && counts.num_in_place == 0 && counts.num_writes == 1);
    for (int i = 0; i < 20; i++) {
        counts = states_append(&c, &x, 1 + i % 3);
        CU_ASSERT(counts.num_zero_reads == 0 && counts.num_in_place == 1);
        CU_ASSERT_EQUAL(usage_of(&c, 2).held, 1);
    }
    states_destroy(&c, &x);
    CU_ASSERT_EQUAL(usage_of(&c, 2).held, 0);
    ASSERT_STATUS(PKV_OK, states_create(&c, &y, 500, 0));
    counts = states_append(&c, &y, 3);
    CU_ASSERT_EQUAL(counts.num_zero_reads, 1);
    case_close(&c);
}

/* K12: a prompt of a multiple of the block, one token less or one more, three runs each, adopts the
 * longest prefix that has a snapshot. */
static void prompts_around_a_multiple_of_the_block_hit_their_last_snapshot(void)
{
    for (int32_t length = 39; length <= 41; length++) {
        for (int32_t chunk = 1; chunk <= 64; chunk = chunk * 3 + 1) {
            struct runtime_case c;
            open_states(&c);
            CU_ASSERT_EQUAL(states_serve(&c, &x, 0, length, chunk), 0);
            for (int run = 0; run < 2; run++) {
                CU_ASSERT_EQUAL(states_serve(&c, &y, 0, length, chunk), (length - 1) / 4 * 4);
                states_destroy(&c, &y);
            }
            states_destroy(&c, &x);
            CU_ASSERT_EQUAL(states_serve(&c, &y, 0, length, chunk), (length - 1) / 4 * 4);
            CU_ASSERT_EQUAL(case_check(&c), 0);
            case_close(&c);
        }
    }
}

/* With snapshots every 16 tokens hits end there, and at the end of a prompt. */
static void hits_end_at_snapshots_and_at_the_ends_of_prompts(void)
{
    struct runtime_case c;
    states_init(&c);
    c.groups[2].snapshot_interval = 16;
    c.groups[3].snapshot_interval = 8;
    case_open(&c);
    (void)states_serve(&c, &x, 0, 54, 64);
    states_append(&c, &x, 30);
    for (int32_t length = 1; length <= 84; length++) {
        struct pkv_probe probe = {.size = sizeof probe};
        int32_t group_cached[CASE_MAX_GROUPS];
        int32_t num_cached = -1;
        ASSERT_STATUS(
            PKV_OK, pkv_cache_probe(c.cache, NULL, PROMPT(x.ids, length), 0, length, &probe, NULL));
        const int32_t limit = (length - 1) / 4 * 4;
        const int32_t expected = limit >= 52 && limit < 64 ? 52 : limit / 16 * 16;
        CU_ASSERT_EQUAL(probe.num_cached, expected);
        ASSERT_STATUS(PKV_OK, pkv_cache_probe_groups(c.cache, NULL, PROMPT(x.ids, length), length,
                                                     group_cached, &num_cached));
        CU_ASSERT_EQUAL(num_cached, expected);
        CU_ASSERT_EQUAL(group_cached[2], expected);
        CU_ASSERT_EQUAL(group_cached[3], limit >= 52 && limit < 56 ? 52 : limit / 8 * 8);
    }
    case_close(&c);
}

/* A row that reads its state after the donor is gone, and what was freed is poisoned. */
static void a_hit_reads_its_state_whatever_happens_to_the_donor(void)
{
    struct runtime_case c;
    open_states(&c);
    (void)states_serve(&c, &x, 0, 40, 7);
    ASSERT_STATUS(PKV_OK, states_create(&c, &y, 0, 0));
    ASSERT_STATUS(PKV_OK, states_admit(&c, &y, 40, NULL));
    CU_ASSERT_EQUAL(y.length, 36);
    states_append(&c, &x, 3);
    states_destroy(&c, &x);
    for (int i = 0; i < 12; i++) { /* others take every state that is free */
        (void)states_serve(&c, &z, 1000 * (i + 1), 30, 9);
        states_destroy(&c, &z);
    }
    states_append(&c, &y, 4);
    states_append(&c, &y, 9);
    states_destroy(&c, &y);
    case_close(&c);
}

static void forks_share_a_state_and_the_last_one_keeps_it(void)
{
    struct runtime_case c;
    open_states(&c);
    (void)states_serve(&c, &x, 0, 30, 64);
    ASSERT_STATUS(PKV_OK, states_fork(&c, &x, 30, &y));
    ASSERT_STATUS(PKV_OK, states_fork(&c, &x, 30, &z));
    CU_ASSERT_EQUAL(usage_of(&c, 2).held, 1);
    y.ids[30] = 777;
    z.ids[30] = 778;
    CU_ASSERT_EQUAL(states_append(&c, &y, 1).num_in_place, 0);
    states_destroy(&c, &x);
    CU_ASSERT_EQUAL(states_append(&c, &z, 1).num_in_place, 1); /* nobody else has it any more */
    states_append(&c, &y, 5);
    states_append(&c, &z, 5);
    ASSERT_REFUSED(PKV_NOT_RESIDENT, "nearest lengths are 0 and 36", states_fork(&c, &y, 20, &x));
    ASSERT_STATUS(PKV_OK, states_fork(&c, &y, 0, &x));
    states_append(&c, &x, 4);
    case_close(&c);
}

/* max_rewind m: every length down to m less than it ever had can be cut to, or forked at, and gone
 * on from. */
static void rewinds_find_their_states(void)
{
    for (int32_t max_rewind = 0; max_rewind <= 5; max_rewind++) {
        struct runtime_case c;
        states_init(&c);
        c.groups[2].max_rewind = 5;
        c.groups[3].max_rewind = 7;
        c.groups[2].num_blocks = 40;
        c.groups[3].num_blocks = 40;
        case_open(&c);
        ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "max_rewind = 6", states_create(&c, &x, 0, 6));
        ASSERT_STATUS(PKV_OK, states_create(&c, &x, 0, max_rewind));
        ASSERT_STATUS(PKV_OK, states_admit(&c, &x, 60, NULL));
        int32_t least = 0;
        for (int32_t q_len = 1; x.length < 50; q_len = q_len % 7 + 1) {
            states_append(&c, &x, q_len);
            least = x.length - max_rewind > least ? x.length - max_rewind : least;
            const int32_t back = x.length - least;
            struct pkv_seq_info info = {.size = sizeof info};
            ASSERT_STATUS(PKV_OK, pkv_seq_describe(c.cache, x.handle, &info, NULL));
            CU_ASSERT_EQUAL(info.min_length, least == 1 ? 0 : least); /* 0 needs no state */
            ASSERT_STATUS(PKV_OK, states_fork(&c, &x, x.length - back, &y));
            y.ids[y.length] = 999;
            states_append(&c, &y, 2);
            states_destroy(&c, &y);
            if (least > 1) {
                ASSERT_STATUS(PKV_NOT_RESIDENT, states_truncate(&c, &x, least - 1));
            }
            ASSERT_STATUS(PKV_OK, states_truncate(&c, &x, x.length - back / 2));
            CU_ASSERT_EQUAL(case_check(&c), 0);
        }
        case_close(&c);
    }
}

/* Drafts are dropped: what a row keeps decides which state is its newest. */
static void drafts_that_are_dropped_leave_the_state_before_them(void)
{
    struct runtime_case c;
    states_init(&c);
    c.groups[2].max_rewind = 4;
    c.groups[3].max_rewind = 4;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, states_create(&c, &x, 0, 4));
    ASSERT_STATUS(PKV_OK, states_admit(&c, &x, 20, NULL));
    states_append(&c, &x, 20);
    for (int32_t i = 0; i < 30; i++) {
        const struct state_row row = {&x, 5, NULL};
        const int32_t keep = 1 + i % 5;
        pkv_step step;
        x.ids[x.length + 1 + i % 4] = 5000 + i;
        ASSERT_STATUS(PKV_OK, states_begin(&c, &row, 1, &step));
        states_run(&c, &row, step, NULL);
        ASSERT_STATUS(PKV_OK, states_commit(&c, &row, 1, step, &keep));
        if (i % 7 == 3) {
            ASSERT_STATUS(PKV_OK, states_begin(&c, &row, 1, &step));
            states_run(&c, &row, step, NULL);
            ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
        }
        CU_ASSERT_EQUAL(case_check(&c), 0);
    }
    case_close(&c);
}

/* A tree's every token has a state of its own; the accepted path's become those of the sequence. */
static void a_tree_keeps_the_states_of_its_path(void)
{
    static const int32_t parents[] = {-1, 0, 0, 2, 1, -1, 5, 3};
    static const int32_t paths[][5] = {{0},       {1, 5},      {2, 0, 2}, {4, 0, 2, 3, 7},
                                       {2, 5, 6}, {3, 0, 1, 4}};
    struct runtime_case c;
    states_init(&c);
    c.groups[2].max_rewind = 7;
    c.groups[3].max_rewind = 9;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, states_create(&c, &y, 9000, 6));
    const struct state_row too_wide = {&y, 8, parents};
    pkv_step step;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "a tree of 8 tokens",
                   states_begin(&c, &too_wide, 1, &step));
    ASSERT_STATUS(PKV_OK, states_create(&c, &x, 0, 7));
    ASSERT_STATUS(PKV_OK, states_admit(&c, &x, 9, NULL));
    states_append(&c, &x, 9);
    for (int i = 0; i < 12; i++) {
        const int32_t *path = paths[i % 6] + 1;
        const int32_t num_keep = paths[i % 6][0];
        const struct state_row row = {&x, 8, parents};
        int32_t kept[4];
        ASSERT_STATUS(PKV_OK, states_begin(&c, &row, 1, &step));
        states_run(&c, &row, step, NULL);
        CU_ASSERT_EQUAL(case_check(&c), 0);
        ASSERT_STATUS(PKV_OK, pkv_step_commit_path(c.cache, step, &num_keep, path));
        for (int32_t k = 0; k < num_keep; k++) {
            kept[k] = x.ids[x.length + path[k]];
        }
        memcpy(x.ids + x.length, kept, (size_t)num_keep * sizeof kept[0]);
        x.length += num_keep;
        for (int32_t t = x.length; t < CASE_MAX_LENGTH; t++) {
            x.ids[t] = 1000 * (i + 1) + t;
        }
        CU_ASSERT_EQUAL(case_check(&c), 0);
        ASSERT_STATUS(PKV_OK, states_truncate(&c, &x, x.length - i % 2));
        states_append(&c, &x, 1 + i % 3);
    }
    case_close(&c);
}

/* What is updated in place is lost with a step that is dropped, unless nobody has seen it. */
static void a_dropped_step_loses_a_state_that_was_updated_in_place(void)
{
    struct runtime_case c;
    states_init(&c);
    c.config.prefix_cache = false;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, states_create(&c, &x, 0, 0));
    states_append(&c, &x, 10);
    const struct state_row row = {&x, 3, NULL};
    const int32_t two = 2;
    pkv_step step;
    ASSERT_STATUS(PKV_OK, states_begin(&c, &row, 1, &step));
    ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
    ASSERT_STATUS(PKV_OK, states_begin(&c, &row, 1, &step));
    states_run(&c, &row, step, NULL);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "num_keep[0] = 2 of 3",
                   states_commit(&c, &row, 1, step, &two));
    ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
    CU_ASSERT_EQUAL(case_check(&c), 0);
    ASSERT_REFUSED(PKV_NOT_RESIDENT, "no state of its 10 tokens", states_begin(&c, &row, 1, &step));
    ASSERT_STATUS(PKV_NOT_RESIDENT, states_truncate(&c, &x, 9));
    ASSERT_STATUS(PKV_OK, states_truncate(&c, &x, 0));
    states_append(&c, &x, 12);
    case_close(&c);
}

/* An admission promises states as it does blocks. */
static void admissions_promise_states(void)
{
    struct runtime_case c;
    struct pkv_shortage shortage = {.size = sizeof shortage};
    struct pkv_admission admission = {.size = sizeof admission};
    struct state_seq *const seqs[] = {&x, &y, &z};
    states_init(&c);
    c.groups[2].num_blocks = 5; /* two sequences of two states */
    case_open(&c);
    for (int i = 0; i < 3; i++) {
        ASSERT_STATUS(PKV_OK, states_create(&c, seqs[i], 1000 * i, 0));
    }
    ASSERT_STATUS(PKV_OK, states_admit(&c, &x, 40, NULL));
    ASSERT_STATUS(PKV_OK, states_admit(&c, &y, 40, NULL));
    ASSERT_STATUS(PKV_NO_BLOCKS, pkv_seq_admit(c.cache, z.handle, PROMPT(z.ids, 40), 0, 40,
                                               &admission, &shortage));
    CU_ASSERT(shortage.group == 2 && shortage.need == 2 && shortage.free == 1);
    CU_ASSERT_EQUAL(usage_of(&c, 2).promised, 4);
    for (int32_t i = 0; i < 60; i++) { /* one not admitted takes the spare one, and no other */
        states_append(&c, &x, 1);
        states_append(&c, &y, 1);
        if (i == 3) {
            states_append(&c, &z, 1);
        }
        const struct pkv_group_usage usage = usage_of(&c, 2);
        CU_ASSERT(usage.promised <= usage.free);
        CU_ASSERT_EQUAL(case_check(&c), 0);
    }
    ASSERT_STATUS(PKV_OK, states_truncate(&c, &x, 0));
    ASSERT_STATUS(PKV_OK, pkv_wait_free(c.cache, z.handle, &shortage, 0));
    ASSERT_STATUS(PKV_OK, states_truncate(&c, &z, 0));
    ASSERT_STATUS(PKV_OK, states_admit(&c, &z, 40, NULL));
    states_append(&c, &z, 40);
    case_close(&c);
}

/* What others hold does not shorten a promise: here a state that a hit has adopted, and that its
 * first sequence leaves behind. */
static void hits_do_not_shorten_a_promise_of_states(void)
{
    struct runtime_case c;
    states_init(&c);
    c.groups[2].num_blocks = 4; /* two sequences of two states */
    case_open(&c);
    ASSERT_STATUS(PKV_OK, states_create(&c, &x, 0, 0));
    ASSERT_STATUS(PKV_OK, states_admit(&c, &x, 60, NULL));
    states_append(&c, &x, 40);
    ASSERT_STATUS(PKV_OK, states_create(&c, &y, 0, 0));
    ASSERT_STATUS(PKV_OK, states_admit(&c, &y, 44, NULL));
    CU_ASSERT_EQUAL(y.length, 40);
    for (int i = 0; i < 40; i++) {
        states_append(&c, &x, 1);
        if (i >= 20) {
            states_append(&c, &y, 1);
        }
        CU_ASSERT_EQUAL(case_check(&c), 0);
    }
    states_destroy(&c, &x);
    states_destroy(&c, &y);
    CU_ASSERT_EQUAL(usage_of(&c, 2).promised, 0);
    CU_ASSERT_EQUAL(usage_of(&c, 2).free, 4);
    case_close(&c);
}

static enum pkv_status pin_40(struct runtime_case *c, pkv_pin *pin)
{
    int32_t num_pinned = 0;
    ASSERT_STATUS(
        PKV_OK, pkv_prefix_pin(c->cache, NULL, PROMPT(x.ids, 41), UINT64_MAX, 1, pin, &num_pinned));
    return num_pinned == 40 ? PKV_OK : PKV_NO_BLOCKS;
}

/* A pin and a fork keep a state that was promised to its sequence: a spare one makes up for it, or
 * they are refused. */
static void pins_and_forks_do_not_shorten_a_promise_of_states(void)
{
    for (int32_t num_blocks = 2; num_blocks <= 3; num_blocks++) {
        for (int is_pin = 0; is_pin < 2; is_pin++) {
            struct runtime_case c;
            pkv_pin pin = {0};
            states_init(&c);
            c.groups[2].num_blocks = num_blocks;
            c.config.max_pinned_blocks = 16;
            case_open(&c);
            ASSERT_STATUS(PKV_OK, states_create(&c, &x, 0, 0));
            ASSERT_STATUS(PKV_OK, states_admit(&c, &x, 60, NULL));
            states_append(&c, &x, 40);
            const enum pkv_status expected = num_blocks == 2 ? PKV_NO_BLOCKS : PKV_OK;
            CU_ASSERT_EQUAL(is_pin ? pin_40(&c, &pin) : states_fork(&c, &x, 40, &y), expected);
            for (int i = 0; i < 20; i++) {
                states_append(&c, &x, 1);
                CU_ASSERT_EQUAL(case_check(&c), 0);
            }
            CU_ASSERT_EQUAL(usage_of(&c, 2).free - usage_of(&c, 2).promised, 0);
            if (is_pin && expected == PKV_OK) {
                ASSERT_STATUS(PKV_OK, pkv_prefix_unpin(c.cache, pin));
            } else if (expected == PKV_OK) {
                states_destroy(&c, &y);
            }
            CU_ASSERT_EQUAL(usage_of(&c, 2).free - usage_of(&c, 2).promised, num_blocks - 2);
            case_close(&c);
        }
    }
}

/* A sequence without snapshots is promised one state. A fork makes it take a spare one, which is
 * the promised one from then on. */
static void a_copy_after_a_fork_becomes_the_promised_state(void)
{
    struct runtime_case c;
    states_init(&c);
    c.config.prefix_cache = false;
    c.groups[2].num_blocks = 3;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, states_create(&c, &x, 0, 0));
    ASSERT_STATUS(PKV_OK, states_admit(&c, &x, 60, NULL));
    states_append(&c, &x, 10);
    CU_ASSERT_EQUAL(usage_of(&c, 2).promised, 0);
    ASSERT_STATUS(PKV_OK, states_fork(&c, &x, 10, &y));
    CU_ASSERT_EQUAL(usage_of(&c, 2).promised, 1);
    CU_ASSERT_EQUAL(states_append(&c, &x, 1).num_in_place, 0);
    CU_ASSERT_EQUAL(usage_of(&c, 2).promised, 0);
    states_destroy(&c, &y);
    CU_ASSERT_EQUAL(usage_of(&c, 2).free, 2);
    for (int i = 0; i < 5; i++) {
        CU_ASSERT_EQUAL(states_append(&c, &x, 1).num_in_place, 1);
        CU_ASSERT_EQUAL(usage_of(&c, 2).promised, 0);
        CU_ASSERT_EQUAL(case_check(&c), 0);
    }
    case_close(&c);
}

/* A slot is shared by nobody, so no prompt is hit and no state is a snapshot; the states serve. */
static void states_beside_a_continuous_group_have_no_snapshots(void)
{
    struct runtime_case c;
    pkv_seq child;
    states_init(&c);
    c.groups[1].sliding_window = 0;
    c.groups[1].storage = PKV_STORAGE_CONTINUOUS;
    case_open(&c);
    for (int i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(states_serve(&c, &x, 0, 40, 7), 0);
        CU_ASSERT(usage_of(&c, 2).held == 1 && usage_of(&c, 2).cached == 0);
        CU_ASSERT_EQUAL(states_append(&c, &x, 3).num_in_place, 1);
        ASSERT_STATUS(PKV_UNSUPPORTED, pkv_seq_fork(c.cache, x.handle, 43, 1, &child));
        ASSERT_STATUS(PKV_OK, states_truncate(&c, &x, 0));
        CU_ASSERT_EQUAL(states_append(&c, &x, 5).num_zero_reads, 1);
        CU_ASSERT_EQUAL(case_check(&c), 0);
        states_destroy(&c, &x);
        CU_ASSERT_EQUAL(usage_of(&c, 2).free, 24);
    }
    case_close(&c);
}

/* Of a long text one snapshot a segment stays, and the newest. */
static void snapshots_are_thinned_out_to_one_a_segment(void)
{
    struct runtime_case c;
    states_init(&c);
    c.groups[2].segment_tokens = 32;
    c.groups[3].segment_tokens = 16;
    case_open(&c);
    for (int32_t chunk = 1; chunk <= 64; chunk *= 4) {
        (void)states_serve(&c, &x, 10000 * chunk, 20, chunk);
        while (x.length < 150) {
            states_append(&c, &x, chunk < 150 - x.length ? chunk : 150 - x.length);
        }
        int32_t group_cached[CASE_MAX_GROUPS];
        int32_t num_cached = 0;
        for (int32_t length = 16; length <= 150; length++) {
            ASSERT_STATUS(PKV_OK, pkv_cache_probe_groups(c.cache, NULL, PROMPT(x.ids, length),
                                                         length, group_cached, &num_cached));
            const int32_t limit = (length - 1) / 4 * 4;
            const int32_t thinned = limit >= 148 ? 148 : limit / 32 * 32;
            /* The prompt's own end may stay: a hit is expected there. */
            CU_ASSERT(group_cached[2] == thinned || (thinned == 0 && group_cached[2] == 16));
            CU_ASSERT(group_cached[3] == (limit >= 148 ? 148 : limit / 16 * 16));
        }
        states_destroy(&c, &x);
        CU_ASSERT_EQUAL(case_check(&c), 0);
    }
    case_close(&c);
}

/* Of a long text one window a segment stays, and the newest, and that at the prompt's end. */
static void windows_are_thinned_out_to_one_a_segment(void)
{
    for (int32_t chunk = 1; chunk <= 27; chunk *= 3) {
        struct runtime_case c;
        states_init(&c);
        c.groups[1].segment_tokens = 32;
        case_open(&c);
        (void)states_serve(&c, &x, 0, 20, chunk);
        while (x.length < 150) {
            states_append(&c, &x, chunk < 150 - x.length ? chunk : 150 - x.length);
        }
        for (int32_t length = 24; length <= 150; length++) {
            int32_t group_cached[CASE_MAX_GROUPS];
            ASSERT_STATUS(PKV_OK, pkv_cache_probe_groups(c.cache, NULL, PROMPT(x.ids, length),
                                                         length, group_cached, NULL));
            const int32_t limit = (length - 1) / 4 * 4;
            const int32_t thinned = limit >= 148 ? 148 : limit / 32 * 32;
            CU_ASSERT(group_cached[1] == thinned || (thinned == 0 && group_cached[1] <= 20));
            CU_ASSERT_EQUAL(group_cached[0], limit);
        }
        const struct pkv_group_usage usage = usage_of(&c, 1);
        CU_ASSERT(usage.cached <= 2 * 4 + 2); /* two blocks a segment */
        states_destroy(&c, &x);
        CU_ASSERT_EQUAL(states_serve(&c, &y, 0, 151, 64), 148);
        case_close(&c);
    }
}

/* A pin holds the snapshot at its end against eviction. */
static void pins_hold_the_snapshot_at_their_end(void)
{
    struct runtime_case c;
    pkv_pin pin;
    int32_t num_pinned = 0;
    states_init(&c);
    c.config.max_pinned_blocks = 16;
    case_open(&c);
    (void)states_serve(&c, &x, 0, 40, 64);
    states_destroy(&c, &x);
    ASSERT_STATUS(
        PKV_OK, pkv_prefix_pin(c.cache, NULL, PROMPT(x.ids, 41), UINT64_MAX, 1, &pin, &num_pinned));
    CU_ASSERT_EQUAL(num_pinned, 40);
    CU_ASSERT_EQUAL(usage_of(&c, 2).pinned, 1);
    for (int i = 0; i < 12; i++) {
        (void)states_serve(&c, &z, 1000 * (i + 1), 40, 9);
        states_destroy(&c, &z);
    }
    CU_ASSERT_EQUAL(case_check(&c), 0);
    CU_ASSERT_EQUAL(states_serve(&c, &y, 0, 44, 64), 40);
    ASSERT_STATUS(PKV_OK, pkv_prefix_unpin(c.cache, pin));
    ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, true, NULL));
    states_append(&c, &y, 5);
    case_close(&c);
}

/* What create takes beside what pkv_cache_size says: scratch of attention. */
static size_t unsaid_bytes(struct runtime_case *c)
{
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c->config, &sizes));
    case_open(c);
    CU_ASSERT_EQUAL(c->memory.map_bytes, sizes.payload_bytes + sizes.table_bytes);
    const size_t unsaid = c->memory.alloc_bytes - sizes.metadata_bytes;
    case_close(c);
    return unsaid;
}

static void sizes_with_states_are_exact(void)
{
    struct runtime_case c;
    states_init(&c);
    c.config.num_groups = 2;
    c.config.num_layers = 2;
    const size_t scratch = unsaid_bytes(&c);
    states_init(&c);
    c.groups[2].max_rewind = 3;
    c.groups[3].num_blocks = 77;
    c.groups[3].state_bytes = 1001;
    CU_ASSERT_EQUAL(unsaid_bytes(&c), scratch);
    states_init(&c);
    c.config.prefix_cache = false;
    c.config.num_groups = 4;
    (void)unsaid_bytes(&c);
}

/* A budget is shared out over state groups too, and what it gives is what create makes of it. */
static void a_budget_is_shared_with_states(void)
{
    struct runtime_case c;
    struct pkv_cache_config got = {.size = sizeof got};
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    int32_t num_blocks[4] = {0};
    states_init(&c);
    for (int g = 0; g < 4; g++) {
        c.groups[g].num_blocks = 0;
    }
    c.config.bytes = 60000;
    ASSERT_STATUS(PKV_OK, pkv_cache_blocks_for_bytes(&c.config, c.config.bytes, num_blocks));
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &sizes));
    CU_ASSERT(sizes.payload_bytes <= c.config.bytes + 2 * 3 * 64); /* the states of zeros */
    case_open(&c);
    ASSERT_STATUS(PKV_OK, pkv_cache_describe(c.cache, &got));
    CU_ASSERT_EQUAL(got.num_groups, 4);
    for (int g = 0; g < 4; g++) {
        CU_ASSERT(num_blocks[g] > 0);
        CU_ASSERT_EQUAL(got.groups[g].num_blocks, num_blocks[g]);
        CU_ASSERT_EQUAL(usage_of(&c, g).num_blocks, num_blocks[g]);
    }
    CU_ASSERT_EQUAL(got.groups[2].snapshot_interval, 4);
    case_close(&c);
}

static void what_states_are_not_built_for_refuses(void)
{
    struct runtime_case c;
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    struct pkv_state_view view = {.size = sizeof view};
    struct pkv_kv_view keys;
    states_init(&c);
    c.groups[2].snapshot_interval = 6;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "snapshot_interval = 6",
                   pkv_cache_size(&c.config, &sizes));
    c.groups[2].snapshot_interval = 8;
    c.groups[2].segment_tokens = 20;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "segment_tokens = 20", pkv_cache_size(&c.config, &sizes));
    c.groups[2].segment_tokens = 0;
    c.groups[0].state_bytes = 8;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "groups[0].state_bytes",
                   pkv_cache_size(&c.config, &sizes));
    c.groups[0].state_bytes = 0;
    struct pkv_group_config last = c.groups[3];
    c.groups[3] = c.groups[0];
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "groups[3] stands behind",
                   pkv_cache_size(&c.config, &sizes));
    c.groups[3] = last;
    last = c.groups[0];
    c.groups[0] = c.groups[2];
    ASSERT_REFUSED(PKV_UNSUPPORTED, "groups[0] is a state group",
                   pkv_cache_size(&c.config, &sizes));
    c.groups[0] = last;
    case_open(&c);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "layer 2", pkv_cache_view(c.cache, 2, &keys));
    ASSERT_STATUS(PKV_OK, states_create(&c, &x, 0, 0));
    const struct state_row row = {&x, 3, NULL};
    pkv_step step;
    ASSERT_STATUS(PKV_OK, states_begin(&c, &row, 1, &step));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "group = 1",
                   pkv_step_describe_states(c.cache, step, 1, &view));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "group = 4",
                   pkv_step_describe_states(c.cache, step, 4, &view));
    const struct pkv_layer_io io = {.size = sizeof io};
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "layer 2", pkv_step_attend(c.cache, step, 2, &io));
    ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_step_describe_states(c.cache, step, 2, &view));
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(a_new_sequence_begins_with_zeros_and_goes_on_in_place),
    TEST(prompts_around_a_multiple_of_the_block_hit_their_last_snapshot),
    TEST(hits_end_at_snapshots_and_at_the_ends_of_prompts),
    TEST(a_hit_reads_its_state_whatever_happens_to_the_donor),
    TEST(forks_share_a_state_and_the_last_one_keeps_it),
    TEST(rewinds_find_their_states),
    TEST(drafts_that_are_dropped_leave_the_state_before_them),
    TEST(a_tree_keeps_the_states_of_its_path),
    TEST(a_dropped_step_loses_a_state_that_was_updated_in_place),
    TEST(admissions_promise_states),
    TEST(hits_do_not_shorten_a_promise_of_states),
    TEST(pins_and_forks_do_not_shorten_a_promise_of_states),
    TEST(a_copy_after_a_fork_becomes_the_promised_state),
    TEST(states_beside_a_continuous_group_have_no_snapshots),
    TEST(snapshots_are_thinned_out_to_one_a_segment),
    TEST(windows_are_thinned_out_to_one_a_segment),
    TEST(pins_hold_the_snapshot_at_their_end),
    TEST(sizes_with_states_are_exact),
    TEST(a_budget_is_shared_with_states),
    TEST(what_states_are_not_built_for_refuses),
    TEST_END,
};

const struct test_suite suite_runtime_states = {"runtime_states", cases};
