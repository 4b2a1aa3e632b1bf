/* SPDX-License-Identifier: MIT
 *
 * Loading what is damaged, forged, foreign or too large: refused, with nothing changed. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/little_endian.h"
#include "pages/saved_format.h"
#include "runtime/reuse_case.h"
#include "runtime/save_case.h"

enum { TEXT = 3, LENGTH = 22 };

static struct save_bytes bytes;

/* A cache with a window, a namespace and extras, one sequence of LENGTH tokens, and its file. */
static pkv_seq open_with_file(struct runtime_case *c)
{
    const struct pkv_namespace_field fields[] = {{5, 3, "abc", 0}, {2, 0, NULL, 9}};
    const struct pkv_seq_options options = {.size = sizeof options,
                                            .tag = 77,
                                            .max_rewind = 2,
                                            .namespace_fields = fields,
                                            .num_namespace_fields = 2};
    prefix_init(c);
    struct pkv_group_config *group = case_add_group(c);
    group->sliding_window = 6;
    (void)case_add_layer(c, 1);
    save_open(c, PKV_INT8, PKV_F16);
    const pkv_seq seq = save_seq(c, &options, TEXT, LENGTH);
    ASSERT_STATUS(PKV_OK, save_to(c, seq, &bytes));
    return seq;
}

static void close_with_file(struct runtime_case *c)
{
    case_close(c);
    save_bytes_free(&bytes);
}

/* The bytes are refused, as a file and as a stream, and nothing has changed. */
static void assert_refused(struct runtime_case *c, uint64_t digest, const char *name)
{
    pkv_seq seq = {0};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    const struct pkv_shortage before = shortage;
    const long live = c->memory.live;
    ASSERT_CASE(name, save_load(c, &bytes, &seq, &shortage) != PKV_OK);
    ASSERT_CASE(name, save_load_stream(c, &bytes, &seq, &shortage) != PKV_OK);
    ASSERT_CASE(name, seq.id == 0 && memcmp(&shortage, &before, sizeof before) == 0);
    ASSERT_CASE(name, c->memory.live == live);
    ASSERT_CASE(name, prefix_digest(c) == digest);
}

/* J6: no byte of a saved file can change unnoticed: all are under a checksum. */
static void every_flipped_byte_is_refused(void)
{
    struct runtime_case c;
    (void)open_with_file(&c);
    const uint64_t digest = prefix_digest(&c);
    for (size_t i = 0; i < bytes.count; i++) {
        char name[32];
        snprintf(name, sizeof name, "byte %zu", i);
        bytes.at[i] ^= (unsigned char)(1 << i % 8);
        assert_refused(&c, digest, name);
        bytes.at[i] ^= (unsigned char)(1 << i % 8);
    }
    CU_ASSERT_EQUAL(case_check(&c), 0);
    close_with_file(&c);
}

/* J6: a truncated file is refused, and no byte behind its end is read (the reader asserts that). */
static void every_truncation_is_refused(void)
{
    struct runtime_case c;
    (void)open_with_file(&c);
    const uint64_t digest = prefix_digest(&c);
    const size_t whole = bytes.count;
    for (size_t i = 0; i < whole; i++) {
        char name[32];
        snprintf(name, sizeof name, "%zu bytes", i);
        bytes.count = i;
        assert_refused(&c, digest, name);
    }
    CU_ASSERT_EQUAL(case_check(&c), 0);
    close_with_file(&c);
}

static void bytes_behind_a_file_are_refused(void)
{
    struct runtime_case c;
    pkv_seq seq = {0};
    (void)open_with_file(&c);
    const uint64_t digest = prefix_digest(&c);
    const size_t whole = bytes.count;
    CU_ASSERT(save_write(&bytes, "12345678", 8));
    ASSERT_REFUSED(PKV_CORRUPT, "the input has", save_load(&c, &bytes, &seq, NULL));
    CU_ASSERT_EQUAL(prefix_digest(&c), digest);
    /* Behind a stream they are what comes next, and stay there. */
    ASSERT_STATUS(PKV_OK, save_load_stream(&c, &bytes, &seq, NULL));
    CU_ASSERT_EQUAL(bytes.next, whole);
    close_with_file(&c);
}

/* A file of this name in a folder of its own; the files in that folder. */
static char folder[128];

static void in_folder(const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", folder, name);
}

static int num_files(void)
{
    int count = 0;
    DIR *found = opendir(folder);
    for (struct dirent *entry = readdir(found); entry != NULL; entry = readdir(found)) {
        count += entry->d_name[0] != '.';
    }
    closedir(found);
    return count;
}

