/* SPDX-License-Identifier: MIT
 *
 * A disk tier's directory in the hands of several processes and threads, of processes that are
 * killed, and of people. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/test.h"
#include "tiers/disk_case.h"

enum { NAMES = 24, MAX_BYTES = 40 * 4096, SKIPPED = 77 };

/* Each name has one length, and any seed. */
static size_t bytes_of(int name)
{
    return (size_t)name * 700 + 1;
}

static const char *name_of(int name, char *text)
{
    sprintf(text, "value-%d", name);
    return text;
}

/* False when a value is neither whole nor absent. */
static bool look_up(const struct disk_case *disk, int name)
{
    char text[24];
    int seed = -1;
    const enum pkv_status status = disk_case_get(disk, name_of(name, text), bytes_of(name), &seed);
    return status == PKV_NOT_FOUND || (status == PKV_OK && seed >= 0);
}

/* Random calls; false when one of them answers what it may not. */
static bool use(const struct disk_case *disk, uint64_t seed, int rounds)
{
    struct test_random random = {seed};
    char text[24];
    for (int i = 0; i < rounds; i++) {
        const int name = random_between(&random, 0, NAMES - 1);
        const int call = random_between(&random, 0, 9);
        enum pkv_status status = PKV_OK;
        if (call < 4) {
            status = disk_case_put(disk, name_of(name, text), bytes_of(name),
                                   (unsigned)random_between(&random, 0, 255));
        } else if (call < 8) {
            status = look_up(disk, name) ? PKV_OK : PKV_CORRUPT;
        } else if (call < 9) {
            status = disk_case_remove(disk, name_of(name, text));
        } else {
            status = disk_case_find(disk, name_of(name, text));
        }
        if (status != PKV_OK && status != PKV_NOT_FOUND) {
            fprintf(stderr, "call %d of %s: %s\n", call, text, pkv_status_name(status));
            return false;
        }
    }
    return true;
}

/* Under the directory's lock, so that what is counted is there at one moment. */
static bool bound_holds(const struct disk_case *disk)
{
    char path[300];
    snprintf(path, sizeof path, "%s/account", disk->path);
    const int fd = open(path, O_RDWR);
    const bool is_locked = fd >= 0 && flock(fd, LOCK_EX) == 0;
    const uint64_t bytes = disk_case_look(disk).bytes;
    close(fd);
    return is_locked && bytes <= disk->config.max_bytes;
}

/* A process of its own, with a tier of its own. */
static pid_t start_user(const struct disk_case *disk, uint64_t seed, int rounds)
{
    const pid_t child = fork();
    if (child == 0) {
        struct disk_case own = *disk;
        const bool made = pkv_tier_create_disk(&own.config, &own.tier) == PKV_OK;
        _exit(made && use(&own, seed, rounds) ? 0 : 1);
    }
    return child;
}

static bool ended_well(pid_t child)
{
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void processes_that_share_a_directory_see_whole_values_and_keep_the_bound(void)
{
    enum { PROCESSES = 3 };
    struct disk_case disk;
    pid_t children[PROCESSES];
    disk_case_open(&disk, MAX_BYTES, NULL);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = start_user(&disk, test_seed() + (uint64_t)i, 400);
    }
    for (int i = 0; i < 100; i++) {
        CU_ASSERT_TRUE(bound_holds(&disk));
        CU_ASSERT_TRUE(look_up(&disk, i % NAMES));
    }
    for (int i = 0; i < PROCESSES; i++) {
        CU_ASSERT_TRUE(ended_well(children[i]));
    }
    CU_ASSERT_TRUE(bound_holds(&disk));
    CU_ASSERT_EQUAL(disk_case_look(&disk).num_temporary, 0);
    disk_case_close(&disk);
}

