/* SPDX-License-Identifier: MIT
 *
 * A disk tier on system calls that fail, stop half-way or are interrupted, each in turn. */
#include "tiers/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "support/test.h"
#include "tiers/disk_case.h"

enum { MAX_VECTORS = 16 };

/* What the calls do: the fail_at-th from now fails with `error` (0 = none), and all behind it when
 * it goes on; each moves at most max_moved bytes; bytes_left is what can still be written. */
static struct faults {
    long fail_at;
    bool goes_on;
    int error;
    size_t max_moved;
    size_t bytes_left;
    long calls;
    bool interrupts;
    /* What the directory counts while the pieces of a value are written is added to seen_bytes, and
     * the account is removed when it is locked, once. */
    const struct disk_case *watched;
    uint64_t seen_bytes;
    const struct disk_case *emptied;
} faults;

static const struct faults no_faults = {.max_moved = SIZE_MAX, .bytes_left = SIZE_MAX};

static bool fails(void)
{
    faults.calls++;
    errno = faults.error;
    return faults.fail_at > 0 &&
           (faults.goes_on ? faults.calls >= faults.fail_at : faults.calls == faults.fail_at);
}

static int fault_openat(int folder, const char *name, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
    va_end(list);
    return fails() ? -1 : openat(folder, name, flags, mode);
}

static int fault_mkdirat(int folder, const char *name, mode_t mode)
{
    return fails() ? -1 : mkdirat(folder, name, mode);
}

static int fault_flock(int fd, int operation)
{
    const int status = fails() ? -1 : flock(fd, operation);
    if (faults.emptied != NULL) {
        disk_case_run(faults.emptied, "rm PATH/account");
        faults.emptied = NULL;
    }
    return status;
}

static int fault_fstat(int fd, struct stat *about)
{
    return fails() ? -1 : fstat(fd, about);
}

static int fault_fstatat(int folder, const char *name, struct stat *about, int flags)
{
    return fails() ? -1 : fstatat(folder, name, about, flags);
}

static int fault_ftruncate(int fd, off_t length)
{
    return fails() ? -1 : ftruncate(fd, length);
}

/* The first vectors, of at most `bytes` bytes; their number. */
static int shorten(const struct iovec *vectors, int count, size_t bytes, struct iovec *shorter)
{
    int kept = 0;
    for (; kept < count && kept < MAX_VECTORS && bytes > 0; kept++) {
        shorter[kept] = vectors[kept];
        shorter[kept].iov_len = bytes < vectors[kept].iov_len ? bytes : vectors[kept].iov_len;
        bytes -= shorter[kept].iov_len;
    }
    return kept;
}

static bool interrupted(void)
{
    faults.interrupts = !faults.interrupts && faults.error == EINTR;
    errno = faults.error;
    return faults.interrupts;
}

static ssize_t fault_preadv(int fd, const struct iovec *vectors, int count, off_t offset)
{
    struct iovec shorter[MAX_VECTORS];
    const int kept = shorten(vectors, count, faults.max_moved, shorter);
    return fails() || interrupted() ? -1 : preadv(fd, shorter, kept, offset);
}

static ssize_t fault_pwritev(int fd, const struct iovec *vectors, int count, off_t offset)
{
    struct iovec shorter[MAX_VECTORS];
    const size_t max = faults.max_moved < faults.bytes_left ? faults.max_moved : faults.bytes_left;
    const int kept = shorten(vectors, count, max, shorter);
    if (fails() || interrupted()) {
        return -1;
    }
    if (faults.bytes_left == 0) {
        errno = ENOSPC;
        return -1;
    }
    if (faults.watched != NULL && count > 1) {
        faults.seen_bytes = disk_case_look(faults.watched).bytes;
    }
    const ssize_t moved = pwritev(fd, shorter, kept, offset);
    faults.bytes_left -= faults.bytes_left < SIZE_MAX && moved > 0 ? (size_t)moved : 0;
    return moved;
}

static int fault_fsync(int fd)
{
    return fails() ? -1 : fsync(fd);
}

static int fault_futimens(int fd, const struct timespec *times)
{
    return fails() ? -1 : futimens(fd, times);
}

