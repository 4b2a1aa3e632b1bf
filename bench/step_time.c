/* SPDX-License-Identifier: MIT
 *
 * step_time [threads]: what tiers cost the steps of a server. Eight sequences decode, begin and
 * end; their blocks are stored behind them, and what was stored before is prefetched meanwhile. The
 * same steps without a tier, with a directory (in TMPDIR, or /tmp), with a Redis server, with one
 * that is killed in each turn and comes back, and with one that is stopped by SIGSTOP, in turns.
 * The time of a step is that of all that the thread of a server does: the poll, sequences that come
 * and go, tickets, begin, attend, commit. 4 layers of 32 query and 8 KV heads of width 128, bf16,
 * blocks of 64 tokens (1 MiB in all layers), 512 tokens a sequence. */
#define _XOPEN_SOURCE 700 /* nftw */
#include <arpa/inet.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"
#include "numbers.h"
#include "pagedkv.h"

enum { LAYERS = 4, HEADS = 32, KV_HEADS = 8, WIDTH = 128, BLOCK_SIZE = 64 };
enum { ROWS = 8, MAX_TOKENS = 512, NUM_BLOCKS = 128, TURNS = 16, SLICE = 250 };
enum { MAX_STEPS = TURNS * SLICE, OLD = 3 * ROWS, MAX_TICKETS = 8 };
#define DISK_BYTES ((uint64_t)2 << 30)
#define SETTLE_NS 1500000000u

enum trouble { TROUBLE_NONE, TROUBLE_KILLED, TROUBLE_STOPPED };

/* A way to serve. */
struct way {
    const char *name;
    bool disk, redis;
    enum trouble trouble;
    pkv_tier *tier;
    pkv_cache *cache;
    pid_t pid; /* of its Redis server */
    int32_t port;
    pkv_seq seqs[ROWS];
    int32_t lens[ROWS];
    int32_t names[ROWS]; /* which of all sequences each one is: tokens follow from it */
    int32_t num_begun;
    pkv_ticket tickets[MAX_TICKETS];
    int32_t num_tickets;
    double times[MAX_STEPS];
    int32_t num_times;
};

static struct way ways[] = {
    {.name = "no tier"},
    {.name = "a directory", .disk = true},
    {.name = "Redis", .redis = true},
    {.name = "Redis, killed", .redis = true, .trouble = TROUBLE_KILLED},
    {.name = "Redis, stopped", .redis = true, .trouble = TROUBLE_STOPPED},
};
enum { NUM_WAYS = sizeof ways / sizeof ways[0] };

static char folder[4096];
static void *q, *k, *v, *out;

/* ---- servers -------------------------------------------------------------------------------- */

static int32_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0) {
        measure_fail("no free port");
    }
    close(listener);
    return ntohs(address.sin_port);
}

static void start_redis(struct way *way)
{
    char port[16];
    snprintf(port, sizeof port, "%d", way->port);
    way->pid = fork();
    if (way->pid == 0) {
        if (freopen("/dev/null", "w", stdout) == NULL) {
            _exit(127);
        }
        execlp("redis-server", "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "",
               "--appendonly", "no", "--dir", folder, "--maxmemory", "1gb", "--maxmemory-policy",
               "allkeys-lru", (char *)NULL);
        _exit(127);
    }
    measure_pause(300);
}

static void kill_redis(struct way *way)
{
    kill(way->pid, SIGKILL);
    waitpid(way->pid, NULL, 0);
    way->pid = 0;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info;
    (void)kind;
    (void)place;
    return remove(path);
}

