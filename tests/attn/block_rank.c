/* SPDX-License-Identifier: MIT
 *
 * pkv_block_rank: scores against dot products in float64, lists against a plain sort of the scores,
 * and the way from keys to attention. Which arguments refuse is in block_rank_refuse.c. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn/top_blocks.h"
#include "attn/workspace.h"
#include "support/gqa_case.h"
#include "support/rank_case.h"
#include "support/selection_case.h"

/* What a score may be above the bound in exact arithmetic: what it is widened by, as twice a bound
 * on its own rounding, and that rounding. */
static double score_slack(const struct rank_case *c, double size)
{
    return 3 * (c->width / 16 + 10) * 0x1p-23 * size + 1e-35;
}

/* A bound is a bound in floating point too: with one key in a block, the score is not below the
 * one dot product, whatever rounding does. */
static void scores_are_not_below_any_dot_product(void)
{
    pkv_workspace *workspace = case_workspace(1);
    for (int i = 0; i < 120; i++) {
        struct rank_case c;
        rank_case_make(&c, test_seed() + (uint64_t)i, (enum pkv_dtype)(i % 5));
        CU_ASSERT_FATAL(rank_case_run(&c, workspace));
        for (int32_t n = 0; n < c.args.batch * c.max_blocks * c.num_lists; n++) {
            const int32_t b = n / c.max_blocks / c.num_lists, list = n / c.max_blocks % c.num_lists;
            const int32_t block = n % c.max_blocks;
            if (block < c.num_candidates[b] && rank_case_block(&c, b, block) >= 0) {
                const struct rank_truth truth = rank_case_truth(&c, b, list, block);
                const double score = (double)rank_case_scores(&c, b, list)[block];
                CU_ASSERT(score >= truth.largest_product);
                CU_ASSERT(score >= truth.bound);
                CU_ASSERT(score <= truth.bound + score_slack(&c, truth.size));
            }
        }
        rank_case_free(&c);
    }
    pkv_workspace_destroy(workspace);
}

/* List n of all, row b's list-th: how many blocks it leaves out. */
static int32_t check_left_out(const struct rank_case *c, int32_t n, int32_t b, int32_t list)
{
    const float *scores = rank_case_scores(c, b, list);
    float least = INFINITY;
    int32_t num_left_out = 0;
    for (int32_t at = c->cu_selected[n]; at < c->cu_selected[n + 1]; at++) {
        least = fminf(least, scores[c->selected[at]]);
    }
    for (int32_t block = 0; block < c->num_candidates[b]; block++) {
        if (rank_case_block(c, b, block) >= 0 && !rank_case_is_chosen(c, n, block)) {
            CU_ASSERT(rank_case_truth(c, b, list, block).largest_product <= (double)least);
            num_left_out++;
        }
    }
    return num_left_out;
}

/* No block is left out that holds a key above the least score of a block that is chosen. */
static void a_block_left_out_holds_no_key_above_a_chosen_score(void)
{
    pkv_workspace *workspace = case_workspace(1);
    int32_t num_left_out = 0;
    for (int i = 0; i < 120; i++) {
        struct rank_case c;
        rank_case_make(&c, test_seed() + (uint64_t)i, (enum pkv_dtype)(i % 5));
        CU_ASSERT_FATAL(rank_case_run(&c, workspace));
        for (int32_t n = 0; n < c.args.batch * c.num_lists; n++) {
            num_left_out += check_left_out(&c, n, n / c.num_lists, n % c.num_lists);
        }
        rank_case_free(&c);
    }
    CU_ASSERT(num_left_out > 100);
    pkv_workspace_destroy(workspace);
}

/* By repeated search for the best that is left. */
static int32_t plain_top(const float *scores, int32_t count, int32_t most, int32_t *chosen)
{
    bool is_taken[256] = {false};
    int32_t num_chosen = 0;
    for (int32_t i = 0; i < most; i++) {
        int32_t best = -1;
        for (int32_t n = 0; n < count; n++) {
            if (!is_taken[n] && scores[n] != -INFINITY && (best < 0 || scores[n] > scores[best])) {
                best = n;
            }
        }
        if (best < 0) {
            break;
        }
        is_taken[best] = true;
    }
    for (int32_t n = 0; n < count; n++) {
        if (is_taken[n]) {
            chosen[num_chosen++] = n;
        }
    }
    return num_chosen;
}

