/* SPDX-License-Identifier: MIT
 *
 * Admission of an empty sequence: decided (admission.h), then taken, which can no longer fail. A
 * refusal leaves no trace. */
#include "base/error.h"
#include "base/sized.h"
#include "prefix/prefix_blocks.h"
#include "runtime/admission.h"
#include "runtime/publish.h"
#include "runtime/shortage.h"

/* What is hit is worth storing, where it is not known to be: when it was computed there may have
 * been no room in the queue. */
static void store_adopted(pkv_cache *cache, int32_t num_adopted)
{
    for (int32_t i = 0; cache->offload.num_tiers > 0 && i < num_adopted; i++) {
        const struct prefix_ref node = cache->reuse.matched[i];
        for (int32_t g = 0; g < cache->config.num_groups; g++) {
            const int32_t block = prefix_index_block(cache->reuse.index, node, g);
            if (block != NO_BLOCK) {
                offload_store(&cache->offload, node, g, block);
            }
        }
    }
}

/* The longest prefix that a request with the same prompt could adopt. */
static int32_t snapshot_at(const pkv_cache *cache, const struct pkv_prompt *prompt)
{
    const int32_t hit_tokens = config_hit_tokens(&cache->config);
    return cache_has_reuse(cache) && prompt->num_tokens > 0
               ? (prompt->num_tokens - 1) / hit_tokens * hit_tokens
               : 0;
}

/* Takes what was found, and promises the rest. */
static void take(pkv_cache *cache, const struct admission_request *request,
                 const struct admission_decision *decision)
{
    const int32_t num_adopted = decision->num_adopted;
    const int32_t index = request->index;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        struct group *group = &cache->groups[g];
        if (group_is_paged(group)) {
            seq_table_admit(&group->tables, index, &group->demand.table);
        }
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        state_list_admit(&cache->states[s], index, snapshot_at(cache, request->prompt));
    }
    if (cache_has_reuse(cache)) {
        seq_tokens_admit(&cache->reuse.tokens, index, &cache->seqs.at[index].tokens,
                         request->prompt);
    }
    publish_met(cache, index, num_adopted);
    publish_adopt(cache, index, num_adopted, decision->num_copied);
    if (!cache->config.no_write_behind) {
        store_adopted(cache, num_adopted);
    }
    if (cache->reuse.num_furthest > num_adopted) {
        publish_missed(cache, request->prototype,
                       cache->reuse.matched[cache->reuse.num_furthest - 1]);
    }
    quota_settle(cache, index);
}

/* Tokens of the whole blocks that are to be adopted, by the tier that they came from. */
static void count_tiers(pkv_cache *cache, int32_t num_adopted, int32_t tier_cached[PKV_MAX_TIERS])
{
    struct offload *offload = &cache->offload;
    for (int32_t i = 0; offload->num_tiers > 0 && i < num_adopted; i++) {
        const uint8_t origin = offload->origins[cache->reuse.matched[i].index];
        if (origin != 0) {
            tier_cached[origin - 1] += cache->reuse.block_size;
            offload->stats[origin - 1].hit_tokens += (uint64_t)cache->reuse.block_size;
        }
    }
}

static void count(pkv_cache *cache, const struct admission_request *request, int32_t num_cached,
                  int32_t num_copied)
{
    struct counters *counters = &cache->counters;
    struct seq_reuse *reuse = &cache->seqs.at[request->index].reuse;
    const uint64_t queried = (uint64_t)request->prompt->num_tokens;
    counters->num_admissions++;
    if (!cache_has_reuse(cache)) {
        return;
    }
    reuse->num_cached = num_cached;
    if (reuse->was_preempted || !reuse->was_admitted) {
        counters->copied_hit_tokens += (uint64_t)num_copied;
    }
    if (reuse->was_preempted) {
        counters->readmitted_tokens += queried;
        counters->rehit_tokens += (uint64_t)num_cached;
    } else if (!reuse->was_admitted) {
        counters->queried_tokens += queried;
        counters->hit_tokens += (uint64_t)num_cached;
    }
    reuse->was_admitted = reuse->was_admitted || queried > 0;
    reuse->was_preempted = false;
}

static enum pkv_status find_empty(pkv_cache *cache, pkv_seq handle, struct seq **seq)
{
    if (cache->is_closed) {
        return refuse(PKV_BUSY, "the cache is closed");
    }
    const enum pkv_status status = sequence_find_resident(&cache->seqs, handle, seq);
    if (status == PKV_OK && (*seq)->length != 0) {
        return INVALID("the sequence holds %d tokens; only an empty one is admitted",
                       (*seq)->length);
    }
    return status;
}

static enum pkv_status admit(pkv_cache *cache, pkv_seq handle, struct admission_request *request,
                             struct pkv_admission *admission, struct pkv_shortage *shortage)
{
    struct seq *seq = NULL;
    struct admission_decision decision;
    enum pkv_status status = find_empty(cache, handle, &seq);
    if (status != PKV_OK) {
        return status;
    }
    request->prototype = seq;
    request->index = sequence_index(&cache->seqs, seq);
    request->quota = quota_of_scope(cache, &seq->reuse.scope);
    status = admission_decide(cache, request, &decision, shortage);
    if (status != PKV_OK) {
        return status;
    }
    const int32_t num_cached = admission_num_cached(cache, &decision);
    struct pkv_admission found = {
        .num_cached = num_cached,
        .num_to_write = request->prompt->num_tokens - num_cached,
        .num_blocks = (int32_t)decision.num_blocks,
        .num_copied = decision.num_copied,
    };
    count_tiers(cache, decision.num_adopted, found.tier_cached);
    take(cache, request, &decision);
    count(cache, request, num_cached, decision.num_copied);
    sized_fill(admission, &found);
    return PKV_OK;
}

enum pkv_status pkv_seq_admit(pkv_cache *cache, pkv_seq seq, const struct pkv_prompt *given,
                              int32_t reserve_tokens, int32_t max_cached,
                              struct pkv_admission *admission, struct pkv_shortage *shortage)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    struct pkv_prompt prompt;
    enum pkv_status status = sized_check("admission", admission, struct pkv_admission, num_blocks);
    if (status == PKV_OK) {
        status = shortage_check(shortage);
    }
    if (status == PKV_OK) {
        status = admission_take(cache, given, reserve_tokens, max_cached, &prompt);
    }
    if (status != PKV_OK) {
        return status;
    }
    struct admission_request request = {
        .prompt = &prompt,
        .num_cells = (int64_t)prompt.num_tokens + reserve_tokens,
        .max_cached = max_cached,
    };
    struct pkv_shortage found = {0};
    cache_lock(cache);
    status = admit(cache, seq, &request, admission, &found);
    cache_unlock(cache);
    if (shortage != NULL && shortage_is_why(status)) {
        sized_fill(shortage, &found);
    }
    return status;
}