static void clean_up(void)
{
    for (int w = 0; w < NUM_WAYS; w++) {
        if (ways[w].pid > 0) {
            kill_redis(&ways[w]);
        }
    }
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- a cache -------------------------------------------------------------------------------- */

static void open_tier(struct way *way)
{
    if (way->disk) {
        const struct pkv_disk_config config = {
            .size = sizeof config, .path = folder, .max_bytes = DISK_BYTES};
        measure_must(pkv_tier_create_disk(&config, &way->tier), "pkv_tier_create_disk");
    }
    if (way->redis) {
        way->port = free_port();
        start_redis(way);
        const struct pkv_redis_config config = {.size = sizeof config, .port = way->port};
        measure_must(pkv_tier_create_redis(&config, &way->tier), "pkv_tier_create_redis");
    }
}

static void open_cache(struct way *way, int threads)
{
    const struct pkv_group_config group = {.kv_heads = KV_HEADS,
                                           .k_width = WIDTH,
                                           .k_dtype = PKV_BF16,
                                           .v_dtype = PKV_BF16,
                                           .block_size = BLOCK_SIZE,
                                           .num_blocks = NUM_BLOCKS};
    struct pkv_layer_config layers[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        layers[i] = (struct pkv_layer_config){.num_heads = HEADS};
    }
    open_tier(way);
    const struct pkv_cache_config config = {
        .size = sizeof config,
        .groups = &group,
        .num_groups = 1,
        .layers = layers,
        .num_layers = LAYERS,
        .dtype = PKV_BF16,
        .max_seqs = ROWS,
        .max_seq_len = MAX_TOKENS,
        .max_step_tokens = ROWS,
        .num_threads = threads,
        .prefix_cache = true,
        .tiers = &way->tier,
        .num_tiers = way->tier != NULL,
        .num_tier_threads = 1,
    };
    measure_must(pkv_cache_create(&config, &way->cache), "pkv_cache_create");
}

/* ---- steps ---------------------------------------------------------------------------------- */

static int32_t token_of(int32_t name, int32_t position)
{
    return name * MAX_TOKENS + position;
}

static void begin_row(struct way *way, int32_t row)
{
    measure_must(pkv_seq_create(way->cache, NULL, &way->seqs[row]), "pkv_seq_create");
    way->names[row] = way->num_begun++;
    way->lens[row] = 0;
}

/* Of a sequence that ended a while ago, and was evicted. */
static void begin_prefetch(struct way *way)
{
    int32_t tokens[MAX_TOKENS];
    if (way->tier == NULL || way->num_begun < OLD || way->num_tickets == MAX_TICKETS) {
        return;
    }
    for (int32_t i = 0; i < MAX_TOKENS; i++) {
        tokens[i] = token_of(way->num_begun - OLD, i);
    }
    const struct pkv_prompt prompt = {
        .size = sizeof prompt, .token_ids = tokens, .num_tokens = MAX_TOKENS / 2};
    measure_must(pkv_tier_prefetch(way->cache, NULL, &prompt, MAX_TOKENS, 0,
                                   &way->tickets[way->num_tickets]),
                 "pkv_tier_prefetch");
    way->num_tickets++;
}

static void end_tickets(struct way *way, bool all)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < way->num_tickets; i++) {
        struct pkv_ticket_info info = {.size = sizeof info};
        measure_must(pkv_ticket_describe(way->cache, way->tickets[i], &info), "describe");
        if (all || info.state == PKV_TICKET_DONE) {
            measure_must(pkv_ticket_close(way->cache, way->tickets[i]), "pkv_ticket_close");
        } else {
            way->tickets[kept++] = way->tickets[i];
        }
    }
    way->num_tickets = kept;
}

static void end_rows(struct way *way)
{
    for (int32_t row = 0; row < ROWS; row++) {
        if (way->lens[row] == MAX_TOKENS) {
            measure_must(pkv_seq_destroy(way->cache, way->seqs[row]), "pkv_seq_destroy");
            begin_row(way, row);
            begin_prefetch(way);
        }
    }
}

static void run_step(struct way *way)
{
    int32_t q_lens[ROWS], tokens[ROWS];
    pkv_step step;
    if (way->tier != NULL) {
        measure_must(pkv_tier_poll(way->cache, NULL), "pkv_tier_poll");
        end_tickets(way, false);
    }
    end_rows(way);
    for (int32_t row = 0; row < ROWS; row++) {
        q_lens[row] = 1;
        tokens[row] = token_of(way->names[row], way->lens[row]);
        way->lens[row]++;
    }
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = way->seqs,
                                    .q_lens = q_lens,
                                    .num_rows = ROWS,
                                    .num_required_rows = ROWS,
                                    .token_ids = tokens};
    enum pkv_status status = pkv_step_begin(way->cache, &batch, &step, NULL);
    if (status == PKV_NO_BLOCKS) { /* tickets hold too many */
        end_tickets(way, true);
        status = pkv_step_begin(way->cache, &batch, &step, NULL);
    }
    measure_must(status, "pkv_step_begin");
    const struct pkv_layer_io io = {.size = sizeof io, .q = q, .k = k, .v = v, .out = out};
    for (int32_t layer = 0; layer < LAYERS; layer++) {
        measure_must(pkv_step_attend(way->cache, step, layer, &io), "pkv_step_attend");
    }
    measure_must(pkv_step_commit(way->cache, step, NULL), "pkv_step_commit");
}

