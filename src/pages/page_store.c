/* SPDX-License-Identifier: MIT
 *
 * One run of payload and the ways into it. A store knows nothing of who owns a block: callers name
 * blocks, and lists and tables are validated whole before a byte moves. Cells are moved as bytes,
 * so every dtype is handled alike.
 *
 * Nothing but the payload changes after create, so views, gathers and moves of different blocks may
 * run on several threads. */
#include "pages/page_store.h"

#include <string.h>

#include "alloc/mem.h"
#include "base/error.h"
#include "base/hooks.h"
#include "pages/layout.h"

struct pkv_pages {
    struct pkv_hooks hooks;
    struct page_layout layout;
    unsigned char *payload; /* [layout.sizes.payload_bytes] */
};

size_t page_store_bytes(void)
{
    return hooks_array_bytes(1, sizeof(pkv_pages));
}

enum pkv_status pkv_pages_create(const struct pkv_page_geometry *geometry,
                                 const struct pkv_hooks *hooks, pkv_pages **pages)
{
    struct page_layout layout;
    struct pkv_hooks memory;
    if (pages == NULL) {
        return INVALID("pages is NULL");
    }
    enum pkv_status status = page_layout_make(geometry, &layout);
    if (status == PKV_OK) {
        status = hooks_copy(hooks, &memory);
    }
    if (status != PKV_OK) {
        return status;
    }
    pkv_pages *made = hooks_alloc_array(&memory, 1, sizeof *made);
    if (made == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for a page store");
    }
    made->hooks = memory;
    made->layout = layout;
    made->payload = mem_map(&memory, layout.sizes.payload_bytes, PKV_MAP_PAYLOAD);
    if (made->payload == NULL) {
        pkv_pages_destroy(made);
        return refuse(PKV_NO_MEMORY, "no memory for %zu bytes of payload",
                      layout.sizes.payload_bytes);
    }
    *pages = made;
    return PKV_OK;
}

void pkv_pages_destroy(pkv_pages *pages)
{
    if (pages == NULL) {
        return;
    }
    const struct pkv_hooks memory = pages->hooks;
    mem_unmap(&memory, pages->payload, pages->layout.sizes.payload_bytes, PKV_MAP_PAYLOAD);
    hooks_free_array(&memory, pages, 1, sizeof *pages);
}

static unsigned char *k_base(const pkv_pages *pages, int32_t layer)
{
    return pages->payload + page_layer_offset(&pages->layout, layer);
}

static unsigned char *v_base(const pkv_pages *pages, int32_t layer)
{
    return k_base(pages, layer) + pages->layout.k.part_bytes;
}

static enum pkv_status check_layer(const pkv_pages *pages, int32_t layer)
{
    if (pages == NULL) {
        return INVALID("pages is NULL");
    }
    if (layer < 0 || layer >= pages->layout.geometry.num_layers) {
        return INVALID("layer = %d, outside [0, %d)", layer, pages->layout.geometry.num_layers);
    }
    return PKV_OK;
}

enum pkv_status pkv_pages_view(const pkv_pages *pages, int32_t layer, struct pkv_kv_view *view)
{
    const enum pkv_status status = check_layer(pages, layer);
    if (status != PKV_OK) {
        return status;
    }
    if (view == NULL) {
        return INVALID("view is NULL");
    }
    const struct page_layout *layout = &pages->layout;
    const struct pkv_page_geometry *geometry = &layout->geometry;
    const struct pkv_kv_view made = {
        .k = k_base(pages, layer),
        .v = geometry->v_in_k ? NULL : v_base(pages, layer),
        .k_dtype = geometry->k_dtype,
        .v_dtype = geometry->v_in_k ? geometry->k_dtype : geometry->v_dtype,
        .num_blocks = geometry->num_blocks,
        .kv_heads = geometry->kv_heads,
        .block_size = geometry->block_size,
        .k_width = geometry->k_width,
        .v_width = geometry->v_width,
        .k_block_stride = layout->k.block_stride,
        .k_head_stride = layout->k.head_stride,
        .k_cell_stride = layout->k.cell_stride,
        .v_block_stride = layout->v.block_stride,
        .v_head_stride = layout->v.head_stride,
        .v_cell_stride = layout->v.cell_stride,
    };
    *view = made;
    return PKV_OK;
}

