/* SPDX-License-Identifier: MIT
 *
 * hooks.c: memory through the caller's hooks or libc, on cache lines and zeroed, so that half-built
 * objects can be freed by their ordinary destroy. */
#include "base/hooks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/sized.h"

enum pkv_status hooks_copy(const struct pkv_hooks *hooks_in, struct pkv_hooks *hooks)
{
    static const struct pkv_hooks none;
    if (hooks_in == NULL) {
        hooks_in = &none;
    }
    if ((hooks_in->alloc == NULL) != (hooks_in->free == NULL)) {
        return INVALID("hooks: alloc and free go together");
    }
    if ((hooks_in->map_pages == NULL) != (hooks_in->unmap_pages == NULL)) {
        return INVALID("hooks: map_pages and unmap_pages go together");
    }
    *hooks = *hooks_in;
    return sized_check_reserved("hooks.", hooks_in->reserved);
}

/* aligned_alloc wants a multiple of the alignment, and a request of nothing still gets a pointer.
 */
static size_t round_up_to_line(size_t bytes)
{
    size_t rounded = 0;
    return checked_round_up(bytes + (bytes == 0), HOOKS_CACHE_LINE, &rounded) ? rounded : 0;
}

size_t hooks_array_bytes(size_t count, size_t bytes)
{
    size_t total = 0;
    return checked_mul(count, bytes, &total) ? round_up_to_line(total) : 0;
}

void *hooks_alloc_array(const struct pkv_hooks *hooks, size_t count, size_t bytes)
{
    const size_t total = hooks_array_bytes(count, bytes);
    if (total == 0) {
        return NULL;
    }
    void *memory = hooks->alloc != NULL ? hooks->alloc(hooks->context, total, HOOKS_CACHE_LINE)
                                        : aligned_alloc(HOOKS_CACHE_LINE, total);
    if (memory != NULL) {
        memset(memory, 0, total);
    }
    return memory;
}

void hooks_free_array(const struct pkv_hooks *hooks, void *memory, size_t count, size_t bytes)
{
    if (memory == NULL) {
        return;
    }
    if (hooks->free != NULL) {
        hooks->free(hooks->context, memory, hooks_array_bytes(count, bytes), HOOKS_CACHE_LINE);
    } else {
        free(memory);
    }
}

void hooks_log(const struct pkv_hooks *hooks, enum pkv_log_level level, const char *format, ...)
{
    if (hooks->log == NULL) {
        return;
    }
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    hooks->log(hooks->context, level, line);
}
