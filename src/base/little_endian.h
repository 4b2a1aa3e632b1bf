/* SPDX-License-Identifier: MIT
 *
 * little_endian.h: integers written lowest byte first, so that what is hashed, and the keys that
 * come of it, are the same on every machine. Each put returns the end of what it wrote. On a
 * little-endian machine they are plain copies: gcc 12 and clang 14 do not make a single
 * store of a loop over bytes, and a hash that reads eight bytes at a time waits for smaller stores.
 */
#ifndef PKV_BASE_LITTLE_ENDIAN_H
#define PKV_BASE_LITTLE_ENDIAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A constant to every compiler. */
static inline bool is_little_endian(void)
{
    const union {
        uint32_t value;
        unsigned char bytes[4];
    } one = {1};
    return one.bytes[0] == 1;
}

static inline unsigned char *put_bytes(unsigned char *to, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        to[i] = (unsigned char)(value >> (8 * i));
    }
    return to + bytes;
}

static inline unsigned char *put_u32(unsigned char *to, uint32_t value)
{
    if (!is_little_endian()) {
        return put_bytes(to, value, sizeof value);
    }
    memcpy(to, &value, sizeof value);
    return to + sizeof value;
}

static inline unsigned char *put_u64(unsigned char *to, uint64_t value)
{
    if (!is_little_endian()) {
        return put_bytes(to, value, sizeof value);
    }
    memcpy(to, &value, sizeof value);
    return to + sizeof value;
}

static inline unsigned char *put_i32s(unsigned char *to, const int32_t *values, size_t count)
{
    const size_t bytes = count * sizeof values[0];
    if (is_little_endian()) {
        memcpy(to, values, bytes);
        return to + bytes;
    }
    for (size_t i = 0; i < count; i++) {
        to = put_u32(to, (uint32_t)values[i]);
    }
    return to;
}

static inline uint64_t get_bytes(const unsigned char *from, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) {
        value |= (uint64_t)from[i] << (8 * i);
    }
    return value;
}

static inline uint32_t get_u32(const unsigned char *from)
{
    return (uint32_t)get_bytes(from, sizeof(uint32_t));
}

static inline uint64_t get_u64(const unsigned char *from)
{
    return get_bytes(from, sizeof(uint64_t));
}

#endif
