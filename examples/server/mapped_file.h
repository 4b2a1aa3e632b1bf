/* SPDX-License-Identifier: MIT
 *
 * mapped_file.h: a file as read-only memory. It must not shrink while it is mapped: reading behind
 * its end would be a bus error. */
#ifndef SERVER_MAPPED_FILE_H
#define SERVER_MAPPED_FILE_H

#include <stdbool.h>
#include <stddef.h>

struct mapped_file {
    const unsigned char *bytes;
    size_t num_bytes;
};

/* Maps a regular file that is not empty. Complains when it fails. */
bool mapped_file_open(const char *path, struct mapped_file *file);

/* A zeroed one is accepted. */
void mapped_file_close(struct mapped_file *file);

#endif
