/* SPDX-License-Identifier: MIT */
#include "tiers/disk_value.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "tiers/disk_account.h"
#include "tiers/disk_evict.h"
#include "tiers/disk_pieces.h"

/* A value that is being written: a file of tmp/, open and locked. */
struct temporary {
    int folder;
    int fd;
    char name[48];
    uint64_t room;
};

/* Explicit times are finer than the kernel's own, and need an owner; the rest is for files of
 * others. What fails costs a place in the order of eviction, nothing else. */
static void note_use(const struct disk_dir *dir, int fd)
{
    struct timespec times[2];
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[1] = times[0];
    if (dir->calls->futimens(fd, times) != 0) {
        (void)dir->calls->futimens(fd, NULL);
    }
}

/* Makes room, and writes down that it is taken. */
static bool reserve(const struct disk_dir *dir, int root, struct disk_account *account,
                    uint64_t room)
{
    if ((!account->is_known || account->used > dir->max_bytes - room) &&
        !disk_evict(dir, root, account, room)) {
        return false;
    }
    return disk_account_add(dir, account, room);
}

/* The file has its full length from the start, so that a walk counts all of it. */
static bool make_file(const struct disk_dir *dir, struct temporary *temporary, size_t bytes)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(temporary->name, sizeof temporary->name, "%lld-%lld-%ld", (long long)getpid(),
             (long long)now.tv_sec, now.tv_nsec);
    temporary->fd = dir->calls->openat(temporary->folder, temporary->name, flags, dir->file_mode);
    if (temporary->fd < 0) {
        return false;
    }
    if (dir->calls->flock(temporary->fd, LOCK_EX | LOCK_NB) == 0 &&
        dir->calls->ftruncate(temporary->fd, (off_t)bytes) == 0) {
        return true;
    }
    (void)dir->calls->unlinkat(temporary->folder, temporary->name, 0);
    disk_dir_close(temporary->fd);
    return false;
}

/* The name is the writer's alone: it is made under the lock of the directory, at this time. */
static bool begin_write(const struct disk_dir *dir, int root, size_t bytes,
                        struct temporary *temporary)
{
    struct disk_account account;
    bool made = false;
    temporary->folder = disk_dir_open_folder(dir, root, DISK_DIR_TEMPORARY, true);
    if (temporary->folder < 0) {
        return false;
    }
    if (disk_account_lock(dir, root, &account) && reserve(dir, root, &account, temporary->room)) {
        made = make_file(dir, temporary, bytes);
        if (!made) {
            disk_account_subtract(dir, &account, temporary->room);
        }
    }
    disk_account_unlock(&account);
    if (!made) {
        disk_dir_close(temporary->folder);
    }
    return made;
}

/* What a value counts, 0 when there is none. */
static uint64_t room_of(const struct disk_dir *dir, int folder, const char *name)
{
    struct stat about;
    const bool is_value = dir->calls->fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
                          S_ISREG(about.st_mode);
    return is_value ? disk_dir_room((uint64_t)about.st_size) : 0;
}

/* Under the lock, so that of two who replace a value each takes away what it replaced. */
static bool publish(const struct disk_dir *dir, int root, const struct temporary *temporary,
                    const char *name)
{
    struct disk_account account;
    bool published = false;
    const int folder = disk_dir_open_folder_of(dir, root, name, true);
    if (folder >= 0 && disk_account_lock(dir, root, &account)) {
        const uint64_t old = room_of(dir, folder, name);
        published = dir->calls->renameat(temporary->folder, temporary->name, folder, name) == 0;
        if (published && old > 0) {
            disk_account_subtract(dir, &account, old);
        }
        disk_account_unlock(&account);
    }
    disk_dir_close(folder);
    return published;
}

static bool remove_file(const struct disk_dir *dir, int root, int folder, const char *name)
{
    struct disk_account account;
    if (!disk_account_lock(dir, root, &account)) {
        return false;
    }
    const uint64_t room = room_of(dir, folder, name);
    const bool removed = dir->calls->unlinkat(folder, name, 0) == 0;
    if (removed && room > 0) {
        disk_account_subtract(dir, &account, room);
    }
    disk_account_unlock(&account);
    return removed;
}

