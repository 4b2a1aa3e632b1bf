/* SPDX-License-Identifier: MIT
 *
 * Page stores of any shape: sizes by arithmetic of the test's own in 128 bits' worth of care, and
 * calls whose arguments lie in and out of range. What scatter writes, gather reads. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

static struct pkv_page_geometry geometry_of(struct fuzz *fuzz, bool is_small)
{
    const int32_t most = is_small ? 3 : 40;
    struct pkv_page_geometry g = {.size = sizeof g, .v_in_k = fuzz_once_in(fuzz, 4)};
    int32_t *const counts[] = {&g.num_layers, &g.num_blocks, &g.kv_heads,
                               &g.block_size, &g.k_width,    &g.v_width};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        *counts[i] = is_small ? fuzz_in(fuzz, 1, most) : fuzz_int32(fuzz, most);
    }
    g.k_dtype = (enum pkv_dtype)fuzz_in(fuzz, 0, is_small ? 4 : 6);
    g.v_dtype = (enum pkv_dtype)fuzz_in(fuzz, 0, is_small ? 4 : 6);
    if (g.v_in_k && is_small) {
        g.v_width = fuzz_in(fuzz, 0, g.k_width);
    }
    return g;
}

/* Bytes of all blocks in floating point: near enough to say what cannot be. */
static double about(const struct pkv_page_geometry *g)
{
    const double v_width = g->v_in_k ? 0 : g->v_width != 0 ? g->v_width : g->k_width;
    return (double)g->num_layers * g->num_blocks * g->kv_heads * g->block_size *
           ((double)g->k_width * (double)pkv_dtype_bytes(g->k_dtype) +
            v_width * (double)pkv_dtype_bytes(g->v_dtype));
}

static void any_shape(struct fuzz *fuzz)
{
    const struct pkv_page_geometry g = geometry_of(fuzz, false);
    const unsigned allowed = ALLOWED_INVALID | FUZZ_MAY(PKV_UNSUPPORTED);
    struct pkv_page_sizes sizes = {.size = sizeof sizes};
    struct pkv_page_sizes untouched = {.size = sizeof untouched};
    pkv_pages *pages = NULL;
    const bool fits = FUZZ_CALL(fuzz, allowed, pkv_page_sizes_of(&g, &sizes));
    if (fits) {
        const double bytes = about(&g);
        FUZZ_EXPECT((double)sizes.payload_bytes >= bytes * 0.999 && bytes < 0x1p64);
        FUZZ_EXPECT(sizes.block_bytes == sizes.layer_block_bytes * (size_t)g.num_layers);
        FUZZ_EXPECT(sizes.token_bytes == sizes.block_bytes / (size_t)g.block_size);
    } else {
        FUZZ_EXPECT(memcmp(&sizes, &untouched, sizeof sizes) == 0);
    }
    const bool is_made = FUZZ_CALL(fuzz, allowed | FUZZ_MAY(PKV_NO_MEMORY),
                                   pkv_pages_create(&g, &fuzz->hooks, &pages));
    FUZZ_EXPECT(!is_made || fits);
    FUZZ_EXPECT((pages != NULL) == is_made);
    pkv_pages_destroy(pages);
}

enum { MAX_TABLE = 4, MAX_BYTES = 3 * 3 * 3 * 4 * MAX_TABLE };

static void move_cells(struct fuzz *fuzz, pkv_pages *pages, const struct pkv_page_geometry *g)
{
    unsigned char k[MAX_BYTES], v[MAX_BYTES], k_back[MAX_BYTES] = {0}, v_back[MAX_BYTES] = {0};
    int32_t table[MAX_TABLE];
    const int32_t layer = fuzz_once_in(fuzz, 9) ? fuzz_int32(fuzz, 3) : 0;
    const int32_t num_entries = fuzz_in(fuzz, 0, MAX_TABLE);
    const int32_t first = fuzz_int32(fuzz, 6);
    const int32_t most = g->block_size * MAX_TABLE;
    const int32_t count = fuzz_once_in(fuzz, 6) ? fuzz_int32(fuzz, 4) : fuzz_in(fuzz, 0, 4);
    for (int32_t i = 0; i < MAX_TABLE; i++) {
        table[i] = fuzz_once_in(fuzz, 6) ? fuzz_int32(fuzz, 3) : i % g->num_blocks;
    }
    for (size_t i = 0; i < MAX_BYTES; i++) {
        k[i] = (unsigned char)random_u64(&fuzz->random);
        v[i] = (unsigned char)(k[i] ^ 0x55);
    }
    const enum pkv_status put =
        pkv_pages_scatter(pages, layer, table, num_entries, first, count, k, g->v_in_k ? NULL : v);
    const enum pkv_status got = pkv_pages_gather(pages, layer, table, num_entries, first, count,
                                                 k_back, g->v_in_k ? NULL : v_back);
    FUZZ_EXPECT(put == got);
    if (FUZZ_CALL(fuzz, ALLOWED_INVALID, put) && FUZZ_EXPECT(count >= 0 && count <= most)) {
        const size_t cells = (size_t)count * (size_t)g->kv_heads;
        const size_t k_bytes = cells * (size_t)g->k_width * pkv_dtype_bytes(g->k_dtype);
        const size_t v_bytes = cells * (size_t)g->v_width * pkv_dtype_bytes(g->v_dtype);
        FUZZ_EXPECT(memcmp(k, k_back, k_bytes) == 0);
        FUZZ_EXPECT(g->v_in_k || memcmp(v, v_back, v_bytes) == 0);
    }
}

static void copy_blocks(struct fuzz *fuzz, pkv_pages *pages)
{
    struct pkv_page_copy copies[3];
    const int32_t count = fuzz_in(fuzz, 0, 3);
    for (int32_t i = 0; i < count; i++) {
        copies[i] =
            (struct pkv_page_copy){fuzz_int32(fuzz, 3), fuzz_int32(fuzz, 3), fuzz_int32(fuzz, 3)};
    }
    (void)FUZZ_CALL(fuzz, ALLOWED_INVALID, pkv_pages_copy(pages, copies, count));
}

void fuzz_pages(struct fuzz *fuzz)
{
    const struct pkv_page_geometry g = geometry_of(fuzz, true);
    pkv_pages *pages = NULL;
    any_shape(fuzz);
    if (!FUZZ_CALL(fuzz, 0, pkv_pages_create(&g, &fuzz->hooks, &pages))) {
        return;
    }
    for (int i = 0; i < 20; i++) {
        move_cells(fuzz, pages, &g);
        copy_blocks(fuzz, pages);
    }
    pkv_pages_destroy(pages);
}
