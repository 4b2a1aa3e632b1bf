/* SPDX-License-Identifier: MIT
 *
 * pkv_block_bounds: least and greatest values of keys, of all dtypes and layouts, against a plain
 * loop over the same cells; what is read and written; NaN; refusals. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/gqa_case.h"

static const enum pkv_dtype dtypes[] = {PKV_F32, PKV_F16, PKV_BF16, PKV_INT8, PKV_E4M3};

/* A pool of keys in memory of its own, everything NaN (int8: the extremes) until it is stored. */
struct pool {
    struct pkv_kv_view view;
    size_t elements;
    float *scale;
    int32_t scale_count;
    float *bounds;
    size_t num_bounds;
};

static size_t element_of(const struct pool *p, int32_t block, int32_t head, int32_t cell)
{
    return (size_t)block * p->view.k_block_stride + (size_t)head * p->view.k_head_stride +
           (size_t)cell * p->view.k_cell_stride;
}

static double value_at(const struct pool *p, int32_t block, int32_t head, int32_t cell, int32_t c)
{
    const size_t at = p->scale_count > 1 ? (size_t)(head * p->view.k_width + c) : 0;
    const double scale = p->scale != NULL ? (double)p->scale[at] : 1.0;
    const size_t element = element_of(p, block, head, cell) + (size_t)c;
    return (float)(ref_load(p->view.k_dtype, p->view.k, element) * scale);
}

static struct pool pool_make(struct test_random *random, enum pkv_dtype dtype, bool is_cell_major)
{
    const int32_t heads = random_between(random, 1, 3), width = random_between(random, 1, 150);
    const int32_t cells = random_between(random, 1, 9), blocks = random_between(random, 1, 6);
    const size_t gap = (size_t)random_between(random, 0, 5);
    struct pool p = {.view = {.k_dtype = dtype,
                              .num_blocks = blocks,
                              .kv_heads = heads,
                              .block_size = cells,
                              .k_width = width}};
    p.view.k_cell_stride = (size_t)width + gap;
    p.view.k_head_stride = p.view.k_cell_stride * (size_t)(is_cell_major ? 1 : cells);
    if (is_cell_major) {
        p.view.k_cell_stride = p.view.k_head_stride * (size_t)heads;
    }
    p.view.k_block_stride = (size_t)heads * (size_t)cells * ((size_t)width + gap);
    p.elements = (size_t)blocks * p.view.k_block_stride;
    p.view.k = reference_alloc(p.elements, pkv_dtype_bytes(dtype));
    for (size_t i = 0; i < p.elements; i++) {
        ref_store(dtype, p.view.k, i, dtype == PKV_INT8 ? (i % 2 ? 127 : -128) : (double)NAN);
    }
    if (pkv_dtype_bytes(dtype) == 1) {
        p.scale_count = random_between(random, 0, 1) ? 1 : heads * width;
        p.scale = reference_alloc((size_t)p.scale_count, sizeof(float));
        for (int32_t i = 0; i < p.scale_count; i++) {
            p.scale[i] = (float)exp2(4 * random_unit(random));
        }
    }
    p.num_bounds = (size_t)blocks * (size_t)heads * 2 * (size_t)width;
    p.bounds = reference_alloc(p.num_bounds, sizeof(float));
    for (size_t i = 0; i < p.num_bounds; i++) {
        p.bounds[i] = -77.0f;
    }
    return p;
}

static void pool_free(struct pool *p)
{
    free(p->view.k);
    free(p->scale);
    free(p->bounds);
}

/* Random keys in the first num_keys cells of a block. */
static void store_keys(const struct pool *p, struct test_random *random, int32_t block,
                       int32_t num_keys)
{
    const bool is_int8 = p->view.k_dtype == PKV_INT8;
    for (int32_t h = 0; h < p->view.kv_heads; h++) {
        for (int32_t cell = 0; cell < num_keys; cell++) {
            for (int32_t c = 0; c < p->view.k_width; c++) {
                const double x =
                    is_int8 ? random_between(random, -100, 100) : 8 * random_unit(random);
                ref_store(p->view.k_dtype, p->view.k, element_of(p, block, h, cell) + (size_t)c, x);
            }
        }
    }
}

/* The bounds of a block are those of its first num_keys cells; with 0 keys, they are untouched. */
static bool bounds_are(const struct pool *p, int32_t block, int32_t num_keys)
{
    const size_t width = (size_t)p->view.k_width;
    bool are = true;
    for (int32_t h = 0; h < p->view.kv_heads; h++) {
        const float *found = p->bounds + (size_t)(block * p->view.kv_heads + h) * 2 * width;
        for (int32_t c = 0; c < p->view.k_width; c++) {
            double least = num_keys > 0 ? INFINITY : -77, greatest = num_keys > 0 ? -INFINITY : -77;
            for (int32_t cell = 0; cell < num_keys; cell++) {
                least = fmin(least, value_at(p, block, h, cell, c));
                greatest = fmax(greatest, value_at(p, block, h, cell, c));
            }
            are = are && (double)found[c] == least && (double)found[width + (size_t)c] == greatest;
        }
    }
    return are;
}

