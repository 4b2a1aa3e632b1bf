/* SPDX-License-Identifier: MIT
 *
 * A prefetch decides by what is cached at the moment, not by what was when it began: other requests
 * may have computed, or evicted, what it wants. It first holds what is cached, so that the blocks
 * which it takes are not those. */
#include "runtime/prefetch.h"

#include <string.h>

#include "base/minmax.h"
#include "prefix/prefix_blocks.h"
#include "prefix/prefix_claim.h"
#include "prefix/prefix_keys.h"
#include "prefix/prefix_publish.h"
#include "prefix/prefix_retain.h"
#include "runtime/admission.h"
#include "runtime/match.h"

/* A prefetch, its rows, and what is cached of its prompt now: nodes in reuse.matched. */
struct prefetch {
    pkv_cache *cache;
    struct ticket *ticket;
    struct ticket_rows rows;
    struct pkv_prompt prompt; /* whole blocks */
    int32_t num_known;        /* nodes of it */
};

static struct prefetch open_prefetch(pkv_cache *cache, int32_t index)
{
    struct ticket *ticket = &cache->offload.tickets.at[index];
    struct prefetch made = {
        .cache = cache,
        .ticket = ticket,
        .rows = ticket_rows(&cache->offload.tickets, index),
        .prompt = seq_tokens_at(&cache->offload.tickets.tokens, index, &ticket->tokens, 0,
                                ticket->tokens.num_known),
    };
    made.num_known = match_chain(cache, &ticket->prototype, &made.prompt, ticket->num_blocks);
    return made;
}

static int32_t entry_of(const struct prefetch *of, int32_t block, int32_t group)
{
    return block * of->cache->config.num_groups + group;
}

/* The cached block of an entry, or NO_BLOCK. */
static int32_t cached_block(const struct prefetch *of, int32_t block, int32_t group)
{
    return block < of->num_known
               ? prefix_index_block(of->cache->reuse.index, of->cache->reuse.matched[block], group)
               : NO_BLOCK;
}

/* The longest prefix, of at most max_blocks, of which every group has what it needs, where `has`
 * says what there is. */
static int32_t longest(const struct prefetch *of, int32_t max_blocks,
                       bool (*has)(const struct prefetch *of, int32_t block, int32_t group))
{
    struct prefix_run runs[CONFIG_MAX_PREFIX_GROUPS] = {{0, 0}};
    const pkv_cache *cache = of->cache;
    const struct prefix_window *windows = match_windows(of->cache, &of->ticket->prototype);
    int32_t best = 0;
    for (int32_t block = 0; block < max_blocks; block++) {
        bool is_enough = of->rows.may_end[block + 1] != 0;
        for (int32_t g = 0; g < cache->config.num_groups; g++) {
            prefix_run_add(&runs[g], block, has(of, block, g));
            is_enough =
                prefix_run_suffices(&runs[g], block + 1, &windows[g], cache->reuse.block_size) &&
                is_enough;
        }
        best = is_enough ? block + 1 : best;
    }
    return best;
}

/* The table of a sequence that adopts num_blocks: which entries it needs. */
static struct seq_table table_of(const struct prefetch *of, int32_t num_blocks, int32_t group)
{
    const struct group *in = &of->cache->groups[group];
    return seq_table_adopted(&in->tables, group_kept_prefix(in, &of->ticket->prototype),
                             num_blocks * of->cache->reuse.block_size,
                             of->ticket->prototype.max_rewind);
}

void prefetch_begin(pkv_cache *cache, int32_t index, const struct namespace_fields *fields,
                    const struct pkv_prompt *prompt, int32_t max_blocks)
{
    struct ticket *ticket = &cache->offload.tickets.at[index];
    const struct ticket_rows rows = ticket_rows(&cache->offload.tickets, index);
    struct pkv_prompt whole = *prompt;
    whole.num_tokens = max_blocks * cache->reuse.block_size;
    seq_tokens_admit(&cache->offload.tickets.tokens, index, &ticket->tokens, &whole);
    ticket->num_blocks = max_blocks;
    /* Joining the namespaces has checked what this checks. */
    (void)prefix_index_keys(cache->reuse.index, fields->at, fields->count, prompt->token_ids,
                            prompt->token_extra, max_blocks, rows.keys);
    for (int32_t i = 0; i <= max_blocks; i++) {
        rows.may_end[i] = match_uncut(prompt, i, cache->reuse.block_size) == i;
    }
    const struct prefetch of = open_prefetch(cache, index);
    for (int32_t i = 0; i < max_blocks; i++) {
        for (int32_t g = 0; g < cache->config.num_groups; g++) {
            const bool is_cached = cached_block(&of, i, g) != NO_BLOCK;
            rows.places[entry_of(&of, i, g)] = is_cached ? PLACE_CACHED : 0;
        }
    }
}

