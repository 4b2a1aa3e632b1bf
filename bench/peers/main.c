/* SPDX-License-Identifier: MIT
 *
 * peers: the operator beside other implementations of it, on the same numbers, threads and kind of
 * memory. A peer is timed only after it gave our answer. In a turn everybody sleeps, runs once to
 * wake its threads, and is timed; ratios are taken turn by turn.
 *
 *     peers FOLDER [TEXT]     FOLDER: where npm installed; TEXT: only cases whose name contains it
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"
#include "numbers.h"
#include "peer.h"

enum { TURNS = 15, SLEEP_MS = 5, NUM_PEERS = 2, BLOCK_SIZE = 64, MAX_NAME = 96 };

static const struct peer *const peers[NUM_PEERS] = {&peer_ort, &peer_ggml};

struct peer_case {
    const char *name;
    int32_t heads, kv_heads, rows, q_len, keys;
    enum pkv_dtype cache;
    bool continuous; /* ours too in one cache row a sequence, as theirs always is */
};

static const struct peer_case cases[] = {
    {"L8", 32, 8, 8, 1, 4096, PKV_F32, false},
    {"L8", 32, 8, 8, 1, 4096, PKV_F16, false},
    {"L8", 32, 8, 8, 1, 4096, PKV_BF16, false},
    {"L8", 32, 8, 8, 1, 4096, PKV_INT8, false},
    {"MHA", 32, 32, 2, 1, 4096, PKV_F32, false},
    {"MHA", 32, 32, 2, 1, 4096, PKV_F16, false},
    {"MHA", 32, 32, 2, 1, 4096, PKV_F32, true},
    {"one row", 32, 8, 1, 1, 32768, PKV_F32, false},
    {"one row", 32, 8, 1, 1, 32768, PKV_F16, false},
    {"prefill", 32, 8, 1, 512, 2048, PKV_F32, false},
    {"prefill", 32, 8, 1, 512, 2048, PKV_F16, false},
    {"prefill", 32, 8, 1, 512, 2048, PKV_BF16, false},
    {"4 queries", 32, 8, 1, 4, 8192, PKV_F32, false},
    {"4 queries", 32, 8, 1, 4, 8192, PKV_F16, false},
    {"4 queries", 32, 8, 1, 4, 8192, PKV_BF16, false},
};

static size_t num_outputs(const struct layer *layer)
{
    const struct layer_spec *spec = &layer->spec;
    return (size_t)(spec->rows * spec->q_len) * (size_t)(spec->heads * spec->width);
}

/* The largest difference of the outputs, relative to the largest of ours. */
static double difference(const struct layer *layer, const struct peer *peer, void *call)
{
    const size_t count = num_outputs(layer);
    float *theirs = measure_calloc(count, sizeof theirs[0]);
    double largest = 0, differs = 0;
    peer->run(call);
    peer->output(call, theirs);
    for (size_t i = 0; i < count; i++) {
        const double ours = (double)numbers_read(layer->out, i, layer->dtype);
        const double apart = fabs((double)theirs[i] - ours);
        largest = fabs(ours) > largest ? fabs(ours) : largest;
        differs = apart > differs || isnan(apart) ? apart : differs;
    }
    free(theirs);
    return differs / largest;
}

static void run_ours(void *layer)
{
    layer_run(layer);
}

static double timed(void (*run)(void *), void *call)
{
    measure_pause(SLEEP_MS);
    run(call);
    const double start = measure_now();
    run(call);
    return measure_now() - start;
}

static void report(const struct layer *layer, const char *name, const struct samples *time,
                   const struct samples *ratio, const struct samples *ours, double differs)
{
    const double seconds = samples_median(time);
    printf("  %-22s %9.3f ms %8.3f .. %8.3f %7.1f GB/s %7.1f GFLOP/s", name, 1e3 * seconds,
           1e3 * samples_min(time), 1e3 * samples_max(time),
           1e-9 * layer_bytes(&layer->spec) / seconds, 1e-9 * layer_flops(&layer->spec) / seconds);
    if (ratio != NULL) {
        printf("   ours %5.2fx as fast (fastest runs: %.2fx), outputs differ by %.1e",
               samples_median(ratio), samples_min(time) / samples_min(ours), differs);
    }
    printf("\n");
    fflush(stdout);
}

