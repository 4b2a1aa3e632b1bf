/* SPDX-License-Identifier: MIT
 *
 * What a layer's config fixes (rope, norms, sinks, caps, scales) reaches the operator in every
 * step: a managed cache gives bit for bit what the raw operator gives on a dense cache, for the
 * same tokens in the same chunks. The values behind the config are gone by then. */
#include <stdio.h>
#include <string.h>

#include "support/runtime_case.h"

#define WIDTH 8
#define HEADS 4
#define KV_HEADS 2
#define TOKENS 16
#define POSITIONS 40

/* The values that constants point to. */
struct values {
    float cos[POSITIONS * 3], sin[POSITIONS * 3];
    float q_weight[WIDTH], k_weight[WIDTH];
    float sink[HEADS];
    float k_scale[KV_HEADS * WIDTH], v_scale[KV_HEADS * WIDTH];
    float q_scale;
};

struct option {
    const char *name;
    bool rope, q_norm, k_norm, sink, scales_per_channel;
    enum pkv_dtype cache_dtype;
    bool has_positions;
    struct pkv_attn_constants constants; /* the scalars */
};

static const struct option options[] = {
    {.name = "plain"},
    {.name = "softcap", .constants = {.softcap = 2}},
    {.name = "smooth_softmax", .constants = {.smooth_softmax = true}},
    {.name = "head_sink", .sink = true},
    {.name = "rope", .rope = true},
    {.name = "rope, position_ids", .rope = true, .has_positions = true},
    {.name = "rope, interleaved",
     .rope = true,
     .constants = {.rotary_offset = 2, .rotary_mode = PKV_ROTARY_INTERLEAVED}},
    {.name = "norms", .rope = true, .q_norm = true, .k_norm = true},
    {.name = "norms before rope",
     .rope = true,
     .q_norm = true,
     .k_norm = true,
     .constants = {.norm_order = PKV_NORM_BEFORE_ROPE}},
    {.name = "norm of q", .rope = true, .q_norm = true},
    {.name = "int8", .cache_dtype = PKV_INT8},
    {.name = "int8 per channel", .cache_dtype = PKV_INT8, .scales_per_channel = true},
    {.name = "e4m3, rope and sink", .cache_dtype = PKV_E4M3, .rope = true, .sink = true},
};

static void fill_floats(struct test_random *random, float *x, size_t count, double low)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)(low + random_unit(random));
    }
}

static void fill_values(struct values *values, struct test_random *random)
{
    fill_floats(random, values->cos, POSITIONS * 3, 0);
    fill_floats(random, values->sin, POSITIONS * 3, 0);
    fill_floats(random, values->q_weight, WIDTH, 1.5);
    fill_floats(random, values->k_weight, WIDTH, 1.5);
    fill_floats(random, values->sink, HEADS, 0);
    fill_floats(random, values->k_scale, KV_HEADS * WIDTH, 1.03);
    fill_floats(random, values->v_scale, KV_HEADS * WIDTH, 1.03);
    for (size_t i = 0; i < KV_HEADS * WIDTH; i++) {
        values->k_scale[i] /= 100;
    }
    values->q_scale = 0.3f;
}

static struct pkv_attn_constants constants_of(const struct option *option,
                                              const struct values *values)
{
    struct pkv_attn_constants constants = option->constants;
    constants.q_scale = &values->q_scale;
    if (option->rope) {
        constants.rope_cos = values->cos;
        constants.rope_sin = values->sin;
        constants.rope_positions = POSITIONS;
        constants.rope_width = 3;
    }
    if (option->q_norm) {
        constants.q_norm_gain = values->q_weight;
        constants.q_norm_gain_count = WIDTH;
        constants.qk_norm_eps = 1e-5f;
    }
    if (option->k_norm) {
        constants.k_norm_gain = values->k_weight;
        constants.k_norm_gain_count = WIDTH;
        constants.qk_norm_eps = 1e-5f;
    }
    if (option->sink) {
        constants.head_sink = values->sink;
        constants.head_sink_count = HEADS;
    }
    if (option->cache_dtype != PKV_F32) {
        constants.k_scale = values->k_scale;
        constants.v_scale = values->v_scale;
        constants.k_scale_count = constants.v_scale_count =
            option->scales_per_channel ? KV_HEADS * WIDTH : 1;
    }
    return constants;
}

/* The activations of all tokens, row by row, and what came out on either way. */
struct tokens {
    float q[TOKENS][HEADS * WIDTH];
    float k[TOKENS][KV_HEADS * WIDTH];
    float v[TOKENS][KV_HEADS * WIDTH];
    int64_t positions[TOKENS];
    float out[2][TOKENS][HEADS * WIDTH];
    float lse[2][TOKENS][HEADS];
};

static void step_managed(pkv_cache *cache, pkv_seq seq, struct tokens *t, int32_t first,
                         int32_t count, bool has_positions)
{
    static const int32_t ids[TOKENS];
    pkv_step step = {0};
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = &seq,
                                    .q_lens = &count,
                                    .num_rows = 1,
                                    .num_required_rows = 1,
                                    .token_ids = ids,
                                    .position_ids = has_positions ? t->positions + first : NULL};
    const struct pkv_layer_io io = {.size = sizeof io,
                                    .q = t->q[first],
                                    .k = t->k[first],
                                    .v = t->v[first],
                                    .out = t->out[0][first],
                                    .lse = t->lse[0][first]};
    ASSERT_STATUS(PKV_OK, pkv_step_begin(cache, &batch, &step, NULL));
    ASSERT_STATUS(PKV_OK, pkv_step_attend(cache, step, 0, &io));
    ASSERT_STATUS(PKV_OK, pkv_step_commit(cache, step, NULL));
}

