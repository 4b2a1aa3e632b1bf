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

/* A prefix cache with a full group and one of this window. */
static void open_windowed(struct runtime_case *c, int32_t window, int64_t kept_prefix)
{
    prefix_init(c);
    c->groups[0].num_blocks = 40;
    struct pkv_group_config *group = case_add_group(c);
    group->sliding_window = window;
    group->kept_prefix = kept_prefix;
    (void)case_add_layer(c, 1);
    save_open(c, PKV_F32, PKV_F16);
}

/* What an admission of the first n tokens of TEXT and one more finds. */
static int32_t hit_of(struct runtime_case *c, const struct pkv_seq_options *options, int32_t n)
{
    int32_t ids[CASE_MAX_LENGTH];
    struct pkv_admission admission = {.size = sizeof admission};
    pkv_seq seq = {0};
    save_ids(TEXT, n + 1, ids);
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c->cache, options, &seq));
    ASSERT_STATUS(PKV_OK,
                  pkv_seq_admit(c->cache, seq, PROMPT(ids, n + 1), 0, n + 1, &admission, NULL));
    const int32_t length = case_length(c, seq);
    CU_ASSERT_EQUAL(length, admission.num_cached);
    if (length > 0) {
        (void)save_run(c, seq, TEXT, 3);
    }
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c->cache, seq));
    return admission.num_cached;
}

/* One length, window and rewind: from one cache to an empty one. */
static void check_hit(int32_t length, int32_t window, int32_t max_rewind)
{
    struct runtime_case c, other;
    pkv_seq loaded = {0};
    char name[64];
    const struct pkv_seq_options options = {.size = sizeof options, .max_rewind = max_rewind};
    open_windowed(&c, window, length % 3);
    open_windowed(&other, window, length % 3);
    const pkv_seq seq = save_seq(&c, &options, TEXT, length);
    const int32_t taken = case_taken(&c, 1);
    ASSERT_STATUS(PKV_OK, save_to(&c, seq, &bytes));
    CU_ASSERT_EQUAL(case_taken(&c, 1), taken);
    ASSERT_STATUS(PKV_OK, save_load(&other, &bytes, &loaded, NULL));
    const int32_t published = length > max_rewind ? length - max_rewind : 0;
    snprintf(name, sizeof name, "%d tokens, window %d, rewind %d", (int)length, (int)window,
             (int)max_rewind);
    ASSERT_CASE(name, hit_of(&other, NULL, length) == published / 4 * 4);
    CU_ASSERT_EQUAL(save_run(&c, seq, TEXT, 5), save_run(&other, loaded, TEXT, 5));
    case_close(&other);
    case_close(&c);
}

/* K13: after a load, a prompt of the same tokens and one more hits all of its whole blocks, in
 * groups with a window too: what a hit there needs is in the file. */
static void what_was_loaded_is_hit_to_its_last_whole_block(void)
{
    static const int32_t windows[] = {1, 2, 3, 4, 5, 8, 11};
    for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++) {
        for (int32_t length = 1; length <= 27; length++) {
            check_hit(length, windows[w], length % 7 == 0 ? 5 : 0);
        }
    }
    save_bytes_free(&bytes);
}

static const struct test_case cases[] = {
    TEST(what_was_loaded_is_hit_to_its_last_whole_block),
    TEST(a_file_is_replaced_whole),
    TEST(a_missing_empty_or_foreign_file_is_refused),
    TEST(a_folder_that_is_not_there_is_refused),
    TEST(every_flipped_byte_is_refused),
    TEST(every_truncation_is_refused),
    TEST(bytes_behind_a_file_are_refused),
    TEST_END,
};
const struct test_suite suite_runtime_load = {"runtime_load", cases};
