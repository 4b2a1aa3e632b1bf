/* SPDX-License-Identifier: MIT */
#include "tiers/disk_number.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>

#include "base/hash.h"
#include "tiers/disk_pieces.h"

/* In the byte order of the machine: a directory is not shared by machines. */
struct content {
    uint64_t number;
    uint64_t hash;
};

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Locks are held for some microseconds, or for a walk through the directory. */
static bool wait_for_lock(const struct disk_dir *dir, int fd, int64_t deadline_ms)
{
    long pause_ns = 50000;
    while (dir->calls->flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || now_ms() >= deadline_ms) {
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
        pause_ns += pause_ns < 2000000 ? pause_ns / 2 : 0;
    }
    return true;
}

int disk_number_lock(const struct disk_dir *dir, int folder, const char *name)
{
    const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    const int64_t deadline_ms = now_ms() + dir->timeout_ms;
    for (;;) {
        struct stat about;
        const int fd = dir->calls->openat(folder, name, flags, dir->file_mode);
        if (fd < 0) {
            return -1;
        }
        if (!wait_for_lock(dir, fd, deadline_ms) || dir->calls->fstat(fd, &about) != 0) {
            disk_dir_close(fd);
            return -1;
        }
        /* The directory was emptied meanwhile: a lock on a removed file excludes nobody. */
        if (about.st_nlink > 0) {
            return fd;
        }
        disk_dir_close(fd);
    }
}

bool disk_number_read(const struct disk_dir *dir, int fd, uint64_t *number)
{
    struct content content = {0};
    const struct pkv_piece piece = {&content, sizeof content};
    const struct pkv_tier_item item = {.pieces = &piece, .num_pieces = 1};
    if (disk_pieces_read(dir, fd, &item) != PKV_OK ||
        content.hash != hash_64(&content.number, sizeof content.number)) {
        return false;
    }
    *number = content.number;
    return true;
}

bool disk_number_write(const struct disk_dir *dir, int fd, uint64_t number)
{
    struct content content = {number, hash_64(&number, sizeof number)};
    const struct pkv_piece piece = {&content, sizeof content};
    const struct pkv_tier_item item = {.pieces = &piece, .num_pieces = 1};
    return disk_pieces_write(dir, fd, &item) == PKV_OK;
}
