/* SPDX-License-Identifier: MIT
 *
 * Charges go to the namespace of a sequence's last blocks, which has all of its fields. */
#include "runtime/quota.h"

#include "base/minmax.h"
#include "prefix/prefix_quota.h"
#include "runtime/shortage.h"

static int32_t whole_namespace(const struct prefix_scope *scope)
{
    return scope->count > 0 ? scope->namespace_id[scope->count - 1] : PREFIX_NONE;
}

int64_t quota_room(const pkv_cache *cache, const struct prefix_scope *scope)
{
    const int32_t of = whole_namespace(scope);
    return cache_has_reuse(cache) && of != PREFIX_NONE ? prefix_index_room(cache->reuse.index, of)
                                                       : INT64_MAX;
}

struct quota quota_of_fields(const pkv_cache *cache, const struct pkv_namespace_field *fields,
                             int32_t num_fields)
{
    struct quota quota = {.limit = INT64_MAX, .room = INT64_MAX};
    for (int32_t i = 0; cache_has_reuse(cache) && i < num_fields; i++) {
        struct prefix_usage usage;
        const enum pkv_status status = prefix_index_usage(cache->reuse.index, &fields[i], &usage);
        if (status == PKV_OK && usage.quota != INT64_MAX) {
            quota.limit = min_i64(quota.limit, usage.quota);
            quota.room = min_i64(quota.room, usage.quota - usage.held);
        }
    }
    return quota;
}

struct quota quota_of_scope(const pkv_cache *cache, const struct prefix_scope *scope)
{
    struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS];
    int32_t num_fields = 0;
    if (quota_room(cache, scope) != INT64_MAX) {
        num_fields = prefix_index_fields(cache->reuse.index, whole_namespace(scope), fields);
    }
    return quota_of_fields(cache, fields, num_fields);
}

enum pkv_status quota_judge(enum pkv_status before, const struct quota *quota, int32_t row,
                            int64_t total, int64_t more, struct pkv_shortage *shortage)
{
    const struct shortage_demand demand = {
        .row = row,
        .group = SHORTAGE_NO_GROUP,
        .total = total,
        .more = more,
        .limit = quota->limit,
        .available = quota->room,
    };
    return more > quota->room ? shortage_judge(before, &demand, shortage) : before;
}

void quota_charge(pkv_cache *cache, struct group *group, int32_t seq, int32_t num_blocks)
{
    if (!cache_has_reuse(cache) || num_blocks == 0) {
        return;
    }
    group->tables.at[seq].charged += num_blocks;
    prefix_index_charge(cache->reuse.index, whole_namespace(&cache->seqs.at[seq].reuse.scope),
                        num_blocks);
}

void quota_settle(pkv_cache *cache, int32_t seq)
{
    for (int32_t g = 0; cache_has_reuse(cache) && g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        const struct seq_table *table = &group->tables.at[seq];
        quota_charge(cache, group, seq, seq_table_charge(table, table->end) - table->charged);
    }
}
