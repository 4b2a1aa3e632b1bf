/* SPDX-License-Identifier: MIT
 *
 * What admission promises: an admitted row reaches its end, and rows that decode cost their window.
 * The recipes are those of a report that was tried on other servers; then random rows with windows,
 * shared prefixes, forks and pins, none of which may ever lack what it was promised. Block size 4
 * unless a test says otherwise. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reuse_case.h"

/* --- many small rows: raw calls, one head of width 1 */

#define CROWD_SEQS 512
#define CROWD_TOKENS 8192

struct crowd {
    struct runtime_case c;
    pkv_seq seqs[CROWD_SEQS];
    int32_t lengths[CROWD_SEQS];
    int32_t count;
};

static int32_t zero_ids[CROWD_TOKENS];
static float zero_values[CROWD_TOKENS];
static float outputs[CROWD_TOKENS];

static void open_crowd(struct crowd *crowd, int32_t window, int32_t block_size, int32_t num_blocks,
                       int32_t max_step_tokens)
{
    struct runtime_case *c = &crowd->c;
    crowd->count = 0;
    case_init(c);
    c->groups[0].k_width = 1;
    c->groups[0].sliding_window = window;
    c->groups[0].block_size = block_size;
    c->groups[0].num_blocks = num_blocks;
    c->config.max_seqs = CROWD_SEQS;
    c->config.max_seq_len = 512;
    c->config.max_step_tokens = max_step_tokens;
    case_open(c);
}

/* Admits as many as there is room for, for num_tokens and reserve_tokens each. */
static void admit_crowd(struct crowd *crowd, int32_t num_tokens, int32_t reserve_tokens)
{
    pkv_cache *cache = crowd->c.cache;
    enum pkv_status status = PKV_OK;
    while (status == PKV_OK && crowd->count < CROWD_SEQS) {
        struct pkv_admission admission = {.size = sizeof admission};
        pkv_seq *seq = &crowd->seqs[crowd->count];
        ASSERT_STATUS(PKV_OK, pkv_seq_create(cache, NULL, seq));
        status = pkv_seq_admit(cache, *seq, PROMPT(zero_ids, num_tokens), reserve_tokens, 0,
                               &admission, NULL);
        crowd->lengths[crowd->count] = 0;
        crowd->count += status == PKV_OK;
        if (status != PKV_OK) {
            CU_ASSERT_EQUAL(status, PKV_NO_BLOCKS);
            ASSERT_STATUS(PKV_OK, pkv_seq_destroy(cache, *seq));
        }
    }
}

/* One step of all rows: the first ones bring `most` tokens each while there are enough for the
 * others to bring one, none goes past `end`. False when begin refuses. */
static bool step_crowd(struct crowd *crowd, int32_t first, int32_t most, int32_t end)
{
    static int32_t q_lens[CROWD_SEQS];
    static pkv_seq rows[CROWD_SEQS];
    int32_t left = crowd->c.config.max_step_tokens;
    pkv_step step = {0};
    for (int32_t i = 0; i < crowd->count; i++) {
        const int32_t row = (first + i) % crowd->count;
        const int32_t others = crowd->count - i - 1;
        const int32_t spare = left - others > 1 ? left - others : left > 0;
        q_lens[i] = end - crowd->lengths[row];
        q_lens[i] = q_lens[i] > most ? most : q_lens[i];
        q_lens[i] = q_lens[i] > spare ? spare : q_lens[i];
        rows[i] = crowd->seqs[row];
        crowd->lengths[row] += q_lens[i];
        left -= q_lens[i];
    }
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = rows,
                                    .q_lens = q_lens,
                                    .num_rows = crowd->count,
                                    .num_required_rows = crowd->count,
                                    .token_ids = zero_ids};
    const struct pkv_layer_io io = {
        .size = sizeof io, .q = zero_values, .k = zero_values, .v = zero_values, .out = outputs};
    const enum pkv_status status = pkv_step_begin(crowd->c.cache, &batch, &step, NULL);
    ASSERT_STATUS(PKV_OK, status);
    if (status == PKV_OK) {
        ASSERT_STATUS(PKV_OK, pkv_step_attend(crowd->c.cache, step, 0, &io));
        ASSERT_STATUS(PKV_OK, pkv_step_commit(crowd->c.cache, step, NULL));
    }
    return status == PKV_OK;
}

