/* SPDX-License-Identifier: MIT
 *
 * Which arguments pkv_block_rank refuses: each case spoils one thing of a good call; the culprit is
 * named, and neither lists nor scores are written. */
#include <string.h>

#include "support/gqa_case.h"

enum { ROWS = 2, BLOCKS = 6, TABLE = 4, SIZE = 4, WIDTH = 2 };

/* Two rows of one query each, in three blocks of a pool of six. */
struct call {
    float keys[BLOCKS * SIZE * WIDTH], q[ROWS * 2 * WIDTH], bounds[BLOCKS * 2 * WIDTH];
    int32_t table[ROWS * TABLE], kv_lens[ROWS], slots[ROWS], candidates[ROWS];
    int64_t positions[ROWS];
    int32_t selected[ROWS * TABLE], cu[ROWS + 1];
    float scores[ROWS * TABLE];
    struct pkv_gqa_args args;
    struct pkv_rank_args rank;
};

static void make(struct call *c)
{
    static const int32_t table[] = {0, 2, 4, 1, 5, 3, 5, -1};
    memset(c, 0, sizeof *c);
    memcpy(c->table, table, sizeof table);
    c->kv_lens[0] = 13;
    c->kv_lens[1] = 16;
    c->slots[1] = 1;
    c->candidates[0] = c->candidates[1] = 3;
    c->args = case_f32_args(PKV_CACHE_PAGED, ROWS, 2, 1, WIDTH);
    c->args.past = case_f32_view(c->keys, c->keys, BLOCKS, 1, SIZE, WIDTH);
    c->args.kv_lens = c->kv_lens;
    c->args.block_table = c->table;
    c->args.max_blocks = TABLE;
    c->args.q = c->q;
    c->args.num_selected_lists = ROWS;
    c->rank = (struct pkv_rank_args){.size = sizeof c->rank,
                                     .bounds = c->bounds,
                                     .num_candidates = c->candidates,
                                     .max_selected = 3,
                                     .selected = c->selected,
                                     .cu_selected = c->cu,
                                     .scores = c->scores};
    memset(c->selected, 0x55, sizeof c->selected);
    memset(c->cu, 0x55, sizeof c->cu);
    memset(c->scores, 0x55, sizeof c->scores);
}

static void make_continuous(struct call *c)
{
    make(c);
    c->args.form = PKV_CACHE_CONTINUOUS;
    c->args.past = case_f32_view(c->keys, c->keys, 2, 1, 3 * SIZE, WIDTH);
    c->args.block_table = NULL;
    c->args.max_blocks = 0;
    c->args.slot_ids = c->slots;
    c->args.selection_size = SIZE;
    c->kv_lens[0] = c->kv_lens[1] = 3 * SIZE;
}

