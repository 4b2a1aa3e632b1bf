/* SPDX-License-Identifier: MIT
 *
 * utf8.h: well-formed UTF-8, as table 3-7 of the Unicode Standard has it. */
#ifndef SERVER_UTF8_H
#define SERVER_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What stands at the beginning of num_bytes >= 1 bytes. */
enum utf8_kind {
    UTF8_WHOLE,      /* a character of *length bytes */
    UTF8_INCOMPLETE, /* *length = num_bytes bytes that a character may begin with */
    UTF8_WRONG       /* *length bytes that no character begins with, to be replaced as one */
};
enum utf8_kind utf8_next(const char *bytes, size_t num_bytes, size_t *length);

/* The code point of a whole character of that length. */
uint32_t utf8_code(const char *bytes, size_t length);

/* True when the bytes are whole characters alone. */
bool utf8_is_valid(const char *bytes, size_t num_bytes);

#endif