/* Where the lock is not to be had the count stays too high, which the next walk sets right. */
static void discard(const struct disk_dir *dir, int root, const struct temporary *temporary)
{
    const int reason = errno;
    if (reason == EWOULDBLOCK || !remove_file(dir, root, temporary->folder, temporary->name)) {
        (void)dir->calls->unlinkat(temporary->folder, temporary->name, 0);
    }
    errno = reason;
}

enum pkv_status disk_value_put(const struct disk_dir *dir, int root,
                               const struct pkv_tier_item *item)
{
    struct temporary temporary = {.room = disk_dir_room(item->bytes)};
    if (temporary.room > dir->max_bytes) {
        return PKV_NO_BLOCKS;
    }
    if (!begin_write(dir, root, item->bytes, &temporary)) {
        return PKV_IO;
    }
    bool done = disk_pieces_write(dir, temporary.fd, item) == PKV_OK;
    if (done) {
        note_use(dir, temporary.fd);
        done = publish(dir, root, &temporary, item->name);
    }
    if (!done) {
        discard(dir, root, &temporary);
    }
    disk_dir_close(temporary.fd);
    disk_dir_close(temporary.folder);
    return done ? PKV_OK : PKV_IO;
}

/* What is no file is no value: a symbolic link, a pipe, a socket. */
static enum pkv_status status_of_open(void)
{
    const bool is_absent = errno == ENOENT || errno == ELOOP || errno == ENXIO;
    return is_absent ? PKV_NOT_FOUND : PKV_IO;
}

static enum pkv_status read_value(const struct disk_dir *dir, int fd,
                                  const struct pkv_tier_item *item)
{
    struct stat about;
    if (dir->calls->fstat(fd, &about) != 0) {
        return PKV_IO;
    }
    if (!S_ISREG(about.st_mode)) {
        return PKV_NOT_FOUND;
    }
    if ((uint64_t)about.st_size != item->bytes) {
        return PKV_CORRUPT;
    }
    const enum pkv_status status = disk_pieces_read(dir, fd, item);
    if (status == PKV_OK) {
        note_use(dir, fd);
    }
    return status;
}

enum pkv_status disk_value_get(const struct disk_dir *dir, int root,
                               const struct pkv_tier_item *item)
{
    const int folder = disk_dir_open_folder_of(dir, root, item->name, false);
    if (folder < 0) {
        return errno == ENOENT ? PKV_NOT_FOUND : PKV_IO;
    }
    const int fd =
        dir->calls->openat(folder, item->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const enum pkv_status status = fd < 0 ? status_of_open() : read_value(dir, fd, item);
    disk_dir_close(fd);
    disk_dir_close(folder);
    return status;
}

enum pkv_status disk_value_find(const struct disk_dir *dir, int root,
                                const struct pkv_tier_item *item)
{
    struct stat about;
    const int folder = disk_dir_open_folder_of(dir, root, item->name, false);
    const bool is_there =
        folder >= 0 && dir->calls->fstatat(folder, item->name, &about, AT_SYMLINK_NOFOLLOW) == 0;
    const bool is_absent = is_there ? !S_ISREG(about.st_mode) : errno == ENOENT;
    disk_dir_close(folder);
    return is_absent ? PKV_NOT_FOUND : is_there ? PKV_OK : PKV_IO;
}

enum pkv_status disk_value_remove(const struct disk_dir *dir, int root,
                                  const struct pkv_tier_item *item)
{
    const int folder = disk_dir_open_folder_of(dir, root, item->name, false);
    const bool removed = folder >= 0 && remove_file(dir, root, folder, item->name);
    const bool is_absent = !removed && errno == ENOENT;
    disk_dir_close(folder);
    return removed ? PKV_OK : is_absent ? PKV_NOT_FOUND : PKV_IO;
}
