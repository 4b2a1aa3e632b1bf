/* SPDX-License-Identifier: MIT
 *
 * What the overloaded form refuses. Each entry of a table spoils one good call, which must then
 * answer PKV_INVALID_ARGUMENT, name the culprit in the last error and leave every byte of caches,
 * outputs and inputs as it was. Tensors only ever claim less than the memory behind them holds. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/contract_case.h"
#include "support/spoil.h"

struct refusal {
    const char *name;
    void (*spoil)(struct contract_case *x);
    const char *culprit; /* part of the last error */
};

/* Runs a spoilt case and frees it. other (may be NULL) names the culprit as well. */
static void assert_refused(struct contract_case *x, pkv_workspace *workspace, const char *name,
                           const char *culprit, const char *other)
{
    gqa_case_snapshot(x->gqa);
    const enum pkv_status status = pkv_gqa_contract(workspace, &x->args);
    const bool names_other = other != NULL && strstr(pkv_last_error(), other) != NULL;
    ASSERT_CASE_REFUSED(name, PKV_INVALID_ARGUMENT, names_other ? other : culprit, status);
    ASSERT_CASE(name, gqa_case_changed(x->gqa, REGION_INPUT | REGION_CACHE | REGION_OUTPUT) == -1);
    contract_case_free(x);
}

/* The table ends with a NULL name. */
static void assert_all_refuse(const struct case_spec *spec, const struct refusal *refusals)
{
    pkv_workspace *workspace = case_workspace(2);
    struct contract_case *good = contract_case_make(spec, 0);
    ASSERT_STATUS(PKV_OK, pkv_gqa_contract(workspace, &good->args));
    contract_case_free(good);
    for (const struct refusal *r = refusals; r->name != NULL; r++) {
        struct contract_case *x = contract_case_make(spec, 0);
        r->spoil(x);
        assert_refused(x, workspace, r->name, r->culprit, NULL);
    }
    pkv_workspace_destroy(workspace);
}

/* Three rows; the dense forms begin all their appends at one position. */
static struct case_spec good(enum pkv_cache_form form, unsigned options)
{
    struct case_spec spec = case_plain(test_seed());
    const bool is_free = form == PKV_CACHE_PAGED || form == PKV_CACHE_CONTINUOUS;
    spec.form = form;
    spec.layout = 3; /* slot_ids are present */
    spec.kv_heads = 2;
    spec.group = 2;
    spec.k_width = spec.v_width = 12;
    spec.options = options;
    case_add_row(&spec, 0, 2, 9);
    case_add_row(&spec, 1, 2, form == PKV_CACHE_NONE ? 7 : 9);
    case_add_row(&spec, 2, is_free ? 1 : 2, is_free ? 5 : 9);
    return spec;
}

static struct case_spec quantised(void)
{
    struct case_spec spec = good(PKV_CACHE_PAGED, 0);
    spec.k_dtype = spec.v_dtype = PKV_INT8;
    return spec;
}

static struct case_spec windowed(void)
{
    struct case_spec spec = good(PKV_CACHE_PAGED, 0);
    spec.window = 4;
    spec.kept_count = 3;
    spec.kept[0] = spec.kept[2] = 1;
    return spec;
}

/* Every tensor in turn: another type, a rank more or less, a length less, dimensions that are none,
 * no data. */

struct place {
    enum contract_tensor which;
    const char *culprit;
    enum pkv_tensor_type wrong_type;
    bool any_rank;     /* where every rank means something */
    const char *other; /* what a length that disagrees is held against */
};

static const struct place places[] = {
    {QUERY, "query", PKV_TENSOR_INT8, false, "num_heads"},
    {KEY, "key", PKV_TENSOR_F16, false, NULL},
    {VALUE, "value", PKV_TENSOR_BF16, false, NULL},
    {PAST_KEY, "past", PKV_TENSOR_INT32, false, NULL},
    {PAST_VALUE, "past", PKV_TENSOR_BOOL, false, NULL},
    {KVCACHE_START, "kvcache_start", PKV_TENSOR_F32, true, "row"},
    {CU_SEQLENS_Q, "cu_seqlens_q", PKV_TENSOR_INT64, false, "cu_seqlens_k"},
    {CU_SEQLENS_K, "cu_seqlens_k", PKV_TENSOR_INT64, false, NULL},
    {ROPE_COS, "rope_cos", PKV_TENSOR_INT8, false, NULL},
    {ROPE_SIN, "rope_sin", PKV_TENSOR_E4M3, false, NULL},
    {POSITION_IDS, "position_ids", PKV_TENSOR_INT32, false, NULL},
    {ATTN_MASK, "attn_mask", PKV_TENSOR_INT8, false, NULL},
    {Q_SCALE, "q_scale", PKV_TENSOR_INT32, true, NULL},
    {PRESENT_KEY, "present", PKV_TENSOR_INT64, false, NULL},
    {PRESENT_VALUE, "present", PKV_TENSOR_INT32, false, NULL},
    {K_SCALE, "k_scale", PKV_TENSOR_F16, true, NULL},
    {V_SCALE, "v_scale", PKV_TENSOR_INT8, true, NULL},
    {HEAD_SINK, "head_sink", PKV_TENSOR_INT32, false, NULL},
    {Q_NORM_GAIN, "q_norm_gain", PKV_TENSOR_INT8, false, NULL},
    {K_NORM_GAIN, "k_norm_gain", PKV_TENSOR_BOOL, false, NULL},
    {SLOT_IDS, "slot_ids", PKV_TENSOR_INT64, false, NULL},
    {KEPT_PREFIX, "kept_prefix", PKV_TENSOR_F32, true, NULL},
    {OUTPUT, "output", PKV_TENSOR_F16, false, "num_heads"},
};

/* The same elements with a dimension of 1 more, or the last two in one. */
static void change_rank(struct pkv_tensor *t, int32_t more)
{
    if (more > 0 && t->rank < 4) {
        t->dims[t->rank] = 1;
    } else if (more < 0 && t->rank >= 2) {
        t->dims[t->rank - 2] *= t->dims[t->rank - 1];
    }
    t->rank += more;
}

