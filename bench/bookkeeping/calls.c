/* SPDX-License-Identifier: MIT
 *
 * calls.c: each kind of call, made by one thread while no other is there, so that its time bounds
 * how long it held the mutex. visit and reset let it go in between: theirs is the time of
 * many slices. The longest contains whatever else the machine did. */
#include <stdio.h>

#include "parts.h"
#include "server.h"

enum { CALL_BLOCKS = 4096, TURNS = 201, MAX_KINDS = 24 };

struct kind {
    const char *name;
    struct samples times;
};

static struct kind kinds[MAX_KINDS];
static double started;

static void start(void)
{
    started = measure_now();
}

static void stop(const char *name, enum pkv_status status)
{
    const double time = measure_now() - started;
    measure_must(status, name);
    for (int i = 0; i < MAX_KINDS; i++) {
        if (kinds[i].name == NULL || kinds[i].name == name) {
            kinds[i].name = name;
            samples_add(&kinds[i].times, time);
            return;
        }
    }
}

static bool see(void *context, const struct pkv_block_info *info)
{
    (void)info;
    ++*(int64_t *)context;
    return true;
}

static bool swallow(void *context, const char *text, size_t bytes)
{
    (void)text;
    *(int64_t *)context += (int64_t)bytes;
    return true;
}

#define CALL(name, call) (start(), stop(name, call))

/* A request with a hit of PROMPT tokens. */
static void request(struct server *server, const int32_t *tokens)
{
    pkv_cache *cache = server->cache;
    const int32_t n = PROMPT + 1;
    struct pkv_admission admission = {.size = sizeof admission};
    struct pkv_probe probe = {.size = sizeof probe};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    struct pkv_batch batch = {.size = sizeof batch, .token_ids = tokens, .num_rows = 1};
    const struct pkv_prompt prompt = server_prompt(tokens, n);
    pkv_seq seq, child;
    pkv_step step;
    CALL("probe, hit of 1024 tokens", pkv_cache_probe(cache, NULL, &prompt, 0, n, &probe, NULL));
    CALL("create", pkv_seq_create(cache, NULL, &seq));
    CALL("admit, hit of 1024 tokens", pkv_seq_admit(cache, seq, &prompt, 0, n, &admission, NULL));
    batch.seqs = &seq;
    CALL("step_fits, 1 row", pkv_step_fits(cache, &batch, &shortage));
    CALL("begin, 1 row", pkv_step_begin(cache, &batch, &step, &shortage));
    CALL("abort, 1 row", pkv_step_abort(cache, step));
    server_step(server, &seq, NULL, tokens + PROMPT, 1);
    CALL("fork at 1025", pkv_seq_fork(cache, seq, n, 1, &child));
    CALL("truncate by 513 tokens", pkv_seq_truncate(cache, child, PROMPT / 2));
    CALL("destroy, 33 blocks", pkv_seq_destroy(cache, child));
    CALL("destroy, 65 blocks", pkv_seq_destroy(cache, seq));
}

static void administer(struct server *server, const int32_t *tokens)
{
    pkv_cache *cache = server->cache;
    struct pkv_event events[64];
    struct pkv_stats stats = {.size = sizeof stats};
    const struct pkv_prompt prompt = server_prompt(tokens, PROMPT);
    int64_t seen = 0;
    int32_t count;
    pkv_pin pin;
    CALL("pin, 1024 tokens", pkv_prefix_pin(cache, NULL, &prompt, 0, 0, &pin, &count));
    CALL("unpin, 1024 tokens", pkv_prefix_unpin(cache, pin));
    CALL("events_drain, 64",
         pkv_events_drain(cache, events, sizeof(struct pkv_event), 64, &count, NULL));
    CALL("stats", pkv_cache_stats(cache, &stats));
    CALL("metrics_write", pkv_metrics_write(cache, swallow, &seen));
    CALL("visit, 4096 blocks (slices)", pkv_cache_visit(cache, see, &seen, NULL));
}

/* A prompt without a hit, in a pool that must evict for it. */
static void miss(struct server *server, uint64_t seed)
{
    int32_t tokens[PROMPT];
    struct pkv_admission admission = {.size = sizeof admission};
    const pkv_seq seq = server_seq(server);
    server_tokens(tokens, PROMPT, seed);
    const struct pkv_prompt prompt = server_prompt(tokens, PROMPT);
    CALL("admit, evicting 64 blocks",
         pkv_seq_admit(server->cache, seq, &prompt, 0, PROMPT, &admission, NULL));
    server_write(server, seq, tokens, 0, PROMPT);
    server_end(server, seq);
}

static void flush_all(struct server *server)
{
    const struct pkv_namespace_field tenant = {1, 1, "t", 0};
    const struct pkv_seq_options options = {
        .size = sizeof options, .namespace_fields = &tenant, .num_namespace_fields = 1};
    for (uint64_t i = 0; i < 5; i++) {
        server_fill(server, &options, CALL_BLOCKS, 100000 * (i + 1));
        CALL("check, 4096 blocks", pkv_cache_check(server->cache) == 0 ? PKV_OK : PKV_CORRUPT);
        CALL("flush, 4096 blocks", pkv_namespace_flush(server->cache, &tenant, NULL));
        server_fill(server, NULL, CALL_BLOCKS, 100000 * (i + 11));
        CALL("reset, 4096 blocks (slices)", pkv_cache_reset(server->cache, false, NULL));
    }
}

void bench_calls(void)
{
    struct server server;
    int32_t tokens[PROMPT + 1];
    server_init(&server, ROWS, KEYS, CALL_BLOCKS);
    server.config.prefix_cache = true;
    server.config.max_pinned_blocks = PROMPT / BLOCK_SIZE;
    server.config.num_events = 1024;
    server_open(&server);
    const pkv_seq first = server_seq(&server);
    server_tokens(tokens, PROMPT + 1, 1);
    server_write(&server, first, tokens, 0, PROMPT);
    server_end(&server, first);
    for (uint64_t i = 0; i < TURNS; i++) {
        request(&server, tokens);
        administer(&server, tokens);
        miss(&server, 1000 + i);
    }
    flush_all(&server);
    printf("one thread, one row of 1024 cached tokens (64 blocks) where not said otherwise:\n");
    for (int i = 0; i < MAX_KINDS && kinds[i].name != NULL; i++) {
        printf("  %-30s %9.2f us    longest %9.2f us\n", kinds[i].name,
               1e6 * samples_median(&kinds[i].times), 1e6 * samples_max(&kinds[i].times));
    }
    server_close(&server);
}
