/* SPDX-License-Identifier: MIT
 *
 * The options of the operator beside its geometry (rope, norms, sinks, softcap, masks, quantised
 * caches, values inside keys): answers worked out by hand, identities that hold bit by bit, and
 * what is refused. */
#include <math.h>
#include <string.h>

#include "support/gqa_case.h"
#include "support/spoil.h"

/* By hand: one row, one head of width 1, q = 1, scale 1, keys and values given. */

struct hand {
    int32_t kv_len;
    float k[4], v[4];
    struct pkv_attn_constants constants;
    const float *mask; /* [kv_len] */
};

static enum pkv_status attend_by_hand(const struct hand *hand, float *out, float *lse)
{
    static const float one = 1;
    float k[4], v[4];
    memcpy(k, hand->k, sizeof k);
    memcpy(v, hand->v, sizeof v);
    struct pkv_gqa_args args = case_f32_args(PKV_CACHE_DENSE, 1, 1, 1, 1);
    args.q = &one;
    args.out = out;
    args.lse = lse;
    args.kv_lens = &hand->kv_len;
    args.past = case_f32_view(k, v, 1, 1, 4, 1);
    args.constants = hand->constants;
    args.constants.q_scale = &one;
    if (hand->mask != NULL) {
        args.attn_mask = hand->mask;
        args.mask_batch = args.mask_heads = args.mask_queries = 1;
        args.mask_keys = hand->kv_len;
    }
    pkv_workspace *workspace = case_workspace(1);
    const enum pkv_status status = pkv_attention_over_cache(workspace, &args);
    pkv_workspace_destroy(workspace);
    return status;
}

static void assert_by_hand(const struct hand *hand, double want)
{
    float out = NAN, lse = NAN;
    ASSERT_STATUS(PKV_OK, attend_by_hand(hand, &out, &lse));
    ASSERT_CLOSE(out, want);
}

/* E4: the softcap bounds logits before the mask is added to them. */
static void softcap_comes_before_the_mask(void)
{
    static const float mask[] = {0, 0, -INFINITY};
    struct hand hand = {.kv_len = 2, .k = {0, 10, 0}, .v = {0, 1, 50}};
    hand.constants.softcap = 2;
    assert_by_hand(&hand, 0.8807780);
    hand.kv_len = 3;
    hand.mask = mask;
    assert_by_hand(&hand, 0.8807780);
    hand.v[2] = hand.k[2] = NAN;
    assert_by_hand(&hand, 0.8807780);
}

/* E2: a masked key has no part in the result, however low the logits of the others are. */
static void masked_key_stays_out_below_any_sentinel(void)
{
    static const float mask[] = {-2e4f, -INFINITY};
    struct hand hand = {.kv_len = 2, .k = {0, 0}, .v = {3, 100}};
    hand.mask = mask;
    assert_by_hand(&hand, 3);
}

static void fully_masked_row_is_zero_and_minus_infinity(void)
{
    static const float mask[] = {-INFINITY, -INFINITY};
    static const float sink = 1.5f;
    struct hand hand = {.kv_len = 2, .k = {NAN, 0}, .v = {3, NAN}};
    float out = NAN, lse = NAN;
    hand.mask = mask;
    ASSERT_STATUS(PKV_OK, attend_by_hand(&hand, &out, &lse));
    CU_ASSERT_EQUAL(out, 0.0f);
    CU_ASSERT_EQUAL(lse, -INFINITY);
    hand.constants.head_sink = &sink;
    hand.constants.head_sink_count = 1;
    ASSERT_STATUS(PKV_OK, attend_by_hand(&hand, &out, &lse));
    CU_ASSERT_EQUAL(out, 0.0f);
    CU_ASSERT_EQUAL(lse, 1.5f);
}

static void assert_with_sink(const struct hand *hand, float sink, double want)
{
    struct hand with_sink = *hand;
    with_sink.constants.head_sink = &sink;
    with_sink.constants.head_sink_count = 1;
    assert_by_hand(&with_sink, want);
}

