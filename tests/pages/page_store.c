/* SPDX-License-Identifier: MIT
 *
 * The page store: views, cells in and out, copies between blocks. Cells hold a pattern that names
 * layer, part, head, position and channel, so one that lands anywhere else is seen. */
#include "pages/page_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pages/layout.h"
#include "support/test.h"

#define LAYERS 2
#define BLOCKS 5
#define HEADS 3
#define CELLS 4
#define K_WIDTH 6
#define V_WIDTH 5
#define POSITIONS 16

static struct pkv_page_geometry small_geometry(void)
{
    const struct pkv_page_geometry geometry = {
        .size = sizeof geometry,
        .num_layers = LAYERS,
        .num_blocks = BLOCKS,
        .kv_heads = HEADS,
        .block_size = CELLS,
        .k_width = K_WIDTH,
        .v_width = V_WIDTH,
        .k_dtype = PKV_F32,
        .v_dtype = PKV_F16,
    };
    return geometry;
}

static pkv_pages *store_of(const struct pkv_page_geometry *geometry)
{
    pkv_pages *pages = NULL;
    ASSERT_STATUS(PKV_OK, pkv_pages_create(geometry, NULL, &pages));
    CU_ASSERT_FATAL(pages != NULL);
    return pages;
}

static struct pkv_kv_view view_of(const pkv_pages *pages, int32_t layer)
{
    struct pkv_kv_view view = {0};
    ASSERT_STATUS(PKV_OK, pkv_pages_view(pages, layer, &view));
    return view;
}

/* The whole payload is the layers' run of memory, which begins with the keys of layer 0. */
static unsigned char *payload_of(const pkv_pages *pages)
{
    return view_of(pages, 0).k;
}

static size_t payload_bytes(const struct pkv_page_geometry *geometry)
{
    struct pkv_page_sizes sizes = {.size = sizeof sizes};
    ASSERT_STATUS(PKV_OK, pkv_page_sizes_of(geometry, &sizes));
    return sizes.payload_bytes;
}

static unsigned char *snapshot(const pkv_pages *pages, const struct pkv_page_geometry *geometry)
{
    const size_t bytes = payload_bytes(geometry);
    unsigned char *copy = malloc(bytes);
    CU_ASSERT_FATAL(copy != NULL);
    memcpy(copy, payload_of(pages), bytes);
    return copy;
}

static void assert_unchanged(const pkv_pages *pages, const struct pkv_page_geometry *geometry,
                             const unsigned char *before)
{
    CU_ASSERT(memcmp(payload_of(pages), before, payload_bytes(geometry)) == 0);
}

/* Plain arrays of POSITIONS cells of one layer. */
struct plain {
    float k[POSITIONS][HEADS][K_WIDTH];
    uint16_t v[POSITIONS][HEADS][V_WIDTH];
};

static void fill_plain(struct plain *plain, int32_t layer)
{
    for (int32_t p = 0; p < POSITIONS; p++) {
        for (int32_t h = 0; h < HEADS; h++) {
            for (int32_t c = 0; c < K_WIDTH; c++) {
                plain->k[p][h][c] = (float)(layer * 10000 + p * 100 + h * 10 + c);
            }
            for (int32_t c = 0; c < V_WIDTH; c++) {
                plain->v[p][h][c] = (uint16_t)(30000 + layer * 10000 + p * 100 + h * 10 + c);
            }
        }
    }
}

static void create_refuses_what_is_no_store(void)
{
    pkv_pages *const untouched = (pkv_pages *)&(int){0};
    pkv_pages *pages = untouched;
    struct test_memory memory = {0};
    struct pkv_hooks half = test_hooks(&memory);
    half.unmap_pages = NULL;
    struct pkv_page_geometry geometry = small_geometry();
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_create(&geometry, NULL, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_create(NULL, NULL, &pages));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_create(&geometry, &half, &pages));
    geometry.num_blocks = 0;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_create(&geometry, NULL, &pages));
    geometry = small_geometry();
    geometry.k_dtype = (enum pkv_dtype)99;
    ASSERT_STATUS(PKV_UNSUPPORTED, pkv_pages_create(&geometry, NULL, &pages));
    CU_ASSERT(pages == untouched && memory.calls == 0);
}