/* All rows, to their end, in steps in which some bring up to `most` tokens. */
static void finish_crowd(struct crowd *crowd, int32_t most, int32_t end)
{
    bool goes_on = true;
    for (int32_t first = 0; goes_on; first++) {
        int32_t num_done = 0;
        for (int32_t i = 0; i < crowd->count; i++) {
            num_done += crowd->lengths[i] == end;
        }
        goes_on = num_done < crowd->count && step_crowd(crowd, first * 7, most, end);
    }
    CU_ASSERT_EQUAL(case_check(&crowd->c), 0);
}

static struct crowd crowd;

/* K3: rows that decode hold their window, and a step's tokens are counted once: recipe A. */
static void a_window_row_costs_its_window(void)
{
    static const int32_t most[] = {1, 2, 3, 5, 16, 64};
    for (size_t i = 0; i < sizeof most / sizeof most[0]; i++) {
        open_crowd(&crowd, 8, 4, 64, 64);
        admit_crowd(&crowd, 16, 240);
        CU_ASSERT(crowd.count >= 12);
        finish_crowd(&crowd, most[i], 256);
        case_close(&crowd.c);
    }
}

/* K3: a pool of 4096 blocks admits hundreds of rows of W 128 beside steps of 8192 tokens, and all
 * of them reach their end. */
static void hundreds_of_rows_share_the_tokens_of_a_step(void)
{
    static const int32_t most[] = {3, 400};
    for (size_t i = 0; i < sizeof most / sizeof most[0]; i++) {
        open_crowd(&crowd, 128, 16, 4096, 8192);
        admit_crowd(&crowd, 300, 212);
        CU_ASSERT(crowd.count >= 300);
        finish_crowd(&crowd, most[i], 512);
        case_close(&crowd.c);
    }
}

/* --- a few rows */

static struct prefix_seq a, b, d;

static enum pkv_status begin_one(struct runtime_case *c, struct prefix_seq *seq, int32_t n)
{
    struct case_step step = {0};
    case_row(&step, &seq->seq, n);
    const enum pkv_status status = prefix_begin(c, &step, 1);
    if (status == PKV_OK) {
        case_attend_all(c, &step);
        case_commit(c, &step, NULL);
    }
    return status;
}

static enum pkv_status admit(struct runtime_case *c, struct prefix_seq *seq, int32_t num_tokens,
                             int32_t reserve)
{
    int32_t cached = 0;
    const enum pkv_status status = prefix_admit(c, seq, num_tokens, reserve, &cached);
    CU_ASSERT_EQUAL(case_check(c), 0);
    return status;
}

/* Tokens of one sequence, `chunk` a step. */
static void run_to(struct runtime_case *c, struct prefix_seq *seq, int32_t end, int32_t chunk)
{
    enum pkv_status status = PKV_OK;
    while (status == PKV_OK && seq->seq.length < end) {
        const int32_t left = end - seq->seq.length;
        status = begin_one(c, seq, left < chunk ? left : chunk);
        ASSERT_STATUS(PKV_OK, status);
    }
}

/* K3: what was computed stays adoptable while a long request is admitted: recipe B. */
static void a_promise_evicts_nothing(void)
{
    struct runtime_case c;
    prefix_init(&c);
    c.config.max_seq_len = 512;
    c.config.max_step_tokens = 16;
    c.groups[0].sliding_window = 8;
    c.groups[0].num_blocks = 10;
    case_open(&c);
    prefix_run(&c, &a, 0, 0);
    run_to(&c, &a, 40, 16);
    prefix_destroy(&c, &a);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 1000, NULL));
    ASSERT_STATUS(PKV_OK, admit(&c, &b, 100, 0));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &d, 0, NULL));
    int32_t cached = 0;
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &d, 44, 0, &cached));
    CU_ASSERT_EQUAL(cached, 40);
    run_to(&c, &b, 100, 16);
    run_to(&c, &d, 44, 16);
    case_close(&c);
}

