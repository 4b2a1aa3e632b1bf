/* SPDX-License-Identifier: MIT
 *
 * Sequences: handles, admission, fork, truncation and the end, with blocks counted after each. */
#include <string.h>

#include "support/runtime_case.h"

static const int32_t tokens[CASE_MAX_LENGTH];

/* A stale, foreign or zeroed handle answers so everywhere and changes nothing. */
static void assert_stale(struct runtime_case *c, pkv_seq seq)
{
    struct pkv_admission admission = {sizeof admission, -1, -1, -1, -1, {0}};
    struct pkv_shortage shortage = {sizeof shortage, -7, -7, -7, -7, -7, -7, -7};
    pkv_seq child = {0};
    pkv_step step = {0};
    int32_t length = -1;
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = &seq,
                                    .num_rows = 1,
                                    .num_required_rows = 1,
                                    .token_ids = tokens};
    const int32_t free_before = case_free(c, 0);
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_length(c->cache, seq, &length));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_truncate(c->cache, seq, 0));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_fork(c->cache, seq, 0, 1, &child));
    ASSERT_STATUS(PKV_STALE_HANDLE,
                  pkv_seq_admit(c->cache, seq, PROMPT(tokens, 4), 0, 0, &admission, &shortage));
    ASSERT_REFUSED(PKV_STALE_HANDLE, "seqs[0]", pkv_step_begin(c->cache, &batch, &step, &shortage));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_step_fits(c->cache, &batch, &shortage));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_destroy(c->cache, seq));
    CU_ASSERT(length == -1 && child.id == 0 && step.id == 0 && admission.num_blocks == -1);
    CU_ASSERT_EQUAL(case_free(c, 0), free_before);
    CU_ASSERT_EQUAL(case_check(c), 0);
}

static void a_zeroed_handle_is_stale(void)
{
    struct runtime_case c;
    const pkv_seq zero = {0};
    case_init(&c);
    case_open(&c);
    assert_stale(&c, zero);
    const pkv_seq wild = {UINT64_MAX};
    assert_stale(&c, wild);
    case_close(&c);
}

/* C5: the handle of a destroyed sequence never names a later one. */
static void a_destroyed_handle_stays_stale_when_its_place_is_reused(void)
{
    struct runtime_case c;
    struct case_seq old, young;
    case_init(&c);
    c.config.max_seqs = 1;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &old, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &old, 6));
    for (int round = 0; round < 300; round++) {
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, old.handle));
        if (round % 100 == 0) {
            assert_stale(&c, old.handle);
        }
        ASSERT_STATUS(PKV_OK, case_create(&c, &young, NULL));
        CU_ASSERT_NOT_EQUAL(young.handle.id, old.handle.id);
        CU_ASSERT_EQUAL(case_length(&c, young.handle), 0);
        if (round % 100 == 0) {
            assert_stale(&c, old.handle);
            ASSERT_STATUS(PKV_OK, case_append(&c, &young, 3));
        }
        old.handle = young.handle;
    }
    case_close(&c);
}

static void a_handle_of_another_cache_is_stale(void)
{
    struct runtime_case c, other;
    struct case_seq seq, foreign;
    case_init(&c);
    case_open(&c);
    case_init(&other);
    case_open(&other);
    ASSERT_STATUS(PKV_OK, case_create(&c, &seq, NULL));
    ASSERT_STATUS(PKV_OK, case_create(&other, &foreign, NULL));
    CU_ASSERT_NOT_EQUAL(seq.handle.id, foreign.handle.id);
    assert_stale(&c, foreign.handle);
    assert_stale(&other, seq.handle);
    ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 3));
    ASSERT_STATUS(PKV_OK, case_append(&other, &foreign, 3));
    case_close(&other);
    case_close(&c);
}

