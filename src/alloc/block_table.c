/* SPDX-License-Identifier: MIT
 *
 * The check that keeps a caller's block table from leading outside the pool. One pass a row: the
 * epoch advances with each, so stamps of earlier rows are old without being cleared; only when it
 * wraps, once in 2^32 rows, are they wiped. */
#include "alloc/block_table.h"

#include <string.h>

#include "base/error.h"
#include "base/hooks.h"
#include "pagedkv/alloc.h"

static void begin_row(struct block_stamps *stamps)
{
    stamps->epoch++;
    if (stamps->epoch == 0) {
        memset(stamps->stamps, 0, (size_t)stamps->num_blocks * sizeof stamps->stamps[0]);
        stamps->epoch = 1;
    }
}

/* The stamp says only that the id was met; where, a rescan finds, because errors may be slow. */
static enum pkv_status refuse_repeat(const int32_t *row, int32_t entry_idx, int32_t row_idx)
{
    int32_t earlier = 0;
    while (row[earlier] != row[entry_idx]) {
        earlier++;
    }
    return INVALID("block_table[%d][%d] = %d, already at [%d][%d]", row_idx, entry_idx,
                   row[entry_idx], row_idx, earlier);
}

enum pkv_status block_table_check_row(struct block_stamps *stamps, const int32_t *row,
                                      int32_t max_blocks, int32_t row_idx)
{
    begin_row(stamps);
    for (int32_t i = 0; i < max_blocks; i++) {
        const int32_t id = row[i];
        if (id == NO_BLOCK) {
            continue;
        }
        if (id < 0 || id >= stamps->num_blocks) {
            return INVALID("block_table[%d][%d] = %d, outside [0, %d)", row_idx, i, id,
                           stamps->num_blocks);
        }
        if (stamps->stamps[id] == stamps->epoch) {
            return refuse_repeat(row, i, row_idx);
        }
        stamps->stamps[id] = stamps->epoch;
    }
    return PKV_OK;
}

static enum pkv_status check_shape(const int32_t *block_table, int32_t batch, int32_t max_blocks,
                                   int32_t num_blocks)
{
    if (batch < 0) {
        return INVALID("batch = %d, below 0", batch);
    }
    if (max_blocks < 0) {
        return INVALID("max_blocks = %d, below 0", max_blocks);
    }
    if (num_blocks < 1) {
        return INVALID("num_blocks = %d, below 1", num_blocks);
    }
    if (block_table == NULL && batch > 0 && max_blocks > 0) {
        return INVALID("block_table is NULL");
    }
    return PKV_OK;
}

enum pkv_status pkv_block_table_check(const int32_t *block_table, int32_t batch, int32_t max_blocks,
                                      int32_t num_blocks, const struct pkv_hooks *hooks)
{
    struct pkv_hooks memory;
    enum pkv_status status = check_shape(block_table, batch, max_blocks, num_blocks);
    if (status == PKV_OK) {
        status = hooks_copy(hooks, &memory);
    }
    if (status != PKV_OK || batch == 0 || max_blocks == 0) {
        return status;
    }
    struct block_stamps stamps = {NULL, num_blocks, 0};
    stamps.stamps = hooks_alloc_array(&memory, (size_t)num_blocks, sizeof stamps.stamps[0]);
    if (stamps.stamps == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for %d stamps", num_blocks);
    }
    for (int32_t i = 0; i < batch && status == PKV_OK; i++) {
        const int32_t *row = block_table + (size_t)i * (size_t)max_blocks;
        status = block_table_check_row(&stamps, row, max_blocks, i);
    }
    hooks_free_array(&memory, stamps.stamps, (size_t)num_blocks, sizeof stamps.stamps[0]);
    return status;
}
