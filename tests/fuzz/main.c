/* SPDX-License-Identifier: MIT
 *
 * fuzz [seconds] [seed]: lives of every kind, one seed after the other. The seed and the kind of
 * the life under way are printed when something does not hold. They are led by a child process, so
 * that its parent can print them whatever ends it: a signal, a sanitiser, want of memory.
 * PKV_FUZZ_SECONDS and PKV_TEST_SEED stand for the arguments. Ends at the first faulty seed with
 * status 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

static const struct {
    const char *name;
    void (*live)(struct fuzz *fuzz);
} kinds[] = {
    {"pool", fuzz_pool},         {"slots", fuzz_slots}, {"pages", fuzz_pages},
    {"geometry", fuzz_geometry}, {"rows", fuzz_rows},   {"contract", fuzz_contract},
    {"cache", fuzz_cache},       {"saved", fuzz_saved},
};
enum { NUM_KINDS = sizeof kinds / sizeof kinds[0] };

static long num_faults;

/* In memory of both processes. */
static struct watched {
    char under_way[96]; /* the line that a fault or a crash prints */
    bool is_over;
} * watched;

bool fuzz_expect(bool holds, const char *what, const char *file, int line)
{
    if (!holds && num_faults++ < 10) {
        printf("%s%s:%d: %s\n    last error: %s\n", watched->under_way, file, line, what,
               pkv_last_error());
    }
    return holds;
}

bool fuzz_call(struct fuzz *fuzz, unsigned allowed, enum pkv_status status, const char *what,
               const char *file, int line)
{
    char text[256];
    fuzz->num_calls++;
    if (status == PKV_OK) {
        return true;
    }
    fuzz->num_refused++;
    const bool is_known = (int)status < 0 && (int)status > -31 && (allowed & FUZZ_MAY(status)) != 0;
    snprintf(text, sizeof text, "%s answered %s", what, pkv_status_name(status));
    fuzz_expect(is_known && pkv_last_error()[0] != 0, text, file, line);
    return false;
}

int32_t fuzz_in(struct fuzz *fuzz, int32_t low, int32_t high)
{
    return random_between(&fuzz->random, low, high);
}

bool fuzz_once_in(struct fuzz *fuzz, int32_t n)
{
    return fuzz_in(fuzz, 0, n - 1) == 0;
}

int32_t fuzz_int32(struct fuzz *fuzz, int32_t small)
{
    switch (fuzz_in(fuzz, 0, 11)) {
    case 0: return fuzz_in(fuzz, -2, 0);
    case 1: return INT32_MAX - fuzz_in(fuzz, 0, 2);
    case 2: return INT32_MIN + fuzz_in(fuzz, 0, 2);
    case 3: return (int32_t)1 << fuzz_in(fuzz, 0, 30);
    default: return fuzz_in(fuzz, 0, small);
    }
}

int64_t fuzz_int64(struct fuzz *fuzz, int32_t small)
{
    switch (fuzz_in(fuzz, 0, 9)) {
    case 0: return INT64_MAX - fuzz_in(fuzz, 0, 2);
    case 1: return INT64_MIN + fuzz_in(fuzz, 0, 2);
    case 2: return (int64_t)1 << fuzz_in(fuzz, 0, 62);
    default: return fuzz_int32(fuzz, small);
    }
}

float fuzz_float(struct fuzz *fuzz)
{
    const uint32_t bits = (uint32_t)random_u64(&fuzz->random);
    float x;
    memcpy(&x, &bits, sizeof x);
    return fuzz_once_in(fuzz, 3) ? x : (float)random_unit(&fuzz->random);
}

static void *limited(struct fuzz *fuzz, size_t bytes, size_t alignment)
{
    const size_t whole = (bytes + alignment - 1) / alignment * alignment;
    if (bytes > FUZZ_MAX_LIVE_BYTES - fuzz->live_bytes || whole < bytes || fuzz->fail_in == 0) {
        return NULL;
    }
    fuzz->fail_in -= fuzz->fail_in > 0;
    void *memory = aligned_alloc(alignment, whole);
    if (memory != NULL) {
        fuzz->live_bytes += bytes;
        fuzz->num_live++;
    }
    return memory;
}

static void *hook_alloc(void *context, size_t bytes, size_t alignment)
{
    return limited(context, bytes, alignment);
}

static void hook_free(void *context, void *memory, size_t bytes, size_t alignment)
{
    struct fuzz *fuzz = context;
    (void)alignment;
    FUZZ_EXPECT(bytes <= fuzz->live_bytes && fuzz->num_live > 0);
    fuzz->live_bytes -= bytes;
    fuzz->num_live--;
    free(memory);
}

static void *hook_map(void *context, size_t bytes, size_t alignment, int node,
                      enum pkv_map_kind kind)
{
    (void)kind;
    (void)node;
    return limited(context, bytes, alignment);
}

static void hook_unmap(void *context, void *memory, size_t bytes, enum pkv_map_kind kind)
{
    (void)kind;
    hook_free(context, memory, bytes, 0);
}

static void hook_log(void *context, enum pkv_log_level level, const char *line)
{
    (void)context, (void)level;
    fuzz_expect(false, line, __FILE__, __LINE__); /* a check found something */
}

static void live(uint64_t seed, int kind, struct fuzz *total)
{
    struct fuzz fuzz = {.random = {seed * NUM_KINDS + (uint64_t)kind}, .fail_in = -1};
    fuzz.hooks = (struct pkv_hooks){.context = &fuzz,
                                    .alloc = hook_alloc,
                                    .free = hook_free,
                                    .map_pages = hook_map,
                                    .unmap_pages = hook_unmap,
                                    .log = hook_log};
    snprintf(watched->under_way, sizeof watched->under_way,
             "seed %llu, %s: ", (unsigned long long)seed, kinds[kind].name);
    kinds[kind].live(&fuzz);
    FUZZ_EXPECT(fuzz.num_live == 0 && fuzz.live_bytes == 0);
    total->num_calls += fuzz.num_calls;
    total->num_refused += fuzz.num_refused;
}

static double seconds_wanted(int argc, char **argv)
{
    const char *text = argc > 1 ? argv[1] : getenv("PKV_FUZZ_SECONDS");
    return text != NULL ? strtod(text, NULL) : 3;
}

static int live_on(int argc, char **argv)
{
    const time_t start = time(NULL);
    const double seconds = seconds_wanted(argc, argv);
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : test_seed();
    struct fuzz total = {.num_calls = 0};
    long num_seeds = 0;
    do {
        for (int kind = 0; kind < NUM_KINDS; kind++) {
            live(seed, kind, &total);
        }
        num_seeds++;
        seed++;
    } while (num_faults == 0 && difftime(time(NULL), start) < seconds);
    printf("fuzz: %ld seeds, the last %llu; %ld calls, %ld refused, %ld faults\n", num_seeds,
           (unsigned long long)(seed - 1), total.num_calls, total.num_refused, num_faults);
    watched->is_over = true;
    return num_faults == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    int status = 0;
    watched =
        mmap(NULL, sizeof *watched, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const pid_t child = watched != MAP_FAILED ? fork() : -1;
    if (child == 0) {
        return live_on(argc, argv);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        fprintf(stderr, "fuzz: no process\n");
        return EXIT_FAILURE;
    }
    if (!watched->is_over) {
        fprintf(stderr, "%sthe program ended here, signal %d\n", watched->under_way,
                WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    return watched->is_over && WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}
