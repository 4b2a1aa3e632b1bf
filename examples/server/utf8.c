/* SPDX-License-Identifier: MIT */
#include "utf8.h"

/* The bytes of a character that begins with this one, 0 where none does, and the range in which its
 * second byte lies: the first bytes E0, ED, F0 and F4 narrow it. */
static size_t length_of(unsigned char first, unsigned char *low, unsigned char *high)
{
    *low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    *high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (first < 0x80) {
        return 1;
    }
    if (first < 0xc2 || first > 0xf4) {
        return 0;
    }
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

enum utf8_kind utf8_next(const char *bytes, size_t num_bytes, size_t *length)
{
    unsigned char low = 0, high = 0;
    const size_t whole = length_of((unsigned char)bytes[0], &low, &high);
    *length = 1;
    if (whole == 0) {
        return UTF8_WRONG;
    }
    for (size_t i = 1; i < whole; i++) {
        *length = i;
        if (i == num_bytes) {
            return UTF8_INCOMPLETE;
        }
        const unsigned char byte = (unsigned char)bytes[i];
        if (byte < low || byte > high) {
            return UTF8_WRONG;
        }
        low = 0x80;
        high = 0xbf;
    }
    *length = whole;
    return UTF8_WHOLE;
}

/* Bits of the first byte that are the character's, by length; then six of each other byte. */
uint32_t utf8_code(const char *bytes, size_t length)
{
    static const unsigned char mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = (unsigned char)bytes[0] & mask[length];
    for (size_t i = 1; i < length; i++) {
        code = code << 6 | ((unsigned char)bytes[i] & 0x3f);
    }
    return code;
}

bool utf8_is_valid(const char *bytes, size_t num_bytes)
{
    size_t length = 0;
    for (size_t i = 0; i < num_bytes; i += length) {
        if (utf8_next(bytes + i, num_bytes - i, &length) != UTF8_WHOLE) {
            return false;
        }
    }
    return true;
}
