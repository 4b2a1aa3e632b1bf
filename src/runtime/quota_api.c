/* SPDX-License-Identifier: MIT
 *
 * The public calls that set the quota of a namespace field and read what is held under it. */
#include "base/error.h"
#include "base/sized.h"
#include "prefix/prefix_quota.h"
#include "runtime/cache.h"
#include "runtime/namespace.h"

enum pkv_status pkv_namespace_quota(pkv_cache *cache, const struct pkv_namespace_field *field,
                                    int64_t num_blocks)
{
    enum pkv_status status = namespace_check_one(cache, field);
    if (status != PKV_OK) {
        return status;
    }
    if (num_blocks < 0) {
        return INVALID("num_blocks = %lld, below 0", (long long)num_blocks);
    }
    cache_lock(cache);
    status =
        prefix_index_set_quota(cache->reuse.index, field, num_blocks > 0 ? num_blocks : INT64_MAX);
    cache_unlock(cache);
    return status;
}

enum pkv_status pkv_namespace_usage(pkv_cache *cache, const struct pkv_namespace_field *field,
                                    struct pkv_field_usage *usage)
{
    enum pkv_status status = namespace_check_one(cache, field);
    if (status != PKV_OK) {
        return status;
    }
    status = sized_check("usage", usage, struct pkv_field_usage, cached);
    if (status != PKV_OK) {
        return status;
    }
    struct prefix_usage found = {0};
    cache_lock(cache);
    status = prefix_index_usage(cache->reuse.index, field, &found);
    cache_unlock(cache);
    if (status == PKV_OK) {
        const struct pkv_field_usage made = {.held = found.held,
                                             .quota = found.quota == INT64_MAX ? 0 : found.quota,
                                             .cached = found.cached};
        sized_fill(usage, &made);
    }
    return status;
}
