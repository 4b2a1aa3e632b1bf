/* SPDX-License-Identifier: MIT
 *
 * shortage.h: the verdict on what an admission or a row of a step wants to take. It is judged
 * against one limit after another: the blocks of each group, then the quota of its namespace.
 *
 *   total > limit      it can never be had: PKV_NEVER_FITS
 *   more > available   not now: PKV_NO_BLOCKS
 *
 * "Never" goes before "not now", whichever limit comes first, because a scheduler waits on the one
 * and must not wait on the other; among equals the first one found stays. A leaf: it knows numbers
 * alone. O(1). */
#ifndef PKV_RUNTIME_SHORTAGE_H
#define PKV_RUNTIME_SHORTAGE_H

#include "pagedkv/cache.h"

#define SHORTAGE_NO_ROW (-1)   /* an admission */
#define SHORTAGE_NO_GROUP (-1) /* a quota */

/* What is wanted under one limit. In blocks; more is part of total. */
struct shortage_demand {
    int32_t row;       /* or SHORTAGE_NO_ROW */
    int32_t group;     /* or SHORTAGE_NO_GROUP: limit and available are those of a quota */
    int64_t total;     /* held once it is taken */
    int64_t more;      /* to be taken now */
    int64_t limit;     /* that can ever be held */
    int64_t available; /* that can be taken now; below 0 when a quota was lowered */
};

/* A caller's shortage that a call may fill; NULL = not wanted. PKV_INVALID_ARGUMENT. */
enum pkv_status shortage_check(const struct pkv_shortage *shortage);

/* Fills *shortage, but for evictable, which is 0. */
void shortage_fill(const struct shortage_demand *demand, struct pkv_shortage *shortage);

/* The verdict after one more limit; `before` is that of the limits before, PKV_OK at first. When it
 * differs from `before`, *shortage was filled. */
static inline enum pkv_status shortage_judge(enum pkv_status before,
                                             const struct shortage_demand *demand,
                                             struct pkv_shortage *shortage)
{
    const bool never = demand->total > demand->limit;
    const bool is_short = demand->more > demand->available;
    if (before == PKV_NEVER_FITS || (!never && (before != PKV_OK || !is_short))) {
        return before;
    }
    shortage_fill(demand, shortage);
    return never ? PKV_NEVER_FITS : PKV_NO_BLOCKS;
}

/* Returns `status`, PKV_NO_BLOCKS or PKV_NEVER_FITS, with a last-error text about a shortage that
 * was judged. The config is the cache's, as in force. */
enum pkv_status shortage_refuse(const struct pkv_cache_config *config, enum pkv_status status,
                                const struct pkv_shortage *shortage);

/* Whether a call that answers so reports a shortage. */
static inline bool shortage_is_why(enum pkv_status status)
{
    return status == PKV_NO_BLOCKS || status == PKV_NEVER_FITS;
}

#endif
