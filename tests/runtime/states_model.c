/* SPDX-License-Identifier: MIT
 *
 * Random calls on a cache with state groups, swapping and saving among them. What a state must be
 * is known from the text of its sequence alone (states_case.h), so each step checks hits, forks,
 * rewinds, trees, swapping, loading and evictions at once; freed states are poisoned. A sequence
 * that was admitted, and of which no fork was made, always finds its blocks, before it was swapped
 * out and after it has come back. PKV_TEST_SEED replays a run, PKV_TEST_OPS makes it longer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "save_case.h"
#include "states_case.h"

#define NUM_SEQS 6
#define RESERVED 40
#define MAX_TREE 5
#define OPS_PER_ROUND 3000

struct model_seq {
    struct state_seq seq;
    bool is_live;
    bool is_swapped;
    int32_t promised; /* tokens that its steps find blocks for; 0 = none */
};

struct model {
    struct runtime_case c;
    struct test_random random;
    struct model_seq seqs[NUM_SEQS];
    int64_t num_hits, num_trees, num_lost, num_refused, num_swapped, num_loaded;
    struct save_bytes bytes;
};

static int32_t between(struct model *m, int32_t low, int32_t high)
{
    return random_between(&m->random, low, high);
}

/* A text that begins as one of three others do, and goes on in its own words or not. */
static void write_text(struct model *m, struct state_seq *seq)
{
    const int32_t family = between(m, 1, 3);
    const int32_t split = between(m, 0, 120);
    const int32_t words = between(m, 0, 3);
    for (int32_t i = 0; i < CASE_MAX_LENGTH; i++) {
        seq->ids[i] = 100000 * family + i + (i < split ? 0 : 1000 * words);
    }
}

static void create(struct model *m, struct model_seq *of)
{
    const int32_t max_rewind = between(m, 0, 2) == 0 ? between(m, 1, 4) : 0;
    ASSERT_STATUS(PKV_OK, states_create(&m->c, &of->seq, 0, max_rewind));
    write_text(m, &of->seq);
    of->is_live = true;
    of->is_swapped = false;
    of->promised = 0;
}

static void admit(struct model *m, struct model_seq *of)
{
    const int32_t num_tokens = between(m, 1, 100);
    int32_t num_cached = 0;
    const enum pkv_status status = states_admit(&m->c, &of->seq, num_tokens, &num_cached);
    CU_ASSERT(status == PKV_OK || status == PKV_NO_BLOCKS);
    of->promised = status == PKV_OK ? num_tokens + RESERVED : 0;
    m->num_hits += status == PKV_OK && num_cached > 0;
    m->num_refused += status != PKV_OK;
}

static void destroy(struct model *m, struct model_seq *of)
{
    states_destroy(&m->c, &of->seq);
    of->is_live = false;
}

static void fork_one(struct model *m, struct model_seq *of)
{
    struct model_seq *child = &m->seqs[between(m, 0, NUM_SEQS - 1)];
    if (child->is_live || of->seq.length == 0) {
        return;
    }
    const int32_t back = between(m, 0, of->seq.max_rewind);
    const int32_t at = of->seq.length > back ? of->seq.length - back : 0;
    const enum pkv_status status = states_fork(&m->c, &of->seq, at, &child->seq);
    CU_ASSERT(status == PKV_OK || status == PKV_NOT_RESIDENT || status == PKV_NO_BLOCKS);
    CU_ASSERT(status != PKV_OK || !of->is_swapped);
    if (status == PKV_OK) {
        child->is_live = true;
        child->is_swapped = false;
        child->promised = 0;
        of->promised = 0; /* copies on write are outside of it */
        for (int32_t i = at; i < CASE_MAX_LENGTH; i++) {
            child->seq.ids[i] += 7;
        }
    }
}

