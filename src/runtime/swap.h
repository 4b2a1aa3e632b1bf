/* SPDX-License-Identifier: MIT
 *
 * swap.h: a sequence and the swap area (swap_area.h). Between them its cells and states move in
 * three parts, so that none is copied under the mutex:
 *
 *   unlink   the verdict; units, or blocks, are taken; from now on it is moving: no other call
 *            changes it, and a destroy waits for the end of the copy (seq_life)
 *   copy     without the mutex
 *   relink   it holds what was copied to, and what was copied from is released
 *
 * A sequence has units while it is swapped out, and while it moves. The mutex is held unless a
 * declaration says otherwise. */
#ifndef PKV_RUNTIME_SWAP_H
#define PKV_RUNTIME_SWAP_H

#include "base/minmax.h"
#include "pages/page_store.h"
#include "runtime/cache.h"

/* What a sequence has in group g of all groups is at entries [0, swap_num_entries): those of its
 * table that are mapped, or its states; nothing in a continuous group. */
static inline int32_t swap_num_entries(const pkv_cache *cache, int32_t g, int32_t seq)
{
    const int32_t s = g - cache->config.num_groups;
    return s >= 0                              ? cache->states[s].lists[seq].count
           : group_is_paged(&cache->groups[g]) ? cache->groups[g].tables.at[seq].end
                                               : 0;
}

static inline bool swap_maps(const pkv_cache *cache, int32_t g, int32_t seq, int32_t i)
{
    return g >= cache->config.num_groups || seq_table_maps(&cache->groups[g].tables.at[seq], i);
}

/* The block of an entry, NO_BLOCK while it has none. */
static inline int32_t swap_block(const pkv_cache *cache, int32_t g, int32_t seq, int32_t i)
{
    const int32_t s = g - cache->config.num_groups;
    return s >= 0 ? state_entries(&cache->states[s], seq)[i].block
                  : seq_table_entries(&cache->groups[g].tables, seq)[i];
}

/* Committed cells of an entry. */
static inline int32_t swap_num_cells(const pkv_cache *cache, int32_t g, int32_t seq, int32_t i)
{
    if (g >= cache->config.num_groups) {
        return 1;
    }
    const int32_t block_size = cache->groups[g].config->block_size;
    return min_i32(block_size, cache->seqs.at[seq].length - i * block_size);
}

/* Units that these cells take. */
static inline int64_t swap_num_units(pkv_cache *cache, int32_t g, int32_t seq, int32_t i)
{
    const size_t cell_bytes = page_store_token_bytes(cache_blocks(cache, g)->pages);
    return swap_area_units_of(&cache->swap, (size_t)swap_num_cells(cache, g, seq, i) * cell_bytes);
}

/* A sequence's table of a paged group as it was before it was swapped out. */
static inline struct seq_table *swap_table(const pkv_cache *cache, int32_t g, int32_t seq)
{
    return &cache->swap.tables[(size_t)g * (size_t)cache->swap.max_seqs + (size_t)seq];
}

/* PKV_INVALID_ARGUMENT for no cache or an unsound shortage, PKV_UNSUPPORTED without a swap area.
 * Needs no mutex. */
enum pkv_status swap_check_call(const pkv_cache *cache, const struct pkv_shortage *shortage);

/* Copies the cells and states of a moving sequence between its units and its blocks, and returns
 * how many bytes that were. Done units are passed over. Without the mutex. O(bytes). */
size_t swap_copy(pkv_cache *cache, int32_t seq, bool is_out);

/* Overwrites the units of a sequence, as freed blocks are. Without the mutex while it moves. */
void swap_scrub(pkv_cache *cache, int32_t seq);

/* The sequence has nothing in the swap area any more. */
void swap_release(pkv_cache *cache, int32_t seq);

/* What the records of sequences and the area say of each other. */
void swap_check(const pkv_cache *cache, struct report *report);

#endif