/* K3: a window that needs two blocks never fits into one, and fits into two for ever: recipe C. */
static void a_row_that_needs_two_blocks_never_fits_in_one(void)
{
    static struct case_seq seq;
    for (int32_t num_blocks = 1; num_blocks <= 2; num_blocks++) {
        struct runtime_case c;
        struct case_step step = {0};
        case_init(&c);
        c.config.max_seq_len = 512;
        c.groups[0].sliding_window = 4;
        c.groups[0].block_size = 16;
        c.groups[0].num_blocks = num_blocks;
        case_open(&c);
        ASSERT_STATUS(PKV_OK, case_create(&c, &seq, NULL));
        ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 16));
        case_row(&step, &seq, 1);
        if (num_blocks == 1) {
            ASSERT_STATUS(PKV_NEVER_FITS, case_begin(&c, &step, 1));
            CU_ASSERT_EQUAL(step.shortage.need, 2);
        }
        for (int32_t i = 0; num_blocks == 2 && i < 200; i++) {
            ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 1));
        }
        case_close(&c);
    }
}

static void open_narrow(struct runtime_case *c, int32_t num_blocks)
{
    prefix_init(c);
    c->config.max_step_tokens = 4;
    c->groups[0].sliding_window = 4;
    c->groups[0].num_blocks = num_blocks;
    case_open(c);
}

/* K3: a block that left one window and stays in another's gives nothing back, so the adopter's
 * whole window is promised. */
static void an_adopter_takes_nothing_from_an_admitted_row(void)
{
    for (int32_t num_blocks = 3; num_blocks <= 9; num_blocks++) {
        struct runtime_case c;
        open_narrow(&c, num_blocks);
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, NULL));
        ASSERT_STATUS(PKV_OK, admit(&c, &a, 33, 0));
        run_to(&c, &a, 9, 4);
        const enum pkv_status status = admit(&c, &b, 33, 0);
        CU_ASSERT_EQUAL(status, num_blocks >= 5 ? PKV_OK : PKV_NO_BLOCKS);
        run_to(&c, &a, 33, 4);
        if (status == PKV_OK) {
            CU_ASSERT_EQUAL(case_taken(&c, 0), 3); /* two of b, one of a */
            run_to(&c, &b, 33, 4);
        }
        case_close(&c);
    }
}

/* K3: what commit frees because two rows computed one text is promised to both of them still. */
static void merged_blocks_stay_promised(void)
{
    for (int32_t num_blocks = 5; num_blocks <= 12; num_blocks++) {
        struct runtime_case c;
        static struct prefix_seq late[4];
        open_narrow(&c, num_blocks);
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, NULL));
        ASSERT_STATUS(PKV_OK, admit(&c, &a, 33, 0));
        ASSERT_STATUS(PKV_OK, admit(&c, &b, 33, 0));
        run_to(&c, &a, 9, 4);
        run_to(&c, &b, 9, 4);
        for (int32_t i = 0; i < 4; i++) {
            ASSERT_STATUS(PKV_OK, prefix_create(&c, &late[i], 1000 * (i + 1), NULL));
            if (admit(&c, &late[i], 17, 0) == PKV_OK) {
                run_to(&c, &late[i], 17, 4);
            }
        }
        run_to(&c, &a, 33, 4);
        run_to(&c, &b, 33, 4);
        case_close(&c);
    }
}

