/* SPDX-License-Identifier: MIT */
#include "tiers/disk_counter.h"

#include <errno.h>
#include <fcntl.h>

#include "tiers/disk_number.h"

/* Neither may be the name of a counter. */
#define LOCK_NAME ".lock"
#define NEW_NAME ".new"

/* A file that cannot be read as a number is no 0: values that are void would be valid again. */
static bool read_count(const struct disk_dir *dir, int folder, const char *name, uint64_t *value)
{
    const int fd = dir->calls->openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        *value = 0;
        return true;
    }
    const bool read = fd >= 0 && disk_number_read(dir, fd, value);
    disk_dir_close(fd);
    return read;
}

static bool write_count(const struct disk_dir *dir, int folder, const char *name, uint64_t value)
{
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    const int fd = dir->calls->openat(folder, NEW_NAME, flags, dir->file_mode);
    bool written = fd >= 0 && disk_number_write(dir, fd, value) && dir->calls->fsync(fd) == 0;
    disk_dir_close(fd);
    written = written && dir->calls->renameat(folder, NEW_NAME, folder, name) == 0;
    if (!written) {
        (void)dir->calls->unlinkat(folder, NEW_NAME, 0);
    }
    return written && dir->calls->fsync(folder) == 0;
}

static bool add(const struct disk_dir *dir, int folder, const struct pkv_tier_counter *counter,
                uint64_t *value)
{
    const int lock = disk_number_lock(dir, folder, LOCK_NAME);
    const bool added = lock >= 0 && read_count(dir, folder, counter->name, value) &&
                       *value <= UINT64_MAX - counter->add &&
                       write_count(dir, folder, counter->name, *value + counter->add);
    disk_dir_close(lock);
    *value += counter->add;
    return added;
}

enum pkv_status disk_counter_add(const struct disk_dir *dir, int root,
                                 struct pkv_tier_counter *counter)
{
    uint64_t value = 0;
    bool done = false;
    const int folder = disk_dir_open_folder(dir, root, DISK_DIR_COUNTERS, counter->add > 0);
    if (folder < 0) {
        done = errno == ENOENT && counter->add == 0;
    } else {
        done = counter->add > 0 ? add(dir, folder, counter, &value)
                                : read_count(dir, folder, counter->name, &value);
    }
    disk_dir_close(folder);
    if (done) {
        counter->value = value;
    }
    return done ? PKV_OK : PKV_IO;
}
