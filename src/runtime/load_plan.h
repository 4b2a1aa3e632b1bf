/* SPDX-License-Identifier: MIT
 *
 * load_plan.h: a saved sequence is read once and verified as a whole, against its checksums and
 * against the cache that is to hold it. What comes of it is a plan: nothing is left in it to be
 * believed, and nothing of the cache has changed. */
#ifndef PKV_RUNTIME_LOAD_PLAN_H
#define PKV_RUNTIME_LOAD_PLAN_H

#include "pages/saved_reader.h"
#include "runtime/save_geometry.h"
#include "runtime/save_options.h"
#include "runtime/save_payload.h"

/* One group of a plan. */
struct load_group {
    struct payload_extent extent;
    struct saved_section payload;
};

/* The states of one state group: the lengths of the tokens before each. */
struct load_states {
    int32_t count;
    int32_t *lengths; /* [count] */
    struct saved_section section;
};

/* fields point into options, so a plan does not move. */
struct load_plan {
    pkv_cache *cache;
    struct save_options options;
    struct seq prototype; /* its length too */
    struct namespace_fields fields;
    struct saved_section tokens; /* kind 0: there are none */
    struct saved_section extra;
    struct load_group *groups;  /* [num_groups] */
    struct load_states *states; /* [num_states] */
};

/* Needs no mutex. PKV_CORRUPT, PKV_IO, PKV_UNSUPPORTED, PKV_INVALID_ARGUMENT, PKV_NO_MEMORY;
 * PKV_NEVER_FITS for more tokens than the cache's sequences may have, *shortage then says so. Free
 * it in any case. */
enum pkv_status load_plan_make(struct load_plan *plan, pkv_cache *cache,
                               const struct saved_source *source, struct pkv_shortage *shortage);
void load_plan_free(struct load_plan *plan);

#endif
