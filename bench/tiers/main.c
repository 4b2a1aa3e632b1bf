/* SPDX-License-Identifier: MIT
 *
 * tiers [TURNS]: to restore the keys and values of a prompt of 4096 tokens, or to compute them
 * again? Llama-3 8B's shape, 32 layers, blocks of 64, f16 and int8 caches. Everything runs in
 * turns, and what is printed are medians. Files are in TMPDIR. The Redis tier is measured where
 * there is a redis-server or valkey-server, of which one is started on the loopback interface. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "folder.h"
#include "host.h"
#include "limits.h"
#include "support/redis_server.h"
#include "values.h"
#include "ways.h"

enum { TURNS = 3, THREADS = 2, MAX_LENGTH = 1 << 17 };

/* Multiply-adds of the weights of a model of 8.0e9, for each token. */
#define MODEL_FLOPS (2 * 8.0e9)

enum way {
    COPY,
    COPY_TWO,
    HASH,
    SWAP_MEMORY,
    SWAP_FILE,
    SAVED_FILE,
    OWN_TIER,
    OWN_TIER_TWO,
    DISK_TIER,
    DISK_TIER_TWO,
    DISK_TIER_COLD,
    DISK_TIER_COLD_TWO,
    REDIS_TIER,
    REDIS_TIER_TWO,
    NUM_WAYS
};

static const char *const way_names[NUM_WAYS] = {
    "memcpy",           "memcpy, 2 threads",
    "checksums (XXH3)", "swap, memory",
    "swap, file",       "saved file",
    "tier in memory",   "tier in memory, 2 threads",
    "disk tier",        "disk tier, 2 threads",
    "disk tier, cold",  "disk tier, cold, 2 threads",
    "Redis tier",       "Redis tier, 2 threads",
};

/* Of one way: seconds for the prompt and for one block of it, and ratios to memcpy's time. */
struct line {
    struct samples store, load, one;
    struct samples store_ratio, load_ratio;
};

struct bench {
    enum pkv_dtype dtype;
    char folder[FOLDER_BYTES], disk_folder[FOLDER_BYTES + 8], file[FOLDER_BYTES + 8];
    struct values values;
    struct redis_server redis;
    pkv_tier *own, *disk, *remote;             /* remote may be NULL */
    struct host in_memory, on_disk, elsewhere; /* caches, each with one of the tiers */
    char *memory;
    struct line lines[NUM_WAYS];
    struct samples chunks[HOST_CHUNKS];
    struct samples fma;
};

/* ---- what is measured */

static void open_redis(struct bench *bench)
{
    struct pkv_redis_config config = {.size = sizeof config};
    if (!redis_server_can_run()) {
        printf("no Redis tier\n");
        return;
    }
    if (!redis_server_start(&bench->redis, 0, NULL)) {
        measure_fail("the Redis server does not start");
    }
    config.port = bench->redis.port;
    config.command_timeout_ms = 10000;
    measure_must(pkv_tier_create_redis(&config, &bench->remote), "pkv_tier_create_redis");
    host_open(&bench->elsewhere, bench->dtype, bench->remote, NULL);
}

static void open_bench(struct bench *bench, enum pkv_dtype dtype)
{
    memset(bench, 0, sizeof *bench);
    bench->dtype = dtype;
    folder_make(bench->folder);
    snprintf(bench->disk_folder, sizeof bench->disk_folder, "%s/tier", bench->folder);
    snprintf(bench->file, sizeof bench->file, "%s/saved", bench->folder);
    folder_make_at(bench->disk_folder);
    const struct pkv_disk_config disk = {
        .size = sizeof disk, .path = bench->disk_folder, .max_bytes = (uint64_t)1 << 32};
    bench->own = values_open(&bench->values);
    measure_must(pkv_tier_create_disk(&disk, &bench->disk), "pkv_tier_create_disk");
    host_open(&bench->in_memory, dtype, bench->own, NULL);
    host_open(&bench->on_disk, dtype, bench->disk, bench->folder);
    open_redis(bench);
    bench->memory = measure_calloc(1, host_bytes(&bench->in_memory, HOST_TOKENS));
    memset(bench->memory, 1, host_bytes(&bench->in_memory, HOST_TOKENS)); /* has pages now */
}

