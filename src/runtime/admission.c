/* SPDX-License-Identifier: MIT
 *
 * Cached blocks that nobody holds are free ones: a request that adopts them takes them off the free
 * count just as it does what it is promised, so both together are judged against it. */
#include "runtime/admission.h"

#include "base/error.h"
#include "base/minmax.h"
#include "prefix/prefix_blocks.h"
#include "runtime/match.h"
#include "runtime/prompt.h"
#include "runtime/shortage.h"

_Static_assert(SHORTAGE_NO_ROW == PROMPT_NO_ROW, "prompts and shortages name rows alike");

enum pkv_status admission_take(const pkv_cache *cache, const struct pkv_prompt *given,
                               int32_t reserve_tokens, int32_t max_cached,
                               struct pkv_prompt *prompt)
{
    if (reserve_tokens < 0 || max_cached < 0) {
        return INVALID("reserve_tokens = %d, max_cached = %d: one is below 0", reserve_tokens,
                       max_cached);
    }
    return prompt_take(given, cache_has_reuse(cache), prompt);
}

/* Blocks of the matched prefix that a table maps, and that take a spare one each. */
static int32_t num_spare_adopted(const pkv_cache *cache, const struct group *group,
                                 const struct seq_table *table, int32_t num_whole)
{
    const struct reuse *reuse = &cache->reuse;
    int32_t count = 0;
    for (int32_t i = 0; i < table->end; i++) {
        if (seq_table_maps(table, i)) {
            const struct prefix_ref node =
                match_node(reuse, group_node_of_entry(group, i), num_whole);
            const int32_t block = prefix_index_block(reuse->index, node, group->index);
            count += block_costs_spare(&group->blocks, block);
        }
    }
    return count;
}

/* What was promised to the sequence before: it is empty, or it would not be admitted. */
static struct promise promised_before(const struct group *group,
                                      const struct admission_request *request)
{
    return request->index != NO_SEQ ? group->tables.at[request->index].promise
                                    : (struct promise){0};
}

static struct seq_table_demand demand_of(const pkv_cache *cache, const struct group *group,
                                         const struct admission_request *request,
                                         const struct admission_decision *decision)
{
    const int32_t num_cached = admission_num_cached(cache, decision);
    const int32_t kept_prefix = group_kept_prefix(group, request->prototype);
    const int32_t max_rewind = request->prototype->max_rewind;
    const struct promise before = promised_before(group, request);
    struct promise_set after = group->tables.promises;
    struct seq_table_demand demand = {
        .table = seq_table_adopted(&group->tables, kept_prefix, num_cached, max_rewind)};
    demand.table.promise = promise_make(&after, request->num_cells, kept_prefix, max_rewind);
    demand.table.promise.reached = demand.table.end;
    demand.table.promise.copies = decision->num_copied > 0;
    promise_remove(&after, &before, 0);
    promise_add(&after, &demand.table.promise, demand.table.end);
    demand.num_spare = promise_total(&after) - promise_total(&group->tables.promises);
    if (!seq_table_slides(&demand.table)) {
        demand.num_spare += num_spare_adopted(cache, group, &demand.table, decision->num_adopted);
    }
    return demand;
}

int32_t admission_limit(const pkv_cache *cache, int32_t g)
{
    const bool has_states = g >= cache->config.num_groups; /* which do not grow */
    return cache->config.groups[g].num_blocks - (has_states ? 0 : cache->config.watermark_blocks);
}

int32_t admission_available(const pkv_cache *cache, int32_t g)
{
    if (g >= cache->config.num_groups) {
        return state_list_num_spare(&cache->states[g - cache->config.num_groups]);
    }
    const int32_t num_spare = seq_table_num_spare(&cache->groups[g].tables);
    return max_i32(num_spare - cache->config.watermark_blocks, 0);
}

static enum pkv_status judge_group(const pkv_cache *cache, int32_t g, enum pkv_status before,
                                   struct pkv_shortage *shortage)
{
    const struct group *group = &cache->groups[g];
    const struct seq_table_demand *demand = &group->demand;
    const int32_t available = admission_available(cache, g);
    const struct shortage_demand wanted = {
        .row = SHORTAGE_NO_ROW,
        .group = g,
        .total = promise_alone(&group->tables.promises, &demand->table.promise),
        .more = demand->num_spare,
        .limit = admission_limit(cache, g),
        .available = available,
    };
    const enum pkv_status status = shortage_judge(before, &wanted, shortage);
    if (status != before) {
        shortage->evictable = min_i32(block_num_cached(&group->blocks), available);
    }
    return status;
}

