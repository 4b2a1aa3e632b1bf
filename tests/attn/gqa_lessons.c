/* SPDX-License-Identifier: MIT
 *
 * Faults that other caches had, each as a promise that this operator does not have it: cells that
 * nobody may see, rows that disturb each other, blocks released behind a window, offsets beyond
 * 32 bits. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "support/gqa_case.h"

/* E1: what is not seen is not read: pads, tails, what lies before the window. */
static void unseen_cells_never_reach_the_output(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (int form = PKV_CACHE_DENSE; form <= PKV_CACHE_PAGED; form++) {
        struct gqa_case *cs[3];
        for (int poison = 0; poison < 3; poison++) {
            struct case_spec spec = case_plain(test_seed());
            const bool is_copy = form == PKV_CACHE_DENSE_COPY;
            spec.form = (enum pkv_cache_form)form;
            spec.poison = poison;
            spec.window = 5;
            spec.group = 3;
            case_add_row(&spec, 0, 2, 23);
            case_add_row(&spec, 1, is_copy ? 2 : 1, is_copy ? 23 : 9);
            cs[poison] = gqa_case_make(&spec);
            CU_ASSERT(gqa_case_check(cs[poison], workspace));
        }
        for (int i = 0; i < 2; i++) {
            CU_ASSERT(gqa_case_same_row(cs[0], 0, i, cs[1], 0, i));
            CU_ASSERT(gqa_case_same_row(cs[0], 0, i, cs[2], 0, i));
        }
        for (int poison = 0; poison < 3; poison++) {
            gqa_case_free(cs[poison]);
        }
    }
    pkv_workspace_destroy(workspace);
}

static void nan_that_is_seen_stays_in_its_row_and_head(void)
{
    pkv_workspace *workspace = case_workspace(2);
    struct case_spec spec = case_plain(test_seed());
    spec.form = PKV_CACHE_CONTINUOUS;
    spec.kv_heads = 2;
    spec.group = 2;
    case_add_row(&spec, 0, 1, 9);
    case_add_row(&spec, 1, 1, 9);
    struct gqa_case *c = gqa_case_make(&spec);
    const struct pkv_kv_view view = reference_view(c->args.past);
    int32_t block = 0, cell = 0;
    reference_locate(&c->args, 1, 4, &block, &cell);
    ((float *)view.v)[reference_v_index(&view, block, 1, cell) + 3] = NAN;
    ASSERT_STATUS(PKV_OK, gqa_case_call(c, workspace));
    for (int32_t b = 0; b < 2; b++) {
        const float *out = gqa_case_out(c, b, 0);
        for (int32_t i = 0; i < 4 * 8; i++) {
            CU_ASSERT_EQUAL(isnan(out[i]) != 0, b == 1 && i / 8 >= 2 && i % 8 == 3);
        }
    }
    pkv_workspace_destroy(workspace);
    gqa_case_free(c);
}

/* B7: block size and strides are read from the view, so any of them gives the same bits. */
static void any_block_size_and_any_stride_give_the_same_bits(void)
{
    static const int32_t sizes[] = {1, 2, 3, 4, 7, 16, 64};
    pkv_workspace *workspace = case_workspace(2);
    struct gqa_case *first = NULL;
    for (int i = 0; i < 7 * 3; i++) {
        struct case_spec spec = case_plain(test_seed());
        spec.block_size = sizes[i / 3];
        spec.padded = i % 3 == 1;
        spec.cell_major = i % 3 == 2;
        spec.kv_heads = 2;
        spec.group = 2;
        case_add_row(&spec, 0, 3, 50);
        case_add_row(&spec, 1, 1, 17);
        struct gqa_case *c = gqa_case_make(&spec);
        CU_ASSERT(gqa_case_check(c, workspace));
        if (first == NULL) {
            first = c;
            continue;
        }
        for (int32_t q = 0; q < 4; q++) {
            CU_ASSERT(gqa_case_same_row(first, q / 3, q % 3, c, q / 3, q % 3));
        }
        gqa_case_free(c);
    }
    gqa_case_free(first);
    pkv_workspace_destroy(workspace);
}

