/* SPDX-License-Identifier: MIT
 *
 * pagedkv/pages.h: page stores: the memory behind block ids. A store holds the keys and values of
 * all layers of one geometry, says how many bytes that is before anything is allocated, and moves
 * cells between blocks and plain arrays. Which blocks are in use is a matter of a pool (alloc.h).
 *
 *     pkv_page_sizes_of(&geometry, &sizes)          exact bytes, nothing allocated yet
 *     pkv_pages_create(&geometry, NULL, &pages)
 *     pkv_pages_view(pages, layer, &args.past)      what pkv_gqa (attn.h) reads and appends to
 *     pkv_pages_copy(pages, copies, n)              a block of its own for one that was shared
 *     pkv_pages_gather(pages, layer, ...)           a sequence's cells as plain arrays
 *     pkv_pages_destroy(pages)
 *
 * A page is what one block id stands for: the cells of block_size tokens in every layer. The
 * payload is one run of memory in the order
 *
 *     [layer][K | V][block][kv_head][cell][channel]
 *
 * so that one layer's blocks are adjacent, and the cells of one block and KV head are one
 * contiguous run. docs/layout.md says why. Every product of sizes is checked for overflow.
 *
 * Threads: views may be taken at any time by any thread. Calls that read or write cells may run at
 * once as long as none writes a block that another one uses; the store itself does not lock. */
#ifndef PAGEDKV_PAGES_H
#define PAGEDKV_PAGES_H

#include "pagedkv/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The shape of one page store. Every count is in [1, INT32_MAX]. */
struct pkv_page_geometry {
    size_t size;
    /* Layers with keys and values of their own; layers that read another one's pages do not count.
     */
    int32_t num_layers;
    /* Blocks of a paged store; slots of a continuous one, which is a store with block_size =
     * max_seq_len. */
    int32_t num_blocks;
    int32_t kv_heads;
    /* Tokens that a block holds. */
    int32_t block_size;
    /* Channels of one key and of one value of one head; v_width 0 = k_width. */
    int32_t k_width;
    int32_t v_width;
    /* Latent caches (MLA): a value is the first v_width <= k_width channels of the stored key, and
     * takes no memory; v_dtype is not read. */
    bool v_in_k;
    enum pkv_dtype k_dtype;
    enum pkv_dtype v_dtype;
};

/* Exact sizes of a page store in bytes. */
struct pkv_page_sizes {
    size_t size;
    /* One block, keys and values of all layers. */
    size_t block_bytes;
    /* One block of one layer, keys and values. */
    size_t layer_block_bytes;
    /* One token in all layers: block_bytes / block_size. */
    size_t token_bytes;
    /* All of it: num_blocks * block_bytes, plus the padding that starts each layer's K and V on a
     * cache line of 64 bytes. */
    size_t payload_bytes;
};

/* Computes the sizes of a page store without making it. Per layer,
 *
 *     layer_block_bytes = kv_heads * block_size * (k_width * bytes of k_dtype
 *                                                  + v_width * bytes of v_dtype)
 *
 * where the second term is absent with v_in_k.
 *
 * Returns PKV_OK and fills *sizes; PKV_INVALID_ARGUMENT for a count out of range or a product that
 * overflows size_t; PKV_UNSUPPORTED for an unknown dtype. Any thread; O(1). */
PKV_API PKV_NODISCARD enum pkv_status pkv_page_sizes_of(const struct pkv_page_geometry *geometry,
                                                        struct pkv_page_sizes *sizes);

typedef struct pkv_pages pkv_pages;

/* Makes a page store. Its payload is reserved now and takes physical memory only as blocks are
 * written (with the default hooks). What a block holds before it is written is undefined.
 *
 * hooks may be NULL; the payload comes from map_pages.
 *
 * Returns PKV_OK and the store in *pages, which the caller destroys; the statuses of
 * pkv_page_sizes_of; PKV_NO_MEMORY. O(1). */
PKV_API PKV_NODISCARD enum pkv_status pkv_pages_create(const struct pkv_page_geometry *geometry,
                                                       const struct pkv_hooks *hooks,
                                                       pkv_pages **pages);

/* Frees a page store and its payload; views of it are invalid from then on. NULL is accepted. */
PKV_API void pkv_pages_destroy(pkv_pages *pages);

/* Describes the keys and values of one layer in place, for the attention operator or any other
 * reader. All fields are filled in, strides too.
 *
 * layer is in [0, num_layers).
 *
 * Returns PKV_OK and fills *view, whose pointers are the same at every call and stay valid until
 * the store is destroyed; PKV_INVALID_ARGUMENT. Any thread; O(1). */
PKV_API PKV_NODISCARD enum pkv_status pkv_pages_view(const pkv_pages *pages, int32_t layer,
                                                     struct pkv_kv_view *view);

/* One copy between blocks: the first num_cells cells of src go to the same cells of dst. num_cells
 * is in [0, block_size]. */
struct pkv_page_copy {
    int32_t src;
    int32_t dst;
    int32_t num_cells;
};

/* Copies cells between blocks, in every layer and KV head: the payload's part of copy on write.
 *
 * copies [num_copies]: no dst may be listed twice or also be a src, so their order does not matter.
 *
 * Returns PKV_OK; PKV_INVALID_ARGUMENT for a block or count out of range or such a dst, with
 * nothing copied. The caller keeps other threads away from the blocks named. O(num_copies^2 + bytes
 * copied). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_pages_copy(pkv_pages *pages, const struct pkv_page_copy *copies, int32_t num_copies);

/* Copies cells of one sequence and layer out of its blocks into plain arrays, in the order of their
 * positions.
 *
 * block_table [max_blocks] is indexed by absolute position: cell j lies in block block_table[j /
 * block_size]. The cells are [first, first + count), within max_blocks * block_size. k
 * [count][kv_heads][k_width] and v [count][kv_heads][v_width] have the store's dtypes; v NULL
 * leaves values out, and must be NULL with v_in_k.
 *
 * Returns PKV_OK; PKV_INVALID_ARGUMENT, with nothing written, for a range past the table or a
 * needed entry that is -1, out of range, or in the table twice. The caller keeps writers away from
 * the blocks read. O(bytes copied + entries needed * max_blocks). */
PKV_API PKV_NODISCARD enum pkv_status pkv_pages_gather(const pkv_pages *pages, int32_t layer,
                                                       const int32_t *block_table,
                                                       int32_t max_blocks, int32_t first,
                                                       int32_t count, void *k, void *v);

/* Copies plain arrays into cells of one sequence and layer: the inverse of pkv_pages_gather, with
 * the same arguments. Nothing is converted: int8 and e4m3 arrays hold codes.
 *
 * Returns what pkv_pages_gather returns; no cell is written on a refusal. The caller keeps other
 * threads away from the blocks written. O(bytes copied + entries needed * max_blocks). */
PKV_API PKV_NODISCARD enum pkv_status
pkv_pages_scatter(pkv_pages *pages, int32_t layer, const int32_t *block_table, int32_t max_blocks,
                  int32_t first, int32_t count, const void *k, const void *v);

#ifdef __cplusplus
}
#endif

#endif
