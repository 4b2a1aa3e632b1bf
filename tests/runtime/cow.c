/* SPDX-License-Identifier: MIT
 *
 * Shared blocks: a block has one writer, any other that appends to it copies first, and nobody sees
 * another's tokens. The dense reference of each sequence is what shows it. */
#include <string.h>

#include "support/runtime_case.h"

static void open_parent(struct runtime_case *c, struct case_seq *parent, int32_t length,
                        int32_t num_blocks)
{
    case_init(c);
    c->groups[0].num_blocks = num_blocks;
    case_add_layer(c, 0);
    case_open(c);
    ASSERT_STATUS(PKV_OK, case_create(c, parent, NULL));
    ASSERT_STATUS(PKV_OK, case_append(c, parent, length));
}

/* Sequences 0, 1, 2: parent, its child, and a child of either. All append, in an order, then end in
 * another, and those that live on go on. */
static void run_family(struct runtime_case *c, struct case_seq *seqs, int32_t at, int appends,
                       int ends)
{
    int order[3];
    int end[3];
    case_permutation(appends, 3, order);
    case_permutation(ends, 3, end);
    ASSERT_STATUS(PKV_OK, case_create(c, &seqs[0], NULL));
    ASSERT_STATUS(PKV_OK, case_append(c, &seqs[0], 7));
    ASSERT_STATUS(PKV_OK, case_fork(c, &seqs[0], at, &seqs[1]));
    ASSERT_STATUS(PKV_OK, case_fork(c, &seqs[(appends + ends) % 2], at, &seqs[2]));
    for (int i = 0; i < 3; i++) {
        ASSERT_STATUS(PKV_OK, case_append(c, &seqs[order[i]], 1 + (i + appends) % 3));
    }
    for (int i = 0; i < 3; i++) {
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c->cache, seqs[end[i]].handle));
        for (int j = i + 1; j < 3; j++) {
            ASSERT_STATUS(PKV_OK, case_append(c, &seqs[end[j]], 2));
        }
        CU_ASSERT_EQUAL(case_check(c), 0);
    }
    CU_ASSERT_EQUAL(case_held(c, 0), 0);
}

static void forks_anywhere_append_and_end_in_any_order(void)
{
    static struct case_seq seqs[3];
    for (int32_t block_size = 1; block_size <= 4; block_size++) {
        struct runtime_case c;
        case_init(&c);
        c.groups[0].block_size = block_size;
        c.groups[0].num_blocks = 64;
        case_open(&c);
        for (int32_t round = 0; round < 8 * 36; round++) {
            run_family(&c, seqs, round % 8, round / 8 % 6, round / 48);
        }
        case_close(&c);
    }
}

/* Keys and values of whole blocks of layer 0, as they are now. */
static void snapshot(struct runtime_case *c, const int32_t *blocks, int32_t count, float *bytes)
{
    struct pkv_kv_view view;
    ASSERT_STATUS(PKV_OK, pkv_cache_view(c->cache, 0, &view));
    for (int32_t i = 0; i < count * 8; i++) {
        memcpy(bytes + (size_t)i * 2, case_cell(&view, i % 2, blocks[i / 8], 0, i / 2 % 4),
               2 * sizeof *bytes);
    }
}

/* C1: rows with 0, 8 and 5 cached tokens append in one step, and no shared byte changes. */
static void a_shared_block_is_bytewise_unchanged(void)
{
    static struct case_seq parent, at_8, at_5, fresh;
    struct runtime_case c;
    struct case_step step = {0};
    int32_t blocks[2];
    float before[32];
    float after[32];
    open_parent(&c, &parent, 8, 16);
    ASSERT_STATUS(PKV_OK, case_create(&c, &fresh, NULL));
    ASSERT_STATUS(PKV_OK, case_fork(&c, &parent, 8, &at_8));
    ASSERT_STATUS(PKV_OK, case_fork(&c, &parent, 5, &at_5));
    case_table(&c, &parent, 0, blocks, 2);
    snapshot(&c, blocks, 2, before);
    case_row(&step, &fresh, 3);
    case_row(&step, &at_8, 6);
    case_row(&step, &at_5, 2);
    case_row(&step, &parent, 1);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 4));
    case_attend_all(&c, &step);
    case_commit(&c, &step, NULL);
    snapshot(&c, blocks, 2, after);
    CU_ASSERT_EQUAL(memcmp(before, after, sizeof before), 0);
    ASSERT_STATUS(PKV_OK, case_append(&c, &at_5, 3));
    ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 3));
    ASSERT_STATUS(PKV_OK, case_append(&c, &at_8, 1));
    case_close(&c);
}