static void create_fails_cleanly_at_every_allocation(void)
{
    struct test_memory memory = {0};
    const struct pkv_hooks hooks = test_hooks(&memory);
    const struct pkv_page_geometry geometry = small_geometry();
    pkv_pages *pages = NULL;
    long failures = 0;
    for (memory.fail_at = 1; pkv_pages_create(&geometry, &hooks, &pages) != PKV_OK;) {
        CU_ASSERT(pages == NULL && memory.live == 0 && memory.live_bytes == 0);
        memory.fail_at = ++failures + 1;
    }
    CU_ASSERT_EQUAL(failures, 2);
    pkv_pages_destroy(pages);
    CU_ASSERT(memory.live == 0 && memory.live_bytes == 0);
    pkv_pages_destroy(NULL);
}

static void a_payload_that_no_machine_has_is_no_memory(void)
{
    struct pkv_page_geometry geometry = small_geometry();
    geometry.num_blocks = INT32_MAX;
    geometry.block_size = INT32_MAX / 64;
    geometry.kv_heads = 1;
    geometry.k_width = 4;
    pkv_pages *pages = NULL;
    ASSERT_STATUS(PKV_NO_MEMORY, pkv_pages_create(&geometry, NULL, &pages));
    CU_ASSERT_PTR_NULL(pages);
}

static void a_view_describes_the_layer_in_place(void)
{
    const struct pkv_page_geometry geometry = small_geometry();
    pkv_pages *pages = store_of(&geometry);
    const struct pkv_kv_view view = view_of(pages, 1);
    CU_ASSERT(view.k_dtype == PKV_F32 && view.v_dtype == PKV_F16);
    CU_ASSERT(view.num_blocks == BLOCKS && view.kv_heads == HEADS && view.block_size == CELLS);
    CU_ASSERT(view.k_width == K_WIDTH && view.v_width == V_WIDTH);
    CU_ASSERT(view.k_cell_stride == K_WIDTH && view.v_cell_stride == V_WIDTH);
    CU_ASSERT(view.k_head_stride == CELLS * K_WIDTH && view.v_head_stride == CELLS * V_WIDTH);
    CU_ASSERT_EQUAL(view.k_block_stride, HEADS * CELLS * K_WIDTH);
    CU_ASSERT_EQUAL(view.v_block_stride, HEADS * CELLS * V_WIDTH);
    CU_ASSERT((uintptr_t)view.k % 64 == 0 && (uintptr_t)view.v % 64 == 0);
    CU_ASSERT((unsigned char *)view.v > (unsigned char *)view.k);
    const struct pkv_kv_view again = view_of(pages, 1);
    CU_ASSERT(again.k == view.k && again.v == view.v);
    pkv_pages_destroy(pages);
}

static void a_view_of_latent_keys_has_no_values(void)
{
    struct pkv_page_geometry geometry = small_geometry();
    geometry.v_in_k = true;
    pkv_pages *pages = store_of(&geometry);
    const struct pkv_kv_view view = view_of(pages, 1);
    CU_ASSERT(view.v == NULL && view.v_width == V_WIDTH && view.v_dtype == view.k_dtype);
    CU_ASSERT(view.v_block_stride == 0 && view.v_head_stride == 0 && view.v_cell_stride == 0);
    pkv_pages_destroy(pages);
}

static void a_view_of_no_layer_refuses(void)
{
    const struct pkv_page_geometry geometry = small_geometry();
    pkv_pages *pages = store_of(&geometry);
    struct pkv_kv_view view, before;
    memset(&view, 0x5a, sizeof view);
    memcpy(&before, &view, sizeof view);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_view(pages, -1, &view));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "layer = 2, outside [0, 2)",
                   pkv_pages_view(pages, LAYERS, &view));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_view(NULL, 0, &view));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_view(pages, 0, NULL));
    CU_ASSERT(memcmp(&view, &before, sizeof view) == 0);
    pkv_pages_destroy(pages);
}

