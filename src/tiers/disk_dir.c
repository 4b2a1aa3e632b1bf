/* SPDX-License-Identifier: MIT */
#include "tiers/disk_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"

enum { NUM_FOLDERS = 256, FOLDER_NAME_BYTES = 3 };

bool disk_dir_is_name(const char *name)
{
    const size_t length = strnlen(name, PKV_MAX_TIER_NAME + 1);
    const size_t allowed = strspn(name, "0123456789abcdefghijklmnopqrstuvwxyz.-");
    return length > 0 && length <= PKV_MAX_TIER_NAME && allowed == length && name[0] != '.';
}

uint64_t disk_dir_room(uint64_t bytes)
{
    const uint64_t blocks = bytes / DISK_DIR_BLOCK_BYTES + (bytes % DISK_DIR_BLOCK_BYTES != 0);
    return bytes > INT64_MAX ? UINT64_MAX : (blocks + (blocks == 0)) * DISK_DIR_BLOCK_BYTES;
}

void disk_dir_close(int fd)
{
    const int reason = errno;
    if (fd >= 0) {
        close(fd);
    }
    errno = reason;
}

int disk_dir_open(const struct disk_dir *dir)
{
    return dir->calls->openat(AT_FDCWD, dir->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int disk_dir_open_folder(const struct disk_dir *dir, int root, const char *folder, bool make)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    const int fd = dir->calls->openat(root, folder, flags);
    if (fd >= 0 || errno != ENOENT || !make) {
        return fd;
    }
    if (dir->calls->mkdirat(root, folder, dir->folder_mode) != 0 && errno != EEXIST) {
        return -1;
    }
    return dir->calls->openat(root, folder, flags);
}

/* A hash and not the first characters: names may all begin alike. */
static void folder_name(unsigned folder, char *text)
{
    static const char digits[] = "0123456789abcdef";
    text[0] = digits[folder / 16 % 16];
    text[1] = digits[folder % 16];
    text[2] = '\0';
}

int disk_dir_open_folder_of(const struct disk_dir *dir, int root, const char *name, bool make)
{
    char folder[FOLDER_NAME_BYTES];
    folder_name((unsigned)(hash_64(name, strlen(name)) % NUM_FOLDERS), folder);
    return disk_dir_open_folder(dir, root, folder, make);
}

/* Goes through an open folder, which it closes. *go_on becomes false when visit has stopped. */
static bool walk_open(int folder, disk_dir_visit *visit, void *context, bool *go_on)
{
    DIR *stream = fdopendir(folder);
    if (stream == NULL) {
        disk_dir_close(folder);
        return false;
    }
    errno = 0;
    for (const struct dirent *entry; *go_on && (entry = readdir(stream)) != NULL; errno = 0) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            *go_on = visit(context, folder, entry->d_name);
        }
    }
    const int reason = errno;
    closedir(stream);
    errno = reason;
    return !*go_on || reason == 0;
}

static bool walk(const struct disk_dir *dir, int root, const char *name, disk_dir_visit *visit,
                 void *context, bool *go_on)
{
    const int folder = disk_dir_open_folder(dir, root, name, false);
    return folder < 0 ? errno == ENOENT : walk_open(folder, visit, context, go_on);
}

bool disk_dir_walk_folder(const struct disk_dir *dir, int root, const char *folder,
                          disk_dir_visit *visit, void *context)
{
    bool go_on = true;
    return walk(dir, root, folder, visit, context, &go_on);
}

bool disk_dir_walk(const struct disk_dir *dir, int root, disk_dir_visit *visit, void *context)
{
    bool go_on = true;
    bool read = true;
    for (unsigned i = 0; i < NUM_FOLDERS && read && go_on; i++) {
        char folder[FOLDER_NAME_BYTES];
        folder_name(i, folder);
        read = walk(dir, root, folder, visit, context, &go_on);
    }
    return read;
}
