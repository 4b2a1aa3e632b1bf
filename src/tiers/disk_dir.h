/* SPDX-License-Identifier: MIT
 *
 * disk_dir.h: the directory of a disk tier: what lies where in it, and how it is opened.
 *
 *     account          how many bytes are used; its lock is the directory's (disk_account.h)
 *     00/ .. ff/       values by name, in the folder that a hash of the name says
 *     tmp/             values that are being written, each locked by its writer
 *     counters/        counters by name, and their lock
 *
 * Nothing is kept open between calls, and nothing in memory but this struct: so a process that
 * starts again, forks, or finds the directory made anew goes on, and what another process did is
 * seen at once. Every step down is an openat that follows no symbolic link. Functions that return
 * a descriptor answer -1 and leave errno. Thread-safe; the struct is constant after create. */
#ifndef PKV_TIERS_DISK_DIR_H
#define PKV_TIERS_DISK_DIR_H

#include "pagedkv/tier.h"
#include "tiers/disk_calls.h"

/* Files take whole blocks of the file system; this is the usual one. */
#define DISK_DIR_BLOCK_BYTES 4096

#define DISK_DIR_TEMPORARY "tmp"
#define DISK_DIR_COUNTERS "counters"

struct disk_dir {
    const struct disk_calls *calls;
    char *path; /* absolute, without links */
    uint64_t max_bytes;
    int32_t timeout_ms;
    mode_t file_mode;
    mode_t folder_mode;
};

/* A name that a value or a counter may have. */
bool disk_dir_is_name(const char *name);

/* What a value counts against max_bytes: whole blocks, at least one. UINT64_MAX for one that is
 * larger than any file. */
uint64_t disk_dir_room(uint64_t bytes);

int disk_dir_open(const struct disk_dir *dir);

/* A folder in the directory; with `make`, it is made when it is not there. */
int disk_dir_open_folder(const struct disk_dir *dir, int root, const char *folder, bool make);

/* The folder of a name's value. */
int disk_dir_open_folder_of(const struct disk_dir *dir, int root, const char *name, bool make);

/* Closes and leaves errno as it was; -1 is accepted. */
void disk_dir_close(int fd);

/* Calls visit for every name in a folder, or in all folders of values, that is not one of "." and
 * "..". visit returns false to stop. False when a folder cannot be read; one that is not there is
 * empty. */
typedef bool disk_dir_visit(void *context, int folder, const char *name);
bool disk_dir_walk_folder(const struct disk_dir *dir, int root, const char *folder,
                          disk_dir_visit *visit, void *context);
bool disk_dir_walk(const struct disk_dir *dir, int root, disk_dir_visit *visit, void *context);

#endif