/* The second cache may well lie where the first lay. */
static void a_handle_of_a_cache_that_is_gone_is_stale_in_its_successor(void)
{
    for (int round = 0; round < 8; round++) {
        struct runtime_case c;
        static struct case_seq old, young;
        case_init(&c);
        memset(&c.config.hooks, 0, sizeof c.config.hooks);
        case_open(&c);
        ASSERT_STATUS(PKV_OK, case_create(&c, &old, NULL));
        case_close(&c);
        case_init(&c);
        memset(&c.config.hooks, 0, sizeof c.config.hooks);
        case_open(&c);
        ASSERT_STATUS(PKV_OK, case_create(&c, &young, NULL));
        CU_ASSERT_NOT_EQUAL(old.handle.id, young.handle.id);
        assert_stale(&c, old.handle);
        case_close(&c);
    }
}

static void no_more_sequences_than_max_seqs_live_at_once(void)
{
    struct runtime_case c;
    static struct case_seq seqs[9];
    case_init(&c);
    case_open(&c);
    for (int i = 0; i < 8; i++) {
        ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[i], NULL));
        for (int j = 0; j < i; j++) {
            CU_ASSERT_NOT_EQUAL(seqs[i].handle.id, seqs[j].handle.id);
        }
    }
    seqs[8].handle.id = 0;
    ASSERT_STATUS(PKV_NO_BLOCKS, case_create(&c, &seqs[8], NULL));
    CU_ASSERT_EQUAL(seqs[8].handle.id, 0);
    ASSERT_STATUS(PKV_NO_BLOCKS, case_fork(&c, &seqs[0], 0, &seqs[8]));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seqs[3].handle));
    ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[8], NULL));
    case_close(&c);
}

static void bad_options_refuse_and_are_named(void)
{
    struct runtime_case c;
    pkv_seq seq = {0};
    const int64_t negative = -1;
    case_init(&c);
    case_open(&c);
    struct pkv_seq_options options = {.size = 0};
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "size", pkv_seq_create(c.cache, &options, &seq));
    options.size = sizeof options;
    options.max_rewind = -1;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "max_rewind", pkv_seq_create(c.cache, &options, &seq));
    options.max_rewind = 65;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "max_rewind", pkv_seq_create(c.cache, &options, &seq));
    options.max_rewind = 0;
    options.kept_prefix = &negative;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "kept_prefix", pkv_seq_create(c.cache, &options, &seq));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_seq_create(c.cache, NULL, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_seq_create(NULL, NULL, &seq));
    CU_ASSERT_EQUAL(seq.id, 0);
    options.kept_prefix = NULL;
    options.max_rewind = 64;
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, &options, &seq));
    case_close(&c);
}

/* I5, A3: an admission succeeds, must wait or never fits, and the answer says which. */
static void admission_answers_yes_not_now_or_never(void)
{
    struct runtime_case c;
    struct case_seq a, b, d;
    struct pkv_shortage shortage = {.size = sizeof shortage};
    case_init(&c);
    c.groups[0].num_blocks = 7;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_create(&c, &b, NULL));
    ASSERT_STATUS(PKV_OK, case_create(&c, &d, NULL));
    ASSERT_STATUS(PKV_OK, case_admit(&c, &a, 20, 0, &shortage));
    CU_ASSERT_EQUAL(case_free(&c, 0), 2);
    ASSERT_STATUS(PKV_NO_BLOCKS, case_admit(&c, &b, 10, 6, &shortage));
    CU_ASSERT(shortage.need == 4 && shortage.free == 2);
    CU_ASSERT(shortage.row == -1 && shortage.group == 0);
    CU_ASSERT(shortage.evictable == 0 && shortage.quota == 0);
    ASSERT_STATUS(PKV_NEVER_FITS, case_admit(&c, &d, 32, 0, &shortage));
    CU_ASSERT_EQUAL(shortage.need, 8);
    ASSERT_STATUS(PKV_NEVER_FITS, case_admit(&c, &d, 0, 29, &shortage));
    ASSERT_STATUS(PKV_NO_BLOCKS, case_admit(&c, &b, 16, 0, NULL));
    CU_ASSERT_EQUAL(case_free(&c, 0), 2);
    ASSERT_STATUS(PKV_OK, case_admit(&c, &d, 0, 0, &shortage));
    CU_ASSERT_EQUAL(case_free(&c, 0), 2);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, a.handle));
    CU_ASSERT_EQUAL(case_free(&c, 0), 7);
    ASSERT_STATUS(PKV_OK, case_admit(&c, &b, 16, 0, &shortage));
    CU_ASSERT_EQUAL(case_free(&c, 0), 3);
    case_close(&c);
}