/* States are promised apart from blocks: quotas do not count them. */
static enum pkv_status judge_states(pkv_cache *cache, struct state_group *states,
                                    const struct admission_request *request, enum pkv_status before,
                                    struct pkv_shortage *shortage)
{
    const int32_t bound =
        config_num_own_states(cache_has_reuse(cache), request->prototype->max_rewind);
    const int32_t available = admission_available(cache, states->index);
    const struct shortage_demand wanted = {
        .row = SHORTAGE_NO_ROW,
        .group = states->index,
        .total = bound,
        .more = state_list_demand(states, request->index, bound),
        .limit = admission_limit(cache, states->index),
        .available = available,
    };
    const enum pkv_status status = shortage_judge(before, &wanted, shortage);
    if (status != before) {
        shortage->evictable = min_i32(block_num_cached(&states->blocks), available);
    }
    return status;
}

/* Works out what is to be taken of every group, and judges all of it. */
static enum pkv_status judge(pkv_cache *cache, const struct admission_request *request,
                             struct admission_decision *decision, struct pkv_shortage *shortage)
{
    enum pkv_status status = PKV_OK;
    int64_t num_charged = 0;
    decision->num_blocks = 0;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        if (group_is_paged(group)) {
            struct seq_table_demand *demand = &group->demand;
            *demand = demand_of(cache, group, request, decision);
            status = judge_group(cache, g, status, shortage);
            decision->num_blocks += demand->table.promise.at_once;
            num_charged += promised_before(group, request).at_once;
        }
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        status = judge_states(cache, &cache->states[s], request, status, shortage);
    }
    return quota_judge(status, &request->quota, SHORTAGE_NO_ROW, decision->num_blocks,
                       decision->num_blocks - num_charged, shortage);
}

/* The same of the longest hit for which there is room; of the longest one when there is none. */
static enum pkv_status judge_hit(pkv_cache *cache, const struct admission_request *request,
                                 struct admission_decision *decision, struct pkv_shortage *shortage)
{
    const struct pkv_shortage before = *shortage;
    const struct seq *prototype = request->prototype;
    const int32_t max_blocks = match_max_blocks(cache, request->prompt, request->max_cached);
    decision->num_adopted = match_longest(cache, prototype, request->prompt, request->max_cached,
                                          &decision->num_copied);
    const struct admission_decision longest = *decision;
    enum pkv_status status = judge(cache, request, decision, shortage);
    if (status != PKV_OK && decision->num_copied > 0) {
        decision->num_copied = 0;
        decision->num_adopted = match_prefix(cache, prototype, request->prompt, max_blocks);
        *shortage = before;
        status = judge(cache, request, decision, shortage);
    }
    if (status != PKV_OK) {
        *decision = longest;
    }
    return status;
}

/* More tokens than the sequence may ever have. */
static enum pkv_status refuse_length(const pkv_cache *cache,
                                     const struct admission_request *request,
                                     struct pkv_shortage *shortage)
{
    const int32_t max_tokens = request->prototype->max_tokens;
    *shortage = (struct pkv_shortage){.row = SHORTAGE_NO_ROW,
                                      .group = SHORTAGE_NO_GROUP,
                                      .need = request->num_cells,
                                      .max_tokens = max_tokens};
    return refuse(PKV_NEVER_FITS, "%lld tokens, %s is %d", (long long)request->num_cells,
                  max_tokens < cache->config.max_seq_len ? "max_tokens" : "max_seq_len",
                  max_tokens);
}

enum pkv_status admission_decide(pkv_cache *cache, const struct admission_request *request,
                                 struct admission_decision *decision, struct pkv_shortage *shortage)
{
    *decision = (struct admission_decision){0};
    if (request->num_cells > request->prototype->max_tokens) {
        return refuse_length(cache, request, shortage);
    }
    const enum pkv_status status = judge_hit(cache, request, decision, shortage);
    return status == PKV_OK ? PKV_OK : shortage_refuse(&cache->config, status, shortage);
}