static void scattered_cells_lie_where_the_view_says(void)
{
    static const int32_t table[4] = {3, 0, -1, 4};
    const struct pkv_page_geometry geometry = small_geometry();
    pkv_pages *pages = store_of(&geometry);
    struct plain plain;
    for (int32_t layer = 0; layer < LAYERS; layer++) {
        fill_plain(&plain, layer);
        ASSERT_STATUS(PKV_OK,
                      pkv_pages_scatter(pages, layer, table, 4, 2, 5, plain.k[2], plain.v[2]));
    }
    for (int32_t layer = 0; layer < LAYERS; layer++) {
        const struct pkv_kv_view view = view_of(pages, layer);
        fill_plain(&plain, layer);
        for (int32_t p = 2; p < 7; p++) {
            for (int32_t h = 0; h < HEADS; h++) {
                const size_t block = (size_t)table[p / CELLS];
                const float *k = (const float *)view.k + block * view.k_block_stride +
                                 (size_t)h * view.k_head_stride +
                                 (size_t)(p % CELLS) * view.k_cell_stride;
                const uint16_t *v = (const uint16_t *)view.v + block * view.v_block_stride +
                                    (size_t)h * view.v_head_stride +
                                    (size_t)(p % CELLS) * view.v_cell_stride;
                CU_ASSERT(memcmp(k, plain.k[p][h], sizeof plain.k[p][h]) == 0);
                CU_ASSERT(memcmp(v, plain.v[p][h], sizeof plain.v[p][h]) == 0);
            }
        }
    }
    pkv_pages_destroy(pages);
}

/* C6: a range is one of positions and half open, in blocks of any order. */
static void every_range_that_was_scattered_is_gathered_again(void)
{
    static const int32_t table[4] = {2, 4, 0, 1};
    const struct pkv_page_geometry geometry = small_geometry();
    pkv_pages *pages = store_of(&geometry);
    struct plain plain, back;
    fill_plain(&plain, 1);
    ASSERT_STATUS(PKV_OK,
                  pkv_pages_scatter(pages, 1, table, 4, 0, POSITIONS, plain.k[0], plain.v[0]));
    for (int32_t first = 0; first <= POSITIONS; first++) {
        for (int32_t count = 0; first + count <= POSITIONS; count++) {
            memset(&back, 0xee, sizeof back);
            ASSERT_STATUS(PKV_OK,
                          pkv_pages_gather(pages, 1, table, 4, first, count, back.k, back.v));
            CU_ASSERT(memcmp(back.k, (const char *)plain.k + (size_t)first * sizeof plain.k[0],
                             (size_t)count * sizeof plain.k[0]) == 0);
            CU_ASSERT(memcmp(back.v, (const char *)plain.v + (size_t)first * sizeof plain.v[0],
                             (size_t)count * sizeof plain.v[0]) == 0);
            const unsigned char *k_end = (const unsigned char *)back.k;
            CU_ASSERT(count == POSITIONS || k_end[(size_t)count * sizeof plain.k[0]] == 0xee);
        }
    }
    pkv_pages_destroy(pages);
}

static void scatter_touches_nothing_but_its_cells(void)
{
    static const int32_t table[4] = {3, 0, -1, 4};
    const struct pkv_page_geometry geometry = small_geometry();
    pkv_pages *pages = store_of(&geometry);
    memset(payload_of(pages), 0xee, payload_bytes(&geometry));
    unsigned char *before = snapshot(pages, &geometry);
    struct plain plain, old;
    memset(&old, 0xee, sizeof old);
    fill_plain(&plain, 0);
    ASSERT_STATUS(PKV_OK, pkv_pages_scatter(pages, 0, table, 4, 3, 3, plain.k[3], plain.v[3]));
    CU_ASSERT(memcmp(payload_of(pages), before, payload_bytes(&geometry)) != 0);
    ASSERT_STATUS(PKV_OK, pkv_pages_scatter(pages, 0, table, 4, 3, 3, old.k[3], old.v[3]));
    assert_unchanged(pages, &geometry, before);
    free(before);
    pkv_pages_destroy(pages);
}

