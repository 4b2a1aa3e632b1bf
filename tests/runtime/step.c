/* SPDX-License-Identifier: MIT
 *
 * Steps: who joins, what is written, what stays, and that a step which ends otherwise never was. */
#include <string.h>

#include "support/runtime_case.h"

static const int32_t tokens[CASE_MAX_LENGTH];

/* Blocks of the open step's row in a group: table[0..n). */
static void table_of(struct runtime_case *c, const struct case_step *step, int32_t group,
                     int32_t row, int32_t *table, int32_t n)
{
    struct pkv_step_view view = {.size = sizeof view};
    ASSERT_STATUS(PKV_OK, pkv_step_describe(c->cache, step->handle, group, &view));
    const int32_t *from = view.block_tables + (size_t)view.table_rows[row] * view.table_stride;
    memcpy(table, from, (size_t)n * sizeof *table);
}

static void an_empty_batch_is_an_empty_step(void)
{
    struct runtime_case c;
    struct case_step step = {0};
    case_init(&c);
    case_open(&c);
    for (int round = 0; round < 2; round++) {
        ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 0));
        CU_ASSERT_EQUAL(step.shortage.row, 0);
        CU_ASSERT(case_attend(&c, &step, 0));
        if (round == 0) {
            case_commit(&c, &step, NULL);
        } else {
            case_abort(&c, &step);
        }
    }
    case_close(&c);
}

static void rows_without_tokens_are_seen_and_change_nothing(void)
{
    struct runtime_case c;
    static struct case_seq a, b, d;
    struct case_step step = {0};
    struct pkv_step_view view = {.size = sizeof view};
    case_init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_create(&c, &b, NULL));
    ASSERT_STATUS(PKV_OK, case_create(&c, &d, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 8));
    case_row(&step, &a, 0);
    case_row(&step, &b, 3);
    case_row(&step, &d, 0);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 3));
    ASSERT_STATUS(PKV_OK, pkv_step_describe(c.cache, step.handle, 0, &view));
    CU_ASSERT(view.num_rows == 3 && view.num_tokens == 3);
    CU_ASSERT(view.kv_lens[0] == 8 && view.kv_lens[1] == 3 && view.kv_lens[2] == 0);
    const int32_t cu[4] = {0, 0, 3, 3};
    CU_ASSERT_EQUAL(memcmp(view.cu_seqlens_q, cu, sizeof cu), 0);
    CU_ASSERT_EQUAL(case_held(&c, 0), 3);
    case_attend_all(&c, &step);
    case_commit(&c, &step, NULL);
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 1));
    ASSERT_STATUS(PKV_OK, case_append(&c, &d, 1));
    case_close(&c);
}

/* A batch that names no q_lens appends one token each. */
static void q_lens_absent_means_one_token_each(void)
{
    struct runtime_case c;
    static struct case_seq seqs[3];
    pkv_seq handles[3];
    pkv_step step = {0};
    struct pkv_step_view view = {.size = sizeof view};
    case_init(&c);
    case_open(&c);
    for (int i = 0; i < 3; i++) {
        ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[i], NULL));
        handles[i] = seqs[i].handle;
    }
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = handles,
                                    .num_rows = 3,
                                    .num_required_rows = 3,
                                    .token_ids = tokens};
    ASSERT_STATUS(PKV_OK, pkv_step_fits(c.cache, &batch, NULL));
    ASSERT_STATUS(PKV_OK, pkv_step_begin(c.cache, &batch, &step, NULL));
    ASSERT_STATUS(PKV_OK, pkv_step_describe(c.cache, step, 0, &view));
    CU_ASSERT(view.num_tokens == 3 && view.cu_seqlens_q[3] == 3 && view.kv_lens[2] == 1);
    ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
    case_close(&c);
}

static enum pkv_status begin_with(struct runtime_case *c, const struct pkv_batch *batch)
{
    struct pkv_shortage shortage = {.size = sizeof shortage};
    pkv_step step = {0};
    const int32_t held = case_held(c, 0);
    const enum pkv_status status = pkv_step_begin(c->cache, batch, &step, &shortage);
    CU_ASSERT_EQUAL(pkv_step_fits(c->cache, batch, &shortage), status);
    CU_ASSERT_EQUAL(step.id, 0);
    CU_ASSERT_EQUAL(case_held(c, 0), held);
    CU_ASSERT_EQUAL(case_check(c), 0);
    return status;
}