/* Cells from num_keys on are NaN, so one that was read would show; of int8, an extreme. */
static void bounds_are_the_extremes_of_the_first_keys(void)
{
    struct test_random random = {test_seed()};
    pkv_workspace *workspace = case_workspace(1);
    for (int i = 0; i < 200; i++) {
        struct pool p = pool_make(&random, dtypes[i % 5], i / 5 % 2);
        const int32_t num_keys = random_between(&random, 1, p.view.block_size);
        const int32_t block = random_between(&random, 0, p.view.num_blocks - 1);
        const int32_t other = random_between(&random, 0, p.view.num_blocks - 1);
        const int32_t blocks[] = {block, other, block};
        store_keys(&p, &random, block, num_keys);
        store_keys(&p, &random, other, num_keys);
        ASSERT_STATUS(PKV_OK, pkv_block_bounds(workspace, &p.view, p.scale, p.scale_count, blocks,
                                               3, num_keys, p.bounds));
        for (int32_t b = 0; b < p.view.num_blocks; b++) {
            CU_ASSERT(bounds_are(&p, b, b == block || b == other ? num_keys : 0));
        }
        pool_free(&p);
    }
    pkv_workspace_destroy(workspace);
}

static void bounds_are_the_same_on_all_instruction_sets(void)
{
    struct test_random random = {test_seed()};
    for (int i = 0; i < 20; i++) {
        struct pool p = pool_make(&random, dtypes[i % 5], false);
        float *first = reference_alloc(p.num_bounds, sizeof(float));
        const int32_t block = 0;
        store_keys(&p, &random, block, p.view.block_size);
        for (int isa = PKV_ISA_SCALAR; isa < PKV_NUM_ISAS; isa++) {
            pkv_workspace *workspace = NULL;
            if (!test_has_isa((enum pkv_isa)isa)) {
                continue;
            }
            ASSERT_STATUS(PKV_OK, pkv_workspace_create(1, (enum pkv_isa)isa, NULL, &workspace));
            ASSERT_STATUS(PKV_OK, pkv_block_bounds(workspace, &p.view, p.scale, p.scale_count,
                                                   &block, 1, p.view.block_size, p.bounds));
            if (isa == PKV_ISA_SCALAR) {
                memcpy(first, p.bounds, p.num_bounds * sizeof(float));
            }
            CU_ASSERT(memcmp(first, p.bounds, p.num_bounds * sizeof(float)) == 0);
            pkv_workspace_destroy(workspace);
        }
        free(first);
        pool_free(&p);
    }
}

/* Wherever the key stands, and whatever is smaller and larger behind it. */
static void a_nan_among_the_keys_is_never_dropped(void)
{
    enum { KEYS = 5, WIDTH = 3 };
    static const enum pkv_dtype with_nan[] = {PKV_F32, PKV_F16, PKV_BF16, PKV_E4M3};
    pkv_workspace *workspace = case_workspace(1);
    for (int i = 0; i < 4 * KEYS; i++) {
        float keys[KEYS * WIDTH], bounds[2 * WIDTH];
        const float one = 1;
        const int32_t block = 0;
        const enum pkv_dtype dtype = with_nan[i / KEYS];
        for (size_t at = 0; at < KEYS * WIDTH; at++) {
            const bool is_nan = at == (size_t)(i % KEYS) * WIDTH + 1;
            ref_store(dtype, keys, at, is_nan ? (double)NAN : (double)at - 7);
        }
        const struct pkv_kv_view view = {.k = keys,
                                         .k_dtype = dtype,
                                         .num_blocks = 1,
                                         .kv_heads = 1,
                                         .block_size = KEYS,
                                         .k_width = WIDTH};
        const bool is_scaled = dtype == PKV_E4M3;
        ASSERT_STATUS(PKV_OK, pkv_block_bounds(workspace, &view, is_scaled ? &one : NULL, is_scaled,
                                               &block, 1, KEYS, bounds));
        CU_ASSERT(isnan(bounds[1]) && isnan(bounds[WIDTH + 1]));
        CU_ASSERT(bounds[0] == -7 && bounds[WIDTH] == 5);
        CU_ASSERT(bounds[2] == -5 && bounds[WIDTH + 2] == 7);
    }
    pkv_workspace_destroy(workspace);
}

