/* SPDX-License-Identifier: MIT
 *
 * Trees of drafts of the raw operator: what a query of a tree sees and at which position, that
 * siblings and everything else around a row leave no trace, and which parents refuse. Random calls
 * with trees are in gqa_random.c. */
#include <math.h>
#include <string.h>

#include "support/gqa_case.h"
#include "support/tree_case.h"

enum { NUM_VARIANTS = 12, TREE_TOKENS = 150 };

/* A tree of several chunks of queries, whose cells lie in several tiles and two spans of keys. */
static struct case_spec long_tree(int variant)
{
    struct case_spec spec = case_plain(test_seed() + (uint64_t)variant);
    spec.dtype = (enum pkv_dtype)(variant % 3);
    spec.k_dtype = (enum pkv_dtype)(variant % 5);
    spec.v_dtype = (enum pkv_dtype)((variant + variant / 5) % 5);
    spec.kv_heads = 2;
    spec.group = 1 + variant % 4;
    spec.k_width = 8 + variant % 5;
    spec.v_width = 8 + variant % 7;
    spec.block_size = 1 + 5 * (variant % 4);
    spec.window = variant % 3 == 1 ? 20 : 0;
    spec.kept_count = variant % 2;
    spec.kept[0] = variant % 4 == 3 ? 480 : 3;
    spec.options = variant % 2 ? CASE_ROPE | CASE_SINK : 0;
    spec.tree_shape = TREE_RANDOM + variant % (NUM_TREE_SHAPES - TREE_RANDOM);
    case_add_row(&spec, 0, TREE_TOKENS, 470 + TREE_TOKENS);
    return spec;
}

static void add_rows_beside(struct case_spec *spec)
{
    spec->kept_count = spec->kept_count != 0 ? 4 : 0;
    case_add_row(spec, 1, 9, 530);
    case_add_row(spec, 2, 1, 65);
    case_add_row(spec, 3, 70, 70);
}

static void assert_same_and_free(struct gqa_case *one, struct gqa_case *other)
{
    CU_ASSERT(gqa_case_same_rows(one, other));
    gqa_case_free(one);
    gqa_case_free(other);
}

/* Parents -1, 0, 1, .. say what no parents say; such rows have no bound. */
static void a_chain_of_parents_has_the_bits_of_no_parents(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < NUM_VARIANTS; i++) {
        struct case_spec spec = long_tree(i);
        add_rows_beside(&spec);
        case_add_row(&spec, 4, PKV_MAX_TREE_TOKENS + 30, PKV_MAX_TREE_TOKENS + 37);
        spec.kept_count = 0;
        spec.tree_shape = TREE_NONE;
        struct gqa_case *plain = gqa_case_run(&spec, workspace);
        spec.tree_shape = TREE_CHAIN;
        assert_same_and_free(plain, gqa_case_run(&spec, workspace));
    }
    pkv_workspace_destroy(workspace);
}

/* Windows shorter than the depth, kept prefixes that end among the drafts, rope, sinks. */
static void long_trees_match_the_reference(void)
{
    static const int threads[] = {1, 2, 3, 8};
    for (int i = 0; i < NUM_VARIANTS; i++) {
        pkv_workspace *workspace = case_workspace(threads[i % 4]);
        struct case_spec spec = long_tree(i);
        spec.poison = i % 3;
        spec.evicted = i % 2 != 0;
        add_rows_beside(&spec);
        struct gqa_case *c = gqa_case_make(&spec);
        CU_ASSERT(gqa_case_check(c, workspace));
        gqa_case_free(c);
        pkv_workspace_destroy(workspace);
    }
}

static void threads_rows_and_blocks_do_not_change_the_bits_of_trees(void)
{
    static const int threads[] = {1, 3, 8};
    pkv_workspace *two = case_workspace(2);
    for (int i = 0; i < NUM_VARIANTS; i++) {
        pkv_workspace *workspace = case_workspace(threads[i % 3]);
        struct case_spec spec = long_tree(i);
        spec.kept_count = 0;
        struct gqa_case *alone = gqa_case_run(&spec, workspace);
        add_rows_beside(&spec);
        spec.layout++;
        struct gqa_case *beside = gqa_case_run(&spec, two);
        for (int32_t q = 0; q < TREE_TOKENS; q++) {
            CU_ASSERT(gqa_case_same_row(alone, 0, q, beside, 0, q));
        }
        assert_same_and_free(beside, gqa_case_run(&spec, workspace));
        gqa_case_free(alone);
        pkv_workspace_destroy(workspace);
    }
    pkv_workspace_destroy(two);
}

