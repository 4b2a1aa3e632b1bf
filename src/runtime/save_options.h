/* SPDX-License-Identifier: MIT
 *
 * save_options.h: the first two sections of a saved file: the length and the options of a
 * sequence, and its namespace fields. */
#ifndef PKV_RUNTIME_SAVE_OPTIONS_H
#define PKV_RUNTIME_SAVE_OPTIONS_H

#include "pages/saved_format.h"
#include "runtime/namespace.h"

#define SAVE_SEQUENCE_BYTES 64
#define SAVE_FIELD_BYTES 16
#define SAVE_MAX_NAMESPACE_BYTES                                                                   \
    (PKV_MAX_NAMESPACE_FIELDS * (SAVE_FIELD_BYTES + PKV_MAX_NAMESPACE_BYTES))

/* Both as bytes. */
struct save_options {
    unsigned char sequence[SAVE_SEQUENCE_BYTES];
    unsigned char fields[SAVE_MAX_NAMESPACE_BYTES];
    size_t num_field_bytes; /* 0: no section */
};

/* Of a sequence of a cache. The mutex is held. O(fields). */
void save_options_put(const pkv_cache *cache, const struct seq *seq, struct save_options *options);

/* A prototype with these options, its length too, for a cache; `fields` point into *options.
 * Lengths beyond max_seq_len are left as they are for the caller to judge. PKV_CORRUPT;
 * PKV_INVALID_ARGUMENT for a max_rewind above that of a state group. Needs no mutex. */
enum pkv_status save_options_get(const pkv_cache *cache, const struct save_options *options,
                                 struct seq *prototype, struct namespace_fields *fields);

#endif
