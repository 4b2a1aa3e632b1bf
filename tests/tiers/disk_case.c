/* SPDX-License-Identifier: MIT */
#include "tiers/disk_case.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tiers/disk.h"

enum { MAX_PIECES = 64 };

/* What mkdtemp replaces. */
#define PATTERN                                                                                    \
    "XX"                                                                                           \
    "XX"                                                                                           \
    "XX"

void disk_case_open(struct disk_case *disk, uint64_t max_bytes, const struct disk_calls *calls)
{
    const char *folder = getenv("TMPDIR");
    *disk =
        (struct disk_case){.config = {.size = sizeof disk->config,
                                      .max_bytes = max_bytes,
                                      .timeout_ms = 60000}}; /* for a processor that others use */
    snprintf(disk->path, sizeof disk->path, "%s/pagedkv-disk-" PATTERN,
             folder != NULL ? folder : "/tmp");
    if (mkdtemp(disk->path) == NULL) {
        CU_FAIL_FATAL("no directory for the test");
    }
    disk->config.path = disk->path;
    ASSERT_STATUS(PKV_OK, calls != NULL ? disk_create(&disk->config, calls, &disk->tier)
                                        : pkv_tier_create_disk(&disk->config, &disk->tier));
    CU_ASSERT_PTR_NOT_NULL_FATAL(disk->tier);
}

void disk_case_restart(struct disk_case *disk)
{
    pkv_tier_destroy(disk->tier);
    disk->tier = NULL;
    ASSERT_STATUS(PKV_OK, pkv_tier_create_disk(&disk->config, &disk->tier));
    CU_ASSERT_PTR_NOT_NULL_FATAL(disk->tier);
}

void disk_case_close(struct disk_case *disk)
{
    pkv_tier_destroy(disk->tier);
    disk->tier = NULL;
    disk_case_run(disk, "rm -rf PATH");
}

void disk_case_run(const struct disk_case *disk, const char *command)
{
    char line[1024];
    const char *place = strstr(command, "PATH");
    const int before = place != NULL ? (int)(place - command) : (int)strlen(command);
    const char *quote = place != NULL ? "'" : "";
    snprintf(line, sizeof line, "%.*s%s%s%s%s", before, command, quote,
             place != NULL ? disk->path : "", quote, place != NULL ? place + 4 : "");
    CU_ASSERT_EQUAL(system(line), 0);
}

static unsigned char byte_of(unsigned seed, size_t i)
{
    return (unsigned char)(seed * 131 + i + (i >> 8) * 7);
}

/* Pieces of 0, 1, 3, 7 .. bytes, the last one with what is left. */
static int32_t cut(unsigned char *memory, size_t bytes, struct pkv_piece *pieces)
{
    int32_t count = 0;
    size_t done = 0;
    for (size_t length = 0; count < MAX_PIECES - 1 && done + length < bytes && length < 100000;
         length = length * 2 + 1) {
        pieces[count++] = (struct pkv_piece){memory + done, length};
        done += length;
    }
    pieces[count++] = (struct pkv_piece){memory + done, bytes - done};
    return count;
}

static enum pkv_status
call(const struct disk_case *disk, const char *name, unsigned char *memory, size_t bytes,
     void (*function)(const pkv_tier *tier, struct pkv_tier_item *items, int32_t num_items))
{
    struct pkv_piece pieces[MAX_PIECES];
    struct pkv_tier_item item = {.name = name, .pieces = pieces, .bytes = bytes};
    item.num_pieces = cut(memory, bytes, pieces);
    function(disk->tier, &item, 1);
    return item.status;
}

enum pkv_status disk_case_put(const struct disk_case *disk, const char *name, size_t bytes,
                              unsigned seed)
{
    unsigned char *memory = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++) {
        memory[i] = byte_of(seed, i);
    }
    const enum pkv_status status = call(disk, name, memory, bytes, tier_put);
    free(memory);
    return status;
}

enum pkv_status disk_case_get(const struct disk_case *disk, const char *name, size_t bytes,
                              int *seed)
{
    unsigned char *memory = calloc(1, bytes + 1);
    const enum pkv_status status = call(disk, name, memory, bytes, tier_get);
    for (unsigned s = 0; status == PKV_OK && seed != NULL && s < 256; s++) {
        size_t i = 0;
        while (i < bytes && memory[i] == byte_of(s, i)) {
            i++;
        }
        *seed = i == bytes ? (int)s : -1;
        if (i == bytes) {
            break;
        }
    }
    free(memory);
    return status;
}

static unsigned char nothing[1];

enum pkv_status disk_case_find(const struct disk_case *disk, const char *name)
{
    return call(disk, name, nothing, 0, tier_find);
}

enum pkv_status disk_case_remove(const struct disk_case *disk, const char *name)
{
    return call(disk, name, nothing, 0, tier_remove);
}

uint64_t disk_case_count(const struct disk_case *disk, const char *name, uint64_t add)
{
    struct pkv_tier_counter counter = {.name = name, .add = add};
    tier_count(disk->tier, &counter, 1);
    return counter.status == PKV_OK ? counter.value : UINT64_MAX;
}

uint64_t disk_case_account(const struct disk_case *disk)
{
    char path[300];
    uint64_t used = 0;
    snprintf(path, sizeof path, "%s/account", disk->path);
    FILE *file = fopen(path, "rb");
    if (file == NULL || fread(&used, sizeof used, 1, file) != 1) {
        used = 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    return used;
}

static void look_at(const char *folder, int *num_files, uint64_t *bytes)
{
    DIR *stream = opendir(folder);
    for (const struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;) {
        char path[1024];
        struct stat about;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (lstat(path, &about) == 0 && S_ISREG(about.st_mode)) {
            const uint64_t blocks = ((uint64_t)about.st_size + 4095) / 4096;
            *bytes += (blocks == 0 ? 1 : blocks) * 4096;
            ++*num_files;
        }
    }
    if (stream != NULL) {
        closedir(stream);
    }
}

struct disk_case_content disk_case_look(const struct disk_case *disk)
{
    struct disk_case_content content = {0};
    char folder[300];
    for (int i = 0; i < 256; i++) {
        snprintf(folder, sizeof folder, "%s/%02x", disk->path, (unsigned)i);
        look_at(folder, &content.num_values, &content.bytes);
    }
    snprintf(folder, sizeof folder, "%s/tmp", disk->path);
    look_at(folder, &content.num_temporary, &content.bytes);
    return content;
}