/* E5: the sink has its part in the denominator, and in the maximum that is subtracted. */
static void sink_takes_its_share_of_the_weights(void)
{
    const struct hand capped = {
        .kv_len = 2, .k = {0, 10}, .v = {0, 1}, .constants = {.softcap = 2}};
    const struct hand two = {.kv_len = 2, .k = {0, 0}, .v = {1, 3}};
    const struct hand low = {.kv_len = 2, .k = {-1000, -1000}, .v = {1, 3}};
    assert_with_sink(&capped, 1, 0.6652005);
    assert_with_sink(&two, logf(2), 1.0);
    assert_with_sink(&two, 0, 4.0 / 3);
    assert_with_sink(&two, 200, 0);
    assert_with_sink(&two, 80, 0);
    assert_with_sink(&low, 0, 0);
    assert_with_sink(&two, -INFINITY, 2);
}

static void smooth_softmax_is_a_sink_of_zero(void)
{
    struct hand hand = {.kv_len = 2, .k = {0, 0}, .v = {1, 2}};
    hand.constants.smooth_softmax = true;
    assert_by_hand(&hand, 1);
}

/* Identities */

static struct case_spec with_options(uint64_t variant, unsigned options)
{
    struct case_spec spec = case_plain(test_seed() + variant);
    spec.dtype = (enum pkv_dtype)(variant % 3);
    spec.k_dtype = spec.v_dtype = spec.dtype;
    spec.kv_heads = 2;
    spec.group = 2;
    spec.k_width = spec.v_width = 16;
    spec.options = options;
    case_add_row(&spec, 0, 3, 40);
    case_add_row(&spec, 1, 1, 19);
    return spec;
}

/* change edits the call; the bits must stay those of the unedited one. */
static void assert_change_is_nothing(const struct case_spec *spec,
                                     void (*change)(struct gqa_case *c))
{
    pkv_workspace *workspace = case_workspace(2);
    struct gqa_case *plain = gqa_case_run(spec, workspace);
    struct gqa_case *changed = gqa_case_make(spec);
    change(changed);
    ASSERT_STATUS(PKV_OK, gqa_case_call(changed, workspace));
    CU_ASSERT(gqa_case_same_rows(plain, changed));
    gqa_case_free(plain);
    gqa_case_free(changed);
    pkv_workspace_destroy(workspace);
}

static const float no_sinks[] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
static const float zero_sinks[] = {0, 0, 0, 0};

static void set_no_sinks(struct gqa_case *c)
{
    c->args.constants.head_sink = no_sinks;
    c->args.constants.head_sink_count = 4;
}

static void set_zero_sinks(struct gqa_case *c)
{
    c->args.constants.smooth_softmax = false;
    c->args.constants.head_sink = zero_sinks;
    c->args.constants.head_sink_count = 4;
}

static void sinks_of_minus_infinity_are_no_sinks(void)
{
    const struct case_spec spec = with_options(0, 0);
    assert_change_is_nothing(&spec, set_no_sinks);
}

static void sinks_of_zero_are_smooth_softmax(void)
{
    const struct case_spec spec = with_options(1, CASE_SMOOTH);
    assert_change_is_nothing(&spec, set_zero_sinks);
}

static int64_t natural_positions[] = {37, 38, 39, 18};

static void set_natural_positions(struct gqa_case *c)
{
    c->args.position_ids = natural_positions;
}

static void positions_that_are_natural_change_nothing(void)
{
    for (uint64_t i = 0; i < 6; i++) {
        const struct case_spec spec = with_options(i, CASE_ROPE);
        assert_change_is_nothing(&spec, set_natural_positions);
    }
}

