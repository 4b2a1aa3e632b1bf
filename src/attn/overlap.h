/* SPDX-License-Identifier: MIT
 *
 * overlap.h: whether arrays share bytes. An array is `count` pieces of `bytes` bytes, `stride`
 * bytes apart, as the tokens of q are; a packed array is one piece. */
#ifndef PKV_ATTN_OVERLAP_H
#define PKV_ATTN_OVERLAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pagedkv/base.h"

struct overlap_array {
    const char *name;
    uintptr_t base; /* 0: absent */
    size_t bytes;
    size_t stride;
    size_t count;
};

/* A packed array of count elements. */
struct overlap_array overlap_packed(const char *name, const void *base, size_t count,
                                    size_t element_bytes);

/* Refuses two arrays that share a byte, naming both. Arrays of one stride may be interleaved, as
 * the parts of a fused QKV row are. Their sizes do not overflow. */
enum pkv_status overlap_check(const struct overlap_array *a, const struct overlap_array *b);

/* The same question for two ranges of bytes. */
bool overlap_bytes(const void *a, size_t a_bytes, const void *b, size_t b_bytes);

#endif
