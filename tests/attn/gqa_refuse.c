/* SPDX-License-Identifier: MIT
 *
 * What the operator refuses. Each entry of a table spoils one good call; the call must then answer
 * PKV_INVALID_ARGUMENT, name the culprit in the last error, and leave every byte of caches and
 * outputs (guards around them included) as it was; planning must refuse the same. Entries are in
 * the order of validation: presence and dtypes, heads, pairs, scalars, lengths, capacity, slots,
 * block tables, positions, overlap. What the options refuse is in gqa_options.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/gqa_case.h"
#include "support/spoil.h"

struct refusal {
    const char *name;
    void (*spoil)(struct gqa_case *c);
    const char *culprit; /* part of the last error */
};

static const int all_regions = REGION_INPUT | REGION_CACHE | REGION_OUTPUT;

/* Good calls: two rows with past, the first with two tokens. */
static struct case_spec good(enum pkv_cache_form form)
{
    struct case_spec spec = case_plain(test_seed());
    spec.form = form;
    spec.group = 2;
    spec.kv_heads = 2;
    case_add_row(&spec, 0, 2, 9);
    case_add_row(&spec, 1, form == PKV_CACHE_DENSE_COPY ? 2 : 1,
                 form == PKV_CACHE_DENSE_COPY ? 9 : 6);
    return spec;
}

/* Planning runs nothing, so it is asked first: what it accepts by mistake is not then run. */
static enum pkv_status status_of(const struct gqa_case *c, pkv_workspace *workspace)
{
    pkv_plan *plan = NULL;
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    const enum pkv_status status = pkv_gqa_plan(workspace, &c->args, plan);
    pkv_plan_destroy(plan);
    return status == PKV_INVALID_ARGUMENT ? gqa_case_call(c, workspace) : status;
}

static void assert_refuses(const struct case_spec *spec, const struct refusal *refusal)
{
    pkv_workspace *workspace = case_workspace(2);
    struct gqa_case *c = gqa_case_make(spec);
    refusal->spoil(c);
    gqa_case_snapshot(c);
    const enum pkv_status status = status_of(c, workspace);
    ASSERT_CASE_REFUSED(refusal->name, PKV_INVALID_ARGUMENT, refusal->culprit, status);
    ASSERT_CASE(refusal->name, gqa_case_changed(c, all_regions) == -1);
    gqa_case_free(c);
    pkv_workspace_destroy(workspace);
}

/* The table ends with a NULL name. */
static void assert_all_refuse(const struct case_spec *spec, const struct refusal *refusals)
{
    pkv_workspace *workspace = case_workspace(2);
    struct gqa_case *c = gqa_case_make(spec);
    ASSERT_STATUS(PKV_OK, gqa_case_call(c, workspace));
    gqa_case_free(c);
    pkv_workspace_destroy(workspace);
    for (const struct refusal *r = refusals; r->name != NULL; r++) {
        assert_refuses(spec, r);
    }
}

/* A refusal is a statement on the arguments of a good call. */
#define SPOILED struct gqa_case *c

/* 1 presence and dtypes */
SPOIL(size_zero, c->args.size = 0)
SPOIL(size_small, c->args.size = offsetof(struct pkv_gqa_args, cu_bidirectional))
SPOIL(form_unknown, c->args.form = (enum pkv_cache_form)9)
SPOIL(dtype_int8, c->args.dtype = PKV_INT8)
SPOIL(dtype_unknown, c->args.dtype = (enum pkv_dtype)77)
SPOIL(k_dtype_unknown, c->args.past.k_dtype = (enum pkv_dtype)77)
SPOIL(v_dtype_unknown, c->args.past.v_dtype = (enum pkv_dtype)(-1))
SPOIL(q_absent, c->args.q = NULL)
SPOIL(out_absent, c->args.out = NULL)
SPOIL(past_k_absent, c->args.past.k = NULL)
SPOIL(past_v_absent, c->args.past.v = NULL)
SPOIL(kv_lens_absent, c->args.kv_lens = NULL)
SPOIL(table_absent, c->args.block_table = NULL)
SPOIL(cu_seqlens_absent, c->args.cu_seqlens_q = NULL)
SPOIL(batch_negative, c->args.batch = -1)
SPOIL(tokens_negative, c->args.num_tokens = -1)
SPOIL(num_blocks_zero, c->args.past.num_blocks = 0)
SPOIL(num_blocks_negative, c->args.past.num_blocks = -5)
SPOIL(block_size_zero, c->args.past.block_size = 0)
SPOIL(block_size_negative, c->args.past.block_size = -4)
SPOIL(max_blocks_negative, c->args.max_blocks = -1)
SPOIL(batch_zero_with_tokens, c->args.batch = 0; c->args.cu_seqlens_q = NULL)