/* The list names what attend will do: the reader's cells, from the shared block to its own. */
static void the_view_lists_the_copies_of_the_step(void)
{
    static struct case_seq parent, child;
    struct runtime_case c;
    struct case_step step = {0};
    struct pkv_step_view view = {.size = sizeof view};
    int32_t shared[3];
    open_parent(&c, &parent, 11, 16);
    ASSERT_STATUS(PKV_OK, case_fork(&c, &parent, 10, &child));
    case_table(&c, &parent, 0, shared, 3);
    case_row(&step, &parent, 1);
    case_row(&step, &child, 1);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 2));
    ASSERT_STATUS(PKV_OK, pkv_step_describe(c.cache, step.handle, 0, &view));
    CU_ASSERT_EQUAL_FATAL(view.num_copies, 1);
    const int32_t *of_parent = view.block_tables + (size_t)view.table_rows[0] * view.table_stride;
    const int32_t *of_child = view.block_tables + (size_t)view.table_rows[1] * view.table_stride;
    CU_ASSERT_EQUAL(memcmp(of_parent, shared, sizeof shared), 0);
    CU_ASSERT_EQUAL(memcmp(of_child, shared, 2 * sizeof *shared), 0);
    CU_ASSERT_EQUAL(view.copies[0].src, shared[2]);
    CU_ASSERT_EQUAL(view.copies[0].dst, of_child[2]);
    CU_ASSERT_EQUAL(view.copies[0].num_cells, 2);
    CU_ASSERT_NOT_EQUAL(of_child[2], shared[2]);
    case_attend_all(&c, &step);
    case_commit(&c, &step, NULL);
    CU_ASSERT_EQUAL(case_held(&c, 0), 4);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 2)); /* from now on both write in place */
    ASSERT_STATUS(PKV_OK, pkv_step_describe(c.cache, step.handle, 0, &view));
    CU_ASSERT_EQUAL(view.num_copies, 0);
    case_abort(&c, &step);
    case_close(&c);
}

/* Of a family at one length, all but the writer copy; at a block's edge nobody does. */
static void all_but_one_copy_and_only_inside_a_block(void)
{
    for (int32_t length = 8; length <= 12; length++) {
        static struct case_seq seqs[4];
        struct runtime_case c;
        struct case_step step = {0};
        struct pkv_step_view view = {.size = sizeof view};
        open_parent(&c, &seqs[0], length, 16);
        for (int i = 1; i < 4; i++) {
            ASSERT_STATUS(PKV_OK, case_fork(&c, &seqs[i - 1], length, &seqs[i]));
        }
        for (int i = 0; i < 4; i++) {
            case_row(&step, &seqs[(i + length) % 4], 1 + i);
        }
        ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 4));
        ASSERT_STATUS(PKV_OK, pkv_step_describe(c.cache, step.handle, 0, &view));
        CU_ASSERT_EQUAL(view.num_copies, length % 4 == 0 ? 0 : 3);
        case_attend_all(&c, &step);
        case_commit(&c, &step, NULL);
        for (int i = 0; i < 4; i++) {
            ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[i], 1));
        }
        case_close(&c);
    }
}

static void an_abort_takes_the_copy_back(void)
{
    for (int32_t attended = 0; attended <= 2; attended++) {
        static struct case_seq parent, child;
        struct runtime_case c;
        struct case_step step = {0};
        int32_t tables[2][3];
        open_parent(&c, &parent, 10, 16);
        ASSERT_STATUS(PKV_OK, case_fork(&c, &parent, 9, &child));
        case_table(&c, &child, 0, tables[0], 3);
        case_row(&step, &child, 4);
        ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
        CU_ASSERT_EQUAL(case_held(&c, 0), 5);
        for (int32_t layer = 0; layer < attended; layer++) {
            CU_ASSERT(case_attend(&c, &step, layer));
        }
        case_abort(&c, &step);
        CU_ASSERT_EQUAL(case_held(&c, 0), 3);
        case_table(&c, &child, 0, tables[1], 3);
        CU_ASSERT_EQUAL(memcmp(tables[0], tables[1], sizeof tables[0]), 0);
        ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 1));
        ASSERT_STATUS(PKV_OK, case_append(&c, &child, 1));
        ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 1));
        case_close(&c);
    }
}

