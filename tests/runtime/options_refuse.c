/* SPDX-License-Identifier: MIT
 *
 * What a managed cache refuses of the constants of its layers, at create, and of positions, at
 * begin; that both leave nothing behind; and what describe returns of them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/options_case.h"
#include "support/spoil.h"

/* Constants */

struct refusal {
    const char *name;
    void (*spoil)(struct pkv_attn_constants *c);
    const char *field; /* of layers[1], the layer that is spoilt */
};

static float floats[64] = {[0] = NAN, [1] = INFINITY, [2] = -1, [3] = 0};
static const float *const not_a_number = &floats[0], *const infinite = &floats[1],
                          *const negative = &floats[2], *const zero = &floats[3];

#define SPOILED struct pkv_attn_constants *c

SPOIL(q_scale_nan, c->q_scale = not_a_number)
SPOIL(q_scale_infinite, c->q_scale = infinite)
SPOIL(softcap_negative, c->softcap = -1)
SPOIL(softcap_nan, c->softcap = NAN)
SPOIL(sink_and_smooth, c->smooth_softmax = true)
SPOIL(sinks_short, c->head_sink_count--)
SPOIL(sinks_absent, c->head_sink = NULL)
SPOIL(sink_nan, c->head_sink = not_a_number)
SPOIL(sink_infinite, c->head_sink = infinite)
SPOIL(cos_absent, c->rope_cos = NULL)
SPOIL(sin_absent, c->rope_sin = NULL)
SPOIL(tables_of_codes, c->rope_dtype = PKV_INT8)
SPOIL(tables_unknown, c->rope_dtype = (enum pkv_dtype)9)
SPOIL(tables_of_no_rows, c->rope_positions = 0)
SPOIL(tables_of_negative_rows, c->rope_positions = -4)
SPOIL(tables_of_no_width, c->rope_width = 0)
SPOIL(tables_too_wide, c->rope_width = 7)
SPOIL(tables_widest, c->rope_width = INT32_MAX)
SPOIL(offset_negative, c->rotary_offset = -1)
SPOIL(offset_too_far, c->rotary_offset = 1)
SPOIL(offset_largest, c->rotary_offset = INT32_MAX)
SPOIL(mode_unknown, c->rotary_mode = (enum pkv_rotary_mode)2)
SPOIL(no_tables, c->rope_cos = c->rope_sin = NULL)
SPOIL(weight_short, c->q_norm_gain_count = 11)
SPOIL(weight_long, c->k_norm_gain_count = 24)
SPOIL(weight_of_codes, c->q_norm_gain_dtype = PKV_E4M3)
SPOIL(weight_absent, c->k_norm_gain = NULL)
SPOIL(weights_absent, c->q_norm_gain = c->k_norm_gain = NULL;
      c->q_norm_gain_count = c->k_norm_gain_count = 0)
SPOIL(eps_zero, c->qk_norm_eps = 0)
SPOIL(eps_negative, c->qk_norm_eps = -1e-6f)
SPOIL(eps_nan, c->qk_norm_eps = NAN)
SPOIL(eps_infinite, c->qk_norm_eps = INFINITY)
SPOIL(order_unknown, c->norm_order = (enum pkv_norm_order)2)
SPOIL(k_scale_absent, c->k_scale = NULL; c->k_scale_count = 0)
SPOIL(v_scale_absent, c->v_scale = NULL; c->v_scale_count = 0)
SPOIL(scales_of_heads, c->k_scale_count = 2)
SPOIL(scales_of_none, c->v_scale_count = 0)
SPOIL(scale_zero, c->k_scale = zero; c->k_scale_count = 1)
SPOIL(scale_negative, c->v_scale = negative; c->v_scale_count = 1)
SPOIL(scale_nan, c->v_scale = not_a_number; c->v_scale_count = 1)
SPOIL(scale_infinite, c->k_scale = infinite; c->k_scale_count = 1)

