/* SPDX-License-Identifier: MIT
 *
 * Bidirectional ranges of the raw operator: what queries inside see, that nothing else about a row
 * changes, and which lists refuse. Random calls with ranges are in gqa_random.c. */
#include <math.h>
#include <string.h>

#include "attn/gqa_plan.h"
#include "support/gqa_case.h"

enum { NUM_TOKENS = 10, BLOCK_SIZE = 2, NUM_BLOCKS = NUM_TOKENS / BLOCK_SIZE };

/* A paged row whose keys are 0 and whose values are their positions: an output is the mean position
 * of what its query sees. */
struct means {
    float zero[NUM_TOKENS], positions[NUM_TOKENS], k[NUM_TOKENS], v[NUM_TOKENS], out[NUM_TOKENS];
    int32_t table[NUM_BLOCKS];
};

static struct means means_make(void)
{
    struct means m;
    memset(&m, 0, sizeof m);
    for (int32_t i = 0; i < NUM_TOKENS; i++) {
        m.positions[i] = (float)i;
        m.k[i] = m.v[i] = m.out[i] = NAN;
    }
    for (int32_t i = 0; i < NUM_BLOCKS; i++) {
        m.table[i] = NUM_BLOCKS - 1 - i;
    }
    return m;
}

/* Appends and attends tokens begin..end, with one range. */
static enum pkv_status means_step(struct means *m, pkv_workspace *workspace, int32_t begin,
                                  int32_t end, struct pkv_token_range range, int64_t window)
{
    const int32_t cu_seqlens[] = {0, end - begin};
    const int32_t cu_ranges[] = {0, range.begin < end};
    struct pkv_gqa_args args = case_f32_args(PKV_CACHE_PAGED, 1, 1, 1, 1);
    args.num_tokens = end - begin;
    args.cu_seqlens_q = cu_seqlens;
    args.kv_lens = &end;
    args.block_table = m->table;
    args.max_blocks = NUM_BLOCKS;
    args.q = args.k = m->zero;
    args.v = m->positions + begin;
    args.out = m->out + begin;
    args.past = case_f32_view(m->k, m->v, NUM_BLOCKS, 1, BLOCK_SIZE, 1);
    args.sliding_window = window;
    args.bidirectional = &range;
    args.cu_bidirectional = cu_ranges;
    return pkv_gqa(workspace, &args);
}

static const struct pkv_token_range image = {3, 7};
static const double without_window[] = {0, 0.5, 1, 3, 3, 3, 3, 3.5, 4, 4.5};
static const double with_window[] = {0, 0.5, 1, 3.5, 4, 4.5, 5, 6, 7, 8}; /* of 3 keys */

/* K7: tokens of an image see each other, in one step and in steps that do not cut it. */
static void queries_of_a_range_see_its_last_key(void)
{
    static const int32_t ends[][3] = {{10, 10, 10}, {2, 7, 10}, {3, 10, 10}, {1, 3, 10}};
    pkv_workspace *workspace = case_workspace(2);
    for (int steps = 0; steps < 4; steps++) {
        struct means m = means_make();
        for (int32_t i = 0, begin = 0; begin < NUM_TOKENS; begin = ends[steps][i++]) {
            ASSERT_STATUS(PKV_OK, means_step(&m, workspace, begin, ends[steps][i], image, 0));
        }
        for (int32_t i = 0; i < NUM_TOKENS; i++) {
            ASSERT_CLOSE(m.out[i], without_window[i]);
        }
    }
    pkv_workspace_destroy(workspace);
}

/* K7: a window counts backwards from the query itself, and the range is seen to its end, also when
 * it is longer than the window. */
static void windows_count_backwards_inside_a_range(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (int32_t cut = 0; cut <= 7; cut += cut == 3 ? 4 : 1) {
        struct means m = means_make();
        if (cut > 0) {
            ASSERT_STATUS(PKV_OK, means_step(&m, workspace, 0, cut, image, 3));
        }
        ASSERT_STATUS(PKV_OK, means_step(&m, workspace, cut, NUM_TOKENS, image, 3));
        for (int32_t i = 0; i < NUM_TOKENS; i++) {
            ASSERT_CLOSE(m.out[i], with_window[i]);
        }
    }
    pkv_workspace_destroy(workspace);
}