/* Nobody who is not admitted takes what is promised: neither rows, nor forks, nor pins. */
static void what_is_promised_is_not_given_to_others(void)
{
    struct runtime_case c;
    struct pkv_group_usage usage = {.size = sizeof usage};
    static struct case_seq child;
    pkv_pin pin = {0};
    int32_t num_pinned = -1;
    open_narrow(&c, 5);
    prefix_run(&c, &d, 7000, 0);
    run_to(&c, &d, 8, 4);
    prefix_destroy(&c, &d);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 100, NULL));
    ASSERT_STATUS(PKV_OK, admit(&c, &a, 33, 0)); /* 2, and 1 for a step of 4 tokens */
    run_to(&c, &a, 3, 4);
    run_to(&c, &b, 8, 4);
    ASSERT_STATUS(PKV_OK, pkv_cache_usage(c.cache, 0, &usage));
    CU_ASSERT(usage.held == 2 && usage.free == 3 && usage.promised == 2);
    ASSERT_STATUS(PKV_OK, begin_one(&c, &b, 1));
    ASSERT_STATUS(PKV_OK, pkv_cache_usage(c.cache, 0, &usage));
    CU_ASSERT(usage.free == 2 && usage.promised == 2);
    ASSERT_STATUS(PKV_NO_BLOCKS, begin_one(&c, &b, 4));
    ASSERT_REFUSED(PKV_NO_BLOCKS, "group 0", case_fork(&c, &a.seq, 3, &child));
    ASSERT_STATUS(PKV_OK, pkv_prefix_pin(c.cache, NULL, PROMPT(d.ids, 8), 0, 0, &pin, &num_pinned));
    CU_ASSERT_EQUAL(num_pinned, 0);
    prefix_destroy(&c, &b);
    ASSERT_STATUS(PKV_OK, case_fork(&c, &a.seq, 3, &child));
    CU_ASSERT_EQUAL(case_check(&c), 0);
    run_to(&c, &a, 33, 4);
    case_close(&c);
}

/* A block that a fork keeps does not become free for the equal one that is cached: with no spare
 * block the two stay apart. */
static void a_merge_takes_no_promised_block(void)
{
    struct runtime_case c;
    struct pkv_admission admission = {.size = sizeof admission};
    static struct case_seq child;
    prefix_open(&c, 5);
    prefix_warm(&c, &d, 0, 8);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 1000, NULL));
    ASSERT_STATUS(PKV_OK,
                  pkv_seq_admit(c.cache, a.seq.handle, PROMPT(a.ids, 8), 0, 0, &admission, NULL));
    run_to(&c, &a, 6, 6);
    ASSERT_STATUS(PKV_OK, case_fork(&c, &a.seq, 6, &child));
    ASSERT_STATUS(PKV_OK, admit(&c, &b, 12, 0));
    CU_ASSERT_EQUAL(case_free(&c, 0), 0);
    run_to(&c, &a, 8, 2);
    CU_ASSERT_EQUAL(case_check(&c), 0);
    run_to(&c, &b, 12, 12);
    case_close(&c);
}

/* --- rewinding */

/* The newest max_rewind tokens count from the greatest length that there was, also for a fork and
 * over several cuts. What is beyond is residency's matter. */
static void a_rewind_counts_from_the_greatest_length(void)
{
    static struct case_seq parent, child;
    for (int32_t window = 1; window <= 9; window++) {
        for (int32_t max_rewind = 0; max_rewind <= 9; max_rewind++) {
            const struct pkv_seq_options options = {.size = sizeof options,
                                                    .max_rewind = max_rewind};
            struct runtime_case c;
            case_init(&c);
            c.groups[0].sliding_window = window;
            case_open(&c);
            ASSERT_STATUS(PKV_OK, case_create(&c, &parent, &options));
            ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 24));
            ASSERT_STATUS(PKV_OK, case_fork(&c, &parent, 24 - max_rewind / 2, &child));
            for (int32_t length = child.length; length >= 24 - max_rewind; length--) {
                ASSERT_STATUS(PKV_OK, case_truncate(&c, &child, length));
                ASSERT_STATUS(PKV_OK, case_append(&c, &child, length < 24));
                ASSERT_STATUS(PKV_OK, case_truncate(&c, &child, length));
            }
            ASSERT_STATUS(PKV_OK, case_truncate(&c, &parent, 24 - max_rewind));
            case_close(&c);
        }
    }
}

