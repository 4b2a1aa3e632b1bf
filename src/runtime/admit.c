/* SPDX-License-Identifier: MIT
 *
 * Admission: the longest cached run is found, what the request then takes of every group is worked
 * out, all of it is checked, and only then anything changes. The probe is the same up to there.
 *
 * Cached blocks that nobody holds are free ones: a request that adopts them takes them off the free
 * count just as new blocks do, so both together are weighed against it. */
#include "base/error.h"
#include "prefix/prefix_blocks.h"
#include "prefix/prefix_quota.h"
#include "runtime/match.h"
#include "runtime/prompt.h"
#include "runtime/publish.h"
#include "runtime/quota.h"
#include "runtime/seq_options.h"

/* What admit and probe are asked. */
struct request {
    const struct seq *model; /* its options */
    int32_t index;           /* NO_SEQ: a probe */
    const struct pkv_prompt *prompt;
    int64_t num_cells;
    int32_t max_cached;
    int64_t room; /* blocks that quotas leave, and the least of them */
    int64_t quota;
};

/* What it takes in one group once num_adopted leading blocks are found.
 *   num_total = num_adopted mapped + num_reserved before + num_new */
struct demand {
    struct seq_table table; /* after adoption */
    int32_t end;            /* where the table ends then */
    int32_t num_total;
    int32_t num_new;
    int32_t num_revived; /* adopted blocks that were free */
};

static int32_t num_revived(const pkv_cache *cache, const struct group *group,
                           const struct seq_table *table)
{
    int32_t count = 0;
    for (int32_t i = 0; i < table->end; i++) {
        if (seq_table_maps(table, i)) {
            const int32_t block =
                prefix_index_block(cache->reuse.index, cache->reuse.matched[i], group->index);
            count += pkv_pool_ref_count(group->blocks.pool, block) == 0;
        }
    }
    return count;
}

static struct demand demand_of(const pkv_cache *cache, const struct group *group,
                               const struct request *request, int32_t num_adopted)
{
    const int32_t kept_prefix = group_kept_prefix(group, request->model);
    const int32_t max_rewind = request->model->max_rewind;
    struct demand demand = {
        .table = seq_table_adopted(&group->tables, kept_prefix, num_adopted, max_rewind)};
    /* A window that begins further on ends further on. */
    const int32_t all = config_blocks_of_cells(request->num_cells, group->config->block_size);
    const int64_t end = (int64_t)config_blocks_for(group->config, cache->config.max_step_tokens,
                                                   request->num_cells, kept_prefix, max_rewind) +
                        demand.table.hole_end - demand.table.kept_end;
    demand.end = end < all ? (int32_t)end : all;
    demand.end = demand.end > num_adopted ? demand.end : num_adopted;
    int32_t has = num_adopted > 0 ? seq_table_num_mapped(&demand.table, num_adopted) : 0;
    if (request->index != NO_SEQ && num_adopted == 0) {
        const struct seq_table *before = &group->tables.at[request->index];
        demand.end = demand.end > before->end ? demand.end : before->end;
        has = seq_table_num_mapped(before, before->end);
    }
    demand.num_total = seq_table_num_mapped(&demand.table, demand.end);
    demand.num_new = demand.num_total - has;
    demand.num_revived = num_adopted > 0 ? num_revived(cache, group, &demand.table) : 0;
    return demand;
}

static enum pkv_status refuse_group(const pkv_cache *cache, int32_t g, const struct demand *demand,
                                    struct pkv_shortage *shortage)
{
    const struct group *group = &cache->groups[g];
    const int32_t watermark = cache->config.watermark_blocks;
    const bool never = demand->num_total > group->config->num_blocks - watermark;
    const int32_t need = never ? demand->num_total : demand->num_new + demand->num_revived;
    const int32_t num_free = block_num_free(&group->blocks);
    const int32_t available = num_free > watermark ? num_free - watermark : 0;
    *shortage = (struct pkv_shortage){.row = -1,
                                      .group = g,
                                      .need = need,
                                      .free = available,
                                      .evictable = block_num_cached(&group->blocks)};
    if (never) {
        return refuse(PKV_NEVER_FITS, "group %d: %d blocks needed, it has %d, watermark %d", g,
                      need, group->config->num_blocks, watermark);
    }
    return refuse(PKV_NO_BLOCKS, "group %d: %d blocks needed, %d free", g, need, available);
}

static enum pkv_status check_quota(const struct request *request, int64_t num_total,
                                   int64_t num_more, struct pkv_shortage *shortage)
{
    if (num_more <= request->room) {
        return PKV_OK;
    }
    const bool never = num_total > request->quota;
    *shortage = (struct pkv_shortage){.row = -1,
                                      .group = -1,
                                      .need = never ? num_total : num_more,
                                      .free = request->room > 0 ? request->room : 0,
                                      .quota = request->quota};
    return refuse(never ? PKV_NEVER_FITS : PKV_NO_BLOCKS,
                  "%lld blocks needed, %lld left of the namespace's quota of %lld",
                  (long long)shortage->need, (long long)shortage->free, (long long)request->quota);
}