/* E1: a key behind a range is read by nobody inside it. */
static void a_key_behind_a_range_is_not_read_inside(void)
{
    pkv_workspace *workspace = case_workspace(2);
    struct means m = means_make();
    m.positions[image.end] = NAN;
    ASSERT_STATUS(PKV_OK, means_step(&m, workspace, 0, NUM_TOKENS, image, 0));
    for (int32_t i = 0; i < NUM_TOKENS; i++) {
        CU_ASSERT_EQUAL(isnan(m.out[i]) != 0, i >= image.end);
    }
    pkv_workspace_destroy(workspace);
}

/* Long rows, whose ranges lie across tiles, spans of keys and chunks of queries. */
static struct case_spec images(int variant)
{
    struct case_spec spec = case_plain(test_seed() + (uint64_t)variant);
    spec.dtype = (enum pkv_dtype)(variant % 3);
    spec.k_dtype = spec.v_dtype = variant % 2 ? PKV_BF16 : spec.dtype;
    spec.kv_heads = 2;
    spec.group = 1 + variant % 4;
    spec.k_width = spec.v_width = 8 + variant % 5;
    spec.block_size = 1 + 5 * (variant % 4);
    spec.window = variant % 2 ? 40 : 0;
    spec.kept_count = variant % 2;
    spec.kept[0] = 3;
    case_add_row(&spec, 0, 600, 600);
    case_add_range(&spec, 0, 20, 130);
    case_add_range(&spec, 0, 130, 131);
    case_add_range(&spec, 0, 200, 264);
    case_add_range(&spec, 0, 490, 560);
    return spec;
}

static void add_rows_beside(struct case_spec *spec)
{
    case_add_row(spec, 1, 9, 530);
    case_add_range(spec, 1, 100, 400);
    case_add_range(spec, 1, 522, 530);
    case_add_row(spec, 2, 1, 65);
    case_add_row(spec, 3, 70, 70);
    case_add_range(spec, 3, 0, 70);
}

static void assert_same_and_free(struct gqa_case *one, struct gqa_case *other)
{
    CU_ASSERT(gqa_case_same_rows(one, other));
    gqa_case_free(one);
    gqa_case_free(other);
}

/* K7: ranges leave no trace of the calls that a row's tokens came in, as long as no call cuts one.
 */
static void chunks_that_cut_no_range_equal_one_shot(void)
{
    static const int32_t ends[][8] = {{20, 131, 600},
                                      {130, 200, 264, 490, 600},
                                      {7, 20, 130, 131, 150, 264, 470, 600},
                                      {480, 560, 600}};
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < 12; i++) {
        const struct case_spec spec = images(i);
        struct gqa_case *whole = gqa_case_run(&spec, workspace);
        struct gqa_case *cut = gqa_case_make(&spec);
        for (int32_t c = 0, begin = 0; begin < 600; begin = ends[i % 4][c++]) {
            ASSERT_STATUS(PKV_OK, gqa_case_call_chunk(cut, workspace, begin, ends[i % 4][c]));
        }
        assert_same_and_free(whole, cut);
    }
    pkv_workspace_destroy(workspace);
}

/* K7: the bits of a row with ranges do not depend on threads, block ids and rows beside it. */
static void threads_rows_and_blocks_do_not_change_the_bits_of_ranges(void)
{
    static const int threads[] = {1, 3, 8};
    pkv_workspace *two = case_workspace(2);
    for (int i = 0; i < 9; i++) {
        pkv_workspace *workspace = case_workspace(threads[i % 3]);
        struct case_spec spec = images(i);
        struct gqa_case *alone = gqa_case_run(&spec, workspace);
        add_rows_beside(&spec);
        spec.layout++;
        struct gqa_case *beside = gqa_case_make(&spec);
        CU_ASSERT(gqa_case_check(beside, two));
        for (int32_t q = 0; q < 600; q++) {
            CU_ASSERT(gqa_case_same_row(alone, 0, q, beside, 0, q));
        }
        assert_same_and_free(beside, gqa_case_run(&spec, workspace));
        gqa_case_free(alone);
        pkv_workspace_destroy(workspace);
    }
    pkv_workspace_destroy(two);
}

