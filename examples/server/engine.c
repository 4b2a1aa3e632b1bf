/* SPDX-License-Identifier: MIT
 *
 * engine.c: the engine's thread.
 *
 *     take in new jobs, drop cancelled ones
 *     what tiers have done takes effect; begin to prefetch for waiting runs
 *     admit waiting runs in order, until one finds no room; those that wait for a tier are passed
 *     a step of all running runs; while it finds no blocks, the last in order is preempted
 *     end jobs whose runs are done
 *
 * Order is priority, then arrival, then choice. The first in order is never preempted, and was
 * checked to fit alone, so it ends; then the next one is first.
 *
 * Tiers. The thread never waits for one while a run can go on. Blocks that are held for a tier, to
 * be stored or for a prompt that waits, are missing elsewhere: prefetches are given up before a run
 * is preempted, and while nothing runs because of them the thread waits for a moment. */
#include "engine.h"

#include "batch.h"
#include "model_cache.h"
#include "rates.h"
#include "recent.h"
#include "report.h"
#include "run.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long the thread waits between looks at what tiers do: for a request, and when there is none.
 * And how long blocks are stored at the end. */
enum { TIER_WAIT_US = 500, TIER_IDLE_US = 10000, MICROSECOND = 1000, SECOND = 1000000000 };
#define FLUSH_NS (5 * (uint64_t)SECOND)
#define SAVE_SECONDS 10.0

struct engine {
    const struct language_model *lm;
    struct engine_options options;
    struct tiers tiers;
    pkv_cache *cache;
    pthread_t thread;

    /* Of the engine's thread alone. */
    struct entry *entries; /* in order */
    struct recent recent;  /* texts of entries that have ended; empty when nothing is saved */
    struct batch batch;

    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    struct entry *arrived; /* submitted and not in entries yet, newest first */
    bool noticed;          /* a job was cancelled */
    bool stopping;
    uint64_t next_id;
    struct engine_state state;
    struct rates rates;
    struct engine_request *shown; /* [num_shown], of the entries at the end of the last step */
    int32_t num_shown, max_shown;
};

/* ---- jobs come and go ----------------------------------------------------------------------- */

static bool comes_before(const struct entry *a, const struct entry *b)
{
    return a->request->priority != b->request->priority
               ? a->request->priority > b->request->priority
               : a->id < b->id;
}

static void insert_entry(struct engine *e, struct entry *entry)
{
    struct entry **place = &e->entries;
    while (*place != NULL && !comes_before(entry, *place)) {
        place = &(*place)->next;
    }
    entry->next = *place;
    *place = entry;
}

static bool tenant_is_known(const struct engine *e, const char *tenant)
{
    for (const struct entry *entry = e->entries; entry != NULL; entry = entry->next) {
        if (strcmp(entry->request->tenant, tenant) == 0) {
            return true;
        }
    }
    return false;
}

static bool has_quota(const struct engine *e, const struct job_request *request)
{
    return e->options.tenant_blocks > 0 && e->options.prefix_cache && request->tenant[0] != '\0';
}

/* A tenant has its quota while it has a job: names that clients make up leave nothing behind. */
static bool set_quota(struct engine *e, const struct job_request *request, int32_t num_blocks)
{
    if (!has_quota(e, request) || tenant_is_known(e, request->tenant)) {
        return true;
    }
    struct pkv_namespace_field field;
    model_cache_seq_options(request, 0, &field);
    return pkv_namespace_quota(e->cache, &field, num_blocks) == PKV_OK;
}

/* No client can be this tenant; its quota is what any tenant would have. */
static const struct job_request any_tenant = {.tenant = " "};

static bool set_quota_to_ask(struct engine *e)
{
    struct pkv_namespace_field field;
    model_cache_seq_options(&any_tenant, 0, &field);
    return !has_quota(e, &any_tenant) ||
           pkv_namespace_quota(e->cache, &field, e->options.tenant_blocks) == PKV_OK;
}

static void stop_run(struct engine *e, struct run *run)
{
    if (run->seq.id != 0 && pkv_seq_destroy(e->cache, run->seq) != PKV_OK) {
        complain("a sequence would not go: %s", pkv_last_error());
    }
    run->seq = (pkv_seq){0};
    run->num_written = 0;
}

enum outcome { ENTRY_DONE, ENTRY_CANCELLED, ENTRY_FAILED };

