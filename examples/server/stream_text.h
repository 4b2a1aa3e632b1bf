/* SPDX-License-Identifier: MIT
 *
 * stream_text.h: the bytes of a choice's tokens on their way to the client. Bytes are held back
 * while a character or a stop text may still be completed by the next token; what goes out is whole
 * characters of valid UTF-8, with U+FFFD where the model made none. A stop text itself never goes
 * out, nor anything behind it. */
#ifndef SERVER_STREAM_TEXT_H
#define SERVER_STREAM_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct stream_text {
    const char *const *stops; /* [num_stops], each at least one byte */
    int num_stops;
    char *held; /* [num_held], not out yet */
    size_t num_held, capacity;
    bool stopped; /* a stop text was found: nothing more goes out */
};

/* Adds a token's bytes, and gives in *text, to be freed by the caller, what is certain now: NULL
 * and 0 bytes when that is nothing. False when memory is short. */
bool stream_text_add(struct stream_text *stream, const char *bytes, size_t num_bytes, char **text,
                     size_t *num_text);

/* No more tokens will come: gives the rest. */
bool stream_text_end(struct stream_text *stream, char **text, size_t *num_text);

void stream_text_free(struct stream_text *stream);

#endif
