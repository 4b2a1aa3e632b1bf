/* SPDX-License-Identifier: MIT
 *
 * recent.h: the texts that a server worked on last, and files of their keys and values, so that a
 * restarted server need not compute them again: DIR/0.pkv is that of the newest. */
#ifndef SERVER_RECENT_H
#define SERVER_RECENT_H

#include "job.h"

#include "pagedkv/cache.h"

enum { MAX_RECENT = 64 };

struct recent_text {
    char tenant[MAX_TENANT_BYTES + 1];
    int32_t *tokens;
    int32_t num_tokens;
};

/* A ring; zeroed at first. Of the engine's thread alone. */
struct recent {
    struct recent_text texts[MAX_RECENT];
    int32_t num_added;
};

/* Copies a text, in the place of the oldest one when there are MAX_RECENT. */
void recent_add(struct recent *recent, const char *tenant, const int32_t *tokens,
                int32_t num_tokens);

/* Saves what a cache has of each text, in whole blocks, newest first and without those that another
 * one serves, until max_seconds are over. Files of an earlier save are replaced or removed.
 * Nothing runs. Complains about what fails, and goes on. */
void recent_save(const struct recent *recent, pkv_cache *cache, int32_t block_size,
                 const char *folder, double max_seconds);

/* Makes the folder if it is not there; else what its files have is cached from now on. Complains
 * about a file that is damaged or of another model, and goes on. */
void recent_load(pkv_cache *cache, const char *folder);

void recent_free(struct recent *recent);

#endif
