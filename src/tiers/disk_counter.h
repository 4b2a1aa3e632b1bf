/* SPDX-License-Identifier: MIT
 *
 * disk_counter.h: one counter of a disk tier: a file of counters/ that holds a number. Values are
 * void by it, so, unlike they, it is on the disk before a call that has added to it returns: a new
 * file is written, synced and renamed, under a lock of the counters' own. */
#ifndef PKV_TIERS_DISK_COUNTER_H
#define PKV_TIERS_DISK_COUNTER_H

#include "tiers/disk_dir.h"

/* Adds counter->add and answers the count in counter->value. PKV_OK; PKV_IO, and value as it was.
 * The name has been checked. */
enum pkv_status disk_counter_add(const struct disk_dir *dir, int root,
                                 struct pkv_tier_counter *counter);

#endif
