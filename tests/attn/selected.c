/* SPDX-License-Identifier: MIT
 *
 * Selected blocks of the raw operator in long rows, where they lie across tiles, spans of keys and
 * chunks of queries: the bits of the masked call, whatever the threads, chunks and forms; what is
 * read and counted; and which lists refuse. Random calls are in gqa_random.c, how the work is cut
 * in split.c. */
#include <math.h>
#include <string.h>

#include "attn/gqa_plan.h"
#include "support/gqa_case.h"
#include "support/selection_case.h"

enum { NUM_VARIANTS = 12, LENGTH = 1500 };

/* Rows of many spans; lists of one row, or of a KV head. */
static struct case_spec long_rows(int variant)
{
    static const int32_t sizes[] = {16, 64, 5, 128, 700, 1};
    static const int32_t shares[] = {10, 30, 3, 60};
    struct case_spec spec = case_plain(test_seed() + (uint64_t)variant);
    spec.dtype = (enum pkv_dtype)(variant % 3);
    spec.k_dtype = (enum pkv_dtype)(variant % 5);
    spec.v_dtype = (enum pkv_dtype)((variant + variant / 5) % 5);
    spec.kv_heads = 2;
    spec.group = 1 + variant % 4;
    spec.k_width = 8 + variant % 5;
    spec.v_width = 8 + variant % 7;
    spec.block_size = 1 + 5 * (variant % 4);
    spec.selection_size = sizes[variant % 6];
    spec.selected_share = shares[variant % 4];
    spec.selected_newest = variant % 3 * 30;
    spec.selects_by_head = variant % 2 != 0;
    case_add_row(&spec, 0, 1, LENGTH);
    return spec;
}

static void add_rows_beside(struct case_spec *spec)
{
    case_add_row(spec, 1, 70, 1300);
    case_add_row(spec, 2, 0, 90);
    case_add_row(spec, 3, 3, 513);
}

static struct gqa_case *masked_run(const struct case_spec *spec, pkv_workspace *workspace)
{
    struct case_spec mapped = *spec;
    mapped.evicted = false;
    struct gqa_case *c = gqa_case_make(&mapped);
    selection_case_to_mask(c);
    ASSERT_STATUS(PKV_OK, gqa_case_call(c, workspace));
    return c;
}

static void assert_same_and_free(struct gqa_case *one, struct gqa_case *other)
{
    CU_ASSERT(gqa_case_same_rows(one, other));
    gqa_case_free(one);
    gqa_case_free(other);
}

static void selected_blocks_have_the_bits_of_the_masked_call(void)
{
    static const int threads[] = {1, 2, 3, 8};
    pkv_workspace *one = case_workspace(1);
    for (int i = 0; i < NUM_VARIANTS; i++) {
        pkv_workspace *workspace = case_workspace(threads[i % 4]);
        struct case_spec spec = long_rows(i);
        spec.evicted = i % 3 != 0;
        for (int with_others = 0; with_others < 2; with_others++) {
            struct gqa_case *c = gqa_case_make(&spec);
            CU_ASSERT(gqa_case_check(c, workspace));
            assert_same_and_free(c, masked_run(&spec, one));
            add_rows_beside(&spec);
        }
        pkv_workspace_destroy(workspace);
    }
    pkv_workspace_destroy(one);
}

static void all_cache_forms_give_the_same_bits_with_selected_blocks(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (int form = PKV_CACHE_NONE; form < PKV_CACHE_PAGED; form++) {
        for (int i = 0; i < 2; i++) {
            struct case_spec spec = long_rows(2 * form + i);
            spec.k_dtype = spec.v_dtype = spec.dtype;
            struct gqa_case *paged = gqa_case_run(&spec, workspace);
            spec.form = (enum pkv_cache_form)form;
            assert_same_and_free(paged, gqa_case_run(&spec, workspace));
        }
    }
    pkv_workspace_destroy(workspace);
}

