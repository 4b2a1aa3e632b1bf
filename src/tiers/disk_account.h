/* SPDX-License-Identifier: MIT
 *
 * disk_account.h: the lock of a disk tier's directory, and the count of its bytes, which all
 * processes share. What keeps the bound at every moment, whichever process is killed:
 *
 *     sum of disk_dir_room(length) of the files in 00/ .. ff/ and tmp/ <= used <= max_bytes
 *
 * because `used` grows, and is written down, before a file is made at its full length, and shrinks
 * after one was removed, both under the lock. A process that is killed in between leaves `used` too
 * high, which the next walk through the directory sets right (disk_evict.h). A walk is also made
 * when the count cannot be read, and at create, since after a loss of power it may be an old one.
 */
#ifndef PKV_TIERS_DISK_ACCOUNT_H
#define PKV_TIERS_DISK_ACCOUNT_H

#include "tiers/disk_dir.h"

/* Lives from lock to unlock; fd -1 when the lock was not to be had. */
struct disk_account {
    int fd;
    bool is_known;
    uint64_t used; /* when it is known */
};

/* False, with errno, within dir->timeout_ms. */
bool disk_account_lock(const struct disk_dir *dir, int root, struct disk_account *account);
void disk_account_unlock(struct disk_account *account);

/* Adds room for a file that is to be made; false when that could not be written down. */
bool disk_account_add(const struct disk_dir *dir, struct disk_account *account, uint64_t room);

/* Takes away that of a file which was removed. */
void disk_account_subtract(const struct disk_dir *dir, struct disk_account *account, uint64_t room);

/* Sets what a walk has found. */
bool disk_account_set(const struct disk_dir *dir, struct disk_account *account, uint64_t used);

#endif