static void values_may_be_skipped_and_in_latent_stores_must_be(void)
{
    static const int32_t table[1] = {1};
    struct pkv_page_geometry geometry = small_geometry();
    struct plain plain, back;
    fill_plain(&plain, 0);
    pkv_pages *pages = store_of(&geometry);
    ASSERT_STATUS(PKV_OK, pkv_pages_scatter(pages, 0, table, 1, 0, 4, plain.k, plain.v));
    memset(&plain.k, 0, sizeof plain.k);
    ASSERT_STATUS(PKV_OK, pkv_pages_scatter(pages, 0, table, 1, 0, 4, plain.k, NULL));
    ASSERT_STATUS(PKV_OK, pkv_pages_gather(pages, 0, table, 1, 0, 4, back.k, back.v));
    CU_ASSERT(memcmp(back.k, plain.k, 4 * sizeof plain.k[0]) == 0);
    CU_ASSERT(memcmp(back.v, plain.v, 4 * sizeof plain.v[0]) == 0);
    ASSERT_STATUS(PKV_OK, pkv_pages_gather(pages, 0, table, 1, 0, 4, back.k, NULL));
    pkv_pages_destroy(pages);
    geometry.v_in_k = true;
    pages = store_of(&geometry);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  pkv_pages_scatter(pages, 0, table, 1, 0, 4, plain.k, plain.v));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_gather(pages, 0, table, 1, 0, 4, back.k, back.v));
    ASSERT_STATUS(PKV_OK, pkv_pages_scatter(pages, 0, table, 1, 0, 4, plain.k, NULL));
    ASSERT_STATUS(PKV_OK, pkv_pages_gather(pages, 0, table, 1, 0, 4, back.k, NULL));
    CU_ASSERT(memcmp(back.k, plain.k, 4 * sizeof plain.k[0]) == 0);
    pkv_pages_destroy(pages);
}

/* A row that scatter and gather must refuse. */
struct bad_move {
    int32_t layer;
    int32_t table[4];
    int32_t max_blocks, first, count;
    const char *named; /* in the last error */
};

/* B1, B2, B3: positions, ids and lengths that lead outside are refused before anything is
 * written. */
static void a_move_that_leads_astray_refuses_and_writes_nothing(void)
{
    static const struct bad_move bad[] = {
        {0, {0, -1, 2, 3}, 4, 2, 4, "block_table[1] = -1"},
        {0, {0, 5, 2, 3}, 4, 2, 4, "block_table[1] = 5, outside [0, 5)"},
        {0, {0, INT32_MAX, 2, 3}, 4, 2, 4, "block_table[1]"},
        {0, {0, INT32_MIN, 2, 3}, 4, 2, 4, "block_table[1]"},
        {0, {0, 1, 0, 3}, 4, 2, 4, "block_table[0] = 0, also at [2]"},
        {0, {2, 1, 2, 3}, 4, 8, 1, "block_table[2] = 2, also at [0]"},
        {0, {0, 1, 2, 3}, 4, 15, 2, "past 4 blocks"},
        {0, {0, 1, 2, 3}, 4, INT32_MAX, INT32_MAX, "past 4 blocks"},
        {0, {0, 1, 2, 3}, 4, 17, 0, "past 4 blocks"},
        {0, {0, 1, 2, 3}, 4, -1, 2, "first"},
        {0, {0, 1, 2, 3}, 4, 0, -1, "count"},
        {0, {0, 1, 2, 3}, -1, 0, 0, "max_blocks"},
        {-1, {0, 1, 2, 3}, 4, 0, 1, "layer"},
        {LAYERS, {0, 1, 2, 3}, 4, 0, 1, "layer"},
    };
    const struct pkv_page_geometry geometry = small_geometry();
    pkv_pages *pages = store_of(&geometry);
    struct plain plain, untouched;
    memset(&plain, 0xee, sizeof plain);
    untouched = plain;
    unsigned char *before = snapshot(pages, &geometry);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const struct bad_move *m = &bad[i];
        ASSERT_REFUSED(PKV_INVALID_ARGUMENT, m->named,
                       pkv_pages_scatter(pages, m->layer, m->table, m->max_blocks, m->first,
                                         m->count, plain.k, plain.v));
        ASSERT_REFUSED(PKV_INVALID_ARGUMENT, m->named,
                       pkv_pages_gather(pages, m->layer, m->table, m->max_blocks, m->first,
                                        m->count, plain.k, plain.v));
    }
    assert_unchanged(pages, &geometry, before);
    CU_ASSERT(memcmp(&plain, &untouched, sizeof plain) == 0);
    free(before);
    pkv_pages_destroy(pages);
}

