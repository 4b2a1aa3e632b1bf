/* SPDX-License-Identifier: MIT
 *
 * The copies of swapping, and where they go. A copy is stopped where it first touches swap memory
 * that was made unreadable: what runs then, runs in the middle of it, and would never return if the
 * copy held the mutex. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/cache.h"
#include "support/runtime_case.h"

#define UNIQUE "XXXXXX" /* as mkdtemp wants it */

static struct case_seq a, b;

/* The fault comes from the thread's own access to memory, at no other moment, so its handler may
 * take memory, which a thread sanitiser reports of any signal. It calls this function if it is
 * there. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "report_signal_unsafe=0";
}

/* ---- in the middle of a copy --------------------------------------------------------------- */

/* The cache whose copy is stopped, and its swap memory. */
static struct stopped {
    struct runtime_case c;
    struct pkv_hooks inner;
    unsigned char *memory;
    size_t bytes;
    void (*meanwhile)(struct runtime_case *c);
    int num_stops;
} stopped;

static void *map(void *context, size_t bytes, size_t alignment, int node, enum pkv_map_kind kind)
{
    (void)context;
    if (kind != PKV_MAP_SWAP) {
        return stopped.inner.map_pages(stopped.inner.context, bytes, alignment, node, kind);
    }
    stopped.bytes = bytes;
    stopped.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return stopped.memory;
}

static void unmap(void *context, void *memory, size_t bytes, enum pkv_map_kind kind)
{
    (void)context;
    if (kind == PKV_MAP_SWAP) {
        munmap(memory, bytes);
    } else {
        stopped.inner.unmap_pages(stopped.inner.context, memory, bytes, kind);
    }
}

static void on_fault(int signal)
{
    (void)signal;
    mprotect(stopped.memory, stopped.bytes, PROT_READ | PROT_WRITE);
    stopped.num_stops++;
    stopped.meanwhile(&stopped.c);
}

/* A call during whose copy `meanwhile` runs, once. */
static enum pkv_status stop(enum pkv_status (*call)(pkv_cache *, pkv_seq, struct pkv_shortage *),
                            void (*meanwhile)(struct runtime_case *c))
{
    struct sigaction before;
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    stopped.meanwhile = meanwhile;
    stopped.num_stops = 0;
    sigaction(SIGSEGV, &action, &before);
    mprotect(stopped.memory, stopped.bytes, PROT_NONE);
    const enum pkv_status status = call(stopped.c.cache, a.handle, NULL);
    mprotect(stopped.memory, stopped.bytes, PROT_READ | PROT_WRITE);
    sigaction(SIGSEGV, &before, NULL);
    CU_ASSERT_EQUAL(stopped.num_stops, 1);
    return status;
}

static struct runtime_case *open_stopped(void)
{
    struct runtime_case *c = &stopped.c;
    case_init(c);
    stopped.inner = c->config.hooks;
    c->config.hooks.alloc = NULL;
    c->config.hooks.free = NULL;
    c->config.hooks.map_pages = map;
    c->config.hooks.unmap_pages = unmap;
    c->config.hooks.context = &c->memory;
    c->config.swap_bytes = 1024;
    case_open(c);
    ASSERT_STATUS(PKV_OK, case_create(c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_create(c, &b, NULL));
    ASSERT_STATUS(PKV_OK, case_append(c, &a, 10));
    ASSERT_STATUS(PKV_OK, case_append(c, &b, 5));
    return c;
}

static void refuses_all_but_others(struct runtime_case *c)
{
    static struct case_seq child;
    struct case_step step = {0};
    case_row(&step, &a, 1);
    ASSERT_REFUSED(PKV_BUSY, "copied", case_begin(c, &step, 1));
    ASSERT_REFUSED(PKV_BUSY, "copied", case_truncate(c, &a, 0));
    ASSERT_REFUSED(PKV_BUSY, "copied", case_fork(c, &a, 3, &child));
    ASSERT_REFUSED(PKV_BUSY, "copied", pkv_seq_swap_out(c->cache, a.handle, NULL));
    ASSERT_REFUSED(PKV_BUSY, "copied", pkv_seq_swap_in(c->cache, a.handle, NULL));
    CU_ASSERT(case_length(c, a.handle) == 10 && case_check(c) == 0);
    ASSERT_STATUS(PKV_OK, case_append(c, &b, 1));
    ASSERT_STATUS(PKV_OK, pkv_seq_swap_out(c->cache, b.handle, NULL));
    ASSERT_STATUS(PKV_OK, pkv_seq_swap_in(c->cache, b.handle, NULL));
    CU_ASSERT_EQUAL(case_check(c), 0);
}

static void a_step_with_others_goes_on_while_a_sequence_is_copied(void)
{
    struct runtime_case *c = open_stopped();
    ASSERT_STATUS(PKV_OK, stop(pkv_seq_swap_out, refuses_all_but_others));
    ASSERT_STATUS(PKV_OK, stop(pkv_seq_swap_in, refuses_all_but_others));
    ASSERT_STATUS(PKV_OK, case_append(c, &a, 3));
    ASSERT_STATUS(PKV_OK, case_append(c, &b, 3));
    case_close(c);
}

static void destroys(struct runtime_case *c)
{
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c->cache, a.handle));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_destroy(c->cache, a.handle));
    CU_ASSERT(case_taken(c, 0) == 3 + 2 && case_check(c) == 0);
}

