/* SPDX-License-Identifier: MIT */
#include "rates.h"

#include <string.h>

/* Sets the tenths that have left the last second to 0. */
static void move_to(struct rates *rates, double now)
{
    const int64_t part = (int64_t)(now * RATE_PARTS);
    if (part - rates->part >= RATE_PARTS || part < rates->part) {
        memset(rates, 0, sizeof *rates);
        rates->part = part;
    }
    while (rates->part < part) {
        rates->part++;
        rates->tokens[rates->part % RATE_PARTS] = 0;
        rates->bytes[rates->part % RATE_PARTS] = 0;
    }
}

void rates_add(struct rates *rates, double now, int64_t tokens, int64_t bytes)
{
    move_to(rates, now);
    rates->tokens[rates->part % RATE_PARTS] += tokens;
    rates->bytes[rates->part % RATE_PARTS] += bytes;
}

void rates_read(struct rates *rates, double now, double *tokens, double *bytes)
{
    int64_t all_tokens = 0, all_bytes = 0;
    move_to(rates, now);
    for (int i = 0; i < RATE_PARTS; i++) {
        all_tokens += rates->tokens[i];
        all_bytes += rates->bytes[i];
    }
    *tokens = (double)all_tokens;
    *bytes = (double)all_bytes;
}
