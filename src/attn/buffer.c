/* SPDX-License-Identifier: MIT
 *
 * buffer.c: growing by copying, through the caller's hooks. */
#include "attn/buffer.h"

#include <string.h>

bool buffer_grow(const struct pkv_hooks *hooks, struct buffer *buffer, size_t bytes)
{
    if (bytes <= buffer->bytes) {
        return true;
    }
    const size_t half_more = buffer->bytes + buffer->bytes / 2;
    const size_t wanted = bytes > half_more ? bytes : half_more;
    void *memory = hooks_alloc_array(hooks, wanted, 1);
    if (memory == NULL) {
        return false;
    }
    if (buffer->memory != NULL) {
        memcpy(memory, buffer->memory, buffer->bytes);
    }
    buffer_free(hooks, buffer);
    *buffer = (struct buffer){memory, wanted};
    return true;
}

bool buffer_push(const struct pkv_hooks *hooks, struct buffer *list, int32_t *count,
                 const void *item, size_t item_bytes)
{
    if (*count == INT32_MAX || !buffer_grow(hooks, list, ((size_t)*count + 1) * item_bytes)) {
        return false;
    }
    memcpy((char *)list->memory + (size_t)*count * item_bytes, item, item_bytes);
    (*count)++;
    return true;
}

void buffer_free(const struct pkv_hooks *hooks, struct buffer *buffer)
{
    hooks_free_array(hooks, buffer->memory, buffer->bytes, 1);
    *buffer = (struct buffer){NULL, 0};
}
