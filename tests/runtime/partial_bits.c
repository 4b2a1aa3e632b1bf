/* SPDX-License-Identifier: MIT
 *
 * Hits that end inside a block: their cells are copied, whatever a cache stores, and what follows
 * has the bits of a run that computed everything. */
#include <string.h>

#include "reuse_case.h"

static struct prefix_seq a, b;

static void init(struct runtime_case *c)
{
    prefix_init(c);
    c->config.no_partial_hits = false;
    c->groups[0].block_size = 16;
    c->config.max_seq_len = 256;
    c->config.max_step_tokens = 256;
}

/* b has the ids of a up to `at`. */
static void create_like_a(struct runtime_case *c, int32_t at)
{
    ASSERT_STATUS(PKV_OK, prefix_create(c, &b, 500, NULL));
    memcpy(b.ids, a.ids, (size_t)at * sizeof b.ids[0]);
}

#define MAX_WIDTH 8
#define NUM_TOKENS 80

static float outputs[2][2][NUM_TOKENS * MAX_WIDTH]; /* [with a hit][layer] */

static void fill(const struct runtime_case *c, const struct prefix_seq *seq, int32_t i, int what,
                 float *x)
{
    const uint32_t tag = prefix_tag(c, seq, i);
    for (int32_t d0 = 0; d0 < MAX_WIDTH; d0++) {
        x[d0] = (float)case_value(tag, 0, what, 0, d0) * 1.37f;
    }
}

/* Tokens [seq's length, end) by one step: outputs of both layers. */
static void compute(struct runtime_case *c, struct prefix_seq *seq, int32_t end, int which)
{
    static float x[3][NUM_TOKENS * MAX_WIDTH];
    const int32_t begin = seq->seq.length;
    struct case_step step = {0};
    case_row(&step, &seq->seq, end - begin);
    ASSERT_STATUS(PKV_OK, prefix_begin(c, &step, 1));
    for (int32_t i = begin; i < end; i++) {
        for (int what = 0; what < 3; what++) {
            fill(c, seq, i, what, &x[what][(i - begin) * MAX_WIDTH]);
        }
    }
    for (int32_t layer = 0; layer < 2; layer++) {
        const bool has_kv = !c->layers[layer].shares_kv;
        const struct pkv_layer_io io = {
            .size = sizeof io,
            .q = x[2],
            .k = has_kv ? x[0] : NULL,
            .v = has_kv && !c->groups[0].v_in_k ? x[1] : NULL,
            .out = &outputs[which][layer][begin * MAX_WIDTH],
        };
        ASSERT_STATUS(PKV_OK, pkv_step_attend(c->cache, step.handle, layer, &io));
    }
    ASSERT_STATUS(PKV_OK, pkv_step_commit(c->cache, step.handle, NULL));
    seq->seq.length = end;
}

struct form {
    enum pkv_dtype dtype;
    int64_t sliding_window;
    int64_t kept_prefix;
    bool v_in_k;
    bool shares_kv;
};

/* Behind a hit of `at` tokens every output has the bits of a run that computed all of them. */
static void check_bits(const struct form *form, int32_t at, int32_t chunk)
{
    static const float scale[1] = {0.013f};
    struct runtime_case c;
    init(&c);
    c.groups[0].k_width = c.groups[0].v_width = MAX_WIDTH;
    c.groups[0].k_dtype = c.groups[0].v_dtype = form->dtype;
    c.groups[0].sliding_window = form->sliding_window;
    c.groups[0].kept_prefix = form->kept_prefix;
    c.groups[0].v_in_k = form->v_in_k;
    case_add_layer(&c, 0)->shares_kv = form->shares_kv;
    for (int i = 0; i < 2 && (form->dtype == PKV_INT8 || form->dtype == PKV_E4M3); i++) {
        c.layers[i].constants.k_scale = c.layers[i].constants.v_scale = scale;
        c.layers[i].constants.k_scale_count = c.layers[i].constants.v_scale_count = 1;
    }
    case_open(&c);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    compute(&c, &a, NUM_TOKENS, 0);
    prefix_destroy(&c, &a);
    memset(outputs, 0xff, sizeof outputs);
    for (int which = 0; which < 2; which++) {
        create_like_a(&c, at);
        if (which == 1) {
            ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, NUM_TOKENS, 0, NULL));
            CU_ASSERT_EQUAL(b.seq.length, at);
        }
        while (b.seq.length < NUM_TOKENS) {
            const int32_t end = b.seq.length + chunk;
            compute(&c, &b, end < NUM_TOKENS ? end : NUM_TOKENS, which);
        }
        prefix_destroy(&c, &b);
        if (which == 0) { /* nothing of it is found */
            struct pkv_flush_report report = {.size = sizeof report};
            ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, true, &report));
            ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
            static float kept[2][NUM_TOKENS * MAX_WIDTH];
            memcpy(kept, outputs[0], sizeof kept);
            compute(&c, &a, NUM_TOKENS, 0);
            memcpy(outputs[0], kept, sizeof kept);
            prefix_destroy(&c, &a);
        }
    }
    for (int layer = 0; layer < 2; layer++) {
        CU_ASSERT_EQUAL(memcmp(&outputs[0][layer][at * MAX_WIDTH],
                               &outputs[1][layer][at * MAX_WIDTH],
                               (size_t)(NUM_TOKENS - at) * MAX_WIDTH * sizeof(float)),
                        0);
    }
    case_close(&c);
}

static void a_copied_hit_has_the_bits_of_computing(void)
{
    static const struct form forms[] = {
        {.dtype = PKV_F32},
        {.dtype = PKV_F16},
        {.dtype = PKV_BF16},
        {.dtype = PKV_INT8},
        {.dtype = PKV_E4M3},
        {.dtype = PKV_F32, .sliding_window = 24},
        {.dtype = PKV_F16, .sliding_window = 5, .kept_prefix = 19},
        {.dtype = PKV_INT8, .sliding_window = 1},
        {.dtype = PKV_F32, .v_in_k = true},
        {.dtype = PKV_BF16, .v_in_k = true, .shares_kv = true},
        {.dtype = PKV_F32, .shares_kv = true},
        {.dtype = PKV_E4M3, .sliding_window = 33, .shares_kv = true},
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        for (int32_t at = 3; at < NUM_TOKENS; at += 11) {
            check_bits(&forms[i], at, NUM_TOKENS);
            check_bits(&forms[i], at, 9);
        }
    }
}

/* Task by task the copy is made in the append of its own task, with any number of threads. */
static void layer_tasks_make_the_copy(void)
{
    struct runtime_case c;
    for (int32_t at = 33; at < 48; at += 7) {
        init(&c);
        c.tasks = true;
        c.config.num_threads = 3;
        c.groups[0].kv_heads = 2;
        c.layers[0].num_heads = 4;
        case_add_layer(&c, 0)->num_heads = 2;
        case_open(&c);
        prefix_run(&c, &a, 0, 64);
        prefix_destroy(&c, &a);
        create_like_a(&c, at);
        ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 64, 0, NULL));
        CU_ASSERT_EQUAL(b.seq.length, at);
        prefix_append(&c, &b, 64 - at);
        prefix_destroy(&c, &b);
        case_close(&c);
    }
}

static const struct test_case cases[] = {
    TEST(a_copied_hit_has_the_bits_of_computing),
    TEST(layer_tasks_make_the_copy),
    TEST_END,
};
const struct test_suite suite_runtime_partial_bits = {"runtime_partial_bits", cases};
