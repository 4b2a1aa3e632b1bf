/* SPDX-License-Identifier: MIT
 *
 * seq_options.h: the options of a sequence, as create, probe and pin take them. O(groups). */
#ifndef PKV_RUNTIME_SEQ_OPTIONS_H
#define PKV_RUNTIME_SEQ_OPTIONS_H

#include "runtime/namespace.h"

/* A caller's options (NULL = none) as those of *prototype, and its namespace fields, for a cache of
 * a config that was checked. Needs no cache. PKV_INVALID_ARGUMENT. */
enum pkv_status seq_options_check(const struct pkv_cache_config *config,
                                  const struct pkv_seq_options *options, struct seq *prototype,
                                  struct namespace_fields *fields);

/* PKV_INVALID_ARGUMENT, when that is above max_rewind of a state group. */
enum pkv_status seq_options_check_rewind(const struct pkv_cache_config *config, int32_t max_rewind);

#endif
