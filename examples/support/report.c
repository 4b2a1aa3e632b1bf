/* SPDX-License-Identifier: MIT
 *
 * report.c: messages, clock, numbers and whole files. Nothing here knows of models or caches. */
#include "report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

bool complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", program_name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return false;
}

double now_seconds(void)
{
    struct timespec now = {0};
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

bool parse_number(const char *what, const char *text, int32_t low, int32_t high, int32_t *number)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0') {
        return complain("%s: '%s' is not a whole number", what, text);
    }
    if (errno != 0 || value < low || value > high) {
        return complain("%s: %s is outside [%d, %d]", what, text, low, high);
    }
    *number = (int32_t)value;
    return true;
}

/* Reads to the end of the file; false when memory or the limit is passed, or the file fails. */
static bool read_all(FILE *file, const char *path, size_t limit, unsigned char **bytes, size_t *num)
{
    size_t capacity = 0;
    for (;;) {
        if (*num + 1 >= capacity) {
            capacity = capacity == 0 ? 4096 : capacity * 2;
            unsigned char *larger = realloc(*bytes, capacity);
            if (larger == NULL) {
                return complain("%s: out of memory", path);
            }
            *bytes = larger;
        }
        size_t got = fread(*bytes + *num, 1, capacity - 1 - *num, file);
        *num += got;
        if (*num > limit) {
            return complain("%s: larger than %zu bytes", path, limit);
        }
        if (ferror(file)) {
            return complain("%s: %s", path, strerror(errno));
        }
        if (got == 0) {
            break;
        }
    }
    (*bytes)[*num] = '\0';
    return true;
}

bool read_file(const char *path, size_t limit, unsigned char **bytes, size_t *num_bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return complain("%s: %s", path, strerror(errno));
    }
    unsigned char *content = NULL;
    size_t num = 0;
    bool ok = read_all(file, path, limit, &content, &num);
    fclose(file);
    if (!ok) {
        free(content);
        return false;
    }
    *bytes = content;
    *num_bytes = num;
    return true;
}

uint32_t load_u32(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

int32_t load_i32(const unsigned char *bytes)
{
    uint32_t word = load_u32(bytes);
    int32_t value = 0;
    memcpy(&value, &word, sizeof value);
    return value;
}

float load_f32(const unsigned char *bytes)
{
    uint32_t word = load_u32(bytes);
    float value = 0;
    memcpy(&value, &word, sizeof value);
    return value;
}