static void all_cache_forms_give_the_same_bits_with_trees(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (int form = PKV_CACHE_NONE; form < PKV_CACHE_PAGED; form++) {
        for (int i = 0; i < 4; i++) {
            struct case_spec spec = long_tree(4 * form + i);
            spec.k_dtype = spec.v_dtype = spec.dtype;
            spec.q_lens[0] = spec.kv_lens[0] = TREE_TOKENS; /* NONE computes all of its keys */
            struct gqa_case *paged = gqa_case_run(&spec, workspace);
            spec.form = (enum pkv_cache_form)form;
            assert_same_and_free(paged, gqa_case_run(&spec, workspace));
        }
    }
    pkv_workspace_destroy(workspace);
}

/* Appended first and attended then, in two calls with the same parents. */
static void appending_and_then_attending_has_the_bits_of_one_call(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < NUM_VARIANTS; i++) {
        const struct case_spec spec = long_tree(i);
        struct gqa_case *once = gqa_case_run(&spec, workspace);
        struct gqa_case *twice = gqa_case_make(&spec);
        struct pkv_gqa_args append = twice->args, attend = twice->args;
        append.q = NULL;
        append.out = append.lse = NULL;
        attend.k = attend.v = NULL;
        ASSERT_STATUS(PKV_OK, pkv_append(workspace, &append));
        ASSERT_STATUS(PKV_OK, pkv_attention_over_cache(workspace, &attend));
        assert_same_and_free(once, twice);
    }
    pkv_workspace_destroy(workspace);
}

/* ---- by hand: one paged row of f32 --------------------------------------------------------- */

enum { WIDTH = 8, BLOCK_SIZE = 4, PAST = 70, TOKENS = 8, CELLS = 80, POSITIONS = PAST + 4 };

/* 0 - 1 - 2, 0 - 3 - 4 - 5, and the root 6 with its child 7. */
static const int32_t parents_of_rows[TOKENS] = {-1, 0, 1, 0, 3, 4, -1, 6};
static const int32_t depths[TOKENS] = {0, 1, 2, 1, 2, 3, 0, 1};

struct row {
    float k[CELLS * WIDTH], v[CELLS * WIDTH];
    float q[TOKENS * WIDTH], new_k[TOKENS * WIDTH], new_v[TOKENS * WIDTH], out[TOKENS * WIDTH];
    float cosines[POSITIONS], sines[POSITIONS]; /* just as many as the tree needs */
    int32_t table[CELLS / BLOCK_SIZE], parents[TOKENS], cu[2], kv_len;
    struct pkv_gqa_args args;
};

static void fill(struct test_random *random, float *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i] = (float)random_unit(random);
    }
}

/* The row with `count` new tokens; cells from the first new one on are NaN. */
static void row_start(struct row *row, int32_t count)
{
    struct test_random random = {test_seed()};
    memset(row, 0, sizeof *row);
    fill(&random, row->k, PAST * WIDTH);
    fill(&random, row->v, PAST * WIDTH);
    fill(&random, row->q, TOKENS * WIDTH);
    fill(&random, row->new_k, TOKENS * WIDTH);
    fill(&random, row->new_v, TOKENS * WIDTH);
    for (int i = PAST * WIDTH; i < CELLS * WIDTH; i++) {
        row->k[i] = row->v[i] = NAN;
    }
    for (int32_t i = 0; i < POSITIONS; i++) {
        row->cosines[i] = cosf((float)i);
        row->sines[i] = sinf((float)i);
    }
    for (int32_t i = 0; i < CELLS / BLOCK_SIZE; i++) {
        row->table[i] = i;
    }
    memcpy(row->parents, parents_of_rows, sizeof row->parents);
    row->cu[1] = count;
    row->kv_len = PAST + count;
    row->args = case_f32_args(PKV_CACHE_PAGED, 1, 1, 1, WIDTH);
    row->args.num_tokens = count;
    row->args.cu_seqlens_q = row->cu;
    row->args.kv_lens = &row->kv_len;
    row->args.block_table = row->table;
    row->args.max_blocks = CELLS / BLOCK_SIZE;
    row->args.q = row->q;
    row->args.k = row->new_k;
    row->args.v = row->new_v;
    row->args.out = row->out;
    row->args.past = case_f32_view(row->k, row->v, CELLS / BLOCK_SIZE, 1, BLOCK_SIZE, WIDTH);
    row->args.parents = row->parents;
    row->args.constants.rope_cos = row->cosines;
    row->args.constants.rope_sin = row->sines;
    row->args.constants.rope_dtype = PKV_F32;
    row->args.constants.rope_positions = POSITIONS;
    row->args.constants.rope_width = 1;
}

/* Token `from` of one row becomes token `to` of another. */
static void move_token(const struct row *from_row, int32_t from, struct row *to_row, int32_t to)
{
    const size_t bytes = WIDTH * sizeof(float);
    memcpy(to_row->q + to * WIDTH, from_row->q + from * WIDTH, bytes);
    memcpy(to_row->new_k + to * WIDTH, from_row->new_k + from * WIDTH, bytes);
    memcpy(to_row->new_v + to * WIDTH, from_row->new_v + from * WIDTH, bytes);
}

