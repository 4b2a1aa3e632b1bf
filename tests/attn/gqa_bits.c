/* SPDX-License-Identifier: MIT
 *
 * What may not change a row's bits: the calls that its tokens were cut into, the threads, the rows
 * beside it, the ids of its blocks, the form of the cache, strides, a window that hides nothing.
 * Every case here compares memory, never within a tolerance; that the bits are right is the
 * business of the other suites. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/gqa_case.h"

/* Two runs of one spec left the same bytes in the caches. */
static bool same_caches(const struct gqa_case *a, const struct gqa_case *b)
{
    for (size_t i = 0; i < a->num_regions; i++) {
        if (a->regions[i].kind == REGION_CACHE &&
            memcmp(a->regions[i].map, b->regions[i].map, a->regions[i].map_bytes) != 0) {
            return false;
        }
    }
    return true;
}

/* A batch with decode and prefill rows, some of them long enough to be split. */
static struct case_spec mixed(int variant)
{
    struct case_spec spec = case_plain(test_seed() + (uint64_t)variant);
    spec.dtype = (enum pkv_dtype)(variant % 3);
    spec.k_dtype = (enum pkv_dtype)(variant / 3 % 3);
    spec.v_dtype = (enum pkv_dtype)(variant / 9 % 3);
    spec.kv_heads = 2;
    spec.group = 1 + variant % 4;
    spec.k_width = 8 + variant % 5;
    spec.v_width = 8 + variant % 2;
    spec.block_size = 1 + 5 * (variant % 4);
    spec.window = variant % 2 ? 70 : 0;
    spec.kept_count = variant % 2;
    spec.kept[0] = 3;
    spec.padded = variant % 5 == 4;
    case_add_row(&spec, 0, 1, 700);
    case_add_row(&spec, 1, 9, 130);
    case_add_row(&spec, 2, 0, 17);
    case_add_row(&spec, 3, 1, 65);
    case_add_row(&spec, 4, 70, 70);
    return spec;
}

static void append_then_attend_equals_one_call(void)
{
    static const enum pkv_cache_form forms[] = {PKV_CACHE_DENSE, PKV_CACHE_CONTINUOUS,
                                                PKV_CACHE_PAGED};
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < 27; i++) {
        struct case_spec spec = mixed(i);
        spec.form = forms[i % 3];
        struct gqa_case *one = gqa_case_run(&spec, workspace);
        struct gqa_case *two = gqa_case_make(&spec);
        struct pkv_gqa_args args = two->args;
        args.q = NULL;
        args.out = NULL;
        args.lse = NULL;
        ASSERT_STATUS(PKV_OK, pkv_append(workspace, &args));
        CU_ASSERT_EQUAL(gqa_case_changed(two, REGION_INPUT | REGION_OUTPUT), -1);
        CU_ASSERT(same_caches(one, two));
        args = two->args;
        args.k = args.v = NULL;
        ASSERT_STATUS(PKV_OK, pkv_attention_over_cache(workspace, &args));
        CU_ASSERT(same_caches(one, two));
        CU_ASSERT(gqa_case_same_rows(one, two));
        gqa_case_free(one);
        gqa_case_free(two);
    }
    pkv_workspace_destroy(workspace);
}

static void copied_cache_is_attended_as_it_was_written(void)
{
    pkv_workspace *workspace = case_workspace(2);
    struct case_spec spec = case_plain(test_seed());
    spec.form = PKV_CACHE_DENSE_COPY;
    case_add_row(&spec, 0, 3, 40);
    case_add_row(&spec, 1, 3, 40);
    struct gqa_case *one = gqa_case_run(&spec, workspace);
    struct gqa_case *two = gqa_case_make(&spec);
    struct pkv_gqa_args args = two->args;
    args.q = NULL;
    args.out = NULL;
    args.lse = NULL;
    ASSERT_STATUS(PKV_OK, pkv_append(workspace, &args));
    CU_ASSERT(same_caches(one, two));
    args = two->args;
    args.form = PKV_CACHE_DENSE;
    args.past = args.present;
    memset(&args.present, 0, sizeof args.present);
    args.k = args.v = NULL;
    args.kv_lens = two->kv_lens;
    ASSERT_STATUS(PKV_OK, pkv_attention_over_cache(workspace, &args));
    CU_ASSERT(gqa_case_same_rows(one, two));
    gqa_case_free(one);
    gqa_case_free(two);
    pkv_workspace_destroy(workspace);
}

