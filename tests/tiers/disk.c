/* SPDX-License-Identifier: MIT */
#include "tiers/disk.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "support/test.h"
#include "tiers/disk_case.h"

enum { MIB = 1 << 20 };

/* As long as names may be: 95 characters. */
static const char long_name[] = "0123456789abcdefghijklmnopqrstuvwxyz.-0123456789abcdefghijklmnop"
                                "0123456789abcdefghijklmnopqrstu";

static void a_value_is_read_as_it_was_written(void)
{
    static const size_t lengths[] = {0, 1, 2, 4095, 4096, 4097, 100001, 3 * MIB + 5};
    struct disk_case disk;
    disk_case_open(&disk, 64 * MIB, NULL);
    CU_ASSERT_EQUAL(strlen(long_name), PKV_MAX_TIER_NAME);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const size_t bytes = lengths[i];
        int seed = -1;
        ASSERT_STATUS(PKV_OK, disk_case_put(&disk, long_name, bytes, (unsigned)i));
        ASSERT_STATUS(PKV_OK, disk_case_get(&disk, long_name, bytes, &seed));
        CU_ASSERT_EQUAL(seed, bytes == 0 ? 0 : (int)i);
    }
    CU_ASSERT_EQUAL(disk_case_look(&disk).num_values, 1);
    disk_case_close(&disk);
}

static void what_was_not_put_or_was_removed_is_not_found(void)
{
    struct disk_case disk;
    disk_case_open(&disk, MIB, NULL);
    ASSERT_STATUS(PKV_NOT_FOUND, disk_case_find(&disk, "a"));
    ASSERT_STATUS(PKV_NOT_FOUND, disk_case_get(&disk, "a", 10, NULL));
    ASSERT_STATUS(PKV_NOT_FOUND, disk_case_remove(&disk, "a"));
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "a", 10, 1));
    ASSERT_STATUS(PKV_OK, disk_case_find(&disk, "a"));
    ASSERT_STATUS(PKV_NOT_FOUND, disk_case_find(&disk, "b"));
    ASSERT_STATUS(PKV_OK, disk_case_remove(&disk, "a"));
    ASSERT_STATUS(PKV_NOT_FOUND, disk_case_find(&disk, "a"));
    ASSERT_STATUS(PKV_NOT_FOUND, disk_case_remove(&disk, "a"));
    disk_case_close(&disk);
}

static void values_and_counters_survive_a_restart(void)
{
    struct disk_case disk;
    int seed = -1;
    disk_case_open(&disk, MIB, NULL);
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "a", 5000, 7));
    CU_ASSERT_EQUAL(disk_case_count(&disk, "a", 3), 3);
    disk_case_restart(&disk);
    ASSERT_STATUS(PKV_OK, disk_case_get(&disk, "a", 5000, &seed));
    CU_ASSERT_EQUAL(seed, 7);
    CU_ASSERT_EQUAL(disk_case_count(&disk, "a", 0), 3);
    CU_ASSERT_EQUAL(disk_case_count(&disk, "b", 0), 0);
    disk_case_close(&disk);
}

static void a_value_of_another_length_is_corrupt(void)
{
    struct disk_case disk;
    disk_case_open(&disk, MIB, NULL);
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "a", 5000, 1));
    ASSERT_STATUS(PKV_CORRUPT, disk_case_get(&disk, "a", 4999, NULL));
    ASSERT_STATUS(PKV_CORRUPT, disk_case_get(&disk, "a", 5001, NULL));
    ASSERT_STATUS(PKV_OK, disk_case_get(&disk, "a", 5000, NULL));
    disk_case_run(&disk, "truncate -s 4999 PATH/[0-9a-f][0-9a-f]/a");
    ASSERT_STATUS(PKV_CORRUPT, disk_case_get(&disk, "a", 5000, NULL));
    ASSERT_STATUS(PKV_OK, disk_case_remove(&disk, "a"));
    ASSERT_STATUS(PKV_NOT_FOUND, disk_case_get(&disk, "a", 5000, NULL));
    disk_case_close(&disk);
}

static void counters_add_up_and_an_add_of_0_changes_nothing(void)
{
    struct disk_case disk;
    disk_case_open(&disk, MIB, NULL);
    CU_ASSERT_EQUAL(disk_case_count(&disk, "a", 0), 0);
    CU_ASSERT_EQUAL(disk_case_count(&disk, "a", 1), 1);
    CU_ASSERT_EQUAL(disk_case_count(&disk, "a", 5), 6);
    CU_ASSERT_EQUAL(disk_case_count(&disk, "b", 0), 0);
    CU_ASSERT_EQUAL(disk_case_count(&disk, "a", 0), 6);
    CU_ASSERT_EQUAL(disk_case_count(&disk, "a", UINT64_MAX - 5), UINT64_MAX);
    CU_ASSERT_EQUAL(disk_case_count(&disk, "a", 0), 6);
    CU_ASSERT_EQUAL(disk_case_count(&disk, ".lock", 1), UINT64_MAX);
    disk_case_run(&disk, "printf x | dd of=PATH/counters/a conv=notrunc status=none");
    CU_ASSERT_EQUAL(disk_case_count(&disk, "a", 0), UINT64_MAX);
    disk_case_close(&disk);
}

