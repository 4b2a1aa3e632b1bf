/* SPDX-License-Identifier: MIT
 *
 * Latent caches as DeepSeek's models have them: one KV head of 576 channels, whose first 512 are
 * the values, and up to 128 query heads on it. So many query rows take a tile by panels, and keep
 * the state of a span where its partial result lies; neither may show. */
#include <stdlib.h>
#include <string.h>

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

/* Four rows of one query over the same first 36 blocks, with a last one each. */
enum { SHARERS = 4, SHARED_BLOCKS = 36, BLOCKS = SHARED_BLOCKS + 1, BLOCK = 16 };
enum { HEADS = 32, K_WIDTH = 576, V_WIDTH = 512 };

static char *random_array(struct test_random *random, enum pkv_dtype dtype, size_t count)
{
    char *array = malloc(count * sizeof(float));
    for (size_t i = 0; i < count; i++) {
        ref_store(dtype, array, i, random_unit(random));
    }
    return array;
}

struct sharers {
    enum pkv_dtype dtype;
    int32_t table[SHARERS * BLOCKS], kv_lens[SHARERS];
    char *cells, *q, *k, *out, *alone;
};

static void attend_sharers(const struct sharers *s, int32_t first, int32_t count, char *out,
                           pkv_workspace *workspace)
{
    const size_t token = (size_t)first * K_WIDTH * pkv_dtype_bytes(s->dtype);
    const struct pkv_gqa_args args = {
        .size = sizeof args,
        .form = PKV_CACHE_PAGED,
        .dtype = s->dtype,
        .num_heads = HEADS,
        .kv_heads = 1,
        .k_width = K_WIDTH,
        .v_width = V_WIDTH,
        .v_in_k = true,
        .batch = count,
        .num_tokens = count,
        .kv_lens = s->kv_lens + first,
        .block_table = s->table + first * BLOCKS,
        .max_blocks = BLOCKS,
        .q = s->q + token * HEADS,
        .k = s->k + token,
        .out = out,
        .past = {.k = s->cells,
                 .k_dtype = s->dtype,
                 .num_blocks = SHARED_BLOCKS + SHARERS,
                 .kv_heads = 1,
                 .block_size = BLOCK,
                 .k_width = K_WIDTH},
    };
    ASSERT_STATUS(PKV_OK, pkv_gqa(workspace, &args));
}

/* 32 query rows alone, 64 or more together: the shared span goes by panels. */
static void latent_rows_that_share_blocks_have_the_bits_they_have_alone(void)
{
    pkv_workspace *workspace = case_workspace(2);
    const size_t row = (size_t)HEADS * V_WIDTH;
    for (int dtype = PKV_F32; dtype <= PKV_BF16; dtype++) {
        struct test_random random = {test_seed() + (uint64_t)dtype};
        struct sharers s = {.dtype = (enum pkv_dtype)dtype};
        for (int32_t i = 0; i < SHARERS * BLOCKS; i++) {
            const int32_t b = i % BLOCKS;
            s.table[i] = b < SHARED_BLOCKS ? b : SHARED_BLOCKS + i / BLOCKS;
            s.kv_lens[i / BLOCKS] = SHARED_BLOCKS * BLOCK + 1 + 3 * (i / BLOCKS);
        }
        s.cells = random_array(&random, s.dtype, (SHARED_BLOCKS + SHARERS) * BLOCK * K_WIDTH);
        s.q = random_array(&random, s.dtype, SHARERS * HEADS * K_WIDTH);
        s.k = random_array(&random, s.dtype, SHARERS * K_WIDTH);
        s.out = calloc(SHARERS * row, sizeof(float));
        s.alone = calloc(row, sizeof(float));
        const size_t row_bytes = row * pkv_dtype_bytes(s.dtype);
        attend_sharers(&s, 0, SHARERS, s.out, workspace);
        for (int32_t r = 0; r < SHARERS; r++) {
            attend_sharers(&s, r, 1, s.alone, workspace);
            CU_ASSERT_EQUAL(memcmp(s.alone, s.out + (size_t)r * row_bytes, row_bytes), 0);
        }
        char *arrays[] = {s.cells, s.q, s.k, s.out, s.alone};
        for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
            free(arrays[i]);
        }
    }
    pkv_workspace_destroy(workspace);
}

static const struct test_case cases[] = {
    TEST(latent_caches_of_128_heads_match_the_reference),
    TEST(latent_decode_equals_the_prefill_of_the_same_tokens),
    TEST(latent_rows_have_the_same_bits_whatever_is_beside_them),
    TEST(latent_rows_that_share_blocks_have_the_bits_they_have_alone),
    TEST(wide_keys_and_values_apart_match_the_reference),
    TEST_END,
};
const struct test_suite suite_gqa_latent = {"gqa_latent", cases};