/* What no waiting can help goes before what is short now, whichever group comes first. */
static enum pkv_status check_room(const pkv_cache *cache, const struct request *request,
                                  int32_t num_adopted, struct pkv_shortage *shortage)
{
    const int32_t watermark = cache->config.watermark_blocks;
    enum pkv_status worst = PKV_OK;
    int64_t num_total = 0;
    int64_t num_more = 0;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        const struct group *group = &cache->groups[g];
        if (!group_is_paged(group)) {
            continue;
        }
        const struct demand demand = demand_of(cache, group, request, num_adopted);
        const int32_t taken = demand.num_new + demand.num_revived;
        const bool is_short = taken > 0 && taken > block_num_free(&group->blocks) - watermark;
        const bool never = demand.num_total > group->config->num_blocks - watermark;
        if (never || (is_short && worst == PKV_OK)) {
            worst = refuse_group(cache, g, &demand, shortage);
        }
        if (never) {
            return worst;
        }
        num_total += demand.num_total;
        num_more += demand.num_new;
        num_more += num_adopted > 0 ? seq_table_num_mapped(&demand.table, num_adopted) : 0;
    }
    if (worst == PKV_OK || num_total > request->quota) {
        const enum pkv_status status = check_quota(request, num_total, num_more, shortage);
        worst = status != PKV_OK ? status : worst;
    }
    return worst;
}

/* What would be adopted, and whether it fits; changes nothing. */
static enum pkv_status weigh(pkv_cache *cache, const struct request *request, int32_t *num_adopted,
                             struct pkv_shortage *shortage)
{
    if (request->num_cells > cache->config.max_seq_len) {
        *shortage = (struct pkv_shortage){.row = -1, .group = -1};
        return refuse(PKV_NEVER_FITS, "%lld tokens, max_seq_len is %d",
                      (long long)request->num_cells, cache->config.max_seq_len);
    }
    const bool has_reserved = request->index != NO_SEQ && cache_has_reuse(cache) &&
                              cache->groups[0].tables.at[request->index].end > 0;
    *num_adopted = has_reserved
                       ? 0
                       : match_run(cache, request->model, request->prompt,
                                   match_max_blocks(cache, request->prompt, request->max_cached));
    return check_room(cache, request, *num_adopted, shortage);
}

static int64_t num_blocks_of(const pkv_cache *cache, const struct request *request,
                             int32_t num_adopted)
{
    int64_t count = 0;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        if (group_is_paged(&cache->groups[g])) {
            count += demand_of(cache, &cache->groups[g], request, num_adopted).num_total;
        }
    }
    return count;
}

/* Can no longer fail. Adopted blocks of all groups are held before any block is taken. */
static void take(pkv_cache *cache, const struct request *request, int32_t num_adopted)
{
    for (int32_t g = 0; num_adopted > 0 && g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        const struct demand demand = demand_of(cache, group, request, num_adopted);
        group->tables.at[request->index] = demand.table;
    }
    if (cache_has_reuse(cache)) {
        seq_tokens_admit(&cache->reuse.tokens, request->index,
                         &cache->seqs.at[request->index].tokens, request->prompt);
    }
    publish_adopt(cache, request->index, num_adopted);
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        if (group_is_paged(group)) {
            struct seq_table *table = &group->tables.at[request->index];
            const struct demand demand = demand_of(cache, group, request, num_adopted);
            seq_table_reserve(&group->tables, request->index,
                              demand.end > table->end ? demand.end : table->end,
                              request->num_cells);
        }
    }
    quota_settle(cache, request->index);
}

static void count(pkv_cache *cache, const struct request *request, int32_t num_cached)
{
    struct counters *counts = &cache->counters;
    struct seq_reuse *reuse = &cache->seqs.at[request->index].reuse;
    const uint64_t asked = (uint64_t)request->prompt->num_tokens;
    counts->num_admissions++;
    if (!cache_has_reuse(cache)) {
        return;
    }
    if (reuse->was_admitted) {
        counts->readmitted_tokens += asked;
        counts->rehit_tokens += (uint64_t)num_cached;
    } else {
        counts->queried_tokens += asked;
        counts->hit_tokens += (uint64_t)num_cached;
    }
    reuse->was_admitted = true;
}