static void all_cache_forms_give_the_same_bits_with_ranges(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (int form = PKV_CACHE_NONE; form < PKV_CACHE_PAGED; form++) {
        struct case_spec spec = images(2 * form);
        spec.k_dtype = spec.v_dtype = spec.dtype;
        struct gqa_case *paged = gqa_case_run(&spec, workspace);
        spec.form = (enum pkv_cache_form)form;
        assert_same_and_free(paged, gqa_case_run(&spec, workspace));
    }
    pkv_workspace_destroy(workspace);
}

/* Every query of a range of one token, and of a list that says nothing, sees what it always sees.
 */
static void ranges_of_one_token_change_nothing(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < 4; i++) {
        struct case_spec spec = images(i);
        memset(spec.num_ranges, 0, sizeof spec.num_ranges);
        struct gqa_case *plain = gqa_case_run(&spec, workspace);
        case_add_range(&spec, 0, 0, 1);
        case_add_range(&spec, 0, 299, 300);
        case_add_range(&spec, 0, 599, 600);
        assert_same_and_free(plain, gqa_case_run(&spec, workspace));
    }
    pkv_workspace_destroy(workspace);
}

/* The list may change once the plan is made; runs take nothing from it. */
static void a_plan_keeps_its_own_ranges(void)
{
    pkv_workspace *workspace = case_workspace(2);
    struct case_spec spec = images(0);
    add_rows_beside(&spec);
    struct gqa_case *once = gqa_case_run(&spec, workspace);
    struct gqa_case *planned = gqa_case_make(&spec);
    pkv_plan *plan = NULL;
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &planned->args, plan));
    memset(planned->bidirectional, 0xff, 4 * sizeof *planned->bidirectional);
    ASSERT_STATUS(PKV_OK, pkv_gqa_run(workspace, &planned->args, plan));
    pkv_plan_destroy(plan);
    assert_same_and_free(once, planned);
    pkv_workspace_destroy(workspace);
}

/* K7: what the planner divides and counts are the keys that are seen, those of the range too. */
static void a_plan_counts_the_keys_of_a_range(void)
{
    enum { LENGTH = 256, TASK_QUERIES = 64 };
    pkv_workspace *workspace = case_workspace(2);
    pkv_plan *plan = NULL;
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    struct case_spec spec = case_plain(test_seed());
    case_add_row(&spec, 0, LENGTH, LENGTH);
    for (int with_range = 0; with_range < 2; with_range++) {
        struct gqa_case *c = gqa_case_make(&spec);
        ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &c->args, plan));
        int64_t keys = 0; /* once for each chunk of queries */
        for (int32_t end = TASK_QUERIES; end <= LENGTH; end += TASK_QUERIES) {
            keys += with_range ? LENGTH : end;
        }
        CU_ASSERT_EQUAL(gqa_plan_read_keys(plan), keys);
        gqa_case_free(c);
        case_add_range(&spec, 0, 0, LENGTH);
    }
    pkv_plan_destroy(plan);
    pkv_workspace_destroy(workspace);
}

/* What refuses: row 1 of a good call has past 10, q_len 20, and the ranges [2, 10), [10, 14),
 * [14, 30). */
static const struct {
    int32_t begin, end;
    const char *culprit;
} refusals[] = {
    {14, 31, "row 1: bidirectional[3] = [14, 31) is cut: it goes on"},
    {30, 31, "row 1: bidirectional[3] = [30, 31) lies outside"},
    {14, 14, "row 1: bidirectional[3] = [14, 14) is empty"},
    {20, 16, "row 1: bidirectional[3] = [20, 16) is empty"},
    {13, 30, "row 1: bidirectional[3] = [13, 30) begins before"},
    {3, 5, "row 1: bidirectional[3] = [3, 5) begins before"},
    {INT32_MIN, 30, "row 1: bidirectional[3] = [-2147483648, 30) begins below 0"},
    {INT32_MAX - 1, INT32_MAX, "lies outside"},
};

