/* SPDX-License-Identifier: MIT
 *
 * The probes: what an admission would answer for a sequence with these options, without any effect,
 * and which group allows how much of it.
 * Its quotas are found by field, because a set of fields that no sequence has yet can be short of
 * one all the same. */
#include "base/error.h"
#include "base/minmax.h"
#include "base/sized.h"
#include "runtime/admission.h"
#include "runtime/match.h"
#include "runtime/namespace.h"
#include "runtime/prefetch.h"
#include "runtime/seq_options.h"
#include "runtime/shortage.h"

static void probe_open(pkv_cache *cache, struct admission_request *request,
                       const struct namespace_fields *fields, struct pkv_probe *probe,
                       struct pkv_shortage *shortage)
{
    struct admission_decision decision;
    request->quota = quota_of_fields(cache, fields->at, fields->count);
    probe->status = admission_decide(cache, request, &decision, shortage);
    probe->num_cached = admission_num_cached(cache, &decision);
    probe->num_copied = decision.num_copied;
    probe->num_pending = match_pending(cache, request->prototype, request->prompt,
                                       probe->num_cached, request->max_cached);
    if (cache->offload.num_tiers > 0) {
        prefetch_probe(cache, request->prototype, fields, request->prompt, request->max_cached,
                       probe->num_cached, probe->tier_cached);
    }
    if (probe->status == PKV_OK) {
        probe->num_blocks = (int32_t)decision.num_blocks;
    }
}

enum pkv_status pkv_cache_probe(pkv_cache *cache, const struct pkv_seq_options *options,
                                const struct pkv_prompt *given, int32_t reserve_tokens,
                                int32_t max_cached, struct pkv_probe *probe,
                                struct pkv_shortage *shortage)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    struct seq prototype;
    struct namespace_fields fields;
    struct pkv_prompt prompt;
    enum pkv_status status = sized_check("probe", probe, struct pkv_probe, num_blocks);
    if (status == PKV_OK) {
        status = shortage_check(shortage);
    }
    if (status == PKV_OK) {
        status = admission_take(cache, given, reserve_tokens, max_cached, &prompt);
    }
    if (status == PKV_OK) {
        status = seq_options_check(&cache->config, options, &prototype, &fields);
    }
    if (status != PKV_OK) {
        return status;
    }
    struct admission_request request = {
        .prototype = &prototype,
        .index = NO_SEQ,
        .prompt = &prompt,
        .num_cells = (int64_t)prompt.num_tokens + reserve_tokens,
        .max_cached = max_cached,
    };
    struct pkv_probe found = {0};
    struct pkv_shortage lacking = {0};
    cache_lock(cache);
    if (cache_has_reuse(cache)) {
        status = namespace_look_up(cache, &fields, &prototype);
    }
    if (status == PKV_OK && cache->is_closed) {
        found.status = PKV_BUSY;
    } else if (status == PKV_OK) {
        probe_open(cache, &request, &fields, &found, &lacking);
    }
    cache_unlock(cache);
    if (status == PKV_OK) {
        sized_fill(probe, &found);
    }
    if (status == PKV_OK && shortage != NULL && shortage_is_why(found.status)) {
        sized_fill(shortage, &lacking);
    }
    return status;
}

/* In tokens; everything was checked. */
static enum pkv_status probe_groups(pkv_cache *cache, const struct namespace_fields *fields,
                                    struct seq *prototype, const struct pkv_prompt *prompt,
                                    int32_t max_cached, int32_t *group_cached, int32_t *num_cached)
{
    const int32_t block_size = cache->reuse.block_size;
    int32_t num_copied = 0;
    const int32_t max_blocks = match_max_blocks(cache, prompt, max_cached);
    const enum pkv_status status = namespace_look_up(cache, fields, prototype);
    if (status != PKV_OK) {
        return status;
    }
    match_groups(cache, prototype, prompt, max_blocks, group_cached);
    int32_t common = match_longest(cache, prototype, prompt, max_cached, &num_copied);
    common = common * block_size + num_copied;
    for (int32_t g = 0; g < cache_num_groups(cache); g++) {
        group_cached[g] = max_i32(group_cached[g] * block_size, common);
    }
    if (num_cached != NULL) {
        *num_cached = common;
    }
    return PKV_OK;
}

enum pkv_status pkv_cache_probe_groups(pkv_cache *cache, const struct pkv_seq_options *options,
                                       const struct pkv_prompt *given, int32_t max_cached,
                                       int32_t *group_cached, int32_t *num_cached)
{
    struct seq prototype;
    struct namespace_fields fields;
    struct pkv_prompt prompt;
    enum pkv_status status = cache_check_reuse(cache);
    if (status == PKV_OK && group_cached == NULL) {
        status = INVALID("group_cached is NULL");
    }
    if (status == PKV_OK) {
        status = admission_take(cache, given, 0, max_cached, &prompt);
    }
    if (status == PKV_OK) {
        status = seq_options_check(&cache->config, options, &prototype, &fields);
    }
    if (status != PKV_OK) {
        return status;
    }
    cache_lock(cache);
    status =
        probe_groups(cache, &fields, &prototype, &prompt, max_cached, group_cached, num_cached);
    cache_unlock(cache);
    return status;
}
