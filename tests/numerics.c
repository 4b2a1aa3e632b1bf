/* SPDX-License-Identifier: MIT
 *
 * How exact the operator is: seeded random calls of every pair of activation and cache dtype
 * against the float64 reference, and exp and tanh as the kernels compute them against libm, as the
 * tables of docs/numerics.md. The reference attends to the very cells that the library stored, so
 * what is measured is the operator's own arithmetic and the rounding of its output; the bound is
 * the one that the unit tests hold. PKV_TEST_ISA and PKV_TEST_SEED steer the run. Exit status 1
 * when an error passes its bound. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/dispatch.h"
#include "support/gqa_case.h"

enum { CALLS_PER_PAIR = 96, MAX_WORK = 400000 };

static const char *const names[NUM_DTYPES] = {"f32", "f16", "bf16", "int8", "e4m3"};

/* ---- the operator -------------------------------------------------------------------------- */

/* Errors of one pair of dtypes, in no order; growing. */
struct sample {
    double *errors;
    size_t count, room;
    double largest, bound_there; /* the largest error, and the bound of that very output */
    double share;                /* the largest error / bound */
    double lse;                  /* the largest error of a logarithm */
};

static void add_error(struct sample *s, double error, double bound)
{
    if (s->count == s->room) {
        s->room = s->room * 2 + 4096;
        s->errors = realloc(s->errors, s->room * sizeof s->errors[0]);
        if (s->errors == NULL) {
            fprintf(stderr, "numerics: out of memory\n");
            exit(EXIT_FAILURE);
        }
    }
    s->errors[s->count++] = error;
    if (error > s->largest) {
        s->largest = error;
        s->bound_there = bound;
    }
    s->share = fmax(s->share, error / bound);
}

static int32_t one_of(struct test_random *random, const int32_t *choices, int32_t count)
{
    return choices[random_between(random, 0, count - 1)];
}

/* Ragged rows over shuffled pages, every fourth call with queries twenty times as loud; the calls
 * of odd seeds take every option. */
static struct case_spec draw(uint64_t seed, enum pkv_dtype dtype, enum pkv_dtype cache)
{
    static const int32_t widths[] = {1, 8, 17, 32, 64, 80, 128, 256};
    static const int32_t groups[] = {1, 3, 4, 8};
    static const int32_t pasts[] = {0, 5, 80, 700, 2000};
    static const int32_t q_lens[] = {1, 1, 2, 5, 40};
    struct test_random random = {seed};
    struct case_spec spec = case_plain(seed);
    spec.dtype = dtype;
    spec.k_dtype = spec.v_dtype = cache;
    spec.kv_heads = random_between(&random, 1, 2);
    spec.group = one_of(&random, groups, 4);
    spec.k_width = spec.v_width = one_of(&random, widths, 8);
    spec.block_size = random_between(&random, 1, 33);
    spec.loudness = random_between(&random, 0, 3) > 0 ? 1 : 20;
    if (seed % 2 != 0) {
        spec.options = CASE_Q_SCALE | CASE_ROPE | CASE_NORM | CASE_SINK | CASE_SOFTCAP | CASE_MASK;
    }
    const int64_t pair = (int64_t)spec.kv_heads * spec.group * 2 * spec.k_width;
    const int32_t batch = random_between(&random, 1, 3);
    for (int32_t b = 0; b < batch; b++) {
        int32_t q_len = one_of(&random, q_lens, 5);
        int32_t past = one_of(&random, pasts, 5);
        while (pair * q_len * (q_len + past) > MAX_WORK && q_len + past > 1) {
            q_len = (q_len + 1) / 2;
            past /= 2;
        }
        case_add_row(&spec, b, q_len, q_len + past);
    }
    return spec;
}

/* The errors of one query head, which sees a row of kv_len keys; at = token * num_heads + head. */
static void measure_head(const struct gqa_case *c, const struct reference *ref, size_t at,
                         int32_t kv_len, struct sample *s)
{
    const struct pkv_gqa_args *args = &c->args;
    const size_t width = (size_t)c->spec.v_width;
    const double sums = gqa_case_bound(c, ref, at, kv_len);
    for (size_t x = at * width; x < (at + 1) * width; x++) {
        const double bound = sums * ref->value_size[at];
        const double rounding = 0.5 * reference_ulp(args->dtype, fabs(ref->out[x]) + bound);
        add_error(s, fabs(ref_load(args->dtype, args->out, x) - ref->out[x]), bound + rounding);
    }
    if (ref->lse[at] != -(double)INFINITY) {
        s->lse = fmax(s->lse, fabs((double)args->lse[at] - ref->lse[at]));
    }
}

static void measure_rows(const struct gqa_case *c, const struct reference *ref, struct sample *s)
{
    const size_t heads = (size_t)c->args.num_heads;
    for (int32_t b = 0; b < c->spec.batch; b++) {
        const size_t end = (size_t)c->cu_seqlens_q[b + 1] * heads;
        for (size_t at = (size_t)c->cu_seqlens_q[b] * heads; at < end; at++) {
            measure_head(c, ref, at, c->spec.kv_lens[b], s);
        }
    }
}

