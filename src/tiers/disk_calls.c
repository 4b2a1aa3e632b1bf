/* SPDX-License-Identifier: MIT */
#include "tiers/disk_calls.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

static const struct disk_calls real = {
    .openat = openat,
    .mkdirat = mkdirat,
    .flock = flock,
    .fstat = fstat,
    .fstatat = fstatat,
    .ftruncate = ftruncate,
    .preadv = preadv,
    .pwritev = pwritev,
    .fsync = fsync,
    .futimens = futimens,
    .renameat = renameat,
    .unlinkat = unlinkat,
};

const struct disk_calls *disk_calls_real(void)
{
    return &real;
}