/* H4: an entry is visible only after a completed write, whenever its writer is killed. */
static void a_writer_that_is_killed_leaves_whole_values_and_the_bound(void)
{
    struct disk_case disk;
    struct test_random random = {test_seed()};
    disk_case_open(&disk, MAX_BYTES, NULL);
    for (int i = 0; i < 40; i++) {
        const pid_t child = start_user(&disk, test_seed() + (uint64_t)i, 1000000);
        nanosleep(&(struct timespec){.tv_nsec = random_between(&random, 0, 8000000)}, NULL);
        CU_ASSERT_EQUAL(kill(child, SIGKILL), 0);
        CU_ASSERT_EQUAL(waitpid(child, NULL, 0), child);
        CU_ASSERT_TRUE(bound_holds(&disk));
        for (int name = 0; name < NAMES; name++) {
            CU_ASSERT_TRUE(look_up(&disk, name));
        }
    }
    CU_ASSERT_TRUE(use(&disk, test_seed(), 200));
    disk_case_restart(&disk);
    CU_ASSERT_EQUAL(disk_case_look(&disk).num_temporary, 0);
    CU_ASSERT_TRUE(use(&disk, test_seed(), 200));
    CU_ASSERT_TRUE(bound_holds(&disk));
    disk_case_close(&disk);
}

/* Never returns; status 0 when each count was larger than the one before it. */
static void add_and_exit(const struct disk_case *disk, int times)
{
    uint64_t last = 0;
    for (int i = 0; i < times; i++) {
        const uint64_t count = disk_case_count(disk, "epoch", 2);
        if (count <= last || count == UINT64_MAX) {
            _exit(1);
        }
        last = count;
    }
    _exit(0);
}

static void counters_of_several_processes_add_up(void)
{
    enum { PROCESSES = 4, ADDS = 10 };
    struct disk_case disk;
    pid_t children[PROCESSES];
    disk_case_open(&disk, MAX_BYTES, NULL);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            add_and_exit(&disk, ADDS);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        CU_ASSERT_TRUE(ended_well(children[i]));
    }
    CU_ASSERT_EQUAL(disk_case_count(&disk, "epoch", 0), 2 * PROCESSES * ADDS);
    disk_case_close(&disk);
}

/* Each count that a process was told is in the directory, whenever it is killed. */
static void a_count_outlives_the_process_that_is_killed_behind_it(void)
{
    struct disk_case disk;
    struct test_random random = {test_seed()};
    disk_case_open(&disk, MAX_BYTES, NULL);
    for (int i = 0; i < 10; i++) {
        int ends[2];
        uint64_t told = disk_case_count(&disk, "epoch", 0);
        CU_ASSERT_EQUAL(pipe(ends), 0);
        const pid_t child = fork();
        if (child == 0) {
            for (;;) {
                const uint64_t count = disk_case_count(&disk, "epoch", 1);
                (void)!write(ends[1], &count, sizeof count);
            }
        }
        nanosleep(&(struct timespec){.tv_nsec = random_between(&random, 0, 10000000)}, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        close(ends[1]);
        for (uint64_t count; read(ends[0], &count, sizeof count) == sizeof count;) {
            CU_ASSERT_EQUAL(count, told + 1);
            told = count;
        }
        close(ends[0]);
        const uint64_t now = disk_case_count(&disk, "epoch", 0);
        CU_ASSERT_TRUE(now == told || now == told + 1);
    }
    CU_ASSERT_NOT_EQUAL(disk_case_count(&disk, "epoch", 1), UINT64_MAX);
    disk_case_close(&disk);
}

struct user {
    const struct disk_case *disk;
    uint64_t seed;
    bool is_well;
};

static bool visit_nothing(void *context, const char *name)
{
    (void)context;
    return name != NULL;
}

static void *use_in_thread(void *argument)
{
    struct user *user = argument;
    user->is_well =
        use(user->disk, user->seed, 100) && disk_case_count(user->disk, "epoch", 1) != UINT64_MAX;
    tier_list(user->disk->tier, visit_nothing, NULL);
    return NULL;
}

static void threads_share_a_tier(void)
{
    enum { THREADS = 8 };
    struct disk_case disk;
    pthread_t threads[THREADS];
    struct user users[THREADS];
    disk_case_open(&disk, MAX_BYTES, NULL);
    for (int i = 0; i < THREADS; i++) {
        users[i] = (struct user){&disk, test_seed() + (uint64_t)i, false};
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, use_in_thread, &users[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CU_ASSERT_TRUE(users[i].is_well);
    }
    CU_ASSERT_EQUAL(disk_case_count(&disk, "epoch", 0), THREADS);
    CU_ASSERT_TRUE(bound_holds(&disk));
    disk_case_close(&disk);
}

static void what_killed_writers_left_goes_and_what_others_write_stays(void)
{
    struct disk_case disk;
    char path[300];
    disk_case_open(&disk, 8 * 4096, NULL);
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "a", 100, 1));
    disk_case_run(&disk, "cd PATH/tmp && truncate -s 9000 1-1-1 1-1-2 1-1-3");
    snprintf(path, sizeof path, "%s/tmp/1-1-2", disk.path);
    const int fd = open(path, O_RDWR);
    CU_ASSERT_EQUAL(flock(fd, LOCK_EX), 0);
    disk_case_restart(&disk);
    CU_ASSERT_EQUAL(disk_case_look(&disk).num_temporary, 1);
    /* Its three blocks count. */
    ASSERT_STATUS(PKV_IO, disk_case_put(&disk, "b", 6 * 4096, 1));
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "b", 5 * 4096, 1));
    close(fd);
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "c", 8 * 4096, 1));
    CU_ASSERT_EQUAL(disk_case_look(&disk).num_temporary, 0);
    disk_case_close(&disk);
}

