/* SPDX-License-Identifier: MIT
 *
 * pagedkv/pages.h: where the content of a block lies, how many bytes that is, and moving cells
 * between pages and plain arrays. A store's payload is one run of memory in the order
 *
 *     [layer][K | V][block][kv_head][cell][channel]
 *
 * so that one layer's blocks are dense and a (block, head) tile is one contiguous run. Every size
 * is computed with overflow checks before anything is allocated. */
#ifndef PAGEDKV_PAGES_H
#define PAGEDKV_PAGES_H

#include "pagedkv/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The geometry of one store: num_layers layers that own keys and values, num_blocks blocks (or
 * continuous rows) of block_size cells. Every count in [1, INT32_MAX]. With v_in_k (latent caches)
 * values are the first v_width channels of the stored key and take no bytes. v_width 0 = k_width.
 */
struct pkv_page_geometry {
    size_t size;
    int32_t num_layers;
    int32_t num_blocks;
    int32_t kv_heads;
    int32_t block_size;
    int32_t k_width;
    int32_t v_width;
    bool v_in_k;
    enum pkv_dtype k_dtype;
    enum pkv_dtype v_dtype;
};

/* Bytes, exact. */
struct pkv_page_sizes {
    size_t block_bytes;       /* one block, all layers, K and V */
    size_t layer_block_bytes; /* one block of one layer, K and V */
    size_t token_bytes;       /* one token, all layers: block_bytes / block_size */
    size_t payload_bytes;     /* num_blocks * block_bytes, and what starts each layer's K and V on a
                                 64-byte line */
};

/* Fills *sizes. PKV_INVALID_ARGUMENT for a count out of range or a product that overflows size_t,
 * PKV_UNSUPPORTED for a dtype not built. Any thread. O(1). */
PKV_API PKV_NODISCARD enum pkv_status pkv_page_sizes_of(const struct pkv_page_geometry *geometry,
                                                        struct pkv_page_sizes *sizes);

typedef struct pkv_pages pkv_pages;

/* A store with unmapped-until-touched payload from hooks (NULL = default). PKV_INVALID_ARGUMENT,
 * PKV_UNSUPPORTED, PKV_NO_MEMORY. The content of a fresh block is undefined. */
PKV_API PKV_NODISCARD enum pkv_status pkv_pages_create(const struct pkv_page_geometry *geometry,
                                                       const struct pkv_hooks *hooks,
                                                       pkv_pages **pages);
/* Frees the store and its payload. NULL is accepted. */
PKV_API void pkv_pages_destroy(pkv_pages *pages);

/* The keys and values of one layer, in place: the same pointers at every call, valid until destroy.
 * PKV_INVALID_ARGUMENT for a layer out of range. Any thread. O(1). */
PKV_API PKV_NODISCARD enum pkv_status pkv_pages_view(const pkv_pages *pages, int32_t layer,
                                                     struct pkv_kv_view *view);

/* One copy of the first num_cells cells of block src into block dst. */
struct pkv_page_copy {
    int32_t src;
    int32_t dst;
    int32_t num_cells;
};

/* Copies cells between blocks, in every layer and head. The list is applied as if all sources were
 * read before anything is written; a dst that stands twice, or one that is also a src, refuses
 * (PKV_INVALID_ARGUMENT), as does an id or count out of range. O(copies^2 + bytes). The caller
 * keeps other threads away from the blocks named. */
PKV_API PKV_NODISCARD enum pkv_status
pkv_pages_copy(pkv_pages *pages, const struct pkv_page_copy *copies, int32_t num_copies);

/* Cells [first, first + count) of one row, named by its block table of absolute positions
 * (max_blocks entries), to and from plain arrays k [count][kv_heads][k_width] and v
 * [count][kv_heads][v_width] of the store's dtypes. v NULL skips values, and must be NULL with
 * v_in_k. A needed entry that is -1, repeated or out of range refuses with nothing written
 * (PKV_INVALID_ARGUMENT). */
PKV_API PKV_NODISCARD enum pkv_status pkv_pages_gather(const pkv_pages *pages, int32_t layer,
                                                       const int32_t *block_table,
                                                       int32_t max_blocks, int32_t first,
                                                       int32_t count, void *k, void *v);
PKV_API PKV_NODISCARD enum pkv_status
pkv_pages_scatter(pkv_pages *pages, int32_t layer, const int32_t *block_table, int32_t max_blocks,
                  int32_t first, int32_t count, const void *k, const void *v);

#ifdef __cplusplus
}
#endif

#endif
