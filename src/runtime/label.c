/* SPDX-License-Identifier: MIT
 *
 * Labels are UTF-8 without control characters. So of the three characters that the Prometheus text
 * format escapes in a value, backslash, quote and line feed, two can occur. */
#include "runtime/label.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* The bytes of the character at `at`; 0 when it is none, or a control character. Reads no further
 * than a NUL. */
static int32_t char_bytes(const unsigned char *at)
{
    static const uint32_t lowest[] = {0, 0, 0xa0, 0x800, 0x10000}; /* by the number of bytes */
    if (at[0] < 0x80) {
        return at[0] >= 0x20 && at[0] != 0x7f;
    }
    if (at[0] < 0xc0 || at[0] >= 0xf8) {
        return 0;
    }
    const int32_t count = at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    uint32_t code = at[0] & (0x7fu >> count);
    for (int32_t i = 1; i < count; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
        code = code << 6 | (at[i] & 0x3fu);
    }
    const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
    return code >= lowest[count] && code <= 0x10ffff && !is_surrogate ? count : 0;
}

enum pkv_status label_check(const char *label)
{
    int32_t at = 0;
    while (label != NULL && label[at] != '\0') {
        const int32_t bytes = char_bytes((const unsigned char *)label + at);
        if (bytes == 0) {
            return INVALID("metrics_label: byte %d begins no character, or a control character",
                           at);
        }
        at += bytes;
        if (at > PKV_MAX_LABEL_BYTES) {
            return INVALID("metrics_label is longer than %d bytes", PKV_MAX_LABEL_BYTES);
        }
    }
    return label == NULL || at > 0 ? PKV_OK : INVALID("metrics_label is empty");
}

char *label_copy(const char *label, struct carver *carver)
{
    if (label == NULL) {
        return NULL;
    }
    const size_t bytes = strlen(label) + 1;
    char *copy = carve(carver, bytes, 1);
    return copy != NULL ? memcpy(copy, label, bytes) : NULL;
}

/* Adds a label to those that there are; returns the end of the text. */
static char *add_label(char *text, const char *name, const char *value, bool is_first)
{
    text += sprintf(text, "%s%s=\"", is_first ? "{" : ",", name);
    for (; *value != '\0'; value++) {
        if (*value == '\\' || *value == '"') {
            *text++ = '\\';
        }
        *text++ = *value;
    }
    *text++ = '"';
    return text;
}

void label_write(const char *label, int32_t tier, const char *tier_name, char *text)
{
    char *end = text;
    if (label != NULL) {
        end = add_label(end, "cache", label, true);
    }
    if (tier != LABEL_NO_TIER) {
        const char number[2] = {(char)('0' + tier), '\0'};
        end = add_label(end, "tier", number, label == NULL);
        end = add_label(end, "tier_name", tier_name, false);
    }
    if (end > text) {
        *end++ = '}';
    }
    *end = '\0';
}