static void fill_part(unsigned char *base, const struct page_part *part, int32_t block,
                      unsigned char byte)
{
    memset(base + page_cell_offset(part, block, 0, 0), byte,
           part->block_stride * part->element_bytes);
}

void page_store_fill(pkv_pages *pages, int32_t block, unsigned char byte)
{
    for (int32_t layer = 0; layer < pages->layout.geometry.num_layers; layer++) {
        fill_part(k_base(pages, layer), &pages->layout.k, block, byte);
        fill_part(v_base(pages, layer), &pages->layout.v, block, byte);
    }
}

int32_t page_store_num_pieces(const pkv_pages *pages)
{
    return pages->layout.geometry.num_layers * (pages->layout.geometry.v_in_k ? 1 : 2);
}

size_t page_store_block_bytes(const pkv_pages *pages)
{
    return pages->layout.sizes.block_bytes;
}

size_t page_store_token_bytes(const pkv_pages *pages)
{
    return pages->layout.sizes.token_bytes;
}

static struct pkv_piece piece_of(unsigned char *base, const struct page_part *part, int32_t block)
{
    return (struct pkv_piece){base + page_cell_offset(part, block, 0, 0),
                              part->block_stride * part->element_bytes};
}

void page_store_pieces(const pkv_pages *pages, int32_t block, struct pkv_piece *pieces)
{
    for (int32_t layer = 0; layer < pages->layout.geometry.num_layers; layer++) {
        *pieces++ = piece_of(k_base(pages, layer), &pages->layout.k, block);
        if (!pages->layout.geometry.v_in_k) {
            *pieces++ = piece_of(v_base(pages, layer), &pages->layout.v, block);
        }
    }
}

/* Moves a run of bytes between a block and a stream. */
static void stream_run(struct page_stream *stream, unsigned char *run, size_t bytes, bool is_read)
{
    while (bytes > 0) {
        if (stream->num_left == 0) {
            stream->at = stream->next(stream->context);
            stream->num_left = stream->piece_bytes;
        }
        const size_t count = bytes < stream->num_left ? bytes : stream->num_left;
        memcpy(is_read ? stream->at : run, is_read ? run : stream->at, count);
        stream->at += count;
        stream->num_left -= count;
        run += count;
        bytes -= count;
    }
}

/* All heads of a whole block are one run. */
static void stream_part(unsigned char *base, const struct page_part *part,
                        const struct pkv_page_geometry *geometry, int32_t block, int32_t num_cells,
                        struct page_stream *stream, bool is_read)
{
    const bool is_whole = num_cells == geometry->block_size;
    const int32_t num_runs = is_whole ? 1 : geometry->kv_heads;
    const size_t elements = is_whole ? part->block_stride : (size_t)num_cells * part->cell_stride;
    for (int32_t head = 0; head < num_runs; head++) {
        stream_run(stream, base + page_cell_offset(part, block, head, 0),
                   elements * part->element_bytes, is_read);
    }
}

static void stream_block(const pkv_pages *pages, int32_t block, int32_t num_cells,
                         struct page_stream *stream, bool is_read)
{
    const struct page_layout *layout = &pages->layout;
    for (int32_t layer = 0; layer < layout->geometry.num_layers; layer++) {
        stream_part(k_base(pages, layer), &layout->k, &layout->geometry, block, num_cells, stream,
                    is_read);
        stream_part(v_base(pages, layer), &layout->v, &layout->geometry, block, num_cells, stream,
                    is_read);
    }
}

void page_store_read(const pkv_pages *pages, int32_t block, int32_t num_cells,
                     struct page_stream *to)
{
    stream_block(pages, block, num_cells, to, true);
}

void page_store_write(pkv_pages *pages, int32_t block, int32_t num_cells, struct page_stream *from)
{
    stream_block(pages, block, num_cells, from, false);
}

