/* SPDX-License-Identifier: MIT
 *
 * A worker gathers under the mutex, reads or writes without it, and notes what became of it under
 * it again. Its memory is its own: one run of arrays for the blocks of a transfer. */
#include "runtime/tier_work.h"

#include <signal.h>
#include <sys/resource.h>

#include "base/deadline.h"
#include "base/sized.h"
#include "runtime/gather.h"
#include "runtime/tier_poll.h"

#define LAST_NICE 19        /* no other thread that can run waits for one of these */
#define RETRY_NS 200000000u /* until a flush is tried again in a tier that has refused it */

/* A transfer and its memory. */
struct worker {
    struct transfer transfer;
    void *memory;
    size_t bytes;
};

static enum pkv_status open_worker(pkv_cache *cache, struct worker *worker)
{
    struct carver carver = {0};
    const int32_t max_pieces = gather_max_pieces(cache);
    const size_t max_head_bytes = gather_max_head_bytes(cache);
    transfer_carve(&worker->transfer, max_pieces, max_head_bytes, &carver);
    worker->bytes = carver.used;
    worker->memory = hooks_alloc_array(&cache->mem.routed, worker->bytes, 1);
    if (worker->memory == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for %zu bytes of a transfer", worker->bytes);
    }
    carver = (struct carver){.base = worker->memory};
    transfer_carve(&worker->transfer, max_pieces, max_head_bytes, &carver);
    return PKV_OK;
}

static void close_worker(pkv_cache *cache, struct worker *worker)
{
    hooks_free_array(&cache->mem.routed, worker->memory, worker->bytes, 1);
}

/* Waits for the condition up to the deadline, or until a flush that rests is tried again. False
 * when the deadline is over. The mutex is held. */
static bool wait_for(pkv_cache *cache, pthread_cond_t *condition, const struct deadline *deadline)
{
    const struct offload *offload = &cache->offload;
    const bool retries = offload->rests && (!deadline->has_end ||
                                            deadline_is_before(&offload->retry_at, &deadline->end));
    const struct timespec end = retries ? offload->retry_at : deadline->end;
    if (deadline_is_over(deadline)) {
        return false;
    }
    if (cache->first_wait != NULL) {
        wait_wake(cache, cache->first_wait);
    }
    if (retries || deadline->has_end) {
        (void)pthread_cond_timedwait(condition, &cache->mutex, &end);
    } else {
        pthread_cond_wait(condition, &cache->mutex);
    }
    return true;
}

/* gather_next, with the flushes whose rest is over. */
static bool gather(pkv_cache *cache, struct worker *worker)
{
    struct offload *offload = &cache->offload;
    if (offload->rests) {
        const struct timespec now = deadline_now();
        offload->rests = deadline_is_before(&now, &offload->retry_at);
    }
    return gather_next(cache, &worker->transfer);
}

/* Carries out what was gathered. The mutex is held before and after. */
static void carry_out(pkv_cache *cache, struct worker *worker)
{
    struct offload *offload = &cache->offload;
    cache_unlock(cache);
    transfer_run(&worker->transfer, offload->tiers, offload->num_tiers);
    cache_lock(cache);
    gather_note(cache, &worker->transfer);
    if (worker->transfer.kind == TRANSFER_RAISE) {
        offload->retry_at = deadline_in(RETRY_NS).end;
    }
    pthread_cond_broadcast(&offload->has_done);
    if (cache->is_closed) {
        pthread_cond_broadcast(&offload->has_work); /* each may have waited for the last end */
    } else {
        pthread_cond_signal(&offload->has_work); /* a flush may have waited for its end */
    }
}

/* Has the cache no more work for any thread? A flush that rests is left to pkv_tier_flush. */
static bool is_finished(const pkv_cache *cache)
{
    return cache->is_closed && cache->offload.num_running == 0;
}

enum pkv_status pkv_tier_work(pkv_cache *cache, uint64_t timeout_ns, int32_t *num_moved)
{
    struct worker worker;
    enum pkv_status status = cache_check_tiers(cache);
    if (status == PKV_OK) {
        status = open_worker(cache, &worker);
    }
    if (status != PKV_OK) {
        return status;
    }
    const struct deadline deadline = deadline_in(timeout_ns);
    int32_t count = 0;
    cache_lock(cache);
    bool has_work = gather(cache, &worker);
    while (!has_work && !is_finished(cache) &&
           wait_for(cache, &cache->offload.has_work, &deadline)) {
        has_work = gather(cache, &worker);
    }
    if (has_work) {
        carry_out(cache, &worker);
        count = worker.transfer.count;
    } else if (is_finished(cache)) {
        status = refuse(PKV_BUSY, "the cache is closed, and nothing is left");
    }
    cache_unlock(cache);
    close_worker(cache, &worker);
    if (num_moved != NULL) {
        *num_moved = count;
    }
    return status;
}

/* ---- threads of the cache's own */

/* Memory may be short for a while; false when the thread is to end. It waits for what wakes all who
 * wait, so it takes no other thread's turn. */
