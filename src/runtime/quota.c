/* SPDX-License-Identifier: MIT
 *
 * Charges go to the namespace of a sequence's last blocks, which has all of its fields. Begin
 * plans: it charges each row as it decides, so that rows of one batch see what those before them
 * take. */
#include "runtime/quota.h"

#include "base/error.h"
#include "prefix/prefix_quota.h"
#include "runtime/prefix.h"
#include "runtime/seq_table.h"

static int32_t whole_namespace(const struct prefix_scope *scope)
{
    return scope->count > 0 ? scope->namespace_id[scope->count - 1] : PREFIX_NONE;
}

int64_t quota_room(const pkv_cache *cache, const struct prefix_scope *scope)
{
    const int32_t of = whole_namespace(scope);
    return cache_has_prefix(cache) && of != PREFIX_NONE ? prefix_index_room(cache->prefix.index, of)
                                                        : INT64_MAX;
}

int64_t quota_of(const pkv_cache *cache, const struct prefix_scope *scope)
{
    const int32_t of = whole_namespace(scope);
    struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS];
    int64_t least = INT64_MAX;
    if (!cache_has_prefix(cache) || of == PREFIX_NONE) {
        return least;
    }
    const int32_t count = prefix_index_fields(cache->prefix.index, of, fields);
    for (int32_t i = 0; i < count; i++) {
        struct prefix_usage usage;
        const enum pkv_status status = prefix_index_usage(cache->prefix.index, &fields[i], &usage);
        if (status == PKV_OK && usage.quota < least) {
            least = usage.quota;
        }
    }
    return least;
}

void quota_plan(pkv_cache *cache, struct group *group, int32_t seq, int32_t num_blocks)
{
    if (!cache_has_prefix(cache) || num_blocks == 0) {
        return;
    }
    group->seq_tables[seq].charged += num_blocks;
    prefix_index_charge(cache->prefix.index, whole_namespace(&cache->seqs[seq].prefix.scope),
                        num_blocks);
}

void quota_settle(pkv_cache *cache, int32_t seq)
{
    for (int32_t g = 0; cache_has_prefix(cache) && g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        const struct seq_table *table = &group->seq_tables[seq];
        quota_plan(cache, group, seq, seq_table_num_mapped(table, table->end) - table->charged);
    }
}

/* A caller's field, when there is a cache to look for it. */
static enum pkv_status check_field(const pkv_cache *cache, const struct pkv_namespace_field *field,
                                   struct prefix_name *name)
{
    const enum pkv_status status = prefix_require(cache);
    if (status != PKV_OK) {
        return status;
    }
    return field != NULL ? prefix_name_of(field, 1, name)
                         : refuse(PKV_INVALID_ARGUMENT, "field is NULL");
}

enum pkv_status pkv_namespace_quota(pkv_cache *cache, const struct pkv_namespace_field *field,
                                    int64_t num_blocks)
{
    struct prefix_name name;
    enum pkv_status status = check_field(cache, field, &name);
    if (status != PKV_OK) {
        return status;
    }
    if (num_blocks < 0) {
        return refuse(PKV_INVALID_ARGUMENT, "num_blocks = %lld, below 0", (long long)num_blocks);
    }
    cache_lock(cache);
    status = prefix_index_set_quota(cache->prefix.index, &name.fields[0],
                                    num_blocks > 0 ? num_blocks : INT64_MAX);
    cache_unlock(cache);
    return status;
}

enum pkv_status pkv_namespace_usage(pkv_cache *cache, const struct pkv_namespace_field *field,
                                    struct pkv_field_usage *usage)
{
    struct prefix_name name;
    enum pkv_status status = check_field(cache, field, &name);
    if (status != PKV_OK) {
        return status;
    }
    if (usage == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "usage is NULL");
    }
    struct prefix_usage found = {0};
    cache_lock(cache);
    status = prefix_index_usage(cache->prefix.index, &name.fields[0], &found);
    cache_unlock(cache);
    if (status == PKV_OK) {
        *usage = (struct pkv_field_usage){.held = found.held,
                                          .quota = found.quota == INT64_MAX ? 0 : found.quota,
                                          .cached = found.cached};
    }
    return status;
}
