/* SPDX-License-Identifier: MIT
 *
 * bench.c: how fast each kernel is alone, on data of the first and second cache level: 4096
 * elements, or a tile of 64 keys of 128. Times are CPU time of this thread, so that a busy machine
 * costs little; each line is the median of SAMPLES after a warm-up, with the distance from the
 * tenth to the ninetieth percentile as the spread. An element is a number converted, or one
 * multiply-add of dot and weighted_sum; bytes are those of x and y, or of the keys or values
 * once. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attn/dispatch.h"
#include "kernels/check.h"

enum { COUNT = 4096, WIDTH = 128, SAMPLES = 41 };

static const double sample_seconds = 100e-6;

/* What kernels work on; x holds every dtype in turn. */
struct bench {
    const struct kernels *kernels;
    enum pkv_dtype dtype;
    int queries;
    const void *cells[TILE_KEYS];
    float x[COUNT * 2], y[COUNT * 2], q[MAX_QUERIES * WIDTH], packed[MAX_QUERIES * WIDTH];
    float acc[MAX_QUERIES * WIDTH], scores[MAX_QUERIES * TILE_KEYS], alpha[MAX_QUERIES];
    float max[MAX_QUERIES], sum[MAX_QUERIES];
};

/* dtypes is a set of bits, one line each. */
struct bench_case {
    const char *name;
    void (*run)(struct bench *bench);
    unsigned dtypes;
    int queries; /* 0: no tile */
    bool is_packed;
};

static void run_widen(struct bench *b)
{
    b->kernels->widen(b->dtype, b->x, COUNT, b->y);
}

static void run_narrow(struct bench *b)
{
    b->kernels->narrow(b->dtype, b->x, COUNT, b->y);
}

static void run_scale(struct bench *b)
{
    b->kernels->scale(b->x, COUNT, -1.0f);
}

static void run_softcap(struct bench *b)
{
    b->kernels->softcap(b->x, COUNT, 1e6f); /* changes little however often */
}

/* Tiles after tiles: the maxima stay, weights become scores again, near 0. */
static void run_softmax(struct bench *b)
{
    struct kernel_softmax_job job = {
        .num_queries = b->queries,
        .num_keys = TILE_KEYS,
        .scale = 1.0f,
        .max = b->max,
        .sum = b->sum,
        .alpha = b->alpha,
    };
    for (int i = 0; i < COUNT / TILE_KEYS; i += b->queries) {
        job.scores = b->x + i * TILE_KEYS;
        b->kernels->softmax(&job);
    }
}

static struct kernel_dot_job dot_job_of(struct bench *b, const float *q)
{
    return (struct kernel_dot_job){
        .dtype = b->dtype,
        .q = q,
        .q_stride = WIDTH,
        .keys = b->cells,
        .num_groups = 1,
        .num_queries = b->queries,
        .num_keys = TILE_KEYS,
        .width = WIDTH,
        .scores = b->scores,
    };
}

static void run_dot(struct bench *b)
{
    const struct kernel_dot_job job = dot_job_of(b, b->q);
    b->kernels->dot(&job);
}

static void run_dot_packed(struct bench *b, int parts)
{
    struct kernel_dot_job job = dot_job_of(b, b->packed);
    job.q_parts = parts;
    b->kernels->dot_packed(&job);
}

static void run_dot_hi(struct bench *b)
{
    run_dot_packed(b, 1);
}

static void run_dot_both(struct bench *b)
{
    run_dot_packed(b, 2);
}

/* What is packed is packed again as if it were floats; zeros stay zeros. */
static void run_pack(struct bench *b)
{
    for (int i = 0; i < COUNT / WIDTH; i++) {
        b->kernels->pack(b->y + i * WIDTH, WIDTH, b->x);
    }
}

static void run_weighted_sum(struct bench *b)
{
    const struct kernel_weighted_sum_job job = {
        .dtype = b->dtype,
        .weights = b->scores,
        .alpha = b->alpha,
        .values = b->cells,
        .num_groups = 1,
        .num_queries = b->queries,
        .num_keys = TILE_KEYS,
        .width = WIDTH,
        .acc = b->acc,
        .acc_stride = WIDTH,
    };
    b->kernels->weighted_sum(&job);
}

static const struct bench_case cases[] = {
    {"widen", run_widen, EVERY_DTYPE, 0, false},
    {"narrow", run_narrow, FLOAT_DTYPES, 0, false},
    {"scale", run_scale, 1u << PKV_F32, 0, false},
    {"softcap", run_softcap, 1u << PKV_F32, 0, false},
    {"softmax, 1 query", run_softmax, 1u << PKV_F32, 1, false},
    {"softmax, 8 queries", run_softmax, 1u << PKV_F32, 8, false},
    {"dot, 1 query", run_dot, EVERY_DTYPE, 1, false},
    {"dot, 8 queries", run_dot, EVERY_DTYPE, 8, false},
    {"pack", run_pack, 1u << PKV_F32, 0, true},
    {"dot hi, 8 queries", run_dot_hi, 1u << PKV_BF16, 8, true},
    {"dot hi and lo, 8 queries", run_dot_both, 1u << PKV_BF16, 8, true},
    {"weighted sum, 1 query", run_weighted_sum, EVERY_DTYPE, 1, false},
    {"weighted sum, 8 queries", run_weighted_sum, EVERY_DTYPE, 8, false},
};