static void count_outcome(struct engine *e, enum outcome outcome, const struct entry *entry)
{
    pthread_mutex_lock(&e->mutex);
    e->state.num_done += outcome == ENTRY_DONE;
    e->state.num_cancelled += outcome == ENTRY_CANCELLED;
    e->state.num_failed += outcome == ENTRY_FAILED;
    e->state.num_prompt += entry->usage.num_prompt;
    e->state.num_cached += entry->usage.num_cached;
    pthread_mutex_unlock(&e->mutex);
}

/* The prompt, for the same request again, and with the answer, for the next turn. */
static void add_recent(struct engine *e, const struct entry *entry)
{
    const struct job_request *request = entry->request;
    const struct run *run = &entry->runs[0];
    if (e->options.save_path != NULL) {
        recent_add(&e->recent, request->tenant, run->tokens, request->num_prompt);
        recent_add(&e->recent, request->tenant, run->tokens, run->num_tokens);
    }
}

/* Takes *place out of the list and ends its job. */
static void remove_entry(struct engine *e, struct entry **place, enum outcome outcome,
                         const char *message)
{
    struct entry *entry = *place;
    add_recent(e, entry);
    for (int32_t c = 0; c < entry->request->num_choices; c++) {
        stop_run(e, &entry->runs[c]);
        prefetch_end(&entry->runs[c].prefetch, e->cache);
    }
    *place = entry->next;
    if (!set_quota(e, entry->request, 0)) {
        complain("a quota would not go: %s", pkv_last_error());
    }
    count_outcome(e, outcome, entry);
    entry_finish(entry, message);
}

/* Runs that are done give their blocks back, whatever the job's other choices do. */
static void stop_done(struct engine *e, struct entry *entry)
{
    for (int32_t c = 0; entry->num_done > 0 && c < entry->request->num_choices; c++) {
        if (entry->runs[c].state == RUN_DONE) {
            stop_run(e, &entry->runs[c]);
        }
    }
}

static void remove_ended(struct engine *e)
{
    struct entry **place = &e->entries;
    while (*place != NULL) {
        struct entry *entry = *place;
        stop_done(e, entry);
        if (job_is_cancelled(entry->job)) {
            remove_entry(e, place, ENTRY_CANCELLED, "cancelled");
        } else if (entry->failure != NULL) {
            remove_entry(e, place, ENTRY_FAILED, entry->failure);
        } else if (entry->num_done == entry->request->num_choices) {
            remove_entry(e, place, ENTRY_DONE, NULL);
        } else {
            place = &entry->next;
        }
    }
}

static void fail_all(struct engine *e, const char *message)
{
    while (e->entries != NULL) {
        remove_entry(e, &e->entries, ENTRY_FAILED, message);
    }
}

/* ---- tiers ---------------------------------------------------------------------------------- */

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static bool uses_tiers(const struct engine *e)
{
    return e->tiers.count > 0;
}

/* Are blocks held? Where nothing runs they are held for tiers. */
static bool holds_blocks(const struct engine *e)
{
    struct pkv_stats stats = {.size = sizeof stats};
    return pkv_cache_stats(e->cache, &stats) == PKV_OK && stats.held_blocks > 0;
}

/* Until something happens, or the time is over. The mutex is held. */
static void wait_us(struct engine *e, long us)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += us * MICROSECOND;
    until.tv_sec += until.tv_nsec / SECOND;
    until.tv_nsec %= SECOND;
    pthread_cond_timedwait(&e->changed, &e->mutex, &until);
}

/* In order, as many as may be under way. The other choices of a job find its prompt computed. */
static void begin_prefetches(struct engine *e)
{
    const uint64_t now = clock_ns();
    for (struct entry *entry = e->entries; entry != NULL; entry = entry->next) {
        struct run *run = &entry->runs[0];
        const struct pkv_prompt prompt = {
            .size = sizeof prompt, .token_ids = run->tokens, .num_tokens = run->num_tokens};
        struct pkv_namespace_field field;
        const struct pkv_seq_options options =
            model_cache_seq_options(entry->request, entry->id, &field);
        if (run->state == RUN_WAITING &&
            !prefetch_begin(&run->prefetch, e->cache, &options, &prompt, run->num_tokens, now)) {
            return;
        }
    }
}

static bool waits_for_tier(const struct engine *e, const struct run *run)
{
    return !prefetch_is_over(&run->prefetch, e->cache, clock_ns(),
                             (uint64_t)e->options.tiers.wait_ms * SECOND / 1000);
}