/* A step that keeps nothing of a row that copied, or some: the other reader is not touched. */
static void drafts_on_a_shared_block_may_be_rejected(void)
{
    for (int32_t keep = 0; keep <= 4; keep++) {
        static struct case_seq parent, child;
        struct runtime_case c;
        struct case_step step = {0};
        const int32_t keeps[2] = {4 - keep, keep};
        open_parent(&c, &parent, 10, 16);
        ASSERT_STATUS(PKV_OK, case_fork(&c, &parent, 10, &child));
        case_row(&step, &parent, 4);
        case_row(&step, &child, 4);
        ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 2));
        case_attend_all(&c, &step);
        case_commit(&c, &step, keeps);
        CU_ASSERT_EQUAL(case_check(&c), 0);
        ASSERT_STATUS(PKV_OK, case_append(&c, &child, 1));
        ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 1));
        ASSERT_STATUS(PKV_OK, case_append(&c, &child, 1));
        case_close(&c);
    }
}

/* A copy takes a block, and is counted before anything happens. */
static void a_copy_that_finds_no_block_refuses(void)
{
    static struct case_seq parent, child;
    struct runtime_case c;
    struct case_step step = {0};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    open_parent(&c, &parent, 6, 2);
    ASSERT_STATUS(PKV_OK, case_fork(&c, &parent, 5, &child));
    case_row(&step, &child, 1);
    ASSERT_STATUS(PKV_NO_BLOCKS, case_fits(&c, &step, 1, &shortage));
    ASSERT_STATUS(PKV_NO_BLOCKS, case_begin(&c, &step, 1));
    CU_ASSERT(step.shortage.need == 1 && step.shortage.free == 0 && step.shortage.row == 0);
    ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 2)); /* the writer needs none */
    ASSERT_STATUS(PKV_NO_BLOCKS, case_begin(&c, &step, 1));
    CU_ASSERT_EQUAL(case_held(&c, 0), 2);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, parent.handle));
    ASSERT_STATUS(PKV_OK, case_append(&c, &child, 3));
    case_close(&c);
}

static void a_copy_and_new_blocks_are_counted_together(void)
{
    static struct case_seq parent, child;
    struct runtime_case c;
    struct case_step step = {0};
    open_parent(&c, &parent, 10, 6);
    ASSERT_STATUS(PKV_OK, case_fork(&c, &parent, 9, &child));
    case_row(&step, &child, 12); /* cells 9..20: a copy and three more, where three are free */
    ASSERT_STATUS(PKV_NO_BLOCKS, case_begin(&c, &step, 1));
    CU_ASSERT(step.shortage.need == 4 && step.shortage.free == 3);
    ASSERT_STATUS(PKV_OK, case_append(&c, &child, 11));
    CU_ASSERT_EQUAL(case_free(&c, 0), 0);
    case_close(&c);
}

/* The source of a pending copy stays as it is while its owner goes away and others take blocks. */
static void the_source_of_a_copy_is_pinned_until_the_step_ends(void)
{
    for (int variant = 0; variant < 12; variant++) {
        static struct case_seq parent, child, taker;
        const int before_layer = variant % 3;
        const int how = variant / 3; /* destroyed, truncated, destroyed in the step, aborted */
        struct runtime_case c;
        struct case_step step = {0};
        open_parent(&c, &parent, 10, 8);
        ASSERT_STATUS(PKV_OK, case_create(&c, &taker, NULL));
        ASSERT_STATUS(PKV_OK, case_fork(&c, &parent, 9, &child));
        case_row(&step, &child, 2);
        if (how == 2) {
            case_row(&step, &parent, 1);
        }
        ASSERT_STATUS(PKV_OK, case_begin(&c, &step, step.num_rows));
        for (int layer = 0; layer <= 2; layer++) {
            if (layer == before_layer) {
                ASSERT_STATUS(PKV_OK, how == 1 ? case_truncate(&c, &parent, 0)
                                               : pkv_seq_destroy(c.cache, parent.handle));
                ASSERT_STATUS(PKV_OK, case_admit(&c, &taker, 4 * case_free(&c, 0), 0, NULL));
                CU_ASSERT_EQUAL(case_check(&c), 0);
            }
            if (layer < 2) {
                CU_ASSERT(case_attend(&c, &step, layer));
            }
        }
        if (how == 3) {
            case_abort(&c, &step);
        } else {
            case_commit(&c, &step, NULL);
        }
        CU_ASSERT_EQUAL(case_check(&c), 0);
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, taker.handle));
        CU_ASSERT_EQUAL(case_held(&c, 0), 3);
        ASSERT_STATUS(PKV_OK, case_append(&c, &child, 3));
        case_close(&c);
    }
}

