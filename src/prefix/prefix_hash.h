/* SPDX-License-Identifier: MIT
 *
 * prefix_hash.h: the only file that uses xxHash. Keys are XXH3-128 without a seed, so that the same
 * content has the same key in every process, file and tier. XXH3 is no cryptographic hash: code
 * that finds something by its key must compare the content. */
#ifndef PKV_PREFIX_HASH_H
#define PKV_PREFIX_HASH_H

#include <stddef.h>

#include "prefix/prefix_key.h"

struct pkv_block_key prefix_hash_bytes(const void *bytes, size_t length);

#endif
