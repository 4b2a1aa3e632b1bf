/* SPDX-License-Identifier: MIT
 *
 * sized.h: structs that the caller and the library know in different layouts. Their first field is
 * `size`, the caller's sizeof; later versions add fields behind the last one, never in front of it
 * and never in padding. Every public call reads and fills them through this file alone:
 *
 *     struct pkv_prompt prompt;
 *     status = sized_read("prompt", given, num_tokens, &prompt);      fields that are missing are 0
 *
 *     status = sized_check("usage", usage, struct pkv_group_usage, pinned);
 *     ...                                                             only then changes
 *     sized_fill(usage, &found);                                      as much as the caller knows
 *
 * The field that is named is the last one of the struct's first published layout; a struct that
 * ends before it is refused. O(size), no memory. */
#ifndef PKV_BASE_SIZED_H
#define PKV_BASE_SIZED_H

#include "pagedkv/base.h"

/* What a size may be at most, so that garbage in it is found without a walk through memory. */
#define SIZED_MAX_BYTES 65536

/* The bytes up to the end of a field. */
#define SIZED_UP_TO(type, field) (offsetof(type, field) + sizeof(((const type *)0)->field))

/* A pointer of one type with another one: the compiler refuses if they point to different types. */
#define SIZED_SAME(a, b) ((const void *)(1 ? (a) : (b)))

/* Copies what the caller passes into a struct of today's layout. What is missing is 0, and what
 * this version does not know must be 0: PKV_UNSUPPORTED. copy->size is today's. */
#define sized_read(name, given, last, copy)                                                        \
    sized_read_bytes(name, SIZED_SAME(given, copy),                                                \
                     (size_t)((const char *)(&(copy)->last + 1) - (const char *)(copy)),           \
                     sizeof *(copy), copy)

/* Checks a struct that the call will fill. */
#define sized_check(name, out, type, last)                                                         \
    sized_check_bytes(name, SIZED_SAME(out, (const type *)NULL), SIZED_UP_TO(type, last))

/* Fills the caller's struct from one of today's layout, `size` aside: as much as both know; what
 * the caller alone knows becomes 0. out has passed sized_check. */
#define sized_fill(out, made) sized_fill_bytes(out, SIZED_SAME(made, out), sizeof *(out))

enum pkv_status sized_read_bytes(const char *name, const void *given, size_t first, size_t today,
                                 void *copy);
enum pkv_status sized_check_bytes(const char *name, const void *out, size_t first);
void sized_fill_bytes(void *out, const void *made, size_t today);

/* The same for an element of an array, which does not hold its size. */
void sized_copy(void *out, size_t size, const void *made, size_t today);

/* Of a struct without a size: the words that are kept for later versions are 0, or
 * PKV_UNSUPPORTED. name is what stands before "reserved" in the last error. */
#define sized_check_reserved(name, words)                                                          \
    sized_check_words(name, words, sizeof(words) / sizeof *(words))

enum pkv_status sized_check_words(const char *name, const uint64_t *words, size_t count);

#endif