static void a_row_that_copied_may_die_in_the_step(void)
{
    for (int aborts = 0; aborts < 2; aborts++) {
        static struct case_seq parent, child;
        struct runtime_case c;
        struct case_step step = {0};
        open_parent(&c, &parent, 10, 8);
        ASSERT_STATUS(PKV_OK, case_fork(&c, &parent, 9, &child));
        case_row(&step, &child, 4);
        case_row(&step, &parent, 1);
        ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 2));
        CU_ASSERT(case_attend(&c, &step, 0));
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, child.handle));
        CU_ASSERT_EQUAL(case_held(&c, 0), 5);
        CU_ASSERT(case_attend(&c, &step, 1));
        if (aborts) {
            case_abort(&c, &step);
        } else {
            case_commit(&c, &step, NULL);
        }
        CU_ASSERT_EQUAL(case_held(&c, 0), 3);
        ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 3));
        case_close(&c);
    }
}

/* The writer went back below what its reader holds: it is a reader of those cells now. */
static void a_writer_that_was_truncated_does_not_write_over_its_reader(void)
{
    for (int32_t to = 8; to <= 10; to++) {
        for (int who = 0; who < 2; who++) {
            static struct case_seq seqs[2];
            struct runtime_case c;
            struct case_step step = {0};
            open_parent(&c, &seqs[0], 11, 8);
            ASSERT_STATUS(PKV_OK, case_fork(&c, &seqs[0], 11, &seqs[1]));
            ASSERT_STATUS(PKV_OK, case_truncate(&c, &seqs[who], to));
            ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[who], 1));
            ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[1 - who], 1));
            ASSERT_STATUS(PKV_OK, case_truncate(&c, &seqs[1 - who], 9));
            case_row(&step, &seqs[1], 2);
            case_row(&step, &seqs[0], 2);
            ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 2));
            case_attend_all(&c, &step);
            case_commit(&c, &step, NULL);
            CU_ASSERT_EQUAL(case_check(&c), 0);
            case_close(&c);
        }
    }
}

/* The same by drafts: dropped cells are used again, and another sequence reads below them. */
static void a_writer_whose_drafts_were_rejected_shares_what_is_left(void)
{
    for (int32_t at = 8; at <= 10; at++) {
        static struct case_seq parent, child;
        struct runtime_case c;
        struct case_step step = {0};
        const int32_t keep = 1;
        open_parent(&c, &parent, 9, 8);
        case_row(&step, &parent, 3);
        ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
        case_attend_all(&c, &step);
        case_commit(&c, &step, &keep);
        ASSERT_STATUS(PKV_OK, case_fork(&c, &parent, at, &child));
        ASSERT_STATUS(PKV_OK, case_append(&c, &child, 1));
        ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 1));
        ASSERT_STATUS(PKV_OK, case_append(&c, &child, 1));
        ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 1));
        case_close(&c);
    }
}

/* With the writer gone its readers agree on a new one, and cells that it left are no one's. */
static void readers_go_on_when_the_writer_is_gone(void)
{
    static struct case_seq parent, seqs[2];
    struct runtime_case c;
    struct case_step step = {0};
    open_parent(&c, &parent, 12, 8);
    ASSERT_STATUS(PKV_OK, case_fork(&c, &parent, 10, &seqs[0]));
    ASSERT_STATUS(PKV_OK, case_fork(&c, &parent, 9, &seqs[1]));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, parent.handle));
    CU_ASSERT_EQUAL(case_held(&c, 0), 3);
    case_row(&step, &seqs[0], 1);
    case_row(&step, &seqs[1], 1);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 2));
    case_attend_all(&c, &step);
    case_commit(&c, &step, NULL);
    CU_ASSERT_EQUAL(case_held(&c, 0), 4);
    ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[0], 1));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[1], 1));
    case_close(&c);
}