static const struct refusal refusals[] = {
    {"q_scale NaN", q_scale_nan, "q_scale"},
    {"q_scale infinite", q_scale_infinite, "q_scale"},
    {"negative softcap", softcap_negative, "softcap"},
    {"softcap NaN", softcap_nan, "softcap"},
    {"head_sink beside smooth_softmax", sink_and_smooth, "smooth_softmax"},
    {"a sink too few", sinks_short, "head_sink_count"},
    {"a count without sinks", sinks_absent, "head_sink_count"},
    {"head_sink NaN", sink_nan, "head_sink[0]"},
    {"head_sink infinite", sink_infinite, "head_sink[0]"},
    {"no rope_cos", cos_absent, "rope_cos"},
    {"no rope_sin", sin_absent, "rope_sin"},
    {"cos/sin tables of int8", tables_of_codes, "rope_dtype"},
    {"cos/sin tables of an unknown type", tables_unknown, "rope_dtype"},
    {"cos/sin tables without rows", tables_of_no_rows, "rope_positions"},
    {"cos/sin tables of negative rows", tables_of_negative_rows, "rope_positions"},
    {"cos/sin tables without width", tables_of_no_width, "rope_width"},
    {"cos/sin tables wider than the head", tables_too_wide, "rope_width"},
    {"cos/sin tables of the largest width", tables_widest, "rope_width"},
    {"negative rotary_offset", offset_negative, "rope_width"},
    {"an offset past the head", offset_too_far, "rope_width"},
    {"the largest offset", offset_largest, "rope_width"},
    {"unknown rotary_mode", mode_unknown, "rotary_mode"},
    {"norm weights without cos/sin tables", no_tables, "rotary_mode"},
    {"a norm weight too short", weight_short, "q_norm_gain_count"},
    {"a norm weight too long", weight_long, "k_norm_gain_count"},
    {"a norm weight of e4m3", weight_of_codes, "q_norm_gain_dtype"},
    {"a count without a norm weight", weight_absent, "k_norm_gain"},
    {"eps without norm weights", weights_absent, "qk_norm_eps"},
    {"eps 0", eps_zero, "qk_norm_eps"},
    {"negative eps", eps_negative, "qk_norm_eps"},
    {"eps NaN", eps_nan, "qk_norm_eps"},
    {"eps infinite", eps_infinite, "qk_norm_eps"},
    {"unknown norm_order", order_unknown, "norm_order"},
    {"no k_scale", k_scale_absent, "k_scale"},
    {"no v_scale", v_scale_absent, "v_scale"},
    {"a scale for each head", scales_of_heads, "k_scale_count"},
    {"scales of no length", scales_of_none, "v_scale"},
    {"k_scale 0", scale_zero, "k_scale[0]"},
    {"negative v_scale", scale_negative, "v_scale[0]"},
    {"v_scale NaN", scale_nan, "v_scale[0]"},
    {"k_scale infinite", scale_infinite, "k_scale[0]"},
};

/* Two layers with rope on all 12 channels, norms and sinks on an int8 group of two KV heads. */
static void make_full(struct options_case *c, unsigned more)
{
    options_case_init(c, test_seed());
    struct pkv_group_config *group = &c->runtime.groups[0];
    group->kv_heads = 2;
    group->k_width = 12;
    group->k_dtype = group->v_dtype = PKV_INT8;
    const unsigned options = WITH_ROPE | WITH_INTERLEAVED | WITH_NORM | WITH_SINK | more;
    options_case_layer(c, 0, 4, options);
    options_case_layer(c, 0, 4, options);
    for (int32_t i = 0; i < 2; i++) {
        c->runtime.layers[i].constants = c->constants[i];
    }
}

/* Frees a case that was never opened. */
static void discard(struct options_case *c)
{
    while (c->num_arrays > 0) {
        free(c->arrays[--c->num_arrays]);
    }
    pkv_workspace_destroy(c->workspace);
    pthread_mutex_destroy(&c->runtime.memory.lock);
}

static void wrong_constants_of_one_layer_refuse_at_create(void)
{
    static struct options_case c;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        char culprit[64];
        pkv_cache *cache = NULL;
        struct pkv_cache_sizes sizes = {.size = sizeof sizes};
        make_full(&c, WITH_SCALE_PER_CHANNEL);
        ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.runtime.config, &sizes));
        refusals[i].spoil(&c.runtime.layers[1].constants);
        snprintf(culprit, sizeof culprit, "layers[1].%s", refusals[i].field);
        memset(&sizes, 0x5a, sizeof sizes);
        sizes.size = sizeof sizes;
        ASSERT_CASE_REFUSED(refusals[i].name, PKV_INVALID_ARGUMENT, culprit,
                            pkv_cache_create(&c.runtime.config, &cache));
        ASSERT_CASE_REFUSED(refusals[i].name, PKV_INVALID_ARGUMENT, culprit,
                            pkv_cache_size(&c.runtime.config, &sizes));
        CU_ASSERT_PTR_NULL(cache);
        CU_ASSERT_EQUAL(((const unsigned char *)&sizes)[sizeof sizes.size], 0x5a);
        CU_ASSERT_EQUAL(c.runtime.memory.live, 0);
        discard(&c);
    }
}

