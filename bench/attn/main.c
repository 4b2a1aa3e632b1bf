/* SPDX-License-Identifier: MIT
 *
 * attn: how close the attention operator comes to what the machine can do. A turn of a case reads
 * its pages as a plain stream, runs multiply-adds, plans, and runs the operator; the share of the
 * limit is taken turn by turn and its median reported. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/mem.h"
#include "churn.h"
#include "limits.h"
#include "measure.h"
#include "options.h"
#include "ranker.h"
#include "report.h"

/* Of all cases of a group together. */
#define MAX_GROUP_BYTES ((size_t)6 << 30)
#define STREAM_BYTES ((size_t)512 << 20)

/* Less than a second-level cache has. */
#define IN_CACHE_BYTES 524288.0
#define RUNS_IN_CACHE 32

struct bench {
    struct options options;
    int threads;
    enum pkv_isa isa;
    FILE *csv;
    struct ceilings highest; /* reads: of the stream */
};

static void take_ceilings(struct bench *bench)
{
    const struct pkv_hooks hooks = {0};
    char *memory = mem_map(&hooks, STREAM_BYTES, PKV_MAP_PAYLOAD);
    struct samples read = {0}, fma = {0};
    if (memory == NULL) {
        measure_fail("no memory for the read stream");
    }
    memset(memory, 1, STREAM_BYTES);
    for (int32_t i = 0; i < bench->options.repeats; i++) {
        samples_add(&read,
                    (double)STREAM_BYTES / limits_read(bench->threads, memory, STREAM_BYTES));
        samples_add(&fma, limits_fma(bench->threads));
    }
    mem_unmap(&hooks, memory, STREAM_BYTES, PKV_MAP_PAYLOAD);
    bench->highest = (struct ceilings){samples_max(&read), samples_max(&fma)};
    printf("%s\n%d threads, kernels %s, ceilings %s\n", pkv_build_info(), bench->threads,
           pkv_isa_name(bench->isa), limits_vectors());
    printf("read stream  %7.1f GB/s    (%.1f .. %.1f)\n", 1e-9 * samples_median(&read),
           1e-9 * samples_min(&read), 1e-9 * samples_max(&read));
    printf("f32 FMA peak %7.1f GFLOP/s (%.1f .. %.1f)\n", 1e-9 * samples_median(&fma),
           1e-9 * samples_min(&fma), 1e-9 * samples_max(&fma));
    printf("limit: share of max(bytes / read, flops / FMA); best: fastest run, highest ceilings\n"
           "walk, of it: a read of the same blocks in the tables' order, and the share with it\n");
}

/* Lets the options change the case; false when it is then not to be run. */
static bool adapt(const struct bench *bench, const struct group *group, struct attn_case *c)
{
    const struct options *o = &bench->options;
    char name[2 * MAX_CASE_NAME];
    c->spec.rows = o->rows > 0 ? o->rows : c->spec.rows;
    if (o->keys > 0) {
        c->spec.keys = o->keys > c->spec.q_len ? o->keys : c->spec.q_len;
        c->spec.shared = c->spec.shared < c->spec.keys ? c->spec.shared : 0;
    }
    if (c->spec.pool_tokens > 0) {
        const int32_t pool = 2 * c->spec.rows * c->spec.keys;
        c->spec.pool_tokens = pool > CHURN_MIN_TOKENS ? pool : CHURN_MIN_TOKENS;
    }
    c->spec.threads = bench->threads;
    c->spec.isa = bench->isa;
    cases_name(c);
    if (c->spec.order != ORDER_SHUFFLED &&
        (c->spec.rows > CHURN_MAX_ROWS || c->spec.keys < CHURN_MIN_KEYS)) {
        return false;
    }
    snprintf(name, sizeof name, "%s: %s", group->name, c->name);
    return o->filter == NULL || strstr(name, o->filter) != NULL;
}

/* Builds the group and drops cases that are not wanted, that are there twice, or too large. */
static void select_cases(const struct bench *bench, struct group *group)
{
    size_t bytes = 0;
    int kept = 0;
    group->num_cases = 0;
    group->build(group);
    for (int i = 0; i < group->num_cases; i++) {
        struct attn_case c = group->cases[i];
        bool wanted = adapt(bench, group, &c);
        for (int j = 0; j < kept; j++) {
            wanted = wanted && strcmp(c.name, group->cases[j].name) != 0;
        }
        const bool is_lent = group->has_one_pool && kept > 0;
        const size_t own_bytes = is_lent ? 0 : layer_pages_bytes(&c.spec);
        if (wanted && bytes + own_bytes > MAX_GROUP_BYTES) {
            printf("%s: %s left out, its group would take more than %zu GiB\n", group->name, c.name,
                   MAX_GROUP_BYTES >> 30);
            wanted = false;
        }
        if (wanted) {
            bytes += own_bytes;
            group->cases[kept++] = c;
        }
    }
    group->num_cases = kept;
}

static double seconds_of(void (*function)(struct layer *), struct layer *layer)
{
    const double start = measure_now();
    function(layer);
    return measure_now() - start;
}

