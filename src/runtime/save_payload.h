/* SPDX-License-Identifier: MIT
 *
 * save_payload.h: the committed cells of a sequence in one group, in the order that a saved file
 * has them:
 *
 *   [layer][K | V][block][kv_head][cell][channel]
 *
 * Of the last block only the cells that the sequence has. A slot of a continuous group is one block
 * of max_seq_len cells. Cells behind a sequence's length may hold anything: they are never read
 * here. What is visited is constant while the sequence is moving (seq_life.h), so no mutex is
 * needed. */
#ifndef PKV_RUNTIME_SAVE_PAYLOAD_H
#define PKV_RUNTIME_SAVE_PAYLOAD_H

#include "runtime/cache.h"

/* Which blocks of a table hold cells: [0, kept_end) and [hole_end, end), but none from end on. The
 * block that a save holds beside the table is one of them. */
struct payload_extent {
    int32_t kept_end;
    int32_t hole_end;
    int32_t end;
};

/* What a sequence of `length` tokens holds. */
struct payload_extent payload_extent_of(const struct group *group, int32_t seq, int32_t length);

/* Of an extent whose block end - 1 holds token length - 1, or ends before it: blocks, cells, and
 * bytes; false when the bytes overflow. */
int32_t payload_num_blocks(const struct payload_extent *extent);
bool payload_bytes(const struct group *group, const struct payload_extent *extent, int32_t length,
                   uint64_t *bytes);

/* Shows the memory of all cells of a sequence, in order, until visit returns false. */
bool payload_visit(const struct group *group, int32_t seq, const struct payload_extent *extent,
                   int32_t length, bool (*visit)(void *context, void *bytes, size_t n),
                   void *context);

#endif
