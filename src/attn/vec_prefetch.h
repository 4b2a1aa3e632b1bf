/* SPDX-License-Identifier: MIT
 *
 * vec_prefetch.h: the prefetch of a job's kernel_prefetch, line by line in the order of memory: the
 * cells of a block are one stream then, whatever order the arithmetic takes. A kernel prefetches as
 * many bytes as it loads, in its innermost loop: memory is as busy at each moment as at any other,
 * while a burst of lines would keep the loads of the arithmetic waiting behind it. Included behind
 * a vec_<isa>.h, which has vec_prefetch. */
#ifndef PKV_ATTN_VEC_PREFETCH_H
#define PKV_ATTN_VEC_PREFETCH_H

struct prefetch {
    const void *const *vector; /* the one under way */
    int left;                  /* vectors, it included */
    size_t offset;             /* of the group, in bytes */
    size_t vector_bytes;
    const char *at, *end; /* in it */
    int every;            /* a job that loads its vectors n times prefetches at each n-th call */
    int wait;
};

VEC_INLINE void prefetch_point(struct prefetch *prefetch)
{
    prefetch->at = (const char *)*prefetch->vector + prefetch->offset;
    prefetch->end = prefetch->at + prefetch->vector_bytes;
}

/* What a job prefetches during one of its num_groups groups: of its own, or of what comes next. */
VEC_INLINE struct kernel_prefetch prefetch_of_group(const struct kernel_prefetch *next,
                                                    const struct kernel_prefetch *own,
                                                    int num_groups, int group)
{
    const int num_own = next->distance > 0 ? num_groups - next->distance : 0;
    struct kernel_prefetch wanted = *next;
    if (group < num_own) {
        wanted = *own;
        wanted.offset = (size_t)next->distance * own->group_bytes;
    } else {
        wanted.offset -=
            (size_t)num_own * next->group_bytes; /* its first group is due at num_own */
    }
    return wanted;
}

/* For a job whose vectors are loaded `times` times. */
VEC_INLINE struct prefetch prefetch_start(const struct kernel_prefetch *wanted, int group,
                                          int times)
{
    struct prefetch prefetch = {
        .vector = wanted->vectors,
        .left = wanted->num_vectors,
        .offset = wanted->offset + (size_t)group * wanted->group_bytes,
        .vector_bytes = wanted->vector_bytes,
        .every = times,
        .wait = times,
    };
    if (prefetch.left > 0) {
        prefetch_point(&prefetch);
    }
    return prefetch;
}

/* Lines for so many bytes, at least one. */
VEC_INLINE int lines_of(size_t bytes)
{
    return bytes < LINE_BYTES ? 1 : (int)(bytes / LINE_BYTES);
}

/* The next `lines`, a constant. */
VEC_INLINE void prefetch_lines(struct prefetch *prefetch, int lines)
{
    prefetch->wait--;
    if (prefetch->wait > 0) {
        return;
    }
    prefetch->wait = prefetch->every;
    for (int n = 0; n < lines && prefetch->left > 0; n++) {
        vec_prefetch(prefetch->at);
        prefetch->at += LINE_BYTES;
        if (prefetch->at >= prefetch->end) {
            prefetch->left--;
            prefetch->vector++;
            if (prefetch->left > 0) {
                prefetch_point(prefetch);
            }
        }
    }
}

#endif