struct contest {
    struct samples time[NUM_PEERS], ratio[NUM_PEERS], ours;
    void *calls[NUM_PEERS]; /* NULL: does not take part */
    double differs[NUM_PEERS];
};

/* Peers that are there, have the type and give our answer. */
static void invite(struct contest *contest, void *const *libraries, const struct layer *layer)
{
    for (int p = 0; p < NUM_PEERS; p++) {
        const enum pkv_dtype cache = layer->spec.cache;
        if (libraries[p] == NULL || peers[p]->type_name(cache) == NULL) {
            continue;
        }
        contest->calls[p] = peers[p]->prepare(libraries[p], layer);
        contest->differs[p] = difference(layer, peers[p], contest->calls[p]);
        if (!(contest->differs[p] <= peers[p]->tolerance(cache))) {
            printf("  %s gives another answer, off by %.2e: not timed\n", peers[p]->name,
                   contest->differs[p]);
            peers[p]->finish(contest->calls[p]);
            contest->calls[p] = NULL;
        }
    }
}

static void run_case(const struct peer_case *c, void *const *libraries, int threads)
{
    struct layer layer;
    struct contest contest = {0};
    char name[MAX_NAME];
    const struct layer_spec spec = {.heads = c->heads,
                                    .kv_heads = c->kv_heads,
                                    .width = 128,
                                    .rows = c->rows,
                                    .q_len = c->q_len,
                                    .keys = c->keys,
                                    .block_size = c->continuous ? 0 : BLOCK_SIZE,
                                    .cache = c->cache,
                                    .threads = threads};
    layer_create(&spec, NULL, &layer);
    layer_run(&layer);
    invite(&contest, libraries, &layer);
    for (int turn = 0; turn < TURNS; turn++) {
        const double ours = timed(run_ours, &layer);
        samples_add(&contest.ours, ours);
        for (int p = 0; p < NUM_PEERS; p++) {
            if (contest.calls[p] == NULL) {
                continue;
            }
            const double theirs = timed(peers[p]->run, contest.calls[p]);
            samples_add(&contest.time[p], theirs);
            samples_add(&contest.ratio[p], theirs / ours);
        }
    }
    report(&layer, "ours", &contest.ours, NULL, &contest.ours, 0);
    for (int p = 0; p < NUM_PEERS; p++) {
        if (contest.calls[p] != NULL) {
            snprintf(name, sizeof name, "%s %s", peers[p]->name, peers[p]->type_name(c->cache));
            report(&layer, name, &contest.time[p], &contest.ratio[p], &contest.ours,
                   contest.differs[p]);
            peers[p]->finish(contest.calls[p]);
        }
    }
    layer_destroy(&layer);
}

static int default_threads(void)
{
    pkv_workspace *workspace;
    measure_must(pkv_workspace_create(0, PKV_ISA_BEST, NULL, &workspace), "pkv_workspace_create");
    const int threads = pkv_workspace_num_threads(workspace);
    pkv_workspace_destroy(workspace);
    return threads;
}

int main(int argc, char **argv)
{
    void *libraries[NUM_PEERS] = {NULL};
    if (argc < 2 || argc > 4) {
        fprintf(stderr, "usage: %s FOLDER [TEXT [THREADS]]\n", argv[0]);
        return EXIT_FAILURE;
    }
    const int threads = argc == 4 && atoi(argv[3]) > 0 ? atoi(argv[3]) : default_threads();
    printf("%s, %d threads\n", pkv_build_info(), threads);
    for (int p = 0; p < NUM_PEERS; p++) {
        libraries[p] = peers[p]->open(argv[1], threads);
        if (libraries[p] == NULL) {
            printf("%s is left out: %s is not in %s\n", peers[p]->name, peers[p]->package, argv[1]);
        }
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct peer_case *c = &cases[i];
        char name[MAX_NAME];
        snprintf(name, sizeof name, "%s %s, %d/%d heads, %d x %d keys, %d quer%s a row%s", c->name,
                 numbers_type_name(c->cache), c->heads, c->kv_heads, c->rows, c->keys, c->q_len,
                 c->q_len == 1 ? "y" : "ies", c->continuous ? ", ours continuous" : "");
        if (argc == 2 || strstr(name, argv[2]) != NULL) {
            printf("\n%s\n", name);
            run_case(c, libraries, threads);
        }
    }
    return EXIT_SUCCESS;
}
