/* SPDX-License-Identifier: MIT
 *
 * contention [LOOPS..]: what a call costs where the processors are not its own. A layer of 8 rows
 * of 256 keys runs again and again, alone and beside busy loops (0 and 2 when no number is given),
 * on one thread and on two, with OMP_WAIT_POLICY unset or passive. OpenMP reads its environment
 * when a process starts, so each measurement is a process of its own: this program once more. All
 * of them run in turns. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "layer.h"
#include "measure.h"

enum { TURNS = 5, MAX_LOOPS = 64, WARM_CALLS = 20 };
#define SECONDS 1.0

enum policy { UNSET, PASSIVE, NUM_POLICIES };
static const char *const policy_names[] = {"unset", "passive"};

struct result {
    double mean;
    double p99;
};

static void measure_layer(int threads, struct result *result)
{
    const struct layer_spec spec = {
        .heads = 32,
        .kv_heads = 8,
        .width = 128,
        .rows = 8,
        .q_len = 1,
        .keys = 256,
        .block_size = 16,
        .cache = PKV_F16,
        .threads = threads,
    };
    struct samples times = {0};
    struct layer layer;
    layer_create(&spec, NULL, &layer);
    for (int i = 0; i < WARM_CALLS; i++) {
        layer_run(&layer);
    }
    const double begin = measure_now();
    double last = begin;
    int count = 0;
    for (; last - begin < SECONDS && count < MAX_SAMPLES; count++) {
        layer_run(&layer);
        const double now = measure_now();
        samples_add(&times, now - last);
        last = now;
    }
    *result = (struct result){(last - begin) / count, samples_quantile(&times, 0.99)};
    layer_destroy(&layer);
}

/* The child: the result goes up the pipe. */
static int measure_here(int threads, int descriptor)
{
    struct result result;
    measure_layer(threads, &result);
    return write(descriptor, &result, sizeof result) == sizeof result ? EXIT_SUCCESS : EXIT_FAILURE;
}

static struct result measure_in_process(const char *self, enum policy policy, int threads)
{
    struct result result = {0};
    int ends[2];
    if (pipe(ends) != 0) {
        measure_fail("no pipe");
    }
    const pid_t child = fork();
    if (child == 0) {
        char numbers[2][16];
        snprintf(numbers[0], sizeof numbers[0], "%d", threads);
        snprintf(numbers[1], sizeof numbers[1], "%d", ends[1]);
        if (policy == PASSIVE) {
            setenv("OMP_WAIT_POLICY", "passive", 1);
        } else {
            unsetenv("OMP_WAIT_POLICY");
        }
        execl(self, self, "here", numbers[0], numbers[1], (char *)NULL);
        _exit(EXIT_FAILURE);
    }
    close(ends[1]);
    if (read(ends[0], &result, sizeof result) != sizeof result) {
        measure_fail("no result");
    }
    close(ends[0]);
    waitpid(child, NULL, 0);
    return result;
}

static void start_loops(pid_t *loops, int count)
{
    for (int i = 0; i < count; i++) {
        loops[i] = fork();
        for (volatile unsigned turn = 0; loops[i] == 0; turn = turn + 1) {
        }
    }
}

static void stop_loops(const pid_t *loops, int count)
{
    for (int i = 0; i < count; i++) {
        kill(loops[i], SIGKILL);
        waitpid(loops[i], NULL, 0);
    }
}

static void compare_beside(const char *self, int num_loops)
{
    struct samples means[NUM_POLICIES][2] = {{{0}}}, tails[NUM_POLICIES][2] = {{{0}}};
    pid_t loops[MAX_LOOPS];
    start_loops(loops, num_loops);
    for (int turn = 0; turn < TURNS; turn++) {
        for (int p = 0; p < NUM_POLICIES; p++) {
            for (int threads = 1; threads <= 2; threads++) {
                const struct result r = measure_in_process(self, (enum policy)p, threads);
                samples_add(&means[p][threads - 1], r.mean);
                samples_add(&tails[p][threads - 1], r.p99);
            }
        }
    }
    stop_loops(loops, num_loops);
    for (int p = 0; p < NUM_POLICIES; p++) {
        for (int t = 0; t < 2; t++) {
            printf("%d busy loops beside it, OMP_WAIT_POLICY %-7s, %d threads: mean %7.3f ms  p99 "
                   "%7.3f ms  "
                   "%.2f of one thread\n",
                   num_loops, policy_names[p], t + 1, 1e3 * samples_median(&means[p][t]),
                   1e3 * samples_median(&tails[p][t]),
                   samples_median(&means[p][t]) / samples_median(&means[p][0]));
        }
    }
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "here") == 0) {
        return measure_here(atoi(argv[2]), atoi(argv[3]));
    }
    printf("%s\n8 rows of 256 keys, 32/8 heads of 128, f16\n", pkv_build_info());
    for (int i = 1; i < argc; i++) {
        const int loops = atoi(argv[i]);
        compare_beside(argv[0], loops < 0 ? 0 : loops < MAX_LOOPS ? loops : MAX_LOOPS);
    }
    if (argc < 2) {
        compare_beside(argv[0], 0);
        compare_beside(argv[0], 2);
    }
    return EXIT_SUCCESS;
}
