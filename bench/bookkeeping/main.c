/* SPDX-License-Identifier: MIT
 *
 * bookkeeping [PART..]: what a server pays for blocks, steps, sequences and prompts, and what
 * sharing saves: all parts when none is named, but cascade, which computes 32 long prompts three
 * times over and takes minutes. Block pairs are compared with jemalloc's, in turns; steps are those
 * of 256 sequences of about 4096 tokens. "longest" is the longest time of a single call, timed by
 * itself. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"
#include "server.h"

/* Weak, for builds without jemalloc. */
PKV_WEAK extern void *mallocx(size_t size, int flags);
PKV_WEAK extern void sdallocx(void *memory, size_t size, int flags);

enum { POOL_BLOCKS = 65536, PAIRS = 20000, TURNS = 21 };
enum { WARM_STEPS = 4, STEPS = 48, TABLE_COLUMNS = 8192, SHORT_KEYS = 64 };
enum { MAX_THREADS = 8, SEQ_PAIRS = 20000 };

/* Seconds a pair. */
static double pool_pairs(pkv_pool *pool)
{
    enum pkv_status status = PKV_OK;
    int32_t id = 0;
    const double start = measure_now();
    for (int i = 0; i < PAIRS && status == PKV_OK; i++) {
        status = pkv_pool_alloc(pool, 1, &id);
        status = status == PKV_OK ? pkv_pool_release(pool, &id, 1) : status;
    }
    const double time = measure_now() - start;
    measure_must(status, "a pool's pair");
    return time / PAIRS;
}

static double jemalloc_pairs(size_t bytes)
{
    const double start = measure_now();
    for (int i = 0; i < PAIRS; i++) {
        void *volatile memory =
            mallocx(bytes, 0); /* volatile: the pair must not be optimised away */
        sdallocx(memory, bytes, 0);
    }
    return (measure_now() - start) / PAIRS;
}

static double longest_pool_call(pkv_pool *pool)
{
    double longest = 0;
    int32_t id = 0;
    for (int i = 0; i < PAIRS; i++) {
        const double start = measure_now();
        const enum pkv_status took = pkv_pool_alloc(pool, 1, &id);
        const double middle = measure_now();
        const enum pkv_status gave = pkv_pool_release(pool, &id, 1);
        const double end = measure_now();
        measure_must(took, "pkv_pool_alloc");
        measure_must(gave, "pkv_pool_release");
        longest = middle - start > longest ? middle - start : longest;
        longest = end - middle > longest ? end - middle : longest;
    }
    return longest;
}

static void bench_blocks(void)
{
    static const size_t sizes[] = {64, 16384, 65536};
    enum { NUM_SIZES = sizeof sizes / sizeof sizes[0] };
    struct samples ours = {0}, theirs[NUM_SIZES] = {{0}}, ratios[NUM_SIZES] = {{0}};
    pkv_pool *pool;
    measure_must(pkv_pool_create(POOL_BLOCKS, NULL, &pool), "pkv_pool_create");
    const bool has_jemalloc = mallocx != NULL && sdallocx != NULL;
    for (int turn = 0; turn < TURNS; turn++) {
        const double time = pool_pairs(pool);
        samples_add(&ours, time);
        for (int i = 0; has_jemalloc && i < NUM_SIZES; i++) {
            const double other = jemalloc_pairs(sizes[i]);
            samples_add(&theirs[i], other);
            samples_add(&ratios[i], time / other);
        }
    }
    printf("one block, alloc + release (%d blocks)      %8.1f ns    longest call %.1f us\n",
           POOL_BLOCKS, 1e9 * samples_median(&ours), 1e6 * longest_pool_call(pool));
    for (int i = 0; has_jemalloc && i < NUM_SIZES; i++) {
        printf("jemalloc, mallocx + sdallocx, %5zu bytes        %8.1f ns    pool / jemalloc %.3f\n",
               sizes[i], 1e9 * samples_median(&theirs[i]), samples_median(&ratios[i]));
    }
    if (!has_jemalloc) {
        printf("jemalloc is not in this process\n");
    }
    pkv_pool_destroy(pool);
}