/* Chunked prefill */

/* step 0: random cuts */
static void assert_chunks_equal_one_shot(const struct case_spec *spec, int32_t step,
                                         pkv_workspace *workspace)
{
    struct test_random random = {spec->seed};
    const int32_t length = spec->kv_lens[0];
    struct gqa_case *whole = gqa_case_run(spec, workspace);
    struct gqa_case *cut = gqa_case_make(spec);
    for (int32_t begin = 0, end = 0; begin < length; begin = end) {
        end = begin + (step > 0 ? step : random_between(&random, 1, length / 3 + 1));
        end = end < length ? end : length;
        ASSERT_STATUS(PKV_OK, gqa_case_call_chunk(cut, workspace, begin, end));
    }
    const bool is_same = same_caches(whole, cut) && gqa_case_same_rows(whole, cut);
    if (!is_same) {
        printf("  length %d in chunks of %d, window %d\n", length, step, (int)spec->window);
    }
    CU_ASSERT(is_same);
    gqa_case_free(whole);
    gqa_case_free(cut);
}

static void chunked_prefill_equals_one_shot(void)
{
    static const int32_t lengths[] = {5, 63, 64, 65, 130, 300};
    static const int32_t steps[] = {0, 1, 3, 7, 16, 63, 64, 65};
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < 6 * 8; i++) {
        struct case_spec spec = case_plain(test_seed() + (uint64_t)i);
        spec.dtype = spec.k_dtype = spec.v_dtype = (enum pkv_dtype)(i % 3);
        spec.group = 1 + i % 5;
        spec.k_width = spec.v_width = 5 + 3 * (i % 7);
        spec.block_size = 1 + i % 9;
        spec.window = i % 2 ? 11 * (i % 5) : 0;
        case_add_row(&spec, 0, lengths[i / 8], lengths[i / 8]);
        assert_chunks_equal_one_shot(&spec, steps[i % 8], workspace);
    }
    pkv_workspace_destroy(workspace);
}

static void long_chunked_prefill_equals_one_shot(void)
{
    static const int32_t lengths[] = {511, 512, 513, 1025, 1500};
    static const int32_t steps[] = {0, 100, 512};
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < 5 * 3; i++) {
        struct case_spec spec = case_plain(test_seed() + (uint64_t)i);
        spec.group = 2;
        spec.block_size = 16;
        spec.window = i % 4 == 3 ? 600 : 0;
        spec.kept_count = i % 4 == 3;
        spec.kept[0] = 5;
        case_add_row(&spec, 0, lengths[i / 3], lengths[i / 3]);
        assert_chunks_equal_one_shot(&spec, steps[i % 3], workspace);
    }
    pkv_workspace_destroy(workspace);
}

/* Eight query heads a KV head: int8 as whole numbers where the level has them, loud queries, for
 * which digits do not do, among them. */
static void int8_chunks_of_many_heads_equal_one_shot(void)
{
    static const int32_t steps[] = {0, 1, 7, 64};
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < 4 * 4; i++) {
        struct case_spec spec = case_plain(test_seed() + (uint64_t)i);
        spec.dtype = (enum pkv_dtype)(i % 3);
        spec.k_dtype = i % 5 == 4 ? PKV_F16 : PKV_INT8;
        spec.v_dtype = i % 5 == 3 ? PKV_F16 : PKV_INT8;
        spec.group = 8 + i % 3;
        spec.k_width = spec.v_width = 60 + 7 * (i % 7);
        spec.block_size = 1 + 7 * (i % 4);
        spec.window = i % 4 == 3 ? 70 : 0;
        spec.loudness = i / 4 % 2 == 0 ? 1 : 2000;
        case_add_row(&spec, 0, 150 + i, 150 + i);
        assert_chunks_equal_one_shot(&spec, steps[i / 4], workspace);
    }
    pkv_workspace_destroy(workspace);
}