static int fault_renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return fails() ? -1 : renameat(from_folder, from, to_folder, to);
}

static int fault_unlinkat(int folder, const char *name, int flags)
{
    return fails() ? -1 : unlinkat(folder, name, flags);
}

static const struct disk_calls fault_calls = {
    .openat = fault_openat,
    .mkdirat = fault_mkdirat,
    .flock = fault_flock,
    .fstat = fault_fstat,
    .fstatat = fault_fstatat,
    .ftruncate = fault_ftruncate,
    .preadv = fault_preadv,
    .pwritev = fault_pwritev,
    .fsync = fault_fsync,
    .futimens = fault_futimens,
    .renameat = fault_renameat,
    .unlinkat = fault_unlinkat,
};

static void open_case(struct disk_case *disk, uint64_t max_bytes)
{
    faults = no_faults;
    disk_case_open(disk, max_bytes, &fault_calls);
}

/* J1: a store that failed is not visible; write() fails with ENOSPC at byte k, for each k. */
static void a_write_that_fails_at_any_byte_leaves_a_miss(void)
{
    enum { BYTES = 300, ACCOUNT = 16 };
    struct disk_case disk;
    open_case(&disk, 1 << 20);
    for (size_t k = 0; k <= ACCOUNT + BYTES; k++) {
        int seed = -1;
        faults.bytes_left = k;
        const enum pkv_status status = disk_case_put(&disk, "a", BYTES, 5);
        faults = no_faults;
        CU_ASSERT_EQUAL(status, k < ACCOUNT + BYTES ? PKV_IO : PKV_OK);
        CU_ASSERT_EQUAL(disk_case_find(&disk, "a"), status == PKV_OK ? PKV_OK : PKV_NOT_FOUND);
        CU_ASSERT_EQUAL(disk_case_look(&disk).num_temporary, 0);
        ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "a", BYTES, 6));
        ASSERT_STATUS(PKV_OK, disk_case_get(&disk, "a", BYTES, &seed));
        CU_ASSERT_EQUAL(seed, 6);
        ASSERT_STATUS(PKV_OK, disk_case_remove(&disk, "a"));
    }
    disk_case_close(&disk);
}

static void a_failed_write_leaves_the_value_before_it(void)
{
    enum { BYTES = 300, ACCOUNT = 16 };
    struct disk_case disk;
    open_case(&disk, 1 << 20);
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "a", BYTES, 5));
    for (size_t k = 0; k < ACCOUNT + BYTES; k += 7) {
        int seed = -1;
        faults.bytes_left = k;
        ASSERT_STATUS(PKV_IO, disk_case_put(&disk, "a", BYTES, 6));
        faults = no_faults;
        ASSERT_STATUS(PKV_OK, disk_case_get(&disk, "a", BYTES, &seed));
        CU_ASSERT_EQUAL(seed, 5);
    }
    disk_case_close(&disk);
}

static void short_and_interrupted_moves_go_on(void)
{
    static const size_t moved[] = {1, 2, 3, 100, 4096};
    struct disk_case disk;
    open_case(&disk, 1 << 20);
    for (int i = 0; i < 10; i++) {
        const size_t bytes = moved[i / 2] < 100 ? 300 : 100000;
        int seed = -1;
        faults.max_moved = moved[i / 2];
        faults.error = i % 2 == 0 ? 0 : EINTR;
        ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "a", bytes, (unsigned)i));
        ASSERT_STATUS(PKV_OK, disk_case_get(&disk, "a", bytes, &seed));
        CU_ASSERT_EQUAL(seed, i);
        CU_ASSERT_EQUAL(disk_case_count(&disk, "c", 1), (uint64_t)i + 1);
    }
    disk_case_close(&disk);
}

static void a_value_counts_with_all_its_bytes_while_it_is_written(void)
{
    struct disk_case disk;
    open_case(&disk, 1 << 20);
    faults.watched = &disk;
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "a", 5 * 4096, 1));
    CU_ASSERT_EQUAL(faults.seen_bytes, 5 * 4096);
    CU_ASSERT_EQUAL(disk_case_account(&disk), 5 * 4096);
    disk_case_close(&disk);
}