/* Each query equals the last of a plain call over its path: within rounding, and where the path
 * lies in the cells that the plain call would give it, bit by bit. */
static void a_query_equals_a_plain_call_over_its_path(void)
{
    static const int64_t windows[] = {0, 1, 2, 3, 30};
    static const int64_t kept = 2;
    for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++) {
        static struct row tree, plain;
        row_start(&tree, TOKENS);
        tree.args.sliding_window = windows[w];
        tree.args.kept_prefix = &kept;
        tree.args.kept_prefix_count = 1;
        case_run(&tree.args);
        for (int32_t i = 0; i < TOKENS; i++) {
            row_start(&plain, depths[i] + 1);
            plain.args.sliding_window = windows[w];
            plain.args.kept_prefix = &kept;
            plain.args.kept_prefix_count = 1;
            plain.args.parents = NULL;
            for (int32_t a = i; a >= 0; a = parents_of_rows[a]) {
                move_token(&tree, a, &plain, depths[a]);
            }
            case_run(&plain.args);
            const float *got = tree.out + i * WIDTH;
            const float *want = plain.out + depths[i] * WIDTH;
            for (int c = 0; c < WIDTH; c++) {
                ASSERT_CLOSE(got[c], want[c]);
            }
            if (depths[i] == i) {
                CU_ASSERT(memcmp(got, want, WIDTH * sizeof *got) == 0);
            }
        }
    }
}

/* Nothing of a sibling's key or value reaches a query, whatever it is. */
static void siblings_are_never_read(void)
{
    static struct row clean, spoilt;
    row_start(&clean, TOKENS);
    case_run(&clean.args);
    for (int32_t bad = 0; bad < TOKENS; bad++) {
        row_start(&spoilt, TOKENS);
        for (int c = 0; c < WIDTH; c++) {
            spoilt.new_k[bad * WIDTH + c] = c % 2 ? NAN : INFINITY;
            spoilt.new_v[bad * WIDTH + c] = NAN;
        }
        case_run(&spoilt.args);
        for (int32_t i = 0; i < TOKENS; i++) {
            bool descends = false;
            for (int32_t a = i; a >= 0; a = parents_of_rows[a]) {
                descends = descends || a == bad;
            }
            const bool is_same =
                memcmp(spoilt.out + i * WIDTH, clean.out + i * WIDTH, WIDTH * sizeof(float)) == 0;
            CU_ASSERT_EQUAL(is_same, !descends);
            CU_ASSERT_EQUAL(isnan(spoilt.out[i * WIDTH]) != 0, descends);
        }
    }
}

/* A mask's columns are cells. */
static void a_mask_narrows_a_tree_by_cell(void)
{
    static struct row masked, spoilt;
    static uint8_t mask[TOKENS][PAST + TOKENS];
    memset(mask, 1, sizeof mask);
    mask[5][PAST + 3] = 0; /* token 5 does not see its ancestor 3 */
    mask[2][PAST + 6] = 1; /* nor does token 2 see 6, whatever a mask says */
    for (int32_t is_spoilt = 0; is_spoilt < 2; is_spoilt++) {
        struct row *row = is_spoilt ? &spoilt : &masked;
        row_start(row, TOKENS);
        row->args.attn_mask = mask;
        row->args.mask_dtype = PKV_INT8;
        row->args.mask_batch = row->args.mask_heads = 1;
        row->args.mask_queries = TOKENS;
        row->args.mask_keys = PAST + TOKENS;
        row->new_v[3 * WIDTH] = is_spoilt ? NAN : 1;
        row->new_v[6 * WIDTH] = is_spoilt ? NAN : 1;
        case_run(&row->args);
    }
    static const bool sees_spoilt[TOKENS] = {false, false, false, true, true, false, true, true};
    for (int32_t i = 0; i < TOKENS; i++) {
        CU_ASSERT_EQUAL(isnan(spoilt.out[i * WIDTH]) != 0, sees_spoilt[i]);
        CU_ASSERT(!isnan(masked.out[i * WIDTH]));
    }
}

/* A plan copies the parents; a run takes them from there. */
static void a_plan_keeps_its_own_parents(void)
{
    static struct row once, planned;
    pkv_workspace *workspace = case_workspace(2);
    pkv_plan *plan = NULL;
    row_start(&once, TOKENS);
    case_run(&once.args);
    row_start(&planned, TOKENS);
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &planned.args, plan));
    planned.parents[3] = 99;
    ASSERT_STATUS(PKV_OK, pkv_gqa_run(workspace, &planned.args, plan));
    CU_ASSERT(memcmp(once.out, planned.out, sizeof once.out) == 0);
    memcpy(planned.parents, parents_of_rows, sizeof planned.parents);
    planned.parents[7] = -1;
    ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &planned.args, plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_run(workspace, &planned.args, plan));
    CU_ASSERT(memcmp(once.out, planned.out, sizeof once.out) != 0);
    pkv_plan_destroy(plan);
    pkv_workspace_destroy(workspace);
}

