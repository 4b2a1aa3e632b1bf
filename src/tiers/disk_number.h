/* SPDX-License-Identifier: MIT
 *
 * disk_number.h: small files of the disk tier that hold one number and its hash, so that one which
 * was cut off or overwritten is noticed; and files that are locks. */
#ifndef PKV_TIERS_DISK_NUMBER_H
#define PKV_TIERS_DISK_NUMBER_H

#include "tiers/disk_dir.h"

/* Opens a file of a folder, made when it is not there, and locks it against all others, threads of
 * this process too. Closing it unlocks, and so does the end of the process. -1 with errno
 * EWOULDBLOCK when another has held it for dir->timeout_ms. */
int disk_number_lock(const struct disk_dir *dir, int folder, const char *name);

/* False, and *number as it was, when the file holds no number. */
bool disk_number_read(const struct disk_dir *dir, int fd, uint64_t *number);

/* False when it could not be written; the file then holds the number before it, or none. */
bool disk_number_write(const struct disk_dir *dir, int fd, uint64_t number);

#endif