static void bad_batches_refuse(void)
{
    struct runtime_case c;
    static struct case_seq a, b, d;
    case_init(&c);
    c.config.max_step_rows = 2;
    c.config.max_step_tokens = 10;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_create(&c, &b, NULL));
    ASSERT_STATUS(PKV_OK, case_create(&c, &d, NULL));
    const pkv_seq seqs[3] = {a.handle, b.handle, d.handle};
    const pkv_seq twice[2] = {b.handle, b.handle};
    const pkv_seq stale[2] = {a.handle, {0}};
    int32_t q_lens[3] = {1, 1, 1};
    const struct pkv_batch good = {.size = sizeof good,
                                   .seqs = seqs,
                                   .q_lens = q_lens,
                                   .num_rows = 2,
                                   .num_required_rows = 2,
                                   .token_ids = tokens};
    struct pkv_batch bad = good;
    bad.size = 0;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, begin_with(&c, &bad));
    bad = good;
    bad.seqs = NULL;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, begin_with(&c, &bad));
    bad = good;
    bad.num_rows = -1;
    bad.num_required_rows = -1;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, begin_with(&c, &bad));
    bad = good;
    bad.num_required_rows = 3;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, begin_with(&c, &bad));
    bad.num_required_rows = -1;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, begin_with(&c, &bad));
    bad = good;
    bad.num_rows = 3; /* past max_step_rows, though the third is optional */
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, begin_with(&c, &bad));
    bad = good;
    bad.seqs = twice;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "seqs[1]", begin_with(&c, &bad));
    bad.num_required_rows = 0;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, begin_with(&c, &bad));
    bad = good;
    bad.seqs = stale;
    bad.num_required_rows = 1;
    ASSERT_REFUSED(PKV_STALE_HANDLE, "seqs[1]", begin_with(&c, &bad));
    bad = good;
    q_lens[1] = -1;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "q_lens[1]", begin_with(&c, &bad));
    q_lens[1] = 10; /* 1 + 10 tokens */
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, begin_with(&c, &bad));
    q_lens[0] = q_lens[1] = INT32_MAX; /* B3: the sum does not fit */
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, begin_with(&c, &bad));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, begin_with(&c, NULL));
    case_close(&c);
}

/* B1: a row that would pass the end of its table is refused. */
static void a_row_past_max_seq_len_refuses(void)
{
    struct runtime_case c;
    static struct case_seq a, b;
    struct case_step step = {0};
    case_init(&c);
    c.config.max_seq_len = 10;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_create(&c, &b, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, case_append(&c, &a, 11));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 9));
    case_row(&step, &b, 1);
    case_row(&step, &a, 2);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, case_begin(&c, &step, 2));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, case_begin(&c, &step, 1)); /* optional rows too */
    CU_ASSERT_EQUAL(case_held(&c, 0), 3);
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 1));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, case_append(&c, &a, 1));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 0));
    case_close(&c);
}

static void only_one_step_is_open_at_a_time(void)
{
    struct runtime_case c;
    static struct case_seq a, b;
    struct case_step first = {0};
    struct case_step second = {0};
    case_init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_create(&c, &b, NULL));
    case_row(&first, &a, 2);
    case_row(&second, &b, 2);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &first, 1));
    ASSERT_STATUS(PKV_BUSY, case_begin(&c, &second, 1));
    case_attend_all(&c, &first);
    case_commit(&c, &first, NULL);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &second, 1));
    case_abort(&c, &second);
    case_close(&c);
}

static void assert_stale_step(struct runtime_case *c, pkv_step step)
{
    float io_memory[64] = {0};
    struct pkv_step_view view = {.size = sizeof view, .num_rows = -5};
    const struct pkv_layer_io io = {.size = sizeof io,
                                    .q = io_memory,
                                    .k = io_memory + 16,
                                    .v = io_memory + 32,
                                    .out = io_memory + 48};
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_step_attend(c->cache, step, 0, &io));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_step_describe(c->cache, step, 0, &view));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_step_commit(c->cache, step, NULL));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_step_abort(c->cache, step));
    CU_ASSERT_EQUAL(view.num_rows, -5);
}