static void put_file(const char *path, const void *at, size_t count)
{
    FILE *file = fopen(path, "wb");
    CU_ASSERT_FATAL(file != NULL);
    CU_ASSERT(fwrite(at, 1, count, file) == count);
    fclose(file);
}

static size_t get_file(const char *path, unsigned char *at, size_t size)
{
    FILE *file = fopen(path, "rb");
    CU_ASSERT_FATAL(file != NULL);
    const size_t count = fread(at, 1, size, file);
    fclose(file);
    return count;
}

static void open_folder(void)
{
    snprintf(folder, sizeof folder, "%s/pagedkv-load-%d", P_tmpdir, (int)getpid());
    CU_ASSERT_EQUAL_FATAL(mkdir(folder, 0700), 0);
}

/* A file is what a stream of the same sequence is, takes the place of the one before, and nothing
 * is left beside it. */
static void a_file_is_replaced_whole(void)
{
    static unsigned char found[65536];
    struct runtime_case c;
    char path[256];
    pkv_seq loaded = {0};
    const pkv_seq seq = open_with_file(&c);
    open_folder();
    in_folder("a.pkv", path, sizeof path);
    for (int round = 0; round < 2; round++) {
        ASSERT_STATUS(PKV_OK, pkv_seq_save_file(c.cache, seq, path));
        CU_ASSERT_EQUAL(num_files(), 1);
        CU_ASSERT(get_file(path, found, sizeof found) == bytes.count &&
                  memcmp(found, bytes.at, bytes.count) == 0);
    }
    ASSERT_STATUS(PKV_OK, pkv_seq_load_file(c.cache, path, &loaded, NULL));
    CU_ASSERT_EQUAL(save_run(&c, loaded, TEXT, 3), save_run(&c, seq, TEXT, 3));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seq));
    ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_save_file(c.cache, seq, path));
    CU_ASSERT(num_files() == 1 && get_file(path, found, sizeof found) == bytes.count);
    unlink(path);
    rmdir(folder);
    close_with_file(&c);
}

/* K13: a missing, an empty and a foreign file are refused, and what was there is as it was. */
static void a_missing_empty_or_foreign_file_is_refused(void)
{
    static const char foreign[] = "GGUF, or whatever else may lie there: this is no saved sequence";
    static unsigned char found[65536];
    struct runtime_case c;
    char path[256];
    pkv_seq loaded = {0};
    (void)open_with_file(&c);
    open_folder();
    in_folder("a.pkv", path, sizeof path);
    const uint64_t digest = prefix_digest(&c);
    ASSERT_REFUSED(PKV_IO, "No such file", pkv_seq_load_file(c.cache, path, &loaded, NULL));
    ASSERT_REFUSED(PKV_IO, "regular", pkv_seq_load_file(c.cache, folder, &loaded, NULL));
    put_file(path, "", 0);
    ASSERT_REFUSED(PKV_CORRUPT, "header", pkv_seq_load_file(c.cache, path, &loaded, NULL));
    put_file(path, foreign, sizeof foreign);
    ASSERT_REFUSED(PKV_CORRUPT, "header", pkv_seq_load_file(c.cache, path, &loaded, NULL));
    CU_ASSERT_EQUAL(get_file(path, found, sizeof found), sizeof foreign);
    CU_ASSERT(loaded.id == 0 && prefix_digest(&c) == digest);
    unlink(path);
    rmdir(folder);
    close_with_file(&c);
}

static void a_folder_that_is_not_there_is_refused(void)
{
    struct runtime_case c;
    char path[256];
    const pkv_seq seq = open_with_file(&c);
    open_folder();
    in_folder("b/a.pkv", path, sizeof path);
    ASSERT_REFUSED(PKV_IO, "No such file", pkv_seq_save_file(c.cache, seq, path));
    in_folder("d", path, sizeof path);
    CU_ASSERT_EQUAL(mkdir(path, 0700), 0);
    ASSERT_REFUSED(PKV_IO, "rename", pkv_seq_save_file(c.cache, seq, path));
    CU_ASSERT_EQUAL(num_files(), 1);
    rmdir(path);
    rmdir(folder);
    CU_ASSERT_EQUAL(case_check(&c), 0);
    close_with_file(&c);
}

static const struct test_case cases[] = {
    TEST(a_file_is_replaced_whole),
    TEST(a_missing_empty_or_foreign_file_is_refused),
    TEST(a_folder_that_is_not_there_is_refused),
    TEST(every_flipped_byte_is_refused),
    TEST(every_truncation_is_refused),
    TEST(bytes_behind_a_file_are_refused),
    TEST_END,
};
const struct test_suite suite_runtime_load = {"runtime_load", cases};