/* One token a call over a history that is there already: the last queries of the one shot. */
static void decode_steps_equal_the_prefill_of_the_same_tokens(void)
{
    static const int32_t lengths[] = {60, 64, 65, 511, 512, 513, 514, 1024, 1025, 1500};
    pkv_workspace *workspace = case_workspace(2);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct case_spec spec = case_plain(test_seed() + i);
        struct case_spec step = spec;
        case_add_row(&spec, 0, 40, lengths[i]);
        struct gqa_case *prefill = gqa_case_run(&spec, workspace);
        for (int32_t q = 0; q < 40; q++) {
            step.batch = 0;
            case_add_row(&step, 0, 1, lengths[i] - 39 + q);
            struct gqa_case *decode = gqa_case_run(&step, workspace);
            CU_ASSERT(gqa_case_same_row(prefill, 0, q, decode, 0, 0));
            gqa_case_free(decode);
        }
        gqa_case_free(prefill);
    }
    pkv_workspace_destroy(workspace);
}

/* H5: the bits of a result do not depend on the number of threads. */
static void threads_do_not_change_the_bits(void)
{
    static const int threads[] = {2, 3, 8};
    pkv_workspace *alone = case_workspace(1);
    for (int i = 0; i < 3 * 8; i++) {
        pkv_workspace *workspace = case_workspace(threads[i % 3]);
        const struct case_spec spec = mixed(i / 3);
        struct gqa_case *one = gqa_case_run(&spec, alone);
        struct gqa_case *many = gqa_case_run(&spec, workspace);
        CU_ASSERT(gqa_case_same_rows(one, many));
        CU_ASSERT(same_caches(one, many));
        gqa_case_free(one);
        gqa_case_free(many);
        pkv_workspace_destroy(workspace);
    }
    pkv_workspace_destroy(alone);
}

static void rows_beside_a_row_do_not_change_its_bits(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < 8; i++) {
        const struct case_spec spec = mixed(i);
        struct gqa_case *batch = gqa_case_run(&spec, workspace);
        for (int32_t b = 0; b < spec.batch; b++) {
            struct case_spec alone_spec = spec;
            alone_spec.batch = 0;
            case_add_row(&alone_spec, b, spec.q_lens[b], spec.kv_lens[b]);
            struct gqa_case *alone = gqa_case_run(&alone_spec, workspace);
            for (int32_t q = 0; q < spec.q_lens[b]; q++) {
                CU_ASSERT(gqa_case_same_row(batch, b, q, alone, 0, q));
            }
            gqa_case_free(alone);
        }
        gqa_case_free(batch);
    }
    pkv_workspace_destroy(workspace);
}

static void block_ids_and_slots_do_not_change_the_bits(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < 8; i++) {
        struct case_spec spec = mixed(i);
        spec.form = i % 2 ? PKV_CACHE_CONTINUOUS : PKV_CACHE_PAGED;
        struct gqa_case *one = gqa_case_run(&spec, workspace);
        for (int layout = 1; layout < 4; layout++) {
            spec.layout = spec.seed + 1000 * (uint64_t)layout;
            CU_ASSERT(gqa_case_runs_same(one, &spec, workspace));
        }
        gqa_case_free(one);
    }
    pkv_workspace_destroy(workspace);
}

static void all_cache_forms_give_the_same_bits(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < 18; i++) {
        struct case_spec spec = mixed(i);
        spec.k_dtype = spec.v_dtype = spec.dtype;
        spec.batch = 0;
        case_add_row(&spec, 0, 1 + i % 7, 80 + 40 * i);
        case_add_row(&spec, 1, 1 + i % 7, 80 + 40 * i);
        struct gqa_case *paged = gqa_case_run(&spec, workspace);
        for (int form = PKV_CACHE_NONE; form < PKV_CACHE_PAGED; form++) {
            spec.form = (enum pkv_cache_form)form;
            CU_ASSERT(gqa_case_runs_same(paged, &spec, workspace));
        }
        gqa_case_free(paged);
    }
    pkv_workspace_destroy(workspace);
}