static void a_step_handle_ends_with_its_step(void)
{
    struct runtime_case c, other;
    static struct case_seq a, b;
    struct case_step step = {0};
    struct case_step foreign = {0};
    const pkv_step zero = {0};
    case_init(&c);
    case_open(&c);
    case_init(&other);
    case_open(&other);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_create(&other, &b, NULL));
    case_row(&step, &a, 1);
    case_row(&foreign, &b, 1);
    assert_stale_step(&c, zero);
    ASSERT_STATUS(PKV_OK, case_begin(&other, &foreign, 1));
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
    assert_stale_step(&c, foreign.handle);
    assert_stale_step(&c, zero);
    case_attend_all(&c, &step);
    case_commit(&c, &step, NULL);
    const pkv_step old = step.handle;
    assert_stale_step(&c, old);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
    CU_ASSERT_NOT_EQUAL(old.id, step.handle.id);
    assert_stale_step(&c, old);
    const pkv_step as_seq = {a.handle.id}; /* a sequence's id is no step's */
    assert_stale_step(&c, as_seq);
    case_abort(&c, &step);
    assert_stale_step(&c, step.handle);
    case_abort(&other, &foreign);
    case_close(&other);
    case_close(&c);
}

/* I3: the dry run of begin says exactly what begin would, and a refusal names the row. */
static void fits_is_exact_and_a_refusal_names_the_row(void)
{
    struct runtime_case c;
    static struct case_seq a, b;
    struct case_step both = {0};
    struct case_step first = {0};
    struct case_step second = {0};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    case_init(&c);
    c.groups[0].num_blocks = 4;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_create(&c, &b, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 7));
    ASSERT_STATUS(PKV_OK, case_append(&c, &b, 8));
    case_row(&first, &a, 1);
    case_row(&second, &b, 1);
    case_row(&both, &a, 1);
    case_row(&both, &b, 1);
    ASSERT_STATUS(PKV_OK, case_fits(&c, &first, 1, &shortage));
    CU_ASSERT_EQUAL(shortage.row, 1);
    ASSERT_STATUS(PKV_NO_BLOCKS, case_fits(&c, &second, 1, &shortage));
    CU_ASSERT(shortage.row == 0 && shortage.group == 0);
    CU_ASSERT(shortage.need == 1 && shortage.free == 0);
    ASSERT_STATUS(PKV_NO_BLOCKS, case_begin(&c, &both, 2));
    CU_ASSERT(both.shortage.row == 1 && both.shortage.group == 0);
    CU_ASSERT(both.shortage.need == 1 && both.shortage.free == 0);
    CU_ASSERT(both.shortage.evictable == 0 && both.shortage.quota == 0);
    CU_ASSERT_EQUAL(case_length(&c, a.handle), 7);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &both, 1)); /* the second was optional */
    CU_ASSERT_EQUAL(both.shortage.row, 1);
    case_attend_all(&c, &both);
    case_commit(&c, &both, NULL);
    CU_ASSERT_EQUAL(case_length(&c, a.handle), 8);
    CU_ASSERT_EQUAL(case_length(&c, b.handle), 8);
    case_close(&c);
}

static void optional_rows_join_in_order_while_they_fit(void)
{
    struct runtime_case c;
    static struct case_seq seqs[4];
    struct case_step step = {0};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    case_init(&c);
    c.groups[0].num_blocks = 6;
    case_open(&c);
    for (int i = 0; i < 4; i++) {
        ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[i], NULL));
    }
    case_row(&step, &seqs[0], 8);
    case_row(&step, &seqs[1], 4);
    case_row(&step, &seqs[2], 16); /* 4 blocks where 3 are left */
    case_row(&step, &seqs[3], 1);  /* would fit, but comes later */
    ASSERT_STATUS(PKV_OK, case_fits(&c, &step, 1, &shortage));
    CU_ASSERT_EQUAL(shortage.row, 2);
    ASSERT_STATUS(PKV_NO_BLOCKS, case_begin(&c, &step, 3));
    CU_ASSERT_EQUAL(step.shortage.row, 2);
    CU_ASSERT_EQUAL(case_held(&c, 0), 0);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
    CU_ASSERT_EQUAL(step.num_rows, 2);
    CU_ASSERT_EQUAL(step.shortage.group, 0);
    CU_ASSERT_EQUAL(case_held(&c, 0), 3);
    /* rows that were left out are not of the step */
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &seqs[2], 0));
    ASSERT_STATUS(PKV_BUSY, case_truncate(&c, &seqs[1], 0));
    case_attend_all(&c, &step);
    case_commit(&c, &step, NULL);
    CU_ASSERT_EQUAL(case_length(&c, seqs[2].handle), 0);
    CU_ASSERT_EQUAL(case_length(&c, seqs[3].handle), 0);
    case_close(&c);
}

