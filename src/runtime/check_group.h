/* SPDX-License-Identifier: MIT
 *
 * check_group.h: the part of pkv_cache_check that looks at one group. The mutex is held.
 * O(blocks + sequences * table). */
#ifndef PKV_RUNTIME_CHECK_GROUP_H
#define PKV_RUNTIME_CHECK_GROUP_H

#include "base/report.h"
#include "runtime/cache.h"

/* What was found of one block. Create takes one for each block of the largest group, so that a
 * check takes no memory. */
struct check_group_cell {
    int32_t count;
    int32_t last_seq; /* + 1; the last sequence whose table named the block */
    int32_t num_pins;
    int32_t num_sliding;
    bool writer_holds;
};

/* Compares each block's count with the table entries, references of the step and pins that name it,
 * and each table with the equations of struct seq_table. */
void check_group(pkv_cache *cache, int32_t g, struct report *report);

#endif