/* Drafts that are cut off again: the row reaches its end all the same. */
static void a_row_that_rewinds_reaches_its_end(void)
{
    const struct pkv_seq_options options = {.size = sizeof options, .max_rewind = 3};
    for (int32_t window = 0; window <= 8; window += 4) {
        struct runtime_case c;
        prefix_init(&c);
        c.config.max_step_tokens = 4;
        c.groups[0].sliding_window = window;
        c.groups[0].num_blocks = window > 0 ? 8 : 14;
        case_open(&c);
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, &options));
        ASSERT_STATUS(PKV_OK, admit(&c, &a, 20, 20));
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 1000, NULL));
        while (b.seq.length < 60 && begin_one(&c, &b, 1) == PKV_OK) {
        }
        int32_t most = 0;
        for (int32_t i = 0; most < 40; i++) {
            const int32_t left = 40 - a.seq.length;
            ASSERT_STATUS(PKV_OK, begin_one(&c, &a, left < 4 ? left : 4));
            most = a.seq.length > most ? a.seq.length : most;
            const int32_t back = 3 - (most - a.seq.length);
            const int32_t wanted = a.seq.length - i % 4;
            const int32_t least = a.seq.length - back;
            ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, wanted > least ? wanted : least));
            (void)(b.seq.length < 60 && begin_one(&c, &b, 1));
        }
        run_to(&c, &a, 40, 4);
        case_close(&c);
    }
}

/* What a pin keeps of a cut is not there to be promised again: the row goes on without a promise,
 * and others keep theirs. */
static void a_cut_that_frees_too_little_loses_the_promise(void)
{
    for (int32_t num_blocks = 4; num_blocks <= 5; num_blocks++) {
        struct runtime_case c;
        struct pkv_group_usage usage = {.size = sizeof usage};
        pkv_pin pin = {0};
        int32_t num_pinned = 0;
        prefix_open(&c, num_blocks);
        prefix_run(&c, &d, 0, 8);
        ASSERT_STATUS(PKV_OK,
                      pkv_prefix_pin(c.cache, NULL, PROMPT(d.ids, 8), 0, 0, &pin, &num_pinned));
        prefix_destroy(&c, &d);
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 1000, NULL));
        ASSERT_STATUS(PKV_OK, admit(&c, &a, 9, 3));
        ASSERT_STATUS(PKV_OK, admit(&c, &b, 4, 0));
        run_to(&c, &a, 9, 1);
        ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 4));
        CU_ASSERT_EQUAL(case_check(&c), 0);
        ASSERT_STATUS(PKV_OK, pkv_cache_usage(c.cache, 0, &usage));
        CU_ASSERT_EQUAL(usage.promised, num_blocks == 4 ? 1 : 3);
        run_to(&c, &b, 4, 4);
        case_close(&c);
    }
}

/* --- limits */

/* K11: a sequence's own limit answers as max_seq_len does, at admission and in a step; forks have
 * it too. */
static void max_tokens_bounds_one_sequence(void)
{
    struct runtime_case c;
    static struct case_seq child;
    struct pkv_shortage shortage = {.size = sizeof shortage};
    struct pkv_admission admission = {.size = sizeof admission};
    struct pkv_seq_options options = {.size = sizeof options, .max_tokens = 50};
    pkv_seq none = {0};
    prefix_init(&c);
    c.config.max_seq_len = 512;
    c.groups[0].num_blocks = 64;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, &options));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 900, NULL));
    ASSERT_REFUSED(
        PKV_NEVER_FITS, "max_tokens is 50",
        pkv_seq_admit(c.cache, a.seq.handle, PROMPT(a.ids, 40), 20, 40, &admission, &shortage));
    CU_ASSERT(shortage.max_tokens == 50 && shortage.need == 60 && shortage.group == -1);
    const struct pkv_probe probe = prefix_probe(&c, &a, 40, 20);
    CU_ASSERT(probe.status == PKV_NEVER_FITS && c.lacking.max_tokens == 50);
    ASSERT_STATUS(PKV_OK, admit(&c, &a, 40, 10));
    run_to(&c, &a, 49, 9);
    ASSERT_STATUS(PKV_OK, case_fork(&c, &a.seq, 49, &child));
    struct case_step step = {0};
    case_row(&step, &b.seq, 60);
    case_row(&step, &a.seq, 2);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "row 1", prefix_begin(&c, &step, 2));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, case_append(&c, &child, 2));
    ASSERT_STATUS(PKV_OK, case_append(&c, &child, 1));
    run_to(&c, &a, 50, 1);
    run_to(&c, &b, 60, 60);
    options.max_tokens = 513;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "max_tokens", pkv_seq_create(c.cache, &options, &none));
    options.max_tokens = -1;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "max_tokens", pkv_seq_create(c.cache, &options, &none));
    case_close(&c);
}

