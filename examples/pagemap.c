/* SPDX-License-Identifier: MIT
 *
 * pagemap: the pool of a cache, block by block, while requests run on it. A random model serves a
 * stream of prompts that begin with one of a few system prompts; after every few steps a frame of
 * at most 24 lines of 80 columns shows the state of each block (examples/support/page_map.h says
 * by which characters) and what the prefix cache saves. The run ends after its frames. Exit status
 * 0, or 1 after a line on stderr. */
#include "page_map.h"
#include "random.h"
#include "report.h"
#include "server.h"
#include "source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char program_name[] = "pagemap";

enum { MAX_REQUESTS = 20000 };
enum { NUM_SYSTEMS = 6, SYSTEM_TOKENS = 256, SYSTEM_STEP = 64, MODEL_SEED = 10 };
enum { MIN_OWN = 16, MORE_OWN = 208, MAX_PROMPT = 1024 };
enum { PIN_EVERY = 8, PIN_FRAMES = 5 };

static const char usage[] =
    "pagemap: shows the pool of a cache while requests run on it\n"
    "\n"
    "  --frames N          frames until it stops (100)\n"
    "  --every S           steps between two frames (4)\n"
    "  --delay MS          milliseconds that a frame stands on a terminal (60)\n"
    "  --num-blocks N      blocks of the pool, up to 1024 (512)\n"
    "  --block-size B      tokens a block (64)\n"
    "  --max-batch M       requests that run at once (12)\n"
    "  --threads T         of attention, 0 = as many as can run (0)\n"
    "  --plain             no colours, frames one after another; so too when stdout is no "
    "terminal\n";

struct options {
    struct serve_options serve;
    int32_t num_frames;
    int32_t every;
    int32_t delay;
    bool plain;
    bool help;
};

struct pagemap {
    const struct options *options;
    int32_t system[NUM_SYSTEMS][SYSTEM_TOKENS + NUM_SYSTEMS * SYSTEM_STEP];
    int32_t num_frames;
    struct page_map pool;
    int64_t last_computed; /* at the frame before, and when that was */
    double last_time;
};

static bool take_pair(struct options *o, const char *name, const char *value)
{
    const struct number_option numbers[] = {
        {"--frames", 1, 100000, &o->num_frames},
        {"--every", 1, 1000, &o->every},
        {"--delay", 0, 10000, &o->delay},
        {"--num-blocks", 1, PAGE_MAP_MAX_BLOCKS, &o->serve.num_blocks},
        {"--block-size", 1, 1024, &o->serve.block_size},
        {"--max-batch", 1, 256, &o->serve.max_batch},
        {"--threads", 0, MAX_THREADS, &o->serve.threads},
    };
    bool taken = false;
    if (value == NULL) {
        return complain("%s is unknown, or lacks its value (--help)", name);
    }
    return take_number(numbers, sizeof numbers / sizeof numbers[0], name, value, &taken) &&
           (taken || complain("unknown argument %s (--help lists them)", name));
}

static bool parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){
        .serve = {.num_blocks = 512, .block_size = 64, .max_batch = 12, .chunk = 256},
        .num_frames = 100,
        .every = 4,
        .delay = 60};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--plain") == 0) {
            o->plain = true;
        } else if (strcmp(argv[i], "--help") == 0) {
            o->help = true;
        } else if (take_pair(o, argv[i], i + 1 < argc ? argv[i + 1] : NULL)) {
            i++;
        } else {
            return false;
        }
    }
    o->plain = o->plain || isatty(STDOUT_FILENO) == 0;
    o->serve.prefix_cache = true;
    o->serve.max_pinned_blocks = o->serve.num_blocks / 4;
    return true;
}

/* --- the load */

static int32_t below(uint32_t *state, int32_t limit)
{
    *state = *state * 1664525u + 1013904223u;
    return (int32_t)((*state >> 8) % (uint32_t)limit);
}

static int32_t system_length(int32_t system)
{
    return SYSTEM_TOKENS + SYSTEM_STEP * system;
}

/* A few system prompts, the first of them the most popular, each with a user's words behind it. */
static bool make_requests(struct pagemap *map, const struct model *model, int32_t count,
                          struct request_list *requests)
{
    uint32_t state = 1;
    int32_t prompt[MAX_PROMPT];
    for (int32_t s = 0; s < NUM_SYSTEMS; s++) {
        for (int32_t i = 0; i < system_length(s); i++) {
            map->system[s][i] = below(&state, model->vocab_size);
        }
    }
    for (int32_t r = 0; r < count; r++) {
        const int32_t one = below(&state, NUM_SYSTEMS);
        const int32_t two = below(&state, NUM_SYSTEMS);
        const int32_t s = one < two ? one : two;
        const int32_t own = MIN_OWN + below(&state, MORE_OWN);
        const int32_t length = system_length(s) + own;
        memcpy(prompt, map->system[s], (size_t)system_length(s) * sizeof *prompt);
        for (int32_t i = system_length(s); i < length; i++) {
            prompt[i] = below(&state, model->vocab_size);
        }
        if (!request_add(requests, model, prompt, length, 16 + below(&state, 48))) {
            return false;
        }
    }
    return true;
}