static void close_bench(struct bench *bench)
{
    host_close(&bench->in_memory);
    host_close(&bench->on_disk);
    if (bench->remote != NULL) {
        host_close(&bench->elsewhere);
        pkv_tier_destroy(bench->remote);
        redis_server_stop(&bench->redis, true);
    }
    pkv_tier_destroy(bench->disk);
    values_close(&bench->values, bench->own);
    folder_remove(bench->folder);
    free(bench->memory);
}

static void note(struct bench *bench, enum way way, struct way_time time)
{
    struct line *line = &bench->lines[way];
    const struct line *copy = &bench->lines[COPY];
    samples_add(&line->load, time.load);
    samples_add(&line->load_ratio, copy->load.values[copy->load.count - 1] / time.load);
    if (time.store > 0) {
        samples_add(&line->store, time.store);
        samples_add(&line->store_ratio, copy->store.values[copy->store.count - 1] / time.store);
    }
}

/* A tier's stores and prefetches, of one and of two threads. */
static void run_tier(struct bench *bench, struct host *host, enum way way)
{
    const bool is_first = bench->lines[way].load.count == 0; /* what comes back is checked */
    uint64_t digest = 0;
    for (int two = 0; two < 2; two++) {
        const enum way at = (enum way)((int)way + two);
        struct way_time time = {.store = way_store(host, HOST_TOKENS, two, &digest)};
        time.load = way_prefetch(host, HOST_TOKENS, two, is_first ? digest : 0);
        note(bench, at, time);
        samples_add(&bench->lines[at].one, way_prefetch(host, HOST_BLOCK, two, 0));
    }
}

static void run_cold(struct bench *bench)
{
    for (int two = 0; two < 2; two++) {
        const enum way way = (enum way)(DISK_TIER_COLD + two);
        folder_cool(bench->disk_folder);
        note(bench, way,
             (struct way_time){.load = way_prefetch(&bench->on_disk, HOST_TOKENS, two, 0)});
        folder_cool(bench->disk_folder);
        samples_add(&bench->lines[way].one, way_prefetch(&bench->on_disk, HOST_BLOCK, two, 0));
    }
}

static void run_others(struct bench *bench)
{
    struct line *lines = bench->lines;
    struct host *host = &bench->in_memory;
    for (int threads = 1; threads <= THREADS; threads++) {
        const enum way way = threads == 1 ? COPY : COPY_TWO;
        note(bench, way, way_copy(host, bench->memory, HOST_TOKENS, threads));
        samples_add(&lines[way].one, way_copy(host, bench->memory, HOST_BLOCK, threads).load);
    }
    uint64_t digest;
    note(bench, HASH, (struct way_time){.load = way_hash(host, HOST_TOKENS, &digest)});
    samples_add(&lines[HASH].one, way_hash(host, HOST_BLOCK, &digest));
    note(bench, SWAP_MEMORY, way_swap(host, HOST_TOKENS));
    samples_add(&lines[SWAP_MEMORY].one, way_swap(host, HOST_BLOCK).load);
    note(bench, SWAP_FILE, way_swap(&bench->on_disk, HOST_TOKENS));
    samples_add(&lines[SWAP_FILE].one, way_swap(&bench->on_disk, HOST_BLOCK).load);
    note(bench, SAVED_FILE, way_file(host, bench->file, HOST_TOKENS));
    samples_add(&lines[SAVED_FILE].one, way_file(host, bench->file, HOST_BLOCK).load);
}

static void turn(struct bench *bench)
{
    samples_add(&bench->fma, limits_fma(THREADS));
    host_prefill(&bench->in_memory, bench->chunks);
    measure_pause(10);
    run_others(bench);
    run_tier(bench, &bench->in_memory, OWN_TIER);
    run_tier(bench, &bench->on_disk, DISK_TIER);
    run_cold(bench);
    if (bench->remote != NULL) {
        run_tier(bench, &bench->elsewhere, REDIS_TIER);
    }
}

/* ---- what it says */

/* Seconds of attending a prompt of n tokens: linear * n + square * n^2. */
struct cost {
    double linear, square;
};

static double seconds_of(struct cost cost, double n)
{
    return (cost.linear + cost.square * n) * n;
}