/* ---- taking blocks */

static bool is_cached_or_found(const struct prefetch *of, int32_t block, int32_t group)
{
    return cached_block(of, block, group) != NO_BLOCK ||
           (of->rows.places[entry_of(of, block, group)] & PLACE_TIERS) != 0;
}

/* A tier that did not have a block when it was looked up is not known to have it any more: the
 * block is stored again when it is computed. Behind one that has it none was looked at. */
static void unlearn_missed(const struct prefetch *of)
{
    struct offload *offload = &of->cache->offload;
    const int32_t num_groups = of->cache->config.num_groups;
    for (int32_t at = 0; at < of->ticket->at; at++) {
        const uint32_t found = of->rows.places[at];
        if (found <= PLACE_TIERS) { /* was not cached */
            const uint32_t asked = found != 0 ? found - 1 : offload_tiers(offload);
            tier_known_remove(&offload->known, of->rows.keys[at / num_groups], at % num_groups,
                              asked & ~found);
        }
    }
}

/* Blocks by which num_blocks would pass what may be taken of the worst group. */
static int32_t excess(const struct prefetch *of, int32_t num_blocks)
{
    int32_t worst = 0;
    for (int32_t g = 0; g < of->cache->config.num_groups; g++) {
        const struct group *group = &of->cache->groups[g];
        const struct seq_table table = table_of(of, num_blocks, g);
        int32_t num_taken = 0;
        for (int32_t i = 0; i < num_blocks; i++) {
            const int32_t block = cached_block(of, i, g);
            num_taken += seq_table_maps(&table, i) &&
                         (block == NO_BLOCK || block_costs_spare(&group->blocks, block));
        }
        worst = max_i32(worst, num_taken - admission_available(of->cache, g));
    }
    return worst;
}

static void hold_cached(struct prefetch *of, int32_t num_blocks, int32_t group)
{
    struct block_set *blocks = &of->cache->groups[group].blocks;
    const struct seq_table table = table_of(of, num_blocks, group);
    for (int32_t i = 0; i < num_blocks; i++) {
        const int32_t block = seq_table_maps(&table, i) ? cached_block(of, i, group) : NO_BLOCK;
        const int32_t at = entry_of(of, i, group);
        of->rows.held[at] = block;
        if (block != NO_BLOCK) {
            of->rows.places[at] = PLACE_CACHED;
            block_adopt(blocks, block, false);
        }
    }
}

/* Returns how many. */
static int32_t take_missing(struct prefetch *of, int32_t num_blocks, int32_t group)
{
    struct block_set *blocks = &of->cache->groups[group].blocks;
    const struct seq_table table = table_of(of, num_blocks, group);
    int32_t near = NO_BLOCK;
    int32_t count = 0;
    for (int32_t i = 0; i < num_blocks; i++) {
        const int32_t at = entry_of(of, i, group);
        if (!seq_table_maps(&table, i)) {
            of->rows.places[at] = 0;
        } else if (of->rows.held[at] == NO_BLOCK) {
            block_take(blocks, near, 1, NO_SEQ, false, &of->rows.held[at]);
            count++;
        }
        near = of->rows.held[at] != NO_BLOCK ? of->rows.held[at] : near;
    }
    return count;
}

static void finish(struct prefetch *of, int32_t num_blocks)
{
    struct ticket *ticket = of->ticket;
    ticket->state = PKV_TICKET_DONE;
    ticket->num_cached = num_blocks * of->cache->reuse.block_size;
    of->cache->offload.num_done_tickets++;
}

void prefetch_take(pkv_cache *cache, int32_t index)
{
    struct prefetch of = open_prefetch(cache, index);
    struct ticket *ticket = of.ticket;
    unlearn_missed(&of);
    int32_t num_blocks = longest(&of, ticket->num_blocks, is_cached_or_found);
    for (int32_t over = excess(&of, num_blocks); over > 0; over = excess(&of, num_blocks)) {
        ticket->status = ticket->status == PKV_OK ? PKV_NO_BLOCKS : ticket->status;
        num_blocks = longest(&of, max_i32(num_blocks - over, 0), is_cached_or_found);
    }
    int32_t num_taken = 0;
    const int32_t num_known = min_i32(of.num_known, num_blocks);
    if (num_known > 0) {
        ticket->leaf = cache->reuse.matched[num_known - 1];
        prefix_index_hold(cache->reuse.index, ticket->leaf);
    }
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        hold_cached(&of, num_blocks, g);
    }
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        num_taken += take_missing(&of, num_blocks, g);
    }
    ticket->num_held = num_blocks;
    ticket->at = 0;
    ticket->is_ready = false;
    if (num_taken > 0) {
        ticket->state = PKV_TICKET_LOADING;
    } else {
        finish(&of, num_blocks);
    }
}

