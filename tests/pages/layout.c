/* SPDX-License-Identifier: MIT
 *
 * Sizes, strides and offsets of page stores, with known answers, and the refusals of geometry. */
#include "pages/layout.h"

#include <string.h>

#include "support/test.h"

static struct pkv_page_geometry geometry_of(int32_t num_layers, int32_t kv_heads, int32_t width,
                                            enum pkv_dtype dtype, int32_t block_size)
{
    const struct pkv_page_geometry geometry = {
        .size = sizeof geometry,
        .num_layers = num_layers,
        .num_blocks = 10,
        .kv_heads = kv_heads,
        .block_size = block_size,
        .k_width = width,
        .k_dtype = dtype,
        .v_dtype = dtype,
    };
    return geometry;
}

static struct pkv_page_sizes sizes_of(const struct pkv_page_geometry *geometry)
{
    struct pkv_page_sizes sizes = {.size = sizeof sizes};
    ASSERT_STATUS(PKV_OK, pkv_page_sizes_of(geometry, &sizes));
    return sizes;
}

/* The reference values that users of other caches published. */
static void sizes_have_the_published_values(void)
{
    struct pkv_page_geometry geometry = geometry_of(16, 4, 256, PKV_F16, 64);
    CU_ASSERT_EQUAL(sizes_of(&geometry).block_bytes, 4194304);
    geometry.num_layers = 64;
    CU_ASSERT_EQUAL(sizes_of(&geometry).block_bytes, 16777216);
    geometry = geometry_of(36, 8, 64, PKV_BF16, 16);
    CU_ASSERT_EQUAL(sizes_of(&geometry).token_bytes, 73728);
    geometry = geometry_of(32, 8, 128, PKV_F16, 16);
    const struct pkv_page_sizes sizes = sizes_of(&geometry);
    CU_ASSERT_EQUAL(sizes.block_bytes, 2097152);
    CU_ASSERT_EQUAL(sizes.layer_block_bytes, 65536);
    CU_ASSERT_EQUAL(sizes.token_bytes, 131072);
    CU_ASSERT_EQUAL(sizes.payload_bytes, 20971520);
}

static void keys_and_values_have_their_own_widths_and_types(void)
{
    struct pkv_page_geometry geometry = geometry_of(2, 3, 10, PKV_F32, 4);
    geometry.v_width = 6;
    geometry.v_dtype = PKV_INT8;
    const struct pkv_page_sizes sizes = sizes_of(&geometry);
    CU_ASSERT_EQUAL(sizes.layer_block_bytes, 3 * 4 * (10 * 4 + 6));
    CU_ASSERT_EQUAL(sizes.token_bytes, 2 * 3 * (10 * 4 + 6));
}

static void values_that_lie_in_the_keys_take_no_bytes(void)
{
    struct pkv_page_geometry geometry = geometry_of(2, 1, 576, PKV_BF16, 16);
    geometry.v_width = 512;
    geometry.v_in_k = true;
    geometry.v_dtype = (enum pkv_dtype)99; /* of no consequence */
    const struct pkv_page_sizes sizes = sizes_of(&geometry);
    CU_ASSERT_EQUAL(sizes.token_bytes, 2 * 576 * 2);
    CU_ASSERT_EQUAL(sizes.payload_bytes, 10 * 16 * 2 * 576 * 2);
}

static void each_part_starts_on_a_cache_line_and_the_padding_is_counted(void)
{
    struct pkv_page_geometry geometry = geometry_of(3, 1, 5, PKV_E4M3, 1);
    geometry.num_blocks = 13;
    geometry.v_width = 1;
    struct page_layout layout;
    ASSERT_STATUS(PKV_OK, page_layout_make(&geometry, &layout));
    CU_ASSERT_EQUAL(layout.k.part_bytes, 128); /* 65 bytes */
    CU_ASSERT_EQUAL(layout.v.part_bytes, 64);  /* 13 bytes */
    CU_ASSERT_EQUAL(layout.sizes.payload_bytes, 3 * (128 + 64));
    CU_ASSERT_EQUAL(layout.sizes.block_bytes, 3 * 6);
    CU_ASSERT_EQUAL(page_layer_offset(&layout, 2), 2 * (128 + 64));
}

/* B7: strides follow from the geometry at every block size. */
static void strides_are_packed_at_every_block_size(void)
{
    static const int32_t block_sizes[] = {1, 2, 3, 4, 7, 16, 64};
    for (size_t i = 0; i < sizeof block_sizes / sizeof block_sizes[0]; i++) {
        const int32_t block_size = block_sizes[i];
        struct pkv_page_geometry geometry = geometry_of(2, 3, 8, PKV_F16, block_size);
        geometry.v_width = 6;
        struct page_layout layout;
        ASSERT_STATUS(PKV_OK, page_layout_make(&geometry, &layout));
        CU_ASSERT(layout.k.cell_stride == 8 && layout.v.cell_stride == 6);
        CU_ASSERT_EQUAL(layout.k.head_stride, 8 * (size_t)block_size);
        CU_ASSERT_EQUAL(layout.v.head_stride, 6 * (size_t)block_size);
        CU_ASSERT_EQUAL(layout.k.block_stride, 24 * (size_t)block_size);
        CU_ASSERT_EQUAL(layout.v.block_stride, 18 * (size_t)block_size);
        CU_ASSERT_EQUAL(page_cell_offset(&layout.k, 5, 2, block_size - 1),
                        2 * ((5 * 3 + 2) * (size_t)block_size + (size_t)block_size - 1) * 8);
    }
}

