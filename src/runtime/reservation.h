/* SPDX-License-Identifier: MIT
 *
 * reservation.h: what begin takes for one row of the step in one paged group, and commit keeps or
 * abort undoes. */
#ifndef PKV_RUNTIME_RESERVATION_H
#define PKV_RUNTIME_RESERVATION_H

#include "runtime/block.h"

/* The tail is the block of the row's first new cell.
 *
 *   blocks taken = num_new + (copied_from != NO_BLOCK)
 *   copied_from = NO_BLOCK, or the block that the tail entry named before; the reference of that
 *   entry is the step's until it ends, so that the block's count is unchanged */
struct reservation {
    int32_t end_before; /* of the table */
    int32_t num_new;    /* blocks taken past it */
    int32_t copied_from;
    int32_t tail_block; /* the block whose writer changed */
    enum block_writer_change writer_change;
    bool uncaches_tail; /* the tail has a node, no block is left to copy it to: write in place */
};

#endif
