/* SPDX-License-Identifier: MIT
 *
 * counting.c: libc below, and the library's own page provider. */
#include "counting.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "alloc/mem.h"
#include "measure.h"

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
    struct counting *counting = context;
    void *memory = alignment == MEM_TABLE_ALIGNMENT ? mem_map_table(&no_hooks, bytes)
                                                    : mem_map(&no_hooks, bytes, kind);
    (void)node;
    count(context);
    if (memory != NULL && counting->num_mappings == MAX_MAPPINGS) {
        measure_fail("more than %d mappings", MAX_MAPPINGS);
    }
    if (memory != NULL) {
        counting->mappings[counting->num_mappings++] = (struct mapping){memory, bytes, kind};
    }
    return memory;
}

static void unmap(void *context, void *memory, size_t bytes, enum pkv_map_kind kind)
{
    struct counting *counting = context;
    count(context);
    mem_unmap(&no_hooks, memory, bytes, kind);
    for (int i = 0; i < counting->num_mappings; i++) {
        if (counting->mappings[i].memory == memory) {
            counting->mappings[i] = counting->mappings[--counting->num_mappings];
        }
    }
}

size_t counting_resident(const struct counting *counting, enum pkv_map_kind kind)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t resident = 0;
    for (int i = 0; i < counting->num_mappings; i++) {
        const struct mapping *mapping = &counting->mappings[i];
        const size_t pages = (mapping->bytes + page - 1) / page;
        unsigned char *in_core = measure_calloc(pages, 1);
        if (mincore(mapping->memory, mapping->bytes, in_core) != 0) {
            measure_fail("mincore");
        }
        for (size_t at = 0; at < pages && mapping->kind == kind; at++) {
            resident += (in_core[at] & 1u) * page;
        }
        free(in_core);
    }
    return resident;
}

struct pkv_hooks counting_hooks(struct counting *counting)
{
    return (struct pkv_hooks){
        .context = counting, .alloc = take, .free = give, .map_pages = map, .unmap_pages = unmap};
}
