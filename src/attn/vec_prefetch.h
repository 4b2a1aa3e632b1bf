/* SPDX-License-Identifier: MIT
 *
 * vec_prefetch.h: the prefetch of a job's kernel_prefetch, vector by vector in the order of memory:
 * the cells of a block are one stream then, whatever order the arithmetic takes. A kernel that
 * works in num_blocks register blocks prefetches its share at each of them, so that memory is busy
 * from the first block to the last. Included behind a vec_<isa>.h, which has vec_prefetch. */
#ifndef PKV_ATTN_VEC_PREFETCH_H
#define PKV_ATTN_VEC_PREFETCH_H

/* `step` vectors a register block, in 1/65536; `due` of them by now, `next` is the first that was
 * not prefetched yet. */
struct prefetch {
    const void *const *vectors;
    size_t vector_bytes;
    uint32_t num_vectors;
    uint32_t next;
    uint32_t due;
    uint32_t step;
};

VEC_INLINE struct prefetch prefetch_start(const struct kernel_prefetch *wanted, int num_vectors,
                                          int num_blocks)
{
    const struct prefetch none = {NULL, 0, 0, 0, 0, 0};
    if (wanted->vectors == NULL || num_blocks < 1) {
        return none;
    }
    const uint32_t count = (uint32_t)num_vectors;
    const uint32_t blocks = (uint32_t)num_blocks;
    const uint32_t step = ((count << 16) + blocks - 1) / blocks;
    const struct prefetch all = {wanted->vectors, wanted->vector_bytes, count, 0, 0, step};
    return all;
}

/* Called once in each register block. */
VEC_INLINE void prefetch_share(struct prefetch *prefetch)
{
    prefetch->due += prefetch->step;
    const uint32_t due = (prefetch->due + 0xffff) >> 16;
    const uint32_t end = due < prefetch->num_vectors ? due : prefetch->num_vectors;
    for (; prefetch->next < end; prefetch->next++) {
        const char *vector = prefetch->vectors[prefetch->next];
        for (size_t at = 0; at < prefetch->vector_bytes; at += LINE_BYTES) {
            vec_prefetch(vector + at);
        }
    }
}

#endif