static void bad_admissions_refuse(void)
{
    struct runtime_case c;
    struct case_seq a;
    struct pkv_admission admission = {sizeof admission, -1, -1, -1, -1, {0}};
    case_init(&c);
    c.groups[0].num_blocks = 40; /* blocks enough for more than max_seq_len */
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    const pkv_seq seq = a.handle;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  pkv_seq_admit(c.cache, seq, PROMPT(tokens, -1), 0, 0, &admission, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  pkv_seq_admit(c.cache, seq, PROMPT(tokens, 1), -1, 0, &admission, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  pkv_seq_admit(c.cache, seq, PROMPT(tokens, 1), 0, -1, &admission, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  pkv_seq_admit(c.cache, seq, PROMPT(NULL, 1), 0, 0, &admission, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  pkv_seq_admit(NULL, seq, PROMPT(tokens, 1), 0, 0, &admission, NULL));
    const enum pkv_status past =
        pkv_seq_admit(c.cache, seq, PROMPT(tokens, 65), 0, 0, &admission, NULL);
    CU_ASSERT(past == PKV_NEVER_FITS || past == PKV_INVALID_ARGUMENT);
    const enum pkv_status far =
        pkv_seq_admit(c.cache, seq, PROMPT(tokens, INT32_MAX), INT32_MAX, 0, &admission, NULL);
    CU_ASSERT(far == PKV_NEVER_FITS || far == PKV_INVALID_ARGUMENT);
    CU_ASSERT_EQUAL(admission.num_blocks, -1);
    CU_ASSERT_EQUAL(case_held(&c, 0), 0);
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 1));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  pkv_seq_admit(c.cache, seq, PROMPT(tokens, 1), 0, 0, &admission, NULL));
    CU_ASSERT_EQUAL(case_held(&c, 0), 1);
    case_close(&c);
}

/* A4: the second group is short, so the first keeps nothing either. */
static void admission_reserves_in_every_group_or_in_none(void)
{
    struct runtime_case c;
    struct case_seq a, b;
    struct pkv_shortage shortage = {.size = sizeof shortage};
    struct pkv_admission admission = {.size = sizeof admission};
    case_init(&c);
    c.groups[0].num_blocks = 8;
    case_add_group(&c)->block_size = 2;
    c.groups[1].num_blocks = 12;
    case_add_layer(&c, 1);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_create(&c, &b, NULL));
    ASSERT_STATUS(PKV_OK,
                  pkv_seq_admit(c.cache, a.handle, PROMPT(tokens, 7), 6, 0, &admission, &shortage));
    CU_ASSERT_EQUAL(admission.num_blocks, 4 + 7);
    CU_ASSERT_EQUAL(case_free(&c, 0), 4);
    CU_ASSERT_EQUAL(case_free(&c, 1), 5);
    ASSERT_STATUS(PKV_NO_BLOCKS, case_admit(&c, &b, 11, 0, &shortage));
    CU_ASSERT(shortage.group == 1 && shortage.need == 6 && shortage.free == 5);
    /* the first group is short now, but the second will always be */
    ASSERT_STATUS(PKV_NEVER_FITS, case_admit(&c, &b, 25, 0, &shortage));
    CU_ASSERT_EQUAL(shortage.group, 1);
    CU_ASSERT_EQUAL(case_free(&c, 0), 4);
    CU_ASSERT_EQUAL(case_free(&c, 1), 5);
    ASSERT_STATUS(PKV_OK, case_admit(&c, &b, 10, 0, &shortage));
    CU_ASSERT_EQUAL(case_free(&c, 0), 1);
    CU_ASSERT_EQUAL(case_free(&c, 1), 0);
    case_close(&c);
}