/* A scale on a float group, and one for values that are inside the keys. */
static void scales_that_nothing_is_stored_by_refuse_at_create(void)
{
    static const float scale = 0.5f;
    static struct options_case c;
    for (int latent = 0; latent < 2; latent++) {
        pkv_cache *cache = NULL;
        options_case_init(&c, test_seed());
        c.runtime.groups[0].v_in_k = latent == 1;
        c.runtime.groups[0].k_dtype = latent == 1 ? PKV_INT8 : PKV_F32;
        options_case_layer(&c, 0, 1, 0);
        options_case_layer(&c, 0, 1, 0);
        c.runtime.layers[0].constants = c.constants[0];
        c.runtime.layers[1].constants = c.constants[1];
        c.runtime.layers[1].constants.v_scale = &scale;
        c.runtime.layers[1].constants.v_scale_count = 1;
        ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "layers[1].v_scale",
                       pkv_cache_create(&c.runtime.config, &cache));
        CU_ASSERT_PTR_NULL(cache);
        discard(&c);
    }
}

static void create_with_constants_fails_cleanly_at_every_allocation(void)
{
    static struct options_case c;
    enum pkv_status status = PKV_NO_MEMORY;
    make_full(&c, 0);
    for (long fail_at = 1; status == PKV_NO_MEMORY && fail_at < 1000; fail_at++) {
        c.runtime.memory.calls = 0;
        c.runtime.memory.fail_at = fail_at;
        status = pkv_cache_create(&c.runtime.config, &c.runtime.cache);
        CU_ASSERT(status == PKV_OK || status == PKV_NO_MEMORY);
        CU_ASSERT(status == PKV_OK || c.runtime.memory.live == 0);
        CU_ASSERT(status != PKV_OK || fail_at > 1);
    }
    ASSERT_STATUS(PKV_OK, status);
    ASSERT_STATUS(PKV_OK, pkv_cache_destroy(c.runtime.cache, false));
    CU_ASSERT_EQUAL(c.runtime.memory.live, 0);
    CU_ASSERT_EQUAL(c.runtime.memory.num_wrong, 0);
    discard(&c);
}

/* Positions */

static bool same_tables(const int32_t *a, const int32_t *b)
{
    return memcmp(a, b, 8 * sizeof *a) == 0;
}

/* Begin and its dry run refuse, and neither lengths, blocks, nor tables have changed. */
static void assert_positions_refuse(struct options_case *c, struct case_seq *seq,
                                    const int64_t *positions, int32_t q_len)
{
    static const int32_t token_ids[OPTIONS_POSITIONS];
    const int32_t held = case_held(&c->runtime, 0);
    const pkv_step none = {0};
    pkv_step step = {0};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    int32_t before[8], after[8];
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = &seq->handle,
                                    .q_lens = &q_len,
                                    .num_rows = 1,
                                    .num_required_rows = 1,
                                    .token_ids = token_ids,
                                    .position_ids = positions};
    case_table(&c->runtime, seq, 0, before, 8);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_fits(c->runtime.cache, &batch, &shortage));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "position",
                   pkv_step_begin(c->runtime.cache, &batch, &step, &shortage));
    CU_ASSERT_EQUAL(step.id, none.id);
    CU_ASSERT_EQUAL(case_held(&c->runtime, 0), held);
    CU_ASSERT_EQUAL(case_length(&c->runtime, seq->handle), seq->length);
    CU_ASSERT_EQUAL(case_check(&c->runtime), 0);
    case_table(&c->runtime, seq, 0, after, 8);
    CU_ASSERT(same_tables(before, after));
}

/* The cos/sin tables of layer 1 are the shorter ones: they bound what the cache takes. */
static void make_short_tables(struct options_case *c)
{
    options_case_init(c, test_seed());
    c->runtime.groups[0].k_width = 12;
    options_case_layer(c, 0, 2, WITH_ROPE);
    c->num_positions = 20;
    options_case_layer(c, 0, 2, WITH_ROPE | WITH_INTERLEAVED);
    options_case_layer(c, 0, 2, 0);
    options_case_open(c);
}

static bool take_step(struct options_case *c, struct case_seq *seq, int32_t q_len)
{
    struct case_step step = {.num_rows = 0};
    bool is_right = true;
    case_row(&step, seq, q_len);
    ASSERT_STATUS(PKV_OK, options_case_begin(c, &step));
    for (int32_t layer = 0; is_right && layer < c->runtime.config.num_layers; layer++) {
        is_right = options_case_attend(c, &step, layer);
    }
    case_commit(&c->runtime, &step, NULL);
    return is_right;
}

