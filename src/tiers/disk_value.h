/* SPDX-License-Identifier: MIT
 *
 * disk_value.h: one value of a disk tier: a file of its bytes and nothing else, written from and
 * read into the caller's pieces by pwritev and preadv (docs/performance.md has what was measured
 * beside them). A write goes to a file of tmp/, which is then renamed: who opens a value has all of
 * it, even when it is replaced or evicted meanwhile.
 *
 * root is the open directory, names have been checked. PKV_IO with errno EWOULDBLOCK says that
 * another process has held the lock for the whole time-out. Thread-safe. */
#ifndef PKV_TIERS_DISK_VALUE_H
#define PKV_TIERS_DISK_VALUE_H

#include "tiers/disk_dir.h"

/* PKV_OK, PKV_IO, or PKV_NO_BLOCKS for one larger than max_bytes. */
enum pkv_status disk_value_put(const struct disk_dir *dir, int root,
                               const struct pkv_tier_item *item);

/* PKV_OK, PKV_NOT_FOUND, PKV_CORRUPT, PKV_IO. */
enum pkv_status disk_value_get(const struct disk_dir *dir, int root,
                               const struct pkv_tier_item *item);

/* PKV_OK, PKV_NOT_FOUND, PKV_IO. */
enum pkv_status disk_value_find(const struct disk_dir *dir, int root,
                                const struct pkv_tier_item *item);
enum pkv_status disk_value_remove(const struct disk_dir *dir, int root,
                                  const struct pkv_tier_item *item);

#endif
