/* SPDX-License-Identifier: MIT
 *
 * Cached blocks that nobody holds are free ones: a request that adopts them takes them off the free
 * count just as new blocks do, so both together are judged against it. */
#include "runtime/admission.h"

#include "base/error.h"
#include "base/minmax.h"
#include "prefix/prefix_blocks.h"
#include "runtime/match.h"
#include "runtime/prompt.h"
#include "runtime/shortage.h"

enum pkv_status admission_check(const pkv_cache *cache, const struct pkv_prompt *prompt,
                                int32_t reserve_tokens, int32_t max_cached)
{
    if (reserve_tokens < 0 || max_cached < 0) {
        return refuse(PKV_INVALID_ARGUMENT, "reserve_tokens = %d, max_cached = %d: one is below 0",
                      reserve_tokens, max_cached);
    }
    return prompt_check(prompt, cache_has_reuse(cache));
}

/* Blocks of the matched run that a table maps and nobody holds. */
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

/* Where a table that has adopted a run ends once the request's cells are reserved. */
static int32_t reserved_end(const pkv_cache *cache, const struct group *group,
                            const struct admission_request *request, const struct seq_table *table)
{
    const int32_t at_once =
        config_blocks_for(group->config, cache->config.max_step_tokens, request->num_cells,
                          group_kept_prefix(group, request->model), request->model->max_rewind);
    const int32_t all = config_blocks_of_cells(request->num_cells, group->config->block_size);
    /* A window that begins further on ends further on. */
    const int64_t end = (int64_t)at_once + table->hole_end - table->kept_end;
    return max_i32(end < all ? (int32_t)end : all, table->end);
}

static struct admission_demand demand_of(const pkv_cache *cache, const struct group *group,
                                         const struct admission_request *request,
                                         int32_t num_adopted)
{
    const int32_t kept_prefix = group_kept_prefix(group, request->model);
    struct admission_demand demand = {.table = seq_table_adopted(&group->tables, kept_prefix,
                                                                 num_adopted,
                                                                 request->model->max_rewind)};
    int32_t num_mapped = 0;
    demand.end = reserved_end(cache, group, request, &demand.table);
    if (num_adopted > 0) {
        demand.num_adopted = seq_table_num_mapped(&demand.table, num_adopted);
        demand.num_revived = num_revived(cache, group, &demand.table);
    } else if (request->index != NO_SEQ) {
        const struct seq_table *before = &group->tables.at[request->index];
        num_mapped = seq_table_num_mapped(before, before->end);
        demand.end = max_i32(demand.end, before->end);
    }
    demand.num_total = seq_table_num_mapped(&demand.table, demand.end);
    demand.num_new = demand.num_total - demand.num_adopted - num_mapped;
    return demand;
}

static enum pkv_status judge_group(const pkv_cache *cache, int32_t g, enum pkv_status before,
                                   struct pkv_shortage *shortage)
{
    const struct group *group = &cache->groups[g];
    const struct admission_demand *demand = &cache->demands[g];
    const int32_t watermark = cache->config.watermark_blocks;
    const struct shortage_demand wanted = {
        .row = SHORTAGE_NO_ROW,
        .group = g,
        .total = demand->num_total,
        .more = demand->num_new + demand->num_revived,
        .limit = group->config->num_blocks - watermark,
        .available = max_i32(block_num_free(&group->blocks) - watermark, 0),
    };
    const enum pkv_status status = shortage_judge(before, &wanted, shortage);
    if (status != before) {
        shortage->evictable = block_num_cached(&group->blocks);
    }
    return status;
}

/* Works out what is to be taken of every group, and judges all of it. */
static enum pkv_status judge(pkv_cache *cache, const struct admission_request *request,
                             struct admission_decision *decision, struct pkv_shortage *shortage)
{
    enum pkv_status status = PKV_OK;
    int64_t num_charged = 0;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        if (group_is_paged(&cache->groups[g])) {
            struct admission_demand *demand = &cache->demands[g];
            *demand = demand_of(cache, &cache->groups[g], request, decision->num_adopted);
            status = judge_group(cache, g, status, shortage);
            decision->num_blocks += demand->num_total;
            num_charged += demand->num_adopted + demand->num_new;
        }
    }
    return quota_judge(status, &request->quota, SHORTAGE_NO_ROW, decision->num_blocks, num_charged,
                       shortage);
}

/* The cached run to adopt: none on top of blocks that were reserved before. */
static int32_t match(pkv_cache *cache, const struct admission_request *request)
{
    const bool has_reserved = request->index != NO_SEQ && cache_has_reuse(cache) &&
                              cache->groups[0].tables.at[request->index].end > 0;
    cache->reuse.num_furthest = 0;
    return has_reserved ? 0
                        : match_run(cache, request->model, request->prompt,
                                    match_max_blocks(cache, request->prompt, request->max_cached));
}

enum pkv_status admission_decide(pkv_cache *cache, const struct admission_request *request,
                                 struct admission_decision *decision, struct pkv_shortage *shortage)
{
    *decision = (struct admission_decision){0};
    if (request->num_cells > cache->config.max_seq_len) {
        *shortage = (struct pkv_shortage){.row = SHORTAGE_NO_ROW, .group = SHORTAGE_NO_GROUP};
        return refuse(PKV_NEVER_FITS, "%lld tokens, max_seq_len is %d",
                      (long long)request->num_cells, cache->config.max_seq_len);
    }
    decision->num_adopted = match(cache, request);
    const enum pkv_status status = judge(cache, request, decision, shortage);
    return status == PKV_OK ? PKV_OK : shortage_refuse(&cache->config, status, shortage);
}