/* Steps of `seq` that are refused or aborted. The pool is full; `fresh` is empty. */
static void step_that_never_was(struct runtime_case *c, int how, struct case_seq *seq,
                                struct case_seq *fresh)
{
    struct case_step step = {0};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    const int32_t none[2] = {0, 0};
    case_row(&step, seq, how == 3 ? 5 : 1); /* 5 need a block that is not there */
    if (how == 2) {
        case_row(&step, fresh, 1);
        CU_ASSERT_NOT_EQUAL(case_begin(c, &step, 2), PKV_OK);
        return;
    }
    if (how == 0) {
        CU_ASSERT_EQUAL(case_fits(c, &step, 1, &shortage), case_fits(c, &step, 1, &shortage));
        return;
    }
    if (case_begin(c, &step, how == 4 ? 0 : 1) != PKV_OK) {
        return;
    }
    case_attend_all(c, &step);
    if (how == 1 || step.num_rows == 0) {
        case_abort(c, &step);
    } else {
        case_commit(c, &step, none);
    }
}

/* What each of a family would be told, were it to append one token now; the first one last. */
static void ask_all(struct runtime_case *c, struct case_seq *seqs, enum pkv_status *answers)
{
    for (int i = 2; i >= 0; i--) {
        struct case_step step = {0};
        struct pkv_shortage shortage = {.size = sizeof shortage};
        case_row(&step, &seqs[i], 1);
        answers[i] = case_fits(c, &step, 1, &shortage);
    }
}

/* Dry runs, refusals, aborts and steps of which nothing is kept leave who may write where. */
static void a_step_that_never_was_leaves_the_writer_as_it_was(void)
{
    for (int variant = 0; variant < 5 * 3 * 2; variant++) {
        static struct case_seq seqs[3], fresh;
        struct runtime_case c;
        enum pkv_status before[3];
        enum pkv_status after[3];
        open_parent(&c, &seqs[0], 10, 3);
        ASSERT_STATUS(PKV_OK, case_create(&c, &fresh, NULL));
        ASSERT_STATUS(PKV_OK, case_fork(&c, &seqs[0], 10, &seqs[1]));
        ASSERT_STATUS(PKV_OK, case_fork(&c, &seqs[0], 10, &seqs[2]));
        if (variant >= 15) { /* the writer holds less than its readers */
            ASSERT_STATUS(PKV_OK, case_truncate(&c, &seqs[0], 9));
        } else { /* the writer is gone, and another reader in its place: each may write next */
            ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seqs[0].handle));
            ASSERT_STATUS(PKV_OK, case_fork(&c, &seqs[1], 10, &seqs[0]));
        }
        CU_ASSERT_EQUAL(case_free(&c, 0), 0);
        ask_all(&c, seqs, before);
        step_that_never_was(&c, variant % 5, &seqs[variant / 5 % 3], &fresh);
        ask_all(&c, seqs, after);
        for (int i = 0; i < 3; i++) {
            CU_ASSERT(before[i] == after[i] && (variant >= 15 || after[i] == PKV_OK));
        }
        CU_ASSERT_EQUAL(case_check(&c), 0);
        case_close(&c);
    }
}

/* D10: a shared tail block is copied by the one that appends to it, so other readers never see its
 * tokens. */
static void a_third_reader_sees_the_first_eight_tokens_only(void)
{
    static struct case_seq parent, children[3];
    struct runtime_case c;
    open_parent(&c, &parent, 9, 16);
    for (int i = 0; i < 3; i++) {
        ASSERT_STATUS(PKV_OK, case_fork(&c, &parent, 8, &children[i]));
        ASSERT_STATUS(PKV_OK, case_append(&c, &children[i], 1 + i));
    }
    ASSERT_STATUS(PKV_OK, case_append(&c, &children[0], 5));
    ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 5));
    case_close(&c);
}