static void names_that_are_none_are_refused(void)
{
    static const char *const names[] = {"",   ".",  "..",  ".a", "a/b",      "../a",
                                        "/a", "A",  "a_b", "a ", "a\n",      "\xc3\xa9",
                                        "a:", "a*", "a\\", "~",  "a/../../b"};
    char too_long[PKV_MAX_TIER_NAME + 2];
    struct disk_case disk;
    disk_case_open(&disk, MIB, NULL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ASSERT_CASE(names[i], disk_case_put(&disk, names[i], 5, 1) == PKV_INVALID_ARGUMENT);
        ASSERT_CASE(names[i], disk_case_get(&disk, names[i], 5, NULL) == PKV_INVALID_ARGUMENT);
        ASSERT_CASE(names[i], disk_case_find(&disk, names[i]) == PKV_INVALID_ARGUMENT);
        ASSERT_CASE(names[i], disk_case_remove(&disk, names[i]) == PKV_INVALID_ARGUMENT);
        ASSERT_CASE(names[i], disk_case_count(&disk, names[i], 1) == UINT64_MAX);
    }
    memset(too_long, 'a', sizeof too_long - 1);
    too_long[sizeof too_long - 1] = '\0';
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, disk_case_put(&disk, too_long, 5, 1));
    CU_ASSERT_EQUAL(disk_case_look(&disk).num_values, 0);
    disk_case_close(&disk);
}

static void the_least_recently_used_are_evicted_and_the_bound_holds(void)
{
    enum { VALUES = 64, BYTES = 8192, MAX = 16 * BYTES };
    struct disk_case disk;
    char name[16];
    disk_case_open(&disk, MAX, NULL);
    for (int i = 0; i < VALUES; i++) {
        snprintf(name, sizeof name, "v-%d", i);
        ASSERT_STATUS(PKV_OK, disk_case_put(&disk, name, BYTES, (unsigned)i));
        CU_ASSERT_TRUE(disk_case_look(&disk).bytes <= MAX);
        /* A walk leaves a sixteenth free beside what it needs: one of 16. */
        CU_ASSERT_TRUE(i < 16 || disk_case_look(&disk).num_values == 15 + i % 2);
        /* Used each time, so never the oldest, over restarts too. */
        ASSERT_STATUS(PKV_OK, disk_case_get(&disk, "v-0", BYTES, NULL));
        if (i % 16 == 15) {
            disk_case_restart(&disk);
        }
    }
    for (int i = 1; i < VALUES; i++) {
        snprintf(name, sizeof name, "v-%d", i);
        const enum pkv_status status = disk_case_find(&disk, name);
        ASSERT_CASE(name, i > VALUES - 14 ? status == PKV_OK
                                          : i > VALUES - 16 || status == PKV_NOT_FOUND);
    }
    disk_case_close(&disk);
}

static void a_find_is_no_use(void)
{
    struct disk_case disk;
    disk_case_open(&disk, 2 * 4096, NULL);
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "a", 100, 1));
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "b", 100, 1));
    ASSERT_STATUS(PKV_OK, disk_case_find(&disk, "a"));
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "c", 100, 1));
    ASSERT_STATUS(PKV_NOT_FOUND, disk_case_find(&disk, "a"));
    ASSERT_STATUS(PKV_OK, disk_case_find(&disk, "c"));
    disk_case_close(&disk);
}

static void a_value_larger_than_the_tier_never_fits_and_evicts_nothing(void)
{
    struct disk_case disk;
    disk_case_open(&disk, 4 * 4096, NULL);
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "a", 100, 1));
    ASSERT_STATUS(PKV_NO_BLOCKS, disk_case_put(&disk, "b", 4 * 4096 + 1, 1));
    ASSERT_STATUS(PKV_OK, disk_case_find(&disk, "a"));
    ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "b", 4 * 4096, 1));
    ASSERT_STATUS(PKV_OK, disk_case_get(&disk, "b", 4 * 4096, NULL));
    ASSERT_STATUS(PKV_NOT_FOUND, disk_case_find(&disk, "a"));
    disk_case_close(&disk);
}

static void a_smaller_bound_holds_from_create_on(void)
{
    struct disk_case disk;
    char name[16];
    disk_case_open(&disk, MIB, NULL);
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "v-%d", i);
        ASSERT_STATUS(PKV_OK, disk_case_put(&disk, name, 4096, 1));
    }
    disk.config.max_bytes = 20 * 4096;
    disk_case_restart(&disk);
    CU_ASSERT_TRUE(disk_case_look(&disk).num_values <= 20);
    CU_ASSERT_TRUE(disk_case_look(&disk).num_values >= 18);
    ASSERT_STATUS(PKV_OK, disk_case_find(&disk, "v-39"));
    ASSERT_STATUS(PKV_NOT_FOUND, disk_case_find(&disk, "v-0"));
    disk_case_close(&disk);
}

