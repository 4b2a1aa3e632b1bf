/* SPDX-License-Identifier: MIT
 *
 * check_group.h: the part of pkv_cache_check that looks at one group. The mutex is held.
 * O(blocks + sequences * table). */
#ifndef PKV_RUNTIME_CHECK_GROUP_H
#define PKV_RUNTIME_CHECK_GROUP_H

#include "base/report.h"
#include "runtime/cache.h"

/* Compares each block's count with the table entries, references of the step and pins that name it,
 * and each table with the equations of struct seq_table. */
void check_group(pkv_cache *cache, int32_t g, struct report *report);

#endif