static void a_symbolic_link_is_never_followed(void)
{
    struct disk_case disk;
    int seed = -1;
    disk_case_open(&disk, MAX_BYTES, NULL);
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "a", 6, 1));
    disk_case_run(&disk,
                  "cd PATH && mkdir out && printf hello1 > out/a && ln -sf ../out/a [0-9a-f]?/a");
    ASSERT_STATUS(PKV_NOT_FOUND, disk_case_find(&disk, "a"));
    ASSERT_STATUS(PKV_NOT_FOUND, disk_case_get(&disk, "a", 6, NULL));
    ASSERT_STATUS(PKV_OK, disk_case_remove(&disk, "a"));
    disk_case_run(&disk, "cd PATH && test \"$(cat out/a)\" = hello1");
    disk_case_run(&disk, "cd PATH && ln -s ../out/a $(ls -d [0-9a-f]?)/a");
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "a", 6, 2));
    ASSERT_STATUS(PKV_OK, disk_case_get(&disk, "a", 6, &seed));
    CU_ASSERT_EQUAL(seed, 2);
    disk_case_run(&disk, "cd PATH && test \"$(cat out/a)\" = hello1");
    disk_case_run(&disk,
                  "cd PATH && f=$(echo [0-9a-f]?/a) && d=${f%/a} && mv $d old && ln -s out $d");
    ASSERT_STATUS(PKV_IO, disk_case_find(&disk, "a"));
    ASSERT_STATUS(PKV_IO, disk_case_get(&disk, "a", 6, NULL));
    ASSERT_STATUS(PKV_IO, disk_case_put(&disk, "a", 6, 3));
    ASSERT_STATUS(PKV_IO, disk_case_remove(&disk, "a"));
    disk_case_run(&disk, "cd PATH && test \"$(cat out/a)\" = hello1 && ! test -L out/a");
    disk_case_run(&disk, "cd PATH && rm -r tmp && ln -s out tmp && ln -s out/x counters");
    ASSERT_STATUS(PKV_IO, disk_case_put(&disk, "b", 6, 3));
    CU_ASSERT_EQUAL(disk_case_count(&disk, "b", 1), UINT64_MAX);
    disk_case_run(&disk, "cd PATH && test \"$(ls out)\" = a");
    disk_case_close(&disk);
}

static void what_is_no_file_is_no_value(void)
{
    struct disk_case disk;
    disk_case_open(&disk, MAX_BYTES, NULL);
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "a", 6, 1));
    disk_case_run(&disk, "cd PATH && f=$(echo [0-9a-f]?/a) && rm $f && mkfifo $f");
    ASSERT_STATUS(PKV_NOT_FOUND, disk_case_find(&disk, "a"));
    ASSERT_STATUS(PKV_NOT_FOUND, disk_case_get(&disk, "a", 6, NULL));
    disk_case_run(&disk, "cd PATH && f=$(echo [0-9a-f]?/a) && rm $f && mkdir $f");
    ASSERT_STATUS(PKV_NOT_FOUND, disk_case_find(&disk, "a"));
    ASSERT_STATUS(PKV_NOT_FOUND, disk_case_get(&disk, "a", 6, NULL));
    ASSERT_STATUS(PKV_IO, disk_case_put(&disk, "a", 6, 1));
    CU_ASSERT_EQUAL(disk_case_look(&disk).num_temporary, 0);
    disk_case_close(&disk);
}