static void the_best_are_chosen_in_order_and_ties_go_to_the_lower_block(void)
{
    struct test_random random = {test_seed()};
    for (int i = 0; i < 3000; i++) {
        float scores[256];
        int32_t found[257], expected[256];
        const int32_t count = random_between(&random, 0, 256), levels = i % 7 == 0 ? 1000 : i % 7;
        const int32_t most =
            i % 3 == 0 ? random_between(&random, 1, 5) : random_between(&random, 1, 300);
        const int32_t room = most < count ? most : count;
        for (int32_t n = 0; n < count; n++) {
            const int32_t level = random_between(&random, -levels, levels);
            scores[n] = level == 3 ? INFINITY : level == -3 ? -INFINITY : (float)level;
        }
        found[room] = -99;
        const int32_t num_expected = plain_top(scores, count, most, expected);
        CU_ASSERT_EQUAL(top_blocks(scores, count, most, found), num_expected);
        CU_ASSERT(memcmp(found, expected, (size_t)num_expected * sizeof found[0]) == 0);
        CU_ASSERT_EQUAL(found[room], -99);
    }
}

/* Lists of random tables, where blocks repeat, are not mapped, and are equal. */
static void lists_are_the_best_scores_of_each_row(void)
{
    pkv_workspace *workspace = case_workspace(1);
    for (int i = 0; i < 60; i++) {
        struct rank_case c;
        rank_case_make(&c, test_seed() + 7 * (uint64_t)i, PKV_F16);
        CU_ASSERT_FATAL(rank_case_run(&c, workspace));
        CU_ASSERT_EQUAL(c.cu_selected[0], 0);
        for (int32_t n = 0; n < c.args.batch * c.num_lists; n++) {
            const int32_t b = n / c.num_lists;
            int32_t expected[RANK_MAX_BLOCKS];
            const float *scores = rank_case_scores(&c, b, n % c.num_lists);
            const int32_t count =
                plain_top(scores, c.num_candidates[b], c.rank.max_selected, expected);
            CU_ASSERT_EQUAL(c.cu_selected[n + 1] - c.cu_selected[n], count);
            CU_ASSERT(memcmp(c.selected + c.cu_selected[n], expected,
                             (size_t)count * sizeof expected[0]) == 0);
            for (int32_t block = 0; block < c.num_candidates[b]; block++) {
                CU_ASSERT((scores[block] == -INFINITY) == (rank_case_block(&c, b, block) < 0));
            }
            CU_ASSERT(isnan(scores[c.max_blocks - 1]) || c.num_candidates[b] == c.max_blocks);
        }
        rank_case_free(&c);
    }
    pkv_workspace_destroy(workspace);
}

static bool same_lists(const struct rank_case *a, const int32_t *cu, const int32_t *selected)
{
    const size_t lists = (size_t)(a->args.batch * a->num_lists);
    return memcmp(a->cu_selected, cu, (lists + 1) * sizeof cu[0]) == 0 &&
           memcmp(a->selected, selected, (size_t)cu[lists] * sizeof selected[0]) == 0;
}

/* On every instruction set, any number of threads, with scores or without: the same bits. */
static void ranks_are_the_same_on_all_instruction_sets_and_threads(void)
{
    for (int i = 0; i < 20; i++) {
        struct rank_case c;
        rank_case_make(&c, test_seed() + (uint64_t)i, (enum pkv_dtype)(i % 5));
        rank_case_use_rope_and_norm(&c);
        int32_t cu[RANK_MAX_LISTS + 1], selected[RANK_MAX_LISTS * RANK_MAX_BLOCKS];
        float scores[RANK_MAX_LISTS * RANK_MAX_BLOCKS];
        for (int isa = PKV_ISA_SCALAR; isa < PKV_NUM_ISAS; isa++) {
            pkv_workspace *workspace = NULL;
            if (!test_has_isa((enum pkv_isa)isa)) {
                continue;
            }
            ASSERT_STATUS(PKV_OK, pkv_workspace_create(isa, (enum pkv_isa)isa, NULL, &workspace));
            CU_ASSERT_FATAL(rank_case_run(&c, workspace));
            if (isa == PKV_ISA_SCALAR) {
                memcpy(cu, c.cu_selected, sizeof cu);
                memcpy(selected, c.selected, sizeof selected);
                memcpy(scores, c.scores, sizeof scores);
            }
            CU_ASSERT(same_lists(&c, cu, selected));
            CU_ASSERT(memcmp(scores, c.scores, sizeof scores) == 0);
            c.rank.scores = NULL;
            CU_ASSERT_FATAL(rank_case_run(&c, workspace));
            CU_ASSERT(same_lists(&c, cu, selected));
            c.rank.scores = c.scores;
            pkv_workspace_destroy(workspace);
        }
        rank_case_free(&c);
    }
}

