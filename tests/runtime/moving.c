/* SPDX-License-Identifier: MIT
 *
 * Moving: a sequence whose keys and values are copied without the mutex stays as it is until that
 * ends, and may be destroyed meanwhile. */
#include "runtime/seq_life.h"
#include "support/runtime_case.h"

static struct case_seq a, b;

static void move(struct runtime_case *c, struct case_seq *seq)
{
    struct seq *found = NULL;
    ASSERT_STATUS(PKV_OK, sequence_find_idle(&c->cache->seqs, seq->handle, &found));
    seq_life_begin_move(c->cache, sequence_index(&c->cache->seqs, found));
}

static void open_with_two(struct runtime_case *c)
{
    case_init(c);
    case_open(c);
    ASSERT_STATUS(PKV_OK, case_create(c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_create(c, &b, NULL));
    ASSERT_STATUS(PKV_OK, case_append(c, &a, 6));
    ASSERT_STATUS(PKV_OK, case_append(c, &b, 5));
}

static void a_moving_sequence_refuses_what_would_change_it(void)
{
    static struct case_seq child;
    struct runtime_case c;
    struct case_step step = {0};
    open_with_two(&c);
    move(&c, &a);
    case_row(&step, &b, 1);
    case_row(&step, &a, 1);
    ASSERT_REFUSED(PKV_BUSY, "seqs[1]", case_begin(&c, &step, 2));
    ASSERT_REFUSED(PKV_BUSY, "copied", case_truncate(&c, &a, 0));
    ASSERT_REFUSED(PKV_BUSY, "copied", case_fork(&c, &a, 6, &child));
    ASSERT_REFUSED(PKV_BUSY, "copied", case_admit(&c, &a, 4, 0, NULL));
    CU_ASSERT(case_length(&c, a.handle) == 6 && case_taken(&c, 0) == 4);
    ASSERT_STATUS(PKV_OK, case_append(&c, &b, 1));
    CU_ASSERT_EQUAL(case_check(&c), 0);
    CU_ASSERT(seq_life_end_move(c.cache, 0));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 3));
    case_close(&c);
}

static void a_moving_sequence_keeps_its_blocks_after_destroy_until_the_move_ends(void)
{
    struct runtime_case c;
    int32_t destroyed = -1;
    open_with_two(&c);
    move(&c, &a);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, a.handle));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_destroy(c.cache, a.handle));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy_tagged(c.cache, 7, &destroyed));
    CU_ASSERT(destroyed == 0 && case_taken(&c, 0) == 4 && case_check(&c) == 0);
    CU_ASSERT_FALSE(seq_life_end_move(c.cache, 0));
    CU_ASSERT(case_taken(&c, 0) == 2 && case_check(&c) == 0);
    case_close(&c);
}

static void a_free_sequence_or_one_of_the_open_step_that_moves_is_reported(void)
{
    struct runtime_case c;
    struct case_step step = {0};
    open_with_two(&c);
    c.cache->seqs.at[7].is_moving = true;
    CU_ASSERT_EQUAL(pkv_cache_check(c.cache), 1);
    c.cache->seqs.at[7].is_moving = false;
    case_row(&step, &a, 1);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
    c.cache->seqs.at[0].is_moving = true;
    CU_ASSERT_EQUAL(pkv_cache_check(c.cache), 1);
    c.cache->seqs.at[0].is_moving = false;
    case_abort(&c, &step);
    c.memory.num_logged = 0;
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(a_free_sequence_or_one_of_the_open_step_that_moves_is_reported),
    TEST(a_moving_sequence_refuses_what_would_change_it),
    TEST(a_moving_sequence_keeps_its_blocks_after_destroy_until_the_move_ends),
    TEST_END,
};
const struct test_suite suite_runtime_moving = {"runtime_moving", cases};