static void a_directory_that_was_removed_fails_until_it_is_there_again(void)
{
    struct disk_case disk;
    disk_case_open(&disk, MAX_BYTES, NULL);
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "a", 100, 1));
    CU_ASSERT_EQUAL(disk_case_count(&disk, "c", 1), 1);
    disk_case_run(&disk, "rm -r PATH");
    ASSERT_STATUS(PKV_IO, disk_case_put(&disk, "a", 100, 1));
    ASSERT_STATUS(PKV_IO, disk_case_get(&disk, "a", 100, NULL));
    ASSERT_STATUS(PKV_IO, disk_case_find(&disk, "a"));
    ASSERT_STATUS(PKV_IO, disk_case_remove(&disk, "a"));
    CU_ASSERT_EQUAL(disk_case_count(&disk, "c", 0), UINT64_MAX);
    disk_case_run(&disk, "mkdir PATH");
    ASSERT_STATUS(PKV_NOT_FOUND, disk_case_get(&disk, "a", 100, NULL));
    CU_ASSERT_TRUE(use(&disk, test_seed(), 300));
    CU_ASSERT_TRUE(bound_holds(&disk));
    CU_ASSERT_EQUAL(disk_case_count(&disk, "c", 1), 1);
    disk_case_close(&disk);
}

/* In a child, which has mounts of its own: 0 when all is as it should be. */
static int fill_file_system(struct disk_case *disk)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", disk->path, "tmpfs", 0, "size=1m") != 0) {
        return SKIPPED;
    }
    enum { BYTES = 100000 };
    char text[24];
    int stored = 0;
    int seed = -1;
    while (stored < 100 && disk_case_put(disk, name_of(stored, text), BYTES, 3) == PKV_OK) {
        stored++;
    }
    if (stored < 5 || stored == 100 || disk_case_find(disk, text) != PKV_NOT_FOUND ||
        disk_case_look(disk).num_temporary != 0) {
        return 1;
    }
    for (int i = 0; i < stored; i++) {
        if (disk_case_get(disk, name_of(i, text), BYTES, &seed) != PKV_OK || seed != 3) {
            return 2;
        }
    }
    return disk_case_remove(disk, name_of(0, text)) == PKV_OK &&
                   disk_case_put(disk, "again", BYTES, 4) == PKV_OK &&
                   disk_case_get(disk, "again", BYTES, &seed) == PKV_OK && seed == 4
               ? 0
               : 3;
}

static void a_file_system_that_is_full_fails_and_works_again_when_there_is_room(void)
{
    struct disk_case disk;
    int status = 0;
    disk_case_open(&disk, 64 << 20, NULL);
    const pid_t child = fork();
    if (child == 0) {
        _exit(fill_file_system(&disk));
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
        printf("skipped: a full file system, no right to mount one\n");
    } else {
        CU_ASSERT_TRUE(WIFEXITED(status));
        CU_ASSERT_EQUAL(WEXITSTATUS(status), 0);
    }
    disk_case_close(&disk);
}

static const struct test_case cases[] = {
    TEST(processes_that_share_a_directory_see_whole_values_and_keep_the_bound),
    TEST(a_writer_that_is_killed_leaves_whole_values_and_the_bound),
    TEST(counters_of_several_processes_add_up),
    TEST(a_count_outlives_the_process_that_is_killed_behind_it),
    TEST(threads_share_a_tier),
    TEST(what_killed_writers_left_goes_and_what_others_write_stays),
    TEST(a_symbolic_link_is_never_followed),
    TEST(what_is_no_file_is_no_value),
    TEST(a_directory_that_was_removed_fails_until_it_is_there_again),
    TEST(a_file_system_that_is_full_fails_and_works_again_when_there_is_room),
    TEST_END,
};

const struct test_suite suite_tier_disk_shared = {"tier_disk_shared", cases};
