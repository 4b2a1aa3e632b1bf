/* SPDX-License-Identifier: MIT
 *
 * deadline.h: how long a call may wait: a time on the system's monotonic clock, as condition
 * variables take it, or none. The clock bounds waits and decides nothing else. */
#ifndef PKV_BASE_DEADLINE_H
#define PKV_BASE_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define DEADLINE_NS 1000000000u
/* Longer waits have no end: a time_t may be 32 bits. */
#define DEADLINE_ENDLESS_SECONDS ((uint64_t)1 << 31)

struct deadline {
    bool has_end;
    struct timespec end; /* now, when there is none */
};

static inline struct timespec deadline_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time;
}

/* So many nanoseconds from now; UINT64_MAX = never. */
static inline struct deadline deadline_in(uint64_t timeout_ns)
{
    struct deadline made = {.has_end = timeout_ns / DEADLINE_NS < DEADLINE_ENDLESS_SECONDS,
                            .end = deadline_now()};
    if (made.has_end) {
        const uint64_t ns = (uint64_t)made.end.tv_nsec + timeout_ns % DEADLINE_NS;
        made.end.tv_sec += (time_t)(timeout_ns / DEADLINE_NS + ns / DEADLINE_NS);
        made.end.tv_nsec = (long)(ns % DEADLINE_NS);
    }
    return made;
}

static inline bool deadline_is_before(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

static inline bool deadline_is_over(const struct deadline *deadline)
{
    const struct timespec now = deadline_now();
    return deadline->has_end && !deadline_is_before(&now, &deadline->end);
}

#endif
