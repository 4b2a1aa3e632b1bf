/* SPDX-License-Identifier: MIT
 *
 * token_stride.c: the one rule for strides of tokens, of raw calls and of the steps of a cache. */
#include "attn/token_stride.h"

#include "base/checked.h"
#include "base/error.h"

enum pkv_status token_stride_resolve(const char *name, size_t stride,
                                     const struct token_stride_rows *rows, size_t *resolved)
{
    const size_t in_force = stride != 0 ? stride : rows->width;
    size_t reach = 0;
    if (in_force < rows->width) {
        return INVALID("%s = %zu, below its width %zu", name, stride, rows->width);
    }
    if (!checked_mul((size_t)rows->num_tokens + 1, in_force, &reach) ||
        !checked_mul(reach, pkv_dtype_bytes(rows->dtype), &reach)) {
        return INVALID("%s = %zu: the bytes of %d tokens overflow", name, in_force,
                       rows->num_tokens);
    }
    *resolved = in_force;
    return PKV_OK;
}
