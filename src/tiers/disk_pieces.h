/* SPDX-License-Identifier: MIT
 *
 * disk_pieces.h: moving the pieces of a value to or from a file. A system call takes a number of
 * pieces, and may move less than all of their bytes: the next goes on where it ended. */
#ifndef PKV_TIERS_DISK_PIECES_H
#define PKV_TIERS_DISK_PIECES_H

#include "tiers/disk_dir.h"

/* PKV_OK, PKV_IO. */
enum pkv_status disk_pieces_write(const struct disk_dir *dir, int fd,
                                  const struct pkv_tier_item *item);

/* PKV_OK, PKV_CORRUPT when the file ends too early, PKV_IO. */
enum pkv_status disk_pieces_read(const struct disk_dir *dir, int fd,
                                 const struct pkv_tier_item *item);

#endif
