/* SPDX-License-Identifier: MIT
 *
 * Admission with a prefix cache: pins what it finds before it takes anything, keeps the watermark
 * and quotas, answers "not now" and "never" apart, and the probe answers the same without effect.
 * Then hits in windows and over groups. Block size 4. */
#include <string.h>

#include "reuse_case.h"

static struct prefix_seq a, b, d, sessions[4];

static enum pkv_status try_admit(struct runtime_case *c, struct prefix_seq *seq, int32_t num_tokens,
                                 int32_t reserve, struct pkv_shortage *shortage)
{
    struct pkv_admission admission = {.size = sizeof admission};
    const uint64_t before = prefix_digest(c);
    const struct pkv_probe probe = prefix_probe(c, seq, num_tokens, reserve);
    const enum pkv_status status =
        pkv_seq_admit(c->cache, seq->seq.handle, PROMPT(seq->ids, num_tokens), reserve, num_tokens,
                      &admission, shortage);
    CU_ASSERT_EQUAL(probe.status, status);
    if (status != PKV_OK) {
        CU_ASSERT_EQUAL(prefix_digest(c), before);
        CU_ASSERT(shortage->need > shortage->free);
        CU_ASSERT(c->lacking.need == shortage->need && c->lacking.free == shortage->free &&
                  c->lacking.quota == shortage->quota &&
                  c->lacking.evictable == shortage->evictable);
    } else {
        CU_ASSERT_EQUAL(probe.num_cached, admission.num_cached);
        CU_ASSERT_EQUAL(probe.num_blocks, admission.num_blocks);
        seq->seq.length = admission.num_cached;
        for (int32_t i = 0; i < seq->seq.length; i++) {
            seq->seq.tags[i] = prefix_tag(c, seq, i);
        }
    }
    CU_ASSERT_EQUAL(case_check(c), 0);
    return status;
}

/* A5: the hit is not evicted for the rest of its own request, nor counted as free. */
static void admission_does_not_evict_its_own_hit(void)
{
    struct runtime_case c;
    struct pkv_shortage shortage = {.size = sizeof shortage};
    prefix_open(&c, 5);
    prefix_warm(&c, &a, 0, 12);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, NULL));
    ASSERT_STATUS(PKV_NEVER_FITS, try_admit(&c, &b, 13, 9, &shortage));
    CU_ASSERT_EQUAL(shortage.need, 6);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &d, 700, NULL));
    ASSERT_STATUS(PKV_OK, try_admit(&c, &d, 4, 0, &shortage));
    ASSERT_STATUS(PKV_NO_BLOCKS, try_admit(&c, &b, 13, 7, &shortage)); /* 3 found + 2 of 1 left */
    CU_ASSERT_EQUAL(shortage.need, 5);
    CU_ASSERT_EQUAL(shortage.free, 4);
    CU_ASSERT_EQUAL(shortage.evictable, 3);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 13), 12);
    ASSERT_STATUS(PKV_OK, try_admit(&c, &b, 13, 3, &shortage));
    CU_ASSERT_EQUAL(b.seq.length, 12);
    CU_ASSERT_EQUAL(case_free(&c, 0), 0);
    prefix_append(&c, &b, 4);
    prefix_append(&c, &d, 4);
    prefix_destroy(&c, &b);
    prefix_destroy(&c, &d);
    case_close(&c);
}

/* I5: a request that must wait and one that can never fit get different answers. */
static void not_now_and_never_are_told_apart(void)
{
    struct runtime_case c;
    struct pkv_shortage shortage = {.size = sizeof shortage};
    prefix_open(&c, 7);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 100, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &d, 200, NULL));
    ASSERT_STATUS(PKV_OK, try_admit(&c, &a, 20, 0, &shortage));
    ASSERT_STATUS(PKV_NO_BLOCKS, try_admit(&c, &b, 16, 0, &shortage));
    CU_ASSERT_EQUAL(shortage.need, 4);
    CU_ASSERT_EQUAL(shortage.free, 2);
    ASSERT_STATUS(PKV_NEVER_FITS, try_admit(&c, &d, 32, 0, &shortage));
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    prefix_destroy(&c, &d);
    case_close(&c);
}