/* What runs tasks in place of threads: every worker in turn, the last first. */
struct turns {
    int calls, max_workers;
};

static void run_in_turn(void *context, int32_t num_workers, pkv_task_function *function, void *work)
{
    struct turns *turns = context;
    turns->calls++;
    turns->max_workers = num_workers > turns->max_workers ? num_workers : turns->max_workers;
    for (int32_t worker = num_workers - 1; worker >= 0; worker--) {
        function(work, worker);
    }
}

/* Rows are cut into ranges of blocks, and no bit shows where: threads by a hook and OpenMP's give
 * what one gives. A rank that is over before another thread wakes stays on its own. */
static void the_threads_of_a_rank_give_the_bits_of_one(void)
{
    struct turns turns = {0, 0};
    const struct pkv_hooks hooks = {.context = &turns, .parallel_for = run_in_turn};
    pkv_workspace *alone = case_workspace(1), *threads = case_workspace(3), *hooked = NULL;
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(5, test_isa(), &hooks, &hooked));
    for (int i = 0; i < 60; i++) {
        struct rank_case c;
        rank_case_make(&c, test_seed() + (uint64_t)i, (enum pkv_dtype)(i % 5));
        rank_case_use_rope_and_norm(&c);
        CU_ASSERT_FATAL(rank_case_run(&c, alone));
        int32_t cu[RANK_MAX_LISTS + 1], selected[RANK_MAX_LISTS * RANK_MAX_BLOCKS];
        float scores[RANK_MAX_LISTS * RANK_MAX_BLOCKS];
        memcpy(cu, c.cu_selected, sizeof cu);
        memcpy(selected, c.selected, sizeof selected);
        memcpy(scores, c.scores, sizeof scores);
        CU_ASSERT_FATAL(rank_case_run(&c, hooked));
        CU_ASSERT_EQUAL(turns.calls > 0, i > 0);
        hooked->thread_ns = threads->thread_ns = 1;
        for (int n = 0; n < 4; n++) {
            c.rank.scores = n < 2 ? c.scores : NULL;
            CU_ASSERT_FATAL(rank_case_run(&c, n % 2 ? threads : hooked));
            CU_ASSERT(same_lists(&c, cu, selected));
            CU_ASSERT(memcmp(scores, c.scores, sizeof scores) == 0 || n >= 2);
        }
        rank_case_free(&c);
    }
    CU_ASSERT_EQUAL(turns.max_workers, 5);
    pkv_workspace_destroy(alone);
    pkv_workspace_destroy(threads);
    pkv_workspace_destroy(hooked);
}

/* A row alone has the scores that it has among others. */
static void a_row_ranks_as_it_does_alone(void)
{
    pkv_workspace *workspace = case_workspace(1);
    for (int i = 0; i < 20; i++) {
        struct rank_case c;
        rank_case_make(&c, test_seed() + (uint64_t)i, PKV_BF16);
        CU_ASSERT_FATAL(rank_case_run(&c, workspace));
        struct rank_case alone = c;
        float scores[RANK_MAX_LISTS * RANK_MAX_BLOCKS];
        const int32_t last = c.args.batch - 1, begin = c.cu_seqlens[last];
        const int32_t cu_seqlens[] = {0, c.cu_seqlens[last + 1] - begin};
        alone.args.batch = 1;
        alone.args.num_selected_lists = c.num_lists;
        alone.args.num_tokens = cu_seqlens[1];
        alone.args.cu_seqlens_q = cu_seqlens;
        alone.args.q = (const char *)c.q + (size_t)begin * (size_t)(c.args.num_heads * c.width) *
                                               pkv_dtype_bytes(c.args.dtype);
        alone.args.kv_lens = c.kv_lens + last;
        alone.args.block_table = c.table + last * c.max_blocks;
        alone.rank.num_candidates = c.num_candidates + last;
        alone.rank.scores = scores;
        ASSERT_STATUS(PKV_OK, pkv_block_rank(workspace, &alone.args, &alone.rank));
        for (int32_t list = 0; list < c.num_lists; list++) {
            CU_ASSERT(memcmp(scores + list * c.max_blocks, rank_case_scores(&c, last, list),
                             (size_t)c.num_candidates[last] * sizeof scores[0]) == 0);
        }
        rank_case_free(&c);
    }
    pkv_workspace_destroy(workspace);
}