static void a_row_larger_than_the_cache_never_fits(void)
{
    struct runtime_case c;
    static struct case_seq a, b;
    struct case_step step = {0};
    case_init(&c);
    case_add_group(&c)->num_blocks = 3;
    case_add_layer(&c, 1);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_create(&c, &b, NULL));
    case_row(&step, &b, 1);
    case_row(&step, &a, 13);
    ASSERT_STATUS(PKV_NEVER_FITS, case_begin(&c, &step, 2));
    CU_ASSERT(step.shortage.row == 1 && step.shortage.group == 1 && step.shortage.need == 4);
    CU_ASSERT_EQUAL(case_held(&c, 0) + case_held(&c, 1), 0);
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 12));
    /* it holds every block itself, so no waiting helps */
    ASSERT_STATUS(PKV_NEVER_FITS, case_append(&c, &a, 1));
    ASSERT_STATUS(PKV_NO_BLOCKS, case_append(&c, &b, 1));
    CU_ASSERT_EQUAL(case_held(&c, 0), 3);
    case_close(&c);
}

static void shortage_may_be_absent_only_when_all_rows_are_required(void)
{
    struct runtime_case c;
    static struct case_seq a;
    pkv_step step = {0};
    case_init(&c);
    c.groups[0].num_blocks = 1;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    const int32_t q_len = 5;
    struct pkv_batch batch = {.size = sizeof batch,
                              .seqs = &a.handle,
                              .q_lens = &q_len,
                              .num_rows = 1,
                              .token_ids = tokens};
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_begin(c.cache, &batch, &step, NULL));
    batch.num_required_rows = 1;
    ASSERT_STATUS(PKV_NEVER_FITS, pkv_step_begin(c.cache, &batch, &step, NULL));
    struct pkv_shortage shortage = {.size = sizeof shortage};
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_begin(c.cache, &batch, NULL, &shortage));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_begin(NULL, &batch, &step, &shortage));
    CU_ASSERT_EQUAL(step.id, 0);
    case_close(&c);
}

/* lessons 11 */
static void rejected_drafts_give_their_blocks_back(void)
{
    struct runtime_case c;
    static struct case_seq a;
    struct case_step step = {0};
    const int32_t keep = 2;
    case_init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 10));
    CU_ASSERT_EQUAL(case_held(&c, 0), 3);
    case_row(&step, &a, 5);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
    CU_ASSERT_EQUAL(case_held(&c, 0), 4);
    case_attend_all(&c, &step);
    case_commit(&c, &step, &keep);
    CU_ASSERT_EQUAL(case_length(&c, a.handle), 12);
    CU_ASSERT_EQUAL(case_held(&c, 0), 3);
    CU_ASSERT_EQUAL(case_free(&c, 0), 13);
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 3)); /* other tokens where drafts lay */
    case_close(&c);
}

static void any_number_of_new_cells_may_stay(void)
{
    for (int32_t bits = 0; bits < 5 * 6 * 7; bits++) {
        struct runtime_case c;
        static struct case_seq seqs[3];
        struct case_step step = {0};
        const int32_t keep[3] = {bits % 5, bits / 5 % 6, bits / 30};
        case_init(&c);
        c.groups[0].block_size = 3;
        case_open(&c);
        for (int32_t i = 0; i < 3; i++) {
            ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[i], NULL));
            ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[i], i + 2));
            case_row(&step, &seqs[i], i + 4);
        }
        ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 3));
        case_attend_all(&c, &step);
        case_commit(&c, &step, keep);
        int32_t blocks = 0;
        for (int32_t i = 0; i < 3; i++) {
            blocks += (seqs[i].length + 2) / 3;
        }
        CU_ASSERT_EQUAL(case_held(&c, 0), blocks);
        ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[bits % 3], 2));
        case_close(&c);
    }
}

