/* SPDX-License-Identifier: MIT
 *
 * XXH3, compiled into this file: the library depends on no xxHash at run time. */
#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(sizeof(XXH3_state_t) <= HASH_STREAM_BYTES, "a state fits into a stream");

struct pkv_block_key hash_128(const void *bytes, size_t length)
{
    const XXH128_hash_t hash = XXH3_128bits(bytes, length);
    return (struct pkv_block_key){hash.low64, hash.high64};
}

uint64_t hash_64(const void *bytes, size_t length)
{
    return XXH3_64bits(bytes, length);
}

void hash_begin(struct hash_stream *stream)
{
    (void)XXH3_64bits_reset((XXH3_state_t *)(void *)stream->state);
}

void hash_add(struct hash_stream *stream, const void *bytes, size_t length)
{
    (void)XXH3_64bits_update((XXH3_state_t *)(void *)stream->state, bytes, length);
}

uint64_t hash_end(const struct hash_stream *stream)
{
    return XXH3_64bits_digest((const XXH3_state_t *)(const void *)stream->state);
}
