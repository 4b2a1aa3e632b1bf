/* SPDX-License-Identifier: MIT */
#include "disk_io/ring.h"

#include <liburing.h>
#include <string.h>

#include "measure.h"

static struct io_uring ring;

void ring_open(unsigned depth)
{
    const int status = io_uring_queue_init(depth, &ring, 0);
    if (status != 0) {
        measure_fail("io_uring_queue_init: %s", strerror(-status));
    }
}

void ring_close(void)
{
    io_uring_queue_exit(&ring);
}

void ring_move_all(const struct ring_move *moves, int count, bool is_write)
{
    for (int i = 0; i < count; i++) {
        struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
        const unsigned pieces = (unsigned)moves[i].num_pieces;
        if (is_write) {
            io_uring_prep_writev(entry, moves[i].fd, moves[i].pieces, pieces, 0);
        } else {
            io_uring_prep_readv(entry, moves[i].fd, moves[i].pieces, pieces, 0);
        }
        entry->user_data = (unsigned long long)i;
    }
    io_uring_submit_and_wait(&ring, (unsigned)count);
    for (int i = 0; i < count; i++) {
        struct io_uring_cqe *done = NULL;
        if (io_uring_wait_cqe(&ring, &done) != 0) {
            measure_fail("io_uring_wait_cqe");
        }
        if (done->res != (int)moves[done->user_data].bytes) {
            measure_fail("io_uring moved %d bytes: %s", done->res,
                         done->res < 0 ? strerror(-done->res) : "too few");
        }
        io_uring_cqe_seen(&ring, done);
    }
}