enum damage {
    ANOTHER_TYPE,
    UNKNOWN_TYPE,
    RANK_MORE,
    RANK_LESS,
    RANK_NEGATIVE,
    RANK_FIVE,
    FIRST_SHORT,
    LAST_SHORT,
    FIRST_NEGATIVE,
    LAST_HUGE,
    NO_DATA,
    NUM_DAMAGES
};

static const char *const damage_names[NUM_DAMAGES] = {"another type",
                                                      "unknown type",
                                                      "a rank more",
                                                      "a rank less",
                                                      "a negative rank",
                                                      "rank 5",
                                                      "first dimension short",
                                                      "last dimension short",
                                                      "first dimension negative",
                                                      "last dimension huge",
                                                      "no data"};

/* False where the damage would leave a call that is right. */
static bool spoil_tensor(struct pkv_tensor *t, const struct place *place, enum damage damage)
{
    const int32_t last = t->rank > 0 ? t->rank - 1 : 0;
    const bool has_dims = t->rank > 0;
    switch (damage) {
    case ANOTHER_TYPE: t->type = place->wrong_type; return true;
    case UNKNOWN_TYPE: t->type = (enum pkv_tensor_type)8; return true;
    case RANK_MORE: change_rank(t, 1); return !place->any_rank;
    case RANK_LESS: change_rank(t, -1); return !place->any_rank;
    case RANK_NEGATIVE: t->rank = -1; return true;
    case RANK_FIVE: t->rank = 5; return true;
    case FIRST_SHORT: t->dims[0]--; return has_dims && t->dims[0] > 0;
    /* a mask may have spare columns, at most two here */
    case LAST_SHORT:
        t->dims[last] -= place->which == ATTN_MASK ? 3 : 1;
        return has_dims && t->dims[last] > 0;
    case FIRST_NEGATIVE: t->dims[0] = -t->dims[0] - 1; return has_dims;
    case LAST_HUGE: t->dims[last] = (int64_t)INT32_MAX + 1; return has_dims;
    case NO_DATA: t->data = NULL; return true;
    case NUM_DAMAGES: break;
    }
    return false;
}

static void assert_tensors_refuse(const struct case_spec *spec)
{
    pkv_workspace *workspace = case_workspace(2);
    struct contract_case *x = contract_case_make(spec, 0);
    ASSERT_STATUS(PKV_OK, pkv_gqa_contract(workspace, &x->args));
    contract_case_free(x);
    for (size_t i = 0; i < NUM_DAMAGES * sizeof places / sizeof places[0]; i++) {
        const struct place *place = &places[i / NUM_DAMAGES];
        const enum damage damage = (enum damage)(i % NUM_DAMAGES);
        char name[80];
        x = contract_case_make(spec, 0);
        struct pkv_tensor *t = contract_case_tensor(x, place->which);
        snprintf(name, sizeof name, "form %d, %s: %s", (int)spec->form, place->culprit,
                 damage_names[damage]);
        if (t != NULL && spoil_tensor(t, place, damage)) {
            assert_refused(x, workspace, name, place->culprit,
                           damage == FIRST_SHORT || damage == LAST_SHORT ? place->other : NULL);
        } else {
            contract_case_free(x);
        }
    }
    pkv_workspace_destroy(workspace);
}

static void tensors_of_another_type_rank_or_length_refuse(void)
{
    static const enum pkv_cache_form forms[] = {PKV_CACHE_NONE, PKV_CACHE_DENSE,
                                                PKV_CACHE_DENSE_COPY, PKV_CACHE_CONTINUOUS,
                                                PKV_CACHE_PAGED};
    const unsigned options = CASE_ROPE | CASE_NORM | CASE_SINK | CASE_MASK | CASE_Q_SCALE;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const bool has_past = forms[i] != PKV_CACHE_NONE;
        const struct case_spec spec =
            good(forms[i], options | (has_past ? CASE_POSITION_IDS : CASE_ROPE));
        assert_tensors_refuse(&spec);
    }
    const struct case_spec codes = quantised();
    const struct case_spec window = windowed();
    assert_tensors_refuse(&codes);
    assert_tensors_refuse(&window);
}

#define SPOILED struct contract_case *x
/* A statement on one tensor, t. */
#define SPOIL_TENSOR(name, which, statement)                                                       \
    SPOIL(name, struct pkv_tensor *t = contract_case_tensor(x, which); statement)

/* Presence */
SPOIL(size_zero, x->args.size = 0)
SPOIL(size_small, x->args.size -= sizeof(void *))
SPOIL(no_query, contract_case_absent(x, QUERY))
SPOIL(no_output, contract_case_absent(x, OUTPUT))
SPOIL(no_heads, x->args.num_heads = NULL)
SPOIL(no_kv_heads, x->args.kv_num_heads = NULL)
SPOIL(key_alone, contract_case_absent(x, VALUE))
SPOIL(value_alone, contract_case_absent(x, KEY))
SPOIL(past_key_alone, contract_case_absent(x, PAST_VALUE))
SPOIL(past_value_alone, contract_case_absent(x, PAST_KEY))
SPOIL(no_past, contract_case_absent(x, PAST_KEY); contract_case_absent(x, PAST_VALUE);
      contract_case_absent(x, PRESENT_KEY); contract_case_absent(x, PRESENT_VALUE))
SPOIL(present_key_alone, contract_case_absent(x, PRESENT_VALUE))
SPOIL(present_value_alone, contract_case_absent(x, PRESENT_KEY))
SPOIL(no_lengths, contract_case_absent(x, CU_SEQLENS_K))
SPOIL(no_q_lengths, contract_case_absent(x, CU_SEQLENS_Q))

