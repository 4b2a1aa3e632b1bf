/* SPDX-License-Identifier: MIT
 *
 * ring.h: the only file that uses liburing: moves of several files at once. Ends the program when
 * something fails. */
#ifndef BENCH_DISK_IO_RING_H
#define BENCH_DISK_IO_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

struct ring_move {
    int fd;
    const struct iovec *pieces;
    int num_pieces; /* at most IOV_MAX */
    size_t bytes;
};

void ring_open(unsigned depth);
void ring_close(void);

/* Writes or reads all of them, at most the ring's depth, and waits. */
void ring_move_all(const struct ring_move *moves, int count, bool is_write);

#endif
