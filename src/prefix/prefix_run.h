/* SPDX-License-Identifier: MIT
 *
 * prefix_run.h: how far a group's blocks reach in a chain, and how much of that a sequence needs to
 * go on behind it. O(1). */
#ifndef PKV_PREFIX_RUN_H
#define PKV_PREFIX_RUN_H

#include <stdbool.h>

#include "base/checked.h"
#include "base/window.h"

/* What a group's queries see: base/window.h. */
struct prefix_window {
    int64_t window; /* 0 = all keys. With a rewind of m tokens in reserve: window + m */
    int64_t kept_prefix;
};

/* Of the blocks that were added, from the first of a chain on: so many in a row end with the
 * newest, and so many begin the chain. */
struct prefix_run {
    int32_t ending;
    int32_t leading;
};

/* Adds block number `block`. */
static inline void prefix_run_add(struct prefix_run *run, int32_t block, bool is_there)
{
    run->ending = is_there ? run->ending + 1 : 0;
    run->leading += is_there && run->leading == block;
}

/* Can a row of `count` full blocks, all of which were added, go on in a group that has these? */
static inline bool prefix_run_suffices(const struct prefix_run *run, int32_t count,
                                       const struct prefix_window *window, int32_t block_size)
{
    const int64_t length = (int64_t)count * block_size;
    const int64_t kept = window->kept_prefix < length ? window->kept_prefix : length;
    return run->ending >= count - first_needed_block(length, window->window, block_size) &&
           run->leading >= divide_up(kept, block_size);
}

#endif
