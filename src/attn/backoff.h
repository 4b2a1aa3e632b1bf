/* SPDX-License-Identifier: MIT
 *
 * backoff.h: when to leave threads alone that come late. On a processor that has other work, a
 * thread may come milliseconds after it was wanted, and the region waits for it although its
 * work was long done by the others. After such a region calls run on the caller's thread alone for
 * a time, then another region is tried: a lost try costs a fraction of the time that follows it.
 *
 *   late: the caller waited longer than it worked    level + 1, and wait * 2^level alone
 *   not late                                         level - 1
 *
 * No result depends on it: bits are the same for any number of threads. */
#ifndef PKV_ATTN_BACKOFF_H
#define PKV_ATTN_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

struct backoff {
    int64_t alone_ns; /* still to be worked alone */
    int level;        /* in [0, BACKOFF_MAX_LEVEL] */
};

/* At most 1/32 of the time is lost to late threads. */
#define BACKOFF_MAX_LEVEL 5

static inline bool backoff_is_alone(const struct backoff *backoff)
{
    return backoff->alone_ns > 0;
}

/* A call ran alone, for work_ns. */
void backoff_ran_alone(struct backoff *backoff, int64_t work_ns);

/* A region ran for region_ns, of which its caller worked for work_ns and waited for the rest. */
void backoff_ran_region(struct backoff *backoff, int64_t region_ns, int64_t work_ns);

#endif
