/* SPDX-License-Identifier: MIT
 *
 * rates.h: tokens and bytes of the last second, from what each step reports. */
#ifndef SERVER_RATES_H
#define SERVER_RATES_H

#include <stdint.h>

enum { RATE_PARTS = 10 };

/* A second in tenths, by the clock that the caller brings. */
struct rates {
    int64_t part; /* number of the newest tenth since the clock's origin */
    int64_t tokens[RATE_PARTS];
    int64_t bytes[RATE_PARTS];
};

void rates_add(struct rates *rates, double now, int64_t tokens, int64_t bytes);
void rates_read(struct rates *rates, double now, double *tokens, double *bytes);

#endif
