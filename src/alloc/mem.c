/* SPDX-License-Identifier: MIT
 *
 * Where memory comes from. Metadata: the caller's alloc hook, else a jemalloc arena of this mem's
 * own, else libc. Payload: the caller's map_pages hook, else mmap. The choice between jemalloc and
 * libc is made by asking whether the process has its symbols, so one build serves both, and a
 * process under a sanitiser, which has no jemalloc, gets the allocator that is watched.
 *
 * An arena is a cache's own so that its memory is mixed with no other, and destroying it returns
 * all of it to the system. Thread caches are bypassed: they would outlive the arena.
 *
 * Counters are relaxed atomics. They order nothing; code that compares one with zero has already
 * synchronised with the threads that allocated. */
#include "alloc/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"

/* jemalloc's own declarations, without its header: a build needs nothing of it. */
PKV_WEAK void *mallocx(size_t bytes, int flags);
PKV_WEAK void sdallocx(void *memory, size_t bytes, int flags);
PKV_WEAK int mallctl(const char *name, void *old, size_t *old_bytes, void *new, size_t new_bytes);

/* The fields of jemalloc's flags: bits 0..5 log2 of the alignment, 8..19 the thread cache (value +
 * 2; none is -1), 20..31 the arena (value + 1). */
#define FLAG_NO_THREAD_CACHE 0x100u
#define FLAG_ARENA_SHIFT 20

bool mem_has_jemalloc(void)
{
    return mallocx != NULL && sdallocx != NULL && mallctl != NULL;
}

static int arena_flags(const struct mem *mem, size_t alignment)
{
    unsigned log2 = 0;
    while (((size_t)1 << log2) < alignment) {
        log2++;
    }
    return (int)(((mem->arena + 1) << FLAG_ARENA_SHIFT) | FLAG_NO_THREAD_CACHE | log2);
}

/* aligned_alloc wants a multiple of the alignment; 0 when there is none. */
static size_t round_up(size_t bytes, size_t alignment)
{
    size_t rounded = 0;
    return checked_round_up(bytes, alignment, &rounded) ? rounded : 0;
}

static void *take(const struct mem *mem, size_t bytes, size_t alignment)
{
    if (mem->user.alloc != NULL) {
        return mem->user.alloc(mem->user.context, bytes, alignment);
    }
    const size_t rounded = round_up(bytes, alignment);
    if (rounded == 0) {
        return NULL;
    }
    return mem->has_arena ? mallocx(rounded, arena_flags(mem, alignment))
                          : aligned_alloc(alignment, rounded);
}

static void release(const struct mem *mem, void *memory, size_t bytes, size_t alignment)
{
    if (mem->user.free != NULL) {
        mem->user.free(mem->user.context, memory, bytes, alignment);
    } else if (mem->has_arena) {
        sdallocx(memory, round_up(bytes, alignment), arena_flags(mem, alignment));
    } else {
        free(memory);
    }
}

static void *counted_alloc(void *context, size_t bytes, size_t alignment)
{
    struct mem *mem = context;
    void *memory = take(mem, bytes, alignment);
    if (memory != NULL) {
        atomic_fetch_add_explicit(&mem->bytes_used, bytes, memory_order_relaxed);
    }
    return memory;
}

static void counted_free(void *context, void *memory, size_t bytes, size_t alignment)
{
    struct mem *mem = context;
    release(mem, memory, bytes, alignment);
    atomic_fetch_sub_explicit(&mem->bytes_used, bytes, memory_order_relaxed);
}

static size_t page_bytes(void)
{
    const long bytes = sysconf(_SC_PAGESIZE);
    return bytes > 0 ? (size_t)bytes : 4096;
}

/* mmap knows no alignment: map that much more, and cut both ends off. Nothing is reserved or
 * touched, so a store may be larger than what is ever used of it. */
static void *map_aligned(size_t bytes, size_t alignment)
{
    const size_t page = page_bytes();
    const size_t needed = round_up(bytes, page);
    size_t mapped = 0;
    alignment = alignment > page ? alignment : page;
    if (needed == 0 || !checked_add(needed, alignment, &mapped)) {
        return NULL;
    }
    unsigned char *base = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        return NULL;
    }
    const size_t before = alignment - (uintptr_t)base % alignment;
    const size_t after = alignment - before;
    munmap(base, before);
    if (after > 0) {
        munmap(base + before + needed, after);
    }
    madvise(base + before, needed,
            alignment >= MEM_PAGE_ALIGNMENT ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return base + before;
}

static void *map_through(const struct pkv_hooks *hooks, size_t bytes, size_t alignment, int node,
                         enum pkv_map_kind kind)
{
    return hooks->map_pages != NULL ? hooks->map_pages(hooks->context, bytes, alignment, node, kind)
                                    : map_aligned(bytes, alignment);
}