/* ---- indexing */

static bool is_cached_or_loaded(const struct prefetch *of, int32_t block, int32_t group)
{
    const bool is_held = block < of->ticket->num_held;
    return cached_block(of, block, group) != NO_BLOCK ||
           (is_held && (of->rows.places[entry_of(of, block, group)] & PLACE_LOADED) != 0);
}

/* The tier that a loaded block came from. */
static int32_t tier_of(uint8_t place)
{
    int32_t t = 0;
    while (t < PKV_MAX_TIERS - 1 && (place >> t & 1) == 0) {
        t++;
    }
    return t;
}

static void drop_entry(struct prefetch *of, int32_t block, int32_t group)
{
    int32_t *held = &of->rows.held[entry_of(of, block, group)];
    if (*held != NO_BLOCK) {
        block_drop(&of->cache->groups[group].blocks, *held, NO_SEQ, false);
        *held = NO_BLOCK;
    }
}

/* A block that was loaded becomes the node's. Where another is by now, that one is held instead, if
 * it takes nothing that was promised. */
static void index_entry(struct prefetch *of, int32_t i, int32_t group, struct prefix_ref node)
{
    struct group *in = &of->cache->groups[group];
    struct offload *offload = &of->cache->offload;
    const int32_t at = entry_of(of, i, group);
    const int32_t tier = tier_of(of->rows.places[at]);
    const int32_t own = of->rows.held[at];
    const int32_t canonical = prefix_index_attach(of->cache->reuse.index, node, group, own);
    tier_known_add(&offload->known, of->rows.keys[i], group, 1u << tier);
    if (canonical == own) {
        block_freeze(&in->blocks, own);
        offload->origins[node.index] = (uint8_t)(tier + 1);
        of->cache->counters.stored_blocks++;
        if (!of->cache->config.no_write_behind) {
            offload_store(offload, node, group, own);
        }
        return;
    }
    drop_entry(of, i, group);
    if (canonical != NO_BLOCK &&
        (!block_costs_spare(&in->blocks, canonical) || seq_table_num_spare(&in->tables) > 0)) {
        block_adopt(&in->blocks, canonical, false);
        of->rows.held[at] = canonical;
    }
}

/* The node of block i; false when there can be none. *above is the one before, which is released.
 */
static bool make_node(struct prefetch *of, int32_t i, struct prefix_ref *above)
{
    struct prefix_index *index = of->cache->reuse.index;
    const struct seq_reuse *reuse = &of->ticket->prototype.reuse;
    const size_t first = (size_t)i * (size_t)of->cache->reuse.block_size;
    struct prefix_ref node;
    const enum prefix_insert result = prefix_index_insert(
        index, *above, prefix_scope_at(&reuse->scope, i), reuse->epoch,
        of->prompt.token_ids + first,
        of->prompt.token_extra != NULL ? of->prompt.token_extra + first : NULL, 0, &node);
    if (result != PREFIX_NEW && result != PREFIX_FOUND) {
        return false;
    }
    if (result == PREFIX_NEW) {
        offload_clear_origin(&of->cache->offload, node);
        prefix_index_continue(index, *above, of->ticket->prototype.max_rewind);
    }
    prefix_index_release(index, *above);
    *above = node;
    return true;
}

/* Indexes what was loaded of block i; returns the tier that it came from, or -1. */
static int32_t index_block(struct prefetch *of, int32_t i, struct prefix_ref node)
{
    int32_t tier = -1;
    for (int32_t g = 0; g < of->cache->config.num_groups; g++) {
        const uint8_t place = of->rows.places[entry_of(of, i, g)];
        if ((place & PLACE_LOADED) != 0) {
            tier = max_i32(tier, tier_of(place));
            index_entry(of, i, g, node);
        }
    }
    prefix_index_supersede(of->cache->reuse.index, node);
    return tier;
}

static void count_loaded(struct ticket *ticket, int32_t tier, int32_t block_size)
{
    if (tier >= 0) {
        ticket->num_loaded += block_size;
        ticket->tier_loaded[tier] += block_size;
    }
}

/* Blocks, from the first on, that have nodes and are indexed now. */
static int32_t index_blocks(struct prefetch *of, int32_t num_blocks)
{
    struct prefix_index *index = of->cache->reuse.index;
    const struct seq_reuse *reuse = &of->ticket->prototype.reuse;
    struct prefix_ref above = PREFIX_ROOT;
    int32_t count = 0;
    while (count < num_blocks && make_node(of, count, &above)) {
        count_loaded(of->ticket, index_block(of, count, above), of->cache->reuse.block_size);
        count++;
    }
    if (count > 0) {
        prefix_index_claim(index, above, reuse->priority, reuse->retention_ns);
        prefix_index_retain(index, above, of->ticket->prototype.max_rewind);
    }
    prefix_index_release(index, of->ticket->leaf);
    of->ticket->leaf = above; /* make_node has made it held */
    return count;
}