static void a_sequence_that_is_destroyed_during_a_copy_goes_when_that_ends(void)
{
    for (int direction = 0; direction < 2; direction++) {
        struct runtime_case *c = open_stopped();
        struct pkv_stats stats = {.size = sizeof stats};
        if (direction == 1) {
            ASSERT_STATUS(PKV_OK, pkv_seq_swap_out(c->cache, a.handle, NULL));
        }
        ASSERT_STATUS(PKV_STALE_HANDLE,
                      stop(direction == 0 ? pkv_seq_swap_out : pkv_seq_swap_in, destroys));
        ASSERT_STATUS(PKV_OK, pkv_cache_stats(c->cache, &stats));
        CU_ASSERT(stats.used_swap_units == 0 && stats.num_seqs == 1 && stats.swapped_seqs == 0);
        CU_ASSERT(case_taken(c, 0) == 2 && case_check(c) == 0);
        ASSERT_STATUS(PKV_OK, case_append(c, &b, 3));
        case_close(c);
    }
}

static void closes(struct runtime_case *c)
{
    pkv_cache_close(c->cache);
}

static void a_closed_cache_lets_sequences_out_and_not_in(void)
{
    struct runtime_case *c = open_stopped();
    ASSERT_STATUS(PKV_OK, stop(pkv_seq_swap_out, closes));
    ASSERT_STATUS(PKV_OK, pkv_seq_swap_out(c->cache, b.handle, NULL));
    ASSERT_REFUSED(PKV_BUSY, "closed", pkv_seq_swap_in(c->cache, a.handle, NULL));
    case_close(c);
}

static void a_sequence_of_the_open_step_stays(void)
{
    struct runtime_case *c = open_stopped();
    struct case_step step = {0};
    ASSERT_STATUS(PKV_OK, pkv_seq_swap_out(c->cache, b.handle, NULL));
    case_row(&step, &a, 1);
    ASSERT_STATUS(PKV_OK, case_begin(c, &step, 1));
    ASSERT_REFUSED(PKV_BUSY, "open step", pkv_seq_swap_out(c->cache, a.handle, NULL));
    ASSERT_STATUS(PKV_OK, pkv_seq_swap_in(c->cache, b.handle, NULL));
    case_attend_all(c, &step);
    case_commit(c, &step, NULL);
    ASSERT_STATUS(PKV_OK, case_append(c, &b, 3));
    case_close(c);
}

/* ---- files --------------------------------------------------------------------------------- */

/* A folder of its own under TMPDIR, or where such are kept. */
static const char *make_folder(char *path, size_t bytes)
{
    const char *parent = getenv("TMPDIR");
    snprintf(path, bytes, "%s/swap-" UNIQUE, parent != NULL ? parent : P_tmpdir);
    return mkdtemp(path);
}

static void a_file_holds_what_is_swapped_out_and_has_no_name(void)
{
    char folder[512];
    struct runtime_case c;
    case_init(&c);
    CU_ASSERT_PTR_NOT_NULL_FATAL(make_folder(folder, sizeof folder));
    char path[512];
    memcpy(path, folder, sizeof path);
    c.config.swap_bytes = 4096;
    c.config.swap_path = path;
    case_open(&c);
    memset(path, 0, sizeof path); /* the caller's again */
    CU_ASSERT_EQUAL(rmdir(folder), 0);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    for (int32_t i = 0; i < 5; i++) {
        ASSERT_STATUS(PKV_OK, case_append(&c, &a, 3));
        ASSERT_STATUS(PKV_OK, pkv_seq_swap_out(c.cache, a.handle, NULL));
        ASSERT_STATUS(PKV_OK, pkv_seq_swap_in(c.cache, a.handle, NULL));
    }
    case_close(&c);
}

static void no_folder_or_no_room_on_the_disk_is_an_error_of_create(void)
{
    struct runtime_case c;
    struct rlimit before;
    char folder[512];
    case_init(&c);
    c.config.swap_bytes = 1 << 20;
    c.config.swap_path = "no/such/folder";
    ASSERT_REFUSED(PKV_IO, "no/such/folder: No such file or directory",
                   pkv_cache_create(&c.config, &c.cache));
    CU_ASSERT_PTR_NOT_NULL_FATAL(make_folder(folder, sizeof folder));
    c.config.swap_path = folder;
    CU_ASSERT_EQUAL(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit small = before;
    small.rlim_cur = 1 << 16;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_FSIZE, &small), 0);
    const enum pkv_status status = pkv_cache_create(&c.config, &c.cache);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    ASSERT_REFUSED(PKV_IO, "File too large", status);
    CU_ASSERT_EQUAL(rmdir(folder), 0);
    CU_ASSERT(c.memory.live == 0 && c.memory.map_bytes == 0 && c.memory.num_wrong == 0);
    CU_ASSERT_PTR_NULL(c.cache);
}

