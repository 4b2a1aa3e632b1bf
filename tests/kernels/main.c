/* SPDX-License-Identifier: MIT
 *
 * main.c: every kernel of every table that this CPU has, against references in double.
 *
 *     kernels [SEED] [--isa LEVEL] [--bench]
 *
 * A case that reads or writes where it may not, or meets an instruction that the CPU lacks, fails
 * with the same line as one that computes wrong, and the next case goes on. Exit status 1 when a
 * case failed; --bench measures instead. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/dispatch.h"
#include "kernels/check.h"

/* dtypes is a set of bits, 0 for kernels that have none. */
struct kernel_case {
    const char *name;
    void (*run)(struct check *check);
    unsigned dtypes;
    bool is_packed, is_int8; /* of levels that have these */
};

static const struct kernel_case cases[] = {
    {"widen", check_widen, EVERY_DTYPE, false, false},
    {"narrow", check_narrow, FLOAT_DTYPES, false, false},
    {"bound", check_bound, 0, false, false},
    {"scale", check_scale, 0, false, false},
    {"merge", check_merge, 0, false, false},
    {"softcap", check_softcap, 0, false, false},
    {"softmax", check_softmax, 0, false, false},
    {"dot", check_dot, EVERY_DTYPE, false, false},
    {"pack", check_pack, 0, true, false},
    {"dot_packed, one part", check_dot_hi, 0, true, false},
    {"dot_packed, both parts", check_dot_both, 0, true, false},
    {"weighted_sum", check_weighted_sum, EVERY_DTYPE, false, false},
    {"dot_int8", check_int8_dot, 0, false, true},
    {"weighted_sum_int8", check_int8_sum, 0, false, true},
    {"every code", check_codes, 1u << PKV_E4M3, false, false},
};

struct totals {
    int passed, failed;
};

/* ---- crashes ------------------------------------------------------------------------------- */

static sigjmp_buf landing;
static volatile sig_atomic_t is_running;

static void on_signal(int number)
{
    if (is_running != 0) {
        siglongjmp(landing, number);
    }
    signal(number, SIG_DFL);
    raise(number);
}

static void catch_signals(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        sigaction(numbers[i], &action, NULL);
    }
}

/* ---- cases --------------------------------------------------------------------------------- */

static void run_case(struct check *check, const struct kernel_case *c, struct totals *totals)
{
    check->kernel = c->name;
    check->random.state = check->seed;
    check->failed = false;
    check->shape = (struct shape){-1, -1, -1, PLACE_ENDS, "none yet"};
    const int signal_number = sigsetjmp(landing, 1);
    if (signal_number == 0) {
        is_running = 1;
        c->run(check);
    } else {
        check_fail(check, "%s", strsignal(signal_number));
    }
    is_running = 0;
    totals->passed += !check->failed;
    totals->failed += check->failed;
}

static void run_dtypes(struct check *check, const struct kernel_case *c, struct totals *totals)
{
    check->has_dtype = c->dtypes != 0;
    for (unsigned dtype = 0; dtype < NUM_DTYPES; dtype++) {
        if ((c->dtypes >> dtype & 1u) != 0 || (c->dtypes == 0 && dtype == 0)) {
            check->dtype = (enum pkv_dtype)dtype;
            run_case(check, c, totals);
        }
    }
}

static void run_level(struct check *check, struct totals *totals)
{
    struct totals level = {0, 0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if ((!cases[i].is_packed || check->kernels->pack != NULL) &&
            (!cases[i].is_int8 || check->kernels->pack_int8 != NULL)) {
            run_dtypes(check, &cases[i], &level);
        }
    }
    printf("%s: %d passed, %d failed%s\n", pkv_isa_name(check->kernels->isa), level.passed,
           level.failed, check->kernels->pack == NULL ? "; no packed dot products" : "");
    totals->passed += level.passed;
    totals->failed += level.failed;
}

static int run_levels(enum pkv_isa wanted, uint64_t seed)
{
    struct totals totals = {0, 0};
    struct check check = {
        .seed = seed,
        .cells = guarded_create(TILE_KEYS, MAX_WIDTH * sizeof(float)),
        .input = guarded_create(1, 1u << 19),
        .output = guarded_create(1, 1u << 19),
        .spare = guarded_create(1, 4 * MAX_STRIDE * sizeof(float)),
    };
    values_create(seed);
    catch_signals();
    for (int isa = PKV_ISA_SCALAR; isa < PKV_NUM_ISAS; isa++) {
        if (wanted != PKV_ISA_BEST && (int)wanted != isa) {
            continue;
        }
        check.kernels = dispatch_kernels((enum pkv_isa)isa);
        if (check.kernels == NULL) {
            printf("skipped: %s, not on this machine or not in this build\n",
                   pkv_isa_name((enum pkv_isa)isa));
            continue;
        }
        run_level(&check, &totals);
    }
    printf("%d passed, %d failed\n", totals.passed, totals.failed);
    return totals.failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- arguments ----------------------------------------------------------------------------- */

_Noreturn static void refuse(const char *argument)
{
    fprintf(stderr, "kernels: %s?\nusage: kernels [SEED] [--isa LEVEL] [--bench]\n", argument);
    exit(2);
}

static enum pkv_isa isa_of(const char *name)
{
    enum pkv_isa isa = PKV_ISA_BEST;
    if (pkv_isa_by_name(name, &isa) != PKV_OK) {
        refuse(name);
    }
    return isa;
}

int main(int argc, char **argv)
{
    enum pkv_isa isa = test_isa();
    uint64_t seed = test_seed();
    bool is_bench = false;
    for (int i = 1; i < argc; i++) {
        char *end = argv[i];
        if (strcmp(argv[i], "--bench") == 0) {
            is_bench = true;
        } else if (strcmp(argv[i], "--isa") == 0 && i + 1 < argc) {
            isa = isa_of(argv[++i]);
        } else {
            seed = strtoull(argv[i], &end, 0);
            if (end == argv[i] || *end != '\0') {
                refuse(argv[i]);
            }
        }
    }
    printf("kernels; seed %llu\n", (unsigned long long)seed);
    if (is_bench) {
        bench_kernels(isa, seed);
        return EXIT_SUCCESS;
    }
    return run_levels(isa, seed);
}