static void infinities_and_zeros_are_values_like_others(void)
{
    float keys[] = {INFINITY, -0.0f, -FLT_MAX, 1, -INFINITY, FLT_TRUE_MIN}, bounds[4];
    const int32_t block = 0;
    pkv_workspace *workspace = case_workspace(1);
    const struct pkv_kv_view view = {.k = keys,
                                     .k_dtype = PKV_F32,
                                     .num_blocks = 1,
                                     .kv_heads = 1,
                                     .block_size = 3,
                                     .k_width = 2};
    ASSERT_STATUS(PKV_OK, pkv_block_bounds(workspace, &view, NULL, 0, &block, 1, 3, bounds));
    CU_ASSERT(bounds[0] == -INFINITY && bounds[2] == INFINITY);
    CU_ASSERT(bounds[1] == 0 && bounds[3] == 1);
    pkv_workspace_destroy(workspace);
}

/* [slots][kv_heads][max_seq][width]: a slot is a view of its own, with blocks of 4 keys. */
static void a_slot_of_a_continuous_cache_is_a_view_of_blocks(void)
{
    enum { SLOTS = 3, HEADS = 2, KEYS = 13, WIDTH = 5, SIZE = 4, WHOLE = KEYS / SIZE };
    static float keys[SLOTS][HEADS][KEYS][WIDTH];
    float bounds[WHOLE][HEADS][2][WIDTH];
    struct test_random random = {test_seed()};
    pkv_workspace *workspace = case_workspace(1);
    for (size_t i = 0; i < sizeof keys / sizeof(float); i++) {
        (&keys[0][0][0][0])[i] = (float)random_unit(&random);
    }
    const struct pkv_kv_view slot = {.k = &keys[1][0][0][0],
                                     .k_dtype = PKV_F32,
                                     .num_blocks = WHOLE,
                                     .kv_heads = HEADS,
                                     .block_size = SIZE,
                                     .k_width = WIDTH,
                                     .k_head_stride = KEYS * WIDTH,
                                     .k_block_stride = SIZE * WIDTH};
    const int32_t blocks[] = {0, 1, 2};
    ASSERT_STATUS(PKV_OK, pkv_block_bounds(workspace, &slot, NULL, 0, blocks, WHOLE, SIZE,
                                           &bounds[0][0][0][0]));
    for (int32_t n = 0; n < WHOLE * HEADS * WIDTH; n++) {
        const int32_t b = n / WIDTH / HEADS, h = n / WIDTH % HEADS, c = n % WIDTH;
        float least = keys[1][h][SIZE * b][c], greatest = least;
        for (int32_t j = SIZE * b; j < SIZE * (b + 1); j++) {
            least = fminf(least, keys[1][h][j][c]);
            greatest = fmaxf(greatest, keys[1][h][j][c]);
        }
        CU_ASSERT(bounds[b][h][0][c] == least && bounds[b][h][1][c] == greatest);
    }
    pkv_workspace_destroy(workspace);
}

static void bounds_take_no_memory(void)
{
    struct test_memory memory = {.fail_at = 0};
    const struct pkv_hooks hooks = test_hooks(&memory);
    struct test_random random = {test_seed()};
    pkv_workspace *workspace = NULL;
    const int32_t block = 0;
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(1, test_isa(), &hooks, &workspace));
    memory.fail_at = 1;
    for (int i = 0; i < 5; i++) {
        struct pool p = pool_make(&random, dtypes[i], false);
        ASSERT_STATUS(PKV_OK, pkv_block_bounds(workspace, &p.view, p.scale, p.scale_count, &block,
                                               1, 1, p.bounds));
        pool_free(&p);
    }
    pkv_workspace_destroy(workspace);
    CU_ASSERT_EQUAL(memory.live, 0);
}

