/* SPDX-License-Identifier: MIT
 *
 * check_tables.c: slots and block tables. Ids that were met are stamped with the number of the list
 * under check, so nothing is cleared between lists: the cost follows the entries, not the cache. */
#include "attn/check_tables.h"

#include <string.h>

#include "alloc/block_table.h"
#include "attn/visible.h"
#include "attn/workspace.h"
#include "base/error.h"

/* Row `row` appends to the block in the call of this epoch. */
struct writer {
    uint32_t epoch;
    int32_t row;
};

/* Stamps for count ids, with num_rows epochs left before the counter wraps. */
static bool stamps_for(pkv_workspace *workspace, int32_t count, int32_t num_rows,
                       struct block_stamps *stamps)
{
    if (!buffer_grow(&workspace->hooks, &workspace->id_stamps, (size_t)count * sizeof(uint32_t))) {
        return false;
    }
    if (workspace->id_epoch > UINT32_MAX - (uint32_t)num_rows - 1) {
        memset(workspace->id_stamps.memory, 0, workspace->id_stamps.bytes);
        workspace->id_epoch = 0;
    }
    *stamps = (struct block_stamps){workspace->id_stamps.memory, count, workspace->id_epoch};
    return true;
}

enum pkv_status check_slots(pkv_workspace *workspace, const struct call *call, struct gqa_row *rows)
{
    const struct pkv_gqa_args *args = call->args;
    struct block_stamps stamps;
    if (!stamps_for(workspace, call->cache.num_blocks, args->batch, &stamps)) {
        return refuse(PKV_NO_MEMORY, "no memory for %d slot stamps", call->cache.num_blocks);
    }
    stamps.epoch = ++workspace->id_epoch;
    for (int32_t b = 0; b < args->batch; b++) {
        const int32_t slot = args->slot_ids[b];
        if (slot < 0 || slot >= call->cache.num_blocks) {
            return INVALID("slot_ids[%d] = %d, outside [0, %d)", b, slot, call->cache.num_blocks);
        }
        if (stamps.stamps[slot] == stamps.epoch) {
            return INVALID("slot_ids[%d] = %d, named twice", b, slot);
        }
        stamps.stamps[slot] = stamps.epoch;
        rows[b].block = slot;
    }
    return PKV_OK;
}

/* Blocks that hold a key of [from, to) are mapped. */
static enum pkv_status check_mapped(const struct gqa_row *row, int32_t b, int32_t block_size,
                                    int32_t from, int32_t to)
{
    for (int32_t i = from / block_size; from < to && i <= (to - 1) / block_size; i++) {
        if (row->table[i] == NO_BLOCK) {
            return INVALID("block_table[%d][%d] = -1, but keys of it are needed", b, i);
        }
    }
    return PKV_OK;
}

static enum pkv_status check_needed_blocks(const struct call *call, const struct gqa_row *row,
                                           int32_t b)
{
    const int32_t block_size = call->cache.block_size;
    enum pkv_status status = PKV_OK;
    if (call->appends) {
        status = check_mapped(row, b, block_size, gqa_row_past(row), row->kv_len);
    }
    const int32_t alike = gqa_shape_heads_alike(&call->shape);
    for (int32_t h = 0; call->attends && row->q_len > 0 && h < call->shape.kv_heads; h += alike) {
        const struct visible seen = visible_to(row, &call->shape, h, 0, row->q_len);
        struct visible_keys keys = visible_next(&seen, 0, seen.end);
        for (; status == PKV_OK && keys.begin < keys.end;
             keys = visible_next(&seen, keys.end, seen.end)) {
            status = check_mapped(row, b, block_size, keys.begin, keys.end);
        }
    }
    return status;
}

/* Records for each block that the call writes which row does; a second writer refuses. */
static enum pkv_status stamp_writers(const struct call *call, const struct gqa_row *rows,
                                     struct writer *writers, uint32_t epoch)
{
    const int32_t block_size = call->cache.block_size;
    for (int32_t b = 0; b < call->args->batch; b++) {
        const int32_t past = gqa_row_past(&rows[b]);
        for (int32_t i = past / block_size;
             rows[b].q_len > 0 && i <= (rows[b].kv_len - 1) / block_size; i++) {
            struct writer *writer = &writers[rows[b].table[i]];
            if (writer->epoch == epoch) {
                return INVALID("block_table[%d][%d] = %d, written by row %d as well", b, i,
                               rows[b].table[i], writer->row);
            }
            *writer = (struct writer){epoch, b};
        }
    }
    return PKV_OK;
}

/* A block that one row writes is in no other row. */
static enum pkv_status check_writers(pkv_workspace *workspace, const struct call *call,
                                     const struct gqa_row *rows)
{
    const struct pkv_gqa_args *args = call->args;
    const size_t bytes = (size_t)call->cache.num_blocks * sizeof(struct writer);
    if (!buffer_grow(&workspace->hooks, &workspace->writers, bytes)) {
        return refuse(PKV_NO_MEMORY, "no memory for %d block stamps", call->cache.num_blocks);
    }
    struct writer *writers = workspace->writers.memory;
    if (++workspace->writers_epoch == 0) { /* wrapped: old stamps would look new */
        memset(writers, 0, workspace->writers.bytes);
        workspace->writers_epoch = 1;
    }
    const uint32_t epoch = workspace->writers_epoch;
    const enum pkv_status status = stamp_writers(call, rows, writers, epoch);
    for (int32_t b = 0; status == PKV_OK && b < args->batch; b++) {
        for (int32_t i = 0; i < args->max_blocks; i++) {
            const int32_t id = rows[b].table[i];
            if (id >= 0 && writers[id].epoch == epoch && writers[id].row != b) {
                return INVALID("block_table[%d][%d] = %d, a block that row %d writes", b, i, id,
                               writers[id].row);
            }
        }
    }
    return status;
}

enum pkv_status check_tables(pkv_workspace *workspace, const struct call *call,
                             struct gqa_row *rows)
{
    const struct pkv_gqa_args *args = call->args;
    struct block_stamps stamps;
    if (!stamps_for(workspace, call->cache.num_blocks, args->batch, &stamps)) {
        return refuse(PKV_NO_MEMORY, "no memory for %d block stamps", call->cache.num_blocks);
    }
    enum pkv_status status = PKV_OK;
    for (int32_t b = 0; status == PKV_OK && b < args->batch; b++) {
        rows[b].table = args->block_table + (size_t)b * (size_t)args->max_blocks;
        status = block_table_check_row(&stamps, rows[b].table, args->max_blocks, b);
    }
    workspace->id_epoch = stamps.epoch;
    for (int32_t b = 0; status == PKV_OK && b < args->batch; b++) {
        status = check_needed_blocks(call, &rows[b], b);
    }
    return status == PKV_OK && call->appends ? check_writers(workspace, call, rows) : status;
}
