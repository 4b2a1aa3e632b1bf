/* SPDX-License-Identifier: MIT
 *
 * buffer.h: memory that grows while planning and is never shrunk, so a step like the one before it
 * allocates nothing. A zeroed buffer is an empty one. Growing is by half at least, so n pushes cost
 * O(n). */
#ifndef PKV_ATTN_BUFFER_H
#define PKV_ATTN_BUFFER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hooks.h"

struct buffer {
    void *memory;
    size_t bytes;
};

/* Makes room for `bytes` bytes and keeps the content; new bytes are zero. false when there is no
 * memory: the buffer is as it was. */
bool buffer_grow(const struct pkv_hooks *hooks, struct buffer *buffer, size_t bytes);

/* Appends one item of item_bytes to a list of *count such items. false when there is no memory, or
 * no number for it. */
bool buffer_push(const struct pkv_hooks *hooks, struct buffer *list, int32_t *count,
                 const void *item, size_t item_bytes);

void buffer_free(const struct pkv_hooks *hooks, struct buffer *buffer);

#endif
