/* SPDX-License-Identifier: MIT
 *
 * mem.h: the only file that uses jemalloc and the provider of pages.
 *
 * A struct mem is one cache's memory. The hooks that it routes to itself (`routed`) are complete,
 * and every module of the cache is given those, so that each byte is counted:
 *
 *   bytes_used = bytes requested and not yet freed,  0 when all modules are destroyed
 *
 * jemalloc is referred to weakly: metadata comes from an arena of this cache's own when the process
 * has mallocx, sdallocx and mallctl, else from libc; the caller's alloc hook goes before both. */
#ifndef PKV_ALLOC_MEM_H
#define PKV_ALLOC_MEM_H

#include "base/hooks.h"

#define MEM_PAGE_ALIGNMENT ((size_t)2 << 20)
#define MEM_TABLE_ALIGNMENT ((size_t)4 << 10)

struct mem {
    struct pkv_hooks user;   /* what the caller gave, possibly zero */
    struct pkv_hooks routed; /* context = this struct */
    unsigned arena;          /* jemalloc's, when has_arena */
    bool has_arena;
    _Atomic size_t bytes_used;   /* metadata; atomic: hooks are called from several threads */
    _Atomic size_t bytes_mapped; /* payload and big tables */
};

/* Opens *mem, which must not move afterwards. PKV_INVALID_ARGUMENT for half a pair of hooks. */
enum pkv_status mem_open(struct mem *mem, const struct pkv_hooks *user);

/* Returns the arena. Everything taken through the hooks must have been freed. */
void mem_close(struct mem *mem);

/* True when this process has jemalloc. */
bool mem_has_jemalloc(void);

/* Payload through hooks->map_pages, or mmap (2 MiB aligned, huge pages advised, untouched). NULL
 * when there is none. hooks may be any struct, a mem's routed one among them. */
void *mem_map(const struct pkv_hooks *hooks, size_t bytes, enum pkv_map_kind kind);

/* The same for a large table of which little may be used: aligned to MEM_TABLE_ALIGNMENT, and small
 * pages advised, so that a byte written costs one of them. */
void *mem_map_table(const struct pkv_hooks *hooks, size_t bytes);
void mem_unmap(const struct pkv_hooks *hooks, void *memory, size_t bytes, enum pkv_map_kind kind);

/* Memory behind which lies a file of its own in `folder`, which has no name and is gone with the
 * mapping. The disk's space is taken now, so no later access finds none. PKV_IO, with the system's
 * reason in the last error. No hook is asked. */
enum pkv_status mem_map_file(const char *folder, size_t bytes, void **memory);
void mem_unmap_file(void *memory, size_t bytes);

#endif