/* What was promised stays so, but for a cut to none. */
static void truncate_one(struct model *m, struct model_seq *of)
{
    const int32_t back = between(m, 0, of->seq.max_rewind + 1);
    const int32_t to = between(m, 0, 3) == 0 || of->seq.length < back ? 0 : of->seq.length - back;
    const enum pkv_status status = states_truncate(&m->c, &of->seq, to);
    CU_ASSERT(status == PKV_OK || (status == PKV_NOT_RESIDENT && to > 0));
    CU_ASSERT(status != PKV_OK || to == 0 || !of->is_swapped);
    of->is_swapped = of->is_swapped && status != PKV_OK;
    if (status == PKV_OK && (back > 0 || to == 0)) {
        of->promised = 0;
        write_text(m, &of->seq);
        if (to > 0) { /* its text is known to the cache up to there */
            destroy(m, of);
        }
    }
}

/* Out, or back, when there is room. */
static void swap_one(struct model *m, struct model_seq *of)
{
    const enum pkv_status status = of->is_swapped
                                       ? pkv_seq_swap_in(m->c.cache, of->seq.handle, NULL)
                                       : pkv_seq_swap_out(m->c.cache, of->seq.handle, NULL);
    CU_ASSERT(status == PKV_OK || status == PKV_NO_BLOCKS || status == PKV_NEVER_FITS);
    CU_ASSERT(status != PKV_NEVER_FITS || !of->is_swapped);
    of->is_swapped = of->is_swapped != (status == PKV_OK);
    m->num_swapped += status == PKV_OK && !of->is_swapped && of->seq.length > 0;
    m->num_refused += status != PKV_OK;
}

/* Saved, destroyed, and loaded again, when there is room. */
static void reload_one(struct model *m, struct model_seq *of)
{
    const enum pkv_status saved = save_to(&m->c, of->seq.handle, &m->bytes);
    CU_ASSERT_EQUAL(saved, of->is_swapped ? PKV_NOT_RESIDENT : PKV_OK);
    if (saved != PKV_OK) {
        return;
    }
    destroy(m, of);
    const enum pkv_status status = save_load(&m->c, &m->bytes, &of->seq.handle, NULL);
    CU_ASSERT(status == PKV_OK || status == PKV_NO_BLOCKS || status == PKV_NEVER_FITS);
    of->is_live = status == PKV_OK;
    of->promised = 0;
    m->num_loaded += of->is_live && of->seq.length > 0;
}

/* The rows of a step: some live sequences, each with some tokens. */
static int32_t choose_rows(struct model *m, struct state_row *rows, struct model_seq **chosen)
{
    int32_t count = 0;
    for (int32_t i = 0; i < NUM_SEQS; i++) {
        struct model_seq *of = &m->seqs[i];
        const int32_t left = m->c.config.max_seq_len - of->seq.length;
        if (of->is_live && !of->is_swapped && left > 24 && between(m, 0, 2) > 0) {
            const int32_t q_len = between(m, 0, 3) == 0 ? between(m, 1, 24) : between(m, 0, 3);
            rows[count] = (struct state_row){&of->seq, q_len, NULL};
            chosen[count++] = of;
        }
    }
    return count;
}

/* Whether a step of these rows must find its blocks. */
static bool is_promised(const struct state_row *rows, struct model_seq *const *chosen,
                        int32_t num_rows)
{
    bool is = true;
    for (int32_t i = 0; i < num_rows; i++) {
        is = is && rows[i].seq->length + rows[i].q_len <= chosen[i]->promised;
    }
    return is;
}

