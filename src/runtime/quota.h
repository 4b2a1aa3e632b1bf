/* SPDX-License-Identifier: MIT
 *
 * quota.h: how many blocks the sequences of a namespace hold, counted by the index for each field.
 * A sequence is charged for the entries that its tables map or that it was promised, in all groups
 * together:
 *
 *   charged of a table = seq_table_charge(table, its end), whenever the mutex is free
 *
 * The mutex is held. O(groups), and O(fields) when something changed. */
#ifndef PKV_RUNTIME_QUOTA_H
#define PKV_RUNTIME_QUOTA_H

#include "runtime/cache.h"

/* The tightest quotas of a set of fields; INT64_MAX without one. room: limit - held, the least over
 * the fields; below 0 when a quota was lowered. */
struct quota {
    int64_t limit;
    int64_t room;
};

/* Blocks that a sequence of this scope may still take: the room alone, without a look-up. */
int64_t quota_room(const pkv_cache *cache, const struct prefix_scope *scope);

/* Of a sequence's scope, and of fields that may have no namespace yet. */
struct quota quota_of_scope(const pkv_cache *cache, const struct prefix_scope *scope);
struct quota quota_of_fields(const pkv_cache *cache, const struct pkv_namespace_field *fields,
                             int32_t num_fields);

/* The verdict (shortage.h) on `more` blocks that make `total` of a sequence. */
enum pkv_status quota_judge(enum pkv_status before, const struct quota *quota, int32_t row,
                            int64_t total, int64_t more, struct pkv_shortage *shortage);

/* Charges num_blocks more (or fewer) in one group, before they are taken. */
void quota_charge(pkv_cache *cache, struct group *group, int32_t seq, int32_t num_blocks);

/* Charges what is to be charged of the tables of a sequence now, instead of what was. */
void quota_settle(pkv_cache *cache, int32_t seq);

#endif
