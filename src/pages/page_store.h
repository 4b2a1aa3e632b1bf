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

#endif