static void a_bad_commit_leaves_the_step_open(void)
{
    struct runtime_case c;
    static struct case_seq a, b;
    struct case_step step = {0};
    case_init(&c);
    case_add_layer(&c, 0);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_create(&c, &b, NULL));
    case_row(&step, &a, 3);
    case_row(&step, &b, 2);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 2));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_commit(c.cache, step.handle, NULL));
    CU_ASSERT(case_attend(&c, &step, 0));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_commit(c.cache, step.handle, NULL));
    const int32_t none[2] = {0, 0};
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_commit(c.cache, step.handle, none));
    CU_ASSERT(case_attend(&c, &step, 1));
    const int32_t over[2] = {3, 3};
    const int32_t negative[2] = {-1, 2};
    const int32_t most[2] = {INT32_MAX, INT32_MIN};
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "num_keep[1]",
                   pkv_step_commit(c.cache, step.handle, over));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "num_keep[0] = 2147483647",
                   pkv_step_commit(c.cache, step.handle, most));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "num_keep[0]",
                   pkv_step_commit(c.cache, step.handle, negative));
    CU_ASSERT_EQUAL(case_length(&c, a.handle), 0);
    ASSERT_STATUS(PKV_BUSY, case_truncate(&c, &a, 0));
    case_commit(&c, &step, NULL);
    CU_ASSERT_EQUAL(case_length(&c, a.handle), 3);
    case_close(&c);
}

/* One attend with one field spoiled; the step goes on as if it had not been. */
static void bad_attends_refuse_and_write_nothing(void)
{
    struct runtime_case c;
    static struct case_seq a;
    struct case_step step = {0};
    float memory[6][8];
    case_init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    case_row(&step, &a, 2);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
    memset(memory, 0, sizeof memory);
    memory[3][0] = 42;
    const struct pkv_layer_io good = {.size = sizeof good,
                                      .q = memory[0],
                                      .k = memory[1],
                                      .v = memory[2],
                                      .out = memory[3],
                                      .lse = memory[4]};
    for (int fault = 0; fault < 8; fault++) {
        struct pkv_layer_io bad = good;
        bad.size = fault == 0 ? 0 : bad.size;
        bad.q = fault == 1 ? NULL : bad.q;
        bad.k = fault == 2 ? NULL : bad.k;
        bad.v = fault == 3 ? NULL : bad.v;
        bad.out = fault == 4 ? NULL : bad.out;
        bad.q_stride = fault == 5 ? 1 : 0; /* tokens would overlap */
        bad.out_stride = fault == 6 ? 1 : 0;
        bad.k = fault == 7 ? NULL : bad.k;
        bad.v = fault == 7 ? NULL : bad.v;
        ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_attend(c.cache, step.handle, 0, &bad));
    }
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_attend(c.cache, step.handle, 1, &good));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_attend(c.cache, step.handle, -1, &good));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_attend(c.cache, step.handle, 0, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_attend(NULL, step.handle, 0, &good));
    CU_ASSERT(memory[3][0] == 42);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_commit(c.cache, step.handle, NULL));
    case_attend_all(&c, &step);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_attend(c.cache, step.handle, 0, &good));
    CU_ASSERT(memory[3][0] == 42);
    case_commit(&c, &step, NULL);
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 1)); /* what the second append would have spoiled */
    case_close(&c);
}

static void a_sharing_layer_reads_what_its_owner_wrote(void)
{
    struct runtime_case c;
    static struct case_seq a, b;
    struct case_step step = {0};
    float memory[4][16] = {{0}};
    case_init(&c);
    c.groups[0].kv_heads = 2;
    c.layers[0].num_heads = 2;
    for (int i = 0; i < 2; i++) {
        struct pkv_layer_config *layer = case_add_layer(&c, 0);
        layer->shares_kv = true;
        layer->kv_layer = 0;
        layer->num_heads = i == 0 ? 2 : 6;
    }
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_create(&c, &b, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 7));
    case_row(&step, &a, 2);
    case_row(&step, &b, 1);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 2));
    CU_ASSERT_FALSE(case_attend(&c, &step, 1)); /* before its owner's append */
    CU_ASSERT_EQUAL(step.attended, PKV_INVALID_ARGUMENT);
    CU_ASSERT(case_attend(&c, &step, 0));
    const struct pkv_layer_io io = {
        .size = sizeof io, .q = memory[0], .k = memory[1], .v = memory[2], .out = memory[3]};
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_attend(c.cache, step.handle, 1, &io));
    CU_ASSERT(case_attend(&c, &step, 2));
    case_commit(&c, &step, NULL); /* a sharing layer owes nothing */
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 3));
    case_close(&c);
}

