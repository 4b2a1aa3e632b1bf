/* SPDX-License-Identifier: MIT
 *
 * worker.c: one sequence at a time. */
#include "worker.h"

#include "cached.h"
#include "embedded.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>

static const char fingerprint[] = "pagedkv's embedded model";

static bool succeeds(enum pkv_status status, const char *what)
{
    return status == PKV_OK || complain("%s: %s", what, pkv_last_error());
}

bool split_address(const char *address, char host[MAX_HOST], int32_t *port)
{
    const char *colon = strrchr(address, ':');
    if (colon == NULL || colon - address >= MAX_HOST) {
        return complain("--redis %s: not HOST:PORT", address);
    }
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = '\0';
    return parse_number("the port of --redis", colon + 1, 1, 65535, port);
}

static bool open_redis(const struct place *place, pkv_tier **tier)
{
    char host[MAX_HOST];
    struct pkv_redis_config config = {
        .size = sizeof config, .host = host, .key_prefix = place->key_prefix, .ttl_seconds = 600};
    return split_address(place->redis, host, &config.port) &&
           succeeds(pkv_tier_create_redis(&config, tier), "redis");
}

static bool open_tier(const struct place *place, pkv_tier **tier)
{
    if (place->redis != NULL) {
        return open_redis(place, tier);
    }
    const struct pkv_disk_config config = {
        .size = sizeof config, .path = place->directory, .max_bytes = 64 << 20};
    return place->directory == NULL || succeeds(pkv_tier_create_disk(&config, tier), "disk");
}

bool worker_create(const struct place *place, struct worker *worker)
{
    const struct pkv_group_config group = {.block_size = BLOCK_SIZE, .num_blocks = 256};
    struct pkv_cache_config config = {.prefix_cache = true, .no_partial_hits = true};
    *worker = (struct worker){0};
    if (!embedded_load(&worker->model) || !open_tier(place, &worker->tier) ||
        !activations_create(&worker->model, CHUNK, 1, &worker->activations)) {
        return false;
    }
    config.max_seqs = 1;
    config.max_seq_len = MAX_TEXT;
    config.max_step_tokens = CHUNK;
    config.num_threads = 1;
    config.fingerprint = fingerprint;
    config.fingerprint_bytes = sizeof fingerprint - 1;
    config.tiers = worker->tier != NULL ? &worker->tier : NULL;
    config.num_tiers = worker->tier != NULL;
    return cached_create(&worker->model, &group, &config, &worker->cache);
}

void worker_free(struct worker *worker)
{
    (void)pkv_cache_destroy(worker->cache, true);
    pkv_tier_destroy(worker->tier);
    activations_free(&worker->activations);
    model_free(&worker->model);
    *worker = (struct worker){0};
}

bool worker_admit(struct worker *worker, struct message *message, int32_t num_new, pkv_seq *seq)
{
    const struct pkv_prompt prompt = {
        .size = sizeof prompt, .token_ids = message->tokens, .num_tokens = message->num_prompt};
    struct pkv_admission admission = {.size = sizeof admission};
    if (!succeeds(pkv_seq_create(worker->cache, NULL, seq), "sequence") ||
        !succeeds(pkv_seq_admit(worker->cache, *seq, &prompt, num_new, message->num_prompt,
                                &admission, NULL),
                  "admission")) {
        return false;
    }
    message->num_cached = admission.num_cached;
    message->num_loaded = admission.tier_cached[0];
    return true;
}

bool worker_step(struct worker *worker, pkv_seq seq, const struct message *message, int32_t from,
                 int32_t *end)
{
    const int32_t left = message->num_tokens - from;
    const int32_t count = left < CHUNK ? left : CHUNK;
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = &seq,
                                    .q_lens = &count,
                                    .num_rows = 1,
                                    .num_required_rows = 1,
                                    .token_ids = message->tokens + from};
    struct cached_step open = {.cache = worker->cache};
    if (!succeeds(pkv_step_begin(worker->cache, &batch, &open.step, NULL), "step") ||
        !forward(&worker->model, &worker->activations, batch.token_ids, count, cached_attend,
                 &open) ||
        !succeeds(pkv_step_commit(worker->cache, open.step, NULL), "commit")) {
        return false;
    }
    *end = from + count;
    return true;
}

bool worker_decode(struct worker *worker, pkv_seq seq, struct message *message)
{
    int32_t at = message->num_cached, token = 0;
    int32_t last = message->num_prompt + NUM_NEW;
    last = last < MAX_TEXT ? last : MAX_TEXT;
    while (message->num_tokens < last) {
        const int32_t from = at;
        if (!worker_step(worker, seq, message, from, &at)) {
            return false;
        }
        if (at < message->num_tokens) {
            continue;
        }
        if (!next_token(&worker->model, &worker->activations, at - from - 1, &token, NULL)) {
            return false;
        }
        if (token == worker->model.begin_id || token == worker->model.end_id) {
            break;
        }
        message->tokens[message->num_tokens++] = token;
    }
    return succeeds(pkv_seq_destroy(worker->cache, seq), "end of a sequence");
}