static void *counted_map(void *context, size_t bytes, size_t alignment, int node,
                         enum pkv_map_kind kind)
{
    struct mem *mem = context;
    void *memory = map_through(&mem->user, bytes, alignment, node, kind);
    if (memory != NULL) {
        atomic_fetch_add_explicit(&mem->bytes_mapped, bytes, memory_order_relaxed);
    }
    return memory;
}

static void counted_unmap(void *context, void *memory, size_t bytes, enum pkv_map_kind kind)
{
    struct mem *mem = context;
    mem_unmap(&mem->user, memory, bytes, kind);
    atomic_fetch_sub_explicit(&mem->bytes_mapped, bytes, memory_order_relaxed);
}

static void passed_log(void *context, enum pkv_log_level level, const char *line)
{
    const struct mem *mem = context;
    mem->user.log(mem->user.context, level, line);
}

static void passed_parallel_for(void *context, int32_t num_tasks, pkv_task_function *task,
                                void *task_context)
{
    const struct mem *mem = context;
    mem->user.parallel_for(mem->user.context, num_tasks, task, task_context);
}

void *mem_map(const struct pkv_hooks *hooks, size_t bytes, enum pkv_map_kind kind)
{
    return map_through(hooks, bytes, MEM_PAGE_ALIGNMENT, -1, kind);
}

void *mem_map_table(const struct pkv_hooks *hooks, size_t bytes)
{
    return map_through(hooks, bytes, MEM_TABLE_ALIGNMENT, -1, PKV_MAP_TABLES);
}

void mem_unmap(const struct pkv_hooks *hooks, void *memory, size_t bytes, enum pkv_map_kind kind)
{
    if (memory == NULL) {
        return;
    }
    if (hooks->unmap_pages != NULL) {
        hooks->unmap_pages(hooks->context, memory, bytes, kind);
    } else {
        munmap(memory, bytes);
    }
}

/* The system's reason for `what` that failed with `error`. */
static enum pkv_status refuse_file(const char *folder, const char *what, int error)
{
    char reason[128] = "";
    if (strerror_r(error, reason, sizeof reason) != 0) {
        snprintf(reason, sizeof reason, "error %d", error);
    }
    return refuse(PKV_IO, "%s in %s: %s", what, folder, reason);
}

/* A file without a name: the error of the system, or 0. */
static int open_unnamed(const char *folder, int *file)
{
    char name[PATH_MAX];
    const int length = snprintf(name, sizeof name, "%s/pagedkv-XXXXXX", folder);
    if (length < 0 || (size_t)length >= sizeof name) {
        return ENAMETOOLONG;
    }
    *file = mkstemp(name);
    if (*file < 0) {
        return errno;
    }
    unlink(name);
    fcntl(*file, F_SETFD, FD_CLOEXEC);
    return 0;
}

enum pkv_status mem_map_file(const char *folder, size_t bytes, void **memory)
{
    int file = -1;
    int error = bytes > (size_t)LONG_MAX ? EFBIG : open_unnamed(folder, &file);
    if (error != 0) {
        return refuse_file(folder, "a file", error);
    }
    error = posix_fallocate(file, 0, (off_t)bytes);
    void *mapped = MAP_FAILED;
    if (error == 0) {
        mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        error = mapped == MAP_FAILED ? errno : 0;
    }
    close(file);
    if (error != 0) {
        return refuse_file(folder, "a file of its size", error);
    }
    *memory = mapped;
    return PKV_OK;
}

void mem_unmap_file(void *memory, size_t bytes)
{
    if (memory != NULL) {
        munmap(memory, bytes);
    }
}

enum pkv_status mem_open(struct mem *mem, const struct pkv_hooks *user)
{
    struct pkv_hooks checked;
    const enum pkv_status status = hooks_copy(user, &checked);
    if (status != PKV_OK) {
        return status;
    }
    memset(mem, 0, sizeof *mem);
    mem->user = checked;
    mem->routed.context = mem;
    mem->routed.alloc = counted_alloc;
    mem->routed.free = counted_free;
    mem->routed.map_pages = counted_map;
    mem->routed.unmap_pages = counted_unmap;
    mem->routed.log = checked.log != NULL ? passed_log : NULL;
    mem->routed.parallel_for = checked.parallel_for != NULL ? passed_parallel_for : NULL;
    if (checked.alloc == NULL && mem_has_jemalloc()) {
        size_t bytes = sizeof mem->arena;
        mem->has_arena = mallctl("arenas.create", &mem->arena, &bytes, NULL, 0) == 0;
    }
    return PKV_OK;
}

void mem_close(struct mem *mem)
{
    pkv_assert(mem->bytes_used == 0 && mem->bytes_mapped == 0);
    if (mem->has_arena) {
        char name[32];
        snprintf(name, sizeof name, "arena.%u.destroy", mem->arena);
        mallctl(name, NULL, NULL, NULL, 0);
        mem->has_arena = false;
    }
}