/* Sequences whose state was lost begin again. */
static void restart_lost(struct model *m, struct model_seq *const *chosen, int32_t num_rows)
{
    for (int32_t i = 0; i < num_rows; i++) {
        const struct state_row row = {&chosen[i]->seq, 1, NULL};
        pkv_step step;
        const enum pkv_status status = states_begin(&m->c, &row, 1, &step);
        if (status == PKV_OK) {
            ASSERT_STATUS(PKV_OK, pkv_step_abort(m->c.cache, step));
        } else if (status == PKV_NOT_RESIDENT) {
            CU_ASSERT_EQUAL(chosen[i]->seq.max_rewind, 0);
            ASSERT_STATUS(PKV_OK, states_truncate(&m->c, &chosen[i]->seq, 0));
            chosen[i]->promised = 0;
            m->num_lost++;
        }
    }
}

/* A chain of tokens each, of which all are kept, or some where that is possible, or none. */
static void step_rows(struct model *m)
{
    struct state_row rows[NUM_SEQS];
    struct model_seq *chosen[NUM_SEQS];
    int32_t num_keep[NUM_SEQS];
    pkv_step step;
    const int32_t num_rows = choose_rows(m, rows, chosen);
    if (num_rows == 0) {
        return;
    }
    const enum pkv_status status = states_begin(&m->c, rows, num_rows, &step);
    if (status != PKV_OK) {
        CU_ASSERT(status == PKV_NOT_RESIDENT ||
                  (status == PKV_NO_BLOCKS && !is_promised(rows, chosen, num_rows)));
        restart_lost(m, chosen, num_rows);
        return;
    }
    if (between(m, 0, 9) > 0) {
        states_run(&m->c, rows, step, NULL);
    } else {
        ASSERT_STATUS(PKV_OK, pkv_step_abort(m->c.cache, step));
        return;
    }
    if (between(m, 0, 15) == 0) {
        ASSERT_STATUS(PKV_OK, pkv_step_abort(m->c.cache, step));
        restart_lost(m, chosen, num_rows);
        return;
    }
    for (int32_t i = 0; i < num_rows; i++) {
        const int32_t most =
            rows[i].q_len < rows[i].seq->max_rewind ? rows[i].q_len : rows[i].seq->max_rewind;
        num_keep[i] = rows[i].q_len - between(m, 0, most);
    }
    ASSERT_STATUS(PKV_OK, states_commit(&m->c, rows, num_rows, step, num_keep));
}

/* A tree of drafts on one sequence, and a path of it that is kept. */
static void step_tree(struct model *m, struct model_seq *of)
{
    int32_t parents[MAX_TREE];
    int32_t path[MAX_TREE];
    int32_t num_keep = 0;
    const int32_t q_len = between(m, 1, of->seq.max_rewind + 1);
    const struct state_row row = {&of->seq, q_len, parents};
    pkv_step step;
    for (int32_t t = 0; t < q_len; t++) {
        parents[t] = between(m, -1, t - 1);
    }
    if (of->seq.max_rewind == 0 || of->is_swapped || of->seq.length + q_len > 170 ||
        states_begin(&m->c, &row, 1, &step) != PKV_OK) {
        return;
    }
    states_run(&m->c, &row, step, NULL);
    for (int32_t t = between(m, -1, q_len - 1); t >= 0; t = parents[t]) {
        path[MAX_TREE - ++num_keep] = t;
    }
    ASSERT_STATUS(PKV_OK,
                  pkv_step_commit_path(m->c.cache, step, &num_keep, path + MAX_TREE - num_keep));
    for (int32_t k = 0; k < num_keep; k++) {
        of->seq.ids[of->seq.length + k] =
            of->seq.ids[of->seq.length + path[MAX_TREE - num_keep + k]];
    }
    of->seq.length += num_keep;
    m->num_trees++;
}

static void act(struct model *m)
{
    struct model_seq *of = &m->seqs[between(m, 0, NUM_SEQS - 1)];
    const int32_t what = between(m, 0, 23);
    if (!of->is_live) {
        create(m, of);
    } else if (of->seq.length == 0 && !of->is_swapped && what < 8) {
        admit(m, of);
    } else if (what < 13) {
        step_rows(m);
    } else if (what < 15) {
        step_tree(m, of);
    } else if (what < 17) {
        fork_one(m, of);
    } else if (what < 18) {
        truncate_one(m, of);
    } else if (what < 21) {
        swap_one(m, of);
    } else if (what < 22) {
        reload_one(m, of);
    } else {
        destroy(m, of);
    }
}