/* What begin reserved, forked blocks that were to be copied, windows that slid: all as before. */
static void abort_restores_lengths_tables_and_counts(void)
{
    for (int attended = 0; attended < 3; attended++) {
        struct runtime_case c;
        static struct case_seq a, b;
        struct case_step step = {0};
        int32_t before[2][2][14];
        int32_t after[2][2][14];
        case_init(&c);
        c.groups[0].sliding_window = 5;
        case_add_group(&c)->sliding_window = 0;
        case_add_layer(&c, 1);
        case_open(&c);
        ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
        ASSERT_STATUS(PKV_OK, case_append(&c, &a, 10));
        ASSERT_STATUS(PKV_OK, case_fork(&c, &a, 9, &b));
        for (int32_t g = 0; g < 2; g++) {
            case_table(&c, &a, g, before[g][0], 14);
            case_table(&c, &b, g, before[g][1], 14);
        }
        const int32_t held[2] = {case_held(&c, 0), case_held(&c, 1)};
        case_row(&step, &a, 20);
        case_row(&step, &b, 13);
        ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 2));
        CU_ASSERT(case_held(&c, 1) > held[1]);
        for (int32_t layer = 0; layer < attended; layer++) {
            CU_ASSERT(case_attend(&c, &step, layer));
        }
        case_abort(&c, &step);
        CU_ASSERT(case_held(&c, 0) == held[0] && case_held(&c, 1) == held[1]);
        for (int32_t g = 0; g < 2; g++) {
            case_table(&c, &a, g, after[g][0], 14);
            case_table(&c, &b, g, after[g][1], 14);
        }
        CU_ASSERT_EQUAL(memcmp(before, after, sizeof before), 0);
        CU_ASSERT_EQUAL(case_check(&c), 0);
        ASSERT_STATUS(PKV_OK, case_append(&c, &b, 2));
        ASSERT_STATUS(PKV_OK, case_append(&c, &a, 2));
        ASSERT_STATUS(PKV_OK, case_append(&c, &b, 1));
        case_close(&c);
    }
}

/* Destroy succeeds at once; the row is computed and dropped, its blocks stay until the end. */
static void a_row_destroyed_in_the_step_is_computed_and_dropped(void)
{
    for (int aborts = 0; aborts < 2; aborts++) {
        struct runtime_case c;
        static struct case_seq a, b, d;
        struct case_step step = {0};
        case_init(&c);
        case_add_layer(&c, 0);
        case_open(&c);
        ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
        ASSERT_STATUS(PKV_OK, case_create(&c, &b, NULL));
        ASSERT_STATUS(PKV_OK, case_append(&c, &a, 6));
        case_row(&step, &a, 5);
        case_row(&step, &b, 3);
        ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 2));
        CU_ASSERT(case_attend(&c, &step, 0));
        int32_t tables[2][3];
        table_of(&c, &step, 0, 0, tables[0], 3);
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, a.handle));
        ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_destroy(c.cache, a.handle));
        int32_t length = -1;
        ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_length(c.cache, a.handle, &length));
        CU_ASSERT_EQUAL(case_held(&c, 0), 4);
        ASSERT_STATUS(PKV_OK, case_create(&c, &d, NULL)); /* gets another place */
        CU_ASSERT_NOT_EQUAL(d.handle.id, a.handle.id);
        table_of(&c, &step, 0, 0, tables[1], 3);
        CU_ASSERT_EQUAL(memcmp(tables[0], tables[1], sizeof tables[0]), 0);
        CU_ASSERT_EQUAL(case_check(&c), 0);
        CU_ASSERT(case_attend(&c, &step, 1));
        if (aborts) {
            case_abort(&c, &step);
        } else {
            case_commit(&c, &step, NULL);
        }
        CU_ASSERT_EQUAL(case_held(&c, 0), aborts ? 0 : 1);
        ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_length(c.cache, a.handle, &length));
        CU_ASSERT_EQUAL(case_length(&c, d.handle), 0);
        ASSERT_STATUS(PKV_OK, case_append(&c, &b, 2));
        case_close(&c);
    }
}