static void call_raw(pkv_workspace *workspace, const struct option *option,
                     const struct pkv_attn_constants *constants, void *past[2], struct tokens *t,
                     int32_t first, int32_t count)
{
    const int32_t cu_seqlens_q[2] = {0, count};
    const int32_t kv_len = first + count;
    const struct pkv_gqa_args args = {
        .size = sizeof args,
        .form = PKV_CACHE_DENSE,
        .num_heads = HEADS,
        .kv_heads = KV_HEADS,
        .k_width = WIDTH,
        .batch = 1,
        .num_tokens = count,
        .cu_seqlens_q = cu_seqlens_q,
        .kv_lens = &kv_len,
        .q = t->q[first],
        .k = t->k[first],
        .v = t->v[first],
        .out = t->out[1][first],
        .lse = t->lse[1][first],
        .past = {.k = past[0],
                 .v = past[1],
                 .k_dtype = option->cache_dtype,
                 .v_dtype = option->cache_dtype,
                 .num_blocks = 1,
                 .kv_heads = KV_HEADS,
                 .block_size = TOKENS,
                 .k_width = WIDTH,
                 .v_width = WIDTH},
        .position_ids = option->has_positions ? t->positions + first : NULL,
        .constants = *constants,
    };
    ASSERT_STATUS(PKV_OK, pkv_gqa(workspace, &args));
}

static void compare(const struct option *option, enum pkv_storage storage)
{
    static struct values values, lent;
    static struct tokens t;
    static float past[2][KV_HEADS * TOKENS * WIDTH];
    void *arrays[2] = {past[0], past[1]};
    struct test_random random = {test_seed()};
    struct runtime_case c;
    pkv_seq seq = {0};
    pkv_workspace *workspace = NULL;
    fill_values(&values, &random);
    fill_floats(&random, t.q[0], sizeof t.q / sizeof(float), 0);
    fill_floats(&random, t.k[0], sizeof t.k / sizeof(float), 0);
    fill_floats(&random, t.v[0], sizeof t.v / sizeof(float), 0);
    memset(past, 0xff, sizeof past);
    for (int32_t i = 0; i < TOKENS; i++) {
        t.positions[i] = (i * 7 + 3) % POSITIONS;
    }
    lent = values;
    case_init(&c);
    c.groups[0].storage = storage;
    c.groups[0].kv_heads = KV_HEADS;
    c.groups[0].k_width = WIDTH;
    c.groups[0].k_dtype = c.groups[0].v_dtype = option->cache_dtype;
    c.layers[0].num_heads = HEADS;
    c.layers[0].constants = constants_of(option, &lent);
    case_open(&c);
    memset(&lent, 0xff, sizeof lent);
    const struct pkv_attn_constants constants = constants_of(option, &values);
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, NULL, &seq));
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(1, test_isa(), NULL, &workspace));
    static const int32_t chunks[] = {5, 1, 7, 1, 2};
    int32_t first = 0;
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        step_managed(c.cache, seq, &t, first, chunks[i], option->has_positions);
        call_raw(workspace, option, &constants, arrays, &t, first, chunks[i]);
        first += chunks[i];
    }
    if (memcmp(t.out[0], t.out[1], sizeof t.out[0]) != 0 ||
        memcmp(t.lse[0], t.lse[1], sizeof t.lse[0]) != 0) {
        printf("\n    %s: managed and raw differ\n", option->name);
        CU_FAIL("managed and raw differ");
    }
    pkv_workspace_destroy(workspace);
    case_close(&c);
}

static void every_option_gives_the_bits_of_the_raw_operator(void)
{
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        compare(&options[i], PKV_STORAGE_PAGED);
        compare(&options[i], PKV_STORAGE_CONTINUOUS);
    }
}

/* Without a row of the cos/sin tables for each position of a batch row, begin refuses the batch. */
static void a_position_beyond_the_rope_tables_refuses_at_begin(void)
{
    static struct values values;
    static struct case_seq seq;
    struct test_random random = {test_seed()};
    struct runtime_case c;
    const int32_t q_len = 2;
    int64_t positions[2] = {0, POSITIONS};
    static const int32_t ids[2];
    pkv_step step = {0};
    fill_values(&values, &random);
    case_init(&c);
    c.groups[0].k_width = WIDTH;
    c.layers[0].constants = constants_of(&options[4], &values);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &seq, NULL));
    struct case_step past = {0};
    case_row(&past, &seq, POSITIONS + 1);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, case_begin(&c, &past, 1));
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = &seq.handle,
                                    .q_lens = &q_len,
                                    .num_rows = 1,
                                    .num_required_rows = 1,
                                    .token_ids = ids,
                                    .position_ids = positions};
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_begin(c.cache, &batch, &step, NULL));
    positions[1] = -1;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_begin(c.cache, &batch, &step, NULL));
    CU_ASSERT_EQUAL(case_held(&c, 0), 0);
    positions[1] = POSITIONS - 1;
    ASSERT_STATUS(PKV_OK, pkv_step_begin(c.cache, &batch, &step, NULL));
    struct pkv_step_view view = {.size = sizeof view};
    positions[1] = 5; /* the batch's arrays are the caller's again */
    ASSERT_STATUS(PKV_OK, pkv_step_describe(c.cache, step, 0, &view));
    CU_ASSERT(view.position_ids[0] == 0 && view.position_ids[1] == POSITIONS - 1);
    ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(every_option_gives_the_bits_of_the_raw_operator),
    TEST(a_position_beyond_the_rope_tables_refuses_at_begin),
    TEST_END,
};
const struct test_suite suite_runtime_constants = {"runtime_constants", cases};