/* What could not be read is not known to be there any more. */
static void unlearn_lost(const struct prefetch *of)
{
    const int32_t num_groups = of->cache->config.num_groups;
    for (int32_t at = 0; at < of->ticket->num_held * num_groups; at++) {
        if ((of->rows.places[at] & PLACE_LOST) != 0) {
            tier_known_remove(&of->cache->offload.known, of->rows.keys[at / num_groups],
                              at % num_groups, of->rows.places[at] & PLACE_TIERS);
        }
    }
}

void prefetch_publish(pkv_cache *cache, int32_t index)
{
    struct prefetch of = open_prefetch(cache, index);
    unlearn_lost(&of);
    const int32_t num_blocks = longest(&of, of.ticket->num_held, is_cached_or_loaded);
    cache->events.is_onboarding = true;
    const int32_t count = index_blocks(&of, num_blocks);
    cache->events.is_onboarding = false;
    for (int32_t i = of.ticket->num_held - 1; i >= 0; i--) {
        for (int32_t g = 0; g < cache->config.num_groups; g++) {
            if (i >= count || (of.rows.places[entry_of(&of, i, g)] & PLACE_LOST) != 0) {
                drop_entry(&of, i, g);
            }
        }
    }
    finish(&of, count);
}

void prefetch_drop(pkv_cache *cache, int32_t index)
{
    struct ticket *ticket = &cache->offload.tickets.at[index];
    struct prefetch of = {
        .cache = cache, .ticket = ticket, .rows = ticket_rows(&cache->offload.tickets, index)};
    for (int32_t i = ticket->num_held - 1; i >= 0; i--) {
        for (int32_t g = 0; g < cache->config.num_groups; g++) {
            drop_entry(&of, i, g);
        }
    }
    ticket->num_held = 0;
    prefix_index_release(cache->reuse.index, ticket->leaf);
    ticket->leaf = PREFIX_ROOT;
}

/* ---- probing */

static bool is_cached_or_known(const struct prefetch *of, int32_t block, int32_t group)
{
    return cached_block(of, block, group) != NO_BLOCK ||
           tier_known_get(&of->cache->offload.known, of->rows.keys[block], group) != 0;
}

/* The tier farthest away that block i needs: that of its parts that comes last. */
static int32_t farthest_tier(const struct prefetch *of, int32_t i, int32_t num_blocks)
{
    int32_t farthest = -1;
    for (int32_t g = 0; g < of->cache->config.num_groups; g++) {
        const struct seq_table table = table_of(of, num_blocks, g);
        if (seq_table_maps(&table, i) && cached_block(of, i, g) == NO_BLOCK) {
            const uint32_t tiers = tier_known_get(&of->cache->offload.known, of->rows.keys[i], g);
            farthest = max_i32(farthest, tier_of((uint8_t)tiers));
        }
    }
    return farthest;
}

void prefetch_probe(pkv_cache *cache, const struct seq *prototype,
                    const struct namespace_fields *fields, const struct pkv_prompt *prompt,
                    int32_t max_cached, int32_t num_cached, int32_t tier_tokens[PKV_MAX_TIERS])
{
    struct offload *offload = &cache->offload;
    const int32_t scratch = offload->tickets.capacity; /* the row behind those of the tickets */
    struct ticket ticket = {.prototype = *prototype,
                            .num_blocks = match_max_blocks(cache, prompt, max_cached)};
    struct prefetch of = {.cache = cache,
                          .ticket = &ticket,
                          .rows = ticket_rows(&offload->tickets, scratch),
                          .prompt = *prompt};
    if (ticket.num_blocks == 0) {
        return;
    }
    of.num_known = match_chain(cache, prototype, prompt, ticket.num_blocks);
    if (prefix_index_keys(cache->reuse.index, fields->at, fields->count, prompt->token_ids,
                          prompt->token_extra, ticket.num_blocks, of.rows.keys) != PKV_OK) {
        return;
    }
    for (int32_t i = 0; i <= ticket.num_blocks; i++) {
        of.rows.may_end[i] = match_uncut(prompt, i, cache->reuse.block_size) == i;
    }
    const int32_t num_blocks = longest(&of, ticket.num_blocks, is_cached_or_known);
    for (int32_t i = num_cached / cache->reuse.block_size; i < num_blocks; i++) {
        const int32_t tier = farthest_tier(&of, i, num_blocks);
        if (tier >= 0) {
            tier_tokens[tier] += cache->reuse.block_size;
        }
    }
}