/* A list holds for all queries of a row, so the calls that its tokens came in leave no trace. */
static void chunks_of_a_row_with_selected_blocks_equal_one_shot(void)
{
    static const int32_t ends[][4] = {{300, 301, 600}, {64, 128, 600}, {599, 600, 600}};
    pkv_workspace *workspace = case_workspace(3);
    for (int i = 0; i < NUM_VARIANTS; i++) {
        struct case_spec spec = long_rows(i);
        spec.k_dtype = spec.v_dtype = spec.dtype;
        spec.q_lens[0] = spec.kv_lens[0] = 600;
        struct gqa_case *whole = gqa_case_run(&spec, workspace);
        struct gqa_case *cut = gqa_case_make(&spec);
        for (int32_t c = 0, begin = 0; begin < 600; begin = ends[i % 3][c++]) {
            ASSERT_STATUS(PKV_OK, gqa_case_call_chunk(cut, workspace, begin, ends[i % 3][c]));
        }
        assert_same_and_free(whole, cut);
    }
    pkv_workspace_destroy(workspace);
}

/* All blocks in the list, or as many newest keys as there are, is the call without a list. */
static void a_list_of_all_blocks_changes_nothing(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < NUM_VARIANTS; i++) {
        struct case_spec spec = long_rows(i);
        add_rows_beside(&spec);
        spec.selected_share = i % 2 ? 100 : 0;
        spec.selected_newest = i % 2 ? 0 : LENGTH;
        struct case_spec plain = spec;
        plain.selection_size = 0;
        plain.selects_by_head = false;
        assert_same_and_free(gqa_case_run(&spec, workspace), gqa_case_run(&plain, workspace));
    }
    pkv_workspace_destroy(workspace);
}

/* Without a visible key a query has the empty state; with newest 0 its own key is none. */
static void an_empty_selection_gives_the_empty_state(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < 4; i++) {
        struct case_spec spec = long_rows(3 * i);
        spec.selected_share = 0;
        spec.selected_newest = 0;
        spec.dtype = PKV_F32;
        add_rows_beside(&spec);
        struct gqa_case *c = gqa_case_make(&spec);
        CU_ASSERT(gqa_case_check(c, workspace));
        for (int32_t at = 0; at < c->args.num_heads; at++) {
            CU_ASSERT(gqa_case_lse(c, 0, 0)[at] == -INFINITY);
            CU_ASSERT(((const float *)gqa_case_out(c, 0, 0))[at] == 0.0f);
        }
        gqa_case_free(c);
    }
    pkv_workspace_destroy(workspace);
}

/* A new key that nobody selected is appended all the same. */
static void keys_that_nobody_selected_are_appended(void)
{
    enum { WIDTH = 8 };
    pkv_workspace *workspace = case_workspace(2);
    float k[8 * WIDTH], v[8 * WIDTH], q[WIDTH] = {1}, out[WIDTH], new_key[WIDTH];
    const int32_t table[] = {1, 0}, length = 8, cu[] = {0, 0};
    struct pkv_gqa_args args = case_f32_args(PKV_CACHE_PAGED, 1, 1, 1, WIDTH);
    memset(k, 0, sizeof k);
    memset(v, 0, sizeof v);
    for (int i = 0; i < WIDTH; i++) {
        new_key[i] = (float)(i + 1);
    }
    args.kv_lens = &length;
    args.block_table = table;
    args.max_blocks = 2;
    args.q = q;
    args.k = args.v = new_key;
    args.out = out;
    args.past = case_f32_view(k, v, 2, 1, 4, WIDTH);
    args.cu_selected = cu;
    args.num_selected_lists = 1;
    ASSERT_STATUS(PKV_OK, pkv_gqa(workspace, &args));
    CU_ASSERT(memcmp(k + 3 * WIDTH, new_key, sizeof new_key) == 0);
    CU_ASSERT(memcmp(v + 3 * WIDTH, new_key, sizeof new_key) == 0);
    CU_ASSERT(out[0] == 0.0f);
    pkv_workspace_destroy(workspace);
}