/* True when there were any. */
static bool end_prefetches(struct engine *e)
{
    bool ended = false;
    for (struct entry *entry = e->entries; entry != NULL; entry = entry->next) {
        ended = prefetch_end(&entry->runs[0].prefetch, e->cache) || ended;
    }
    return ended;
}

static void start_tiers(struct engine *e)
{
    if (uses_tiers(e)) {
        pkv_tier_poll(e->cache, NULL);
        begin_prefetches(e);
    }
}

/* ---- admission ------------------------------------------------------------------------------ */

/* Tokens beyond those it has that a run is promised blocks for: the next one, whose step is its
 * first; under a quota all, because a run that its tenant's quota stops in the middle could be
 * preempted and start again for ever. */
static int32_t tokens_to_promise(const struct engine *e, const struct run *run)
{
    const struct job_request *request = run->entry->request;
    const int32_t left = request->num_prompt + request->max_tokens - 1 - run->num_tokens;
    return left < 1 ? 0 : has_quota(e, request) ? left : 1;
}

static enum pkv_status admit_sequence(struct engine *e, struct run *run,
                                      struct pkv_shortage *shortage)
{
    const struct pkv_prompt prompt = {
        .size = sizeof prompt, .token_ids = run->tokens, .num_tokens = run->num_tokens};
    struct pkv_admission admission = {.size = sizeof admission};
    const enum pkv_status status =
        pkv_seq_admit(e->cache, run->seq, &prompt, tokens_to_promise(e, run),
                      e->options.prefix_cache ? run->num_tokens : 0, &admission, shortage);
    if (status == PKV_OK) {
        run->num_written = admission.num_cached;
        run->state = RUN_RUNNING;
    }
    if (status == PKV_OK && run->choice == 0 && !run->entry->prompt_done) {
        run->entry->usage.num_cached = admission.num_cached;
    }
    return status;
}

/* PKV_NO_BLOCKS, with the run as it was, when there is no room now. */
static enum pkv_status admit_run(struct engine *e, struct run *run, struct pkv_shortage *shortage)
{
    struct pkv_namespace_field field;
    const struct pkv_seq_options options =
        model_cache_seq_options(run->entry->request, run->entry->id, &field);
    enum pkv_status status = pkv_seq_create(e->cache, &options, &run->seq);
    if (status == PKV_OK) {
        status = admit_sequence(e, run, shortage);
        if (status != PKV_OK) {
            stop_run(e, run);
        }
    } else {
        run->seq = (pkv_seq){0};
    }
    if (status != PKV_OK && status != PKV_NO_BLOCKS) {
        run->entry->failure = "the cache cannot hold the request";
    }
    return status;
}

/* In order; the first that has to wait keeps those behind it waiting too, unless it is its tenant's
 * quota that it waits for. */
static void admit_waiting(struct engine *e)
{
    for (struct entry *entry = e->entries; entry != NULL; entry = entry->next) {
        for (int32_t c = 0; c < entry->request->num_choices; c++) {
            struct run *run = &entry->runs[c];
            if (run->state != RUN_WAITING || (c > 0 && !entry->prompt_done) ||
                waits_for_tier(e, run)) {
                continue;
            }
            struct pkv_shortage shortage = {.size = sizeof shortage};
            const enum pkv_status status = admit_run(e, run, &shortage);
            if (status == PKV_NO_BLOCKS && shortage.quota == 0) {
                return;
            }
            if (status == PKV_OK) {
                prefetch_end(&run->prefetch, e->cache);
            }
        }
    }
}

/* The other choices go on from the prompt that the first has computed, on the same blocks. Those
 * for which there is no sequence left wait, and find the prompt in the prefix cache. */