static void missing_and_halved_parameters_refuse(void)
{
    static const struct refusal refusals[] = {
        {"size 0", size_zero, "size"},
        {"size too small", size_small, "size"},
        {"no query", no_query, "query"},
        {"no output", no_output, "output"},
        {"no num_heads", no_heads, "num_heads"},
        {"no kv_num_heads", no_kv_heads, "kv_num_heads"},
        {"key without value", key_alone, "v is NULL"},
        {"value without key", value_alone, "k is NULL"},
        {"past_key without past_value", past_key_alone, "past"},
        {"past_value without past_key", past_value_alone, "past"},
        {"kvcache_start without past", no_past, "kvcache_start"},
        {"out_present_key alone", present_key_alone, "present"},
        {"out_present_value alone", present_value_alone, "present"},
        {"no lengths on the paged form", no_lengths, "cu_seqlens_k"},
        {"no cu_seqlens_q, and tokens that do not divide", no_q_lengths, "cu_seqlens_q"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_PAGED, 0);
    assert_all_refuse(&spec, refusals);
    pkv_workspace *workspace = case_workspace(1);
    struct contract_case *x = contract_case_make(&spec, 0);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_contract(workspace, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_contract(NULL, &x->args));
    contract_case_free(x);
    pkv_workspace_destroy(workspace);
}

/* Heads */
SPOIL(heads_zero, x->num_heads = 0)
SPOIL(heads_negative, x->num_heads = -4)
SPOIL(heads_beyond_int32, x->num_heads = (int64_t)INT32_MAX + 1)
SPOIL(heads_three, x->num_heads = 3)
SPOIL(heads_five, x->num_heads = 5)
SPOIL(heads_eight, x->num_heads = 8)
SPOIL(kv_heads_zero, x->kv_num_heads = 0)
SPOIL(kv_heads_negative, x->kv_num_heads = -2)
SPOIL(kv_heads_four, x->kv_num_heads = 4)
SPOIL(kv_heads_three, x->kv_num_heads = 3)
SPOIL_TENSOR(past_of_other_heads, PAST_KEY, t->dims[1] = 1;
             contract_case_tensor(x, PAST_VALUE)->dims[1] = 1)
SPOIL_TENSOR(past_of_another_width, PAST_KEY, t->dims[3] = 11)
SPOIL_TENSOR(past_values_of_another_width, PAST_VALUE, t->dims[3] = 11)

SPOIL_TENSOR(output_of_no_width, OUTPUT, t->dims[1] = 0)
SPOIL_TENSOR(query_of_no_width, QUERY, t->dims[1] = 0)
SPOIL_TENSOR(key_of_no_width, KEY, t->dims[1] = 0)
SPOIL_TENSOR(value_of_no_width, VALUE, t->dims[1] = 0)
SPOIL_TENSOR(values_of_no_width, VALUE, t->dims[1] = contract_case_tensor(x, OUTPUT)->dims[1] = 0)
SPOIL_TENSOR(past_keys_of_no_width, PAST_KEY, t->dims[3] = 0)
SPOIL_TENSOR(past_values_of_no_width, PAST_VALUE, t->dims[3] = 0)
SPOIL_TENSOR(caches_of_no_width, PAST_KEY,
             t->dims[3] = contract_case_tensor(x, PAST_VALUE)->dims[3] = 0)
SPOIL_TENSOR(present_of_no_width, PRESENT_KEY,
             t->dims[3] = contract_case_tensor(x, PRESENT_VALUE)->dims[3] = 0)
SPOIL_TENSOR(nothing_has_a_width, VALUE, t->dims[1] = contract_case_tensor(x, OUTPUT)->dims[1] = 0;
             contract_case_tensor(x, PAST_VALUE)->dims[3] = 0;
             contract_case_tensor(x, PRESENT_VALUE)->dims[3] = 0)

/* A width that is absent in the raw call would be that of the keys. */
static void tensors_without_width_refuse(void)
{
    static const struct refusal refusals[] = {
        {"output of no width", output_of_no_width, "output"},
        {"query of no width", query_of_no_width, "query"},
        {"key of no width", key_of_no_width, "key"},
        {"value of no width", value_of_no_width, "value"},
        {"value and output of no width", values_of_no_width, "output"},
        {"past keys of no width", past_keys_of_no_width, "past"},
        {"past values of no width", past_values_of_no_width, "past"},
        {"a past of no width", caches_of_no_width, "past"},
        {"a present of no width", present_of_no_width, "present"},
        {"values of no width everywhere", nothing_has_a_width, "width"},
        {NULL, NULL, NULL}};
    static const enum pkv_cache_form forms[] = {PKV_CACHE_PAGED, PKV_CACHE_DENSE_COPY};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const struct case_spec spec = good(forms[i], 0);
        assert_all_refuse(&spec, refusals);
    }
}