static enum pkv_status admit(pkv_cache *cache, pkv_seq handle, struct request *request,
                             struct pkv_admission *admission, struct pkv_shortage *shortage)
{
    struct seq *seq = NULL;
    if (cache->is_closed) {
        return refuse(PKV_BUSY, "the cache is closed");
    }
    enum pkv_status status = sequence_find_idle(&cache->seqs, handle, &seq);
    if (status != PKV_OK) {
        return status;
    }
    if (seq->length != 0) {
        return refuse(PKV_INVALID_ARGUMENT,
                      "the sequence holds %d tokens; only an empty one is "
                      "admitted",
                      seq->length);
    }
    request->model = seq;
    request->index = sequence_index(&cache->seqs, seq);
    request->room = quota_room(cache, &seq->reuse.scope);
    request->quota = request->room == INT64_MAX ? INT64_MAX : quota_of(cache, &seq->reuse.scope);
    int32_t num_adopted = 0;
    status = weigh(cache, request, &num_adopted, shortage);
    if (status != PKV_OK) {
        return status;
    }
    const int32_t num_cached = num_adopted * cache->reuse.block_size;
    *admission = (struct pkv_admission){
        .num_cached = num_cached,
        .num_to_write = request->prompt->num_tokens - num_cached,
        .num_blocks = (int32_t)num_blocks_of(cache, request, num_adopted),
    };
    take(cache, request, num_adopted);
    count(cache, request, num_cached);
    return PKV_OK;
}

static enum pkv_status check_request(const struct pkv_prompt *prompt, int32_t reserve_tokens,
                                     int32_t max_cached)
{
    if (reserve_tokens < 0 || max_cached < 0) {
        return refuse(PKV_INVALID_ARGUMENT, "reserve_tokens = %d, max_cached = %d: one is below 0",
                      reserve_tokens, max_cached);
    }
    return prompt_check(prompt);
}

enum pkv_status pkv_seq_admit(pkv_cache *cache, pkv_seq seq, const struct pkv_prompt *prompt,
                              int32_t reserve_tokens, int32_t max_cached,
                              struct pkv_admission *admission, struct pkv_shortage *shortage)
{
    if (cache == NULL || admission == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "%s is NULL", cache == NULL ? "cache" : "admission");
    }
    enum pkv_status status = check_request(prompt, reserve_tokens, max_cached);
    if (status != PKV_OK) {
        return status;
    }
    struct request request = {
        .prompt = prompt,
        .num_cells = (int64_t)prompt->num_tokens + reserve_tokens,
        .max_cached = max_cached,
    };
    struct pkv_shortage found = {0};
    cache_lock(cache);
    status = admit(cache, seq, &request, admission, &found);
    cache_unlock(cache);
    if (shortage != NULL && (status == PKV_NO_BLOCKS || status == PKV_NEVER_FITS)) {
        *shortage = found;
    }
    return status;
}

/* Quotas by field: a set of fields that nobody has yet can be short of one all the same. */
static void find_quota(const pkv_cache *cache, const struct namespace_fields *fields,
                       struct request *request)
{
    request->room = INT64_MAX;
    request->quota = INT64_MAX;
    for (int32_t i = 0; cache_has_reuse(cache) && i < fields->count; i++) {
        struct prefix_usage usage;
        const enum pkv_status status =
            prefix_index_usage(cache->reuse.index, &fields->at[i], &usage);
        if (status != PKV_OK || usage.quota == INT64_MAX) {
            continue;
        }
        const int64_t room = usage.quota - usage.held;
        request->room = room < request->room ? room : request->room;
        request->quota = usage.quota < request->quota ? usage.quota : request->quota;
    }
}

static void probe_under_lock(pkv_cache *cache, struct request *request,
                             const struct namespace_fields *fields, struct pkv_probe *probe)
{
    int32_t num_adopted = 0;
    if (cache->is_closed) {
        probe->status = PKV_BUSY;
        return;
    }
    find_quota(cache, fields, request);
    probe->status = weigh(cache, request, &num_adopted, &probe->shortage);
    probe->num_cached = num_adopted * cache->reuse.block_size;
    probe->num_pending = match_pending(cache, request->model, request->prompt, probe->num_cached,
                                       request->max_cached);
    if (probe->status == PKV_OK) {
        probe->num_blocks = (int32_t)num_blocks_of(cache, request, num_adopted);
    }
}

enum pkv_status pkv_cache_probe(pkv_cache *cache, const struct pkv_seq_options *options,
                                const struct pkv_prompt *prompt, int32_t reserve_tokens,
                                int32_t max_cached, struct pkv_probe *probe)
{
    if (cache == NULL || probe == NULL) {
        return refuse(PKV_INVALID_ARGUMENT, "%s is NULL", cache == NULL ? "cache" : "probe");
    }
    struct seq model;
    struct namespace_fields fields;
    enum pkv_status status = check_request(prompt, reserve_tokens, max_cached);
    if (status == PKV_OK) {
        status = seq_options_check(cache, options, &model, &fields);
    }
    if (status != PKV_OK) {
        return status;
    }
    struct request request = {
        .model = &model,
        .index = NO_SEQ,
        .prompt = prompt,
        .num_cells = (int64_t)prompt->num_tokens + reserve_tokens,
        .max_cached = max_cached,
    };
    struct pkv_probe found = {0};
    cache_lock(cache);
    if (cache_has_reuse(cache)) {
        status = namespace_look_up(cache, &fields, &model);
    }
    if (status == PKV_OK) {
        probe_under_lock(cache, &request, &fields, &found);
    }
    cache_unlock(cache);
    if (status == PKV_OK) {
        *probe = found;
    }
    return status;
}