/* ---- measuring ----------------------------------------------------------------------------- */

static double cpu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double seconds_of(struct bench *bench, const struct bench_case *c, int calls)
{
    const double begin = cpu_now();
    for (int i = 0; i < calls; i++) {
        c->run(bench);
    }
    return cpu_now() - begin;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

struct timing {
    double median, spread; /* seconds a call; share of the median */
};

/* The number of calls doubles until a sample is long enough for the clock, which warms up too. */
static struct timing measure(struct bench *bench, const struct bench_case *c)
{
    double times[SAMPLES];
    int calls = 1;
    while (seconds_of(bench, c, calls) < sample_seconds) {
        calls *= 2;
    }
    for (int i = 0; i < SAMPLES; i++) {
        times[i] = seconds_of(bench, c, calls) / calls;
    }
    qsort(times, SAMPLES, sizeof times[0], compare_doubles);
    const double median = times[SAMPLES / 2];
    return (struct timing){median, (times[SAMPLES * 9 / 10] - times[SAMPLES / 10]) / median};
}

/* Fresh numbers in [-1, 1), which no kernel is slow for, in x as `stored`; alpha 1/2 keeps acc in
 * range. */
static void reset(struct bench *b, enum pkv_dtype stored, uint64_t seed)
{
    struct test_random random = {seed};
    const size_t element = pkv_dtype_bytes(stored);
    memset(b->x, 0, sizeof b->x);
    memset(b->y, 0, sizeof b->y);
    memset(b->acc, 0, sizeof b->acc);
    memset(b->packed, 0, sizeof b->packed);
    for (size_t i = 0; i < TILE_KEYS * WIDTH; i++) {
        ref_store(stored, b->x, i, random_unit(&random));
        b->q[i] = (float)random_unit(&random);
    }
    for (size_t i = 0; i < MAX_QUERIES * TILE_KEYS; i++) {
        b->scores[i] = (float)fabs(random_unit(&random));
    }
    for (size_t i = 0; i < MAX_QUERIES; i++) {
        b->alpha[i] = 0.5f;
        b->max[i] = 1.0f;
        b->sum[i] = 0.0f;
    }
    for (size_t j = 0; j < TILE_KEYS; j++) {
        b->cells[j] = (const char *)b->x + j * WIDTH * element;
    }
}

/* Dot and weighted sum do; the others work on COUNT elements. */
static bool reads_tile(const struct bench_case *c)
{
    return c->queries > 0 && c->run != run_softmax;
}

static double bytes_of(const struct bench *b, const struct bench_case *c)
{
    const double element = (double)pkv_dtype_bytes(b->dtype);
    if (reads_tile(c)) {
        return TILE_KEYS * WIDTH * element;
    }
    return COUNT * (element + 4.0);
}

static void print_line(const struct bench *b, const struct bench_case *c, struct timing t,
                       double scalar)
{
    const double elements = reads_tile(c) ? (double)c->queries * TILE_KEYS * WIDTH : COUNT;
    char ratio[32] = "-";
    if (scalar > 0) {
        snprintf(ratio, sizeof ratio, "%.2f", scalar / t.median);
    }
    printf("%-11s %-25s %-5s %10.3f %6.1f%% %9.2f %9.2f %9s\n", pkv_isa_name(b->kernels->isa),
           c->name, dtype_name(b->dtype), 1e6 * t.median, 100 * t.spread,
           1e-9 * elements / t.median, 1e-9 * bytes_of(b, c) / t.median, ratio);
}

/* One case and dtype at every wanted level; scalar runs first, for the ratio. */
static void bench_case_at(struct bench *bench, const struct bench_case *c, enum pkv_isa wanted,
                          uint64_t seed)
{
    double scalar = 0;
    for (int isa = PKV_ISA_SCALAR; isa < PKV_NUM_ISAS; isa++) {
        const bool is_wanted = wanted == PKV_ISA_BEST || (int)wanted == isa;
        bench->kernels = dispatch_kernels((enum pkv_isa)isa);
        if (bench->kernels == NULL || (!is_wanted && isa != PKV_ISA_SCALAR) ||
            (c->is_packed && bench->kernels->pack == NULL)) {
            continue;
        }
        bench->queries = c->queries;
        reset(bench, c->run == run_narrow ? PKV_F32 : bench->dtype, seed);
        const struct timing timing = measure(bench, c);
        scalar = isa == PKV_ISA_SCALAR ? timing.median : scalar;
        if (is_wanted) {
            print_line(bench, c, timing, scalar);
        }
    }
}

void bench_kernels(enum pkv_isa isa, uint64_t seed)
{
    static struct bench bench;
    printf("%-11s %-25s %-5s %10s %7s %9s %9s %9s\n", "isa", "kernel", "dtype", "us", "spread",
           "Gelem/s", "GB/s", "x scalar");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (unsigned dtype = 0; dtype < NUM_DTYPES; dtype++) {
            if ((cases[i].dtypes >> dtype & 1u) != 0) {
                bench.dtype = (enum pkv_dtype)dtype;
                bench_case_at(&bench, &cases[i], isa, seed);
            }
        }
    }
}