static const uint8_t all_ones[3 * 40] = {
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

static void set_full_mask(struct gqa_case *c)
{
    c->args.attn_mask = all_ones;
    c->args.mask_dtype = PKV_INT8;
    c->args.mask_batch = c->args.mask_heads = 1;
    c->args.mask_queries = 3;
    c->args.mask_keys = 40;
}

static void mask_that_admits_all_changes_nothing(void)
{
    const struct case_spec spec = with_options(0, 0);
    assert_change_is_nothing(&spec, set_full_mask);
}

/* Everything at once: forms, threads, chunks and layout leave the bits alone here too. */

static const unsigned all_options = CASE_Q_SCALE | CASE_ROPE | CASE_NORM | CASE_SINK | CASE_SOFTCAP;

static struct case_spec quantised(uint64_t variant)
{
    struct case_spec spec = with_options(variant, all_options);
    spec.k_dtype = variant % 2 ? PKV_INT8 : PKV_E4M3;
    spec.v_dtype = variant % 3 ? PKV_INT8 : PKV_BF16;
    return spec;
}

static void options_keep_bits_over_threads_and_layouts(void)
{
    static const int threads[] = {2, 3, 8};
    pkv_workspace *alone = case_workspace(1);
    for (uint64_t i = 0; i < 12; i++) {
        pkv_workspace *workspace = case_workspace(threads[i % 3]);
        struct case_spec spec = i < 6 ? with_options(i, all_options | CASE_MASK) : quantised(i);
        struct gqa_case *one = gqa_case_run(&spec, alone);
        spec.layout += 77;
        spec.form = i % 2 ? PKV_CACHE_CONTINUOUS : PKV_CACHE_PAGED;
        struct gqa_case *other = gqa_case_make(&spec);
        ASSERT_STATUS(PKV_OK, gqa_case_call(other, workspace));
        CU_ASSERT(gqa_case_same_rows(one, other));
        gqa_case_free(one);
        gqa_case_free(other);
        pkv_workspace_destroy(workspace);
    }
    pkv_workspace_destroy(alone);
}

static void options_keep_bits_over_chunks(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (uint64_t i = 0; i < 12; i++) {
        struct case_spec spec = i < 6 ? with_options(i, all_options) : quantised(i);
        spec.batch = 0;
        case_add_row(&spec, 0, 150, 150);
        struct gqa_case *whole = gqa_case_run(&spec, workspace);
        struct gqa_case *cut = gqa_case_make(&spec);
        const int32_t step = 1 + 21 * (int32_t)i;
        for (int32_t begin = 0; begin < 150; begin += step) {
            const int32_t end = begin + step < 150 ? begin + step : 150;
            ASSERT_STATUS(PKV_OK, gqa_case_call_chunk(cut, workspace, begin, end));
        }
        CU_ASSERT(gqa_case_same_rows(whole, cut));
        gqa_case_free(whole);
        gqa_case_free(cut);
    }
    pkv_workspace_destroy(workspace);
}

static void options_keep_bits_between_one_call_and_two(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (uint64_t i = 0; i < 12; i++) {
        const struct case_spec spec =
            i < 6 ? with_options(i, all_options | CASE_MASK) : quantised(i);
        struct gqa_case *one = gqa_case_run(&spec, workspace);
        struct gqa_case *two = gqa_case_make(&spec);
        struct pkv_gqa_args args = two->args;
        args.q = NULL;
        args.out = NULL;
        args.lse = NULL;
        args.attn_mask = NULL;
        args.mask_batch = args.mask_heads = args.mask_queries = args.mask_keys = 0;
        args.mask_dtype = PKV_F32;
        ASSERT_STATUS(PKV_OK, pkv_append(workspace, &args));
        args = two->args;
        args.k = args.v = NULL;
        ASSERT_STATUS(PKV_OK, pkv_attention_over_cache(workspace, &args));
        CU_ASSERT(gqa_case_same_rows(one, two));
        gqa_case_free(one);
        gqa_case_free(two);
    }
    pkv_workspace_destroy(workspace);
}

/* Refusals */

struct refusal {
    const char *name;
    void (*spoil)(struct gqa_case *c);
    const char *culprit;
};

static void assert_all_refuse(const struct case_spec *spec, const struct refusal *refusals)
{
    const int all = REGION_INPUT | REGION_CACHE | REGION_OUTPUT;
    pkv_workspace *workspace = case_workspace(2);
    gqa_case_free(gqa_case_run(spec, workspace));
    for (const struct refusal *r = refusals; r->name != NULL; r++) {
        struct gqa_case *c = gqa_case_make(spec);
        r->spoil(c);
        gqa_case_snapshot(c);
        ASSERT_CASE_REFUSED(r->name, PKV_INVALID_ARGUMENT, r->culprit, gqa_case_call(c, workspace));
        ASSERT_CASE(r->name, gqa_case_changed(c, all) == -1);
        gqa_case_free(c);
    }
    pkv_workspace_destroy(workspace);
}

#define SPOILED struct gqa_case *c

SPOIL(cos_alone, c->args.constants.rope_sin = NULL)
SPOIL(sin_alone, c->args.constants.rope_cos = NULL)
SPOIL(tables_of_codes, c->args.constants.rope_dtype = PKV_INT8)
SPOIL(tables_of_no_width, c->args.constants.rope_width = 0)
SPOIL(tables_too_wide, c->args.constants.rope_width = 9; c->args.constants.rotary_offset = 0)
SPOIL(tables_beyond_the_head,
      c->args.constants.rotary_offset = 17 - 2 * c->args.constants.rope_width)
SPOIL(offset_negative, c->args.constants.rotary_offset = -1)
SPOIL(mode_unknown, c->args.constants.rotary_mode = (enum pkv_rotary_mode)2)
SPOIL(tables_too_short, c->args.constants.rope_positions = 39)
SPOIL(tables_without_positions, c->args.constants.rope_positions = 0)

static void rope_tables_that_do_not_fit_refuse(void)
{
    static const struct refusal refusals[] = {
        {"cos alone", cos_alone, "rope_sin"},
        {"sin alone", sin_alone, "rope_cos"},
        {"cos/sin tables of int8", tables_of_codes, "rope_dtype"},
        {"width 0", tables_of_no_width, "rope_width"},
        {"wider than half the head", tables_too_wide, "rope_width"},
        {"offset and width beyond the head", tables_beyond_the_head, "rotary_offset"},
        {"negative offset", offset_negative, "rotary_offset"},
        {"unknown mode", mode_unknown, "rotary_mode"},
        {"fewer positions than keys", tables_too_short, "rope_positions"},
        {"no positions", tables_without_positions, "rope_positions"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = with_options(0, CASE_ROPE);
    assert_all_refuse(&spec, refusals);
}

SPOIL(position_negative, c->position_ids[2] = -1)
SPOIL(position_beyond, c->position_ids[3] = c->args.constants.rope_positions)
SPOIL(position_wraps, c->position_ids[0] = (int64_t)1 << 32)

static void positions_outside_the_tables_refuse(void)
{
    static const struct refusal refusals[] = {
        {"negative", position_negative, "position_ids[2]"},
        {"as many as the cos/sin tables have", position_beyond, "position_ids[3]"},
        {"2^32", position_wraps, "position_ids[0]"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = with_options(0, CASE_ROPE | CASE_POSITION_IDS);
    assert_all_refuse(&spec, refusals);
}

SPOIL(weight_short, c->args.constants.q_norm_gain_count--; c->args.constants.k_norm_gain_count--)
SPOIL(weight_of_codes,
      c->args.constants.q_norm_gain_dtype = c->args.constants.k_norm_gain_dtype = PKV_E4M3)
SPOIL(weight_without_eps, c->args.constants.qk_norm_eps = 0)
SPOIL(eps_negative, c->args.constants.qk_norm_eps = -1e-6f)
SPOIL(eps_nan, c->args.constants.qk_norm_eps = NAN)
SPOIL(eps_infinite, c->args.constants.qk_norm_eps = INFINITY)
SPOIL(eps_without_weight, c->args.constants.q_norm_gain = c->args.constants.k_norm_gain = NULL;
      c->args.constants.q_norm_gain_count = c->args.constants.k_norm_gain_count = 0)
SPOIL(order_unknown, c->args.constants.norm_order = (enum pkv_norm_order)2)
SPOIL(after_rope_without_tables, c->args.constants.rope_cos = c->args.constants.rope_sin = NULL;
      c->args.constants.rope_width = c->args.constants.rotary_offset = 0;
      c->args.constants.rope_positions = 0; c->args.constants.rotary_mode = PKV_ROTARY_HALF_SPLIT;
      c->args.constants.norm_order = PKV_NORM_AFTER_ROPE)

static void norms_that_do_not_fit_refuse(void)
{
    static const struct refusal refusals[] = {
        {"a norm weight of another length", weight_short, "q_norm_gain"},
        {"a norm weight of e4m3", weight_of_codes, "q_norm_gain"},
        {"a norm weight without eps", weight_without_eps, "qk_norm_eps"},
        {"negative eps", eps_negative, "qk_norm_eps"},
        {"eps NaN", eps_nan, "qk_norm_eps"},
        {"eps infinite", eps_infinite, "qk_norm_eps"},
        {"eps without a norm weight", eps_without_weight, "qk_norm_eps"},
        {"unknown order", order_unknown, "norm_order"},
        {"after rope without cos/sin tables", after_rope_without_tables, "q_norm_gain"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = with_options(0, CASE_ROPE | CASE_NORM);
    assert_all_refuse(&spec, refusals);
}

static const float bad_sinks[] = {0, NAN, 0, 0}, infinite_sinks[] = {0, 0, INFINITY, 0};
SPOIL(sinks_three, c->args.constants.head_sink_count = 3)
SPOIL(sinks_five, c->args.constants.head_sink_count = 5)
SPOIL(sink_nan, c->args.constants.head_sink = bad_sinks)
SPOIL(sink_infinite, c->args.constants.head_sink = infinite_sinks)
SPOIL(sink_and_smooth, c->args.constants.smooth_softmax = true)

static void sinks_that_do_not_fit_refuse(void)
{
    static const struct refusal refusals[] = {
        {"one too few", sinks_three, "head_sink"},
        {"one too many", sinks_five, "head_sink"},
        {"NaN", sink_nan, "head_sink[1]"},
        {"infinity", sink_infinite, "head_sink[2]"},
        {"beside smooth softmax", sink_and_smooth, "smooth_softmax"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = with_options(0, CASE_SINK);
    assert_all_refuse(&spec, refusals);
}

SPOIL(mask_of_another_batch, c->args.mask_batch = 3)
SPOIL(mask_of_no_batch, c->args.mask_batch = 0)
SPOIL(mask_of_other_heads, c->args.mask_heads = 3)
SPOIL(mask_of_few_queries, c->args.mask_queries = 2)
SPOIL(mask_of_few_keys, c->args.mask_keys = 39)
SPOIL(mask_of_negative_queries, c->args.mask_queries = -1)
SPOIL(mask_of_negative_keys, c->args.mask_keys = INT32_MIN)
SPOIL(mask_of_another_dtype, c->args.mask_dtype = PKV_BF16)
SPOIL(mask_of_e4m3, c->args.mask_dtype = PKV_E4M3)

static void masks_that_do_not_fit_refuse(void)
{
    static const struct refusal refusals[] = {
        {"three rows for two", mask_of_another_batch, "mask_batch"},
        {"no rows", mask_of_no_batch, "mask_batch"},
        {"three heads for four", mask_of_other_heads, "mask_heads"},
        {"fewer queries than the longest row", mask_of_few_queries, "attn_mask"},
        {"fewer keys than the longest row", mask_of_few_keys, "attn_mask"},
        {"negative mask_queries", mask_of_negative_queries, "mask_queries = -1"},
        {"negative mask_keys", mask_of_negative_keys, "mask_keys = -2147483648"},
        {"bf16 beside f32", mask_of_another_dtype, "mask_dtype"},
        {"e4m3", mask_of_e4m3, "mask_dtype"},
        {NULL, NULL, NULL}};
    const struct case_spec spec = with_options(0, CASE_MASK);
    assert_all_refuse(&spec, refusals);
}

static const float zero = 0, below = -0.01f, not_a_number = NAN, infinite = INFINITY;
SPOIL(scale_absent, c->args.constants.k_scale = NULL; c->args.constants.k_scale_count = 0)
SPOIL(v_scale_absent, c->args.constants.v_scale = NULL; c->args.constants.v_scale_count = 0)
SPOIL(scale_zero, c->args.constants.k_scale = &zero; c->args.constants.k_scale_count = 1)
SPOIL(scale_negative, c->args.constants.v_scale = &below; c->args.constants.v_scale_count = 1)
SPOIL(scale_nan, c->args.constants.k_scale = &not_a_number; c->args.constants.k_scale_count = 1)
SPOIL(scale_infinite, c->args.constants.v_scale = &infinite; c->args.constants.v_scale_count = 1)
SPOIL(scale_of_another_length, c->args.constants.k_scale_count = 16)
SPOIL(scale_of_no_length, c->args.constants.v_scale_count = 0)

/* G2: a scale that is zero or not finite is refused before anything is read. */
static void scales_that_do_not_fit_refuse(void)
{
    static const struct refusal refusals[] = {
        {"no k_scale", scale_absent, "k_scale"},
        {"no v_scale", v_scale_absent, "v_scale"},
        {"zero", scale_zero, "k_scale"},
        {"negative", scale_negative, "v_scale"},
        {"NaN", scale_nan, "k_scale"},
        {"infinite", scale_infinite, "v_scale"},
        {"a head's worth", scale_of_another_length, "k_scale_count"},
        {"none", scale_of_no_length, "v_scale"},
        {NULL, NULL, NULL}};
    struct case_spec spec = with_options(0, 0);
    spec.k_dtype = spec.v_dtype = PKV_INT8;
    assert_all_refuse(&spec, refusals);
}

static const float past_int8 = 2.7e36f, past_e4m3 = 7.6e35f, of_the_product = 1e34f, large = 1e3f;
SPOIL(int8_scale_too_large, c->args.constants.k_scale = &past_int8;
      c->args.constants.k_scale_count = 1)
SPOIL(e4m3_scale_too_large, c->args.constants.v_scale = &past_e4m3;
      c->args.constants.v_scale_count = 1)
SPOIL(product_too_large, c->args.constants.k_scale = &of_the_product;
      c->args.constants.k_scale_count = 1; c->args.constants.q_scale = &large)

static void scales_that_overflow_refuse(void)
{
    static const struct refusal of_int8[] = {
        {"times 128", int8_scale_too_large, "k_scale[0] = 2.7e+36"}, {NULL, NULL, NULL}};
    static const struct refusal of_e4m3[] = {
        {"times 448", e4m3_scale_too_large, "v_scale[0] = 7.6e+35"},
        {"times q_scale and 256", product_too_large, "q_scale = 1000 with k_scale = 1e+34"},
        {NULL, NULL, NULL}};
    struct case_spec spec = with_options(0, 0);
    spec.k_dtype = spec.v_dtype = PKV_INT8;
    assert_all_refuse(&spec, of_int8);
    spec.k_dtype = spec.v_dtype = PKV_E4M3;
    assert_all_refuse(&spec, of_e4m3);
}

/* Two keys of codes of 0 have the weights 1/2: with the largest scale the scores are 0, no NaN, and
 * the value is code * scale / 2. */
static void largest_scale_of_e4m3_is_exact(void)
{
    static const uint8_t codes[] = {0x00, 0x01, 0x38, 0x7e};
    static const float values[] = {0, 0x1p-9f, 1, 448};
    static const float scale = 7.5e35f;
    for (size_t i = 0; i < sizeof codes; i++) {
        const float q = 1;
        float out = NAN;
        uint8_t k[2] = {0, 0};
        uint8_t v[2] = {codes[i], 0};
        const int32_t kv_len = 2;
        struct pkv_gqa_args args = case_f32_args(PKV_CACHE_DENSE, 1, 1, 1, 1);
        args.past = (struct pkv_kv_view){.k = k,
                                         .v = v,
                                         .k_dtype = PKV_E4M3,
                                         .v_dtype = PKV_E4M3,
                                         .num_blocks = 1,
                                         .kv_heads = 1,
                                         .block_size = 2,
                                         .k_width = 1,
                                         .v_width = 1};
        args.constants.k_scale = args.constants.v_scale = &scale;
        args.constants.k_scale_count = args.constants.v_scale_count = 1;
        args.kv_lens = &kv_len;
        args.q = &q;
        args.out = &out;
        case_run(&args);
        CU_ASSERT_EQUAL(out, values[i] * scale / 2);
    }
}

SPOIL(values_wider_than_keys, c->args.v_width = 17)
SPOIL(values_passed, c->args.v = c->args.k)
SPOIL(scale_of_no_values, c->args.constants.v_scale = &infinite;
      c->args.constants.v_scale_count = 1)

static void values_inside_keys_refuse_values_of_their_own(void)
{
    static const struct refusal refusals[] = {
        {"wider than the key", values_wider_than_keys, "v_width"},
        {"v passed", values_passed, "v"},
        {"v_scale given", scale_of_no_values, "v_scale"},
        {NULL, NULL, NULL}};
    struct case_spec spec = with_options(0, 0);
    spec.v_in_k = true;
    spec.v_width = 11;
    assert_all_refuse(&spec, refusals);
}

static void values_inside_keys_may_be_as_wide_as_the_keys(void)
{
    struct case_spec spec = with_options(0, 0);
    spec.v_in_k = true;
    struct gqa_case *c = gqa_case_make(&spec);
    pkv_workspace *workspace = case_workspace(2);
    for (int32_t v_width = 0; v_width <= 16; v_width += 16) { /* 0 = k_width */
        c->args.v_width = v_width;
        CU_ASSERT(gqa_case_check(c, workspace));
    }
    gqa_case_free(c);
    pkv_workspace_destroy(workspace);
}

static const struct test_case cases[] = {
    TEST(softcap_comes_before_the_mask),
    TEST(masked_key_stays_out_below_any_sentinel),
    TEST(fully_masked_row_is_zero_and_minus_infinity),
    TEST(sink_takes_its_share_of_the_weights),
    TEST(smooth_softmax_is_a_sink_of_zero),
    TEST(sinks_of_minus_infinity_are_no_sinks),
    TEST(sinks_of_zero_are_smooth_softmax),
    TEST(positions_that_are_natural_change_nothing),
    TEST(mask_that_admits_all_changes_nothing),
    TEST(options_keep_bits_over_threads_and_layouts),
    TEST(options_keep_bits_over_chunks),
    TEST(options_keep_bits_between_one_call_and_two),
    TEST(rope_tables_that_do_not_fit_refuse),
    TEST(positions_outside_the_tables_refuse),
    TEST(norms_that_do_not_fit_refuse),
    TEST(sinks_that_do_not_fit_refuse),
    TEST(masks_that_do_not_fit_refuse),
    TEST(scales_that_do_not_fit_refuse),
    TEST(scales_that_overflow_refuse),
    TEST(largest_scale_of_e4m3_is_exact),
    TEST(values_inside_keys_refuse_values_of_their_own),
    TEST(values_inside_keys_may_be_as_wide_as_the_keys),
    TEST_END,
};
const struct test_suite suite_gqa_options = {"gqa_options", cases};
