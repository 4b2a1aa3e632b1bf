/* SPDX-License-Identifier: MIT
 *
 * disk_evict.h: making room in a disk tier's directory. The last use of a value is the time of
 * change of its file, so that the order survives restarts and is one for all processes.
 *
 * Two walks through the directory, with 16 bytes of memory a file: the first finds how old a value
 * must be to go, the second removes those that are so old still. Each time a sixteenth of max_bytes
 * is freed beyond what is needed, so that walks are rare. */
#ifndef PKV_TIERS_DISK_EVICT_H
#define PKV_TIERS_DISK_EVICT_H

#include "tiers/disk_account.h"

/* Removes what killed processes left in tmp/, counts the rest, and removes the least recently
 * used values until `room` more bytes fit. The account is locked. False, with errno, when the
 * directory cannot be read, there is no memory, or what others are writing leaves no room. */
bool disk_evict(const struct disk_dir *dir, int root, struct disk_account *account, uint64_t room);

#endif
