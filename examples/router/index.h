/* SPDX-License-Identifier: MIT
 *
 * index.h: what a router knows of one cache, from its events alone: which groups have the block of
 * a key. From this and the keys of a prompt follows what the cache would adopt of it
 * (docs/keys.md), without a call to the cache, which may be on another machine.
 *
 *   an entry for each key that a group has a block of, as of event next - 1
 *
 * After a loss of events nothing of it counts any more, and it is learned anew from a walk over the
 * blocks. */
#ifndef ROUTER_INDEX_H
#define ROUTER_INDEX_H

#include <pagedkv.h>

struct entry {
    struct pkv_block_key key; /* both words 0 = an empty place */
    uint64_t groups;          /* bit g: group g has the block */
};

struct index {
    const struct pkv_cache_config *config;
    struct entry *entries; /* [num_entries], a power of two; a key lies behind its own place */
    uint32_t num_entries;
    uint32_t num_keys; /* at most half of it */
    uint64_t next;     /* number of the next event */
    uint64_t num_lost; /* events; and how often that was noticed */
    int32_t num_losses;
};

/* config is that of the cache, and stays. False when there is no memory: for as many keys as the
 * cache can index, so that none is needed later. */
bool index_create(const struct pkv_cache_config *config, struct index *index);
void index_free(struct index *index);

/* Takes the events that the cache has for it; after a loss, its blocks. */
void index_hear(struct index *index, pkv_cache *cache);

/* Tokens of a prompt that the cache would adopt, of whole blocks. keys [num_keys] are those of the
 * prompt (pkv_prefix_keys). For prompts without bidirectional ranges, of at most max_seq_len. */
int32_t index_hit(const struct index *index, const struct pkv_seq_options *options,
                  const struct pkv_prompt *prompt, const struct pkv_block_key *keys,
                  int32_t num_keys);

/* Ends the program with a line on stderr unless the status is PKV_OK. */
void must(enum pkv_status status);

#endif