static void moves_refuse_null_and_accept_nothing(void)
{
    static const int32_t table[1] = {0};
    const struct pkv_page_geometry geometry = small_geometry();
    pkv_pages *pages = store_of(&geometry);
    struct plain plain = {0};
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_gather(NULL, 0, table, 1, 0, 1, plain.k, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_gather(pages, 0, NULL, 1, 0, 1, plain.k, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_gather(pages, 0, table, 1, 0, 1, NULL, plain.v));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_scatter(NULL, 0, table, 1, 0, 1, plain.k, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_scatter(pages, 0, NULL, 1, 0, 1, plain.k, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_scatter(pages, 0, table, 1, 0, 1, NULL, plain.v));
    ASSERT_STATUS(PKV_OK, pkv_pages_gather(pages, 0, NULL, 0, 0, 0, NULL, NULL));
    ASSERT_STATUS(PKV_OK, pkv_pages_scatter(pages, 0, NULL, 0, 0, 0, NULL, NULL));
    pkv_pages_destroy(pages);
}

/* Every cell of block b holds the byte 10 * (b + 1), as A9 has it. */
static pkv_pages *numbered_store(const struct pkv_page_geometry *geometry)
{
    pkv_pages *pages = store_of(geometry);
    for (int32_t block = 0; block < geometry->num_blocks; block++) {
        page_store_fill(pages, block, (unsigned char)(10 * (block + 1)));
    }
    return pages;
}

/* The byte that all of cells [first, end) of a block hold in all layers, heads and parts, or -1. */
static int byte_of(const pkv_pages *pages, int32_t block, int32_t first, int32_t end)
{
    int32_t table[1] = {block};
    struct plain plain;
    int byte = -2;
    for (int32_t layer = 0; layer < LAYERS; layer++) {
        ASSERT_STATUS(
            PKV_OK, pkv_pages_gather(pages, layer, table, 1, first, end - first, plain.k, plain.v));
        const unsigned char *k = (const unsigned char *)plain.k;
        const unsigned char *v = (const unsigned char *)plain.v;
        byte = byte == -2 ? k[0] : byte;
        for (size_t i = 0; i < (size_t)(end - first) * sizeof plain.k[0]; i++) {
            byte = k[i] == byte ? byte : -1;
        }
        for (size_t i = 0; i < (size_t)(end - first) * sizeof plain.v[0]; i++) {
            byte = v[i] == byte ? byte : -1;
        }
    }
    return byte;
}

static void fill_writes_one_block_and_no_other(void)
{
    const struct pkv_page_geometry geometry = small_geometry();
    pkv_pages *pages = numbered_store(&geometry);
    page_store_fill(pages, 2, PAGE_STORE_POISON);
    for (int32_t block = 0; block < BLOCKS; block++) {
        const int expected = block == 2 ? PAGE_STORE_POISON : 10 * (block + 1);
        CU_ASSERT_EQUAL(byte_of(pages, block, 0, CELLS), expected);
    }
    const float k = *(const float *)view_of(pages, 0).k;
    CU_ASSERT_EQUAL(k, k);
    const float poisoned = ((const float *)view_of(pages, 0).k)[2 * HEADS * CELLS * K_WIDTH];
    CU_ASSERT_NOT_EQUAL(poisoned, poisoned);
    pkv_pages_destroy(pages);
}

static void fill_of_a_latent_store_stays_inside_it(void)
{
    struct pkv_page_geometry geometry = small_geometry();
    geometry.v_in_k = true;
    pkv_pages *pages = numbered_store(&geometry);
    page_store_fill(pages, BLOCKS - 1, 0);
    const unsigned char *last = (const unsigned char *)view_of(pages, LAYERS - 1).k;
    const size_t block_bytes = HEADS * CELLS * K_WIDTH * sizeof(float);
    CU_ASSERT_EQUAL(last[BLOCKS * block_bytes - 1], 0);
    CU_ASSERT_EQUAL(last[(BLOCKS - 1) * block_bytes - 1], 40);
    ASSERT_STATUS(PKV_OK, pkv_pages_copy(pages, &(const struct pkv_page_copy){0, 4, CELLS}, 1));
    CU_ASSERT_EQUAL(last[BLOCKS * block_bytes - 1], 10);
    pkv_pages_destroy(pages);
}

static void copies_move_the_first_cells_of_every_layer_and_head(void)
{
    const struct pkv_page_geometry geometry = small_geometry();
    pkv_pages *pages = numbered_store(&geometry);
    static const struct pkv_page_copy copies[] = {{0, 3, 2}, {0, 4, CELLS}, {1, 2, 0}};
    ASSERT_STATUS(PKV_OK, pkv_pages_copy(pages, copies, 3));
    CU_ASSERT_EQUAL(byte_of(pages, 0, 0, CELLS), 10);
    CU_ASSERT_EQUAL(byte_of(pages, 1, 0, CELLS), 20);
    CU_ASSERT_EQUAL(byte_of(pages, 2, 0, CELLS), 30);
    CU_ASSERT_EQUAL(byte_of(pages, 3, 0, 2), 10);
    CU_ASSERT_EQUAL(byte_of(pages, 3, 2, CELLS), 40);
    CU_ASSERT_EQUAL(byte_of(pages, 4, 0, CELLS), 10);
    ASSERT_STATUS(PKV_OK, pkv_pages_copy(pages, NULL, 0));
    pkv_pages_destroy(pages);
}

/* A9: a list of copies whose result depends on their order is refused. */
static void copies_whose_order_would_matter_refuse(void)
{
    static const struct pkv_page_copy bad[][2] = {
        {{0, 1, CELLS}, {1, 2, CELLS}}, {{1, 2, CELLS}, {0, 1, CELLS}},
        {{0, 2, CELLS}, {1, 2, CELLS}}, {{0, 1, CELLS}, {2, 2, 1}},
        {{0, 1, CELLS}, {0, 1, CELLS}},
    };
    const struct pkv_page_geometry geometry = small_geometry();
    pkv_pages *pages = numbered_store(&geometry);
    unsigned char *before = snapshot(pages, &geometry);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_copy(pages, bad[i], 2));
        assert_unchanged(pages, &geometry, before);
    }
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "copies[0].dst = 1, also copies[1].src",
                   pkv_pages_copy(pages, bad[0], 2));
    free(before);
    pkv_pages_destroy(pages);
}