/* By the count too, or each would be followed by a walk through the directory. */
static void replacing_and_removing_give_room(void)
{
    enum { VALUES = 8 };
    struct disk_case disk;
    char name[16];
    disk_case_open(&disk, VALUES * 4096, NULL);
    for (int i = 0; i < 5 * VALUES; i++) {
        snprintf(name, sizeof name, "v-%d", i % (VALUES - 1));
        ASSERT_STATUS(PKV_OK, disk_case_put(&disk, name, i % 3 == 0 ? 4096 : 100, 1));
        CU_ASSERT_EQUAL(disk_case_account(&disk), disk_case_look(&disk).bytes);
    }
    CU_ASSERT_EQUAL(disk_case_look(&disk).num_values, VALUES - 1);
    for (int i = 0; i < 5 * VALUES; i++) {
        ASSERT_STATUS(PKV_OK, disk_case_put(&disk, "one", 4096, 1));
        ASSERT_STATUS(PKV_OK, disk_case_remove(&disk, "one"));
        CU_ASSERT_EQUAL(disk_case_account(&disk), disk_case_look(&disk).bytes);
    }
    CU_ASSERT_EQUAL(disk_case_look(&disk).num_values, VALUES - 1);
    disk_case_close(&disk);
}

static bool add_name(void *context, const char *name)
{
    int *seen = context;
    seen[name[2] - '0']++;
    return name[2] != '9';
}

static void list_shows_every_value_once(void)
{
    struct disk_case disk;
    char name[16];
    int seen[10] = {0};
    disk_case_open(&disk, MIB, NULL);
    for (int i = 0; i < 9; i++) {
        snprintf(name, sizeof name, "v-%d", i);
        ASSERT_STATUS(PKV_OK, disk_case_put(&disk, name, 10, 1));
    }
    CU_ASSERT_EQUAL(disk_case_count(&disk, "v-9", 1), 1);
    tier_list(disk.tier, add_name, seen);
    for (int i = 0; i < 9; i++) {
        CU_ASSERT_EQUAL(seen[i], 1);
    }
    CU_ASSERT_EQUAL(seen[9], 0);
    disk_case_close(&disk);
}

static void a_path_that_is_no_directory_is_refused_in_the_systems_words(void)
{
    struct disk_case disk;
    pkv_tier *tier = NULL;
    char path[300];
    disk_case_open(&disk, MIB, NULL);
    struct pkv_disk_config config = disk.config;
    config.path = path;
    snprintf(path, sizeof path, "%s/absent", disk.path);
    ASSERT_REFUSED(PKV_IO, "No such file", pkv_tier_create_disk(&config, &tier));
    snprintf(path, sizeof path, "%s/account", disk.path);
    ASSERT_REFUSED(PKV_IO, "Not a directory", pkv_tier_create_disk(&config, &tier));
    disk_case_close(&disk);
}

static void a_config_that_cannot_be_is_refused(void)
{
    const struct pkv_disk_config good = {.size = sizeof good, .path = "/tmp", .max_bytes = MIB};
    pkv_tier *tier = NULL;
    struct pkv_disk_config config = good;
    config.path = NULL;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "config.path", pkv_tier_create_disk(&config, &tier));
    config = good;
    config.max_bytes = 4095;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "config.max_bytes", pkv_tier_create_disk(&config, &tier));
    config.max_bytes = (uint64_t)1 << 63;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "config.max_bytes", pkv_tier_create_disk(&config, &tier));
    config = good;
    config.file_mode = 0700;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "config.file_mode", pkv_tier_create_disk(&config, &tier));
    config.file_mode = 0400;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "config.file_mode", pkv_tier_create_disk(&config, &tier));
    config = good;
    config.timeout_ms = -1;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "config.timeout_ms", pkv_tier_create_disk(&config, &tier));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "config", pkv_tier_create_disk(NULL, &tier));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "tier", pkv_tier_create_disk(&good, NULL));
    CU_ASSERT_PTR_NULL(tier);
}

static const struct test_case cases[] = {
    TEST(a_value_is_read_as_it_was_written),
    TEST(what_was_not_put_or_was_removed_is_not_found),
    TEST(values_and_counters_survive_a_restart),
    TEST(a_value_of_another_length_is_corrupt),
    TEST(counters_add_up_and_an_add_of_0_changes_nothing),
    TEST(names_that_are_none_are_refused),
    TEST(the_least_recently_used_are_evicted_and_the_bound_holds),
    TEST(a_find_is_no_use),
    TEST(a_value_larger_than_the_tier_never_fits_and_evicts_nothing),
    TEST(a_smaller_bound_holds_from_create_on),
    TEST(replacing_and_removing_give_room),
    TEST(list_shows_every_value_once),
    TEST(a_path_that_is_no_directory_is_refused_in_the_systems_words),
    TEST(a_config_that_cannot_be_is_refused),
    TEST_END,
};

const struct test_suite suite_tier_disk = {"tier_disk", cases};