static void missing_and_unknown_arguments_refuse(void)
{
    static const struct refusal refusals[] = {
        {"size 0", size_zero, "size"},
        {"size too small", size_small, "size"},
        {"unknown form", form_unknown, "form"},
        {"dtype int8", dtype_int8, "dtype"},
        {"unknown dtype", dtype_unknown, "dtype"},
        {"unknown K dtype", k_dtype_unknown, "k_dtype"},
        {"unknown V dtype", v_dtype_unknown, "v_dtype"},
        {"no q", q_absent, "q"},
        {"no out", out_absent, "out"},
        {"no past K", past_k_absent, "past"},
        {"no past V", past_v_absent, "past"},
        {"no kv_lens", kv_lens_absent, "kv_lens"},
        {"no block table", table_absent, "block_table"},
        {"no cu_seqlens_q but more tokens than rows", cu_seqlens_absent, "num_tokens"},
        {"negative batch", batch_negative, "batch"},
        {"negative num_tokens", tokens_negative, "num_tokens"},
        {"num_blocks 0", num_blocks_zero, "num_blocks"},
        {"negative num_blocks", num_blocks_negative, "num_blocks"},
        {"block_size 0", block_size_zero, "block_size"},
        {"negative block_size", block_size_negative, "block_size"},
        {"negative max_blocks", max_blocks_negative, "max_blocks"},
        {"no rows but tokens", batch_zero_with_tokens, "num_tokens"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_PAGED);
    assert_all_refuse(&spec, refusals);
}

/* 2 heads and widths */
SPOIL(heads_zero, c->args.num_heads = 0)
SPOIL(heads_negative, c->args.num_heads = -4)
SPOIL(kv_heads_zero, c->args.kv_heads = 0)
SPOIL(kv_heads_negative, c->args.kv_heads = -2)
SPOIL(heads_three_over_two, c->args.num_heads = 3)
SPOIL(heads_thirty_three_over_two, c->args.num_heads = 33)
SPOIL(heads_fewer, c->args.num_heads = 1)
SPOIL(k_width_zero, c->args.k_width = 0)
SPOIL(k_width_negative, c->args.k_width = -8)
SPOIL(v_width_negative, c->args.v_width = -8)
SPOIL(cache_heads_differ, c->args.past.kv_heads = 1)
SPOIL(cache_k_width_differs, c->args.past.k_width = 7)
SPOIL(cache_v_width_differs, c->args.past.v_width = 9)
SPOIL(q_stride_short, c->args.q_stride = 31)
SPOIL(k_stride_short, c->args.k_stride = 15)
SPOIL(v_stride_short, c->args.v_stride = 1)
SPOIL(out_stride_short, c->args.out_stride = 31)
SPOIL(cell_stride_short, c->args.past.k_cell_stride = 7)
SPOIL(head_stride_short, c->args.past.k_head_stride = 7)
SPOIL(block_stride_short, c->args.past.k_block_stride = 7)
SPOIL(v_block_stride_short, c->args.past.v_block_stride = 1)
SPOIL(block_stride_huge, c->args.past.v_block_stride = SIZE_MAX / 2)
SPOIL(q_stride_huge, c->args.q_stride = SIZE_MAX / 2)

/* B8: numbers of query heads that are no multiple of the KV heads are refused. */
static void heads_and_widths_that_do_not_fit_refuse(void)
{
    static const struct refusal refusals[] = {
        {"num_heads 0", heads_zero, "num_heads"},
        {"negative num_heads", heads_negative, "num_heads"},
        {"kv_heads 0", kv_heads_zero, "kv_heads"},
        {"negative kv_heads", kv_heads_negative, "kv_heads"},
        {"3 heads over 2", heads_three_over_two, "num_heads"},
        {"33 heads over 2", heads_thirty_three_over_two, "num_heads"},
        {"1 head over 2", heads_fewer, "num_heads"},
        {"k_width 0", k_width_zero, "k_width"},
        {"negative k_width", k_width_negative, "k_width"},
        {"negative v_width", v_width_negative, "v_width"},
        {"the cache has other heads", cache_heads_differ, "kv_heads"},
        {"the cache has another k_width", cache_k_width_differs, "k_width"},
        {"the cache has another v_width", cache_v_width_differs, "v_width"},
        {"q_stride below a row", q_stride_short, "q_stride"},
        {"k_stride below a row", k_stride_short, "k_stride"},
        {"v_stride below a row", v_stride_short, "v_stride"},
        {"out_stride below a row", out_stride_short, "out_stride"},
        {"cell stride below a cell", cell_stride_short, "past.k"},
        {"head stride below a cell", head_stride_short, "past.k strides"},
        {"block stride below a cell", block_stride_short, "past.k strides"},
        {"block stride of values below a cell", v_block_stride_short, "past.v strides"},
        {"a block stride that leaves the address space", block_stride_huge, "past"},
        {"a q stride that leaves the address space", q_stride_huge, "q"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_PAGED);
    assert_all_refuse(&spec, refusals);
}

/* 3 both or neither */
SPOIL(k_alone, c->args.v = NULL)
SPOIL(v_alone, c->args.k = NULL)
SPOIL(v_beside_v_in_k, c->args.v_in_k = true)
SPOIL(present_half, c->args.present = c->args.past; c->args.present.v = NULL)
SPOIL(present_elsewhere, c->args.present = c->args.past;
      c->args.present.k = (float *)c->args.present.k + 4)

static void pairs_with_one_side_refuse(void)
{
    static const struct refusal refusals[] = {
        {"k without v", k_alone, "v"},
        {"v without k", v_alone, "k"},
        {"v beside v_in_k", v_beside_v_in_k, "v"},
        {"present with K alone", present_half, "present"},
        {"present neither past nor absent", present_elsewhere, "present"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_PAGED);
    assert_all_refuse(&spec, refusals);
}

/* 4 scalars */
static const float nan_scale = NAN, infinite_scale = INFINITY;
SPOIL(window_negative, c->args.sliding_window = -1)
SPOIL(window_not_causal, c->args.sliding_window = 3; c->args.not_causal = true)
SPOIL(kept_not_causal, c->args.kept_prefix = c->kept_prefix; c->args.kept_prefix_count = 1;
      c->kept_prefix[0] = 2; c->args.not_causal = true)
SPOIL(kept_negative, c->args.kept_prefix = c->kept_prefix; c->args.kept_prefix_count = 2;
      c->kept_prefix[1] = -1)
SPOIL(kept_three, c->args.kept_prefix = c->kept_prefix; c->args.kept_prefix_count = 3)
SPOIL(kept_absent, c->args.kept_prefix = NULL; c->args.kept_prefix_count = 1)
SPOIL(kept_uncounted, c->args.kept_prefix = c->kept_prefix; c->args.kept_prefix_count = 0)
SPOIL(scale_nan, c->args.constants.q_scale = &nan_scale)
SPOIL(scale_infinite, c->args.constants.q_scale = &infinite_scale)
SPOIL(softcap_negative, c->args.constants.softcap = -1)
SPOIL(softcap_nan, c->args.constants.softcap = NAN)
SPOIL(softcap_infinite, c->args.constants.softcap = INFINITY)
SPOIL(eps_negative, c->args.constants.qk_norm_eps = -1e-6f)
SPOIL(eps_alone, c->args.constants.qk_norm_eps = 1e-6f)
SPOIL(norm_order_alone, c->args.constants.norm_order = PKV_NORM_BEFORE_ROPE)
SPOIL(offset_alone, c->args.constants.rotary_offset = 2)
SPOIL(mode_alone, c->args.constants.rotary_mode = PKV_ROTARY_INTERLEAVED)
SPOIL(mode_unknown, c->args.constants.rotary_mode = (enum pkv_rotary_mode)7)
SPOIL(scale_on_floats, c->args.constants.k_scale = &c->q_scale; c->args.constants.k_scale_count = 1)
SPOIL(codes_without_scale, c->args.past.k_dtype = PKV_INT8)

static void scalars_out_of_range_refuse(void)
{
    static const struct refusal refusals[] = {
        {"negative window", window_negative, "sliding_window"},
        {"window without causality", window_not_causal, "sliding_window"},
        {"kept prefix without causality", kept_not_causal, "kept_prefix"},
        {"negative kept prefix", kept_negative, "kept_prefix[1]"},
        {"three kept prefixes for two rows", kept_three, "kept_prefix_count"},
        {"kept prefix without a count", kept_uncounted, "kept_prefix"},
        {"a count without a kept prefix", kept_absent, "kept_prefix_count = 1"},
        {"q_scale NaN", scale_nan, "q_scale"},
        {"q_scale infinite", scale_infinite, "q_scale"},
        {"negative softcap", softcap_negative, "softcap"},
        {"softcap NaN", softcap_nan, "softcap"},
        {"softcap infinite", softcap_infinite, "softcap"},
        {"negative eps", eps_negative, "qk_norm_eps"},
        {"eps without a norm weight", eps_alone, "qk_norm_eps"},
        {"norm order without a norm weight", norm_order_alone, "norm_order"},
        {"rotary offset without cos/sin tables", offset_alone, "rotary_offset"},
        {"rotary mode without cos/sin tables", mode_alone, "rotary_mode"},
        {"unknown rotary mode", mode_unknown, "rotary_mode"},
        {"scale of a float cache", scale_on_floats, "k_scale"},
        {"codes without a scale", codes_without_scale, "k_scale"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_PAGED);
    assert_all_refuse(&spec, refusals);
}

/* 5 lengths */
SPOIL(cu_falls, c->cu_seqlens_q[1] = 4)
SPOIL(cu_starts_late, c->cu_seqlens_q[0] = 1)
SPOIL(cu_negative, c->cu_seqlens_q[1] = -1)
SPOIL(cu_ends_early, c->cu_seqlens_q[2] = 2)
SPOIL(cu_ends_late, c->cu_seqlens_q[2] = 4)
SPOIL(kv_negative, c->kv_lens[1] = -1)
SPOIL(kv_zero, c->kv_lens[1] = 0)
SPOIL(kv_below_q, c->kv_lens[0] = 1)
SPOIL(kv_int32_max, c->kv_lens[1] = INT32_MAX)
SPOIL(kv_int32_min, c->kv_lens[1] = INT32_MIN)
SPOIL(cu_k_on_a_cache, c->args.cu_seqlens_k = c->cu_seqlens_k)

/* B3: lengths and offsets that lead outside are refused before anything is read. */
static void lengths_that_contradict_each_other_refuse(void)
{
    static const struct refusal refusals[] = {
        {"cu_seqlens_q falls", cu_falls, "cu_seqlens_q[2]"},
        {"cu_seqlens_q starts at 1", cu_starts_late, "cu_seqlens_q[0]"},
        {"cu_seqlens_q goes below 0", cu_negative, "cu_seqlens_q[1]"},
        {"cu_seqlens_q ends before num_tokens", cu_ends_early, "cu_seqlens_q[2]"},
        {"cu_seqlens_q ends after num_tokens", cu_ends_late, "cu_seqlens_q[2]"},
        {"negative kv_len", kv_negative, "kv_lens[1]"},
        {"kv_len 0 with a token", kv_zero, "kv_lens[1]"},
        {"kv_len below q_len", kv_below_q, "kv_lens[0]"},
        {"kv_len INT32_MAX", kv_int32_max, "kv_lens[1]"},
        {"kv_len INT32_MIN", kv_int32_min, "kv_lens[1]"},
        {"cu_seqlens_k beside a cache", cu_k_on_a_cache, "cu_seqlens_k"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_PAGED);
    assert_all_refuse(&spec, refusals);
}

static void causal_read_of_fewer_keys_than_queries_refuses(void)
{
    static const struct refusal refusals[] = {{"kv_len below q_len", kv_below_q, "kv_lens[0]"},
                                              {"kv_len 0", kv_zero, "kv_lens[1]"},
                                              {NULL, NULL, NULL}};
    struct case_spec spec = good(PKV_CACHE_PAGED);
    spec.read_only = true;
    assert_all_refuse(&spec, refusals);
}

SPOIL(cu_k_falls, c->cu_seqlens_k[1] = 20)
SPOIL(cu_k_starts_late, c->cu_seqlens_k[0] = 1)
SPOIL(keys_fewer, c->cu_seqlens_k[1] = 1)
SPOIL(table_without_cache, c->args.block_table = c->kv_lens; c->args.max_blocks = 1)
SPOIL(slots_without_cache, c->args.slot_ids = c->kv_lens)
SPOIL(keys_absent, c->args.k = c->args.v = NULL)
SPOIL(past_k_without_cache, c->args.past.k = c->kv_lens)
SPOIL(past_v_without_cache, c->args.past.v = c->kv_lens)

static void call_without_a_cache_refuses_what_belongs_to_one(void)
{
    static const struct refusal refusals[] = {
        {"cu_seqlens_k falls", cu_k_falls, "cu_seqlens_k[2]"},
        {"cu_seqlens_k starts at 1", cu_k_starts_late, "cu_seqlens_k[0]"},
        {"fewer keys than queries", keys_fewer, "[0] = 1"},
        {"a block table", table_without_cache, "block_table"},
        {"slot ids", slots_without_cache, "slot_ids"},
        {"no keys", keys_absent, "k"},
        {"a past K", past_k_without_cache, "past"},
        {"a past V", past_v_without_cache, "past"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_NONE);
    assert_all_refuse(&spec, refusals);
}

/* There is nothing to append to, and nothing to read. */
static void sister_calls_refuse_to_go_without_a_cache(void)
{
    const struct case_spec spec = good(PKV_CACHE_NONE);
    pkv_workspace *workspace = case_workspace(2);
    struct gqa_case *c = gqa_case_make(&spec);
    struct pkv_gqa_args args = c->args;
    gqa_case_snapshot(c);
    args.q = NULL;
    args.out = NULL;
    args.lse = NULL;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "form", pkv_append(workspace, &args));
    args = c->args;
    args.k = args.v = NULL;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "form", pkv_attention_over_cache(workspace, &args));
    CU_ASSERT_EQUAL(gqa_case_changed(c, all_regions), -1);
    gqa_case_free(c);
    pkv_workspace_destroy(workspace);
}

/* 6 capacity */

/* B1: a position past the table's row is refused: 32 columns of 4 cells end at position 127. */
static void position_beyond_the_table_s_row_refuses(void)
{
    struct case_spec spec = case_plain(test_seed());
    pkv_workspace *workspace = case_workspace(2);
    case_add_row(&spec, 0, 1, 128);
    case_add_row(&spec, 1, 1, 5);
    struct gqa_case *c = gqa_case_make(&spec);
    c->args.max_blocks =
        32; /* the rows of the table now lie closer: what is named stays in range */
    int32_t table[2][32];
    memset(table, -1, sizeof table);
    for (int32_t i = 0; i < 32; i++) {
        table[0][i] = i;
    }
    table[1][0] = 32;
    table[1][1] = 33;
    c->args.block_table = table[0];
    ASSERT_STATUS(PKV_OK, gqa_case_call(c, workspace));
    gqa_case_snapshot(c);
    for (int32_t b = 0; b < 2; b++) {
        const int32_t good_len = c->kv_lens[b];
        c->kv_lens[b] = 131; /* position 130 is column 32 */
        const enum pkv_status status = gqa_case_call(c, workspace);
        c->kv_lens[b] = good_len;
        ASSERT_REFUSED(PKV_INVALID_ARGUMENT, b == 0 ? "kv_lens[0]" : "kv_lens[1]", status);
        CU_ASSERT_EQUAL(gqa_case_changed(c, all_regions), -1);
    }
    gqa_case_free(c);
    pkv_workspace_destroy(workspace);
}

SPOIL(row_too_long, c->kv_lens[1] = c->args.past.block_size + 1)
SPOIL(rows_too_many, c->args.slot_ids = NULL; c->args.past.num_blocks = 1)
SPOIL(batch_rows_fewer, c->args.past.num_blocks = 1)
SPOIL(slots_given, c->args.slot_ids = c->kv_lens)
SPOIL(dense_table_given, c->args.block_table = c->kv_lens; c->args.max_blocks = 1)

static void dense_rows_beyond_their_capacity_refuse(void)
{
    static const struct refusal refusals[] = {
        {"kv_len beyond max_seq", row_too_long, "kv_lens[1]"},
        {"kv_len INT32_MAX", kv_int32_max, "kv_lens[1]"},
        {"fewer rows than the batch", batch_rows_fewer, "batch"},
        {"slot ids", slots_given, "slot_ids"},
        {"a block table", dense_table_given, "block_table"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_DENSE);
    assert_all_refuse(&spec, refusals);
}

SPOIL(copy_kv_lens_given, c->args.kv_lens = c->kv_lens)
SPOIL(copy_present_absent, memset(&c->args.present, 0, sizeof c->args.present))
SPOIL(copy_present_short, c->args.present.block_size--)
SPOIL(copy_present_long, c->args.present.block_size++)
SPOIL(copy_present_is_past, c->args.present.k = c->args.past.k; c->args.present.v = c->args.past.v)
SPOIL(copy_q_lens_differ, c->cu_seqlens_q[1] = 1)
SPOIL(copy_dtype_differs, c->args.present.k_dtype = PKV_F16)
SPOIL(copy_past_absent, c->args.past.k = c->args.past.v = NULL)
SPOIL(copy_past_negative, c->args.past.block_size = -1)
SPOIL(copy_past_rows_more, c->args.past.num_blocks = 3)
SPOIL(copy_past_rows_fewer, c->args.past.num_blocks = 1)
SPOIL(copy_keys_absent, c->args.k = c->args.v = NULL)

static void functional_call_refuses_a_present_that_does_not_fit(void)
{
    static const struct refusal refusals[] = {
        {"kv_lens given", copy_kv_lens_given, "kv_lens"},
        {"no present", copy_present_absent, "present"},
        {"a present that is too short", copy_present_short, "present"},
        {"a present that is too long", copy_present_long, "present"},
        {"present is past", copy_present_is_past, "present"},
        {"rows with different q_lens", copy_q_lens_differ, "row 1"},
        {"present of another dtype", copy_dtype_differs, "present"},
        {"no key", copy_keys_absent, "present"},
        {"a length of no past", copy_past_absent, "past.block_size"},
        {"a past of negative length", copy_past_negative, "past.block_size"},
        {"more rows in past", copy_past_rows_more, "past.num_blocks = 3"},
        {"fewer rows in past", copy_past_rows_fewer, "past.num_blocks = 1"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_DENSE_COPY);
    assert_all_refuse(&spec, refusals);
}

/* 7 slots */
SPOIL(slot_negative, c->slot_ids[1] = -1)
SPOIL(slot_beyond, c->slot_ids[1] = c->args.past.num_blocks)
SPOIL(slot_int32_min, c->slot_ids[0] = INT32_MIN)
SPOIL(slot_repeated, c->slot_ids[1] = c->slot_ids[0])

static struct case_spec good_with_slots(void)
{
    struct case_spec spec = good(PKV_CACHE_CONTINUOUS);
    for (;; spec.layout++) {
        struct gqa_case *c = gqa_case_make(&spec);
        const bool has_slots = c->slot_ids != NULL;
        gqa_case_free(c);
        if (has_slots) {
            return spec;
        }
    }
}

/* C2: a negative slot is refused and nothing is computed from it. */
static void slot_ids_that_name_no_row_of_their_own_refuse(void)
{
    static const struct refusal refusals[] = {{"slot -1", slot_negative, "slot_ids[1] = -1"},
                                              {"slot max_seqs", slot_beyond, "slot_ids[1]"},
                                              {"slot INT32_MIN", slot_int32_min, "slot_ids[0]"},
                                              {"a slot twice", slot_repeated, "slot_ids[1]"},
                                              {"more rows than max_seqs", rows_too_many, "batch"},
                                              {"kv_len beyond max_seq", row_too_long, "kv_lens[1]"},
                                              {"a block table", dense_table_given, "block_table"},
                                              {NULL, NULL, NULL}};
    const struct case_spec spec = good_with_slots();
    assert_all_refuse(&spec, refusals);
}

/* 8 block tables */
static int32_t *entry(struct gqa_case *c, int32_t b, int32_t i)
{
    return &c->block_table[b * c->args.max_blocks + i];
}

SPOIL(entry_minus_two, *entry(c, 1, 0) = -2)
SPOIL(entry_int32_min, *entry(c, 1, 0) = INT32_MIN)
SPOIL(entry_num_blocks, *entry(c, 0, 2) = c->args.past.num_blocks)
SPOIL(entry_int32_max, *entry(c, 0, 0) = INT32_MAX)
SPOIL(entry_repeated, *entry(c, 1, 1) = *entry(c, 1, 0))
SPOIL(entry_missing_for_read, *entry(c, 1, 0) = -1)
SPOIL(entry_missing_for_write, *entry(c, 1, 1) = -1)
SPOIL(tail_beyond, *entry(c, 1, 2) = c->args.past.num_blocks + 7)
SPOIL(tail_minus_two, *entry(c, 1, 2) = -2)
SPOIL(tail_repeats, *entry(c, 1, 2) = *entry(c, 1, 0))
SPOIL(written_by_two, *entry(c, 1, 1) = *entry(c, 0, 2))
SPOIL(written_and_read, *entry(c, 1, 0) = *entry(c, 0, 2))
SPOIL(written_and_in_a_tail, *entry(c, 1, 2) = *entry(c, 0, 2))

/* B2: -1 alone means that nothing is mapped; any other id outside the pool is refused, also where
 * no query reads it. */
static void block_tables_that_lead_astray_refuse(void)
{
    static const struct refusal refusals[] = {
        {"entry -2", entry_minus_two, "block_table[1][0] = -2"},
        {"entry INT32_MIN", entry_int32_min, "block_table[1][0]"},
        {"entry num_blocks", entry_num_blocks, "block_table[0][2]"},
        {"entry INT32_MAX", entry_int32_max, "block_table[0][0]"},
        {"an id twice in a row", entry_repeated, "block_table[1]"},
        {"nothing where a key is read", entry_missing_for_read, "block_table[1][0]"},
        {"nothing where a key is written", entry_missing_for_write, "block_table[1][1]"},
        {"an id beyond the pool in the unused tail", tail_beyond, "block_table[1][2]"},
        {"-2 in the unused tail", tail_minus_two, "block_table[1][2] = -2"},
        {"an id again in the unused tail", tail_repeats, "block_table[1]"},
        {"a block that two rows write", written_by_two, "block_table["},
        {"a block that one row writes and one reads", written_and_read, "block_table["},
        {"a written block in another row's tail", written_and_in_a_tail, "block_table["},
        {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_PAGED);
    assert_all_refuse(&spec, refusals);
}

SPOIL(block_0_in_a_tail, *entry(c, 1, 2) = 0)

/* Block 0 is a block like the others. */
static void block_0_that_a_row_writes_is_in_no_other(void)
{
    static const struct refusal refusals[] = {
        {"block 0 in another row's tail", block_0_in_a_tail, "block_table[1][2] = 0"},
        {NULL, NULL, NULL}};
    struct case_spec spec = good(PKV_CACHE_PAGED);
    for (bool is_written = false; !is_written; spec.layout += !is_written) {
        struct gqa_case *c = gqa_case_make(&spec);
        is_written = *entry(c, 0, 2) == 0;
        gqa_case_free(c);
    }
    assert_all_refuse(&spec, refusals);
}

static void row_without_queries_may_not_name_a_written_block(void)
{
    static const struct refusal refusals[] = {
        {"a written block", written_and_read, "block_table["},
        {"an id beyond the pool", tail_beyond, "block_table[1][2]"},
        {"an id twice", entry_repeated, "block_table[1]"},
        {NULL, NULL, NULL}};
    struct case_spec spec = good(PKV_CACHE_PAGED);
    spec.q_lens[1] = 0;
    assert_all_refuse(&spec, refusals);
}

SPOIL(window_entry_missing, *entry(c, 0, 5) = -1)
SPOIL(kept_entry_missing, *entry(c, 0, 1) = -1)

static void evicted_block_that_is_still_seen_refuses(void)
{
    static const struct refusal refusals[] = {
        {"a block of the window", window_entry_missing, "block_table[0][5]"},
        {"a block of the kept prefix", kept_entry_missing, "block_table[0][1]"},
        {NULL, NULL, NULL}};
    struct case_spec spec = case_plain(test_seed());
    spec.window = 5;
    spec.kept_count = 1;
    spec.kept[0] = 5;
    spec.evicted = true;
    case_add_row(&spec, 0, 1, 28); /* keys 0..4 and 23..27 */
    assert_all_refuse(&spec, refusals);
    struct gqa_case *c = gqa_case_make(&spec);
    for (int32_t i = 2; i < 5; i++) {
        CU_ASSERT_EQUAL(*entry(c, 0, i), -1);
    }
    gqa_case_free(c);
}

/* 9 positions */
SPOIL(positions_alone, c->args.position_ids = c->kept_prefix)

static void positions_without_tables_refuse(void)
{
    static const struct refusal refusals[] = {
        {"position_ids without cos/sin tables", positions_alone, "position_ids"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_PAGED);
    assert_all_refuse(&spec, refusals);
}

SPOIL(first_position_negative, c->kv_lens[0] = 1)

static void rope_before_position_0_refuses(void)
{
    static const struct refusal refusals[] = {
        {"two queries at one key", first_position_negative, "negative"}, {NULL, NULL, NULL}};
    struct case_spec spec = good(PKV_CACHE_PAGED);
    spec.options = CASE_ROPE;
    spec.read_only = spec.not_causal = true;
    assert_all_refuse(&spec, refusals);
}

SPOIL(positions_of_some_keys, c->args.position_ids = c->kept_prefix)

static void positions_of_the_call_s_own_keys_cover_them_all(void)
{
    static const struct refusal refusals[] = {
        {"more keys than queries", positions_of_some_keys, "position_ids"}, {NULL, NULL, NULL}};
    struct case_spec spec = good(PKV_CACHE_NONE);
    spec.options = CASE_ROPE;
    assert_all_refuse(&spec, refusals);
}

/* 10 overlap */
static void *address(const void *memory)
{
    void *writable;
    memcpy(&writable, &memory, sizeof writable);
    return writable;
}

SPOIL(out_over_q, c->args.out = address(c->args.q))
SPOIL(out_over_k, c->args.out = address((const char *)c->args.k + 4))
SPOIL(out_over_v, c->args.out = address(c->args.v))
SPOIL(out_over_cache, c->args.out = c->args.past.k)
SPOIL(out_over_cache_v, c->args.out = (char *)c->args.past.v + 8)
SPOIL(out_over_table, c->args.out = c->block_table)
SPOIL(lse_over_out, c->args.lse = c->args.out)
SPOIL(lse_over_cache, c->args.lse = c->args.past.v)
SPOIL(lse_over_lengths, c->args.lse = (float *)(void *)c->kv_lens)

static void outputs_that_overlap_refuse(void)
{
    static const struct refusal refusals[] = {{"out over q", out_over_q, "out"},
                                              {"out over k", out_over_k, "out"},
                                              {"out over v", out_over_v, "out"},
                                              {"out over the K cache", out_over_cache, "out"},
                                              {"out over the V cache", out_over_cache_v, "out"},
                                              {"out over the block table", out_over_table, "out"},
                                              {"lse over out", lse_over_out, "lse"},
                                              {"lse over the V cache", lse_over_cache, "lse"},
                                              {"lse over kv_lens", lse_over_lengths, "lse"},
                                              {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_PAGED);
    assert_all_refuse(&spec, refusals);
}

/* q and out in one buffer, of rows of 12 floats: the 4 of out are behind the 8 of q, no later. */
static void output_that_runs_into_the_next_row_of_q_refuses(void)
{
    float fused[2 * 12 + 4] = {0};
    float k[2 * 4 * 8] = {0};
    float v[2 * 4 * 4] = {0};
    const int32_t kv_lens[2] = {1, 1};
    struct pkv_gqa_args args = case_f32_args(PKV_CACHE_DENSE, 2, 1, 1, 8);
    args.past = case_f32_view(k, v, 2, 1, 4, 8);
    args.past.v_width = args.v_width = 4;
    args.kv_lens = kv_lens;
    args.q = fused;
    args.q_stride = args.out_stride = 12;
    pkv_workspace *workspace = case_workspace(1);
    for (size_t at = 0; at < 16; at++) {
        args.out = fused + at;
        if (at == 8) {
            ASSERT_STATUS(PKV_OK, pkv_attention_over_cache(workspace, &args));
        } else {
            ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "out overlaps q",
                           pkv_attention_over_cache(workspace, &args));
        }
    }
    pkv_workspace_destroy(workspace);
}

/* The calls beside it */

static void append_refuses_queries_and_missing_keys(void)
{
    const struct case_spec spec = good(PKV_CACHE_PAGED);
    pkv_workspace *workspace = case_workspace(2);
    struct gqa_case *c = gqa_case_make(&spec);
    struct pkv_gqa_args args = c->args;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_append(workspace, &args));
    args.out = NULL;
    args.lse = NULL;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_append(workspace, &args)); /* q */
    args.q = NULL;
    args.k = args.v = NULL;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_append(workspace, &args));
    args = c->args;
    args.q = NULL;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_append(workspace, &args)); /* out, lse */
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_append(workspace, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_append(NULL, &c->args));
    CU_ASSERT_EQUAL(gqa_case_changed(c, all_regions), -1);
    gqa_case_free(c);
    pkv_workspace_destroy(workspace);
}

static void read_only_attend_refuses_keys_and_present(void)
{
    const struct case_spec spec = good(PKV_CACHE_PAGED);
    pkv_workspace *workspace = case_workspace(2);
    struct gqa_case *c = gqa_case_make(&spec);
    struct pkv_gqa_args args = c->args;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_attention_over_cache(workspace, &args));
    args.v = NULL;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_attention_over_cache(workspace, &args));
    args = c->args;
    args.k = args.v = NULL;
    args.present = args.past;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "present", pkv_attention_over_cache(workspace, &args));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa(workspace, &args));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_attention_over_cache(workspace, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_attention_over_cache(NULL, &c->args));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa(workspace, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa(NULL, &c->args));
    CU_ASSERT_EQUAL(gqa_case_changed(c, all_regions), -1);
    gqa_case_free(c);
    pkv_workspace_destroy(workspace);
}