static void a_copy_outside_the_store_refuses_the_list(void)
{
    static const struct pkv_page_copy bad[] = {
        {-1, 1, 1}, {BLOCKS, 1, 1}, {2, -1, 1}, {2, BLOCKS, 1}, {2, 1, -1}, {2, 1, CELLS + 1},
    };
    const struct pkv_page_geometry geometry = small_geometry();
    pkv_pages *pages = numbered_store(&geometry);
    unsigned char *before = snapshot(pages, &geometry);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const struct pkv_page_copy copies[2] = {{0, 3, CELLS}, bad[i]};
        ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "copies[1]", pkv_pages_copy(pages, copies, 2));
        ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_copy(pages, &copies[1], 1));
        assert_unchanged(pages, &geometry, before);
    }
    const struct pkv_page_copy first_bad[2] = {bad[0], {0, 3, CELLS}};
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_copy(pages, first_bad, 2));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_copy(NULL, bad, 1));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_copy(pages, NULL, 1));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_pages_copy(pages, bad, -1));
    assert_unchanged(pages, &geometry, before);
    free(before);
    pkv_pages_destroy(pages);
}

/* B5: offsets have 64 bits, so the last block of a large store does not fall on another one. */
static void the_last_block_of_a_store_past_two_to_the_31_is_its_own(void)
{
    enum { BIG_BLOCKS = 2100, BIG_CELLS = 16, BIG_HEADS = 57, BIG_WIDTH = 1140 };
    const struct pkv_page_geometry geometry = {
        .size = sizeof geometry,
        .num_layers = 1,
        .num_blocks = BIG_BLOCKS, /* of 1,039,680 elements each */
        .kv_heads = BIG_HEADS,
        .block_size = BIG_CELLS,
        .k_width = BIG_WIDTH,
        .v_in_k = true,
        .k_dtype = PKV_INT8,
    };
    static const int32_t last[1] = {BIG_BLOCKS - 1};
    static const int32_t first[1] = {0};
    static unsigned char cell[BIG_HEADS][BIG_WIDTH], back[BIG_HEADS][BIG_WIDTH];
    pkv_pages *pages = NULL;
    if (pkv_pages_create(&geometry, NULL, &pages) == PKV_NO_MEMORY) {
        printf("skipped: no address space for %zu bytes\n", payload_bytes(&geometry));
        return;
    }
    memset(cell, 0x11, sizeof cell);
    ASSERT_STATUS(PKV_OK, pkv_pages_scatter(pages, 0, first, 1, 15, 1, cell, NULL));
    memset(cell, 0x77, sizeof cell);
    ASSERT_STATUS(PKV_OK, pkv_pages_scatter(pages, 0, last, 1, 15, 1, cell, NULL));
    const unsigned char *payload = payload_of(pages);
    const size_t end = (size_t)BIG_BLOCKS * 1039680;
    CU_ASSERT(end > (size_t)1 << 31 && payload[end - 1] == 0x77);
    ASSERT_STATUS(PKV_OK, pkv_pages_gather(pages, 0, last, 1, 15, 1, back, NULL));
    CU_ASSERT(memcmp(back, cell, sizeof cell) == 0);
    memset(cell, 0x11, sizeof cell);
    ASSERT_STATUS(PKV_OK, pkv_pages_gather(pages, 0, first, 1, 15, 1, back, NULL));
    CU_ASSERT(memcmp(back, cell, sizeof cell) == 0);
    pkv_pages_destroy(pages);
}

