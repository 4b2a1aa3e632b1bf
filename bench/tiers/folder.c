/* SPDX-License-Identifier: MIT */
#define _XOPEN_SOURCE 700 /* nftw */
#include "folder.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "measure.h"

enum { MAX_OPEN = 16 };

void folder_make(char *path)
{
    const char *temporary = getenv("TMPDIR");
    snprintf(path, FOLDER_BYTES, "%s/pagedkv-bench-XXXXXX",
             temporary != NULL ? temporary : P_tmpdir);
    if (mkdtemp(path) == NULL) {
        measure_fail("%s: no folder can be made", path);
    }
}

void folder_make_at(const char *path)
{
    if (mkdir(path, S_IRWXU) != 0) {
        measure_fail("%s: no folder can be made", path);
    }
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about, (void)kind, (void)place;
    return remove(path);
}

void folder_remove(const char *path)
{
    (void)nftw(path, remove_one, MAX_OPEN, FTW_DEPTH | FTW_PHYS);
}

static int cool_one(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about, (void)place;
    const int file = kind == FTW_F ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        (void)fdatasync(file);
        (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        close(file);
    }
    return 0;
}

void folder_cool(const char *path)
{
    (void)nftw(path, cool_one, MAX_OPEN, FTW_PHYS);
}
