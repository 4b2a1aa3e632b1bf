/* SPDX-License-Identifier: MIT
 *
 * peer.c: what both peers need. */
#include "peer.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "alloc/mem.h"
#include "measure.h"

static const struct pkv_hooks no_hooks;

/* C has no conversion from dlsym's object pointer to a function; POSIX says that the bits fit. */
peer_function *peer_symbol(void *object, const char *name)
{
    void *const symbol = dlsym(object, name);
    peer_function *function = NULL;
    if (symbol == NULL) {
        measure_fail("%s: %s", name, dlerror());
    }
    memcpy(&function, &symbol, sizeof function);
    return function;
}

void peer_path(char path[PEER_MAX_PATH], const char *folder, const char *name)
{
    const int length = snprintf(path, PEER_MAX_PATH, "%s/%s", folder, name);
    if (length < 0 || length >= PEER_MAX_PATH) {
        measure_fail("%s is too long a path", folder);
    }
}

void *peer_map(size_t bytes)
{
    void *memory = mem_map(&no_hooks, bytes, PKV_MAP_PAYLOAD);
    if (memory == NULL) {
        measure_fail("no memory for %zu MiB of a peer's cache", bytes >> 20);
    }
    return memory;
}

void peer_unmap(void *memory, size_t bytes)
{
    mem_unmap(&no_hooks, memory, bytes, PKV_MAP_PAYLOAD);
}

void peer_pack(const struct layer *layer, bool values, void *to)
{
    const struct layer_spec *spec = &layer->spec;
    const size_t cell = (size_t)spec->width * pkv_dtype_bytes(spec->cache);
    char *at = to;
    for (int32_t row = 0; row < spec->rows; row++) {
        for (int32_t head = 0; head < spec->kv_heads; head++) {
            for (int32_t key = 0; key < spec->keys; key++, at += cell) {
                memcpy(at,
                       values ? layer_value(layer, row, head, key)
                              : layer_key(layer, row, head, key),
                       cell);
            }
        }
    }
}
