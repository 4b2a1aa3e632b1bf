/* SPDX-License-Identifier: MIT
 *
 * prefix_ref.h: how a node of the prefix index is named. A node that was freed, and perhaps made
 * anew from other content, has another generation: refs to the old one are stale, and each call
 * that takes a ref says what it does then. */
#ifndef PKV_PREFIX_REF_H
#define PKV_PREFIX_REF_H

#include <stdint.h>

#define PREFIX_NONE (-1)

struct prefix_ref {
    int32_t index; /* PREFIX_NONE: the root, which is the parent of first blocks and never stale */
    uint32_t generation;
};
#define PREFIX_ROOT ((struct prefix_ref){PREFIX_NONE, 0})

#endif