/* Rotated and normed as attention would: an append of the queries as keys says what that gives. */
static void queries_are_rotated_and_normed_as_attention_has_them(void)
{
    pkv_workspace *workspace = case_workspace(1);
    for (int i = 0; i < 20; i++) {
        struct rank_case c;
        rank_case_make(&c, test_seed() + (uint64_t)i, PKV_F32);
        rank_case_use_rope_and_norm(&c);
        c.rope.norm_order = (enum pkv_norm_order)(i % 2);
        c.args.constants = c.rope;
        CU_ASSERT_FATAL(rank_case_run(&c, workspace));
        struct rank_case plain = c;
        float scores[RANK_MAX_LISTS * RANK_MAX_BLOCKS];
        float *prepared = rank_case_prepared_queries(&c, workspace);
        plain.args.constants = (struct pkv_attn_constants){0};
        plain.args.position_ids = NULL;
        plain.args.q = prepared;
        plain.args.dtype = PKV_F32;
        plain.args.q_stride = 0;
        plain.rank.scores = scores;
        ASSERT_STATUS(PKV_OK, pkv_block_rank(workspace, &plain.args, &plain.rank));
        for (int32_t n = 0; n < c.args.batch * c.num_lists; n++) {
            CU_ASSERT(memcmp(scores + n * c.max_blocks, c.scores + n * c.max_blocks,
                             (size_t)c.num_candidates[n / c.num_lists] * sizeof scores[0]) == 0);
        }
        free(prepared);
        rank_case_free(&c);
    }
    pkv_workspace_destroy(workspace);
}

/* One row, one head of two channels, blocks of one key; 0 .. 4 are full before the call. */
struct small {
    float keys[6][2], values[6][2], bounds[6][2][2], q[2], scores[6];
    int32_t kv_len, selected[5], cu[2];
    struct pkv_gqa_args args;
    struct pkv_rank_args rank;
};

static void small_make(struct small *s, int32_t most)
{
    memset(s, 0, sizeof *s);
    s->q[0] = 1;
    s->q[1] = -1;
    s->kv_len = 6; /* the new key is none that has bounds */
    s->args = case_f32_args(PKV_CACHE_CONTINUOUS, 1, 1, 1, 2);
    s->args.past = case_f32_view(&s->keys[0][0], &s->values[0][0], 1, 1, 6, 2);
    s->args.kv_lens = &s->kv_len;
    s->args.q = s->q;
    s->args.k = s->args.v = s->q;
    s->args.num_selected_lists = 1;
    s->args.selection_size = 1;
    s->rank = (struct pkv_rank_args){.size = sizeof s->rank,
                                     .bounds = &s->bounds[0][0][0],
                                     .max_selected = most,
                                     .selected = s->selected,
                                     .cu_selected = s->cu,
                                     .scores = s->scores,
                                     .scores_stride = 6};
}

static void set_bounds(struct small *s, int32_t block, float first, float second)
{
    s->bounds[block][0][0] = s->bounds[block][1][0] = first;
    s->bounds[block][0][1] = s->bounds[block][1][1] = second;
}

static void assert_list(const struct small *s, pkv_workspace *workspace, const int32_t *expected,
                        int32_t count)
{
    ASSERT_STATUS(PKV_OK, pkv_block_rank(workspace, &s->args, &s->rank));
    CU_ASSERT_EQUAL(s->cu[1], count);
    CU_ASSERT(memcmp(s->selected, expected, (size_t)count * sizeof expected[0]) == 0);
}

/* A key that is NaN or infinite could have any weight, and so could a sum that overflows. */
static void what_is_not_finite_ranks_first(void)
{
    static const int32_t first[] = {1, 3};
    pkv_workspace *workspace = case_workspace(1);
    struct small s;
    for (int i = 0; i < 6; i++) {
        small_make(&s, 2);
        for (int32_t n = 0; n < 5; n++) {
            set_bounds(&s, n, 100 + (float)n, 0);
        }
        set_bounds(&s, 3, NAN, 0);
        set_bounds(&s, 1, i % 2 ? INFINITY : 0, i % 2 ? 0 : NAN);
        if (i / 2 == 1) { /* a channel that q does not look at */
            s.q[0] = 0;
        } else if (i / 2 == 2) { /* both above what a float holds, the one far below 0 */
            set_bounds(&s, 1, -FLT_MAX, FLT_MAX);
            s.q[0] = s.q[1] = 2;
            s.q[1] = -2;
        }
        assert_list(&s, workspace, first, 2);
        CU_ASSERT(s.scores[1] == INFINITY && s.scores[3] == INFINITY);
    }
    small_make(&s, 2);
    s.q[1] = NAN; /* then all scores are equal */
    assert_list(&s, workspace, (const int32_t[]){0, 1}, 2);
    pkv_workspace_destroy(workspace);
}