static void no_bounds(struct call *c)
{
    c->rank.bounds = NULL;
}
static void no_selected(struct call *c)
{
    c->rank.selected = NULL;
}
static void no_cu_selected(struct call *c)
{
    c->rank.cu_selected = NULL;
}
static void none_selected(struct call *c)
{
    c->rank.max_selected = 0;
}
static void stride_without_scores(struct call *c)
{
    c->rank.scores = NULL;
    c->rank.scores_stride = 4;
}
static void short_stride(struct call *c)
{
    c->rank.scores_stride = 2;
}
static void small_rank(struct call *c)
{
    c->rank.size = 8;
}
static void small_args(struct call *c)
{
    c->args.size = 8;
}
static void no_cache(struct call *c)
{
    c->args.form = PKV_CACHE_NONE;
    c->args.past = (struct pkv_kv_view){.k = NULL};
    c->args.block_table = NULL;
    c->args.max_blocks = 0;
    c->args.kv_lens = NULL;
    c->args.k = c->args.v = c->q;
    c->args.kv_heads = 2;
    c->args.selection_size = 1;
}
static void copied_cache(struct call *c)
{
    make_continuous(c);
    c->args.form = PKV_CACHE_DENSE_COPY;
    c->args.slot_ids = NULL;
    c->args.kv_lens = NULL;
    c->args.k = c->args.v = NULL;
}
static void other_size(struct call *c)
{
    c->args.selection_size = 2 * SIZE;
}
static void no_size(struct call *c)
{
    make_continuous(c);
    c->args.selection_size = 0;
}
static void no_lists(struct call *c)
{
    c->args.num_selected_lists = 0;
}
static void window(struct call *c)
{
    c->args.sliding_window = 9;
}
static void no_queries(struct call *c)
{
    c->args.q = NULL;
}
static void odd_heads(struct call *c)
{
    c->args.num_heads = 3;
    c->args.kv_heads = 2;
}
static void negative_length(struct call *c)
{
    c->kv_lens[1] = -1;
}
static void long_row(struct call *c)
{
    c->kv_lens[1] = 17;
}
static void many_candidates(struct call *c)
{
    c->kv_lens[1] = 8;
}
static void negative_candidates(struct call *c)
{
    c->candidates[0] = -1;
}
static void high_entry(struct call *c)
{
    c->table[TABLE + 2] = BLOCKS;
}
static void low_entry(struct call *c)
{
    c->table[1] = -2;
}
static void slot_twice(struct call *c)
{
    make_continuous(c);
    c->slots[0] = 1;
}
static void high_slot(struct call *c)
{
    make_continuous(c);
    c->slots[1] = 2;
}
static void high_position(struct call *c)
{
    static const float table[4] = {1, 1, 1, 1};
    c->positions[1] = 4;
    c->args.position_ids = c->positions;
    c->args.constants.rope_cos = c->args.constants.rope_sin = table;
    c->args.constants.rope_positions = 4;
    c->args.constants.rope_width = 1;
}
static void scores_over_queries(struct call *c)
{
    c->rank.scores = c->q;
}
static void selected_over_offsets(struct call *c)
{
    c->rank.cu_selected = c->selected + 1;
}
static void selected_over_table(struct call *c)
{
    c->rank.selected = c->table;
}
static void selected_over_lengths(struct call *c)
{
    c->rank.cu_selected = c->kv_lens;
}

static void bad_arguments_refuse_and_are_named(void)
{
    static const struct {
        const char *culprit;
        void (*spoil)(struct call *c);
    } faults[] = {
        {"rank.bounds is NULL", no_bounds},
        {"rank.selected is NULL", no_selected},
        {"rank.cu_selected is NULL", no_cu_selected},
        {"rank.max_selected = 0", none_selected},
        {"rank.scores is NULL with rank.scores_stride = 4", stride_without_scores},
        {"rank.scores_stride = 2, below the 3 candidates", short_stride},
        {"rank", small_rank},
        {"args", small_args},
        {"form = 0", no_cache},
        {"form = 2", copied_cache},
        {"selection_size = 8, not past.block_size = 4", other_size},
        {"selection_size = 0", no_size},
        {"num_selected_lists = 0", no_lists},
        {"sliding_window = 9", window},
        {"q is NULL", no_queries},
        {"num_heads = 3", odd_heads},
        {"kv_lens[1] = -1", negative_length},
        {"kv_lens[1] = 17", long_row},
        {"rank.num_candidates[1] = 3, outside [0, 2]", many_candidates},
        {"rank.num_candidates[0] = -1, outside [0, 4]", negative_candidates},
        {"block_table[1][2] = 6, outside [0, 6)", high_entry},
        {"block_table[0][1] = -2, outside", low_entry},
        {"slot_ids[1] = 1, named twice", slot_twice},
        {"slot_ids[1] = 2, outside", high_slot},
        {"position_ids[1] = 4", high_position},
        {"rank.scores overlaps q", scores_over_queries},
        {"rank.selected overlaps rank.cu_selected", selected_over_offsets},
        {"rank.selected overlaps block_table", selected_over_table},
        {"rank.cu_selected overlaps kv_lens", selected_over_lengths},
    };
    pkv_workspace *workspace = case_workspace(1);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        static struct call c, before;
        make(&c);
        faults[i].spoil(&c);
        before = c;
        ASSERT_CASE_REFUSED(faults[i].culprit, PKV_INVALID_ARGUMENT, faults[i].culprit,
                            pkv_block_rank(workspace, &c.args, &c.rank));
        ASSERT_CASE(faults[i].culprit, memcmp(&before, &c, sizeof c) == 0);
    }
    pkv_workspace_destroy(workspace);
}