/* Now and then a system prompt is pinned for a few frames. The clock of pins is the step number. */
static bool pin_something(struct pagemap *map, pkv_cache *cache, const struct serve_stats *stats)
{
    const uint64_t now = (uint64_t)stats->num_steps;
    if (pkv_prefix_expire(cache, now, NULL) != PKV_OK) {
        return complain("expire: %s", pkv_last_error());
    }
    if (map->num_frames % PIN_EVERY != PIN_EVERY - 1 ||
        map->options->serve.max_pinned_blocks == 0) {
        return true;
    }
    const int32_t s = map->num_frames / PIN_EVERY % NUM_SYSTEMS;
    const uint64_t ttl = (uint64_t)(PIN_FRAMES * map->options->every);
    const struct pkv_prompt prompt = {
        .size = sizeof prompt, .token_ids = map->system[s], .num_tokens = system_length(s)};
    pkv_pin pin = {0};
    int32_t num_pinned = 0;
    return pkv_prefix_pin(cache, NULL, &prompt, ttl, now, &pin, &num_pinned) == PKV_OK ||
           complain("pin: %s", pkv_last_error());
}

/* --- a frame */

static double percent(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

static void print_numbers(struct pagemap *map, const struct serve_stats *serve,
                          const struct pkv_stats *stats)
{
    const double seconds = now_seconds() - map->last_time;
    printf("hit rate %.1f %%: %llu of %llu prompt tokens",
           percent(stats->hit_tokens, stats->queried_tokens), (unsigned long long)stats->hit_tokens,
           (unsigned long long)stats->queried_tokens);
    page_map_end_line(&map->pool);
    printf("stored %llu, evicted %llu, duplicates released %llu, preemptions %d",
           (unsigned long long)stats->stored_blocks, (unsigned long long)stats->evicted_blocks,
           (unsigned long long)stats->deduplicated_blocks, serve->num_preemptions);
    page_map_end_line(&map->pool);
    printf("%d rows, %.0f tokens/s", serve->num_rows,
           (double)(serve->num_computed - map->last_computed) / (seconds + 1e-9));
    page_map_end_line(&map->pool);
}

static void wait_a_moment(int32_t milliseconds)
{
    const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

static bool draw(struct pagemap *map, pkv_cache *cache, const struct serve_stats *serve)
{
    const bool plain = map->options->plain;
    struct pkv_stats stats = {.size = sizeof stats};
    map->pool.plain = plain;
    if (!page_map_read(&map->pool, cache, &stats)) {
        return false;
    }
    map->num_frames++;
    if (!plain) {
        fputs(map->num_frames == 1 ? "\033[H\033[2J" : "\033[H", stdout);
    }
    printf("frame %d of %d, step %d", map->num_frames, map->options->num_frames, serve->num_steps);
    page_map_end_line(&map->pool);
    page_map_print(&map->pool, 0, 0);
    page_map_print_legend(&map->pool);
    print_numbers(map, serve, &stats);
    if (fflush(stdout) != 0) {
        return complain("stdout cannot be written");
    }
    if (!plain) {
        wait_a_moment(map->options->delay);
    }
    map->last_computed = serve->num_computed;
    map->last_time = now_seconds();
    return true;
}

static bool after_step(void *context, pkv_cache *cache, const struct serve_stats *stats, bool *stop)
{
    struct pagemap *map = context;
    if (stats->num_steps % map->options->every != 0) {
        return true;
    }
    if (!pin_something(map, cache, stats) || !draw(map, cache, stats)) {
        return false;
    }
    *stop = map->num_frames == map->options->num_frames;
    return true;
}

static bool run(const struct options *options)
{
    struct model model = {.dim = 64,
                          .hidden_dim = 128,
                          .num_layers = 2,
                          .num_heads = 4,
                          .kv_heads = 2,
                          .vocab_size = 256,
                          .seq_len = MAX_PROMPT};
    struct pagemap map = {.options = options, .last_time = now_seconds()};
    struct serve_options serve_options = options->serve;
    serve_options.after_step = after_step;
    serve_options.context = &map;
    struct serve_stats stats = {0};
    struct request_list requests = {0};
    /* A request takes at least 16 steps; more than can run in that time are never needed. */
    const int64_t steps = (int64_t)options->num_frames * options->every;
    const int64_t count = (steps / 16 + 2) * options->serve.max_batch;
    if (!model_random(MODEL_SEED, &model)) {
        return false;
    }
    const bool ok =
        make_requests(&map, &model, (int32_t)(count < MAX_REQUESTS ? count : MAX_REQUESTS),
                      &requests) &&
        serve(&model, &serve_options, &requests, &stats);
    if (ok) {
        printf("%d frames, %d steps, %lld tokens computed, %llu saved by the prefix cache\n",
               map.num_frames, stats.num_steps, (long long)stats.num_computed,
               (unsigned long long)(stats.cache.hit_tokens + stats.cache.rehit_tokens));
    }
    request_free(&requests);
    model_free(&model);
    return ok;
}

int main(int argc, char **argv)
{
    struct options options;
    bool ok = parse(argc, argv, &options);
    if (ok && options.help) {
        fputs(usage, stdout);
    } else if (ok) {
        ok = run(&options);
    }
    if (fflush(stdout) != 0) {
        ok = complain("stdout cannot be written");
    }
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