/* Appends blocks' worth of tokens while there are any; keeps every block it gets. */
static void hog(struct runtime_case *c, struct case_seq *seq)
{
    while (seq->length < 60 && case_append(c, seq, 4) == PKV_OK) {
    }
}

/* Decodes with 8 drafts of which 3 are accepted, then by single tokens, to 48 tokens. */
static enum pkv_status run_to_48(struct runtime_case *c, struct case_seq *seq,
                                 struct case_seq *thief)
{
    enum pkv_status status = PKV_OK;
    while (status == PKV_OK && seq->length < 48) {
        struct case_step step = {0};
        const bool has_drafts = seq->length + 8 <= 48;
        const int32_t keep = has_drafts ? 3 : 1;
        hog(c, thief);
        case_row(&step, seq, has_drafts ? 8 : 1);
        status = case_begin(c, &step, 1);
        if (status == PKV_OK) {
            case_attend_all(c, &step);
            case_commit(c, &step, &keep);
        }
    }
    return status;
}

/* What was admitted runs to its end, rejected drafts and all, while others take every other block.
 */
static void what_was_reserved_is_there_whatever_others_take(void)
{
    static struct case_seq a, hogs[4];
    const struct pkv_seq_options keep_all = {.size = sizeof keep_all, .max_rewind = 64};
    for (int variant = 0; variant < 8; variant++) {
        struct runtime_case c;
        const struct pkv_seq_options options = {.size = sizeof options,
                                                .max_rewind = variant & 2 ? 8 : 0};
        case_init(&c);
        c.groups[0].sliding_window = variant & 1 ? 5 : 0;
        c.groups[0].kept_prefix = variant & 4 ? 6 : 0;
        c.groups[0].num_blocks = 30;
        c.config.max_step_tokens = 8;
        case_open(&c);
        ASSERT_STATUS(PKV_OK, case_create(&c, &a, &options));
        ASSERT_STATUS(PKV_OK, case_admit(&c, &a, 8, 40, NULL));
        for (int i = 0; i < 4; i++) {
            ASSERT_STATUS(PKV_OK, case_create(&c, &hogs[i], &keep_all));
            hog(&c, &hogs[i]);
        }
        CU_ASSERT_EQUAL(case_free(&c, 0), 0);
        ASSERT_STATUS(PKV_OK, case_append(&c, &a, 8));
        ASSERT_STATUS(PKV_OK, run_to_48(&c, &a, &hogs[3]));
        CU_ASSERT_EQUAL(a.length, 48);
        case_close(&c);
    }
}

/* A request may ask anew before it starts: the last promise counts. */
static void an_empty_sequence_may_be_admitted_again(void)
{
    struct runtime_case c;
    static struct case_seq a;
    case_init(&c);
    c.groups[0].num_blocks = 7;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_admit(&c, &a, 20, 0, NULL));
    ASSERT_STATUS(PKV_OK, case_admit(&c, &a, 20, 8, NULL));
    CU_ASSERT_EQUAL(case_held(&c, 0), 7);
    ASSERT_STATUS(PKV_NEVER_FITS, case_admit(&c, &a, 20, 9, NULL));
    CU_ASSERT_EQUAL(case_held(&c, 0), 7);
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 28));
    case_close(&c);
}