/* A lock on a file that was removed meanwhile would exclude nobody. */
static void a_lock_is_that_of_the_file_that_others_find(void)
{
    struct disk_case disk;
    open_case(&disk, 1 << 20);
    faults.emptied = &disk;
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "a", 100, 1));
    CU_ASSERT_PTR_NULL(faults.emptied);
    CU_ASSERT_EQUAL(disk_case_account(&disk), 4096);
    disk_case_close(&disk);
}

/* What is done while a call fails; the tier holds "old" of 5000 bytes and seven more values. */
enum action { PUT, REPLACE, GET, FIND, REMOVE, COUNT, READ_COUNT, NUM_ACTIONS };

static enum pkv_status act(const struct disk_case *disk, enum action action)
{
    switch (action) {
    case PUT: return disk_case_put(disk, "new", 5000, 2);
    case REPLACE: return disk_case_put(disk, "old", 5000, 2);
    case GET: return disk_case_get(disk, "old", 5000, NULL);
    case FIND: return disk_case_find(disk, "old");
    case REMOVE: return disk_case_remove(disk, "old");
    case COUNT: return disk_case_count(disk, "c", 1) != UINT64_MAX ? PKV_OK : PKV_IO;
    case READ_COUNT: return disk_case_count(disk, "c", 0) != UINT64_MAX ? PKV_OK : PKV_IO;
    default: return PKV_IO;
    }
}

/* After a call that failed: what was there is whole or gone, and all calls succeed again. */
static void check_after(struct disk_case *disk, enum action action, enum pkv_status status,
                        uint64_t count)
{
    int seed = 1;
    const enum pkv_status got = disk_case_get(disk, "old", 5000, &seed);
    CU_ASSERT_TRUE(status == PKV_OK || status == PKV_IO || status == PKV_CORRUPT);
    CU_ASSERT_TRUE(got == PKV_OK || (action == REMOVE && got == PKV_NOT_FOUND));
    CU_ASSERT_TRUE(seed == 1 || (action == REPLACE && seed == 2));
    CU_ASSERT_TRUE(action != REPLACE || status != PKV_OK || seed == 2);
    seed = 2;
    const enum pkv_status found = disk_case_get(disk, "new", 5000, &seed);
    CU_ASSERT_TRUE(found == PKV_NOT_FOUND || (action == PUT && found == PKV_OK && seed == 2));
    CU_ASSERT_TRUE(action != PUT || status != PKV_OK || found == PKV_OK);
    const uint64_t after = disk_case_count(disk, "c", 0);
    CU_ASSERT_TRUE(after == count || (action == COUNT && after == count + 1));
    CU_ASSERT_TRUE(disk_case_look(disk).bytes <= disk->config.max_bytes);
    ASSERT_STATUS(PKV_OK, disk_case_put(disk, "old", 5000, 1));
    (void)disk_case_remove(disk, "new");
}

static void fill(const struct disk_case *disk, int num_values)
{
    char name[16];
    for (int i = 0; i < num_values; i++) {
        snprintf(name, sizeof name, "v-%d", i);
        ASSERT_STATUS(PKV_OK, disk_case_put(disk, name, 4096, 1));
    }
    ASSERT_STATUS(PKV_OK, disk_case_put(disk, "old", 5000, 1));
}

/* Every call of an action fails in turn, alone or with all behind it. */
static void try_action(enum action action, int error, bool goes_on)
{
    struct disk_case disk;
    open_case(&disk, 11 * 4096);
    fill(&disk, 9);
    bool was_reached = true;
    for (long k = 1; was_reached; k++) {
        fill(&disk, 3);
        const uint64_t count = disk_case_count(&disk, "c", 0);
        faults = no_faults;
        faults.fail_at = k;
        faults.goes_on = goes_on;
        faults.error = error;
        const enum pkv_status status = act(&disk, action);
        was_reached = faults.calls >= k;
        faults = no_faults;
        check_after(&disk, action, status, count);
    }
    disk_case_restart(&disk);
    CU_ASSERT_EQUAL(disk_case_look(&disk).num_temporary, 0);
    disk_case_close(&disk);
}

