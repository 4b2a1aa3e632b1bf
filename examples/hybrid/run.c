/* SPDX-License-Identifier: MIT
 *
 * run.c: each function is one or two calls of the library. */
#include "run.h"

#include "report.h"

static bool create(pkv_cache *cache, struct run *run, bool *joined)
{
    const struct pkv_seq_options options = {.size = sizeof options,
                                            .max_rewind = run->request->max_rewind,
                                            .max_tokens = run->request->num_tokens};
    const enum pkv_status status = pkv_seq_create(cache, &options, &run->seq);
    run->has_seq = status == PKV_OK;
    *joined = run->has_seq;
    return run->has_seq || status == PKV_NO_BLOCKS || complain("no sequence: %s", pkv_last_error());
}

bool run_admit(pkv_cache *cache, struct run *run, struct run_counts *counts, bool *joined)
{
    *joined = run->has_seq;
    const bool ok = run->has_seq || create(cache, run, joined);
    if (!*joined) {
        return ok;
    }
    struct pkv_admission admission = {.size = sizeof admission};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    const struct pkv_prompt prompt = {
        .size = sizeof prompt, .token_ids = run->choice->tokens, .num_tokens = run->num_tokens};
    const enum pkv_status status =
        pkv_seq_admit(cache, run->seq, &prompt, run->request->num_tokens - run->num_tokens,
                      run->num_tokens, &admission, &shortage);
    *joined = status == PKV_OK;
    if (status == PKV_NO_BLOCKS) {
        counts->num_waits++;
        return true;
    }
    if (status != PKV_OK) {
        return complain("not admitted: %s: %s", pkv_status_name(status), pkv_last_error());
    }
    run->state = RUN_RUNNING;
    run->length = admission.num_cached;
    run->greatest = admission.num_cached;
    run->adopted = admission.num_cached;
    counts->num_hits += admission.num_cached > 0;
    counts->hit_tokens += admission.num_cached;
    counts->num_prompt_tokens += run->num_tokens;
    return true;
}

bool run_preempt(pkv_cache *cache, struct run *run, bool keeps_seq)
{
    const enum pkv_status status =
        keeps_seq ? pkv_seq_truncate(cache, run->seq, 0) : pkv_seq_destroy(cache, run->seq);
    run->has_seq = keeps_seq;
    run->state = RUN_WAITING;
    run->length = 0;
    return status == PKV_OK || complain("not preempted: %s", pkv_last_error());
}

bool run_end(pkv_cache *cache, struct run *run)
{
    const bool had_seq = run->has_seq;
    run->has_seq = false;
    run->state = RUN_ENDED;
    return !had_seq || pkv_seq_destroy(cache, run->seq) == PKV_OK ||
           complain("not destroyed: %s", pkv_last_error());
}

int32_t run_floor(const struct run *run)
{
    const int32_t floor = run->greatest - run->request->max_rewind;
    const int32_t adopted = run->adopted > 1 ? run->adopted : 1;
    return floor > adopted ? floor : adopted;
}

bool run_rewind(pkv_cache *cache, struct run *run, int32_t length, struct run_counts *counts)
{
    if (length == run->length) {
        return true;
    }
    if (pkv_seq_truncate(cache, run->seq, length) != PKV_OK) {
        return complain("rewind from %d to %d: %s", run->length, length, pkv_last_error());
    }
    run->length = length;
    counts->num_rewinds++;
    return true;
}

bool run_fork(pkv_cache *cache, struct run *parent, int32_t at, struct run *child,
              struct run_counts *counts)
{
    const enum pkv_status status = pkv_seq_fork(cache, parent->seq, at, 1, &child->seq);
    child->state = status == PKV_OK ? RUN_RUNNING : RUN_WAITING;
    child->has_seq = status == PKV_OK;
    child->length = status == PKV_OK ? at : 0;
    child->greatest = parent->greatest;
    child->adopted = at;
    counts->num_forks += status == PKV_OK;
    counts->num_late_forks += status == PKV_OK && at < parent->request->num_prompt;
    counts->num_refused_forks += status != PKV_OK;
    return status == PKV_OK || status == PKV_NO_BLOCKS ||
           complain("fork at %d of %d: %s", at, parent->length, pkv_last_error());
}
