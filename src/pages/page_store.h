/* SPDX-License-Identifier: MIT
 *
 * page_store.h: what the runtime needs of a store beside the public calls of pagedkv/pages.h. */
#ifndef PKV_PAGES_PAGE_STORE_H
#define PKV_PAGES_PAGE_STORE_H

#include "pagedkv/pages.h"

/* 0xff in every byte is NaN in f32, f16, bf16 and e4m3 (and -1 in int8). */
#define PAGE_STORE_POISON 0xff

/* Bytes that a store takes through its hooks beside the payload. */
size_t page_store_bytes(void);

/* Writes `byte` over all cells of a block (or slot), in every layer, K and V. block is in
 * range. No other thread may use the block. O(block_bytes). */
void page_store_fill(pkv_pages *pages, int32_t block, unsigned char byte);

/* The content of a block as pieces of memory: one for each part that is stored, in the order
 * [layer][K | V], of block_bytes together. They are the same at every call for a block.
 * pieces [page_store_num_pieces]. block is in range. O(pieces). */
int32_t page_store_num_pieces(const pkv_pages *pages);
void page_store_pieces(const pkv_pages *pages, int32_t block, struct pkv_piece *pieces);

/* Bytes that lie in places of piece_bytes each, in the order in which `next` names them; it is
 * called no more often than the bytes need. Zeroed but for the first three: before the first. */
struct page_stream {
    unsigned char *(*next)(void *context);
    void *context;
    size_t piece_bytes;
    unsigned char *at;
    size_t num_left; /* of the place at hand */
};

/* Copies the first num_cells cells of a block to a stream, or from one: [layer][K | V][kv_head]
 * [cell][channel] without gaps, so num_cells * token_bytes bytes, in whatever places they lie. No
 * other cell is read or written. block and num_cells are in range; nobody writes these cells
 * meanwhile. O(bytes). */
void page_store_read(const pkv_pages *pages, int32_t block, int32_t num_cells,
                     struct page_stream *to);
void page_store_write(pkv_pages *pages, int32_t block, int32_t num_cells, struct page_stream *from);

/* Bytes of a block in all layers. */
size_t page_store_block_bytes(const pkv_pages *pages);

/* Bytes of a cell in all layers. */
size_t page_store_token_bytes(const pkv_pages *pages);

#endif