/* B6: a sequence has one length, its own, whatever the caller believes it to be. */
static void an_admitted_prompt_is_written_in_any_chunks_and_never_past_the_bound(void)
{
    struct runtime_case c;
    struct case_seq a;
    case_init(&c);
    c.config.max_step_tokens = 100;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_admit(&c, &a, 30, 10, NULL));
    CU_ASSERT_EQUAL(case_held(&c, 0), 10);
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 13));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 17));
    CU_ASSERT_EQUAL(case_held(&c, 0), 10);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, case_append(&c, &a, 35));
    CU_ASSERT_EQUAL(case_length(&c, a.handle), 30);
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 34)); /* past what was reserved */
    CU_ASSERT_EQUAL(case_held(&c, 0), 16);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, case_append(&c, &a, 1));
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a, 5));
    CU_ASSERT_EQUAL(case_held(&c, 0), 10);
    case_close(&c);
}

static void truncation_keeps_what_was_promised_and_preemption_does_not(void)
{
    struct runtime_case c;
    struct case_seq a;
    case_init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_admit(&c, &a, 6, 20, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 6));
    CU_ASSERT_EQUAL(case_held(&c, 0), 7);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a, 6));
    CU_ASSERT_EQUAL(case_held(&c, 0), 7);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a, 2));
    CU_ASSERT_EQUAL(case_held(&c, 0), 7);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a, 0));
    CU_ASSERT_EQUAL(case_held(&c, 0), 0);
    ASSERT_STATUS(PKV_OK, case_admit(&c, &a, 6, 20, NULL)); /* preempted, then again */
    CU_ASSERT_EQUAL(case_held(&c, 0), 7);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, a.handle));
    CU_ASSERT_EQUAL(case_held(&c, 0), 0);
    case_close(&c);
}

static void truncation_frees_whole_blocks_past_the_length(void)
{
    for (int32_t block_size = 1; block_size <= 5; block_size++) {
        struct runtime_case c;
        struct case_seq a;
        case_init(&c);
        c.groups[0].block_size = block_size;
        c.groups[0].num_blocks = 64;
        case_open(&c);
        ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
        for (int32_t n = 0; n <= 21; n++) {
            ASSERT_STATUS(PKV_OK, case_append(&c, &a, 21 - a.length));
            ASSERT_STATUS(PKV_OK, case_truncate(&c, &a, n));
            CU_ASSERT_EQUAL(case_held(&c, 0), (n + block_size - 1) / block_size);
            ASSERT_STATUS(PKV_INVALID_ARGUMENT, case_truncate(&c, &a, n + 1));
            ASSERT_STATUS(PKV_INVALID_ARGUMENT, case_truncate(&c, &a, -1));
            CU_ASSERT_EQUAL(case_check(&c), 0);
        }
        case_close(&c);
    }
}

/* A6: a fork raises counts by one, so its holders may end in any order. */
static void parent_child_and_grandchild_may_end_in_any_order(void)
{
    for (int order = 0; order < 6; order++) {
        struct runtime_case c;
        static struct case_seq seqs[3];
        int at[3];
        case_init(&c);
        case_open(&c);
        ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[0], NULL));
        ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[0], 10));
        ASSERT_STATUS(PKV_OK, case_fork(&c, &seqs[0], 10, &seqs[1]));
        ASSERT_STATUS(PKV_OK, case_fork(&c, &seqs[1], 7, &seqs[2]));
        CU_ASSERT_EQUAL(case_held(&c, 0), 3);
        case_permutation(order, 3, at);
        for (int i = 0; i < 3; i++) {
            ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seqs[at[i]].handle));
            CU_ASSERT_EQUAL(case_check(&c), 0);
            for (int j = i + 1; j < 3; j++) {
                ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[at[j]], 2));
            }
        }
        CU_ASSERT_EQUAL(case_free(&c, 0), 16);
        case_close(&c);
    }
}