static void whichever_system_call_fails_nothing_is_lost_and_the_bound_holds(void)
{
    static const int errors[] = {ENOSPC, EIO, EACCES};
    for (int action = 0; action < NUM_ACTIONS; action++) {
        try_action((enum action)action, errors[action % 3], false);
        try_action((enum action)action, errors[(action + 1) % 3], true);
    }
}

static void create_refuses_whichever_system_call_fails(void)
{
    struct disk_case disk;
    open_case(&disk, 11 * 4096);
    fill(&disk, 3);
    disk_case_run(&disk, "echo left > PATH/tmp/1-1-1");
    long num_refused = 0;
    bool was_reached = true;
    for (long k = 1; was_reached; k++) {
        pkv_tier *tier = NULL;
        faults.fail_at = k;
        faults.error = EACCES;
        faults.calls = 0;
        const enum pkv_status status = disk_create(&disk.config, &fault_calls, &tier);
        was_reached = faults.calls >= k;
        faults = no_faults;
        CU_ASSERT_TRUE(status == PKV_OK || status == PKV_IO);
        if (status == PKV_IO) {
            num_refused++;
            CU_ASSERT_PTR_NOT_NULL(strstr(pkv_last_error(), disk.path));
            CU_ASSERT_PTR_NOT_NULL(strstr(pkv_last_error(), "denied"));
        }
        pkv_tier_destroy(tier);
    }
    CU_ASSERT_TRUE(num_refused > 250);
    disk_case_close(&disk);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A process that holds the lock and does not go on, as one that was stopped. */
static void a_lock_that_is_never_released_is_waited_for_once(void)
{
    enum { ITEMS = 64 };
    struct disk_case disk;
    char path[300];
    const struct pkv_piece piece = {path, 100};
    struct pkv_tier_item items[ITEMS];
    char names[ITEMS][24];
    open_case(&disk, 1 << 20);
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "a", 100, 1));
    disk.config.timeout_ms = 200;
    disk_case_restart(&disk);
    snprintf(path, sizeof path, "%s/account", disk.path);
    const int fd = open(path, O_RDWR);
    CU_ASSERT_EQUAL(flock(fd, LOCK_EX), 0);
    for (int i = 0; i < ITEMS; i++) {
        snprintf(names[i], sizeof names[i], "i-%d", i);
        items[i] = (struct pkv_tier_item){
            .name = names[i], .pieces = &piece, .num_pieces = 1, .bytes = 100};
    }
    const double begin = seconds();
    tier_put(disk.tier, items, ITEMS);
    for (int i = 0; i < ITEMS; i++) {
        ASSERT_STATUS(PKV_IO, items[i].status);
    }
    ASSERT_STATUS(PKV_IO, disk_case_remove(&disk, "a"));
    CU_ASSERT_TRUE(seconds() - begin < ITEMS * 0.2 - 2);
    ASSERT_STATUS(PKV_OK, disk_case_get(&disk, "a", 100, NULL));
    ASSERT_STATUS(PKV_OK, disk_case_find(&disk, "a"));
    pkv_tier *tier = NULL;
    ASSERT_REFUSED(PKV_IO, "config.path", pkv_tier_create_disk(&disk.config, &tier));
    close(fd);
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "b", 100, 1));
    disk_case_close(&disk);
}

static const struct test_case cases[] = {
    TEST(a_write_that_fails_at_any_byte_leaves_a_miss),
    TEST(a_failed_write_leaves_the_value_before_it),
    TEST(short_and_interrupted_moves_go_on),
    TEST(a_value_counts_with_all_its_bytes_while_it_is_written),
    TEST(a_lock_is_that_of_the_file_that_others_find),
    TEST(whichever_system_call_fails_nothing_is_lost_and_the_bound_holds),
    TEST(create_refuses_whichever_system_call_fails),
    TEST(a_lock_that_is_never_released_is_waited_for_once),
    TEST_END,
};

const struct test_suite suite_tier_disk_faults = {"tier_disk_faults", cases};