static void watermark_stays_free(void)
{
    struct runtime_case c;
    struct pkv_shortage shortage = {.size = sizeof shortage};
    prefix_init(&c);
    c.groups[0].num_blocks = 8;
    c.config.watermark_blocks = 2;
    case_open(&c);
    prefix_warm(&c, &a, 0, 12); /* 3 cached, 5 plain */
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 50, NULL));
    ASSERT_STATUS(PKV_NEVER_FITS, try_admit(&c, &a, 25, 0, &shortage));
    ASSERT_STATUS(PKV_OK, try_admit(&c, &b, 4, 0, &shortage));
    ASSERT_STATUS(PKV_NO_BLOCKS, try_admit(&c, &a, 24, 0, &shortage)); /* 3 + 3 of 7 - 2 */
    ASSERT_STATUS(PKV_OK, try_admit(&c, &a, 20, 0, &shortage));
    CU_ASSERT_EQUAL(case_free(&c, 0), 2);
    prefix_append(&c, &b, 8); /* a step may pass it */
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

static void quota_bounds_what_a_namespace_holds(void)
{
    struct runtime_case c;
    struct pkv_shortage shortage = {.size = sizeof shortage};
    prefix_open(&c, 16);
    const struct pkv_namespace_field fields[] = {prefix_field_of(1, "ann", 0),
                                                 prefix_field_of(2, "x", 8)};
    const struct pkv_seq_options options = {
        .size = sizeof options, .namespace_fields = fields, .num_namespace_fields = 2};
    ASSERT_STATUS(PKV_OK, pkv_namespace_quota(c.cache, &fields[0], 6));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, &options));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 100, &options));
    ASSERT_STATUS(PKV_NEVER_FITS, try_admit(&c, &a, 25, 0, &shortage));
    CU_ASSERT_EQUAL(shortage.quota, 6);
    ASSERT_STATUS(PKV_OK, try_admit(&c, &a, 16, 0, &shortage));
    ASSERT_STATUS(PKV_NO_BLOCKS, try_admit(&c, &b, 12, 0, &shortage));
    CU_ASSERT(shortage.need == 3 && shortage.free == 2 && shortage.quota == 6);
    ASSERT_STATUS(PKV_OK, try_admit(&c, &b, 8, 0, &shortage));
    struct pkv_field_usage usage = {.size = sizeof usage};
    ASSERT_STATUS(PKV_OK, pkv_namespace_usage(c.cache, &fields[0], &usage));
    CU_ASSERT(usage.held == 6 && usage.quota == 6);
    prefix_append(&c, &b, 8);
    struct case_step step = {0};
    case_row(&step, &b.seq, 1);
    ASSERT_STATUS(PKV_NO_BLOCKS, prefix_begin(&c, &step, 1));
    CU_ASSERT(step.shortage.quota == 6 && step.shortage.row == 0);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 0));
    prefix_append(&c, &b, 1);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    ASSERT_STATUS(PKV_OK, pkv_namespace_usage(c.cache, &fields[0], &usage));
    CU_ASSERT(usage.held == 0 && usage.cached == 2);
    ASSERT_STATUS(PKV_OK, pkv_namespace_quota(c.cache, &fields[0], 0));
    const struct pkv_namespace_field nobody = prefix_field_of(3, "nobody", 0);
    ASSERT_STATUS(PKV_NOT_FOUND, pkv_namespace_usage(c.cache, &nobody, &usage));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_namespace_quota(c.cache, &fields[0], -1));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_namespace_quota(c.cache, NULL, 1));
    case_close(&c);
}

static void probe_tells_what_is_being_computed(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, NULL));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 20, 0, NULL));
    struct pkv_probe probe = prefix_probe(&c, &b, 20, 0);
    CU_ASSERT(probe.num_cached == 0 && probe.num_pending == 16);
    prefix_append(&c, &a, 9);
    probe = prefix_probe(&c, &b, 30, 0);
    CU_ASSERT(probe.num_cached == 8 && probe.num_pending == 12);
    b.ids[13] = -5;
    probe = prefix_probe(&c, &b, 30, 0);
    CU_ASSERT(probe.num_cached == 8 && probe.num_pending == 4);
    b.ids[13] = 13;
    prefix_append(&c, &a, 11);
    probe = prefix_probe(&c, &b, 30, 0);
    CU_ASSERT(probe.num_cached == 20 && probe.num_pending == 0);
    struct case_step step = {0}; /* past its prompt: what the open step writes */
    case_row(&step, &a.seq, 4);
    ASSERT_STATUS(PKV_OK, prefix_begin(&c, &step, 1));
    probe = prefix_probe(&c, &b, 30, 0);
    CU_ASSERT(probe.num_cached == 20 && probe.num_pending == 4);
    case_abort(&c, &step);
    probe = prefix_probe(&c, &b, 30, 0);
    CU_ASSERT(probe.num_cached == 20 && probe.num_pending == 0);
    prefix_destroy(&c, &a);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 600, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &d, 600, NULL));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 20, 0, NULL));
    a.ids[2] = -1; /* it goes on otherwise than it said: nobody knows what will come */
    d.ids[2] = -1;
    prefix_append(&c, &a, 3);
    probe = prefix_probe(&c, &d, 20, 0);
    CU_ASSERT(probe.num_cached == 0 && probe.num_pending == 0);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    prefix_destroy(&c, &d);
    case_close(&c);
}

