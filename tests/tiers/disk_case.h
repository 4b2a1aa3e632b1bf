/* SPDX-License-Identifier: MIT
 *
 * disk_case.h: a directory for a disk tier, under $TMPDIR or /tmp, and values whose bytes follow
 * from their number, so that a value which is not whole shows. */
#ifndef PKV_TEST_DISK_CASE_H
#define PKV_TEST_DISK_CASE_H

#include "support/test.h"
#include "tiers/disk_calls.h"
#include "tiers/tier.h"

struct disk_case {
    char path[256];
    struct pkv_disk_config config;
    pkv_tier *tier;
};

/* Makes the directory and a tier in it; calls NULL = those of the system. */
void disk_case_open(struct disk_case *disk, uint64_t max_bytes, const struct disk_calls *calls);

/* Ends the tier and makes one in the same directory, as a process that starts again. */
void disk_case_restart(struct disk_case *disk);

/* Ends the tier and removes the directory. */
void disk_case_close(struct disk_case *disk);

/* Value `seed` of that many bytes under a name, in pieces that differ in length. */
enum pkv_status disk_case_put(const struct disk_case *disk, const char *name, size_t bytes,
                              unsigned seed);

/* PKV_OK only when the bytes are those of a value of `bytes` bytes, of whatever seed, which *seed
 * then is; -1 stands for a value that is not whole. */
enum pkv_status disk_case_get(const struct disk_case *disk, const char *name, size_t bytes,
                              int *seed);
enum pkv_status disk_case_find(const struct disk_case *disk, const char *name);
enum pkv_status disk_case_remove(const struct disk_case *disk, const char *name);

/* The count after `add`; UINT64_MAX when it failed. */
uint64_t disk_case_count(const struct disk_case *disk, const char *name, uint64_t add);

/* What a walk through the directory finds. */
struct disk_case_content {
    int num_values;
    int num_temporary;
    uint64_t bytes; /* each file in whole blocks of 4096 */
};
/* The count that the processes share, 0 when it cannot be read. */
uint64_t disk_case_account(const struct disk_case *disk);
struct disk_case_content disk_case_look(const struct disk_case *disk);

/* Runs a shell command line; PATH in it is the directory. */
void disk_case_run(const struct disk_case *disk, const char *command);

#endif