static void fork_choices(void *context, struct run *first, const float *logits)
{
    struct engine *e = context;
    struct entry *entry = first->entry;
    for (int32_t c = 1; c < entry->request->num_choices; c++) {
        struct run *run = &entry->runs[c];
        if (pkv_seq_fork(e->cache, first->seq, entry->request->num_prompt, 1, &run->seq) !=
            PKV_OK) {
            run->seq = (pkv_seq){0};
            return;
        }
        run->state = RUN_RUNNING;
        run->num_written = entry->request->num_prompt;
        if (!batch_take(&e->batch, run, logits)) {
            return;
        }
    }
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void collect_rows(struct engine *e)
{
    batch_clear(&e->batch);
    for (struct entry *entry = e->entries; entry != NULL; entry = entry->next) {
        for (int32_t c = 0; c < entry->request->num_choices; c++) {
            if (entry->runs[c].state == RUN_RUNNING && entry->failure == NULL) {
                batch_add(&e->batch, &entry->runs[c]);
            }
        }
    }
}

/* The last row in order; where a quota refuses, the last of that tenant. */
static struct run *choose_victim(const struct batch *batch, const struct pkv_shortage *shortage)
{
    int32_t row = batch->num_rows - 1;
    if (shortage->quota > 0 && shortage->row >= 0) {
        const char *tenant = batch->rows[shortage->row].run->entry->request->tenant;
        while (strcmp(batch->rows[row].run->entry->request->tenant, tenant) != 0) {
            row--;
        }
    }
    return batch->rows[row].run;
}

static void preempt(struct engine *e, struct run *run)
{
    stop_run(e, run);
    run->state = RUN_WAITING;
    pthread_mutex_lock(&e->mutex);
    e->state.num_preemptions++;
    pthread_mutex_unlock(&e->mutex);
}

/* Opens a step of the running runs, of fewer when blocks are short; PKV_NOT_FOUND: there is
 * none. */
static enum pkv_status begin_step(struct engine *e)
{
    for (;;) {
        collect_rows(e);
        if (e->batch.num_rows == 0) {
            return PKV_NOT_FOUND;
        }
        struct pkv_shortage shortage = {.size = sizeof shortage};
        const enum pkv_status status = batch_begin(&e->batch, &shortage);
        if (status != PKV_NO_BLOCKS) {
            return status;
        }
        if (shortage.quota == 0 && end_prefetches(e)) {
            continue;
        }
        struct run *victim = choose_victim(&e->batch, &shortage);
        preempt(e, victim);
        if (e->batch.num_rows == 1 && !(uses_tiers(e) && holds_blocks(e))) {
            victim->entry->failure = "the cache has no room for one request";
        }
    }
}

/* What attention has read since the cache was made. */
static int64_t bytes_read(const struct engine *e)
{
    struct pkv_stats stats = {.size = sizeof stats};
    return pkv_cache_stats(e->cache, &stats) == PKV_OK ? (int64_t)stats.attention_bytes : 0;
}

/* Nothing runs, and no job is about to end: what waits first would wait for ever. Submission has
 * refused what cannot fit, so this is a fault, and one job's alone. */
static void fail_first(struct engine *e)
{
    for (const struct entry *entry = e->entries; entry != NULL; entry = entry->next) {
        if (entry->failure != NULL || job_is_cancelled(entry->job)) {
            return;
        }
    }
    if (e->entries != NULL) {
        e->entries->failure = "the cache has no room for the request";
    }
}

/* Nothing runs: true when that is for tiers, after a moment. What waits first gets what others wait
 * for in vain. */
static bool wait_for_tiers(struct engine *e)
{
    bool waits = false;
    for (const struct entry *entry = e->entries; entry != NULL; entry = entry->next) {
        waits = waits || waits_for_tier(e, &entry->runs[0]);
    }
    if (!waits && end_prefetches(e)) {
        return true;
    }
    if (!uses_tiers(e) || !(waits || holds_blocks(e))) {
        return false;
    }
    pthread_mutex_lock(&e->mutex);
    if (e->arrived == NULL && !e->noticed && !e->stopping) {
        wait_us(e, TIER_WAIT_US);
    }
    pthread_mutex_unlock(&e->mutex);
    return true;
}

static void pause_ms(int32_t ms)
{
    const long ns = ms * MICROSECOND * 1000L;
    if (ns > 0) {
        nanosleep(&(struct timespec){.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND}, NULL);
    }
}

/* False when the model or the cache failed. */
static bool run_step(struct engine *e)
{
    const enum pkv_status status = begin_step(e);
    if (status == PKV_NOT_FOUND) {
        if (!wait_for_tiers(e)) {
            fail_first(e);
        }
        return true;
    }
    const int64_t generated = e->batch.num_generated;
    const int64_t bytes = bytes_read(e);
    if (status != PKV_OK || !batch_run(&e->batch, fork_choices, e)) {
        return false;
    }
    pthread_mutex_lock(&e->mutex);
    e->state.num_steps++;
    e->state.num_computed += e->batch.num_tokens;
    e->state.num_generated = e->batch.num_generated;
    e->state.num_drafted = e->batch.num_drafted;
    e->state.num_accepted = e->batch.num_accepted;
    rates_add(&e->rates, now_seconds(), e->batch.num_generated - generated, bytes_read(e) - bytes);
    pthread_mutex_unlock(&e->mutex);
    pause_ms(e->options.pause_ms);
    return true;
}

/* ---- what others may see -------------------------------------------------------------------- */

static struct engine_request show(const struct entry *entry)
{
    struct engine_request request = {
        .id = entry->id,
        .num_prompt = entry->usage.num_prompt,
        .num_cached = entry->usage.num_cached,
        .num_generated = entry->usage.num_generated,
        .num_choices = entry->request->num_choices,
    };
    memcpy(request.tenant, entry->request->tenant, sizeof request.tenant);
    for (int32_t c = 0; c < entry->request->num_choices; c++) {
        if (entry->runs[c].state == RUN_RUNNING) {
            request.state = entry->prompt_done ? 2 : 1;
        }
    }
    return request;
}

static void publish(struct engine *e)
{
    pthread_mutex_lock(&e->mutex);
    e->num_shown = 0;
    e->state.num_waiting = 0;
    e->state.num_running = 0;
    for (const struct entry *entry = e->entries; entry != NULL; entry = entry->next) {
        int32_t running = 0;
        for (int32_t c = 0; c < entry->request->num_choices; c++) {
            running += entry->runs[c].state == RUN_RUNNING;
        }
        e->state.num_running += running;
        e->state.num_waiting += running == 0;
        if (e->num_shown < e->max_shown) {
            e->shown[e->num_shown] = show(entry);
            e->num_shown++;
        }
    }
    for (const struct entry *entry = e->arrived; entry != NULL; entry = entry->next) {
        e->state.num_waiting++;
    }
    pthread_mutex_unlock(&e->mutex);
}

/* ---- the thread ----------------------------------------------------------------------------- */

/* Without an entry the thread waits for one. Stores that are done take effect meanwhile. */
static void wait_for_work(struct engine *e)
{
    while (e->arrived == NULL && !e->noticed && !e->stopping && e->entries == NULL) {
        if (uses_tiers(e) && holds_blocks(e)) {
            wait_us(e, TIER_IDLE_US);
            pkv_tier_poll(e->cache, NULL);
        } else {
            pthread_cond_wait(&e->changed, &e->mutex);
        }
    }
}

/* False when the engine stops. */
static bool take_arrived(struct engine *e)
{
    pthread_mutex_lock(&e->mutex);
    wait_for_work(e);
    struct entry *arrived = e->arrived;
    const bool go_on = !e->stopping;
    e->arrived = NULL;
    e->noticed = false;
    pthread_mutex_unlock(&e->mutex);
    while (arrived != NULL) {
        struct entry *entry = arrived;
        arrived = entry->next;
        if (!set_quota(e, entry->request, e->options.tenant_blocks)) {
            entry->failure = "too many tenants";
        }
        insert_entry(e, entry);
    }
    return go_on;
}

static void *engine_thread(void *context)
{
    struct engine *e = context;
    while (take_arrived(e)) {
        remove_ended(e);
        start_tiers(e);
        admit_waiting(e);
        if (!run_step(e)) {
            fail_all(e, "the model failed");
        }
        remove_ended(e);
        publish(e);
    }
    fail_all(e, "the server stops");
    publish(e);
    return NULL;
}

static void create_condition(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* Always true: what is not loaded is computed. */
static bool load_recent(struct engine *e)
{
    if (e->options.save_path != NULL) {
        recent_load(e->cache, e->options.save_path);
    }
    return true;
}

bool engine_start(const struct language_model *lm, const struct engine_options *options,
                  struct engine **engine)
{
    struct engine *e = calloc(1, sizeof *e);
    if (e == NULL) {
        return complain("out of memory");
    }
    e->lm = lm;
    e->options = *options;
    e->max_shown = options->max_queue + options->max_batch;
    e->shown = calloc((size_t)e->max_shown, sizeof *e->shown);
    pthread_mutex_init(&e->mutex, NULL);
    create_condition(&e->changed);
    if (e->shown != NULL && tiers_open(&options->tiers, &e->tiers) &&
        model_cache_create(lm, options, &e->tiers, batch_max_tokens(options), &e->cache) &&
        set_quota_to_ask(e) && batch_create(lm, options, e->cache, &e->batch) && load_recent(e) &&
        pthread_create(&e->thread, NULL, engine_thread, e) == 0) {
        *engine = e;
        return true;
    }
    batch_free(&e->batch);
    pkv_cache_destroy(e->cache, true);
    tiers_close(&e->tiers);
    free(e->shown);
    free(e);
    return complain("the engine does not start");
}

/* No sequence lives any more: a block that is held is a fault. */
static bool check_empty(pkv_cache *cache)
{
    struct pkv_stats stats = {.size = sizeof stats};
    if (pkv_cache_check(cache) != 0 || pkv_cache_stats(cache, &stats) != PKV_OK) {
        return complain("the cache is broken");
    }
    return stats.held_blocks == 0 ||
           complain("%lld blocks are still held", (long long)stats.held_blocks);
}

void engine_close(struct engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    engine->stopping = true;
    pthread_cond_signal(&engine->changed);
    pthread_mutex_unlock(&engine->mutex);
    pthread_join(engine->thread, NULL);
}

/* What waits is stored, unless that takes too long. */
static void flush_tiers(struct engine *e)
{
    int32_t num_left = 0;
    pkv_cache_close(e->cache);
    if (uses_tiers(e) && pkv_tier_flush(e->cache, FLUSH_NS, &num_left) != PKV_OK) {
        complain("%d blocks were not stored: %s", num_left, pkv_last_error());
    }
}

bool engine_free(struct engine *engine)
{
    if (engine->options.save_path != NULL) {
        recent_save(&engine->recent, engine->cache, engine->options.block_size,
                    engine->options.save_path, SAVE_SECONDS);
    }
    recent_free(&engine->recent);
    flush_tiers(engine);
    const bool ok = check_empty(engine->cache);
    batch_free(&engine->batch);
    pkv_cache_destroy(engine->cache, true);
    tiers_close(&engine->tiers);
    pthread_mutex_destroy(&engine->mutex);
    pthread_cond_destroy(&engine->changed);
    free(engine->shown);
    free(engine);
    return ok;
}

/* ---- any thread ----------------------------------------------------------------------------- */

static bool can_ever_fit(struct engine *e, const struct job_request *request)
{
    if (request->max_tokens > e->options.max_seq_len - request->num_prompt) {
        return false;
    }
    const struct pkv_prompt prompt = {
        .size = sizeof prompt, .token_ids = request->prompt, .num_tokens = request->num_prompt};
    struct pkv_namespace_field field;
    const struct pkv_seq_options options =
        model_cache_seq_options(has_quota(e, request) ? &any_tenant : request, 0, &field);
    struct pkv_probe probe = {.size = sizeof probe};
    return pkv_cache_probe(e->cache, &options, &prompt, request->max_tokens - 1, 0, &probe, NULL) ==
               PKV_OK &&
           probe.status != PKV_NEVER_FITS;
}

enum engine_answer engine_submit(struct engine *engine, struct job *job)
{
    if (!can_ever_fit(engine, job_request(job))) {
        return ENGINE_TOO_LONG;
    }
    enum engine_answer answer = ENGINE_TAKEN;
    pthread_mutex_lock(&engine->mutex);
    if (engine->stopping) {
        answer = ENGINE_STOPPING;
    } else if (engine->state.num_waiting >= engine->options.max_queue) {
        answer = ENGINE_FULL;
    } else {
        struct entry *entry = entry_create(job, engine->next_id + 1);
        if (entry != NULL) {
            engine->next_id++;
            engine->state.num_waiting++; /* until the engine counts again */
            entry->next = engine->arrived;
            engine->arrived = entry;
        }
        answer = entry != NULL ? ENGINE_TAKEN : ENGINE_FULL;
        pthread_cond_signal(&engine->changed);
    }
    pthread_mutex_unlock(&engine->mutex);
    return answer;
}

void engine_notice(struct engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    engine->noticed = true;
    pthread_cond_signal(&engine->changed);
    pthread_mutex_unlock(&engine->mutex);
}

void engine_state(struct engine *engine, struct engine_state *state)
{
    pthread_mutex_lock(&engine->mutex);
    *state = engine->state;
    rates_read(&engine->rates, now_seconds(), &state->tokens_per_second, &state->bytes_per_second);
    pthread_mutex_unlock(&engine->mutex);
}

int32_t engine_requests(struct engine *engine, int32_t max, struct engine_request *requests)
{
    pthread_mutex_lock(&engine->mutex);
    const int32_t count = engine->num_shown;
    memcpy(requests, engine->shown, (size_t)(count < max ? count : max) * sizeof *requests);
    pthread_mutex_unlock(&engine->mutex);
    return count;
}

const struct tiers *engine_tiers(const struct engine *engine)
{
    return &engine->tiers;
}

pkv_cache *engine_cache(struct engine *engine)
{
    return engine->cache;
}
