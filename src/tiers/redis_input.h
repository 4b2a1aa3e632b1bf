/* SPDX-License-Identifier: MIT
 *
 * redis_input.h: a reply whose text is a value of known length goes from the socket to where it
 * belongs. Everything else hiredis reads, which holds a text until it is complete. */
#ifndef PKV_TIERS_REDIS_INPUT_H
#define PKV_TIERS_REDIS_INPUT_H

#include <stdbool.h>
#include <sys/uio.h>

#include "pagedkv/base.h"

/* Where a value belongs: pieces [num_pieces], `bytes` together. */
struct redis_input_place {
    const struct pkv_piece *pieces;
    int32_t num_pieces;
    size_t bytes;
};

/* A value that is being received; `got` counts in the piece, then in the tail. */
struct redis_input {
    struct redis_input_place place;
    bool is_open;
    int32_t piece;
    size_t got;
    char tail[2];
};

/* Do these bytes, which a reply begins with, say that its text is as long as the place? Then the
 * input is open. Returns the bytes before the text, 0 when they do not. */
size_t redis_input_begin(struct redis_input *input, const struct redis_input_place *place,
                         const char *bytes, size_t length);

/* Takes what has come of it, at most all that is missing; returns how many bytes. */
size_t redis_input_take(struct redis_input *input, const char *bytes, size_t length);

/* Where the next bytes go, in at most max_vectors parts; returns how many. */
int redis_input_vectors(struct redis_input *input, struct iovec *vectors, int max_vectors);

/* So many bytes are there. */
void redis_input_advance(struct redis_input *input, size_t bytes);

/* Is it all there? Then it is closed; *is_right: it ended as a reply ends. */
bool redis_input_end(struct redis_input *input, bool *is_right);

#endif
