/* SPDX-License-Identifier: MIT
 *
 * life.h: a managed cache under random calls, and what is known of it. */
#ifndef PKV_FUZZ_LIFE_H
#define PKV_FUZZ_LIFE_H

#include "fuzz.h"

enum { MAX_GROUPS = 4, MAX_LAYERS = 6, HANDLES = 8, WIDTH = 4, HEADS = 2, TOKENS = 24 };

struct setup {
    struct pkv_cache_config config;
    struct pkv_group_config groups[MAX_GROUPS];
    struct pkv_layer_config layers[MAX_LAYERS];
};

struct life {
    pkv_cache *cache;
    const struct setup *setup;
    pkv_seq seqs[HANDLES];
    int32_t ids[64];
};

#define ALLOWED_SEQ                                                                                \
    (ALLOWED_INVALID | ALLOWED_STALE | FUZZ_MAY(PKV_NO_BLOCKS) | FUZZ_MAY(PKV_NEVER_FITS) |        \
     FUZZ_MAY(PKV_NOT_RESIDENT) | FUZZ_MAY(PKV_BUSY))

pkv_seq life_any_seq(struct fuzz *fuzz, const struct life *life);

/* A step of chains or trees that is begun, perhaps, and ended. */
void life_step(struct fuzz *fuzz, struct life *life);

#endif