/* ---- steps --------------------------------------------------------------------------------- */

/* Sequences of lengths just below KEYS, a sixteenth of which start a new block at each step; no two
 * begin alike. */
static void fill_sequences(struct server *server, pkv_seq *seqs)
{
    for (int32_t row = 0; row < ROWS; row++) {
        const int32_t length = KEYS - row % BLOCK_SIZE - STEPS / 2;
        seqs[row] = server_seq(server);
        server_tokens(server->token_ids, length, (uint64_t)row);
        server_write(server, seqs[row], server->token_ids, 0, length);
    }
}

static void bench_step(int32_t max_seq_len, bool prefix_cache)
{
    struct server server;
    pkv_seq seqs[ROWS];
    struct samples begin = {0}, commit = {0}, both = {0};
    int64_t hook_calls = 0;
    server_init(&server, ROWS, max_seq_len, ROWS * (KEYS / BLOCK_SIZE + 8));
    server.config.prefix_cache = prefix_cache;
    server_open(&server);
    fill_sequences(&server, seqs);
    for (int i = 0; i < WARM_STEPS + STEPS; i++) {
        const struct step_time time = server_step(&server, seqs, NULL, server.token_ids, ROWS);
        if (i < WARM_STEPS) {
            continue;
        }
        samples_add(&begin, time.begin);
        samples_add(&commit, time.commit);
        samples_add(&both, time.begin + time.commit);
        hook_calls += time.hook_calls;
    }
    printf("step of %d rows x %d keys, %4d table columns, prefix cache %s  %8.1f us (target 50: "
           "%.2f of it)    begin %.1f, commit %.1f, longest both %.1f\n",
           ROWS, KEYS, max_seq_len / BLOCK_SIZE, prefix_cache ? "on " : "off",
           1e6 * samples_median(&both), 1e6 * samples_median(&both) / 50,
           1e6 * samples_median(&begin), 1e6 * samples_median(&commit), 1e6 * samples_max(&both));
    printf("allocator calls from begin to commit, %d steps    %8lld\n", STEPS,
           (long long)hook_calls);
    server_close(&server);
}

/* Attending to few keys, so that what it costs beside them can be seen: with a short table and with
 * one of TABLE_COLUMNS, in turns. The plan is paid at begin, so both should take the same. */
static void bench_attend(void)
{
    static const int32_t columns[] = {SHORT_KEYS / BLOCK_SIZE + 4, TABLE_COLUMNS};
    struct server servers[2];
    pkv_seq seqs[2][ROWS];
    struct samples times[2] = {{0}}, ratios = {0};
    for (int i = 0; i < 2; i++) {
        server_init(&servers[i], ROWS, columns[i] * BLOCK_SIZE, ROWS * columns[0]);
        server_open(&servers[i]);
        for (int32_t row = 0; row < ROWS; row++) {
            seqs[i][row] = server_seq(&servers[i]);
            server_write(&servers[i], seqs[i][row], servers[i].token_ids, 0, SHORT_KEYS);
        }
    }
    for (int turn = 0; turn < WARM_STEPS + STEPS; turn++) {
        double now[2];
        for (int i = 0; i < 2; i++) {
            now[i] = server_step(&servers[i], seqs[i], NULL, servers[i].token_ids, ROWS).attend;
        }
        for (int i = 0; turn >= WARM_STEPS && i < 2; i++) {
            samples_add(&times[i], now[i]);
        }
        if (turn >= WARM_STEPS) {
            samples_add(&ratios, now[1] / now[0]);
        }
    }
    printf("attend, a layer of %d rows x %d keys, %d table columns %8.1f us, %d columns %.1f us, "
           "ratio %.2f\n",
           ROWS, SHORT_KEYS, columns[0], 1e6 * samples_median(&times[0]), columns[1],
           1e6 * samples_median(&times[1]), samples_median(&ratios));
    for (int i = 0; i < 2; i++) {
        server_close(&servers[i]);
    }
}