/* C1: each row of a call appends at its own length, whatever the other rows have. */
static void rows_append_at_their_own_lengths(void)
{
    static const int32_t past[] = {0, 8, 5};
    struct case_spec spec = case_plain(test_seed());
    for (int32_t b = 0; b < 3; b++) {
        case_add_row(&spec, b, 2, past[b] + 2);
    }
    struct gqa_case *c = gqa_case_make(&spec);
    pkv_workspace *workspace = case_workspace(2);
    CU_ASSERT(gqa_case_check(c, workspace)); /* all other cells compared byte by byte */
    pkv_workspace_destroy(workspace);
    gqa_case_free(c);
}

/* C1: two rows read one block and append behind it. */
static void shared_block_is_read_by_two_rows_and_unchanged(void)
{
    float k[6], v[] = {2, 4, NAN, NAN, NAN, NAN}, out[2];
    const float zero[] = {0, 0}, new_v[] = {9, 12};
    const int32_t table[] = {0, 1, 0, 2}, kv_lens[] = {3, 3};
    memset(k, 0, sizeof k);
    struct pkv_gqa_args args = case_f32_args(PKV_CACHE_PAGED, 2, 1, 1, 1);
    args.q = args.k = zero;
    args.v = new_v;
    args.out = out;
    args.kv_lens = kv_lens;
    args.block_table = table;
    args.max_blocks = 2;
    args.past = case_f32_view(k, v, 3, 1, 2, 1);
    case_run(&args);
    ASSERT_CLOSE(out[0], 5);
    ASSERT_CLOSE(out[1], 6);
    CU_ASSERT_EQUAL(v[0], 2.0f);
    CU_ASSERT_EQUAL(v[1], 4.0f);
    CU_ASSERT_EQUAL(v[2], 9.0f);
    CU_ASSERT_EQUAL(v[4], 12.0f);
    CU_ASSERT(isnan(v[3]) && isnan(v[5]));
}

/* C3, C4: a row without tokens writes nothing, whatever its table and length say, and a row without
 * keys gives zeros. */
static void row_without_queries_writes_nothing(void)
{
    struct case_spec spec = case_plain(test_seed());
    case_add_row(&spec, 0, 0, 0);
    case_add_row(&spec, 1, 2, 7);
    case_add_row(&spec, 2, 0, 9);
    pkv_workspace *workspace = case_workspace(2);
    struct gqa_case *c = gqa_case_make(&spec);
    CU_ASSERT(gqa_case_check(c, workspace));
    for (int32_t i = 0; i < c->args.max_blocks; i++) {
        c->block_table[2 * c->args.max_blocks + i] = -1;
    }
    CU_ASSERT(gqa_case_check(c, workspace));
    pkv_workspace_destroy(workspace);
    gqa_case_free(c);
}

static void call_without_tokens_succeeds_and_writes_nothing(void)
{
    struct case_spec spec = case_plain(test_seed());
    case_add_row(&spec, 0, 0, 5);
    pkv_workspace *workspace = case_workspace(2);
    struct gqa_case *c = gqa_case_make(&spec);
    ASSERT_STATUS(PKV_OK, gqa_case_call(c, workspace));
    CU_ASSERT_EQUAL(gqa_case_changed(c, REGION_INPUT | REGION_CACHE | REGION_OUTPUT), -1);
    c->args.batch = 0;
    ASSERT_STATUS(PKV_OK, gqa_case_call(c, workspace));
    CU_ASSERT_EQUAL(gqa_case_changed(c, REGION_INPUT | REGION_CACHE | REGION_OUTPUT), -1);
    pkv_workspace_destroy(workspace);
    gqa_case_free(c);
}

static void empty_cache_without_causality_gives_zero_and_minus_infinity(void)
{
    struct case_spec spec = case_plain(test_seed());
    spec.read_only = true;
    spec.not_causal = true;
    case_add_row(&spec, 0, 1, 0);
    case_add_row(&spec, 1, 2, 1);
    pkv_workspace *workspace = case_workspace(2);
    struct gqa_case *c = gqa_case_make(&spec);
    ASSERT_STATUS(PKV_OK, gqa_case_call(c, workspace));
    const float *out = gqa_case_out(c, 0, 0);
    for (int i = 0; i < 8; i++) {
        CU_ASSERT_EQUAL(out[i], 0.0f);
    }
    CU_ASSERT_EQUAL(gqa_case_lse(c, 0, 0)[0], -INFINITY);
    CU_ASSERT(isfinite(gqa_case_lse(c, 1, 0)[0]));
    pkv_workspace_destroy(workspace);
    gqa_case_free(c);
}