/* Of the keys of another KV head's list, none is read: they are NaN. */
static void a_head_reads_its_own_list_alone(void)
{
    enum { WIDTH = 4, KEYS = 1024, BLOCK = 64 };
    static float k[2][KEYS][WIDTH], v[2][KEYS][WIDTH];
    pkv_workspace *workspace = case_workspace(4);
    const int32_t selected[] = {3, 9, 0, 9, 15}, cu[] = {0, 2, 5}, length = KEYS;
    float q[2 * WIDTH] = {1, 2, 3, 4, 4, 3, 2, 1}, out[2 * WIDTH], lse[2];
    for (int32_t h = 0; h < 2; h++) {
        for (int32_t j = 0; j < KEYS; j++) {
            bool is_listed = false;
            for (int32_t i = cu[h]; i < cu[h + 1]; i++) {
                is_listed = is_listed || selected[i] == j / BLOCK;
            }
            for (int32_t c = 0; c < WIDTH; c++) {
                k[h][j][c] = is_listed ? 0.0f : NAN;
                v[h][j][c] = is_listed ? (float)(h + 1) : NAN;
            }
        }
    }
    struct pkv_gqa_args args = case_f32_args(PKV_CACHE_DENSE, 1, 2, 2, WIDTH);
    args.kv_lens = &length;
    args.q = q;
    args.k = args.v = NULL;
    args.out = out;
    args.lse = lse;
    args.past = case_f32_view(&k[0][0][0], &v[0][0][0], 1, 2, KEYS, WIDTH);
    args.selected = selected;
    args.cu_selected = cu;
    args.num_selected_lists = 2;
    args.selection_size = BLOCK;
    ASSERT_STATUS(PKV_OK, pkv_gqa(workspace, &args));
    ASSERT_CLOSE(out[0], 1);
    ASSERT_CLOSE(out[WIDTH], 2);
    ASSERT_CLOSE(lse[0], log(2 * BLOCK));
    ASSERT_CLOSE(lse[1], log(3 * BLOCK));
    pkv_workspace_destroy(workspace);
}

/* Work and reading follow what is selected, not the length of the row. */
static void a_plan_counts_the_keys_of_selected_blocks_alone(void)
{
    enum { SIZE = 64, LISTED = 8 };
    pkv_workspace *workspace = case_workspace(2);
    pkv_plan *plan = NULL;
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    for (int32_t length = 4096; length <= 65536; length *= 16) {
        struct case_spec spec = case_plain(test_seed());
        int32_t selected[LISTED];
        const int32_t cu[] = {0, LISTED};
        case_add_row(&spec, 0, 1, length);
        spec.evicted = false;
        struct gqa_case *c = gqa_case_make(&spec);
        for (int32_t i = 0; i < LISTED; i++) {
            selected[i] = i * (length / SIZE / LISTED);
        }
        c->args.selected = selected;
        c->args.cu_selected = cu;
        c->args.num_selected_lists = 1;
        c->args.selection_size = SIZE;
        c->args.selected_newest = 100;
        ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &c->args, plan));
        CU_ASSERT_EQUAL(gqa_plan_read_keys(plan), LISTED * SIZE + 100);
        gqa_case_free(c);
    }
    pkv_plan_destroy(plan);
    pkv_workspace_destroy(workspace);
}

/* The lists may change once the plan is made; runs take nothing from them. */
static void a_plan_keeps_its_own_selection(void)
{
    pkv_workspace *workspace = case_workspace(2);
    struct case_spec spec = long_rows(1);
    add_rows_beside(&spec);
    struct gqa_case *once = gqa_case_run(&spec, workspace);
    struct gqa_case *planned = gqa_case_make(&spec);
    pkv_plan *plan = NULL;
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &planned->args, plan));
    planned->selected[0] = planned->cu_selected[1] = -7;
    ASSERT_STATUS(PKV_OK, pkv_gqa_run(workspace, &planned->args, plan));
    planned->args.selected_newest++;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "not as planned",
                   pkv_gqa_run(workspace, &planned->args, plan));
    pkv_plan_destroy(plan);
    assert_same_and_free(once, planned);
    pkv_workspace_destroy(workspace);
}

/* Row 1 of a good call has 40 keys in blocks of 16; its list is entries 2, 3 and 4: 0, 1, 2. */
static struct gqa_case *good_call(int form)
{
    struct case_spec spec = case_plain(test_seed());
    spec.form = (enum pkv_cache_form)form;
    spec.kv_heads = 3;
    spec.selection_size = 16;
    spec.selected_share = 100;
    case_add_row(&spec, 0, 20, 40);
    case_add_row(&spec, 1, 20, 40);
    return gqa_case_make(&spec);
}

static void assert_refused(struct gqa_case *c, pkv_workspace *workspace, const char *culprit)
{
    gqa_case_snapshot(c);
    ASSERT_CASE_REFUSED(culprit, PKV_INVALID_ARGUMENT, culprit, gqa_case_call(c, workspace));
    CU_ASSERT_EQUAL(gqa_case_changed(c, REGION_INPUT | REGION_CACHE | REGION_OUTPUT), -1);
}