static void null_and_unknown_structs_refuse(void)
{
    struct call c;
    struct {
        struct pkv_rank_args known;
        uint64_t later;
    } longer;
    pkv_workspace *workspace = case_workspace(1);
    make(&c);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "workspace is NULL",
                   pkv_block_rank(NULL, &c.args, &c.rank));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "args", pkv_block_rank(workspace, NULL, &c.rank));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "rank", pkv_block_rank(workspace, &c.args, NULL));
    memset(&longer, 0, sizeof longer);
    longer.known = c.rank;
    longer.known.size = sizeof longer;
    ASSERT_STATUS(PKV_OK, pkv_block_rank(workspace, &c.args, &longer.known));
    longer.later = 1;
    CU_ASSERT_EQUAL(pkv_block_rank(workspace, &c.args, &longer.known), PKV_UNSUPPORTED);
    pkv_workspace_destroy(workspace);
}

/* What the widening allows for ends there. */
static void keys_that_are_too_wide_are_unsupported(void)
{
    struct call c;
    pkv_workspace *workspace = case_workspace(1);
    make(&c);
    c.args.k_width = c.args.past.k_width = 65537;
    c.args.v_width = c.args.past.v_width = WIDTH;
    ASSERT_REFUSED(PKV_UNSUPPORTED, "k_width = 65537", pkv_block_rank(workspace, &c.args, &c.rank));
    pkv_workspace_destroy(workspace);
}

/* As attention over selected blocks does; parents that form the chain change nothing. */
static void trees_of_drafts_are_unsupported(void)
{
    struct call c;
    static const int32_t cu[] = {0, 0, 2};
    int32_t parents[] = {-1, -1}, chain[ROWS + 1];
    pkv_workspace *workspace = case_workspace(1);
    make(&c);
    c.args.cu_seqlens_q = cu;
    c.args.parents = parents;
    ASSERT_REFUSED(PKV_UNSUPPORTED, "row 1 is a tree", pkv_block_rank(workspace, &c.args, &c.rank));
    parents[1] = 0;
    ASSERT_STATUS(PKV_OK, pkv_block_rank(workspace, &c.args, &c.rank));
    memcpy(chain, c.cu, sizeof chain);
    c.args.parents = NULL;
    ASSERT_STATUS(PKV_OK, pkv_block_rank(workspace, &c.args, &c.rank));
    CU_ASSERT(memcmp(chain, c.cu, sizeof chain) == 0 && c.cu[1] == 0 && c.cu[2] == 3);
    pkv_workspace_destroy(workspace);
}

/* As far as they are not candidates, entries may be anything; and a call may have no row. */
static void what_is_not_read_is_not_judged(void)
{
    struct call c;
    pkv_workspace *workspace = case_workspace(1);
    make(&c);
    c.candidates[0] = 1;
    c.table[1] = c.table[3] = 1 << 30;
    c.table[2] = c.table[0];
    ASSERT_STATUS(PKV_OK, pkv_block_rank(workspace, &c.args, &c.rank));
    CU_ASSERT(c.cu[0] == 0 && c.cu[1] == 1 && c.cu[2] == 4);
    make_continuous(&c);
    ASSERT_STATUS(PKV_OK, pkv_block_rank(workspace, &c.args, &c.rank));
    CU_ASSERT_EQUAL(c.cu[2], 6);
    c.args.batch = c.args.num_tokens = c.args.num_selected_lists = 0;
    memset(c.cu, 9, sizeof c.cu);
    ASSERT_STATUS(PKV_OK, pkv_block_rank(workspace, &c.args, &c.rank));
    CU_ASSERT_EQUAL(c.cu[0], 0);
    pkv_workspace_destroy(workspace);
}

static const struct test_case cases[] = {
    TEST(bad_arguments_refuse_and_are_named),     TEST(null_and_unknown_structs_refuse),
    TEST(keys_that_are_too_wide_are_unsupported), TEST(trees_of_drafts_are_unsupported),
    TEST(what_is_not_read_is_not_judged),         TEST_END,
};
const struct test_suite suite_block_rank_refuse = {"block_rank_refuse", cases};