static enum pkv_status check_copy(const pkv_pages *pages, const struct pkv_page_copy *copies,
                                  int32_t i)
{
    const struct pkv_page_geometry *geometry = &pages->layout.geometry;
    const struct pkv_page_copy *copy = &copies[i];
    if (copy->src < 0 || copy->src >= geometry->num_blocks) {
        return INVALID("copies[%d].src = %d, outside [0, %d)", i, copy->src, geometry->num_blocks);
    }
    if (copy->dst < 0 || copy->dst >= geometry->num_blocks) {
        return INVALID("copies[%d].dst = %d, outside [0, %d)", i, copy->dst, geometry->num_blocks);
    }
    if (copy->num_cells < 0 || copy->num_cells > geometry->block_size) {
        return INVALID("copies[%d].num_cells = %d, outside [0, %d]", i, copy->num_cells,
                       geometry->block_size);
    }
    return PKV_OK;
}

/* With no block both written and read, and none written twice, the order of copies is of no
 * consequence: reading all before writing any needs no buffer. */
static enum pkv_status check_disjoint(const struct pkv_page_copy *copies, int32_t num_copies)
{
    for (int32_t i = 0; i < num_copies; i++) {
        for (int32_t j = 0; j < num_copies; j++) {
            if (copies[i].dst == copies[j].src) {
                return INVALID("copies[%d].dst = %d, also copies[%d].src", i, copies[i].dst, j);
            }
            if (i != j && copies[i].dst == copies[j].dst) {
                return INVALID("copies[%d].dst = %d, also copies[%d].dst", i, copies[i].dst, j);
            }
        }
    }
    return PKV_OK;
}

static void copy_part(unsigned char *base, const struct page_part *part, int32_t kv_heads,
                      const struct pkv_page_copy *copy)
{
    const size_t bytes = (size_t)copy->num_cells * part->cell_stride * part->element_bytes;
    for (int32_t head = 0; head < kv_heads; head++) {
        memcpy(base + page_cell_offset(part, copy->dst, head, 0),
               base + page_cell_offset(part, copy->src, head, 0), bytes);
    }
}

enum pkv_status pkv_pages_copy(pkv_pages *pages, const struct pkv_page_copy *copies,
                               int32_t num_copies)
{
    if (pages == NULL) {
        return INVALID("pages is NULL");
    }
    if (num_copies < 0) {
        return INVALID("num_copies = %d, below 0", num_copies);
    }
    if (copies == NULL && num_copies > 0) {
        return INVALID("copies is NULL");
    }
    enum pkv_status status = PKV_OK;
    for (int32_t i = 0; i < num_copies && status == PKV_OK; i++) {
        status = check_copy(pages, copies, i);
    }
    if (status == PKV_OK) {
        status = check_disjoint(copies, num_copies);
    }
    if (status != PKV_OK) {
        return status;
    }
    const int32_t kv_heads = pages->layout.geometry.kv_heads;
    for (int32_t layer = 0; layer < pages->layout.geometry.num_layers; layer++) {
        for (int32_t i = 0; i < num_copies; i++) {
            copy_part(k_base(pages, layer), &pages->layout.k, kv_heads, &copies[i]);
            copy_part(v_base(pages, layer), &pages->layout.v, kv_heads, &copies[i]);
        }
    }
    return PKV_OK;
}

/* Cells [first, first + count) of the row that block_table describes. */
struct cell_range {
    const int32_t *block_table;
    int32_t max_blocks;
    int32_t first;
    int32_t count;
};

/* Nothing is allocated for this check, which would need a new answer, so an entry is compared with
 * the whole row: O(needed * max_blocks), little beside moving the cells. */
static enum pkv_status check_needed_entry(const pkv_pages *pages, const struct cell_range *range,
                                          int32_t needed)
{
    const int32_t num_blocks = pages->layout.geometry.num_blocks;
    const int32_t id = range->block_table[needed];
    if (id < 0 || id >= num_blocks) {
        return INVALID("block_table[%d] = %d, outside [0, %d)", needed, id, num_blocks);
    }
    for (int32_t i = 0; i < range->max_blocks; i++) {
        if (i != needed && range->block_table[i] == id) {
            return INVALID("block_table[%d] = %d, also at [%d]", needed, id, i);
        }
    }
    return PKV_OK;
}