/* The good row of a refused call is not appended either, and the workspace is as good as new. */
static void refused_call_leaves_the_workspace_sound(void)
{
    const struct case_spec spec = good(PKV_CACHE_PAGED);
    pkv_workspace *workspace = case_workspace(2);
    struct gqa_case *c = gqa_case_make(&spec);
    for (int i = 0; i < 20; i++) {
        const int32_t saved = *entry(c, 1, 1);
        *entry(c, 1, 1) = i % 2 ? *entry(c, 0, 2) : *entry(c, 1, 0);
        ASSERT_STATUS(PKV_INVALID_ARGUMENT, gqa_case_call(c, workspace));
        *entry(c, 1, 1) = saved;
        CU_ASSERT_EQUAL(gqa_case_changed(c, all_regions), -1);
    }
    CU_ASSERT(gqa_case_check(c, workspace));
    gqa_case_free(c);
    pkv_workspace_destroy(workspace);
}

static const struct test_case cases[] = {
    TEST(missing_and_unknown_arguments_refuse),
    TEST(heads_and_widths_that_do_not_fit_refuse),
    TEST(pairs_with_one_side_refuse),
    TEST(scalars_out_of_range_refuse),
    TEST(lengths_that_contradict_each_other_refuse),
    TEST(causal_read_of_fewer_keys_than_queries_refuses),
    TEST(call_without_a_cache_refuses_what_belongs_to_one),
    TEST(sister_calls_refuse_to_go_without_a_cache),
    TEST(position_beyond_the_table_s_row_refuses),
    TEST(dense_rows_beyond_their_capacity_refuse),
    TEST(functional_call_refuses_a_present_that_does_not_fit),
    TEST(slot_ids_that_name_no_row_of_their_own_refuse),
    TEST(block_tables_that_lead_astray_refuse),
    TEST(block_0_that_a_row_writes_is_in_no_other),
    TEST(row_without_queries_may_not_name_a_written_block),
    TEST(evicted_block_that_is_still_seen_refuses),
    TEST(positions_without_tables_refuse),
    TEST(rope_before_position_0_refuses),
    TEST(positions_of_the_call_s_own_keys_cover_them_all),
    TEST(outputs_that_overlap_refuse),
    TEST(output_that_runs_into_the_next_row_of_q_refuses),
    TEST(append_refuses_queries_and_missing_keys),
    TEST(read_only_attend_refuses_keys_and_present),
    TEST(refused_call_leaves_the_workspace_sound),
    TEST_END,
};
const struct test_suite suite_gqa_refuse = {"gqa_refuse", cases};