/* ---- refusals ------------------------------------------------------------------------------ */

static void assert_refused(enum pkv_status status, const struct row *row, const char *culprit)
{
    static struct row before;
    pkv_workspace *workspace = case_workspace(2);
    memcpy(&before, row, sizeof before);
    ASSERT_CASE_REFUSED(culprit, status, culprit, pkv_gqa(workspace, &row->args));
    CU_ASSERT(memcmp(&before, row, sizeof before) == 0);
    pkv_workspace_destroy(workspace);
}

static void parents_that_are_no_tree_refuse_and_are_named(void)
{
    static const struct {
        int32_t token, parent;
        const char *culprit;
    } faults[] = {
        {0, 0, "parents[0] = 0: token 0 of row 0, whose parent is outside [-1, 0)"},
        {3, 3, "parents[3] = 3: token 3"},
        {3, 4, "parents[3] = 4: token 3 of row 0, whose parent is outside [-1, 3)"},
        {7, -2, "parents[7] = -2"},
        {7, INT32_MAX, "parents[7] = 2147483647"},
        {1, INT32_MIN, "parents[1] = -2147483648"},
    };
    static struct row row;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        row_start(&row, TOKENS);
        row.parents[faults[i].token] = faults[i].parent;
        assert_refused(PKV_INVALID_ARGUMENT, &row, faults[i].culprit);
    }
}

static void options_that_make_no_sense_beside_a_tree_refuse(void)
{
    static struct row row;
    static const int32_t cu_selected[] = {0, 0}, cu_ranges[] = {0, 1};
    struct pkv_token_range range = {PAST, PAST + 2};
    row_start(&row, TOKENS);
    row.args.not_causal = true;
    assert_refused(PKV_INVALID_ARGUMENT, &row, "parents is set beside not_causal");
    row_start(&row, TOKENS);
    row.args.cu_selected = cu_selected;
    row.args.num_selected_lists = 1;
    row.args.selected_newest = 5;
    assert_refused(PKV_UNSUPPORTED, &row, "row 0 is a tree beside selected blocks");
    row_start(&row, TOKENS);
    row.args.bidirectional = &range;
    row.args.cu_bidirectional = cu_ranges;
    assert_refused(PKV_INVALID_ARGUMENT, &row, "a bidirectional range ends at 72");
    range = (struct pkv_token_range){2, 9}; /* of the past: it changes nothing */
    case_run(&row.args);
    row_start(&row, TOKENS);
    row.args.constants.rope_positions--;
    assert_refused(PKV_INVALID_ARGUMENT, &row, "position 73, but rope_positions = 73");
    row_start(&row, TOKENS);
    row.args.lse = (float *)(void *)row.parents;
    assert_refused(PKV_INVALID_ARGUMENT, &row, "lse overlaps parents");
}

/* Chains have no bound, other rows have. */
static void trees_above_the_bound_refuse(void)
{
    pkv_workspace *workspace = case_workspace(2);
    struct case_spec spec = case_plain(test_seed());
    spec.tree_shape = TREE_BINARY;
    case_add_row(&spec, 0, PKV_MAX_TREE_TOKENS, PKV_MAX_TREE_TOKENS);
    struct gqa_case *most = gqa_case_make(&spec);
    CU_ASSERT(gqa_case_check(most, workspace));
    gqa_case_free(most);
    spec.q_lens[0]++;
    spec.kv_lens[0]++;
    struct gqa_case *more = gqa_case_make(&spec);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "row 0 is a tree of 1025 tokens, above 1024",
                   gqa_case_call(more, workspace));
    gqa_case_free(more);
    pkv_workspace_destroy(workspace);
}

static const struct test_case cases[] = {
    TEST(a_chain_of_parents_has_the_bits_of_no_parents),
    TEST(long_trees_match_the_reference),
    TEST(threads_rows_and_blocks_do_not_change_the_bits_of_trees),
    TEST(all_cache_forms_give_the_same_bits_with_trees),
    TEST(appending_and_then_attending_has_the_bits_of_one_call),
    TEST(a_query_equals_a_plain_call_over_its_path),
    TEST(siblings_are_never_read),
    TEST(a_mask_narrows_a_tree_by_cell),
    TEST(a_plan_keeps_its_own_parents),
    TEST(parents_that_are_no_tree_refuse_and_are_named),
    TEST(options_that_make_no_sense_beside_a_tree_refuse),
    TEST(trees_above_the_bound_refuse),
    TEST_END,
};
const struct test_suite suite_tree = {"tree", cases};