/* B5: offsets have 64 bits, also where a block id times a stride passes 2^31. */
static void offsets_pass_two_to_the_31(void)
{
    const struct page_part part = {.element_bytes = 1, .block_stride = 1039680};
    CU_ASSERT_EQUAL(page_cell_offset(&part, 2066, 0, 0), (size_t)2147978880u);
    const struct page_part wide = {
        .element_bytes = 2, .cell_stride = 576, .head_stride = 576, .block_stride = 480 * 576};
    CU_ASSERT_EQUAL(page_cell_offset(&wide, 7768, 0, 0), (size_t)7768 * 480 * 576 * 2);
}

static void assert_refused(enum pkv_status expected, const struct pkv_page_geometry *geometry,
                           const char *field)
{
    struct pkv_page_sizes sizes, before;
    memset(&sizes, 0x5a, sizeof sizes);
    sizes.size = sizeof sizes;
    before = sizes;
    ASSERT_REFUSED(expected, field, pkv_page_sizes_of(geometry, &sizes));
    CU_ASSERT(memcmp(&sizes, &before, sizeof sizes) == 0);
}

static void every_count_below_its_range_refuses_by_name(void)
{
    struct pkv_page_geometry geometry = geometry_of(2, 3, 8, PKV_F16, 4);
    const struct {
        int32_t *count;
        const char *name;
    } counts[] = {
        {&geometry.num_layers, "num_layers"}, {&geometry.num_blocks, "num_blocks"},
        {&geometry.kv_heads, "kv_heads"},     {&geometry.block_size, "block_size"},
        {&geometry.k_width, "k_width"},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const int32_t good = *counts[i].count;
        *counts[i].count = 0;
        assert_refused(PKV_INVALID_ARGUMENT, &geometry, counts[i].name);
        *counts[i].count = INT32_MIN;
        assert_refused(PKV_INVALID_ARGUMENT, &geometry, counts[i].name);
        *counts[i].count = good;
    }
    geometry.v_width = -1;
    assert_refused(PKV_INVALID_ARGUMENT, &geometry, "v_width");
}

static void a_geometry_that_cannot_be_refuses(void)
{
    struct pkv_page_geometry geometry = geometry_of(2, 3, 8, PKV_F16, 4);
    assert_refused(PKV_INVALID_ARGUMENT, NULL, "geometry is NULL");
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_page_sizes_of(&geometry, NULL));
    geometry.size = 0;
    assert_refused(PKV_INVALID_ARGUMENT, &geometry, "size");
    geometry.size = sizeof geometry;
    geometry.k_dtype = (enum pkv_dtype)99;
    assert_refused(PKV_UNSUPPORTED, &geometry, "k_dtype");
    geometry.k_dtype = PKV_F16;
    geometry.v_dtype = (enum pkv_dtype)99;
    assert_refused(PKV_UNSUPPORTED, &geometry, "v_dtype");
    geometry.v_in_k = true;
    geometry.v_width = 9;
    assert_refused(PKV_INVALID_ARGUMENT, &geometry, "v_width");
}

static void products_that_overflow_refuse(void)
{
    /* Each product in turn is the first that does not fit in 64 bits. The padding's: 3 * 715827883
     * * (2^31 - 1) * 4 = 2^64 - 4. */
    static const int32_t big = INT32_MAX;
    const struct {
        int32_t layers, blocks, heads, block_size, width;
    } factors[] = {
        {1, 1, big, big, big},     /* a block's elements */
        {1, 1, 2, big, big},       /* its bytes */
        {1, big, 1, big, 5},       /* the blocks' */
        {1, 1, 3, 715827883, big}, /* with padding */
        {1, big, 1, big, 1},       /* keys and values */
        {big, big, 1, 4, 1},       /* all layers */
    };
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        struct pkv_page_geometry geometry = geometry_of(
            factors[i].layers, factors[i].heads, factors[i].width, PKV_F32, factors[i].block_size);
        geometry.num_blocks = factors[i].blocks;
        assert_refused(PKV_INVALID_ARGUMENT, &geometry, "overflow");
    }
    struct pkv_page_geometry geometry = geometry_of(1, big, 1, PKV_F32, big);
    geometry.num_blocks = 1;
    geometry.k_width = 1;
    geometry.v_width = big; /* the keys fit, the values do not */
    assert_refused(PKV_INVALID_ARGUMENT, &geometry, "overflow");
    geometry = geometry_of(1, 1, 1, PKV_INT8, big);
    geometry.num_blocks = big;
    CU_ASSERT_EQUAL(sizes_of(&geometry).layer_block_bytes, 2 * (size_t)big);
}

static const struct test_case cases[] = {
    TEST(sizes_have_the_published_values),
    TEST(keys_and_values_have_their_own_widths_and_types),
    TEST(values_that_lie_in_the_keys_take_no_bytes),
    TEST(each_part_starts_on_a_cache_line_and_the_padding_is_counted),
    TEST(strides_are_packed_at_every_block_size),
    TEST(offsets_pass_two_to_the_31),
    TEST(every_count_below_its_range_refuses_by_name),
    TEST(a_geometry_that_cannot_be_refuses),
    TEST(products_that_overflow_refuse),
    TEST_END,
};
const struct test_suite suite_layout = {"layout", cases};