/* F2: what is released is never attended. After each step the blocks that neither the next window
 * nor the kept prefix touches are unmapped and overwritten; the means stay those of the full
 * history. */
struct reclaim {
    int32_t block_size, window, kept;
};

static double expected_mean(const struct reclaim *r, int32_t kv_len)
{
    double sum = 0;
    int count = 0;
    for (int32_t j = 0; j < kv_len; j++) {
        if (j < r->kept || j > kv_len - 1 - r->window) {
            sum += j;
            count++;
        }
    }
    return sum / count;
}

static void unmap_behind(const struct reclaim *r, int32_t kv_len, int32_t *table, float *v)
{
    for (int32_t i = 0; i * r->block_size < kv_len; i++) {
        const int32_t first = i * r->block_size;
        const int32_t last = first + r->block_size - 1;
        if (table[i] >= 0 && first >= r->kept && last <= kv_len - r->window) {
            for (int32_t c = 0; c < r->block_size; c++) {
                v[table[i] * r->block_size + c] = NAN;
            }
            table[i] = -1;
        }
    }
}

static int count_wrong_means(pkv_workspace *workspace, const struct reclaim *r)
{
    enum { LENGTH = 60 };
    float k[72] = {0}, v[72];
    int32_t table[72];
    int wrong = 0;
    for (int32_t i = 0; i < 72; i++) {
        v[i] = NAN;
        table[i] = i < 72 / r->block_size ? i : -1;
    }
    for (int32_t kv_len = 1; kv_len <= LENGTH; kv_len++) {
        const float zero = 0, value = (float)(kv_len - 1);
        const int64_t kept = r->kept;
        float out = NAN;
        struct pkv_gqa_args args = case_f32_args(PKV_CACHE_PAGED, 1, 1, 1, 1);
        args.q = args.k = &zero;
        args.v = &value;
        args.out = &out;
        args.kv_lens = &kv_len;
        args.block_table = table;
        args.max_blocks = 72 / r->block_size;
        args.past = case_f32_view(k, v, 72 / r->block_size, 1, r->block_size, 1);
        args.sliding_window = r->window;
        args.kept_prefix = &kept;
        args.kept_prefix_count = 1;
        wrong += pkv_gqa(workspace, &args) != PKV_OK ||
                 !case_is_close((double)out, expected_mean(r, kv_len));
        unmap_behind(r, kv_len, table, v);
    }
    return wrong;
}

static void blocks_behind_the_window_can_be_unmapped_step_by_step(void)
{
    pkv_workspace *workspace = case_workspace(1);
    for (int32_t block_size = 1; block_size <= 8; block_size++) {
        for (int32_t at = 0; at < 20 * 10; at++) {
            const struct reclaim r = {block_size, 1 + at / 10, at % 10};
            const int wrong = count_wrong_means(workspace, &r);
            if (wrong > 0) {
                printf("\n  block size %d, window %d, kept %d: %d of 60 steps are wrong: %s\n",
                       r.block_size, r.window, r.kept, wrong, pkv_last_error());
            }
            CU_ASSERT_EQUAL(wrong, 0);
        }
    }
    pkv_workspace_destroy(workspace);
}

