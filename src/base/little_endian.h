/* SPDX-License-Identifier: MIT
 *
 * little_endian.h: integers written lowest byte first, so that what is hashed, and the keys that
 * come of it, are the same on every machine. Each function returns the end of what it wrote.
 * Compilers turn put_u32 and put_u64 into one store where the machine itself is little-endian. */
#ifndef PKV_BASE_LITTLE_ENDIAN_H
#define PKV_BASE_LITTLE_ENDIAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline unsigned char *put_u32(unsigned char *to, uint32_t value)
{
    to[0] = (unsigned char)value;
    to[1] = (unsigned char)(value >> 8);
    to[2] = (unsigned char)(value >> 16);
    to[3] = (unsigned char)(value >> 24);
    return to + 4;
}

static inline unsigned char *put_u64(unsigned char *to, uint64_t value)
{
    to = put_u32(to, (uint32_t)value);
    return put_u32(to, (uint32_t)(value >> 32));
}

/* A constant to every compiler. */
static inline bool is_little_endian(void)
{
    const union {
        uint32_t value;
        unsigned char bytes[4];
    } one = {1};
    return one.bytes[0] == 1;
}

/* Many at once are one copy where the machine is little-endian: a hash reads eight bytes at a time,
 * and such a load would wait for two stores of four. */
static inline unsigned char *put_i32s(unsigned char *to, const int32_t *values, size_t count)
{
    if (is_little_endian()) {
        memcpy(to, values, count * sizeof values[0]);
        return to + count * sizeof values[0];
    }
    for (size_t i = 0; i < count; i++) {
        to = put_u32(to, (uint32_t)values[i]);
    }
    return to;
}

#endif
