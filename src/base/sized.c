/* SPDX-License-Identifier: MIT
 *
 * The rule of sizes, as docs/design.md states it. */
#include "base/sized.h"

#include <string.h>

#include "base/error.h"

static size_t size_of(const void *sized)
{
    size_t size = 0;
    memcpy(&size, sized, sizeof size);
    return size;
}

enum pkv_status sized_check_bytes(const char *name, const void *out, size_t first)
{
    if (out == NULL) {
        return INVALID("%s is NULL", name);
    }
    const size_t size = size_of(out);
    if (size < first) {
        return INVALID("%s->size = %zu, below %zu: it is the sizeof of the struct", name, size,
                       first);
    }
    if (size > SIZED_MAX_BYTES) {
        return INVALID("%s->size = %zu, above %d: it is the sizeof of the struct", name, size,
                       SIZED_MAX_BYTES);
    }
    return PKV_OK;
}

enum pkv_status sized_read_bytes(const char *name, const void *given, size_t first, size_t today,
                                 void *copy)
{
    const enum pkv_status status = sized_check_bytes(name, given, first);
    if (status != PKV_OK) {
        return status;
    }
    const unsigned char *bytes = given;
    const size_t size = size_of(given);
    for (size_t i = today; i < size; i++) {
        if (bytes[i] != 0) {
            return refuse(PKV_UNSUPPORTED,
                          "%s->size = %zu: the field at byte %zu is set, and this version has %zu "
                          "bytes",
                          name, size, i, today);
        }
    }
    const size_t known = size < today ? size : today;
    memcpy(copy, given, known);
    memset((unsigned char *)copy + known, 0, today - known);
    memcpy(copy, &today, sizeof today);
    return PKV_OK;
}

void sized_copy(void *out, size_t size, const void *made, size_t today)
{
    const size_t known = size < today ? size : today;
    memcpy(out, made, known);
    memset((unsigned char *)out + known, 0, size - known);
}

void sized_fill_bytes(void *out, const void *made, size_t today)
{
    const size_t size = size_of(out);
    sized_copy(out, size, made, today);
    memcpy(out, &size, sizeof size);
}

enum pkv_status sized_check_words(const char *name, const uint64_t *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (words[i] != 0) {
            return refuse(PKV_UNSUPPORTED, "%sreserved[%zu] is set: not a field of this version",
                          name, i);
        }
    }
    return PKV_OK;
}
