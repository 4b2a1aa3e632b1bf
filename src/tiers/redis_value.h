/* SPDX-License-Identifier: MIT
 *
 * redis_value.h: one value of a reply. A reply that is an array is told value by value, the array
 * itself first, so that nothing has to be kept of it. */
#ifndef PKV_TIERS_REDIS_VALUE_H
#define PKV_TIERS_REDIS_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REDIS_MAX_DEPTH 5

enum redis_type {
    REDIS_TEXT,
    REDIS_STATUS,
    REDIS_ERROR,
    REDIS_INTEGER,
    REDIS_NIL,
    REDIS_ARRAY,
};

struct redis_value {
    enum redis_type type;
    /* text [length] of a text, status or error: not NUL-terminated, gone after the call. */
    const char *text;
    size_t length;
    /* The text is where the listener wanted it; `text` is NULL. */
    bool is_placed;
    int64_t integer;
    /* 0 for the reply itself; of a value in an array, its places from the outermost array on. */
    int32_t depth;
    int32_t places[REDIS_MAX_DEPTH];
};

#endif
