/* SPDX-License-Identifier: MIT
 *
 * unicode_kind.h: what the patterns of byte-level tokenizers tell apart: letters (\p{L}), numbers
 * (\p{N}), white space (\s) and all the rest. */
#ifndef SERVER_UNICODE_KIND_H
#define SERVER_UNICODE_KIND_H

#include <stdint.h>

enum unicode_kind { UNICODE_OTHER, UNICODE_LETTER, UNICODE_NUMBER, UNICODE_SPACE };

enum unicode_kind unicode_kind(uint32_t code);

#endif