static void positions_outside_the_tables_refuse_at_begin(void)
{
    static struct options_case c;
    static struct case_seq seq;
    static const int64_t below[] = {3, -1}, beyond[] = {20, 0}, far[] = {0, INT64_MAX},
                         wraps[] = {(int64_t)1 << 32, 0}, least[] = {INT64_MIN, 0};
    make_short_tables(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c.runtime, &seq, NULL));
    CU_ASSERT(take_step(&c, &seq, 18));
    assert_positions_refuse(&c, &seq, below, 2);
    assert_positions_refuse(&c, &seq, beyond, 2);
    assert_positions_refuse(&c, &seq, far, 2);
    assert_positions_refuse(&c, &seq, wraps, 2);
    assert_positions_refuse(&c, &seq, least, 2);
    assert_positions_refuse(&c, &seq, NULL, 3); /* 18, 19 and 20 */
    CU_ASSERT(take_step(&c, &seq, 2));
    assert_positions_refuse(&c, &seq, NULL, 1);
    c.has_positions = true; /* ids inside the tables go on where the length no longer may */
    CU_ASSERT_EQUAL(c.num_positions, 20);
    struct case_step step = {.num_rows = 0};
    case_row(&step, &seq, 4);
    ASSERT_STATUS(PKV_OK, options_case_begin(&c, &step));
    case_abort(&c.runtime, &step);
    options_case_close(&c);
}

/* One row out of range refuses the batch, required or not: it is a mistake, not a shortage. */
static void position_of_a_later_row_refuses_the_whole_batch(void)
{
    static struct options_case c;
    static struct case_seq first, second;
    static const int32_t token_ids[2], q_lens[] = {1, 1};
    static const int64_t positions[] = {4, 20};
    make_short_tables(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c.runtime, &first, NULL));
    ASSERT_STATUS(PKV_OK, case_create(&c.runtime, &second, NULL));
    const pkv_seq seqs[] = {first.handle, second.handle};
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = seqs,
                                    .q_lens = q_lens,
                                    .num_rows = 2,
                                    .num_required_rows = 1,
                                    .token_ids = token_ids,
                                    .position_ids = positions};
    pkv_step step = {0};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "row 1",
                   pkv_step_begin(c.runtime.cache, &batch, &step, &shortage));
    CU_ASSERT_EQUAL(case_held(&c.runtime, 0), 0);
    options_case_close(&c);
}

/* Views, and what describe returns */

static bool same_view(const struct pkv_kv_view *a, const struct pkv_kv_view *b)
{
    return a->k == b->k && a->v == b->v && a->k_dtype == b->k_dtype && a->v_dtype == b->v_dtype &&
           a->num_blocks == b->num_blocks && a->kv_heads == b->kv_heads &&
           a->block_size == b->block_size && a->k_width == b->k_width && a->v_width == b->v_width &&
           a->k_block_stride == b->k_block_stride && a->v_cell_stride == b->v_cell_stride;
}

static void views_of_a_layer_are_the_same_pointers_every_time(void)
{
    static struct options_case c;
    static struct case_seq seq;
    struct pkv_kv_view first[4], again;
    options_case_init(&c, test_seed());
    c.runtime.groups[0].k_width = 12;
    c.runtime.groups[0].k_dtype = c.runtime.groups[0].v_dtype = PKV_INT8;
    case_add_group(&c.runtime)->k_dtype = PKV_F16;
    options_case_layer(&c, 0, 2, WITH_ROPE);
    options_case_layer(&c, 0, 2, WITH_SCALE_PER_CHANNEL);
    options_case_sharer(&c, 0, 1, WITH_SINK);
    c.runtime.groups[1].v_dtype = PKV_BF16;
    options_case_layer(&c, 1, 2, WITH_ROPE);
    options_case_open(&c);
    for (int32_t layer = 0; layer < 4; layer++) {
        ASSERT_STATUS(PKV_OK, pkv_cache_view(c.runtime.cache, layer, &first[layer]));
        CU_ASSERT_PTR_NOT_NULL(first[layer].k);
        CU_ASSERT_EQUAL(first[layer].k_dtype, c.runtime.groups[layer == 3].k_dtype);
        CU_ASSERT_EQUAL(first[layer].v_dtype, c.runtime.groups[layer == 3].v_dtype);
    }
    CU_ASSERT(same_view(&first[0], &first[2]));
    CU_ASSERT(first[0].k != first[1].k && first[0].k != first[3].k && first[0].k != first[0].v);
    ASSERT_STATUS(PKV_OK, case_create(&c.runtime, &seq, NULL));
    for (int32_t i = 0; i < 6; i++) {
        CU_ASSERT(take_step(&c, &seq, 1 + i));
        for (int32_t layer = 0; layer < 4; layer++) {
            ASSERT_STATUS(PKV_OK, pkv_cache_view(c.runtime.cache, layer, &again));
            CU_ASSERT(same_view(&again, &first[layer]));
        }
    }
    again = first[0];
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_view(c.runtime.cache, 4, &again));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_view(c.runtime.cache, -1, &again));
    CU_ASSERT(same_view(&again, &first[0]));
    options_case_close(&c);
}

