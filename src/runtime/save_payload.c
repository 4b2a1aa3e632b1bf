/* SPDX-License-Identifier: MIT
 *
 * Blocks of a layer lie side by side in memory, so full blocks with adjacent ids are one piece. */
#include "runtime/save_payload.h"

#include "base/checked.h"
#include "base/minmax.h"
#include "pages/page_store.h"

/* The keys, or the values, of one layer; strides in bytes. */
struct part {
    unsigned char *base;
    size_t block_stride;
    size_t head_stride;
    size_t cell_bytes;
    int32_t kv_heads;
};

struct visitor {
    bool (*visit)(void *context, void *bytes, size_t n);
    void *context;
};

struct payload_extent payload_extent_of(const struct group *group, int32_t seq, int32_t length)
{
    const struct seq_table *table = &group->tables.at[seq];
    if (!group_is_paged(group)) {
        return (struct payload_extent){.end = length > 0};
    }
    return (struct payload_extent){
        .kept_end = min_i32(table->kept_end, table->end),
        .hole_end = min_i32(table->hole_end - (table->saved != NO_BLOCK), table->end),
        .end = table->end,
    };
}

int32_t payload_num_blocks(const struct payload_extent *extent)
{
    return extent->end - (extent->hole_end - extent->kept_end);
}

static bool maps(const struct payload_extent *extent, int32_t i)
{
    return i < extent->kept_end || (i >= extent->hole_end && i < extent->end);
}

bool payload_bytes(const struct group *group, const struct payload_extent *extent, int32_t length,
                   uint64_t *bytes)
{
    const int64_t block_size = group->config->block_size;
    const int64_t missing = extent->end * block_size - length;
    int64_t cells = payload_num_blocks(extent) * block_size;
    if (missing > 0 && maps(extent, extent->end - 1)) {
        cells -= missing;
    }
    size_t product = 0;
    const size_t token_bytes = page_store_block_bytes(group->blocks.pages) / (size_t)block_size;
    const bool fits = checked_mul((size_t)cells, token_bytes, &product);
    *bytes = product;
    return fits;
}

static struct part k_part(const struct pkv_kv_view *view)
{
    const size_t element = pkv_dtype_bytes(view->k_dtype);
    return (struct part){view->k, view->k_block_stride * element, view->k_head_stride * element,
                         view->k_cell_stride * element, view->kv_heads};
}

static struct part v_part(const struct pkv_kv_view *view)
{
    const size_t element = pkv_dtype_bytes(view->v_dtype);
    return (struct part){view->v, view->v_block_stride * element, view->v_head_stride * element,
                         view->v_cell_stride * element, view->kv_heads};
}

static int32_t block_at(const struct group *group, int32_t seq, int32_t i)
{
    const struct seq_table *table = &group->tables.at[seq];
    if (!group_is_paged(group)) {
        return table->slot;
    }
    return table->saved != NO_BLOCK && i == table->hole_end - 1
               ? table->saved
               : seq_table_entries(&group->tables, seq)[i];
}

/* The first cells of a block, head by head. */
static bool visit_cells(const struct part *part, int32_t block, int32_t num_cells,
                        const struct visitor *visitor)
{
    unsigned char *base = part->base + (size_t)block * part->block_stride;
    bool goes_on = true;
    for (int32_t head = 0; goes_on && head < part->kv_heads; head++) {
        goes_on = visitor->visit(visitor->context, base + (size_t)head * part->head_stride,
                                 (size_t)num_cells * part->cell_bytes);
    }
    return goes_on;
}

/* Full blocks from entry i on whose ids are adjacent. */
static int32_t count_run(const struct group *group, int32_t seq,
                         const struct payload_extent *extent, int32_t i, int32_t num_full)
{
    const int32_t first = block_at(group, seq, i);
    int32_t count = 1;
    while (i + count < num_full && maps(extent, i + count) &&
           block_at(group, seq, i + count) == first + count) {
        count++;
    }
    return count;
}

static bool visit_part(const struct group *group, int32_t seq, const struct payload_extent *extent,
                       int32_t length, const struct part *part, const struct visitor *visitor)
{
    const int32_t num_full = min_i32(length / group->config->block_size, extent->end);
    bool goes_on = true;
    int32_t i = 0;
    while (goes_on && i < num_full) {
        if (!maps(extent, i)) {
            i = extent->hole_end;
            continue;
        }
        const int32_t count = count_run(group, seq, extent, i, num_full);
        goes_on = visitor->visit(visitor->context,
                                 part->base + (size_t)block_at(group, seq, i) * part->block_stride,
                                 (size_t)count * part->block_stride);
        i += count;
    }
    if (goes_on && num_full < extent->end && maps(extent, num_full)) {
        goes_on = visit_cells(part, block_at(group, seq, num_full),
                              length % group->config->block_size, visitor);
    }
    return goes_on;
}

bool payload_visit(const struct group *group, int32_t seq, const struct payload_extent *extent,
                   int32_t length, bool (*visit)(void *context, void *bytes, size_t n),
                   void *context)
{
    const struct visitor visitor = {visit, context};
    bool goes_on = true;
    for (int32_t layer = 0; goes_on && layer < group->num_owners; layer++) {
        struct pkv_kv_view view;
        goes_on = pkv_pages_view(group->blocks.pages, layer, &view) == PKV_OK;
        const struct part k = k_part(&view);
        const struct part v = v_part(&view);
        goes_on = goes_on && visit_part(group, seq, extent, length, &k, &visitor);
        if (!group->config->v_in_k) {
            goes_on = goes_on && visit_part(group, seq, extent, length, &v, &visitor);
        }
    }
    return goes_on;
}