/* A8: eight children may release their shared blocks in any order. */
static void eight_forks_survive_their_releases_in_any_order(void)
{
    struct test_random random = {test_seed()};
    for (int round = 0; round < 40; round++) {
        struct runtime_case c;
        struct case_seq parent;
        pkv_seq children[8];
        int at[8];
        case_init(&c);
        c.config.max_seqs = 9;
        case_open(&c);
        ASSERT_STATUS(PKV_OK, case_create(&c, &parent, NULL));
        ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 9));
        ASSERT_STATUS(PKV_OK, pkv_seq_fork(c.cache, parent.handle, 9, 8, children));
        CU_ASSERT_EQUAL(case_held(&c, 0), 3);
        case_permutation(random_between(&random, 0, 40319), 8, at);
        for (int i = 0; i < 8; i++) {
            ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, children[at[i]]));
            ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_destroy(c.cache, children[at[i]]));
            CU_ASSERT_EQUAL(case_held(&c, 0), 3);
        }
        ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 1));
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, parent.handle));
        CU_ASSERT_EQUAL(case_held(&c, 0), 0);
        case_close(&c);
    }
}

/* A7: a fork that falls short leaves no child behind. */
static void a_fork_makes_all_children_or_none(void)
{
    struct runtime_case c;
    struct case_seq parent;
    static struct case_seq others[5];
    pkv_seq children[3] = {{0}, {0}, {0}};
    case_init(&c);
    c.groups[0].num_blocks = 3;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &parent, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 12));
    for (int i = 0; i < 5; i++) {
        ASSERT_STATUS(PKV_OK, case_create(&c, &others[i], NULL));
    }
    ASSERT_STATUS(PKV_NO_BLOCKS, pkv_seq_fork(c.cache, parent.handle, 11, 3, children));
    CU_ASSERT(children[0].id == 0 && children[1].id == 0 && children[2].id == 0);
    CU_ASSERT_EQUAL(case_check(&c), 0);
    /* sharing needs no block, and no block is free */
    ASSERT_STATUS(PKV_OK, pkv_seq_fork(c.cache, parent.handle, 11, 2, children));
    CU_ASSERT(children[0].id != 0 && children[1].id != 0 && children[2].id == 0);
    CU_ASSERT_EQUAL(case_length(&c, children[1]), 11);
    CU_ASSERT_EQUAL(case_free(&c, 0), 0);
    case_close(&c);
}

static void bad_forks_refuse(void)
{
    struct runtime_case c;
    struct case_seq parent, child;
    pkv_seq handle = {0};
    case_init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &parent, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 10));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, case_fork(&c, &parent, -1, &child));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, case_fork(&c, &parent, 11, &child));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_seq_fork(c.cache, parent.handle, 3, -1, &handle));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_seq_fork(c.cache, parent.handle, 3, 1, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_seq_fork(NULL, parent.handle, 3, 1, &handle));
    CU_ASSERT_EQUAL(handle.id, 0);
    ASSERT_STATUS(PKV_OK, case_fork(&c, &parent, 0, &child));
    CU_ASSERT_EQUAL(case_length(&c, child.handle), 0);
    ASSERT_STATUS(PKV_OK, case_admit(&c, &child, 4, 0, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &child, 4));
    case_close(&c);
}

static void a_continuous_group_cannot_fork(void)
{
    struct runtime_case c;
    struct case_seq parent, child;
    case_init(&c);
    case_add_group(&c)->storage = PKV_STORAGE_CONTINUOUS;
    case_add_layer(&c, 1);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &parent, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 10));
    ASSERT_STATUS(PKV_UNSUPPORTED, case_fork(&c, &parent, 10, &child));
    ASSERT_STATUS(PKV_UNSUPPORTED, case_fork(&c, &parent, 4, &child));
    CU_ASSERT_EQUAL(case_held(&c, 0), 3);
    CU_ASSERT_EQUAL(case_held(&c, 1), 1);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, parent.handle));
    CU_ASSERT_EQUAL(case_held(&c, 1), 0);
    case_close(&c);
}

