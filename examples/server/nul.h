/* SPDX-License-Identifier: MIT
 *
 * nul.h: finds NUL characters in a body before it is parsed: cJSON's texts end at the first. */
#ifndef SERVER_NUL_H
#define SERVER_NUL_H

#include <stdbool.h>
#include <stddef.h>

/* Whether a body, JSON or not, has a NUL: the byte, or \u0000 in a text. `field` [room] receives
 * the name of the member that has it; "" where there is none that can be told. */
bool nul_find(const char *body, size_t num_bytes, char *field, size_t room);

#endif