/* B7: what is stored is read again at every block size and dtype. */
static void every_block_size_and_type_reads_what_was_stored(void)
{
    static const int32_t block_sizes[] = {1, 2, 3, 4, 7, 16, 64};
    static const enum pkv_dtype dtypes[] = {PKV_F32, PKV_F16, PKV_BF16, PKV_INT8, PKV_E4M3};
    static unsigned char in[70 * 2 * 9 * 4], out[70 * 2 * 9 * 4];
    int32_t table[70];
    for (size_t i = 0; i < sizeof in; i++) {
        in[i] = (unsigned char)(i * 131 + i / 251);
    }
    for (int32_t i = 0; i < 70; i++) {
        table[i] = 69 - i;
    }
    for (size_t i = 0; i < 7 * 5; i++) {
        const enum pkv_dtype dtype = dtypes[i % 5];
        const struct pkv_page_geometry geometry = {
            sizeof geometry, 1, 70, 2, block_sizes[i / 5], 9, 0, false, dtype, dtype};
        const size_t bytes = 70 * 2 * 9 * pkv_dtype_bytes(dtype);
        pkv_pages *pages = store_of(&geometry);
        ASSERT_STATUS(PKV_OK, pkv_pages_scatter(pages, 0, table, 70, 0, 70, in, in));
        ASSERT_STATUS(PKV_OK, pkv_pages_gather(pages, 0, table, 70, 0, 70, out, NULL));
        CU_ASSERT(memcmp(in, out, bytes) == 0);
        memset(out, 0, sizeof out);
        ASSERT_STATUS(PKV_OK, pkv_pages_gather(pages, 0, table, 70, 0, 70, out, out));
        CU_ASSERT(memcmp(in, out, bytes) == 0);
        pkv_pages_destroy(pages);
    }
}

/* Places of a stream: each is as far from the next as two are long. */
struct places {
    unsigned char bytes[4096];
    size_t piece_bytes;
    size_t num_used;
};

static unsigned char *next_place(void *context)
{
    struct places *places = context;
    return places->bytes + 2 * places->piece_bytes * places->num_used++;
}

static struct page_stream stream_of(struct places *places, size_t piece_bytes)
{
    *places = (struct places){.piece_bytes = piece_bytes};
    memset(places->bytes, 0x5a, sizeof places->bytes);
    return (struct page_stream){.next = next_place, .context = places, .piece_bytes = piece_bytes};
}