/* F10: a fork inside the kept prefix keeps its keys. */
static void a_fork_inside_the_kept_prefix_attends_the_same_kept_keys(void)
{
    for (int32_t length = 10; length <= 20; length += 10) {
        static struct case_seq parent, child;
        struct runtime_case c;
        case_init(&c);
        c.groups[0].sliding_window = 4;
        c.groups[0].kept_prefix = 6;
        case_open(&c);
        ASSERT_STATUS(PKV_OK, case_create(&c, &parent, NULL));
        ASSERT_STATUS(PKV_OK, case_append(&c, &parent, length));
        ASSERT_STATUS(PKV_OK, case_fork(&c, &parent, 5, &child));
        for (int i = 0; i < 12; i++) {
            ASSERT_STATUS(PKV_OK, case_append(&c, &child, 1));
            ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 1 + i % 2));
        }
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, child.handle));
        ASSERT_STATUS(PKV_OK, case_truncate(&c, &parent, 0));
        ASSERT_STATUS(PKV_OK, case_append(&c, &parent, length));
        /* at 9 the window [6, 9) ends in block 2, which a parent of 20 released */
        ASSERT_STATUS(length == 10 ? PKV_OK : PKV_NOT_RESIDENT, case_fork(&c, &parent, 9, &child));
        for (int i = 0; length == 10 && i < 12; i++) {
            ASSERT_STATUS(PKV_OK, case_append(&c, &child, 1));
            ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 1 + i % 2));
        }
        case_close(&c);
    }
}

/* Fork and truncate ask the same question of residency. */
static void a_window_forks_exactly_where_its_keys_are_there(void)
{
    for (int32_t round = 0; round < 4 * 7 * 3; round++) {
        static struct case_seq parent, child;
        const int32_t block_size = 1 + round % 4;
        const int32_t window = 1 + round / 4 % 7;
        const int32_t prefix = round / 28 * 4;
        int32_t table[24];
        struct runtime_case c;
        case_init(&c);
        c.groups[0].block_size = block_size;
        c.groups[0].sliding_window = window;
        c.groups[0].kept_prefix = prefix;
        c.groups[0].num_blocks = 64;
        case_open(&c);
        ASSERT_STATUS(PKV_OK, case_create(&c, &parent, NULL));
        ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 22));
        case_table(&c, &parent, 0, table, 22 / block_size + 1);
        for (int32_t at = 0; at <= 22; at++) {
            bool is_resident = true;
            for (int32_t j = 0; j < at; j++) {
                const bool is_seen = j < prefix || j > at - window;
                is_resident = is_resident && (!is_seen || table[j / block_size] >= 0);
            }
            const enum pkv_status status = case_fork(&c, &parent, at, &child);
            CU_ASSERT_EQUAL(status, is_resident ? PKV_OK : PKV_NOT_RESIDENT);
            if (status == PKV_OK) {
                ASSERT_STATUS(PKV_OK, case_append(&c, &child, 1));
                ASSERT_STATUS(PKV_OK, case_append(&c, &child, 6));
                ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, child.handle));
            }
            CU_ASSERT_EQUAL(case_check(&c), 0);
        }
        ASSERT_STATUS(PKV_OK, case_append(&c, &parent, 1));
        case_close(&c);
    }
}

static const struct test_case cases[] = {
    TEST(forks_anywhere_append_and_end_in_any_order),
    TEST(a_shared_block_is_bytewise_unchanged),
    TEST(the_view_lists_the_copies_of_the_step),
    TEST(all_but_one_copy_and_only_inside_a_block),
    TEST(an_abort_takes_the_copy_back),
    TEST(drafts_on_a_shared_block_may_be_rejected),
    TEST(a_copy_that_finds_no_block_refuses),
    TEST(a_copy_and_new_blocks_are_counted_together),
    TEST(the_source_of_a_copy_is_pinned_until_the_step_ends),
    TEST(a_row_that_copied_may_die_in_the_step),
    TEST(a_writer_that_was_truncated_does_not_write_over_its_reader),
    TEST(a_writer_whose_drafts_were_rejected_shares_what_is_left),
    TEST(readers_go_on_when_the_writer_is_gone),
    TEST(a_step_that_never_was_leaves_the_writer_as_it_was),
    TEST(a_third_reader_sees_the_first_eight_tokens_only),
    TEST(a_fork_inside_the_kept_prefix_attends_the_same_kept_keys),
    TEST(a_window_forks_exactly_where_its_keys_are_there),
    TEST_END,
};
const struct test_suite suite_runtime_cow = {"runtime_cow", cases};
