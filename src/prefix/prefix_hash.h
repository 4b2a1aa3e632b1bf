/* SPDX-License-Identifier: MIT
 *
 * prefix_hash.h: the one door to xxHash. Keys are XXH3-128 without a seed, so that the same content
 * has the same key in every process, file and tier. XXH3 is no cryptographic hash: whoever finds
 * something by its key compares the content. */
#ifndef PKV_PAGES_PREFIX_HASH_H
#define PKV_PAGES_PREFIX_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "prefix/prefix_index.h"

struct prefix_key prefix_hash_bytes(const void *bytes, size_t length);

#endif
