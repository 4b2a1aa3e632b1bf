/* SPDX-License-Identifier: MIT
 *
 * Latent caches as DeepSeek's models have them: one KV head of 576 channels, whose first 512 are
 * the values, and up to 128 query heads on it. So many query rows take a tile by panels, and keep
 * the state of a span where its partial result lies; neither may show. */
#include "support/gqa_case.h"

enum { ALL_TYPES = PKV_E4M3 + 1 };

static struct case_spec latent(int variant, int32_t group)
{
    struct case_spec spec = case_plain(test_seed() + (uint64_t)variant);
    spec.k_dtype = spec.v_dtype = (enum pkv_dtype)(variant % ALL_TYPES);
    spec.dtype = spec.k_dtype > PKV_BF16 ? (enum pkv_dtype)(variant % 3) : spec.k_dtype;
    spec.group = group;
    spec.k_width = 576;
    spec.v_width = 512;
    spec.v_in_k = true;
    spec.block_size = 16;
    return spec;
}

/* Ragged rows, one of several spans; a window with a kept prefix; sinks; f32 activations, whose
 * bf16 keys are not multiplied in pairs. */
static void latent_caches_of_128_heads_match_the_reference(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < 2 * ALL_TYPES; i++) {
        struct case_spec spec = latent(i, 128);
        if (i >= ALL_TYPES) {
            spec.dtype = i % 2 == 0 ? PKV_F32 : PKV_F16;
            spec.window = 70;
            spec.kept_count = 1;
            spec.kept[0] = 3;
            spec.options = CASE_SINK;
            spec.evicted = true;
        }
        case_add_row(&spec, 0, 1, i < ALL_TYPES ? 530 : 200);
        case_add_row(&spec, 1, 2, 67);
        case_add_row(&spec, 2, 1, 20);
        struct gqa_case *c = gqa_case_make(&spec);
        CU_ASSERT(gqa_case_check(c, workspace));
        gqa_case_free(c);
    }
    pkv_workspace_destroy(workspace);
}

/* 32 heads: one query a call has too few rows for panels, two or more in one have enough. */
static void latent_decode_equals_the_prefill_of_the_same_tokens(void)
{
    static const int32_t lengths[] = {129, 513};
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < 2 * ALL_TYPES; i++) {
        struct case_spec spec = latent(i, 32);
        struct case_spec step = spec;
        const int32_t length = lengths[i / ALL_TYPES];
        case_add_row(&spec, 0, 4, length);
        struct gqa_case *prefill = gqa_case_run(&spec, workspace);
        for (int32_t q = 0; q < 4; q++) {
            step.batch = 0;
            case_add_row(&step, 0, 1, length - 3 + q);
            struct gqa_case *decode = gqa_case_run(&step, workspace);
            CU_ASSERT(gqa_case_same_row(prefill, 0, q, decode, 0, 0));
            gqa_case_free(decode);
        }
        gqa_case_free(prefill);
    }
    pkv_workspace_destroy(workspace);
}

/* H5: spans in one task, in tasks of their own beside others, and in rows of their own; a number of
 * heads for which the rows of a partial result do not begin with a line of the cache, too. */
static void latent_rows_have_the_same_bits_whatever_is_beside_them(void)
{
    static const int32_t groups[] = {128, 68, 64};
    static const int threads[] = {2, 3, 8};
    pkv_workspace *alone = case_workspace(1);
    for (int i = 0; i < 2 * ALL_TYPES; i++) {
        pkv_workspace *workspace = case_workspace(threads[i / 2 % 3]);
        struct case_spec spec = latent(i, groups[i % 3]);
        case_add_row(&spec, 0, 1, 1100 + i);
        struct gqa_case *one = gqa_case_run(&spec, alone);
        case_add_row(&spec, 1, 1, 90);
        case_add_row(&spec, 2, 2, 530);
        spec.form = i % 2 ? PKV_CACHE_CONTINUOUS : PKV_CACHE_PAGED;
        spec.layout = spec.seed + 5;
        struct gqa_case *many = gqa_case_run(&spec, workspace);
        CU_ASSERT(gqa_case_same_row(one, 0, 0, many, 0, 0));
        gqa_case_free(one);
        gqa_case_free(many);
        pkv_workspace_destroy(workspace);
    }
    pkv_workspace_destroy(alone);
}

/* Values that are not part of the keys, and widths that leave a panel and a register unfilled. */
static void wide_keys_and_values_apart_match_the_reference(void)
{
    static const int32_t widths[][2] = {{257, 300}, {330, 17}, {600, 130}};
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < 3 * ALL_TYPES; i++) {
        struct case_spec spec = latent(i, 64);
        spec.v_in_k = false;
        spec.k_width = widths[i / ALL_TYPES][0];
        spec.v_width = widths[i / ALL_TYPES][1];
        spec.v_dtype = (enum pkv_dtype)((i + i / ALL_TYPES) % ALL_TYPES);
        case_add_row(&spec, 0, 2, 140);
        struct gqa_case *c = gqa_case_make(&spec);
        CU_ASSERT(gqa_case_check(c, workspace));
        gqa_case_free(c);
    }
    pkv_workspace_destroy(workspace);
}

static const struct test_case cases[] = {
    TEST(latent_caches_of_128_heads_match_the_reference),
    TEST(latent_decode_equals_the_prefill_of_the_same_tokens),
    TEST(latent_rows_have_the_same_bits_whatever_is_beside_them),
    TEST(wide_keys_and_values_apart_match_the_reference),
    TEST_END,
};
const struct test_suite suite_gqa_latent = {"gqa_latent", cases};