static void heads_that_do_not_divide_refuse(void)
{
    static const struct refusal refusals[] = {
        {"num_heads 0", heads_zero, "num_heads"},
        {"negative num_heads", heads_negative, "num_heads"},
        {"num_heads beyond int32", heads_beyond_int32, "num_heads"},
        {"3 heads on 2", heads_three, "num_heads"},
        {"5 heads", heads_five, "num_heads"},
        {"8 heads of half the width", heads_eight, "key"},
        {"kv_num_heads 0", kv_heads_zero, "kv_num_heads"},
        {"negative kv_num_heads", kv_heads_negative, "kv_num_heads"},
        {"kv_num_heads 4", kv_heads_four, "kv_num_heads"},
        {"kv_num_heads 3", kv_heads_three, "kv_num_heads"},
        {"past of one KV head", past_of_other_heads, "past"},
        {"past keys of another width", past_of_another_width, "past"},
        {"past values of another width", past_values_of_another_width, "past"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_PAGED, 0);
    assert_all_refuse(&spec, refusals);
}

/* kvcache_start by its rank */
SPOIL_TENSOR(table_of_int64, KVCACHE_START, t->type = PKV_TENSOR_INT64)
SPOIL_TENSOR(start_of_rank_three, KVCACHE_START, t->rank = 3; t->dims[2] = 1)
SPOIL_TENSOR(table_of_two_rows, KVCACHE_START, t->dims[0] = 2)
SPOIL_TENSOR(table_without_columns, KVCACHE_START, t->dims[1] = 0)
SPOIL_TENSOR(table_too_short, KVCACHE_START, t->dims[1] = 1)
SPOIL_TENSOR(lengths_of_two_rows, CU_SEQLENS_K, t->dims[0] = 2)
SPOIL_TENSOR(lengths_cumulative, CU_SEQLENS_K, t->data = x->gqa->cu_seqlens_k; t->dims[0] = 4)
SPOIL(length_below_tokens, x->gqa->kv_lens[1] = 1)
SPOIL(length_zero, x->gqa->kv_lens[2] = 0)
SPOIL(length_negative, x->gqa->kv_lens[0] = -1)
SPOIL(length_over_table, x->gqa->kv_lens[0] = 1000)
SPOIL(length_largest, x->gqa->kv_lens[0] = INT32_MAX)
SPOIL(slots_on_paged, contract_case_set(x, SLOT_IDS, x->unread, PKV_TENSOR_INT32, 1, 3, 0, 0, 0);
      x->unread[1] = 1; x->unread[2] = 2)

/* Blocks; the spec says which entries are used: row 0 and 1 three, row 2 two. */
#define TABLE(row, column) x->gqa->block_table[(row)*x->gqa->args.max_blocks + (column)]
SPOIL(block_out_of_range, TABLE(0, 1) = x->gqa->args.past.num_blocks)
SPOIL(block_below_minus_one, TABLE(1, 0) = -2)
SPOIL(block_largest, TABLE(2, 1) = INT32_MAX)
SPOIL(block_repeated, TABLE(0, 2) = TABLE(0, 0))
SPOIL(block_missing, TABLE(1, 0) = -1)
SPOIL(block_to_write_missing, TABLE(0, 2) = -1)
SPOIL(block_of_another_writer, TABLE(2, 1) = TABLE(0, 2))
SPOIL(block_repeated_in_the_tail, TABLE(2, 2) = TABLE(2, 0))
SPOIL(block_out_of_range_in_the_tail, TABLE(2, 2) = 4096)

static void paged_tables_and_lengths_that_lead_astray_refuse(void)
{
    static const struct refusal refusals[] = {
        {"a table of int64", table_of_int64, "kvcache_start"},
        {"rank 3", start_of_rank_three, "kvcache_start"},
        {"two rows for three", table_of_two_rows, "cu_seqlens_q"},
        {"no columns", table_without_columns, "kv_lens[0]"},
        {"fewer columns than blocks", table_too_short, "kv_lens[0]"},
        {"two lengths for three rows", lengths_of_two_rows, "cu_seqlens_k"},
        {"cumulative lengths", lengths_cumulative, "cu_seqlens_k"},
        {"a length below the row's tokens", length_below_tokens, "kv_lens[1]"},
        {"a length of 0", length_zero, "kv_lens[2]"},
        {"a negative length", length_negative, "kv_lens[0]"},
        {"a length beyond the table", length_over_table, "kv_lens[0]"},
        {"the largest length", length_largest, "kv_lens[0]"},
        {"slot_ids", slots_on_paged, "slot_ids"},
        {"a block out of range", block_out_of_range, "block_table[0][1]"},
        {"a block below -1", block_below_minus_one, "block_table[1][0]"},
        {"the largest block", block_largest, "block_table[2][1]"},
        {"a block twice in a row", block_repeated, "block_table[0]"},
        {"a needed block missing", block_missing, "block_table[1][0]"},
        {"a block to write missing", block_to_write_missing, "block_table[0][2]"},
        {"a block that two rows write", block_of_another_writer, "block_table[2][1]"},
        {"a block twice, in the unused tail", block_repeated_in_the_tail, "block_table[2]"},
        {"out of range in the unused tail", block_out_of_range_in_the_tail, "block_table[2][2]"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_PAGED, 0);
    assert_all_refuse(&spec, refusals);
}

SPOIL_TENSOR(start_of_two_rows, KVCACHE_START, t->dims[0] = 2)
SPOIL_TENSOR(start_of_no_rows, KVCACHE_START, t->dims[0] = 0)
SPOIL(slot_repeated, x->gqa->slot_ids[2] = x->gqa->slot_ids[0])
SPOIL(slot_negative, x->gqa->slot_ids[0] = -1)
SPOIL(slot_out_of_range, x->gqa->slot_ids[1] = x->gqa->args.past.num_blocks)
SPOIL(slot_largest, x->gqa->slot_ids[1] = INT32_MAX)
SPOIL_TENSOR(slots_of_two_rows, SLOT_IDS, t->dims[0] = 2)
SPOIL_TENSOR(rows_too_few, PAST_KEY, contract_case_absent(x, SLOT_IDS);
             contract_case_absent(x, PRESENT_KEY); contract_case_absent(x, PRESENT_VALUE);
             t->dims[0] = 2; contract_case_tensor(x, PAST_VALUE)->dims[0] = 2)

static void slots_that_are_none_refuse(void)
{
    static const struct refusal refusals[] = {
        {"kvcache_start of two rows for three", start_of_two_rows, "cu_seqlens_q"},
        {"kvcache_start of no rows", start_of_no_rows, "cu_seqlens_q"},
        {"kvcache_start without past", no_past, "kvcache_start"},
        {"a slot twice", slot_repeated, "slot_ids[2]"},
        {"a negative slot", slot_negative, "slot_ids[0]"},
        {"a slot out of range", slot_out_of_range, "slot_ids[1]"},
        {"the largest slot", slot_largest, "slot_ids[1]"},
        {"slots of two rows", slots_of_two_rows, "slot_ids"},
        {"fewer cache rows than rows, without slots", rows_too_few, "batch"},
        {"no lengths", no_lengths, "cu_seqlens_k"},
        {"a length below the row's tokens", length_below_tokens, "kv_lens[1]"},
        {"a length beyond the row", length_over_table, "kv_lens[0]"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_CONTINUOUS, 0);
    assert_all_refuse(&spec, refusals);
}

SPOIL(start_negative, x->start = x->narrow_start = -1)
SPOIL(start_beyond, x->start = x->narrow_start = x->gqa->args.past.block_size - 1)
SPOIL(start_far_beyond, x->start = x->narrow_start = INT32_MAX)
SPOIL_TENSOR(start_wraps, KVCACHE_START, x->start = (int64_t)1 << 32; t->data = &x->start;
             t->type = PKV_TENSOR_INT64)
SPOIL_TENSOR(start_near_the_end, KVCACHE_START, x->start = INT64_MAX; t->data = &x->start;
             t->type = PKV_TENSOR_INT64)
SPOIL(slots_on_dense, contract_case_set(x, SLOT_IDS, x->unread, PKV_TENSOR_INT32, 1, 3, 0, 0, 0);
      x->unread[1] = 1; x->unread[2] = 2)
SPOIL(lengths_on_dense,
      contract_case_set(x, CU_SEQLENS_K, x->gqa->cu_seqlens_q, PKV_TENSOR_INT32, 1, 3, 0, 0, 0))
SPOIL_TENSOR(present_elsewhere, PRESENT_KEY, t->data = x->gqa->args.past.v)
SPOIL_TENSOR(present_swapped, PRESENT_KEY, t->data = x->gqa->args.past.v;
             contract_case_tensor(x, PRESENT_VALUE)->data = x->gqa->args.past.k)
SPOIL(q_lengths_fall, x->gqa->cu_seqlens_q[1] = 5)
SPOIL(q_lengths_begin_late, x->gqa->cu_seqlens_q[0] = 1)
SPOIL(q_lengths_end_early, x->gqa->cu_seqlens_q[3] = 5)
SPOIL_TENSOR(q_lengths_of_one_row_less, CU_SEQLENS_Q, t->dims[0] = 3)
SPOIL_TENSOR(q_lengths_empty, CU_SEQLENS_Q, t->dims[0] = 0)

static void dense_starts_that_lead_astray_refuse(void)
{
    static const struct refusal refusals[] = {
        {"a negative start", start_negative, "kvcache_start"},
        {"no room behind the start", start_beyond, "kv_lens[0]"},
        {"a start beyond the cache", start_far_beyond, "kvcache_start"},
        {"a start of 2^32", start_wraps, "kvcache_start"},
        {"a start of INT64_MAX", start_near_the_end, "kvcache_start"},
        {"slot_ids", slots_on_dense, "slot_ids"},
        {"cu_seqlens_k", lengths_on_dense, "cu_seqlens_k"},
        {"present that is not past", present_elsewhere, "present"},
        {"present with sides swapped", present_swapped, "present"},
        {"cu_seqlens_q that falls", q_lengths_fall, "cu_seqlens_q[2]"},
        {"cu_seqlens_q that begins at 1", q_lengths_begin_late, "cu_seqlens_q[0]"},
        {"cu_seqlens_q that ends early", q_lengths_end_early, "cu_seqlens_q[3]"},
        {"cu_seqlens_q of a row less", q_lengths_of_one_row_less, "cu_seqlens_q"},
        {"cu_seqlens_q without an element", q_lengths_empty, "cu_seqlens_q"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_DENSE, 0);
    assert_all_refuse(&spec, refusals);
}

SPOIL_TENSOR(present_too_short, PRESENT_KEY, t->dims[2]--;
             contract_case_tensor(x, PRESENT_VALUE)->dims[2]--)
SPOIL_TENSOR(present_of_fewer_rows, PRESENT_KEY, t->dims[0]--;
             contract_case_tensor(x, PRESENT_VALUE)->dims[0]--)
SPOIL_TENSOR(present_over_past, PRESENT_KEY, t->data = x->gqa->args.past.k)
SPOIL(no_present, contract_case_absent(x, PRESENT_KEY); contract_case_absent(x, PRESENT_VALUE))
SPOIL_TENSOR(present_of_another_type, PRESENT_KEY, t->type = PKV_TENSOR_F16)
SPOIL(rows_uneven, x->gqa->cu_seqlens_q[1] = 3)

static void functional_outputs_that_do_not_fit_refuse(void)
{
    static const struct refusal refusals[] = {
        {"present without room", present_too_short, "present"},
        {"present of fewer rows", present_of_fewer_rows, "present"},
        {"present over past", present_over_past, "present"},
        {"no present", no_present, "present"},
        {"present of another type", present_of_another_type, "present"},
        {"rows of different lengths", rows_uneven, "row 1"},
        {"slot_ids", slots_on_dense, "slot_ids"},
        {"cu_seqlens_k", lengths_on_dense, "cu_seqlens_k"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_DENSE_COPY, 0);
    assert_all_refuse(&spec, refusals);
}

/* Without a cache the tensors themselves bound what may be read. */
SPOIL(slots_without_cache,
      contract_case_set(x, SLOT_IDS, x->unread, PKV_TENSOR_INT32, 1, 3, 0, 0, 0);
      x->unread[1] = 1; x->unread[2] = 2)
SPOIL(k_lengths_end_early, x->gqa->cu_seqlens_k[3]--)
SPOIL(k_lengths_begin_late, x->gqa->cu_seqlens_k[0] = 1)
SPOIL(k_lengths_fall, x->gqa->cu_seqlens_k[1] = 20)
SPOIL_TENSOR(k_lengths_short, CU_SEQLENS_K, t->dims[0]--)
SPOIL_TENSOR(keys_fewer_than_lengths, KEY, t->dims[0]--; contract_case_tensor(x, VALUE)->dims[0]--)
SPOIL_TENSOR(values_fewer_than_keys, VALUE, t->dims[0]--)
SPOIL_TENSOR(keys_fewer_than_queries, KEY, contract_case_absent(x, CU_SEQLENS_K); t->dims[0] = 5;
             contract_case_tensor(x, VALUE)->dims[0] = 5)
SPOIL(no_keys, contract_case_absent(x, KEY); contract_case_absent(x, VALUE))
SPOIL(present_without_past, x->tensors[PRESENT_KEY] = x->tensors[KEY];
      x->args.out_present_key = &x->tensors[PRESENT_KEY];
      x->args.out_present_value = &x->tensors[PRESENT_KEY])

static void lengths_beyond_keys_without_a_cache_refuse(void)
{
    static const struct refusal refusals[] = {
        {"slot_ids", slots_without_cache, "slot_ids"},
        {"cu_seqlens_k short of the keys", k_lengths_end_early, "cu_seqlens_k"},
        {"cu_seqlens_k that begins at 1", k_lengths_begin_late, "cu_seqlens_k[0]"},
        {"cu_seqlens_k that falls", k_lengths_fall, "cu_seqlens_k[2]"},
        {"cu_seqlens_k of a row less", k_lengths_short, "cu_seqlens_k"},
        {"fewer keys than cu_seqlens_k says", keys_fewer_than_lengths, "key"},
        {"fewer values than keys", values_fewer_than_keys, "value"},
        {"fewer keys than queries", keys_fewer_than_queries, "key"},
        {"no keys at all", no_keys, "k is NULL"},
        {"present outputs", present_without_past, "present"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_NONE, 0);
    assert_all_refuse(&spec, refusals);
}

/* Read-only */
SPOIL(present_bound, const struct pkv_kv_view *past = &x->gqa->args.past;
      contract_case_set(x, PRESENT_KEY, past->k, PKV_TENSOR_F32, 4, past->num_blocks, 2,
                        past->block_size, 12);
      contract_case_set(x, PRESENT_VALUE, past->v, PKV_TENSOR_F32, 4, past->num_blocks, 2,
                        past->block_size, 12))

static void present_bound_on_a_read_only_attend_refuses(void)
{
    static const struct refusal refusals[] = {
        {"present bound", present_bound, "present"},
        {"a length below the row's queries", length_below_tokens, "kv_lens[1]"},
        {NULL, NULL, NULL}};
    static const enum pkv_cache_form forms[] = {PKV_CACHE_CONTINUOUS, PKV_CACHE_PAGED};
    for (size_t i = 0; i < 2; i++) {
        struct case_spec spec = good(forms[i], 0);
        spec.read_only = true;
        assert_all_refuse(&spec, refusals);
    }
}

/* Options */
SPOIL(cos_alone, contract_case_absent(x, ROPE_SIN))
SPOIL(sin_alone, contract_case_absent(x, ROPE_COS))
SPOIL(no_tables, contract_case_absent(x, ROPE_COS); contract_case_absent(x, ROPE_SIN);
      contract_case_absent(x, POSITION_IDS); x->args.rotary_mode = NULL)
SPOIL(positions_without_tables, no_tables(x); contract_case_absent(x, Q_NORM_GAIN);
      contract_case_absent(x, K_NORM_GAIN); x->args.qk_norm_eps = NULL;
      contract_case_set(x, POSITION_IDS, x->gqa->position_ids, PKV_TENSOR_INT64, 1, 5, 0, 0, 0))
SPOIL(mode_without_tables, no_tables(x); contract_case_absent(x, Q_NORM_GAIN);
      contract_case_absent(x, K_NORM_GAIN); x->args.qk_norm_eps = NULL;
      x->rotary_mode = PKV_ROTARY_INTERLEAVED; x->args.rotary_mode = &x->rotary_mode)
SPOIL(mode_unknown, x->rotary_mode = (enum pkv_rotary_mode)2; x->args.rotary_mode = &x->rotary_mode)
SPOIL_TENSOR(tables_too_wide, ROPE_COS, t->dims[0] = t->dims[0] * t->dims[1] / 7; t->dims[1] = 7;
             x->tensors[ROPE_SIN].dims[0] = t->dims[0]; x->tensors[ROPE_SIN].dims[1] = 7)
SPOIL_TENSOR(tables_of_two_types, ROPE_SIN,
             t->type = t->type == PKV_TENSOR_F16 ? PKV_TENSOR_BF16 : PKV_TENSOR_F16)
SPOIL(position_negative, x->gqa->position_ids[2] = -1)
SPOIL(position_beyond, x->gqa->position_ids[1] = x->gqa->args.constants.rope_positions)
SPOIL(position_wraps, x->gqa->position_ids[0] = (int64_t)1 << 32)
SPOIL(no_eps, x->args.qk_norm_eps = NULL)
SPOIL(no_weight, contract_case_absent(x, Q_NORM_GAIN); contract_case_absent(x, K_NORM_GAIN))
SPOIL(eps_zero, x->qk_norm_eps = 0)
SPOIL(eps_negative, x->qk_norm_eps = -1e-6)
SPOIL(eps_nan, x->qk_norm_eps = (double)NAN)
SPOIL(eps_infinite, x->qk_norm_eps = (double)INFINITY)
SPOIL(eps_beyond_f32, x->qk_norm_eps = 1e300)
SPOIL(eps_below_f32, x->qk_norm_eps = 1e-300)

static void rope_and_norms_that_do_not_fit_refuse(void)
{
    static const struct refusal refusals[] = {
        {"rope_cos without rope_sin", cos_alone, "rope_sin"},
        {"rope_sin without rope_cos", sin_alone, "rope_cos"},
        {"norm weights without cos/sin tables", no_tables, "q_norm_gain"},
        {"position_ids without cos/sin tables", positions_without_tables, "position_ids"},
        {"rotary_mode without cos/sin tables", mode_without_tables, "rotary_mode"},
        {"unknown rotary_mode", mode_unknown, "rotary_mode"},
        {"cos/sin tables wider than the head", tables_too_wide, "rope_width"},
        {"cos/sin tables of two types", tables_of_two_types, "rope_sin"},
        {"a negative position", position_negative, "position_ids[2]"},
        {"a position beyond the cos/sin tables", position_beyond, "position_ids[1]"},
        {"a position of 2^32", position_wraps, "position_ids[0]"},
        {"norm weights without eps", no_eps, "qk_norm_eps"},
        {"eps without a norm weight", no_weight, "qk_norm_eps"},
        {"eps 0", eps_zero, "qk_norm_eps"},
        {"negative eps", eps_negative, "qk_norm_eps"},
        {"eps NaN", eps_nan, "qk_norm_eps"},
        {"eps infinite", eps_infinite, "qk_norm_eps"},
        {"eps above f32", eps_beyond_f32, "qk_norm_eps"},
        {"eps that f32 makes 0", eps_below_f32, "qk_norm_eps"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_PAGED, CASE_ROPE | CASE_POSITION_IDS | CASE_NORM);
    assert_all_refuse(&spec, refusals);
}

/* A norm weight is one vector of the head's width, whatever else holds as many elements. */
SPOIL_TENSOR(weight_of_a_column, K_NORM_GAIN, t->rank = 2; t->dims[1] = 1)
SPOIL_TENSOR(weight_of_a_row, K_NORM_GAIN, t->rank = 2; t->dims[1] = t->dims[0]; t->dims[0] = 1)
SPOIL_TENSOR(weight_of_half_a_head, K_NORM_GAIN, t->dims[0] = 6)
SPOIL_TENSOR(weight_of_one, K_NORM_GAIN, t->rank = 0)

static void norm_weights_of_another_shape_refuse(void)
{
    static const struct refusal refusals[] = {{"[width][1]", weight_of_a_column, "k_norm_gain"},
                                              {"[1][width]", weight_of_a_row, "k_norm_gain"},
                                              {"half a head", weight_of_half_a_head, "k_norm_gain"},
                                              {"one number", weight_of_one, "k_norm_gain"},
                                              {NULL, NULL, NULL}};
    struct case_spec spec = good(PKV_CACHE_PAGED, CASE_ROPE | CASE_NORM);
    for (int tries = 0; tries < 16; tries++) { /* until the details give k a norm weight */
        struct contract_case *x = contract_case_make(&spec, 0);
        const bool has_weight = contract_case_tensor(x, K_NORM_GAIN) != NULL;
        contract_case_free(x);
        if (has_weight) {
            assert_all_refuse(&spec, refusals);
            return;
        }
        spec.seed++;
    }
    CU_FAIL("no case with a norm weight of k");
}

static float sink_values[4];
static void set_sinks(struct contract_case *x, float first)
{
    sink_values[0] = first;
    contract_case_set(x, HEAD_SINK, sink_values, PKV_TENSOR_F32, 1, 4, 0, 0, 0);
}
static float two_scales[] = {0.5f, 0.5f}, no_scale[] = {NAN}, one_scale[] = {0.01f};
SPOIL(sink_nan, set_sinks(x, NAN))
SPOIL(sink_infinite, set_sinks(x, INFINITY))
SPOIL(sink_and_smooth, set_sinks(x, 1); x->smooth_softmax = true;
      x->args.smooth_softmax = &x->smooth_softmax)
SPOIL(sinks_of_kv_heads, set_sinks(x, 1); x->tensors[HEAD_SINK].dims[0] = 2)
SPOIL(sinks_of_rank_two, set_sinks(x, 1); x->tensors[HEAD_SINK].rank = 2;
      x->tensors[HEAD_SINK].dims[1] = 1)
SPOIL(two_q_scales, contract_case_set(x, Q_SCALE, two_scales, PKV_TENSOR_F32, 1, 2, 0, 0, 0))
SPOIL(empty_q_scale, contract_case_set(x, Q_SCALE, two_scales, PKV_TENSOR_F32, 1, 0, 0, 0, 0))
SPOIL(q_scale_nan, contract_case_set(x, Q_SCALE, no_scale, PKV_TENSOR_F32, 0, 0, 0, 0, 0))
SPOIL(softcap_negative, x->softcap = -1; x->args.softcap = &x->softcap)
SPOIL(softcap_just_negative, x->softcap = -1e-300; x->args.softcap = &x->softcap)
SPOIL(softcap_nan, x->softcap = (double)NAN; x->args.softcap = &x->softcap)
SPOIL(softcap_infinite, x->softcap = 1e300; x->args.softcap = &x->softcap)
SPOIL(window_negative, x->sliding_window = -1; x->args.sliding_window = &x->sliding_window)
SPOIL(window_not_causal, x->sliding_window = 2; x->args.sliding_window = &x->sliding_window;
      x->is_causal = false; x->args.is_causal = &x->is_causal)
SPOIL(scale_on_floats, contract_case_set(x, K_SCALE, one_scale, PKV_TENSOR_F32, 0, 0, 0, 0, 0))
SPOIL(output_over_query, x->tensors[OUTPUT].data = x->tensors[QUERY].data)
SPOIL(output_over_past, x->tensors[OUTPUT].data = x->tensors[PAST_KEY].data)

static void logits_and_windows_out_of_range_refuse(void)
{
    static const struct refusal refusals[] = {
        {"head_sink NaN", sink_nan, "head_sink[0]"},
        {"head_sink infinite", sink_infinite, "head_sink[0]"},
        {"head_sink beside smooth_softmax", sink_and_smooth, "smooth_softmax"},
        {"head_sink of the KV heads", sinks_of_kv_heads, "head_sink"},
        {"head_sink of rank 2", sinks_of_rank_two, "head_sink"},
        {"two q_scales", two_q_scales, "q_scale"},
        {"an empty q_scale", empty_q_scale, "q_scale"},
        {"q_scale NaN", q_scale_nan, "q_scale"},
        {"negative softcap", softcap_negative, "softcap"},
        {"negative softcap that f32 makes 0", softcap_just_negative, "softcap"},
        {"softcap NaN", softcap_nan, "softcap"},
        {"softcap infinite in f32", softcap_infinite, "softcap"},
        {"negative sliding_window", window_negative, "sliding_window"},
        {"sliding_window without the causal bound", window_not_causal, "sliding_window"},
        {"k_scale on a float cache", scale_on_floats, "k_scale"},
        {"output over query", output_over_query, "overlaps q"},
        {"output over past_key", output_over_past, "overlaps past"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = good(PKV_CACHE_PAGED, 0);
    assert_all_refuse(&spec, refusals);
}

static int64_t kept_values[3];
static void set_kept(struct contract_case *x, int32_t rank, int64_t count, int64_t last)
{
    kept_values[0] = rank == 0 ? last : 0;
    kept_values[2] = last;
    contract_case_set(x, KEPT_PREFIX, kept_values, PKV_TENSOR_INT64, rank, count, 0, 0, 0);
}
static int32_t narrow_kept[] = {0, -3, 0};
SPOIL(kept_negative, set_kept(x, 1, 3, -1))
SPOIL(kept_negative_alone, set_kept(x, 0, 0, -7))
SPOIL(kept_negative_narrow,
      contract_case_set(x, KEPT_PREFIX, narrow_kept, PKV_TENSOR_INT32, 1, 3, 0, 0, 0))
SPOIL(kept_of_two_rows, set_kept(x, 1, 2, 1))
SPOIL(kept_of_one_row, set_kept(x, 1, 1, 1))
SPOIL(kept_of_rank_two, set_kept(x, 1, 3, 1); x->tensors[KEPT_PREFIX].rank = 2;
      x->tensors[KEPT_PREFIX].dims[1] = 1)
SPOIL(kept_of_floats, set_kept(x, 1, 3, 1); x->tensors[KEPT_PREFIX].type = PKV_TENSOR_F32)

static void kept_prefixes_that_are_none_refuse(void)
{
    static const struct refusal refusals[] = {
        {"a negative P in a row", kept_negative, "kept_prefix[2]"},
        {"a negative P for all", kept_negative_alone, "kept_prefix[0]"},
        {"a negative int32", kept_negative_narrow, "kept_prefix[1]"},
        {"two for three rows", kept_of_two_rows, "kept_prefix"},
        {"a vector of one for three rows", kept_of_one_row, "kept_prefix"},
        {"rank 2", kept_of_rank_two, "kept_prefix"},
        {"floats", kept_of_floats, "kept_prefix"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = windowed();
    assert_all_refuse(&spec, refusals);
}

static float channel_scales[24];
static void set_scales(struct contract_case *x, int32_t rank, int64_t a, int64_t b, int64_t c)
{
    for (int i = 0; i < 24; i++) {
        channel_scales[i] = 0.01f;
    }
    contract_case_set(x, K_SCALE, channel_scales, PKV_TENSOR_F32, rank, a, b, c, 0);
}
static float zero_scale[] = {0}, negative_scale[] = {-0.01f}, infinite_scale[] = {INFINITY};
SPOIL(no_k_scale, contract_case_absent(x, K_SCALE))
SPOIL(no_v_scale, contract_case_absent(x, V_SCALE))
SPOIL(scale_zero, contract_case_set(x, K_SCALE, zero_scale, PKV_TENSOR_F32, 0, 0, 0, 0, 0))
SPOIL(scale_negative, contract_case_set(x, V_SCALE, negative_scale, PKV_TENSOR_F32, 0, 0, 0, 0, 0))
SPOIL(scale_infinite, contract_case_set(x, K_SCALE, infinite_scale, PKV_TENSOR_F32, 0, 0, 0, 0, 0))
SPOIL(scale_nan, contract_case_set(x, V_SCALE, no_scale, PKV_TENSOR_F32, 0, 0, 0, 0, 0))
SPOIL(scales_of_heads, set_scales(x, 1, 2, 0, 0))
SPOIL(scales_of_channels, set_scales(x, 1, 12, 0, 0))
SPOIL(scales_transposed, set_scales(x, 2, 12, 2, 0))
SPOIL(scales_in_a_column, set_scales(x, 3, 2, 12, 1))

static void scales_of_a_quantised_cache_that_do_not_fit_refuse(void)
{
    static const struct refusal refusals[] = {
        {"no k_scale", no_k_scale, "k_scale"},
        {"no v_scale", no_v_scale, "v_scale"},
        {"zero", scale_zero, "k_scale"},
        {"negative", scale_negative, "v_scale"},
        {"infinite", scale_infinite, "k_scale"},
        {"NaN", scale_nan, "v_scale"},
        {"one for each KV head", scales_of_heads, "k_scale"},
        {"one for each channel", scales_of_channels, "k_scale"},
        {"[width][kv_heads]", scales_transposed, "k_scale"},
        {"[kv_heads][width][1]", scales_in_a_column, "k_scale"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = quantised();
    assert_all_refuse(&spec, refusals);
}

static const struct test_case cases[] = {
    TEST(tensors_of_another_type_rank_or_length_refuse),
    TEST(missing_and_halved_parameters_refuse),
    TEST(tensors_without_width_refuse),
    TEST(heads_that_do_not_divide_refuse),
    TEST(paged_tables_and_lengths_that_lead_astray_refuse),
    TEST(slots_that_are_none_refuse),
    TEST(dense_starts_that_lead_astray_refuse),
    TEST(functional_outputs_that_do_not_fit_refuse),
    TEST(lengths_beyond_keys_without_a_cache_refuse),
    TEST(present_bound_on_a_read_only_attend_refuses),
    TEST(rope_and_norms_that_do_not_fit_refuse),
    TEST(norm_weights_of_another_shape_refuse),
    TEST(logits_and_windows_out_of_range_refuse),
    TEST(kept_prefixes_that_are_none_refuse),
    TEST(scales_of_a_quantised_cache_that_do_not_fit_refuse),
    TEST_END,
};
const struct test_suite suite_contract_refuse = {"contract_refuse", cases};