static void children_have_their_parents_options(void)
{
    struct runtime_case c;
    static struct case_seq parent, child, other;
    const int64_t prefix = 3;
    const struct pkv_seq_options options = {
        .size = sizeof options, .tag = 77, .kept_prefix = &prefix, .max_rewind = 4};
    int32_t count = -1;
    case_init(&c);
    c.groups[0].sliding_window = 5;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &parent, &options));
    ASSERT_STATUS(PKV_OK, case_create(&c, &other, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 4));
    ASSERT_STATUS(PKV_OK, case_fork(&c, &parent, 4, &child));
    while (child.length < 30) {
        ASSERT_STATUS(PKV_OK, case_append(&c, &child, 1)); /* its prefix is part of the model */
    }
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &child, 26));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy_tagged(c.cache, 77, &count));
    CU_ASSERT_EQUAL(count, 2);
    assert_stale(&c, parent.handle);
    assert_stale(&c, child.handle);
    CU_ASSERT_EQUAL(case_length(&c, other.handle), 0);
    CU_ASSERT_EQUAL(case_held(&c, 0), 0);
    case_close(&c);
}

static void destroy_tagged_ends_those_and_no_others(void)
{
    struct runtime_case c;
    static struct case_seq seqs[6];
    int32_t count = -1;
    case_init(&c);
    case_open(&c);
    for (int i = 0; i < 6; i++) {
        const struct pkv_seq_options options = {.size = sizeof options, .tag = (uint64_t)(i % 3)};
        ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[i], &options));
        ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[i], 5));
    }
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_seq_destroy_tagged(c.cache, 0, &count));
    CU_ASSERT_EQUAL(count, -1);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy_tagged(c.cache, 9, &count));
    CU_ASSERT_EQUAL(count, 0);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy_tagged(c.cache, 2, &count));
    CU_ASSERT_EQUAL(count, 2);
    CU_ASSERT_EQUAL(case_held(&c, 0), 8);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy_tagged(c.cache, 1, NULL));
    CU_ASSERT_EQUAL(case_held(&c, 0), 4);
    ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[0], 1));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[3], 1));
    case_close(&c);
}

static void a_sequence_of_the_open_step_is_busy_and_others_are_not(void)
{
    struct runtime_case c;
    static struct case_seq in, out, child, late;
    struct case_step step = {0};
    case_init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &in, NULL));
    ASSERT_STATUS(PKV_OK, case_create(&c, &out, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &out, 9));
    case_row(&step, &in, 0); /* also a row that appends nothing */
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
    ASSERT_STATUS(PKV_BUSY, case_fork(&c, &in, 0, &child));
    ASSERT_STATUS(PKV_BUSY, case_truncate(&c, &in, 0));
    ASSERT_STATUS(PKV_BUSY, case_admit(&c, &in, 3, 0, NULL));
    ASSERT_STATUS(PKV_OK, case_fork(&c, &out, 6, &child));
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &out, 7));
    ASSERT_STATUS(PKV_OK, case_create(&c, &late, NULL));
    ASSERT_STATUS(PKV_OK, case_admit(&c, &late, 3, 0, NULL));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, late.handle));
    CU_ASSERT_EQUAL(case_check(&c), 0);
    case_abort(&c, &step);
    ASSERT_STATUS(PKV_OK, case_append(&c, &in, 3));
    ASSERT_STATUS(PKV_OK, case_fork(&c, &in, 2, &late));
    ASSERT_STATUS(PKV_OK, case_append(&c, &out, 1));
    ASSERT_STATUS(PKV_OK, case_append(&c, &child, 1));
    case_close(&c);
}