static void a_request_past_max_seq_len_is_told_the_limit(void)
{
    struct runtime_case c;
    static struct case_seq seq;
    struct pkv_shortage shortage = {.size = sizeof shortage};
    case_init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &seq, NULL));
    ASSERT_STATUS(PKV_NEVER_FITS, case_admit(&c, &seq, 60, 5, &shortage));
    CU_ASSERT(shortage.max_tokens == 64 && shortage.need == 65 && shortage.free == 0);
    CU_ASSERT(shortage.row == -1 && shortage.group == -1 && shortage.quota == 0);
    ASSERT_STATUS(PKV_OK, case_admit(&c, &seq, 60, 4, &shortage));
    case_close(&c);
}

/* A begin whose batch is no batch does not let time go on. */
static void a_refused_batch_ends_no_pin(void)
{
    struct runtime_case c;
    pkv_pin pin = {0};
    pkv_step step = {0};
    int32_t num_pinned = 0;
    prefix_open(&c, 16);
    prefix_run(&c, &a, 0, 8);
    ASSERT_STATUS(PKV_OK,
                  pkv_prefix_pin(c.cache, NULL, PROMPT(a.ids, 8), 10, 1, &pin, &num_pinned));
    const pkv_seq seqs[] = {a.seq.handle};
    prefix_destroy(&c, &a);
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = seqs,
                                    .num_rows = 1,
                                    .num_required_rows = 1,
                                    .token_ids = a.ids,
                                    .now_ns = 1000};
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_step_begin(c.cache, &batch, &step, NULL));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_step_fits(c.cache, &batch, NULL));
    ASSERT_STATUS(PKV_OK, pkv_prefix_refresh(c.cache, pin, 10, 1));
    ASSERT_STATUS(PKV_OK, pkv_prefix_unpin(c.cache, pin));
    case_close(&c);
}

/* --- random rows */

#define NUM_ROWS 8
#define LENGTH 64

static const struct pkv_namespace_field field = {1, 3, "ann", 0};

struct row {
    struct prefix_seq p;
    bool is_alive;
    bool is_promised; /* and neither forked nor cut beyond max_rewind, nor into what it adopted */
    int32_t end;      /* of its promise */
    int32_t high;
    int32_t num_adopted;
};

struct world {
    struct runtime_case c;
    struct test_random random;
    struct row rows[NUM_ROWS];
    pkv_pin pins[3];
    bool is_broken;
};

static int32_t below(struct world *w, int32_t count)
{
    return random_between(&w->random, 0, count - 1);
}

static struct row *pick(struct world *w, bool is_alive)
{
    const int32_t first = below(w, NUM_ROWS);
    for (int32_t i = 0; i < NUM_ROWS; i++) {
        struct row *row = &w->rows[(first + i) % NUM_ROWS];
        if (row->is_alive == is_alive) {
            return row;
        }
    }
    return NULL;
}

/* Requests are of three texts, and leave them somewhere. */
static void choose_text(struct world *w, struct row *row)
{
    const int32_t text = 1000 * below(w, 3);
    const int32_t leaves = below(w, 3) == 0 ? LENGTH : below(w, LENGTH);
    for (int32_t i = 0; i < LENGTH + 8; i++) {
        row->p.ids[i] = text + i + (i < leaves ? 0 : 100 * (1 + below(w, 3)));
    }
}

static void do_admit(struct world *w, struct row *row)
{
    const int32_t num_tokens = below(w, LENGTH - 10);
    const int32_t reserve = below(w, 11);
    const struct pkv_probe probe = prefix_probe(&w->c, &row->p, num_tokens, reserve);
    int32_t cached = 0;
    const enum pkv_status status = prefix_admit(&w->c, &row->p, num_tokens, reserve, &cached);
    CU_ASSERT_EQUAL(status, probe.status);
    row->is_promised = status == PKV_OK;
    row->end = num_tokens + reserve;
    row->high = row->num_adopted = row->p.seq.length;
}