static void unsound_lists_refuse_and_are_named(void)
{
    static const struct {
        int32_t at, entry;
        const char *culprit;
    } faults[] = {
        {3, 3, "selected[3] = 3, outside [0, 3)"},
        {3, -1, "selected[3] = -1, outside"},
        {5, INT32_MAX, "selected[5] = 2147483647, outside"},
        {4, 0, "selected[4] = 0, not above the entry before it, 0"},
        {5, 1, "selected[5] = 1, not above the entry before it, 1"},
    };
    pkv_workspace *workspace = case_workspace(2);
    for (int form = PKV_CACHE_NONE; form <= PKV_CACHE_PAGED; form++) {
        struct gqa_case *c = good_call(form);
        for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
            const int32_t sound = c->selected[faults[i].at];
            c->selected[faults[i].at] = faults[i].entry;
            assert_refused(c, workspace, faults[i].culprit);
            c->selected[faults[i].at] = sound;
        }
        c->cu_selected[1] = 7;
        assert_refused(c, workspace, "cu_selected[2] = 6, below");
        c->cu_selected[1] = 3;
        c->cu_selected[0] = 1;
        assert_refused(c, workspace, "cu_selected[0] = 1, not 0");
        c->cu_selected[0] = 0;
        CU_ASSERT(gqa_case_check(c, workspace));
        gqa_case_free(c);
    }
    pkv_workspace_destroy(workspace);
}

static void selections_that_say_too_much_or_too_little_refuse(void)
{
    pkv_workspace *workspace = case_workspace(2);
    struct gqa_case *c = good_call(PKV_CACHE_CONTINUOUS);
    const struct pkv_gqa_args good = c->args;
    c->args.selected = NULL;
    assert_refused(c, workspace, "selected is NULL");
    c->args = good;
    c->args.cu_selected = NULL;
    assert_refused(c, workspace, "cu_selected is NULL");
    c->args = good;
    c->args.num_selected_lists = 3;
    assert_refused(c, workspace, "num_selected_lists = 3");
    c->args = good;
    c->args.selection_size = 0;
    assert_refused(c, workspace, "selection_size = 0");
    c->args.selection_size = -16;
    assert_refused(c, workspace, "selection_size = -16");
    c->args = good;
    c->args.selected_newest = -1;
    assert_refused(c, workspace, "selected_newest = -1");
    c->args.selected_newest = 1;
    c->args.not_causal = true;
    assert_refused(c, workspace, "selected_newest needs");
    c->args = good;
    c->args.sliding_window = 5;
    assert_refused(c, workspace, "beside sliding_window = 5");
    gqa_case_free(c);
    pkv_workspace_destroy(workspace);
}

/* A block that is selected must be mapped, one that is not need not be. */
static void selected_blocks_must_be_mapped(void)
{
    pkv_workspace *workspace = case_workspace(2);
    struct gqa_case *c = good_call(PKV_CACHE_PAGED);
    c->block_table[1] = -1; /* keys 4 .. 7 of row 0, in block 0 */
    assert_refused(c, workspace, "block_table[0][1] = -1");
    c->selected[0] = 1; /* row 0 selects block 1 alone */
    c->cu_selected[1] = 1;
    c->selected[1] = 0;
    c->selected[2] = 1;
    c->selected[3] = 2;
    c->cu_selected[2] = 4;
    ASSERT_STATUS(PKV_OK, gqa_case_call(c, workspace));
    gqa_case_free(c);
    pkv_workspace_destroy(workspace);
}

static const struct test_case cases[] = {
    TEST(selected_blocks_have_the_bits_of_the_masked_call),
    TEST(all_cache_forms_give_the_same_bits_with_selected_blocks),
    TEST(chunks_of_a_row_with_selected_blocks_equal_one_shot),
    TEST(a_list_of_all_blocks_changes_nothing),
    TEST(an_empty_selection_gives_the_empty_state),
    TEST(keys_that_nobody_selected_are_appended),
    TEST(a_head_reads_its_own_list_alone),
    TEST(a_plan_counts_the_keys_of_selected_blocks_alone),
    TEST(a_plan_keeps_its_own_selection),
    TEST(unsound_lists_refuse_and_are_named),
    TEST(selections_that_say_too_much_or_too_little_refuse),
    TEST(selected_blocks_must_be_mapped),
    TEST_END,
};
const struct test_suite suite_selected = {"selected", cases};
