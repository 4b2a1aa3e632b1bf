/* SPDX-License-Identifier: MIT
 *
 * evictions.c: requests of one block and a token on a pool that is full of such prompts, so that
 * each evicts two, by the number of cached blocks. A request is created, admitted, written,
 * cut by one token and destroyed; the cut is timed by itself. */
#include <stdio.h>

#include "parts.h"
#include "server.h"

enum { TURNS = 1000, NUM_SIZES = 4, TOKENS = BLOCK_SIZE + 1 };

struct variant {
    const char *name;
    int32_t num_priorities;
    bool pins, has_events;
    int32_t min_blank_percent;
};

struct times {
    struct samples request, cut;
};

static void run_request(struct server *server, const struct variant *variant, uint64_t seed,
                        struct times *times)
{
    int32_t tokens[TOKENS];
    struct pkv_seq_options options = {.size = sizeof options};
    struct pkv_admission admission = {.size = sizeof admission};
    pkv_seq seq;
    server_tokens(tokens, TOKENS, seed);
    const struct pkv_prompt prompt = server_prompt(tokens, TOKENS);
    options.priority = (int32_t)(seed % (uint64_t)variant->num_priorities);
    const double start = measure_now();
    measure_must(pkv_seq_create(server->cache, &options, &seq), "pkv_seq_create");
    measure_must(pkv_seq_admit(server->cache, seq, &prompt, 0, TOKENS, &admission, NULL),
                 "pkv_seq_admit");
    server_write(server, seq, tokens, 0, TOKENS);
    const double middle = measure_now();
    measure_must(pkv_seq_truncate(server->cache, seq, TOKENS - 1), "pkv_seq_truncate");
    const double late = measure_now();
    server_end(server, seq);
    samples_add(&times->request, middle - start + (measure_now() - late));
    samples_add(&times->cut, late - middle);
}

static void pin(struct server *server, uint64_t seed)
{
    int32_t tokens[TOKENS];
    int32_t num_pinned;
    pkv_pin pinned;
    server_tokens(tokens, TOKENS, seed);
    const struct pkv_prompt prompt = server_prompt(tokens, TOKENS);
    measure_must(pkv_prefix_pin(server->cache, NULL, &prompt, 0, 0, &pinned, &num_pinned),
                 "pkv_prefix_pin");
}

static void bench_size(const struct variant *variant, int32_t num_blocks, struct times *times)
{
    struct times filling = {0};
    struct server server;
    uint64_t seed = 1;
    server_init(&server, 2, 2 * TOKENS, num_blocks);
    server.config.prefix_cache = true;
    server.config.max_pinned_blocks = variant->pins ? num_blocks / 2 : 0;
    server.config.num_events = variant->has_events ? 1024 : 0;
    server.config.min_blank_percent = variant->min_blank_percent;
    server.skips_attention = true;
    server_open(&server);
    for (; seed < 2 * (uint64_t)num_blocks; seed++) {
        run_request(&server, variant, seed, &filling);
        if (variant->pins && seed < (uint64_t)num_blocks && seed % 2 == 0) {
            pin(&server, seed);
        }
    }
    struct pkv_group_usage usage = {.size = sizeof usage};
    measure_must(pkv_cache_usage(server.cache, 0, &usage), "pkv_cache_usage");
    const int32_t num_blank = num_blocks * variant->min_blank_percent / 100;
    if (usage.cached + usage.pinned + num_blank + 3 < num_blocks) {
        measure_fail("%d of %d blocks are cached", usage.cached + usage.pinned, num_blocks);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        run_request(&server, variant, seed++, times);
    }
    server_close(&server);
}

void bench_evictions(void)
{
    static const int32_t sizes[NUM_SIZES] = {1000, 5000, 20000, 50000};
    static const struct variant variants[] = {
        {"plain", 1, false, false, 0},
        {"4 priorities", 4, false, false, 0},
        {"half of it pinned", 1, true, false, 0},
        {"events on", 1, false, true, 0},
        {"12 % blank", 1, false, false, 12},
    };
    for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
        double first = 0, first_p99 = 0;
        for (int i = 0; i < NUM_SIZES; i++) {
            struct times times = {0};
            bench_size(&variants[v], sizes[i], &times);
            const double median = samples_median(&times.request);
            const double p99 = samples_quantile(&times.request, 0.99);
            first = i == 0 ? median : first;
            first_p99 = i == 0 ? p99 : first_p99;
            printf("request of %d tokens, %5d cached blocks, %-17s  %6.2f us (%.2f of 1k), p99 "
                   "%6.2f (%.2f)    truncate %5.2f us, p99 %5.2f\n",
                   TOKENS, sizes[i], variants[v].name, 1e6 * median, median / first, 1e6 * p99,
                   p99 / first_p99, 1e6 * samples_median(&times.cut),
                   1e6 * samples_quantile(&times.cut, 0.99));
        }
    }
}
