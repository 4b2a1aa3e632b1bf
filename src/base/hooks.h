/* SPDX-License-Identifier: MIT
 *
 * hooks.h: taking memory and logging through the caller's hooks; a zeroed struct means libc and
 * silence. Modules that hold state copy the struct once and use these everywhere. The jemalloc
 * arena of a cache and the page provider (alloc/mem.h) are themselves handed down as hooks. */
#ifndef PKV_BASE_HOOKS_H
#define PKV_BASE_HOOKS_H

#include "pagedkv/base.h"

#define HOOKS_CACHE_LINE 64

/* *hooks is hooks_in, or zero for NULL. Refuses half a pair. */
enum pkv_status hooks_copy(const struct pkv_hooks *hooks_in, struct pkv_hooks *hooks);

/* The bytes that an array of count * bytes requests of the hook: whole cache lines, at least one. 0
 * when the product overflows. */
size_t hooks_array_bytes(size_t count, size_t bytes);

/* count * bytes of zeroed memory on a cache line; NULL when there is none or the product overflows.
 */
void *hooks_alloc_array(const struct pkv_hooks *hooks, size_t count, size_t bytes);
void hooks_free_array(const struct pkv_hooks *hooks, void *memory, size_t count, size_t bytes);

/* One line through the log hook, if there is one. */
void hooks_log(const struct pkv_hooks *hooks, enum pkv_log_level level, const char *format, ...)
    PKV_PRINTF(3, 4);

#endif
