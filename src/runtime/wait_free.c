/* SPDX-License-Identifier: MIT
 *
 * A waiter wants what its admission lacked, and no more than that: the admission that follows
 * finds out what else there is to want. */
#include "base/error.h"
#include "base/sized.h"
#include "runtime/admission.h"
#include "runtime/shortage.h"

/* PKV_OK, PKV_NO_BLOCKS or PKV_NEVER_FITS: whether the blocks that were missing are there, in a
 * group or under a quota. */
static enum pkv_status judge(const pkv_cache *cache, const struct seq *seq,
                             const struct pkv_shortage *wanted)
{
    const bool is_quota = wanted->group == SHORTAGE_NO_GROUP;
    const struct quota quota = quota_of_scope(cache, &seq->reuse.scope);
    const struct shortage_demand demand = {
        .row = SHORTAGE_NO_ROW,
        .group = wanted->group,
        .total = wanted->need,
        .more = wanted->need,
        .limit = is_quota ? quota.limit : admission_limit(cache, wanted->group),
        .available = is_quota ? quota.room : admission_available(cache, wanted->group),
    };
    struct pkv_shortage found;
    return shortage_judge(PKV_OK, &demand, &found);
}

/* PKV_NO_BLOCKS as long as there is nothing to wake up for. */
static enum pkv_status answer(const pkv_cache *cache, const struct wait_record *waiter)
{
    const struct seq *seq = sequence_find(&cache->seqs, waiter->seq);
    if (cache->is_closed) {
        return PKV_BUSY;
    }
    return seq == NULL ? PKV_STALE_HANDLE : judge(cache, seq, waiter->shortage);
}

static enum pkv_status refuse_wait(const pkv_cache *cache, enum pkv_status status,
                                   const struct wait_record *waiter)
{
    switch (status) {
    case PKV_BUSY: return refuse(PKV_BUSY, "the cache is closed");
    case PKV_STALE_HANDLE: return sequence_refuse_stale(waiter->seq);
    default: return shortage_refuse(&cache->config, status, waiter->shortage);
    }
}

static enum pkv_status check_shortage(const pkv_cache *cache, const struct pkv_shortage *shortage)
{
    const int32_t g = shortage->group;
    if (shortage->row != SHORTAGE_NO_ROW) {
        return INVALID("shortage->row = %d: not that of an admission", shortage->row);
    }
    if (g != SHORTAGE_NO_GROUP &&
        (g < 0 || g >= cache_num_groups(cache) ||
         (g < cache->config.num_groups && !group_is_paged(&cache->groups[g])))) {
        return INVALID("shortage->group = %d is no paged group", g);
    }
    if (g == SHORTAGE_NO_GROUP && shortage->quota == 0) {
        return INVALID("shortage names neither a group nor a quota to wait for");
    }
    return PKV_OK;
}

static bool init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0) {
        return false;
    }
    const bool made = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
                      pthread_cond_init(condition, &attributes) == 0;
    pthread_condattr_destroy(&attributes);
    return made;
}

enum pkv_status pkv_wait_free(pkv_cache *cache, pkv_seq seq, const struct pkv_shortage *given,
                              uint64_t timeout_ns)
{
    struct pkv_shortage shortage;
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    enum pkv_status status = sized_read("shortage", given, quota, &shortage);
    if (status == PKV_OK) {
        status = check_shortage(cache, &shortage);
    }
    if (status != PKV_OK) {
        return status;
    }
    struct wait_record waiter = {.answer = answer, .seq = seq, .shortage = &shortage};
    if (!init_condition(&waiter.changed)) {
        return refuse(PKV_NO_MEMORY, "no memory for a condition");
    }
    cache_lock(cache);
    status = wait_until(cache, &cache->first_wait, &cache->mutex, &waiter, timeout_ns);
    cache_unlock(cache);
    pthread_cond_destroy(&waiter.changed);
    return status == PKV_OK ? PKV_OK : refuse_wait(cache, status, &waiter);
}