static void the_view_describes_the_step_in_integers(void)
{
    struct runtime_case c;
    static struct case_seq a, b;
    struct case_step step = {0};
    struct pkv_step_view view = {.size = sizeof view};
    struct pkv_step_view again = {.size = sizeof again};
    struct pkv_kv_view layers[2];
    const int64_t prefix = 9;
    const struct pkv_seq_options options = {.size = sizeof options, .kept_prefix = &prefix};
    case_init(&c);
    struct pkv_group_config *window = case_add_group(&c);
    window->sliding_window = 6;
    window->kept_prefix = 2;
    case_add_layer(&c, 1);
    case_add_layer(&c, 1);
    case_add_group(&c)->storage = PKV_STORAGE_CONTINUOUS;
    case_add_layer(&c, 2);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, &options));
    ASSERT_STATUS(PKV_OK, case_create(&c, &b, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &b, 13));
    case_row(&step, &b, 4);
    case_row(&step, &a, 6);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 2));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_describe(c.cache, step.handle, 3, &view));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_describe(c.cache, step.handle, -1, &view));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_describe(c.cache, step.handle, 1, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_describe(NULL, step.handle, 1, &view));
    ASSERT_STATUS(PKV_OK, pkv_step_describe(c.cache, step.handle, 1, &view));
    CU_ASSERT(view.num_rows == 2 && view.num_tokens == 10 && view.num_copies == 0);
    CU_ASSERT(view.kv_lens[0] == 17 && view.kv_lens[1] == 6);
    CU_ASSERT(view.cu_seqlens_q[0] == 0 && view.cu_seqlens_q[1] == 4 && view.cu_seqlens_q[2] == 10);
    CU_ASSERT(view.sliding_window == 6 && view.position_ids == NULL);
    CU_ASSERT(view.kept_prefix[0] == 2 && view.kept_prefix[1] == 9);
    CU_ASSERT(view.max_blocks == 5 && view.table_stride >= 16); /* of the longest row's 17 keys */
    const int32_t *row = view.block_tables + (size_t)view.table_rows[0] * view.table_stride;
    CU_ASSERT(row[0] >= 0 && row[1] == -1 && row[2] >= 0 && row[4] >= 0);
    row = view.block_tables + (size_t)view.table_rows[1] * view.table_stride;
    CU_ASSERT(row[0] >= 0 && row[1] >= 0 && row[2] == -1 && row[4] == -1);
    ASSERT_STATUS(PKV_OK, pkv_cache_view(c.cache, 1, &layers[0]));
    ASSERT_STATUS(PKV_OK, pkv_cache_view(c.cache, 2, &layers[1]));
    CU_ASSERT_PTR_EQUAL(view.first_layer.k, layers[0].k);
    CU_ASSERT_PTR_EQUAL((char *)view.first_layer.k + view.layer_stride_bytes, layers[1].k);
    CU_ASSERT_PTR_EQUAL((char *)view.first_layer.v + view.layer_stride_bytes, layers[1].v);
    case_attend_all(&c, &step);
    ASSERT_STATUS(PKV_OK, pkv_step_describe(c.cache, step.handle, 1, &again));
    CU_ASSERT(again.block_tables == view.block_tables && again.kv_lens == view.kv_lens);
    CU_ASSERT(view.kv_lens[0] == 17 && view.kv_lens[1] == 6);
    ASSERT_STATUS(PKV_OK, pkv_step_describe(c.cache, step.handle, 2, &view));
    CU_ASSERT(view.slot_ids[0] != view.slot_ids[1] && view.slot_ids[0] >= 0);
    CU_ASSERT(view.first_layer.block_size == 64 && view.slot_ids[1] < 8);
    case_commit(&c, &step, NULL);
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(an_empty_batch_is_an_empty_step),
    TEST(rows_without_tokens_are_seen_and_change_nothing),
    TEST(q_lens_absent_means_one_token_each),
    TEST(bad_batches_refuse),
    TEST(a_row_past_max_seq_len_refuses),
    TEST(only_one_step_is_open_at_a_time),
    TEST(a_step_handle_ends_with_its_step),
    TEST(fits_is_exact_and_a_refusal_names_the_row),
    TEST(optional_rows_join_in_order_while_they_fit),
    TEST(a_row_larger_than_the_cache_never_fits),
    TEST(shortage_may_be_absent_only_when_all_rows_are_required),
    TEST(rejected_drafts_give_their_blocks_back),
    TEST(any_number_of_new_cells_may_stay),
    TEST(a_bad_commit_leaves_the_step_open),
    TEST(bad_attends_refuse_and_write_nothing),
    TEST(a_sharing_layer_reads_what_its_owner_wrote),
    TEST(abort_restores_lengths_tables_and_counts),
    TEST(a_row_destroyed_in_the_step_is_computed_and_dropped),
    TEST(the_view_describes_the_step_in_integers),
    TEST_END,
};
const struct test_suite suite_runtime_step = {"runtime_step", cases};