/* ---- failures ------------------------------------------------------------------------------ */

/* I2: each failure of memory leaves nothing behind; once the cache exists, swapping takes none. */
static void every_failing_memory_hook_is_undone(void)
{
    struct runtime_case c;
    long last = 0;
    for (long fail_at = 1; last == 0; fail_at++) {
        case_init(&c);
        c.config.prefix_cache = true;
        c.config.swap_bytes = 4096;
        c.memory.fail_at = fail_at;
        const enum pkv_status status = pkv_cache_create(&c.config, &c.cache);
        if (status == PKV_OK) {
            last = fail_at;
        } else {
            CU_ASSERT_EQUAL(status, PKV_NO_MEMORY);
            CU_ASSERT(c.memory.live == 0 && c.memory.num_wrong == 0);
        }
    }
    CU_ASSERT(last > 10);
    c.memory.fail_at = 0;
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 10));
    c.memory.fail_at = c.memory.calls + 1;
    ASSERT_STATUS(PKV_OK, pkv_seq_swap_out(c.cache, a.handle, NULL));
    ASSERT_STATUS(PKV_OK, pkv_seq_swap_in(c.cache, a.handle, NULL));
    c.memory.fail_at = 0;
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 3));
    case_close(&c);
}

static void bad_arguments_are_named(void)
{
    struct runtime_case c;
    struct pkv_shortage shortage = {.size = 3};
    case_init(&c);
    c.config.swap_bytes = 63;
    ASSERT_REFUSED(PKV_NEVER_FITS, "swap_bytes = 63", pkv_cache_create(&c.config, &c.cache));
    c.config.swap_bytes = SIZE_MAX;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "swap_bytes", pkv_cache_create(&c.config, &c.cache));
    c.config.swap_bytes = 640;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "cache", pkv_seq_swap_out(NULL, a.handle, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "cache", pkv_seq_swap_in(NULL, a.handle, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "size", pkv_seq_swap_out(c.cache, a.handle, &shortage));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "size", pkv_seq_swap_in(c.cache, a.handle, &shortage));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, a.handle));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_swap_out(c.cache, a.handle, NULL));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_swap_in(c.cache, a.handle, NULL));
    case_close(&c);
}

/* Broken one by one, then mended. */
static void a_check_sees_units_that_are_lost_doubled_or_of_nobody(void)
{
    struct runtime_case c;
    case_init(&c);
    c.config.swap_bytes = 640;
    case_open(&c);
    struct swap_area *area = &c.cache->swap;
    ASSERT_STATUS(PKV_OK, case_create(&c, &a, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 10));
    ASSERT_STATUS(PKV_OK, pkv_seq_swap_out(c.cache, a.handle, NULL));
    const int32_t first = area->chains[0].first;
    const int32_t second = area->units[first].next;
    area->units[second].owner = 3;
    CU_ASSERT(pkv_cache_check(c.cache) > 0);
    area->units[second].owner = 0;
    area->units[second].next = first;
    CU_ASSERT(pkv_cache_check(c.cache) > 0);
    area->units[second].next = area->first_free;
    CU_ASSERT(pkv_cache_check(c.cache) > 0);
    area->units[second].next = 2;
    CU_ASSERT_EQUAL(case_check(&c), 0);
    area->num_free--;
    CU_ASSERT(pkv_cache_check(c.cache) > 0);
    area->num_free++;
    c.cache->seqs.at[0].is_swapped = false;
    CU_ASSERT(pkv_cache_check(c.cache) > 0);
    c.cache->seqs.at[0].is_swapped = true;
    ASSERT_STATUS(PKV_OK, pkv_seq_swap_in(c.cache, a.handle, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a, 3));
    c.memory.num_logged = 0;
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(a_step_with_others_goes_on_while_a_sequence_is_copied),
    TEST(a_sequence_that_is_destroyed_during_a_copy_goes_when_that_ends),
    TEST(a_closed_cache_lets_sequences_out_and_not_in),
    TEST(a_sequence_of_the_open_step_stays),
    TEST(a_file_holds_what_is_swapped_out_and_has_no_name),
    TEST(no_folder_or_no_room_on_the_disk_is_an_error_of_create),
    TEST(every_failing_memory_hook_is_undone),
    TEST(bad_arguments_are_named),
    TEST(a_check_sees_units_that_are_lost_doubled_or_of_nobody),
    TEST_END,
};
const struct test_suite suite_runtime_swap_copy = {"runtime_swap_copy", cases};
