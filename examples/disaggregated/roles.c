/* SPDX-License-Identifier: MIT
 *
 * roles.c: the two loops, and all of the program that knows of tiers. */
#include "roles.h"

#include "report.h"

#include <signal.h>

/* A tier that does not answer in time costs hits and nothing else. */
static const uint64_t patience_ns = 5000000000;

/* Writes what the last commits have left to be stored, on this thread. A server has threads for it
 * (config.num_tier_threads). */
static void store_some(struct worker *worker)
{
    int32_t num_moved = 1;
    while (num_moved > 0 && pkv_tier_work(worker->cache, 0, &num_moved) == PKV_OK) {
        pkv_tier_poll(worker->cache, NULL);
    }
}

static bool prefill(struct worker *worker, struct message *message, bool dies)
{
    pkv_seq seq;
    if (!worker_admit(worker, message, 0, &seq)) {
        return false;
    }
    for (int32_t at = message->num_cached; at < message->num_tokens;) {
        if (!worker_step(worker, seq, message, at, &at)) {
            return false;
        }
        store_some(worker);
        if (dies && at > message->num_tokens / 2) {
            raise(SIGKILL);
        }
    }
    (void)pkv_tier_flush(worker->cache, patience_ns, NULL);
    return pkv_seq_destroy(worker->cache, seq) == PKV_OK || complain("%s", pkv_last_error());
}

bool run_prefill(int socket, const struct place *place, int32_t dies_in)
{
    struct worker worker;
    struct message message;
    bool ok = worker_create(place, &worker);
    while (ok && channel_receive(socket, &message)) {
        ok = prefill(&worker, &message, message.request == dies_in) &&
             channel_send(socket, &message);
    }
    worker_free(&worker);
    return ok;
}

/* What has come by then is found by the admission; the ticket holds it until that has adopted it.
 */
static bool prefetch(struct worker *worker, const struct message *message, pkv_ticket *ticket)
{
    const struct pkv_prompt prompt = {
        .size = sizeof prompt, .token_ids = message->tokens, .num_tokens = message->num_prompt};
    if (pkv_tier_prefetch(worker->cache, NULL, &prompt, message->num_prompt, 0, ticket) != PKV_OK) {
        return complain("prefetch: %s", pkv_last_error());
    }
    (void)!pkv_ticket_wait(worker->cache, *ticket, patience_ns, NULL);
    return true;
}

bool run_decode(int socket, const struct place *place)
{
    struct worker worker;
    struct message message;
    bool ok = worker_create(place, &worker);
    while (ok && channel_receive(socket, &message)) {
        pkv_ticket ticket;
        pkv_seq seq;
        ok = prefetch(&worker, &message, &ticket) && worker_admit(&worker, &message, NUM_NEW, &seq);
        if (ok) {
            (void)pkv_ticket_close(worker.cache, ticket);
            ok = worker_decode(&worker, seq, &message) && channel_send(socket, &message);
        }
    }
    worker_free(&worker);
    return ok;
}
