/* SPDX-License-Identifier: MIT
 *
 * overlap.c: arithmetic on addresses; nothing is read. */
#include "attn/overlap.h"

#include "base/error.h"

static bool is_absent(const struct overlap_array *a)
{
    return a->base == 0 || a->count == 0;
}

static size_t reach(const struct overlap_array *a)
{
    return (a->count - 1) * a->stride + a->bytes;
}

/* Of arrays of one stride, a's pieces may lie in the gaps of b's. */
static bool pieces_overlap(const struct overlap_array *a, const struct overlap_array *b)
{
    const size_t behind = a->base >= b->base
                              ? (a->base - b->base) % a->stride
                              : (a->stride - (b->base - a->base) % a->stride) % a->stride;
    return behind < b->bytes || behind + a->bytes > a->stride;
}

struct overlap_array overlap_packed(const char *name, const void *base, size_t count,
                                    size_t element_bytes)
{
    const size_t bytes = count * element_bytes;
    return (struct overlap_array){
        .name = name,
        .base = (uintptr_t)base,
        .bytes = bytes,
        .stride = bytes,
        .count = bytes > 0 ? 1 : 0,
    };
}

enum pkv_status overlap_check(const struct overlap_array *a, const struct overlap_array *b)
{
    if (is_absent(a) || is_absent(b) || a->base + reach(a) <= b->base ||
        b->base + reach(b) <= a->base) {
        return PKV_OK;
    }
    if (a->stride == b->stride && !pieces_overlap(a, b)) {
        return PKV_OK;
    }
    return INVALID("%s overlaps %s", a->name, b->name);
}

bool overlap_bytes(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    const uintptr_t x = (uintptr_t)a;
    const uintptr_t y = (uintptr_t)b;
    return x < y + b_bytes && y < x + a_bytes;
}