/* Sequences of all lengths, as if they had come one after the other. */
static void warm_up(struct way *way)
{
    for (int32_t row = 0; row < ROWS; row++) {
        begin_row(way, row);
    }
    for (int32_t i = 0; i < MAX_TOKENS; i++) {
        for (int32_t row = 0; row < ROWS; row++) {
            if (i == row * (MAX_TOKENS / ROWS)) {
                measure_must(pkv_seq_destroy(way->cache, way->seqs[row]), "pkv_seq_destroy");
                begin_row(way, row);
            }
        }
        run_step(way);
    }
}

static void run_slice(struct way *way)
{
    for (int i = 0; i < SLICE; i++) {
        if (i == SLICE / 4 && way->trouble == TROUBLE_KILLED) {
            kill_redis(way);
        }
        if (i == SLICE / 4 && way->trouble == TROUBLE_STOPPED) {
            kill(way->pid, SIGSTOP);
        }
        const double begin = measure_now();
        run_step(way);
        way->times[way->num_times++] = measure_now() - begin;
    }
    if (way->trouble == TROUBLE_KILLED) {
        start_redis(way);
    }
    if (way->trouble == TROUBLE_STOPPED) {
        kill(way->pid, SIGCONT);
    }
    if (way->tier != NULL) { /* the next one is alone */
        (void)pkv_tier_flush(way->cache, SETTLE_NS, NULL);
    }
}

/* ---- the table ------------------------------------------------------------------------------ */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const struct way *way, double share)
{
    return way->times[(int)(share * (way->num_times - 1))] * 1e6;
}

static void print_way(const struct way *way)
{
    struct pkv_tier_stats s = {.size = sizeof s};
    if (way->tier != NULL) {
        measure_must(pkv_tier_read_stats(way->cache, 0, &s), "pkv_tier_read_stats");
    }
    printf("| %-14s | %6.0f | %6.0f | %6.0f | %4.2f | %4.2f | %5llu | %5llu | %5llu | %5llu |\n",
           way->name, quantile(way, 0.5), quantile(way, 0.99), quantile(way, 1),
           quantile(way, 0.5) / quantile(&ways[0], 0.5),
           quantile(way, 0.99) / quantile(&ways[0], 0.99), (unsigned long long)s.stored_blocks,
           (unsigned long long)s.loaded_blocks,
           (unsigned long long)(s.failed_stores + s.skipped_stores),
           (unsigned long long)s.failed_loads);
}

static void print_table(void)
{
    printf(
        "| steps with | median us | p99 us | longest us | median / no tier's | p99 / no tier's | "
        "stored | loaded | not stored | failed loads |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    for (int w = 0; w < NUM_WAYS; w++) {
        qsort(ways[w].times, (size_t)ways[w].num_times, sizeof(double), compare);
        print_way(&ways[w]);
    }
}

static void close_way(struct way *way)
{
    measure_must(pkv_cache_destroy(way->cache, true), "pkv_cache_destroy");
    pkv_tier_destroy(way->tier);
}

static void make_activations(void)
{
    const size_t q_count = (size_t)ROWS * HEADS * WIDTH;
    const size_t kv_count = (size_t)ROWS * KV_HEADS * WIDTH;
    q = measure_calloc(q_count, 2);
    k = measure_calloc(kv_count, 2);
    v = measure_calloc(kv_count, 2);
    out = measure_calloc(q_count, 2);
    numbers_fill(q, 2 * q_count, PKV_BF16, NUMBERS_QUERY_SHIFT, 1);
    numbers_fill(k, 2 * kv_count, PKV_BF16, NUMBERS_CACHE_SHIFT, 2);
    numbers_fill(v, 2 * kv_count, PKV_BF16, NUMBERS_CACHE_SHIFT, 3);
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 1;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/step_time.XXXXXX", base != NULL ? base : "/tmp");
    if (mkdtemp(folder) == NULL) {
        measure_fail("no directory %s", folder);
    }
    atexit(clean_up);
    make_activations();
    for (int w = 0; w < NUM_WAYS; w++) {
        open_cache(&ways[w], threads);
        warm_up(&ways[w]);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        for (int w = 0; w < NUM_WAYS; w++) {
            run_slice(&ways[w]);
        }
    }
    print_table();
    for (int w = 0; w < NUM_WAYS; w++) {
        close_way(&ways[w]);
    }
    return 0;
}