static void do_create(struct world *w)
{
    struct row *row = pick(w, false);
    const struct pkv_seq_options options = {
        .size = sizeof options,
        .max_rewind = below(w, 2) * below(w, 6),
        .namespace_fields = &field,
        .num_namespace_fields = below(w, 4) == 0,
        .no_publish = below(w, 8) == 0,
    };
    if (row == NULL || prefix_create(&w->c, &row->p, 0, &options) != PKV_OK) {
        return;
    }
    choose_text(w, row);
    row->is_alive = true;
    row->is_promised = false;
    row->high = 0;
    if (below(w, 4) != 0) {
        do_admit(w, row);
    }
}

static int32_t tokens_left(const struct row *row)
{
    return (row->is_promised ? row->end : LENGTH) - row->p.seq.length;
}

/* Promised rows first, and required: they must not be refused. */
static void do_step(struct world *w)
{
    struct case_step step = {0};
    int32_t keep[NUM_ROWS];
    int32_t left = w->c.config.max_step_tokens;
    int32_t num_required = 0;
    for (int32_t pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < NUM_ROWS; i++) {
            struct row *row = &w->rows[i];
            const int32_t most = below(w, 3) == 0 ? left : 1 + below(w, 4);
            int32_t n = tokens_left(row) < most ? tokens_left(row) : most;
            n = n < left ? n : left;
            if (row->is_alive && row->is_promised == (pass == 0) && below(w, 4) != 0 && n >= 0) {
                case_row(&step, &row->p.seq, n);
                left -= n;
                num_required += pass == 0;
            }
        }
    }
    const enum pkv_status status = prefix_begin(&w->c, &step, num_required);
    ASSERT_STATUS(PKV_OK, status);
    w->is_broken = status != PKV_OK;
    if (w->is_broken) {
        return;
    }
    case_attend_all(&w->c, &step);
    if (below(w, 6) == 0) {
        case_abort(&w->c, &step);
        return;
    }
    const bool keeps_all = below(w, 3) != 0;
    for (int32_t i = 0; i < step.num_rows; i++) {
        keep[i] = keeps_all ? step.rows[i].q_len : below(w, step.rows[i].q_len + 1);
    }
    case_commit(&w->c, &step, keep);
    for (int32_t i = 0; i < NUM_ROWS; i++) {
        struct row *row = &w->rows[i];
        row->high = row->p.seq.length > row->high ? row->p.seq.length : row->high;
    }
}

static void do_truncate(struct world *w)
{
    struct row *row = pick(w, true);
    if (row == NULL) {
        return;
    }
    const int32_t length = row->p.seq.length;
    const bool is_rewind = below(w, 3) != 0;
    const int32_t least = row->high - row->p.options.max_rewind;
    const int32_t low = !is_rewind || least < 0 ? 0 : least;
    if (low > length) {
        return;
    }
    const int32_t at = random_between(&w->random, low, length);
    const enum pkv_status status = case_truncate(&w->c, &row->p.seq, at);
    CU_ASSERT(status == PKV_OK || (status == PKV_NOT_RESIDENT && at < least));
    row->is_promised = row->is_promised && at >= least && at >= row->num_adopted && at > 0;
    row->high = at > 0 ? row->high : 0;
}

static void do_fork(struct world *w)
{
    struct row *row = pick(w, true);
    struct row *child = pick(w, false);
    if (row == NULL || child == NULL) {
        return;
    }
    struct case_seq made;
    const int32_t at = below(w, row->p.seq.length + 1);
    if (case_fork(&w->c, &row->p.seq, at, &made) == PKV_OK) {
        child->p = row->p;
        prefix_own_options(&child->p, &row->p.options);
        child->p.seq = made;
        child->is_alive = true;
        child->is_promised = false;
        child->high = row->high;
        /* a copy on write is outside of a promise, and so is a rewind into a fork's block */
        row->is_promised = row->is_promised && at % 4 == 0 && at == row->p.seq.length &&
                           row->p.options.max_rewind == 0;
    }
}

static void do_pin(struct world *w)
{
    pkv_pin *pin = &w->pins[below(w, 3)];
    const struct row *row = pick(w, true);
    int32_t num_pinned = 0;
    (void)!pkv_prefix_unpin(w->c.cache, *pin);
    if (row != NULL && below(w, 2) == 0) {
        const struct pkv_prompt prompt = prefix_prompt(&row->p, below(w, LENGTH));
        const enum pkv_status status =
            pkv_prefix_pin(w->c.cache, &row->p.options, &prompt, 0, 0, pin, &num_pinned);
        CU_ASSERT(status == PKV_OK || status == PKV_NO_BLOCKS);
    }
}