/* A q_scale below 0 turns the order round; 0 and a positive one change nothing. */
static void a_negative_scale_ranks_by_the_negative_query(void)
{
    pkv_workspace *workspace = case_workspace(1);
    struct small s;
    float scale = -0.5f;
    small_make(&s, 2);
    for (int32_t n = 0; n < 5; n++) {
        set_bounds(&s, n, (float)n, 0);
    }
    assert_list(&s, workspace, (const int32_t[]){3, 4}, 2);
    s.args.constants.q_scale = &scale;
    assert_list(&s, workspace, (const int32_t[]){0, 1}, 2);
    scale = 0.5f;
    assert_list(&s, workspace, (const int32_t[]){3, 4}, 2);
    pkv_workspace_destroy(workspace);
}

/* Products and slack of numbers that are almost 0. */
static void a_bound_holds_where_products_vanish(void)
{
    pkv_workspace *workspace = case_workspace(1);
    struct small s;
    small_make(&s, 5);
    s.q[0] = 0x1p-80f;
    s.q[1] = 0x1p100f;
    for (int32_t n = 0; n < 5; n++) {
        set_bounds(&s, n, (float)(n + 1) * 0x1.8p-80f, (float)(n - 2) * FLT_TRUE_MIN);
    }
    ASSERT_STATUS(PKV_OK, pkv_block_rank(workspace, &s.args, &s.rank));
    for (int32_t n = 0; n < 5; n++) {
        const double exact =
            (double)s.q[0] * (double)s.bounds[n][0][0] + (double)s.q[1] * (double)s.bounds[n][0][1];
        CU_ASSERT((double)s.scores[n] >= exact);
    }
    pkv_workspace_destroy(workspace);
}

/* Those that are full before the call and not shown by selected_newest anyway. */
static void candidates_are_the_full_blocks_that_newest_keys_do_not_show(void)
{
    static const struct {
        int32_t kv_len, q_len, size;
        int64_t newest;
        int32_t expected;
    } rows[] = {
        {101, 1, 10, 0, 10}, {100, 1, 10, 0, 9},  {101, 1, 10, 10, 10}, {101, 1, 10, 11, 9},
        {101, 1, 10, 21, 8}, {101, 1, 10, 20, 9}, {101, 1, 10, 101, 0}, {101, 1, 10, INT64_MAX, 0},
        {101, 5, 10, 0, 9},  {5, 5, 1, 0, 0},     {64, 1, 1, 3, 61},
    };
    pkv_workspace *workspace = case_workspace(1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        float q[5] = {0}, bounds[2 * 101] = {0}, keys[101] = {0};
        int32_t selected[101], cu[2];
        const int32_t cu_seqlens[] = {0, rows[i].q_len};
        struct pkv_gqa_args args = case_f32_args(PKV_CACHE_DENSE, 1, 1, 1, 1);
        args.past = case_f32_view(keys, keys, 1, 1, 101, 1);
        args.num_tokens = rows[i].q_len;
        args.cu_seqlens_q = cu_seqlens;
        args.kv_lens = &rows[i].kv_len;
        args.q = q;
        args.num_selected_lists = 1;
        args.selection_size = rows[i].size;
        args.selected_newest = rows[i].newest;
        const struct pkv_rank_args rank = {.size = sizeof rank,
                                           .bounds = bounds,
                                           .max_selected = 101,
                                           .selected = selected,
                                           .cu_selected = cu};
        ASSERT_STATUS(PKV_OK, pkv_block_rank(workspace, &args, &rank));
        CU_ASSERT_EQUAL(cu[1], rows[i].expected);
        for (int32_t n = 0; n < cu[1]; n++) {
            CU_ASSERT_EQUAL(selected[n], n);
        }
    }
    pkv_workspace_destroy(workspace);
}

