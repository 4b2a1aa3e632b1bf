/* SPDX-License-Identifier: MIT
 *
 * vec_ahead.h: asking for rows that will be wanted soon, in the order of memory: a run of cells is
 * one stream then, whatever order the arithmetic takes. A kernel that works in num_blocks blocks
 * asks for its part at each of them, so that memory is busy from the first to the last. Included
 * behind a vec_<isa>.h, which has vec_prefetch. */
#ifndef PKV_ATTN_VEC_AHEAD_H
#define PKV_ATTN_VEC_AHEAD_H

#define LINE_BYTES 64

/* Of `step` rows a block, in 1/65536, `due` have come up so far. */
typedef struct {
    const void *const *rows;
    size_t row_bytes;
    uint32_t num_rows;
    uint32_t row;
    uint32_t due;
    uint32_t step;
} lookout;

VEC_INLINE lookout look_at(const struct kernel_ahead *ahead, int num_rows, int num_blocks)
{
    const lookout none = {NULL, 0, 0, 0, 0, 0};
    if (ahead == NULL || ahead->rows == NULL || num_blocks < 1) {
        return none;
    }
    const uint32_t count = (uint32_t)num_rows;
    const uint32_t blocks = (uint32_t)num_blocks;
    const lookout at = {
        ahead->rows, ahead->row_bytes, count, 0, 0, ((count << 16) + blocks - 1) / blocks};
    return at;
}

/* Called once in each block. */
VEC_INLINE void look_ahead(lookout *ahead)
{
    ahead->due += ahead->step;
    const uint32_t due = (ahead->due + 0xffff) >> 16;
    const uint32_t end = due < ahead->num_rows ? due : ahead->num_rows;
    for (; ahead->row < end; ahead->row++) {
        const char *row = ahead->rows[ahead->row];
        for (size_t at = 0; at < ahead->row_bytes; at += LINE_BYTES) {
            vec_prefetch(row + at);
        }
    }
}

#endif
