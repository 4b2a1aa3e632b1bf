/* SPDX-License-Identifier: MIT
 *
 * backoff.c: the two rules of backoff.h. */
#include "attn/backoff.h"

#include "base/minmax.h"

/* A wait that is no sign: the last task of another thread, a wake-up, an interrupt. */
#define TOLERATED_NS 50000

/* Longer waits count as this one: a process may have been stopped for an hour. */
#define MAX_WAIT_NS 20000000

void backoff_ran_alone(struct backoff *backoff, int64_t work_ns)
{
    backoff->alone_ns = max_i64(0, backoff->alone_ns - work_ns);
}

void backoff_ran_region(struct backoff *backoff, int64_t region_ns, int64_t work_ns)
{
    const int64_t wait_ns = region_ns - work_ns;
    const bool is_late = wait_ns > TOLERATED_NS && wait_ns - TOLERATED_NS > work_ns;
    if (is_late) {
        backoff->level = min_i32(backoff->level + 1, BACKOFF_MAX_LEVEL);
        backoff->alone_ns = min_i64(wait_ns, MAX_WAIT_NS) << backoff->level;
    } else {
        backoff->level = max_i32(backoff->level - 1, 0);
    }
}
