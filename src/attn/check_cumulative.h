/* SPDX-License-Identifier: MIT
 *
 * check_cumulative.h: cumulative lengths of a caller. */
#ifndef PKV_ATTN_CHECK_CUMULATIVE_H
#define PKV_ATTN_CHECK_CUMULATIVE_H

#include <stdint.h>

#include "base/error.h"

/* cumulative [batch + 1] lengths: 0 first, never falling, total last (total < 0: any).
 * PKV_INVALID_ARGUMENT. */
static inline enum pkv_status check_cumulative(const int32_t *cumulative, int32_t batch,
                                               int32_t total, const char *name)
{
    if (cumulative[0] != 0) {
        return INVALID("%s[0] = %d, not 0", name, cumulative[0]);
    }
    for (int32_t b = 0; b < batch; b++) {
        if (cumulative[b + 1] < cumulative[b]) {
            return INVALID("%s[%d] = %d, below the entry before it, %d", name, b + 1,
                           cumulative[b + 1], cumulative[b]);
        }
    }
    if (total >= 0 && cumulative[batch] != total) {
        return INVALID("%s[%d] = %d, not the %d tokens of the call", name, batch, cumulative[batch],
                       total);
    }
    return PKV_OK;
}

#endif
