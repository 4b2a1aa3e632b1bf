/* SPDX-License-Identifier: MIT
 *
 * bookkeeping: what a server pays for blocks, steps and sequences, attention left out. Block pairs
 * are compared with jemalloc's, in turns; steps are those of 256 sequences of about 4096 tokens.
 * "longest" is the longest time of a single call, timed by itself. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counting.h"
#include "measure.h"
#include "pagedkv.h"

/* Weak, for builds without jemalloc. */
PKV_WEAK extern void *mallocx(size_t size, int flags);
PKV_WEAK extern void sdallocx(void *memory, size_t size, int flags);

enum { POOL_BLOCKS = 65536, PAIRS = 20000, TURNS = 21 };
enum { ROWS = 256, KEYS = 4096, BLOCK_SIZE = 16, WIDTH = 16, WARM_STEPS = 4, STEPS = 48 };
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

struct server {
    struct counting counting;
    pkv_cache *cache;
    pkv_seq seqs[ROWS];
    struct pkv_layer_io io;
    float *activations;
    int32_t *token_ids; /* zeros */
};

static void create_server(struct server *server, int32_t max_seq_len)
{
    const struct pkv_group_config group = {.kv_heads = 1,
                                           .k_width = WIDTH,
                                           .k_dtype = PKV_BF16,
                                           .v_dtype = PKV_BF16,
                                           .block_size = BLOCK_SIZE,
                                           .num_blocks = ROWS * (KEYS / BLOCK_SIZE + 8)};
    const struct pkv_layer_config layer = {.num_heads = 1};
    struct pkv_cache_config config = {.size = sizeof config, .groups = &group, .layers = &layer};
    config.num_groups = 1;
    config.num_layers = 1;
    config.dtype = PKV_F32;
    config.max_seqs = ROWS;
    config.max_seq_len = max_seq_len;
    config.max_step_tokens = KEYS;
    config.hooks = counting_hooks(&server->counting);
    measure_must(pkv_cache_create(&config, &server->cache), "pkv_cache_create");
    server->activations = measure_calloc((size_t)KEYS * WIDTH, 2 * sizeof(float));
    server->token_ids = measure_calloc(KEYS, sizeof(int32_t));
    float *out = server->activations + (size_t)KEYS * WIDTH;
    server->io = (struct pkv_layer_io){.size = sizeof server->io, .out = out};
    server->io.q = server->io.k = server->io.v = server->activations;
}

static void destroy_server(struct server *server)
{
    measure_must(pkv_cache_destroy(server->cache, false), "pkv_cache_destroy");
    free(server->activations);
    free(server->token_ids);
}

/* Times of the three parts of a step, and hook calls in all of it. */
struct step_time {
    double begin, commit;
    int64_t hook_calls;
};

static struct step_time step(struct server *server, const pkv_seq *seqs, const int32_t *q_lens,
                             int32_t rows)
{
    struct pkv_batch batch = {.size = sizeof batch, .seqs = seqs, .q_lens = q_lens};
    pkv_step open;
    batch.token_ids = server->token_ids;
    batch.num_rows = batch.num_required_rows = rows;
    const int64_t calls = server->counting.calls;
    const double start = measure_now();
    const enum pkv_status began = pkv_step_begin(server->cache, &batch, &open, NULL);
    const double middle = measure_now();
    measure_must(began, "pkv_step_begin");
    measure_must(pkv_step_attend(server->cache, open, 0, &server->io), "pkv_step_attend");
    const double late = measure_now();
    const enum pkv_status committed = pkv_step_commit(server->cache, open, NULL);
    const double end = measure_now();
    measure_must(committed, "pkv_step_commit");
    return (struct step_time){middle - start, end - late, server->counting.calls - calls};
}

/* Sequences of lengths just below KEYS, a sixteenth of which start a new block at each step. */
static void fill_sequences(struct server *server)
{
    for (int32_t row = 0; row < ROWS; row++) {
        const int32_t length = KEYS - row % BLOCK_SIZE - STEPS / 2;
        measure_must(pkv_seq_create(server->cache, NULL, &server->seqs[row]), "pkv_seq_create");
        step(server, &server->seqs[row], &length, 1);
    }
}

static void bench_step(int32_t max_seq_len)
{
    struct server server = {0};
    struct samples begin = {0}, commit = {0}, both = {0};
    int64_t hook_calls = 0;
    create_server(&server, max_seq_len);
    fill_sequences(&server);
    for (int i = 0; i < WARM_STEPS + STEPS; i++) {
        const struct step_time time = step(&server, server.seqs, NULL, ROWS);
        if (i < WARM_STEPS) {
            continue;
        }
        samples_add(&begin, time.begin);
        samples_add(&commit, time.commit);
        samples_add(&both, time.begin + time.commit);
        hook_calls += time.hook_calls;
    }
    printf("step of %d rows x %d keys, %4d table columns  %8.1f us    begin %.1f, commit %.1f, "
           "longest both %.1f\n",
           ROWS, KEYS, max_seq_len / BLOCK_SIZE, 1e6 * samples_median(&both),
           1e6 * samples_median(&begin), 1e6 * samples_median(&commit), 1e6 * samples_max(&both));
    printf("allocator calls from begin to commit, %d steps    %8lld\n", STEPS,
           (long long)hook_calls);
    destroy_server(&server);
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

static void bench_sequences(int num_threads)
{
    struct server server = {0};
    pthread_t threads[MAX_THREADS];
    struct requester requesters[MAX_THREADS];
    struct samples times = {0};
    double longest = 0;
    create_server(&server, KEYS);
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
    printf("one sequence, create + destroy, %d thread%s       %8.1f ns    longest call %.1f us\n",
           num_threads, num_threads == 1 ? " " : "s", 1e9 * samples_median(&times), 1e6 * longest);
    destroy_server(&server);
}

int main(void)
{
    printf("%s\n", pkv_build_info());
    bench_blocks();
    bench_step(KEYS + 64);
    bench_step(8192 * BLOCK_SIZE);
    bench_sequences(1);
    bench_sequences(MAX_THREADS);
    return EXIT_SUCCESS;
}
