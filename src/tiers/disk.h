/* SPDX-License-Identifier: MIT
 *
 * disk.h: making a disk tier on other system calls than the real ones. The parts, from the bottom:
 * disk_calls; disk_dir (what lies where); disk_pieces (moving bytes); disk_number (files that hold
 * a number, locks); disk_account (the count of bytes); disk_evict; disk_value; disk_counter. */
#ifndef PKV_TIERS_DISK_H
#define PKV_TIERS_DISK_H

#include "pagedkv/tier.h"
#include "tiers/disk_calls.h"

/* As pkv_tier_create_disk; calls must outlive the tier. */
enum pkv_status disk_create(const struct pkv_disk_config *config, const struct disk_calls *calls,
                            pkv_tier **tier);

#endif