static bool measure_call(const struct case_spec *spec, pkv_workspace *workspace, struct sample *s)
{
    struct gqa_case *c = gqa_case_make(spec);
    struct reference ref;
    reference_append(&c->args, &ref);
    const bool is_ok = gqa_case_call(c, workspace) == PKV_OK;
    if (is_ok) {
        memcpy(ref.cache.k, c->args.past.k, ref.k_bytes);
        memcpy(ref.cache.v, c->args.past.v, ref.v_bytes);
        reference_attend(&c->args, &ref);
        measure_rows(c, &ref, s);
    } else {
        fprintf(stderr, "numerics: seed %llu: %s\n", (unsigned long long)spec->seed,
                pkv_last_error());
    }
    reference_free(&ref);
    gqa_case_free(c);
    return is_ok;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool print_pair(enum pkv_dtype dtype, enum pkv_dtype cache, pkv_workspace *workspace)
{
    struct sample s = {0};
    bool is_ok = true;
    for (uint64_t i = 0; i < CALLS_PER_PAIR; i++) {
        const struct case_spec spec = draw(test_seed() + i, dtype, cache);
        is_ok = measure_call(&spec, workspace, &s) && is_ok;
    }
    if (s.count > 0) {
        qsort(s.errors, s.count, sizeof s.errors[0], ascending);
        printf("| %s | %s | %zu | %.1e | %.1e | %.1e | %.2f | %.1e |\n", names[dtype], names[cache],
               s.count, s.errors[s.count - 1 - s.count / 1000], s.largest, s.bound_there, s.share,
               s.lse);
    }
    free(s.errors);
    return is_ok && s.share <= 1;
}

static bool print_operator(pkv_workspace *workspace)
{
    bool is_ok = true;
    printf("| activations | cache | outputs | error, 99.9 %% | error, largest | its bound | "
           "largest error / bound | lse, largest |\n|---|---|---|---|---|---|---|---|\n");
    for (int dtype = PKV_F32; dtype <= PKV_BF16; dtype++) {
        for (int cache = PKV_F32; cache < NUM_DTYPES; cache++) {
            is_ok = print_pair((enum pkv_dtype)dtype, (enum pkv_dtype)cache, workspace) && is_ok;
        }
    }
    return is_ok;
}

/* ---- exp and tanh -------------------------------------------------------------------------- */

/* The largest relative error over a million arguments, evenly spaced in [low, 0]. The softmax of a
 * tile whose maximum is 0 already is exp of its scores. */
static double exp_error(const struct kernels *kernels, double low)
{
    double largest = 0;
    for (int tile = 0; tile < (1 << 20) / TILE_KEYS; tile++) {
        float x[TILE_KEYS];
        float scores[TILE_KEYS];
        float max = 0;
        float sum = 0;
        float alpha;
        for (int j = 0; j < TILE_KEYS; j++) {
            x[j] = scores[j] = (float)(low * (tile * TILE_KEYS + j) / (1 << 20));
        }
        const struct kernel_softmax_job job = {
            .scores = scores,
            .num_queries = 1,
            .num_keys = TILE_KEYS,
            .scale = 1.0f,
            .max = &max,
            .sum = &sum,
            .alpha = &alpha,
        };
        kernels->softmax(&job);
        for (int j = 0; j < TILE_KEYS; j++) {
            const double want = exp((double)x[j]);
            largest = fmax(largest, fabs((double)scores[j] - want) / want);
        }
    }
    return largest;
}

/* The same of tanh on (0, high]: the softcap with a cap of one. */
static double tanh_error(const struct kernels *kernels, double high)
{
    double largest = 0;
    for (int i = 1; i <= 1 << 20; i++) {
        const float x = (float)(high * i / (1 << 20));
        float y = x;
        kernels->softcap(&y, 1, 1.0f);
        largest = fmax(largest, fabs((double)y - tanh((double)x)) / tanh((double)x));
    }
    return largest;
}

static void print_functions(void)
{
    printf("| instruction set | exp on [-87, 0] | tanh on (0, 0.5) | tanh on (0.5, 20] |\n"
           "|---|---|---|---|\n");
    for (int isa = PKV_ISA_SCALAR; isa < PKV_NUM_ISAS; isa++) {
        const struct kernels *kernels = dispatch_kernels((enum pkv_isa)isa);
        if (kernels != NULL) {
            printf("| %s | %.1e | %.1e | %.1e |\n", pkv_isa_name(kernels->isa),
                   exp_error(kernels, -87), tanh_error(kernels, 0.4999), tanh_error(kernels, 20));
        }
    }
}

int main(void)
{
    pkv_workspace *workspace = NULL;
    const enum pkv_status status = pkv_workspace_create(2, test_isa(), NULL, &workspace);
    if (status == PKV_UNSUPPORTED) {
        printf("skipped: this machine has no %s\n", pkv_isa_name(test_isa()));
        return EXIT_SUCCESS;
    }
    if (status != PKV_OK) {
        fprintf(stderr, "numerics: %s\n", pkv_last_error());
        return EXIT_FAILURE;
    }
    printf("Operator, %s, seed %llu, %d calls a line:\n\n",
           pkv_isa_name(pkv_workspace_isa(workspace)), (unsigned long long)test_seed(),
           CALLS_PER_PAIR);
    const bool is_ok = print_operator(workspace);
    pkv_workspace_destroy(workspace);
    printf("\nFunctions, largest relative error:\n\n");
    print_functions();
    return is_ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
