/* SPDX-License-Identifier: MIT
 *
 * block_table.h: what no block is, and the check of block tables, with stamps that the caller keeps
 * so that a row costs O(entries) whatever the size of the pool.
 *
 *   stamps[id] == epoch   exactly when id was met in the row under check,   epoch > 0 after a row
 */
#ifndef PKV_ALLOC_BLOCK_TABLE_H
#define PKV_ALLOC_BLOCK_TABLE_H

#include "pagedkv/base.h"

#define NO_BLOCK (-1) /* where a table or a list names none */

/* stamps [num_blocks] and epoch start as zeros and are then left to block_table_check_row. */
struct block_stamps {
    uint32_t *stamps;
    int32_t num_blocks;
    uint32_t epoch;
};

/* PKV_OK when every entry of row [max_blocks] is NO_BLOCK or in [0, num_blocks) and no id appears
 * twice; else PKV_INVALID_ARGUMENT, and the last error names block_table[row_idx][i]. */
enum pkv_status block_table_check_row(struct block_stamps *stamps, const int32_t *row,
                                      int32_t max_blocks, int32_t row_idx);

#endif