static void readmission_is_counted_apart(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    prefix_run(&c, &a, 0, 16);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 0));
    int32_t cached = 0;
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 16, 0, &cached));
    CU_ASSERT_EQUAL(cached, 12);
    prefix_append(&c, &a, 4);
    CU_ASSERT_EQUAL(prefix_run(&c, &b, 0, 9), 8);
    const struct pkv_stats stats = prefix_stats(&c);
    CU_ASSERT(stats.queried_tokens == 25 && stats.hit_tokens == 8);
    CU_ASSERT(stats.readmitted_tokens == 16 && stats.rehit_tokens == 12);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

static void make_window(struct runtime_case *c, int32_t num_blocks)
{
    prefix_init(c);
    c->groups[0].sliding_window = 8;
    c->groups[0].num_blocks = num_blocks;
}

/* D11: in a window group the blocks behind the last window may be gone. */
static void window_hit_needs_the_last_window_alone(void)
{
    struct runtime_case c;
    make_window(&c, 8);
    case_open(&c);
    prefix_warm(&c, &a, 0, 24); /* plain: 2; blocks 0 .. 3 left the window; 4 and 5 are cached */
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 22), 20);
    ASSERT_STATUS(PKV_OK,
                  prefix_create(&c, &d, 5000,
                                &(struct pkv_seq_options){.size = sizeof(struct pkv_seq_options),
                                                          .no_publish = true}));
    prefix_append(&c, &d, 1);
    prefix_append(&c, &d, 4);
    prefix_append(&c, &d, 3); /* takes the 2 plain ones */
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 22), 20);
    prefix_append(&c, &d, 4); /* takes block 0 */
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 22), 20);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 9), 0); /* 8 needs keys 1 .. 7 */
    int32_t cached = 0;
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 22, 0, &cached));
    CU_ASSERT_EQUAL(cached, 20);
    prefix_append(&c, &b, 2);
    prefix_append(&c, &d, 4);
    prefix_append(&c, &b, 8);
    prefix_destroy(&c, &b);
    prefix_destroy(&c, &d);
    case_close(&c);
}

static void kept_prefix_must_be_there_too(void)
{
    struct runtime_case c;
    make_window(&c, 16);
    c.groups[0].kept_prefix = 5;
    case_open(&c);
    prefix_run(&c, &a, 0, 24);
    CU_ASSERT_EQUAL(case_taken(&c, 0), 4); /* 0 and 1 kept, 4 and 5 in the window of 24 */
    prefix_destroy(&c, &a);
    int32_t cached = 0;
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, NULL));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 25, 8, &cached));
    CU_ASSERT_EQUAL(cached, 24);
    prefix_append(&c, &b, 9);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* What later layers compute depends on the kept prefix once there is a window */
static void kept_prefix_of_its_own_is_told_apart(void)
{
    struct runtime_case c;
    make_window(&c, 16);
    c.groups[0].kept_prefix = 5;
    case_open(&c);
    const int64_t same = 5;
    const int64_t other = 4;
    struct pkv_namespace_field fields[4];
    for (int32_t i = 0; i < 4; i++) {
        fields[i] = prefix_field_of(i + 1, "x", 0);
    }
    struct pkv_seq_options options = {.size = sizeof options, .kept_prefix = &same};
    prefix_run(&c, &a, 0, 24);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, &options));
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 25), 24);
    options.kept_prefix = &other;
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &d, 0, &options));
    CU_ASSERT_EQUAL(prefix_hit(&c, &d, 25), 0);
    prefix_append(&c, &d, 24);
    CU_ASSERT_EQUAL(prefix_hit(&c, &d, 25), 24);
    options.namespace_fields = fields;
    options.num_namespace_fields = 4;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, prefix_create(&c, &sessions[0], 0, &options));
    options.kept_prefix = &same;
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &sessions[0], 0, &options));
    options.num_namespace_fields = 5;
    pkv_seq none = {0};
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_seq_create(c.cache, &options, &none));
    options.num_namespace_fields = 2;
    fields[1].tag = 1;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_seq_create(c.cache, &options, &none));
    fields[1].tag = 0;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_seq_create(c.cache, &options, &none));
    options.num_namespace_fields = 0;
    options.priority = PKV_NUM_PRIORITIES;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_seq_create(c.cache, &options, &none));
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    prefix_destroy(&c, &d);
    prefix_destroy(&c, &sessions[0]);
    case_close(&c);
}