/* F4: positions are absolute for ever, so no stored key is ever moved or rotated again. */
static void stored_keys_keep_their_bytes_under_a_window(void)
{
    enum { LENGTH = 14, WIDTH = 4 };
    struct test_random random = {test_seed()};
    float k[16 * WIDTH] = {0}, v[16 * WIDTH] = {0}, day[16 * WIDTH], x[WIDTH], out[WIDTH];
    float cos_table[16], sin_table[16];
    const int64_t kept = 2;
    pkv_workspace *workspace = case_workspace(1);
    for (int i = 0; i < 16; i++) {
        cos_table[i] = cosf((float)i);
        sin_table[i] = sinf((float)i);
    }
    for (int32_t kv_len = 1; kv_len <= LENGTH; kv_len++) {
        struct pkv_gqa_args args = case_f32_args(PKV_CACHE_DENSE, 1, 1, 1, WIDTH);
        for (int c = 0; c < WIDTH; c++) {
            x[c] = (float)random_unit(&random);
        }
        args.q = args.k = args.v = x;
        args.out = out;
        args.kv_lens = &kv_len;
        args.past = case_f32_view(k, v, 1, 1, 16, WIDTH);
        args.sliding_window = 3;
        args.kept_prefix = &kept;
        args.kept_prefix_count = 1;
        args.constants.rope_cos = cos_table;
        args.constants.rope_sin = sin_table;
        args.constants.rope_positions = 16;
        args.constants.rope_width = 1;
        ASSERT_STATUS(PKV_OK, pkv_gqa(workspace, &args));
        const size_t before = (size_t)(kv_len - 1) * WIDTH;
        CU_ASSERT_EQUAL(memcmp(k, day, before * sizeof *k), 0);
        memcpy(day, k, sizeof day);
    }
    pkv_workspace_destroy(workspace);
}

/* B5: offsets have 64 bits. Block N - 1 of a pool of more than 2^31 elements is found, of which
 * nothing else is ever mapped. The published threshold: block 2066 at a stride of 1039680
 * elements. */
static void last_block_beyond_two_gibi_elements_is_found(void)
{
    enum { WIDTH = 8, BLOCK_SIZE = 4 };
    const int32_t num_blocks = 2067;
    const size_t stride = 1039680;
    const size_t last = (size_t)(num_blocks - 1) * stride;
    CU_ASSERT_EQUAL(last, (size_t)2147978880u);
    const size_t bytes = (size_t)num_blocks * stride * sizeof(uint16_t);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    uint16_t *pool = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (pool == MAP_FAILED) {
        printf("\n  skipped: this machine cannot reserve %zu bytes\n", 2 * bytes);
        return;
    }
    uint16_t x[WIDTH], out[WIDTH];
    for (int c = 0; c < WIDTH; c++) {
        x[c] = ref_to_bf16(c + 1);
    }
    const int32_t table[] = {num_blocks - 1}, kv_lens[] = {1};
    struct pkv_gqa_args args = case_f32_args(PKV_CACHE_PAGED, 1, 1, 1, WIDTH);
    args.dtype = PKV_BF16;
    args.q = args.k = args.v = x;
    args.out = out;
    args.kv_lens = kv_lens;
    args.block_table = table;
    args.max_blocks = 1;
    args.past = case_f32_view(NULL, NULL, num_blocks, 1, BLOCK_SIZE, WIDTH);
    args.past.k = pool;
    args.past.v = pool + (size_t)num_blocks * stride;
    args.past.k_dtype = args.past.v_dtype = PKV_BF16;
    args.past.k_block_stride = args.past.v_block_stride = stride;
    args.past.k_head_stride = args.past.v_head_stride = (size_t)BLOCK_SIZE * WIDTH;
    args.past.k_cell_stride = args.past.v_cell_stride = WIDTH;
    case_run(&args);
    CU_ASSERT_EQUAL(memcmp(out, x, sizeof x), 0);
    CU_ASSERT_EQUAL(memcmp(pool + last, x, sizeof x), 0);
    for (size_t i = 0; i < (size_t)BLOCK_SIZE * WIDTH; i++) {
        CU_ASSERT_EQUAL(pool[i], 0);
    }
    munmap(pool, 2 * bytes);
}

static const struct test_case cases[] = {
    TEST(unseen_cells_never_reach_the_output),
    TEST(nan_that_is_seen_stays_in_its_row_and_head),
    TEST(any_block_size_and_any_stride_give_the_same_bits),
    TEST(rows_append_at_their_own_lengths),
    TEST(shared_block_is_read_by_two_rows_and_unchanged),
    TEST(row_without_queries_writes_nothing),
    TEST(call_without_tokens_succeeds_and_writes_nothing),
    TEST(empty_cache_without_causality_gives_zero_and_minus_infinity),
    TEST(blocks_behind_the_window_can_be_unmapped_step_by_step),
    TEST(stored_keys_keep_their_bytes_under_a_window),
    TEST(last_block_beyond_two_gibi_elements_is_found),
    TEST_END,
};
const struct test_suite suite_gqa_lessons = {"gqa_lessons", cases};