/* Each refuses one change of a good call, and writes nothing. */
static void bad_arguments_refuse_and_are_named(void)
{
    enum { KEYS = 4, WIDTH = 2, BLOCKS = 3 };
    float keys[BLOCKS * KEYS * WIDTH] = {0}, bounds[BLOCKS * 2 * WIDTH], before[BLOCKS * 2 * WIDTH];
    const float one = 1, none = 0;
    const int32_t good[] = {0, 2}, high[] = {0, 3}, low[] = {-1, 0};
    pkv_workspace *workspace = case_workspace(1);
    const struct pkv_kv_view view = {.k = keys,
                                     .k_dtype = PKV_F32,
                                     .num_blocks = BLOCKS,
                                     .kv_heads = 1,
                                     .block_size = KEYS,
                                     .k_width = WIDTH};
    struct pkv_kv_view no_keys = view, no_dtype = view, no_head = view, narrow = view, huge = view,
                       quantised = view;
    no_keys.k = NULL;
    no_dtype.k_dtype = (enum pkv_dtype)9;
    no_head.kv_heads = 0;
    narrow.k_cell_stride = 1;
    huge.k_block_stride = SIZE_MAX / 2;
    quantised.k_dtype = PKV_INT8;
    const struct {
        const char *culprit;
        const struct pkv_kv_view *view;
        const float *scale;
        int32_t scale_count;
        const int32_t *blocks;
        int32_t num_blocks, num_keys;
        float *bounds;
    } faults[] = {
        {"keys is NULL", NULL, NULL, 0, good, 2, KEYS, bounds},
        {"keys.k is NULL", &no_keys, NULL, 0, good, 2, KEYS, bounds},
        {"keys.k_dtype = 9", &no_dtype, NULL, 0, good, 2, KEYS, bounds},
        {"kv_heads = 0", &no_head, NULL, 0, good, 2, KEYS, bounds},
        {"keys.k strides", &narrow, NULL, 0, good, 2, KEYS, bounds},
        {"keys.k: its bytes overflow", &huge, NULL, 0, good, 2, KEYS, bounds},
        {"k_scale is NULL", &quantised, NULL, 0, good, 2, KEYS, bounds},
        {"k_scale is set", &view, &one, 1, good, 2, KEYS, bounds},
        {"k_scale_count = 3", &quantised, &one, 3, good, 2, KEYS, bounds},
        {"k_scale[0] = 0", &quantised, &none, 1, good, 2, KEYS, bounds},
        {"blocks[1] = 3, outside [0, 3)", &view, NULL, 0, high, 2, KEYS, bounds},
        {"blocks[0] = -1, outside [0, 3)", &view, NULL, 0, low, 2, KEYS, bounds},
        {"num_blocks = -1", &view, NULL, 0, good, -1, KEYS, bounds},
        {"blocks is NULL", &view, NULL, 0, NULL, 2, KEYS, bounds},
        {"num_keys = 0", &view, NULL, 0, good, 2, 0, bounds},
        {"num_keys = 5", &view, NULL, 0, good, 2, KEYS + 1, bounds},
        {"bounds is NULL", &view, NULL, 0, good, 2, KEYS, NULL},
        {"bounds overlaps keys.k", &view, NULL, 0, good, 2, KEYS, keys + 4},
    };
    memset(bounds, 7, sizeof bounds);
    memcpy(before, bounds, sizeof bounds);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        ASSERT_CASE_REFUSED(faults[i].culprit, PKV_INVALID_ARGUMENT, faults[i].culprit,
                            pkv_block_bounds(workspace, faults[i].view, faults[i].scale,
                                             faults[i].scale_count, faults[i].blocks,
                                             faults[i].num_blocks, faults[i].num_keys,
                                             faults[i].bounds));
    }
    CU_ASSERT(memcmp(before, bounds, sizeof bounds) == 0);
    pkv_workspace_destroy(workspace);
}

static void no_workspace_and_later_fields_refuse_and_no_blocks_are_all_right(void)
{
    float keys[4] = {1, 2, 3, 4}, bounds[2] = {5, 6};
    const int32_t block = 0;
    pkv_workspace *workspace = case_workspace(1);
    struct pkv_kv_view view = {.k = keys,
                               .k_dtype = PKV_F32,
                               .num_blocks = 1,
                               .kv_heads = 1,
                               .block_size = 4,
                               .k_width = 1};
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "workspace is NULL",
                   pkv_block_bounds(NULL, &view, NULL, 0, &block, 1, 4, bounds));
    ASSERT_STATUS(PKV_OK, pkv_block_bounds(workspace, &view, NULL, 0, NULL, 0, 4, bounds));
    view.reserved[3] = 1;
    ASSERT_REFUSED(PKV_UNSUPPORTED, "keys.reserved",
                   pkv_block_bounds(workspace, &view, NULL, 0, &block, 1, 4, bounds));
    CU_ASSERT(bounds[0] == 5 && bounds[1] == 6);
    pkv_workspace_destroy(workspace);
}

static const struct test_case cases[] = {
    TEST(bounds_are_the_extremes_of_the_first_keys),
    TEST(bounds_are_the_same_on_all_instruction_sets),
    TEST(a_nan_among_the_keys_is_never_dropped),
    TEST(infinities_and_zeros_are_values_like_others),
    TEST(a_slot_of_a_continuous_cache_is_a_view_of_blocks),
    TEST(bounds_take_no_memory),
    TEST(bad_arguments_refuse_and_are_named),
    TEST(no_workspace_and_later_fields_refuse_and_no_blocks_are_all_right),
    TEST_END,
};
const struct test_suite suite_block_bounds = {"block_bounds", cases};
