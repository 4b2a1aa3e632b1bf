/* SPDX-License-Identifier: MIT
 *
 * disk_calls.h: the system calls of the disk tier whose failure it must live through, as a table,
 * so that a test can make any of them fail, or stop half-way. A tier has the real ones. */
#ifndef PKV_TIERS_DISK_CALLS_H
#define PKV_TIERS_DISK_CALLS_H

#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

struct disk_calls {
    int (*openat)(int folder, const char *name, int flags, ...);
    int (*mkdirat)(int folder, const char *name, mode_t mode);
    int (*flock)(int fd, int operation);
    int (*fstat)(int fd, struct stat *about);
    int (*fstatat)(int folder, const char *name, struct stat *about, int flags);
    int (*ftruncate)(int fd, off_t length);
    ssize_t (*preadv)(int fd, const struct iovec *vectors, int count, off_t offset);
    ssize_t (*pwritev)(int fd, const struct iovec *vectors, int count, off_t offset);
    int (*fsync)(int fd);
    int (*futimens)(int fd, const struct timespec *times);
    int (*renameat)(int from_folder, const char *from, int to_folder, const char *to);
    int (*unlinkat)(int folder, const char *name, int flags);
};

/* Those of the system. */
const struct disk_calls *disk_calls_real(void);

#endif