/* Seconds of a run. One over what the second-level cache holds is the mean of several behind one
 * that is not timed: alone it would be measured with cold code and scratch. */
static double run_seconds(struct layer *layer)
{
    if (layer_bytes(&layer->spec) > IN_CACHE_BYTES) {
        return seconds_of(layer_run, layer);
    }
    layer_run(layer);
    const double start = measure_now();
    for (int i = 0; i < RUNS_IN_CACHE; i++) {
        layer_run(layer);
    }
    return (measure_now() - start) / RUNS_IN_CACHE;
}

static void take_turn(struct bench *bench, struct layer *layer, struct turns *turns)
{
    const double bytes = (double)layer->pages_bytes;
    const double read = bytes / limits_read(bench->threads, layer->pages, layer->pages_bytes);
    const double fma = limits_fma(bench->threads);
    bench->highest.fma = fma > bench->highest.fma ? fma : bench->highest.fma;
    const double walk = (double)(layer->num_runs * layer->run_bytes) / layer_read(layer);
    samples_add(&turns->plan, seconds_of(layer_plan, layer));
    const double time = run_seconds(layer);
    samples_add(&turns->read, read);
    samples_add(&turns->fma, fma);
    samples_add(&turns->time, time);
    samples_add(&turns->limit, report_limit(&layer->spec, read, fma) / time);
    samples_add(&turns->walk, walk);
    samples_add(&turns->share, report_limit(&layer->spec, walk, fma) / time);
}

/* Choosing what a case selects. */
static void take_rank(struct ranker *ranker, struct turns *turns)
{
    double start = measure_now();
    ranker_fill_bounds(ranker);
    samples_add(&turns->bounds, measure_now() - start);
    start = measure_now();
    ranker_run(ranker);
    samples_add(&turns->rank, measure_now() - start);
}

static void run_group(struct bench *bench, struct group *group)
{
    const int n = group->num_cases;
    struct layer *layers = measure_calloc((size_t)n, sizeof layers[0]);
    struct turns *turns = measure_calloc((size_t)n, sizeof turns[0]);
    struct ranker *rankers = measure_calloc((size_t)n, sizeof rankers[0]);
    report_head(group);
    for (int i = 0; i < n; i++) {
        layer_create(&group->cases[i].spec, i > 0 && group->has_one_pool ? &layers[0] : NULL,
                     &layers[i]);
        layer_run(&layers[i]);
        if (layers[i].spec.selected > 0) {
            ranker_create(&layers[i], &rankers[i]);
        }
    }
    for (int32_t turn = 0; turn < bench->options.repeats; turn++) {
        for (int i = 0; i < n; i++) {
            take_turn(bench, &layers[i], &turns[i]);
            if (rankers[i].layer != NULL) {
                take_rank(&rankers[i], &turns[i]);
            }
        }
    }
    for (int i = 0; i < n; i++) {
        report_case(&group->cases[i], &turns[i], &turns[0], &bench->highest);
        if (rankers[i].layer != NULL) {
            report_rank(&rankers[i], &turns[i]);
        }
        if (bench->csv != NULL) {
            report_csv_case(bench->csv, group, &group->cases[i], bench->threads,
                            pkv_isa_name(bench->isa), &turns[i], &bench->highest);
        }
    }
    for (int i = n - 1; i >= 0; i--) {
        ranker_destroy(&rankers[i]);
        layer_destroy(&layers[i]);
    }
    free(layers);
    free(turns);
    free(rankers);
}

/* What the options leave to the library's choice, as it chose. */
static void settle(struct bench *bench)
{
    pkv_workspace *workspace;
    measure_must(pkv_workspace_create(bench->options.threads, bench->options.isa, NULL, &workspace),
                 "pkv_workspace_create");
    bench->threads = pkv_workspace_num_threads(workspace);
    bench->isa = pkv_workspace_isa(workspace);
    pkv_workspace_destroy(workspace);
    if (bench->options.csv == NULL) {
        return;
    }
    bench->csv = fopen(bench->options.csv, "w");
    if (bench->csv == NULL) {
        measure_fail("%s cannot be written", bench->options.csv);
    }
    report_csv_head(bench->csv);
}

int main(int argc, char **argv)
{
    struct bench bench = {.csv = NULL};
    int num_groups = 0;
    if (!options_parse(argc, argv, &bench.options)) {
        return EXIT_FAILURE;
    }
    if (bench.options.help) {
        options_print_usage();
        return EXIT_SUCCESS;
    }
    settle(&bench);
    take_ceilings(&bench);
    const struct group *groups = cases_groups(&num_groups);
    for (int i = 0; i < num_groups; i++) {
        struct group group = groups[i];
        if (bench.options.quick && !group.quick) {
            continue;
        }
        select_cases(&bench, &group);
        if (group.num_cases > 0) {
            run_group(&bench, &group);
        }
    }
    if (bench.csv != NULL && fclose(bench.csv) != 0) {
        measure_fail("%s was not written whole", bench.options.csv);
    }
    return EXIT_SUCCESS;
}
