/* SPDX-License-Identifier: MIT
 *
 * check_states.h: the part of pkv_cache_check that looks at one state group. */
#ifndef PKV_RUNTIME_CHECK_STATES_H
#define PKV_RUNTIME_CHECK_STATES_H

#include "base/report.h"
#include "runtime/cache.h"

/* Reports each invariant of the group that does not hold. The mutex is held. O(blocks + max_seqs +
 * pins). */
void check_states(pkv_cache *cache, const struct state_group *states, struct report *report);

#endif
