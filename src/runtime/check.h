/* SPDX-License-Identifier: MIT
 *
 * check.h: scratch of pkv_cache_check, which create takes so that a check takes no memory. */
#ifndef PKV_RUNTIME_CHECK_H
#define PKV_RUNTIME_CHECK_H

#include <stdbool.h>
#include <stdint.h>

/* What was found of one block of the group at hand. */
struct check_cell {
    int32_t count;
    int32_t last_seq; /* + 1; the last sequence whose table named the block */
    int32_t num_pins;
    bool writer_holds;
};

#endif