static struct gqa_case *good_call(int form)
{
    struct case_spec spec = case_plain(test_seed());
    spec.form = (enum pkv_cache_form)form;
    case_add_row(&spec, 0, 20, 30);
    case_add_range(&spec, 0, 12, 30);
    case_add_row(&spec, 1, 20, 30);
    case_add_range(&spec, 1, 2, 10);
    case_add_range(&spec, 1, 10, 14);
    case_add_range(&spec, 1, 14, 30);
    return gqa_case_make(&spec);
}

static void assert_nothing_changed(const struct gqa_case *c)
{
    CU_ASSERT_EQUAL(gqa_case_changed(c, REGION_INPUT | REGION_CACHE | REGION_OUTPUT), -1);
}

/* K7: a range that a call would cut, and any list that is no list of ranges, refuses by name. */
static void unsound_ranges_refuse_and_are_named(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (int form = PKV_CACHE_NONE; form <= PKV_CACHE_PAGED; form++) {
        struct gqa_case *c = good_call(form);
        for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
            c->bidirectional[3].begin = refusals[i].begin;
            c->bidirectional[3].end = refusals[i].end;
            gqa_case_snapshot(c);
            ASSERT_CASE_REFUSED(refusals[i].culprit, PKV_INVALID_ARGUMENT, refusals[i].culprit,
                                gqa_case_call(c, workspace));
            assert_nothing_changed(c);
        }
        c->bidirectional[3].begin = 14;
        c->bidirectional[3].end = 30;
        c->bidirectional[1].end = 11;
        gqa_case_snapshot(c);
        ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "row 1: bidirectional[1] = [2, 11) is cut: it begins",
                       gqa_case_call(c, workspace));
        assert_nothing_changed(c);
        c->bidirectional[1].end = 10;
        CU_ASSERT(gqa_case_check(c, workspace));
        gqa_case_free(c);
    }
    pkv_workspace_destroy(workspace);
}

static void ranges_without_their_counts_refuse(void)
{
    pkv_workspace *workspace = case_workspace(2);
    struct gqa_case *c = good_call(PKV_CACHE_PAGED);
    c->args.bidirectional = NULL;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "bidirectional is NULL", gqa_case_call(c, workspace));
    c->args.bidirectional = c->bidirectional;
    c->args.cu_bidirectional = NULL;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "cu_bidirectional is NULL", gqa_case_call(c, workspace));
    c->args.cu_bidirectional = c->cu_bidirectional;
    c->cu_bidirectional[0] = 1;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "cu_bidirectional[0] = 1", gqa_case_call(c, workspace));
    c->cu_bidirectional[0] = 0;
    c->cu_bidirectional[1] = 5;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "cu_bidirectional[2] = 4", gqa_case_call(c, workspace));
    c->cu_bidirectional[1] = 1;
    c->args.not_causal = true;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "beside not_causal", gqa_case_call(c, workspace));
    gqa_case_free(c);
    pkv_workspace_destroy(workspace);
}

static const struct test_case cases[] = {
    TEST(queries_of_a_range_see_its_last_key),
    TEST(windows_count_backwards_inside_a_range),
    TEST(a_key_behind_a_range_is_not_read_inside),
    TEST(chunks_that_cut_no_range_equal_one_shot),
    TEST(threads_rows_and_blocks_do_not_change_the_bits_of_ranges),
    TEST(all_cache_forms_give_the_same_bits_with_ranges),
    TEST(ranges_of_one_token_change_nothing),
    TEST(a_plan_keeps_its_own_ranges),
    TEST(a_plan_counts_the_keys_of_a_range),
    TEST(unsound_ranges_refuse_and_are_named),
    TEST(ranges_without_their_counts_refuse),
    TEST_END,
};
const struct test_suite suite_bidirectional = {"bidirectional", cases};