static enum pkv_status check_range(const pkv_pages *pages, const struct cell_range *range)
{
    const int32_t block_size = pages->layout.geometry.block_size;
    const int64_t end = (int64_t)range->first + range->count;
    if (range->first < 0 || range->count < 0) {
        return INVALID("first = %d, count = %d, one of them below 0", range->first, range->count);
    }
    if (range->max_blocks < 0) {
        return INVALID("max_blocks = %d, below 0", range->max_blocks);
    }
    if (end > (int64_t)range->max_blocks * block_size) {
        return INVALID("first = %d, count = %d, past %d blocks of %d cells", range->first,
                       range->count, range->max_blocks, block_size);
    }
    if (range->count == 0) {
        return PKV_OK;
    }
    if (range->block_table == NULL) {
        return INVALID("block_table is NULL");
    }
    enum pkv_status status = PKV_OK;
    const int32_t last = (int32_t)((end - 1) / block_size);
    for (int32_t i = range->first / block_size; i <= last && status == PKV_OK; i++) {
        status = check_needed_entry(pages, range, i);
    }
    return status;
}

static enum pkv_status check_move(const pkv_pages *pages, int32_t layer,
                                  const struct cell_range *range, const void *k, const void *v)
{
    const enum pkv_status status = check_layer(pages, layer);
    if (status != PKV_OK) {
        return status;
    }
    if (v != NULL && pages->layout.geometry.v_in_k) {
        return INVALID("v is given, but values lie in the keys");
    }
    if (k == NULL && range->count > 0) {
        return INVALID("k is NULL");
    }
    return check_range(pages, range);
}

/* Calls of one direction name `to` or `from`; the other is NULL. */
static void move_part(const pkv_pages *pages, unsigned char *base, const struct page_part *part,
                      const struct cell_range *range, unsigned char *to, const unsigned char *from)
{
    const struct pkv_page_geometry *geometry = &pages->layout.geometry;
    const size_t bytes = part->cell_stride * part->element_bytes;
    size_t plain = 0;
    for (int32_t i = 0; i < range->count; i++) {
        const int64_t position = (int64_t)range->first + i;
        const int32_t block = range->block_table[position / geometry->block_size];
        const int32_t cell = (int32_t)(position % geometry->block_size);
        for (int32_t head = 0; head < geometry->kv_heads; head++, plain += bytes) {
            unsigned char *stored = base + page_cell_offset(part, block, head, cell);
            if (to != NULL) {
                memcpy(to + plain, stored, bytes);
            } else {
                memcpy(stored, from + plain, bytes);
            }
        }
    }
}

enum pkv_status pkv_pages_gather(const pkv_pages *pages, int32_t layer, const int32_t *block_table,
                                 int32_t max_blocks, int32_t first, int32_t count, void *k, void *v)
{
    const struct cell_range range = {block_table, max_blocks, first, count};
    const enum pkv_status status = check_move(pages, layer, &range, k, v);
    if (status != PKV_OK) {
        return status;
    }
    move_part(pages, k_base(pages, layer), &pages->layout.k, &range, k, NULL);
    if (v != NULL) {
        move_part(pages, v_base(pages, layer), &pages->layout.v, &range, v, NULL);
    }
    return PKV_OK;
}

enum pkv_status pkv_pages_scatter(pkv_pages *pages, int32_t layer, const int32_t *block_table,
                                  int32_t max_blocks, int32_t first, int32_t count, const void *k,
                                  const void *v)
{
    const struct cell_range range = {block_table, max_blocks, first, count};
    const enum pkv_status status = check_move(pages, layer, &range, k, v);
    if (status != PKV_OK) {
        return status;
    }
    move_part(pages, k_base(pages, layer), &pages->layout.k, &range, NULL, k);
    if (v != NULL) {
        move_part(pages, v_base(pages, layer), &pages->layout.v, &range, NULL, v);
    }
    return PKV_OK;
}
