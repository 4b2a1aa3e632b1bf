/* SPDX-License-Identifier: MIT
 *
 * What a sequence says of itself, and which row a batch that cannot be one names. */
#include "reuse_case.h"

static struct prefix_seq a, b;

static struct pkv_seq_info info_of(struct runtime_case *c, pkv_seq seq, int32_t *num_blocks)
{
    struct pkv_seq_info info = {.size = sizeof info};
    ASSERT_STATUS(PKV_OK, pkv_seq_describe(c->cache, seq, &info, num_blocks));
    return info;
}

/* A full and a window group of 8 tokens, blocks of 4. */
static void open_two(struct runtime_case *c)
{
    prefix_init(c);
    case_add_group(c)->sliding_window = 8;
    case_add_layer(c, 1);
    case_open(c);
}

/* K11: a sequence tells its length, hit, blocks by group, tag and limits. */
static void a_sequence_describes_itself(void)
{
    const struct pkv_seq_options options = {
        .size = sizeof options, .tag = 77, .max_rewind = 2, .max_tokens = 40};
    struct runtime_case c;
    int32_t blocks[2];
    open_two(&c);
    prefix_run(&c, &a, 100, 20);
    struct pkv_seq_info info = info_of(&c, a.seq.handle, NULL);
    CU_ASSERT(info.tag == 0 && info.num_cached == 0 && info.max_tokens == 64 && !info.in_step);
    prefix_destroy(&c, &a);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 100, &options));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 20, 0, NULL));
    info = info_of(&c, b.seq.handle, blocks);
    CU_ASSERT(info.tag == 77 && info.max_rewind == 2 && info.max_tokens == 40);
    CU_ASSERT(info.num_cached == 16 && info.length == 16);
    prefix_append(&c, &b, 7);
    info = info_of(&c, b.seq.handle, blocks);
    CU_ASSERT(info.length == 23 && blocks[0] == 6 && info.num_blocks == blocks[0] + blocks[1]);
    CU_ASSERT_EQUAL(blocks[1], case_resident_blocks(23, 4, 8, 0, 2));
    info.size = 1;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "size",
                   pkv_seq_describe(c.cache, b.seq.handle, &info, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "info",
                   pkv_seq_describe(c.cache, b.seq.handle, NULL, NULL));
    info.size = sizeof info;
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_describe(c.cache, a.seq.handle, &info, NULL));
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* The shortest possible length is: one less refuses, and it succeeds. */
static void the_shortest_possible_length_is_exact(void)
{
    for (int32_t length = 1; length <= 40; length++) {
        struct runtime_case c;
        open_two(&c);
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 100, NULL));
        for (int32_t n = 0; n < length; n++) {
            prefix_append(&c, &a, 1);
        }
        const int32_t shortest = info_of(&c, a.seq.handle, NULL).min_length;
        CU_ASSERT(shortest <= length && (shortest > 0) == (length >= 11));
        if (shortest > 1) {
            ASSERT_STATUS(PKV_NOT_RESIDENT, pkv_seq_truncate(c.cache, a.seq.handle, shortest - 1));
        }
        ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, shortest));
        prefix_destroy(&c, &a);
        case_close(&c);
    }
}

static void a_table_is_that_of_the_steps(void)
{
    struct runtime_case c;
    open_two(&c);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 100, NULL));
    prefix_append(&c, &a, 22);
    for (int32_t g = 0; g < 2; g++) {
        int32_t expected[6], entries[8] = {-7, -7, -7, -7, -7, -7, -7, -7};
        int32_t count = -1;
        case_table(&c, &a.seq, g, expected, 6);
        ASSERT_STATUS(PKV_OK, pkv_seq_table(c.cache, a.seq.handle, g, entries, 8, &count));
        CU_ASSERT(count == 6 && entries[6] == -7);
        for (int32_t i = 0; i < 6; i++) {
            CU_ASSERT_EQUAL(entries[i], expected[i]);
        }
        ASSERT_STATUS(PKV_OK, pkv_seq_table(c.cache, a.seq.handle, g, NULL, 0, &count));
        CU_ASSERT_EQUAL(count, 6);
    }
    int32_t count;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_seq_table(c.cache, a.seq.handle, 2, NULL, 0, &count));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_seq_table(c.cache, a.seq.handle, 0, NULL, 1, &count));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_table(c.cache, (pkv_seq){0}, 0, NULL, 0, &count));
    prefix_destroy(&c, &a);
    case_close(&c);
}

/* K11: a refused batch names the row that is wrong where the program can read it. */
static void a_batch_names_the_row_that_is_wrong(void)
{
    static const int32_t ids[8];
    struct runtime_case c;
    pkv_step step;
    open_two(&c);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 100, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 200, NULL));
    pkv_seq seqs[2] = {a.seq.handle, {0}};
    int32_t q_lens[2] = {1, 1};
    struct pkv_batch batch = {.size = sizeof batch, .seqs = seqs, .q_lens = q_lens};
    batch.num_rows = batch.num_required_rows = 2;
    batch.token_ids = ids;
    struct pkv_shortage shortage = {.size = sizeof shortage, .row = 9, .group = 9};
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_step_begin(c.cache, &batch, &step, &shortage));
    CU_ASSERT(shortage.row == 1 && shortage.group == -1);
    seqs[1] = seqs[0];
    shortage.row = 9;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_fits(c.cache, &batch, &shortage));
    CU_ASSERT_EQUAL(shortage.row, 1);
    seqs[1] = b.seq.handle;
    q_lens[1] = -1;
    shortage.row = 9;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_begin(c.cache, &batch, &step, &shortage));
    CU_ASSERT_EQUAL(shortage.row, 1);
    batch.token_ids = NULL;
    q_lens[1] = 1;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_begin(c.cache, &batch, &step, &shortage));
    CU_ASSERT_EQUAL(shortage.row, -1);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* K11: an admission counts as one after preemption only if there was a preemption. */
static void readmission_is_counted_after_a_cut_alone(void)
{
    struct runtime_case c;
    open_two(&c);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 100, NULL));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 12, 0, NULL));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 12, 8, NULL));
    CU_ASSERT_EQUAL(prefix_stats(&c).queried_tokens, 12);
    CU_ASSERT_EQUAL(prefix_stats(&c).readmitted_tokens, 0);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 0));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 12, 0, NULL));
    CU_ASSERT_EQUAL(prefix_stats(&c).queried_tokens, 12);
    CU_ASSERT_EQUAL(prefix_stats(&c).readmitted_tokens, 12);
    CU_ASSERT_EQUAL(prefix_stats(&c).num_admissions, 3);
    prefix_destroy(&c, &a);
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(a_sequence_describes_itself),
    TEST(the_shortest_possible_length_is_exact),
    TEST(a_table_is_that_of_the_steps),
    TEST(a_batch_names_the_row_that_is_wrong),
    TEST(readmission_is_counted_after_a_cut_alone),
    TEST_END,
};
const struct test_suite suite_runtime_seq_info = {"runtime_seq_info", cases};