static bool keep_opening(pkv_cache *cache, struct worker *worker)
{
    bool is_open = open_worker(cache, worker) == PKV_OK;
    cache_lock(cache);
    while (!is_open && !cache->offload.stops) {
        const struct deadline retry = deadline_in(RETRY_NS);
        (void)wait_for(cache, &cache->offload.has_done, &retry);
        is_open = open_worker(cache, worker) == PKV_OK;
    }
    cache_unlock(cache);
    return is_open;
}

static void *run_thread(void *context)
{
    pkv_cache *cache = context;
    const struct deadline never = {.has_end = false};
    struct worker worker;
    if (!keep_opening(cache, &worker)) {
        return NULL;
    }
    (void)setpriority(PRIO_PROCESS, 0, LAST_NICE); /* on Linux: of this thread */
    cache_lock(cache);
    while (!cache->offload.stops) {
        if (gather(cache, &worker)) {
            carry_out(cache, &worker);
        } else {
            (void)wait_for(cache, &cache->offload.has_work, &never);
        }
    }
    cache_unlock(cache);
    close_worker(cache, &worker);
    return NULL;
}

enum pkv_status tier_threads_start(pkv_cache *cache)
{
    struct offload *offload = &cache->offload;
    sigset_t all;
    sigset_t before;
    int error = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the host's */
    while (error == 0 && offload->num_threads < cache->config.num_tier_threads) {
        error = pthread_create(&offload->threads[offload->num_threads], NULL, run_thread, cache);
        offload->num_threads += error == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0 ? PKV_OK
                      : refuse(PKV_NO_MEMORY, "no thread for the tiers, %d of %d were started",
                               offload->num_threads, cache->config.num_tier_threads);
}

void tier_threads_stop(pkv_cache *cache)
{
    struct offload *offload = &cache->offload;
    if (offload->num_threads == 0) {
        return;
    }
    cache_lock(cache);
    offload->stops = true;
    pthread_cond_broadcast(&offload->has_work);
    cache_unlock(cache);
    for (int32_t i = 0; i < offload->num_threads; i++) {
        pthread_join(offload->threads[i], NULL);
    }
    offload->num_threads = 0;
}

/* ---- until something is done */

/* Does what is waiting, or waits a moment for the threads that do. False when the time is over. The
 * mutex is held before and after. */
static bool go_on(pkv_cache *cache, struct worker *worker, const struct deadline *deadline)
{
    if (gather(cache, worker)) {
        carry_out(cache, worker);
        return !deadline_is_over(deadline);
    }
    if (cache->offload.num_running == 0 && cache->offload.num_raises == 0) {
        return true; /* nobody is at work: a poll goes on, or nothing is left */
    }
    return wait_for(cache, &cache->offload.has_done, deadline);
}

static int32_t num_left(const pkv_cache *cache)
{
    const struct offload *offload = &cache->offload;
    return offload->stores.num_waiting + offload->num_raises + (offload->raising.tiers != 0);
}

enum pkv_status pkv_tier_flush(pkv_cache *cache, uint64_t timeout_ns, int32_t *left)
{
    struct worker worker;
    enum pkv_status status = cache_check_tiers(cache);
    if (status == PKV_OK) {
        status = open_worker(cache, &worker);
    }
    if (status != PKV_OK) {
        return status;
    }
    const struct deadline deadline = deadline_in(timeout_ns);
    cache_lock(cache);
    tier_poll(cache);
    bool has_time = true;
    while (has_time && !gather_is_idle(cache)) {
        has_time = go_on(cache, &worker, &deadline);
        tier_poll(cache);
    }
    const int32_t count = num_left(cache);
    const bool is_idle = gather_is_idle(cache);
    cache_unlock(cache);
    close_worker(cache, &worker);
    if (left != NULL) {
        *left = count;
    }
    return is_idle ? PKV_OK : refuse(PKV_BUSY, "the time is over, %d stores are left", count);
}

enum pkv_status pkv_ticket_wait(pkv_cache *cache, pkv_ticket handle, uint64_t timeout_ns,
                                struct pkv_ticket_info *info)
{
    struct worker worker;
    struct pkv_ticket_info found = {.state = PKV_TICKET_FINDING};
    enum pkv_status status = cache_check_tiers(cache);
    if (status == PKV_OK && info != NULL) {
        status = sized_check("info", info, struct pkv_ticket_info, begun_ns);
    }
    if (status == PKV_OK) {
        status = open_worker(cache, &worker);
    }
    if (status != PKV_OK) {
        return status;
    }
    const struct deadline deadline = deadline_in(timeout_ns);
    cache_lock(cache);
    tier_poll(cache);
    status = tier_read_ticket(cache, handle, &found);
    bool has_time = true;
    while (status == PKV_OK && found.state != PKV_TICKET_DONE && has_time) {
        has_time = go_on(cache, &worker, &deadline);
        tier_poll(cache);
        status = tier_read_ticket(cache, handle, &found);
    }
    cache_unlock(cache);
    close_worker(cache, &worker);
    if (status == PKV_OK && found.state != PKV_TICKET_DONE) {
        return refuse(PKV_BUSY, "the time is over, the ticket is not done");
    }
    if (status == PKV_OK && info != NULL) {
        sized_fill(info, &found);
    }
    return status;
}
