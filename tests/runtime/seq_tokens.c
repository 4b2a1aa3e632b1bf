/* SPDX-License-Identifier: MIT
 *
 * config.check_tokens: a step of a prompt brings the tokens that admission was given. What a row
 * brings is what prefix_seq holds at the time of the step, so a case changes that after admission.
 */
#include "reuse_case.h"

static struct prefix_seq a, b;

static void open_checked(struct runtime_case *c, bool check_tokens)
{
    prefix_init(c);
    c->config.check_tokens = check_tokens;
    case_open(c);
    ASSERT_STATUS(PKV_OK, prefix_create(c, &a, 100, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(c, &b, 900, NULL));
}

static void close_checked(struct runtime_case *c)
{
    prefix_destroy(c, &a);
    prefix_destroy(c, &b);
    case_close(c);
}

/* A step of b's and a's next tokens is refused for a, and nothing has changed. */
static void expect_refused(struct runtime_case *c, int32_t q_len, const char *why)
{
    struct case_step step = {0};
    const uint64_t before = prefix_digest(c);
    case_row(&step, &b.seq, 1);
    case_row(&step, &a.seq, q_len);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, why, prefix_begin(c, &step, 1));
    CU_ASSERT_EQUAL(step.shortage.row, 1);
    CU_ASSERT_EQUAL(prefix_digest(c), before);
}

/* K11: a debug option compares begin's tokens with admit's, and names row and position. */
static void a_step_brings_the_tokens_that_were_admitted(void)
{
    struct runtime_case c;
    for (int32_t wrong = 3; wrong < 14; wrong++) {
        open_checked(&c, true);
        ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 14, 4, NULL));
        prefix_append(&c, &a, 3);
        char why[64];
        snprintf(why, sizeof why, "row 1, position %d: token %d (", wrong, wrong + 10);
        a.ids[wrong] -= 90;
        prefix_append(&c, &a, wrong - 3); /* as far as it is right */
        expect_refused(&c, 14 - wrong, why);
        expect_refused(&c, 16 - wrong, why); /* past the prompt */
        expect_refused(&c, 1, why);
        a.ids[wrong] += 90;
        prefix_append(&c, &a, 16 - wrong);
        close_checked(&c);
    }
}

static void what_comes_behind_the_prompt_is_free(void)
{
    struct runtime_case c;
    open_checked(&c, true);
    a.ids[14] = a.ids[13] = 5;
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 14, 4, NULL));
    a.ids[14] = 77;
    prefix_append(&c, &a, 16);
    a.ids[16] = 78;
    prefix_append(&c, &a, 3);
    prefix_append(&c, &b, 3); /* was not admitted */
    close_checked(&c);
}

static void extras_are_compared_too(void)
{
    for (int32_t how = 0; how < 3; how++) { /* another one, none, one too many */
        struct runtime_case c;
        open_checked(&c, true);
        a.has_extra = how < 2;
        a.extra[6] = 0xabc;
        ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 9, 0, NULL));
        a.has_extra = how != 1;
        a.extra[6] = how == 0 ? 0xabd : 0xabc;
        expect_refused(&c, 9, "row 1, position 6: token 106 (token_extra ");
        a.has_extra = how < 2;
        a.extra[6] = 0xabc;
        prefix_append(&c, &a, 9);
        close_checked(&c);
    }
}

/* Adopted tokens are not computed again: the first that is compared is the one behind them. */
static void the_rest_of_a_hit_is_compared(void)
{
    struct runtime_case c;
    open_checked(&c, true);
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 14, 0, NULL));
    prefix_append(&c, &a, 14);
    prefix_destroy(&c, &a);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 100, NULL));
    int32_t num_cached = 0;
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 14, 0, &num_cached));
    CU_ASSERT_EQUAL(num_cached, 12);
    a.ids[12]++;
    expect_refused(&c, 2, "row 1, position 12:");
    a.ids[12]--;
    prefix_append(&c, &a, 2);
    close_checked(&c);
}

/* What a step drops, or aborts, is still the prompt's. */
static void a_prompt_outlives_steps_that_keep_nothing(void)
{
    static const int32_t keep = 2;
    struct runtime_case c;
    struct case_step step = {0};
    open_checked(&c, true);
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 14, 0, NULL));
    case_row(&step, &a.seq, 6);
    ASSERT_STATUS(PKV_OK, prefix_begin(&c, &step, 1));
    case_abort(&c, &step);
    step = (struct case_step){0};
    case_row(&step, &a.seq, 6);
    ASSERT_STATUS(PKV_OK, prefix_begin(&c, &step, 1));
    case_attend_all(&c, &step);
    case_commit(&c, &step, &keep);
    a.ids[5]++;
    expect_refused(&c, 12, "row 1, position 5:");
    a.ids[5]--;
    prefix_append(&c, &a, 12);
    close_checked(&c);
}

/* A cut ends the prompt there; a new admission begins a new one. */
static void behind_a_cut_the_text_may_change(void)
{
    struct runtime_case c;
    open_checked(&c, true);
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 14, 4, NULL));
    prefix_append(&c, &a, 10);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 7));
    a.ids[7]++;
    a.ids[13]++;
    prefix_append(&c, &a, 9);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 0));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 14, 4, NULL));
    a.ids[13]--;
    expect_refused(&c, 14 - a.seq.length, "row 1, position 13:");
    a.ids[13]++;
    prefix_append(&c, &a, 14 - a.seq.length);
    close_checked(&c);
}

static void forks_have_no_prompt(void)
{
    struct runtime_case c;
    open_checked(&c, true);
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 14, 4, NULL));
    prefix_append(&c, &a, 6);
    const pkv_seq parent = a.seq.handle;
    ASSERT_STATUS(PKV_OK, pkv_seq_fork(c.cache, parent, 6, 1, &a.seq.handle));
    a.ids[6]++;
    prefix_append(&c, &a, 4);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, parent));
    close_checked(&c);
}

/* Off unless it is set, and nothing without a prefix cache, which alone records tokens. */
static void it_is_an_option(void)
{
    struct runtime_case c;
    open_checked(&c, false);
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 14, 4, NULL));
    a.ids[3]++;
    prefix_append(&c, &a, 14);
    close_checked(&c);
    static struct case_seq seq;
    case_init(&c);
    c.config.check_tokens = true;
    case_open(&c);
    struct pkv_admission admission = {.size = sizeof admission};
    static const int32_t ids[3] = {-5, -6, -7};
    ASSERT_STATUS(PKV_OK, case_create(&c, &seq, NULL));
    ASSERT_STATUS(PKV_OK,
                  pkv_seq_admit(c.cache, seq.handle, PROMPT(ids, 3), 0, 0, &admission, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 3));
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(a_step_brings_the_tokens_that_were_admitted),
    TEST(what_comes_behind_the_prompt_is_free),
    TEST(extras_are_compared_too),
    TEST(the_rest_of_a_hit_is_compared),
    TEST(a_prompt_outlives_steps_that_keep_nothing),
    TEST(behind_a_cut_the_text_may_change),
    TEST(forks_have_no_prompt),
    TEST(it_is_an_option),
    TEST_END,
};
const struct test_suite suite_runtime_seq_tokens = {"runtime_seq_tokens", cases};
