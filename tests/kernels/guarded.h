/* SPDX-License-Identifier: MIT
 *
 * guarded.h: areas of memory between pages that may not be touched.
 *
 *     | guard | area 0 | guard | area 1 | guard | ..
 *
 * A block that ends at a guard shows a read or write past its end at once, one that begins at a
 * guard shows one before its beginning. What of an area is not in use holds 0xff, which is NaN in
 * every float type: what is read there spoils the result, and what is written there is seen. */
#ifndef PKV_TEST_KERNELS_GUARDED_H
#define PKV_TEST_KERNELS_GUARDED_H

#include <stdbool.h>
#include <stddef.h>

enum place { PLACE_ENDS, PLACE_BEGINS, PLACE_MISALIGNED, NUM_PLACES };

struct guarded {
    unsigned char *memory;
    size_t room; /* bytes of an area, whole pages */
};

/* "ends at a guard page", .. */
const char *place_name(enum place place);

/* `count` areas of at least `room` bytes. Ends the program when there is no memory. */
struct guarded guarded_create(int count, size_t room);

/* Where a block of `bytes` lies in area `index`; misaligned by one element of `element` bytes. Its
 * surroundings are painted; so is the block. */
void *guarded_place(const struct guarded *guarded, int index, size_t bytes, size_t element,
                    enum place place);

/* Whether the surroundings of a block that was placed still hold their paint. */
bool guarded_is_clean(const struct guarded *guarded, int index, const void *block, size_t bytes);

#endif