static void do_destroy(struct world *w)
{
    struct row *row = pick(w, true);
    if (row != NULL) {
        prefix_destroy(&w->c, &row->p);
        row->is_alive = row->is_promised = false;
    }
}

static void act(struct world *w)
{
    static void (*const acts[])(struct world *) = {do_create,   do_create, do_create, do_truncate,
                                                   do_truncate, do_fork,   do_pin,    do_destroy};
    const int32_t i = below(w, 16);
    (i < 8 ? acts[i] : do_step)(w);
}

static void open_world(struct world *w, uint64_t seed)
{
    struct runtime_case *c = &w->c;
    memset(w, 0, sizeof *w);
    w->random.state = seed;
    prefix_init(c);
    c->config.max_seqs = NUM_ROWS;
    c->config.max_step_tokens = 1 + below(w, 40);
    c->config.watermark_blocks = below(w, 3);
    c->config.no_partial_hits = below(w, 3) == 0;
    c->config.min_blank_percent = below(w, 2) * below(w, 60);
    c->groups[0].num_blocks = 20 + below(w, 20);
    c->groups[0].sliding_window = below(w, 3) == 0 ? 1 + below(w, 12) : 0;
    struct pkv_group_config *window = case_add_group(c);
    window->sliding_window = 1 + below(w, 12);
    window->kept_prefix = below(w, 2) * below(w, 7);
    window->num_blocks = 10 + below(w, 20);
    case_add_layer(c, 1);
    case_open(c);
    ASSERT_STATUS(PKV_OK, pkv_namespace_quota(c->cache, &field, 8 + below(w, 20)));
}

/* Each row that still has a promise reaches its end. */
static void finish_world(struct world *w)
{
    for (int32_t i = 0; i < NUM_ROWS && !w->is_broken; i++) {
        struct row *row = &w->rows[i];
        if (row->is_alive && row->is_promised) {
            run_to(&w->c, &row->p, row->end, w->c.config.max_step_tokens);
        }
    }
}

/* Random rows with windows, shared prefixes, forks, pins and quotas. */
static void an_admitted_row_never_lacks_what_it_was_promised(void)
{
    static struct world world;
    const char *text = getenv("PKV_TEST_OPS");
    const int64_t num_ops = text != NULL ? strtoll(text, NULL, 10) / 10 : 10000;
    bool goes_on = true;
    for (int64_t round = 0; goes_on && round < num_ops / 200; round++) {
        open_world(&world, test_seed() + (uint64_t)round);
        for (int32_t i = 0; i < 200 && goes_on; i++) {
            act(&world);
            goes_on = case_check(&world.c) == 0 && !world.is_broken;
        }
        finish_world(&world);
        CU_ASSERT(goes_on);
        if (!goes_on) {
            printf("\n    round %d, seed %llu\n", (int)round, (unsigned long long)test_seed());
        }
        case_close(&world.c);
    }
}

static const struct test_case cases[] = {
    TEST(a_window_row_costs_its_window),
    TEST(hundreds_of_rows_share_the_tokens_of_a_step),
    TEST(a_promise_evicts_nothing),
    TEST(a_row_that_needs_two_blocks_never_fits_in_one),
    TEST(an_adopter_takes_nothing_from_an_admitted_row),
    TEST(merged_blocks_stay_promised),
    TEST(what_is_promised_is_not_given_to_others),
    TEST(a_merge_takes_no_promised_block),
    TEST(a_rewind_counts_from_the_greatest_length),
    TEST(a_row_that_rewinds_reaches_its_end),
    TEST(a_cut_that_frees_too_little_loses_the_promise),
    TEST(max_tokens_bounds_one_sequence),
    TEST(a_request_past_max_seq_len_is_told_the_limit),
    TEST(a_refused_batch_ends_no_pin),
    TEST(an_admitted_row_never_lacks_what_it_was_promised),
    TEST_END,
};
const struct test_suite suite_runtime_promise = {"runtime_promise", cases};