/* C5: a slot is not given to another sequence while a step still writes it. */
static void a_row_that_dies_in_the_step_is_not_reissued_before_its_end(void)
{
    for (int aborts = 0; aborts < 2; aborts++) {
        struct runtime_case c;
        static struct case_seq a, b;
        struct case_step step = {0};
        case_init(&c);
        c.config.max_seqs = 1;
        c.groups[0].storage = PKV_STORAGE_CONTINUOUS;
        case_open(&c);
        ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
        case_row(&step, &a, 3);
        ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, a.handle));
        ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_destroy(c.cache, a.handle));
        CU_ASSERT_EQUAL(case_held(&c, 0), 1);
        ASSERT_STATUS(PKV_NO_BLOCKS, case_create(&c, &b, NULL));
        CU_ASSERT_EQUAL(case_check(&c), 0);
        case_attend_all(&c, &step);
        if (aborts) {
            case_abort(&c, &step);
        } else {
            case_commit(&c, &step, NULL);
        }
        CU_ASSERT_EQUAL(case_held(&c, 0), 0);
        ASSERT_STATUS(PKV_OK, case_create(&c, &b, NULL));
        CU_ASSERT_NOT_EQUAL(a.handle.id, b.handle.id);
        CU_ASSERT_EQUAL(case_length(&c, b.handle), 0);
        ASSERT_STATUS(PKV_OK, case_append(&c, &b, 2));
        case_close(&c);
    }
}

static void destroy_tagged_reaches_into_the_open_step(void)
{
    struct runtime_case c;
    static struct case_seq a, b;
    const struct pkv_seq_options options = {.size = sizeof options, .tag = 5};
    struct case_step step = {0};
    int32_t count = -1;
    case_init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, &options));
    ASSERT_STATUS(PKV_OK, case_create(&c, &b, NULL));
    case_row(&step, &a, 5);
    case_row(&step, &b, 2);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 2));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy_tagged(c.cache, 5, &count));
    CU_ASSERT_EQUAL(count, 1);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy_tagged(c.cache, 5, &count));
    CU_ASSERT_EQUAL(count, 0);
    CU_ASSERT_EQUAL(case_held(&c, 0), 3);
    case_attend_all(&c, &step);
    case_commit(&c, &step, NULL);
    CU_ASSERT_EQUAL(case_held(&c, 0), 1);
    ASSERT_STATUS(PKV_OK, case_append(&c, &b, 4));
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(a_zeroed_handle_is_stale),
    TEST(a_destroyed_handle_stays_stale_when_its_place_is_reused),
    TEST(a_handle_of_another_cache_is_stale),
    TEST(a_handle_of_a_cache_that_is_gone_is_stale_in_its_successor),
    TEST(no_more_sequences_than_max_seqs_live_at_once),
    TEST(bad_options_refuse_and_are_named),
    TEST(admission_answers_yes_not_now_or_never),
    TEST(bad_admissions_refuse),
    TEST(admission_reserves_in_every_group_or_in_none),
    TEST(what_was_reserved_is_there_whatever_others_take),
    TEST(an_empty_sequence_may_be_admitted_again),
    TEST(an_admitted_prompt_is_written_in_any_chunks_and_never_past_the_bound),
    TEST(truncation_keeps_what_was_promised_and_preemption_does_not),
    TEST(truncation_frees_whole_blocks_past_the_length),
    TEST(parent_child_and_grandchild_may_end_in_any_order),
    TEST(eight_forks_survive_their_releases_in_any_order),
    TEST(a_fork_makes_all_children_or_none),
    TEST(bad_forks_refuse),
    TEST(a_continuous_group_cannot_fork),
    TEST(children_have_their_parents_options),
    TEST(destroy_tagged_ends_those_and_no_others),
    TEST(a_sequence_of_the_open_step_is_busy_and_others_are_not),
    TEST(a_row_that_dies_in_the_step_is_not_reissued_before_its_end),
    TEST(destroy_tagged_reaches_into_the_open_step),
    TEST_END,
};
const struct test_suite suite_runtime_seq = {"runtime_seq", cases};
