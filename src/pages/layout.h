/* SPDX-License-Identifier: MIT
 *
 * layout.h: where each byte of a page store lies. One layer:
 *
 *     | K: block 0 | block 1 | ... | pad | V: block 0 | block 1 | ... | pad |
 *                       '-> [kv_head][cell][channel]
 *
 *   part_bytes = num_blocks * block_bytes, rounded up to a cache line, so each part starts on one
 *   payload_bytes = num_layers * (k.part_bytes + v.part_bytes)
 *
 * Every product was checked against size_t when the layout was made; offsets below need no more
 * than size_t arithmetic. */
#ifndef PKV_PAGES_LAYOUT_H
#define PKV_PAGES_LAYOUT_H

#include "base/hooks.h"
#include "pagedkv/pages.h"

#define LAYOUT_PART_ALIGNMENT ((size_t)64)
_Static_assert(LAYOUT_PART_ALIGNMENT % HOOKS_CACHE_LINE == 0, "parts share no cache line");

/* The keys, or the values, of one layer. Strides in elements. All 0 where nothing is stored. */
struct page_part {
    size_t element_bytes;
    size_t cell_stride;  /* = the width */
    size_t head_stride;  /* = block_size * cell_stride */
    size_t block_stride; /* = kv_heads * head_stride */
    size_t part_bytes;   /* padded */
};

struct page_layout {
    struct pkv_page_geometry geometry; /* v_width filled in */
    struct page_part k;
    struct page_part v;
    struct pkv_page_sizes sizes;
};

/* Statuses of pkv_page_sizes_of; *layout is written on success alone. */
enum pkv_status page_layout_make(const struct pkv_page_geometry *geometry,
                                 struct page_layout *layout);

/* Byte offset of a layer's keys in the payload. Its values follow at + k.part_bytes. */
static inline size_t page_layer_offset(const struct page_layout *layout, int32_t layer)
{
    return (size_t)layer * (layout->k.part_bytes + layout->v.part_bytes);
}

/* Byte offset of a cell in its part. */
static inline size_t page_cell_offset(const struct page_part *part, int32_t block, int32_t head,
                                      int32_t cell)
{
    return part->element_bytes *
           ((size_t)block * part->block_stride + (size_t)head * part->head_stride +
            (size_t)cell * part->cell_stride);
}

#endif