static bool same_floats(const void *a, const void *b, size_t bytes)
{
    return a != NULL && a != b && memcmp(a, b, bytes) == 0;
}

static void describe_gives_the_constants_back_as_the_caches_own(void)
{
    static struct options_case c;
    make_full(&c, WITH_Q_SCALE | WITH_SCALE_PER_CHANNEL);
    options_case_open(&c);
    struct pkv_cache_config config = {.size = sizeof config};
    ASSERT_STATUS(PKV_OK, pkv_cache_describe(c.runtime.cache, &config));
    for (int32_t i = 0; i < 2; i++) {
        const struct pkv_attn_constants *want = &c.constants[i];
        const struct pkv_attn_constants *got = &config.layers[i].constants;
        const size_t table = (size_t)want->rope_positions * (size_t)want->rope_width;
        CU_ASSERT(same_floats(got->rope_cos, want->rope_cos, table * sizeof(float)));
        CU_ASSERT(same_floats(got->rope_sin, want->rope_sin, table * sizeof(float)));
        CU_ASSERT(same_floats(got->q_scale, want->q_scale, sizeof(float)));
        CU_ASSERT(same_floats(got->head_sink, want->head_sink, 4 * sizeof(float)));
        CU_ASSERT(same_floats(got->q_norm_gain, want->q_norm_gain, 12 * sizeof(float)));
        CU_ASSERT(same_floats(got->k_norm_gain, want->k_norm_gain, 12 * sizeof(uint16_t)));
        CU_ASSERT(same_floats(got->k_scale, want->k_scale, 24 * sizeof(float)));
        CU_ASSERT(same_floats(got->v_scale, want->v_scale, 24 * sizeof(float)));
        CU_ASSERT_EQUAL(got->rotary_mode, PKV_ROTARY_INTERLEAVED);
        CU_ASSERT_EQUAL(got->rope_positions, want->rope_positions);
        CU_ASSERT_EQUAL(got->k_scale_count, 24);
        CU_ASSERT_EQUAL(got->qk_norm_eps, want->qk_norm_eps);
    }
    options_case_close(&c);
}

/* Cos/sin tables, the only large constants, are kept once however many layers name them. */
static void tables_that_layers_share_are_kept_once(void)
{
    static struct options_case c;
    struct pkv_cache_sizes apart = {.size = sizeof apart};
    struct pkv_cache_sizes shared = {.size = sizeof shared};
    make_full(&c, 0);
    const size_t table = OPTIONS_POSITIONS * 6 * sizeof(float);
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.runtime.config, &apart));
    c.runtime.layers[1].constants.rope_cos = c.runtime.layers[0].constants.rope_cos;
    c.runtime.layers[1].constants.rope_sin = c.runtime.layers[0].constants.rope_sin;
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.runtime.config, &shared));
    CU_ASSERT(apart.metadata_bytes >= shared.metadata_bytes + 2 * table);
    discard(&c);
}

static const struct test_case cases[] = {
    TEST(wrong_constants_of_one_layer_refuse_at_create),
    TEST(scales_that_nothing_is_stored_by_refuse_at_create),
    TEST(create_with_constants_fails_cleanly_at_every_allocation),
    TEST(positions_outside_the_tables_refuse_at_begin),
    TEST(position_of_a_later_row_refuses_the_whole_batch),
    TEST(views_of_a_layer_are_the_same_pointers_every_time),
    TEST(describe_gives_the_constants_back_as_the_caches_own),
    TEST(tables_that_layers_share_are_kept_once),
    TEST_END,
};
const struct test_suite suite_runtime_options_refuse = {"runtime_options_refuse", cases};