/* A line through the times of the chunks: chunk i sees (i + 1/2) * HOST_CHUNK keys on average. */
static struct cost fit(const struct bench *bench)
{
    double sum = 0, keys = 0, products = 0, squares = 0;
    for (int i = 0; i < HOST_CHUNKS; i++) {
        const double x = (i + 0.5) * HOST_CHUNK;
        const double y = samples_median(&bench->chunks[i]) / HOST_CHUNK;
        sum += y;
        keys += x;
        products += x * y;
        squares += x * x;
    }
    const double slope =
        (products - sum * keys / HOST_CHUNKS) / (squares - keys * keys / HOST_CHUNKS);
    const double rest = (sum - slope * keys) / HOST_CHUNKS;
    return (struct cost){rest > 0 ? rest : 0, slope / 2};
}

/* The shortest prompt, in whole blocks, that is restored faster than computed. */
static int32_t break_even(const struct line *line, struct cost cost)
{
    const double one = samples_median(&line->one);
    const double more = (samples_median(&line->load) - one) / (HOST_TOKENS - HOST_BLOCK);
    for (int32_t n = HOST_BLOCK; n < MAX_LENGTH; n += HOST_BLOCK) {
        if (one + more * (n - HOST_BLOCK) < seconds_of(cost, n)) {
            return n;
        }
    }
    return MAX_LENGTH;
}

static void print_line(const struct bench *bench, enum way way, struct cost attention,
                       struct cost all)
{
    const struct line *line = &bench->lines[way];
    const double bytes = (double)host_bytes(&bench->in_memory, HOST_TOKENS);
    const double load = samples_median(&line->load);
    if (line->load.count == 0) {
        return;
    }
    printf("%-27s", way_names[way]);
    if (line->store.count > 0) {
        const double store = samples_median(&line->store);
        printf(" %6.2f GB/s %4.2f %7.1f ms |", 1e-9 * bytes / store,
               samples_median(&line->store_ratio), 1e3 * store);
    } else {
        printf(" %27s |", "");
    }
    printf(" %6.2f GB/s %4.2f %7.1f ms", 1e-9 * bytes / load, samples_median(&line->load_ratio),
           1e3 * load);
    printf("  one block %7.3f ms", 1e3 * samples_median(&line->one));
    if (way != HASH) {
        printf("  attention: from %4d tokens, %4.0fx  all: from %4d, %5.0fx",
               break_even(line, attention), seconds_of(attention, HOST_TOKENS) / load,
               break_even(line, all), seconds_of(all, HOST_TOKENS) / load);
    }
    printf("\n");
}

static void print(const struct bench *bench)
{
    const struct cost attention = fit(bench);
    const double peak = samples_max(&bench->fma);
    const double model = MODEL_FLOPS / peak;
    const struct cost all = {attention.linear + model, attention.square};
    double seconds = 0;
    for (int i = 0; i < HOST_CHUNKS; i++) {
        seconds += samples_median(&bench->chunks[i]);
    }
    const double bytes = (double)host_bytes(&bench->in_memory, HOST_TOKENS);
    const char *name = bench->dtype == PKV_F16 ? "f16" : "int8";
    printf("\n%s: %.0f MB of keys and values for %d tokens\n", name, 1e-6 * bytes, HOST_TOKENS);
    printf("computing: attention %.0f ms (each %dth of %d layers measured); weights at least %.0f "
           "ms, at the %.0f GFLOP/s of f32 multiply-adds\n",
           1e3 * seconds, HOST_EVERY, HOST_LAYERS, 1e3 * model * HOST_TOKENS, 1e-9 * peak);
    printf("%-27s %-28s| %-51s %s\n", "", "  store, of memcpy", "  load, of memcpy",
           "faster than computing, and how much at the full length");
    for (int way = 0; way < NUM_WAYS; way++) {
        print_line(bench, (enum way)way, attention, all);
    }
}

int main(int argc, char **argv)
{
    static struct bench bench;
    const enum pkv_dtype dtypes[] = {PKV_F16, PKV_INT8};
    const int turns = argc > 1 ? atoi(argv[1]) : TURNS;
    printf("%s\nrestoring a prompt of %d tokens, %d layers of %d/%d heads of %d, blocks of %d\n",
           pkv_build_info(), HOST_TOKENS, HOST_LAYERS, HOST_HEADS, HOST_KV_HEADS, HOST_WIDTH,
           HOST_BLOCK);
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        open_bench(&bench, dtypes[i]);
        for (int t = 0; t < turns; t++) {
            turn(&bench);
        }
        print(&bench);
        close_bench(&bench);
    }
    return EXIT_SUCCESS;
}