/* ---- sequences ----------------------------------------------------------------------------- */

struct requester {
    pkv_cache *cache;
    enum pkv_status status;
    double seconds; /* of SEQ_PAIRS pairs */
    double longest; /* of one call */
};

static void *request(void *argument)
{
    struct requester *self = argument;
    const double start = measure_now();
    double last = start;
    for (int i = 0; i < SEQ_PAIRS && self->status == PKV_OK; i++) {
        pkv_seq seq;
        self->status = pkv_seq_create(self->cache, NULL, &seq);
        const double middle = measure_now();
        if (self->status == PKV_OK) {
            self->status = pkv_seq_destroy(self->cache, seq);
        }
        const double now = measure_now();
        self->longest = middle - last > self->longest ? middle - last : self->longest;
        self->longest = now - middle > self->longest ? now - middle : self->longest;
        last = now;
    }
    self->seconds = last - start;
    return NULL;
}

static void bench_sequences(int num_threads, bool prefix_cache)
{
    struct server server;
    pthread_t threads[MAX_THREADS];
    struct requester requesters[MAX_THREADS];
    struct samples times = {0};
    double longest = 0;
    server_init(&server, ROWS, KEYS, ROWS * (KEYS / BLOCK_SIZE + 8));
    server.config.prefix_cache = prefix_cache;
    server_open(&server);
    for (int t = 0; t < num_threads; t++) {
        requesters[t] = (struct requester){.cache = server.cache};
        if (pthread_create(&threads[t], NULL, request, &requesters[t]) != 0) {
            measure_fail("no thread");
        }
    }
    for (int t = 0; t < num_threads; t++) {
        pthread_join(threads[t], NULL);
        measure_must(requesters[t].status, "a sequence's pair");
        samples_add(&times, requesters[t].seconds / SEQ_PAIRS);
        longest = requesters[t].longest > longest ? requesters[t].longest : longest;
    }
    printf("one sequence, create + destroy, %d thread%s, prefix cache %s   %8.1f ns    longest "
           "call %.1f us\n",
           num_threads, num_threads == 1 ? " " : "s", prefix_cache ? "on " : "off",
           1e9 * samples_median(&times), 1e6 * longest);
    server_close(&server);
}

static void bench_steps(void)
{
    bench_step(KEYS + 64, false);
    bench_step(KEYS + 64, true);
    bench_step(TABLE_COLUMNS * BLOCK_SIZE, false);
    bench_step(TABLE_COLUMNS * BLOCK_SIZE, true);
    bench_attend();
}

static void bench_threads(void)
{
    for (int prefix_cache = 0; prefix_cache < 2; prefix_cache++) {
        bench_sequences(1, prefix_cache != 0);
        bench_sequences(MAX_THREADS, prefix_cache != 0);
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} parts[] = {
    {"blocks", bench_blocks},     {"steps", bench_steps},           {"sequences", bench_threads},
    {"index", bench_index},       {"hit-rate", bench_hit_rate},     {"calls", bench_calls},
    {"waits", bench_waits},       {"lengths", bench_lengths},       {"evictions", bench_evictions},
    {"capacity", bench_capacity}, {"neighbours", bench_neighbours}, {"partial", bench_partial},
    {"cascade", bench_cascade},
};
enum { NUM_PARTS = sizeof parts / sizeof parts[0] };

static bool is_wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return true;
        }
    }
    return argc < 2 && strcmp(name, "cascade") != 0;
}

int main(int argc, char **argv)
{
    printf("%s\n", pkv_build_info());
    for (int i = 0; i < NUM_PARTS; i++) {
        if (is_wanted(parts[i].name, argc, argv)) {
            parts[i].run();
            fflush(stdout);
        }
    }
    return EXIT_SUCCESS;
}