/* Scratch grows once; a call without memory changes nothing and the next one works. */
static void ranks_take_memory_only_while_scratch_grows(void)
{
    struct test_memory memory = {.fail_at = 0};
    const struct pkv_hooks hooks = test_hooks(&memory);
    struct rank_case c;
    rank_case_make(&c, test_seed(), PKV_F16);
    pkv_workspace *workspace = NULL;
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(1, test_isa(), &hooks, &workspace));
    int num_refused = 0;
    enum pkv_status status = PKV_NO_MEMORY;
    c.rank.scores = NULL;
    for (long n = 1; status != PKV_OK && n < 10; n++) {
        memset(c.cu_selected, 9, sizeof c.cu_selected);
        memory.fail_at = n;
        status = pkv_block_rank(workspace, &c.args, &c.rank);
        memory.fail_at = 0;
        CU_ASSERT(status == PKV_OK || (status == PKV_NO_MEMORY && c.cu_selected[0] == 0x09090909));
        num_refused += status != PKV_OK;
    }
    CU_ASSERT(num_refused >= 1);
    memory.fail_at = 1;
    CU_ASSERT_EQUAL(pkv_block_rank(workspace, &c.args, &c.rank), PKV_OK);
    pkv_workspace_destroy(workspace);
    CU_ASSERT_EQUAL(memory.live, 0);
    rank_case_free(&c);
}

/* From pages to bounds to lists to attention: the bits of the masked call over the same lists.
 * Cells without a key are NaN in these cases, and evicted blocks are unmapped. */
static void attention_over_ranked_blocks_has_the_bits_of_the_masked_call(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < 24; i++) {
        struct case_spec spec = case_plain(test_seed() + (uint64_t)i);
        spec.form = i % 3 == 2 ? PKV_CACHE_CONTINUOUS : PKV_CACHE_PAGED;
        spec.dtype = (enum pkv_dtype)(i % 3);
        spec.k_dtype = (enum pkv_dtype)(i % 5);
        spec.v_dtype = (enum pkv_dtype)(i / 5 % 5);
        spec.kv_heads = 2;
        spec.group = 1 + i % 3;
        spec.k_width = 8 + 2 * (i % 4);
        spec.block_size = spec.selection_size = 8;
        spec.selected_newest = 12;
        spec.selected_share = 100; /* every past key is there */
        spec.selects_by_head = i % 2 != 0;
        spec.cell_major = i % 4 == 3;
        spec.padded = i % 4 == 1;
        spec.options = i % 2 ? CASE_ROPE | CASE_NORM | CASE_Q_SCALE : CASE_Q_SCALE;
        case_add_row(&spec, 0, 1, 700);
        case_add_row(&spec, 1, 3, 77);
        case_add_row(&spec, 2, 0, 40);
        struct gqa_case *sparse = gqa_case_make(&spec);
        struct gqa_case *masked = gqa_case_make(&spec);
        int32_t cu[7], selected[6 * 5];
        rank_case_of_call(&sparse->args, workspace, 5, selected, cu);
        sparse->args.selected = masked->args.selected = selected;
        sparse->args.cu_selected = masked->args.cu_selected = cu;
        CU_ASSERT(cu[1] == 5 && selected[4] > selected[0]);
        selection_case_to_mask(masked);
        ASSERT_STATUS(PKV_OK, gqa_case_call(sparse, workspace));
        ASSERT_STATUS(PKV_OK, gqa_case_call(masked, workspace));
        CU_ASSERT(gqa_case_same_rows(sparse, masked));
        gqa_case_free(sparse);
        gqa_case_free(masked);
    }
    pkv_workspace_destroy(workspace);
}

static const struct test_case cases[] = {
    TEST(scores_are_not_below_any_dot_product),
    TEST(a_block_left_out_holds_no_key_above_a_chosen_score),
    TEST(the_best_are_chosen_in_order_and_ties_go_to_the_lower_block),
    TEST(lists_are_the_best_scores_of_each_row),
    TEST(ranks_are_the_same_on_all_instruction_sets_and_threads),
    TEST(the_threads_of_a_rank_give_the_bits_of_one),
    TEST(a_row_ranks_as_it_does_alone),
    TEST(queries_are_rotated_and_normed_as_attention_has_them),
    TEST(what_is_not_finite_ranks_first),
    TEST(a_negative_scale_ranks_by_the_negative_query),
    TEST(a_bound_holds_where_products_vanish),
    TEST(candidates_are_the_full_blocks_that_newest_keys_do_not_show),
    TEST(ranks_take_memory_only_while_scratch_grows),
    TEST(attention_over_ranked_blocks_has_the_bits_of_the_masked_call),
    TEST_END,
};
const struct test_suite suite_block_rank = {"block_rank", cases};