/* D11: a full and a window group agree on the longest hit that both have. */
static void groups_agree_on_a_hit(void)
{
    struct runtime_case c;
    prefix_init(&c);
    struct pkv_group_config *window = case_add_group(&c);
    window->sliding_window = 5;
    window->num_blocks = 5;
    window->kv_heads = 2;
    case_add_layer(&c, 1);
    case_open(&c);
    prefix_run(&c, &a, 0, 12);
    prefix_append(&c, &a, 8); /* window: block 4; the rest went behind, one at a time */
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 21), 20);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 20), 16);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 9), 8);
    prefix_run(&c, &d, 400, 12); /* takes blocks 0, 1, 2 of the window group */
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 21), 20);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 20), 16);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 16), 0);
    prefix_destroy(&c, &d);
    int32_t cached = 0;
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 21, 0, &cached));
    CU_ASSERT_EQUAL(cached, 20);
    prefix_append(&c, &b, 1);
    prefix_append(&c, &b, 4);
    prefix_destroy(&c, &a);
    prefix_append(&c, &b, 4);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* D13: the last window of a session outlives blocks that left the windows of others. */
static void sessions_in_turn_keep_their_windows(void)
{
    struct runtime_case c;
    make_window(&c, 32);
    case_open(&c);
    for (int32_t round = 0; round < 5; round++) {
        const int32_t length = 24 + 4 * round;
        for (int32_t s = 0; s < 4; s++) {
            const int32_t hit = prefix_run(&c, &sessions[s], 1000 * (s + 1), length);
            CU_ASSERT(round == 0 ? hit == 0 : hit >= length - 4);
            prefix_destroy(&c, &sessions[s]);
        }
    }
    case_close(&c);
}

/* Takes n blocks at once by a sequence that nobody can find. */
static void press(struct runtime_case *c, struct prefix_seq *seq, int32_t num_blocks)
{
    const struct pkv_seq_options options = {.size = sizeof options, .no_publish = true};
    ASSERT_STATUS(PKV_OK, prefix_create(c, seq, 900000, &options));
    prefix_append(c, seq, 4 * num_blocks);
    prefix_destroy(c, seq);
}

/* D13: that holds also when the window is older than what another session left behind since. */
static void windows_outlive_what_is_behind_them(void)
{
    struct runtime_case c;
    make_window(&c, 12);
    case_open(&c);
    prefix_warm(&c, &a, 0, 24);
    prefix_warm(&c, &b, 1000, 24);
    press(&c, &d, 8);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 1000, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 25), 24);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 25), 24);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

/* What max_rewind may go back to must be there as well */
static void rewind_shortens_a_window_hit(void)
{
    struct runtime_case c;
    make_window(&c, 8);
    case_open(&c);
    const struct pkv_seq_options options = {.size = sizeof options, .max_rewind = 6};
    prefix_warm(&c, &a, 0, 24);
    press(&c, &d, 6); /* 2 plain ones, and blocks 0 .. 3 */
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, &options));
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 25), 24);
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 25), 0);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

static void rewind_works_behind_an_adopted_run(void)
{
    struct runtime_case c;
    make_window(&c, 16);
    case_open(&c);
    const struct pkv_seq_options options = {.size = sizeof options, .max_rewind = 6};
    prefix_warm(&c, &a, 0, 24);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 0, &options));
    int32_t cached = 0;
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 25, 0, &cached));
    CU_ASSERT_EQUAL(cached, 24);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &b.seq, 18));
    prefix_append(&c, &b, 3);
    prefix_destroy(&c, &b);
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(admission_does_not_evict_its_own_hit),
    TEST(not_now_and_never_are_told_apart),
    TEST(watermark_stays_free),
    TEST(quota_bounds_what_a_namespace_holds),
    TEST(probe_tells_what_is_being_computed),
    TEST(readmission_is_counted_apart),
    TEST(window_hit_needs_the_last_window_alone),
    TEST(kept_prefix_must_be_there_too),
    TEST(kept_prefix_of_its_own_is_told_apart),
    TEST(groups_agree_on_a_hit),
    TEST(sessions_in_turn_keep_their_windows),
    TEST(windows_outlive_what_is_behind_them),
    TEST(rewind_shortens_a_window_hit),
    TEST(rewind_works_behind_an_adopted_run),
    TEST_END,
};
const struct test_suite suite_runtime_admit = {"runtime_admit", cases};
