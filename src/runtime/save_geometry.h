/* SPDX-License-Identifier: MIT
 *
 * save_geometry.h: what decides the meaning of cached bytes, as numbers that a saved file carries
 * and a cache that loads it must equal, one by one: so a refusal names the first that differs.
 *
 *   num_groups, num_layers, dtype | 10 of each group | 7 of each layer | the fingerprint's 2
 *
 * State groups are counted, and have storage 2, their state_bytes, and 0 for the rest.
 * Constants of layers enter as hashes: scales, and what keys go through before they are stored. */
#ifndef PKV_RUNTIME_SAVE_GEOMETRY_H
#define PKV_RUNTIME_SAVE_GEOMETRY_H

#include "pages/saved_reader.h"
#include "runtime/cache.h"

/* The numbers of a cache. */
struct save_geometry {
    const struct pkv_hooks *hooks;
    uint64_t *words;      /* [num_words] */
    unsigned char *bytes; /* the same as a file has them */
    size_t num_words;
};

/* For a sequence of `length` tokens, whose rows of cos/sin tables count. PKV_NO_MEMORY. Needs no
 * mutex. O(groups + layers + bytes of constants). */
enum pkv_status save_geometry_make(pkv_cache *cache, int32_t length, struct save_geometry *of);
void save_geometry_free(struct save_geometry *of);

static inline size_t save_geometry_bytes(const struct save_geometry *of)
{
    return of->num_words * sizeof(uint64_t);
}

/* Reads a file's and compares. PKV_INVALID_ARGUMENT: it is another cache's. */
enum pkv_status save_geometry_check(const struct save_geometry *of, struct saved_reader *reader,
                                    struct saved_section *section);

#endif