static void window_as_long_as_the_row_changes_nothing(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < 8; i++) {
        struct case_spec spec = mixed(i);
        spec.window = spec.kept_count = 0;
        struct gqa_case *plain = gqa_case_run(&spec, workspace);
        static const int64_t windows[] = {700, 701, 5000, INT32_MAX, INT64_MAX};
        for (int w = 0; w < 5; w++) {
            spec.window = windows[w];
            CU_ASSERT(gqa_case_runs_same(plain, &spec, workspace));
        }
        gqa_case_free(plain);
    }
    pkv_workspace_destroy(workspace);
}

static void strides_and_a_missing_lse_change_nothing(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < 8; i++) {
        struct case_spec spec = mixed(i);
        spec.padded = false;
        struct gqa_case *packed = gqa_case_run(&spec, workspace);
        spec.padded = true;
        struct gqa_case *padded = gqa_case_run(&spec, workspace);
        CU_ASSERT(gqa_case_same_rows(packed, padded));
        spec.without_lse = true;
        struct gqa_case *without = gqa_case_run(&spec, workspace);
        for (int32_t q = 0; q < spec.q_lens[1]; q++) {
            CU_ASSERT_EQUAL(memcmp(gqa_case_out(packed, 1, q), gqa_case_out(without, 1, q),
                                   gqa_case_out_bytes(packed)),
                            0);
        }
        gqa_case_free(packed);
        gqa_case_free(padded);
        gqa_case_free(without);
    }
    pkv_workspace_destroy(workspace);
}

/* q, k and v of a token lie in one row of a projection's output. */
static void fused_qkv_rows_need_no_copy(void)
{
    enum { TOKENS = 6, HEADS = 4, KV_HEADS = 2, WIDTH = 8, ROW = (HEADS + 2 * KV_HEADS) * WIDTH };
    pkv_workspace *workspace = case_workspace(2);
    struct case_spec spec = case_plain(test_seed());
    spec.kv_heads = KV_HEADS;
    spec.group = HEADS / KV_HEADS;
    case_add_row(&spec, 0, TOKENS, 20);
    struct gqa_case *packed = gqa_case_run(&spec, workspace);
    struct gqa_case *fused = gqa_case_make(&spec);
    float rows[TOKENS][ROW];
    for (size_t t = 0; t < TOKENS; t++) {
        memcpy(rows[t], (const float *)fused->args.q + t * HEADS * WIDTH,
               HEADS * WIDTH * sizeof(float));
        memcpy(rows[t] + HEADS * WIDTH, (const float *)fused->args.k + t * KV_HEADS * WIDTH,
               KV_HEADS * WIDTH * sizeof(float));
        memcpy(rows[t] + (HEADS + KV_HEADS) * WIDTH,
               (const float *)fused->args.v + t * KV_HEADS * WIDTH,
               KV_HEADS * WIDTH * sizeof(float));
    }
    fused->args.q = rows[0];
    fused->args.k = rows[0] + HEADS * WIDTH;
    fused->args.v = rows[0] + (HEADS + KV_HEADS) * WIDTH;
    fused->args.q_stride = fused->args.k_stride = fused->args.v_stride = ROW;
    ASSERT_STATUS(PKV_OK, gqa_case_call(fused, workspace));
    CU_ASSERT(gqa_case_same_rows(packed, fused));
    CU_ASSERT(same_caches(packed, fused));
    gqa_case_free(packed);
    gqa_case_free(fused);
    pkv_workspace_destroy(workspace);
}

static const struct test_case cases[] = {
    TEST(append_then_attend_equals_one_call),
    TEST(copied_cache_is_attended_as_it_was_written),
    TEST(chunked_prefill_equals_one_shot),
    TEST(long_chunked_prefill_equals_one_shot),
    TEST(int8_chunks_of_many_heads_equal_one_shot),
    TEST(decode_steps_equal_the_prefill_of_the_same_tokens),
    TEST(threads_do_not_change_the_bits),
    TEST(rows_beside_a_row_do_not_change_its_bits),
    TEST(block_ids_and_slots_do_not_change_the_bits),
    TEST(all_cache_forms_give_the_same_bits),
    TEST(window_as_long_as_the_row_changes_nothing),
    TEST(strides_and_a_missing_lse_change_nothing),
    TEST(fused_qkv_rows_need_no_copy),
    TEST_END,
};
const struct test_suite suite_gqa_bits = {"gqa_bits", cases};
