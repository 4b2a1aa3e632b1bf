/* SPDX-License-Identifier: MIT
 *
 * hash.h: the only file that uses xxHash. Hashes have no seed, so that the same bytes have the same
 * hash in every process, file and tier. XXH3 is no cryptographic hash: code that finds something by
 * its hash must compare the content, and a checksum shows accidents, not forgeries. */
#ifndef PKV_BASE_HASH_H
#define PKV_BASE_HASH_H

#include <stddef.h>

#include "pagedkv/base.h"

/* XXH3-128: keys of blocks. */
struct pkv_block_key hash_128(const void *bytes, size_t length);

/* XXH3-64: checksums of files and tiers. */
uint64_t hash_64(const void *bytes, size_t length);

/* The same of bytes that come in pieces: begin, add each, end. The struct owns nothing. */
#define HASH_STREAM_BYTES 640
struct hash_stream {
    _Alignas(64) unsigned char state[HASH_STREAM_BYTES];
};

void hash_begin(struct hash_stream *stream);
void hash_add(struct hash_stream *stream, const void *bytes, size_t length);
uint64_t hash_end(const struct hash_stream *stream);

#endif
