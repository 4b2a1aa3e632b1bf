/* SPDX-License-Identifier: MIT
 *
 * counting.c: libc below, and the library's own page provider. */
#include "counting.h"

#include <stdlib.h>

#include "alloc/mem.h"

static const struct pkv_hooks no_hooks;

static void count(void *context)
{
    struct counting *counting = context;
    counting->calls++;
}

static void *take(void *context, size_t bytes, size_t alignment)
{
    void *memory = NULL;
    count(context);
    if (posix_memalign(&memory, alignment < sizeof memory ? sizeof memory : alignment, bytes) !=
        0) {
        return NULL;
    }
    return memory;
}

static void give(void *context, void *memory, size_t bytes, size_t alignment)
{
    (void)bytes;
    (void)alignment;
    count(context);
    free(memory);
}

static void *map(void *context, size_t bytes, size_t alignment, int node, enum pkv_map_kind kind)
{
    (void)node;
    count(context);
    return alignment == MEM_TABLE_ALIGNMENT ? mem_map_table(&no_hooks, bytes)
                                            : mem_map(&no_hooks, bytes, kind);
}

static void unmap(void *context, void *memory, size_t bytes, enum pkv_map_kind kind)
{
    count(context);
    mem_unmap(&no_hooks, memory, bytes, kind);
}

struct pkv_hooks counting_hooks(struct counting *counting)
{
    return (struct pkv_hooks){
        .context = counting, .alloc = take, .free = give, .map_pages = map, .unmap_pages = unmap};
}
