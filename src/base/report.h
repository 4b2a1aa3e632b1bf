/* SPDX-License-Identifier: MIT
 *
 * report.h: what the checkers (pkv_pool_check and the like) use to tell of broken invariants:
 *
 *     struct report report = {&pool->hooks, "block pool", 0};
 *     report_expect(&report, count >= 0, "a reference count is negative (block %d)", id);
 *     return report.num_broken;
 *
 * A checker changes and repairs nothing, and goes on after a breach. */
#ifndef PKV_BASE_REPORT_H
#define PKV_BASE_REPORT_H

#include "base/hooks.h"

struct report {
    const struct pkv_hooks *hooks;
    const char *subject; /* begins each line */
    int32_t num_broken;
};

/* Where an invariant does not hold: counts it and logs "subject: text". Returns holds. A macro, so
 * that an invariant that holds costs its comparison and no call. */
#define report_expect(report, holds, ...)                                                          \
    report_result((holds) || report_broken((report), __VA_ARGS__))

/* Counts and logs a broken invariant. Returns false. */
bool report_broken(struct report *report, const char *format, ...) PKV_PRINTF(2, 3);

/* Compilers warn of an expression whose value is ignored, but not of a call. */
static inline bool report_result(bool holds)
{
    return holds;
}

#endif
