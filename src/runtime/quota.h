/* SPDX-License-Identifier: MIT
 *
 * quota.h: how many blocks the sequences of a namespace hold, counted by the index for each field.
 * A sequence is charged for the entries that its tables map, in all groups together:
 *
 *   charged of a table = entries that it maps, whenever the mutex is free
 *
 * The mutex is held. O(groups), and O(fields) when something changed. */
#ifndef PKV_RUNTIME_QUOTA_H
#define PKV_RUNTIME_QUOTA_H

#include "runtime/cache.h"

/* Blocks that a sequence of this scope may still take; INT64_MAX without a quota. */
int64_t quota_room(const pkv_cache *cache, const struct prefix_scope *scope);

/* The least quota of the scope's fields; INT64_MAX without one. O(fields). */
int64_t quota_of(const pkv_cache *cache, const struct prefix_scope *scope);

/* Charges what the tables of a sequence map now instead of what they did. */
void quota_settle(pkv_cache *cache, int32_t seq);

/* Charges num_blocks more (or fewer) in one group ahead of taking them. */
void quota_plan(pkv_cache *cache, struct group *group, int32_t seq, int32_t num_blocks);

#endif
