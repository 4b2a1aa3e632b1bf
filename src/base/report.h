/* SPDX-License-Identifier: MIT
 *
 * report.h: what the checkers (pkv_pool_check and its sisters) use to tell of broken invariants:
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

/* Where an invariant does not hold: counts it and logs "subject: text". Returns holds. */
bool report_expect(struct report *report, bool holds, const char *format, ...) PKV_PRINTF(3, 4);

#endif
