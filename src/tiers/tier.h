/* SPDX-License-Identifier: MIT
 *
 * tier.h: a tier as the runtime uses it: its table of functions, called through here alone, so that
 * what a caller's functions leave out or answer wrongly is seen in one place. Callers are trusted.
 * Thread-safe as the functions are. */
#ifndef PKV_TIERS_TIER_H
#define PKV_TIERS_TIER_H

#include "pagedkv/tier.h"

#define TIER_MAX_LABEL 31

/* Constant after create. */
struct pkv_tier {
    struct pkv_tier_ops ops;
    char name[TIER_MAX_LABEL + 1]; /* which ops.name points to */
};

/* Makes a tier of a name and functions that have been checked. PKV_NO_MEMORY. */
enum pkv_status tier_make(const struct pkv_tier_ops *ops, pkv_tier **tier);

/* The functions of the table. An item whose status the tier has left alone is PKV_IO. */
void tier_put(const pkv_tier *tier, struct pkv_tier_item *items, int32_t num_items);
void tier_get(const pkv_tier *tier, struct pkv_tier_item *items, int32_t num_items);
void tier_find(const pkv_tier *tier, struct pkv_tier_item *items, int32_t num_items);
void tier_remove(const pkv_tier *tier, struct pkv_tier_item *items, int32_t num_items);
void tier_count(const pkv_tier *tier, struct pkv_tier_counter *counters, int32_t num_counters);
void tier_list(const pkv_tier *tier, bool (*visit)(void *context, const char *name), void *context);

#endif