/* Block 1 goes to places of so many bytes, and from there to block 3: first cells alone. */
static void check_stream(const struct pkv_page_geometry *geometry, int32_t num_cells,
                         size_t piece_bytes)
{
    struct places places;
    const int32_t table[2] = {1, 3};
    unsigned char cells[POSITIONS * HEADS * K_WIDTH * sizeof(float)];
    unsigned char again[sizeof cells];
    pkv_pages *pages = store_of(geometry);
    struct page_stream out = stream_of(&places, piece_bytes);
    for (size_t i = 0; i < sizeof cells; i++) {
        cells[i] = (unsigned char)(i * 7 + 1);
    }
    memset(payload_of(pages), 0xee, payload_bytes(geometry));
    for (int32_t layer = 0; layer < LAYERS; layer++) {
        ASSERT_STATUS(PKV_OK, pkv_pages_scatter(pages, layer, table, 2, 0, num_cells, cells,
                                                geometry->v_in_k ? NULL : cells + 9));
    }
    page_store_read(pages, 1, num_cells, &out);
    const size_t bytes = (size_t)num_cells * page_store_token_bytes(pages);
    CU_ASSERT_EQUAL(places.num_used, (bytes + piece_bytes - 1) / piece_bytes);
    for (size_t i = 0; i + piece_bytes < sizeof places.bytes; i += 2 * piece_bytes) {
        CU_ASSERT(places.bytes[i + piece_bytes] == 0x5a); /* beside a place */
    }
    places.num_used = 0;
    struct page_stream in = {.next = next_place, .context = &places, .piece_bytes = piece_bytes};
    page_store_write(pages, 3, num_cells, &in);
    for (int32_t layer = 0; layer < LAYERS; layer++) {
        const size_t k_bytes = (size_t)num_cells * HEADS * (size_t)geometry->k_width *
                               pkv_dtype_bytes(geometry->k_dtype);
        ASSERT_STATUS(PKV_OK,
                      pkv_pages_gather(pages, layer, table + 1, 1, 0, num_cells, again, NULL));
        CU_ASSERT(memcmp(cells, again, k_bytes) == 0);
    }
    ASSERT_STATUS(PKV_OK, pkv_pages_gather(pages, 1, table + 1, 1, 0, CELLS, again, NULL));
    const size_t all = (size_t)(CELLS * HEADS * geometry->k_width);
    const size_t last = all * pkv_dtype_bytes(geometry->k_dtype) - 1;
    CU_ASSERT(num_cells == CELLS || again[last] == 0xee);
    pkv_pages_destroy(pages);
}

static void a_stream_carries_the_first_cells_of_a_block_and_no_other(void)
{
    static const enum pkv_dtype dtypes[] = {PKV_F32, PKV_F16, PKV_BF16, PKV_INT8, PKV_E4M3};
    for (size_t i = 0; i < 2 * sizeof dtypes / sizeof dtypes[0]; i++) {
        struct pkv_page_geometry geometry = small_geometry();
        geometry.k_dtype = dtypes[i / 2];
        geometry.v_in_k = i % 2 != 0;
        for (int32_t num_cells = 1; num_cells <= CELLS; num_cells++) {
            check_stream(&geometry, num_cells, 1);
            check_stream(&geometry, num_cells, 33);
            check_stream(&geometry, num_cells, 2000);
        }
    }
}

static const struct test_case cases[] = {
    TEST(create_refuses_what_is_no_store),
    TEST(create_fails_cleanly_at_every_allocation),
    TEST(a_payload_that_no_machine_has_is_no_memory),
    TEST(a_view_describes_the_layer_in_place),
    TEST(a_view_of_latent_keys_has_no_values),
    TEST(a_view_of_no_layer_refuses),
    TEST(scattered_cells_lie_where_the_view_says),
    TEST(every_range_that_was_scattered_is_gathered_again),
    TEST(scatter_touches_nothing_but_its_cells),
    TEST(values_may_be_skipped_and_in_latent_stores_must_be),
    TEST(a_move_that_leads_astray_refuses_and_writes_nothing),
    TEST(moves_refuse_null_and_accept_nothing),
    TEST(fill_writes_one_block_and_no_other),
    TEST(fill_of_a_latent_store_stays_inside_it),
    TEST(a_stream_carries_the_first_cells_of_a_block_and_no_other),
    TEST(copies_move_the_first_cells_of_every_layer_and_head),
    TEST(copies_whose_order_would_matter_refuse),
    TEST(a_copy_outside_the_store_refuses_the_list),
    TEST(the_last_block_of_a_store_past_two_to_the_31_is_its_own),
    TEST(every_block_size_and_type_reads_what_was_stored),
    TEST_END,
};
const struct test_suite suite_page_store = {"page_store", cases};
