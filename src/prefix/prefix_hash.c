/* SPDX-License-Identifier: MIT
 *
 * XXH3-128, compiled into this file: the library depends on no xxHash at run time. */
#include "prefix/prefix_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

struct pkv_block_key prefix_hash_bytes(const void *bytes, size_t length)
{
    const XXH128_hash_t hash = XXH3_128bits(bytes, length);
    return (struct pkv_block_key){hash.low64, hash.high64};
}