static int64_t num_rounds(void)
{
    const char *text = getenv("PKV_TEST_OPS");
    return text != NULL ? strtoll(text, NULL, 10) / OPS_PER_ROUND + 1 : 8;
}

/* A round with a configuration of its own; false when it failed. */
static bool run_model(struct model *m, uint64_t seed)
{
    memset(m, 0, sizeof *m);
    m->random = (struct test_random){.state = seed};
    states_init(&m->c);
    for (int32_t g = 2; g < 4; g++) {
        m->c.groups[g].max_rewind = 4;
        m->c.groups[g].num_blocks = between(m, 0, 1) == 0 ? between(m, 10, 14) : between(m, 12, 60);
        m->c.groups[g].snapshot_interval = 4 * between(m, 0, 4);
        m->c.groups[g].segment_tokens = m->c.groups[g].snapshot_interval * between(m, 0, 3);
    }
    m->c.groups[0].num_blocks = between(m, 60, 160);
    m->c.groups[1].num_blocks = between(m, 60, 160);
    m->c.groups[1].block_size = between(m, 0, 2) == 0 ? 8 : 4;
    if (m->c.groups[1].block_size == 8) {
        m->c.groups[2].snapshot_interval = 8 * between(m, 0, 2);
        m->c.groups[3].snapshot_interval = 8;
        m->c.groups[2].segment_tokens = 0;
        m->c.groups[3].segment_tokens = 16 * between(m, 0, 2);
    }
    m->c.groups[1].segment_tokens = 8 * between(m, 0, 4);
    m->c.config.max_step_tokens = NUM_SEQS * 24;
    m->c.config.prefix_cache = between(m, 0, 5) > 0;
    m->c.config.swap_bytes = (size_t)between(m, 1, 8) << 13;
    case_open(&m->c);
    const unsigned failures = CU_get_number_of_failures();
    for (int32_t i = 0; i < OPS_PER_ROUND; i++) {
        act(m);
        if (i % 16 == 0) {
            CU_ASSERT_EQUAL(case_check(&m->c), 0);
        }
        if (CU_get_number_of_failures() != failures) {
            printf("\n    call %d, seed %llu (suite seed %llu)\n", (int)i, (unsigned long long)seed,
                   (unsigned long long)test_seed());
            ASSERT_STATUS(PKV_OK, pkv_cache_destroy(m->c.cache, true));
            save_bytes_free(&m->bytes);
            return false;
        }
    }
    case_close(&m->c);
    save_bytes_free(&m->bytes);
    return true;
}

static void random_calls_never_read_a_wrong_state(void)
{
    static struct model model;
    int64_t num_hits = 0;
    int64_t num_trees = 0;
    int64_t num_lost = 0;
    int64_t num_refused = 0;
    int64_t num_swapped = 0;
    int64_t num_loaded = 0;
    for (int64_t round = 0; round < num_rounds(); round++) {
        if (!run_model(&model, test_seed() + (uint64_t)round)) {
            return;
        }
        num_hits += model.num_hits;
        num_trees += model.num_trees;
        num_lost += model.num_lost;
        num_refused += model.num_refused;
        num_swapped += model.num_swapped;
        num_loaded += model.num_loaded;
    }
    CU_ASSERT(num_hits > 50 && num_trees > 50 && num_lost > 0 && num_refused > 0);
    CU_ASSERT(num_swapped > 50 && num_loaded > 50);
}

static const struct test_case cases[] = {
    TEST(random_calls_never_read_a_wrong_state),
    TEST_END,
};

const struct test_suite suite_runtime_states_model = {"runtime_states_model", cases};
