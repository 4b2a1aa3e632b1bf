/* SPDX-License-Identifier: MIT
 *
 * One transfer is of one namespace: its fields say which flushes make it void. A flush is alone, so
 * that no block which it makes void is on its way with the count that it raises. */
#include "runtime/gather.h"

#include "base/minmax.h"
#include "pages/page_store.h"
#include "prefix/prefix_blocks.h"
#include "prefix/prefix_scope.h"

int32_t gather_max_pieces(const pkv_cache *cache)
{
    int32_t most = 0;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        most = max_i32(most, page_store_num_pieces(cache->groups[g].blocks.pages));
    }
    return most;
}

size_t gather_max_head_bytes(const pkv_cache *cache)
{
    return record_max_head_bytes(cache->reuse.block_size);
}

/* A block of a node, or of a prompt, and its record in a tier. */
struct source {
    struct record record;
    struct pkv_block_key of_namespace;
    int32_t block; /* whose pages */
};

static void add_block(pkv_cache *cache, struct transfer *transfer, const struct source *source,
                      uint32_t tiers, int32_t entry)
{
    char name[PKV_MAX_TIER_NAME + 1];
    const pkv_pages *pages = cache->groups[source->record.group].blocks.pages;
    record_name(source->of_namespace, source->record.key, source->record.group, name);
    struct transfer_block *block = &transfer->blocks[transfer_add(transfer, name, tiers, entry)];
    block->head_bytes = record_head_bytes(&source->record);
    block->payload_bytes = source->record.payload_bytes;
    block->num_pieces = page_store_num_pieces(pages);
    record_write(&source->record, block->head);
    block->pieces[0] = (struct pkv_piece){
        transfer->kind == TRANSFER_STORE ? block->head : block->found, block->head_bytes};
    page_store_pieces(pages, source->block, block->pieces + 1);
    transfer->payload_bytes += block->payload_bytes;
}

/* ---- flushes */

/* One is to be tried now; whatever else there is to do waits until it has been. */
static bool has_raise(const struct offload *offload)
{
    return offload->num_raises > 0 && !offload->rests;
}

static bool gather_raise(pkv_cache *cache, struct transfer *transfer)
{
    struct offload *offload = &cache->offload;
    if (!has_raise(offload) || offload->num_running > 0) {
        return false;
    }
    offload->raising = offload->raises[0];
    offload->num_raises--;
    for (int32_t i = 0; i < offload->num_raises; i++) {
        offload->raises[i] = offload->raises[i + 1];
    }
    transfer_begin(transfer, TRANSFER_RAISE, NULL, 0);
    (void)transfer_add(transfer, offload->raising.counter, offload->raising.tiers, 0);
    return true;
}

/* One that a tier did not take goes behind the others. */
static void note_raise(struct offload *offload, const struct transfer *transfer)
{
    uint32_t tiers = offload->raising.tiers;
    offload->raising.tiers = 0;
    for (int32_t t = 0; t < offload->num_tiers; t++) {
        if (transfer->results[0][t] == TRANSFER_DONE) {
            tiers &= ~(1u << t);
        }
    }
    if (tiers != 0) {
        offload_add_raise(offload, offload->raising.counter, tiers);
        offload->rests = true;
    }
}

/* ---- prefetches */

/* The fields of block number `block` of a ticket's prompt. */
static int32_t fields_of(const pkv_cache *cache, const struct ticket *ticket, int32_t block,
                         struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS])
{
    return prefix_index_fields(cache->reuse.index,
                               prefix_scope_at(&ticket->prototype.reuse.scope, block), fields);
}

static bool same_namespace(const struct ticket *ticket, int32_t a, int32_t b)
{
    const struct prefix_scope *scope = &ticket->prototype.reuse.scope;
    return prefix_scope_at(scope, a) == prefix_scope_at(scope, b);
}

static void gather_find(pkv_cache *cache, int32_t index, struct transfer *transfer)
{
    struct offload *offload = &cache->offload;
    struct ticket *ticket = &offload->tickets.at[index];
    const struct ticket_rows rows = ticket_rows(&offload->tickets, index);
    const int32_t num_groups = cache->config.num_groups;
    const uint32_t tiers = offload_tiers(offload) & ~offload_suspended(offload);
    transfer_begin(transfer, TRANSFER_FIND, NULL, 0);
    transfer->ticket = index;
    while (ticket->at < ticket->num_blocks * num_groups && transfer->count < TRANSFER_MAX_NAMES) {
        const int32_t at = ticket->at++;
        const int32_t block = at / num_groups;
        char name[PKV_MAX_TIER_NAME + 1];
        if (rows.places[at] == 0 && tiers != 0) {
            record_name(
                events_namespace_key(cache->reuse.index,
                                     prefix_scope_at(&ticket->prototype.reuse.scope, block)),
                rows.keys[block], at % num_groups, name);
            (void)transfer_add(transfer, name, tiers, at);
        }
    }
}

/* Extras that are all 0 are none: a node has none then. */
static bool has_extra(const struct pkv_prompt *tokens)
{
    uint64_t any = 0;
    for (int32_t i = 0; tokens->token_extra != NULL && i < tokens->num_tokens; i++) {
        any |= tokens->token_extra[i];
    }
    return any != 0;
}

static struct source source_of(const pkv_cache *cache, int32_t index, int32_t at,
                               struct pkv_namespace_field *fields)
{
    const struct offload *offload = &cache->offload;
    const struct ticket *ticket = &offload->tickets.at[index];
    const struct ticket_rows rows = ticket_rows(&offload->tickets, index);
    const int32_t block = at / cache->config.num_groups;
    const int32_t group = at % cache->config.num_groups;
    const struct pkv_prompt tokens =
        seq_tokens_at(&offload->tickets.tokens, index, &ticket->tokens,
                      block * cache->reuse.block_size, cache->reuse.block_size);
    return (struct source){
        .record = {.fingerprint = cache->reuse.index->config.fingerprint,
                   .key = rows.keys[block],
                   .parent = block > 0 ? rows.keys[block - 1] : (struct pkv_block_key){0},
                   .depth = block,
                   .group = group,
                   .block_size = cache->reuse.block_size,
                   .num_fields = fields_of(cache, ticket, block, fields),
                   .fields = fields,
                   .payload_bytes = page_store_block_bytes(cache->groups[group].blocks.pages),
                   .tokens = tokens.token_ids,
                   .extra = has_extra(&tokens) ? tokens.token_extra : NULL},
        .of_namespace = events_namespace_key(
            cache->reuse.index, prefix_scope_at(&ticket->prototype.reuse.scope, block)),
        .block = rows.held[at],
    };
}

static bool is_to_load(const struct ticket_rows *rows, int32_t at)
{
    return (rows->places[at] & PLACE_TIERS) != 0 && (rows->places[at] & ~PLACE_TIERS) == 0;
}

static void gather_load(pkv_cache *cache, int32_t index, struct transfer *transfer)
{
    struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS];
    struct offload *offload = &cache->offload;
    struct ticket *ticket = &offload->tickets.at[index];
    const struct ticket_rows rows = ticket_rows(&offload->tickets, index);
    const int32_t num_groups = cache->config.num_groups;
    const uint32_t suspended = offload_suspended(offload);
    int32_t first = -1;
    for (; ticket->at < ticket->num_held * num_groups; ticket->at++) {
        const int32_t block = ticket->at / num_groups;
        if (!is_to_load(&rows, ticket->at)) {
            continue;
        }
        const struct source source = source_of(cache, index, ticket->at, fields);
        if (first < 0) {
            transfer_begin(transfer, TRANSFER_LOAD, fields, source.record.num_fields);
            transfer->ticket = index;
            first = block;
        }
        if (!same_namespace(ticket, first, block) ||
            !transfer_has_room(transfer, source.record.payload_bytes)) {
            return;
        }
        add_block(cache, transfer, &source, rows.places[ticket->at] & PLACE_TIERS & ~suspended,
                  ticket->at);
    }
    if (first < 0) {
        transfer_begin(transfer, TRANSFER_LOAD, NULL, 0);
        transfer->ticket = index;
    }
}

/* A ticket for which a worker can do something: find on alone, or load what no other has begun. */
static bool is_waiting(const pkv_cache *cache, const struct ticket *ticket)
{
    const bool is_alone = ticket->num_workers == 0;
    if (!ticket->is_used || !ticket->is_open || ticket->is_ready) {
        return false;
    }
    return (ticket->state == PKV_TICKET_FINDING && is_alone) ||
           (ticket->state == PKV_TICKET_LOADING &&
            (is_alone || ticket->at < ticket->num_held * cache->config.num_groups));
}

/* The ticket that was begun first. */
static int32_t next_ticket(const pkv_cache *cache)
{
    const struct offload *offload = &cache->offload;
    int32_t best = NO_TICKET;
    for (int32_t i = 0; offload->tickets.num_open > 0 && i < offload->tickets.capacity; i++) {
        const struct ticket *ticket = &offload->tickets.at[i];
        if (is_waiting(cache, ticket) &&
            (best == NO_TICKET || ticket->number < offload->tickets.at[best].number)) {
            best = i;
        }
    }
    return best;
}

static bool gather_ticket(pkv_cache *cache, struct transfer *transfer)
{
    const int32_t index = next_ticket(cache);
    if (index == NO_TICKET) {
        return false;
    }
    struct ticket *ticket = &cache->offload.tickets.at[index];
    ticket->num_workers++;
    if (ticket->state == PKV_TICKET_FINDING) {
        gather_find(cache, index, transfer);
    } else {
        gather_load(cache, index, transfer);
    }
    return true;
}

/* Must every hit beyond this block have it, in this group? */
static bool is_needed(const pkv_cache *cache, const struct ticket *ticket, int32_t block,
                      int32_t group)
{
    const struct group *of = &cache->groups[group];
    return of->config->sliding_window == 0 ||
           (int64_t)block * of->config->block_size < group_kept_prefix(of, &ticket->prototype);
}

static void note_find(pkv_cache *cache, const struct transfer *transfer)
{
    struct offload *offload = &cache->offload;
    struct ticket *ticket = &offload->tickets.at[transfer->ticket];
    const struct ticket_rows rows = ticket_rows(&offload->tickets, transfer->ticket);
    const int32_t num_groups = cache->config.num_groups;
    for (int32_t i = 0; i < transfer->count; i++) {
        const int32_t at = transfer->entries[i];
        for (int32_t t = 0; t < offload->num_tiers; t++) {
            const uint8_t result = transfer->results[i][t];
            rows.places[at] |= (uint8_t)((result == TRANSFER_DONE) << t);
            offload->stats[t].missed_blocks += result == TRANSFER_MISSED;
            offload->stats[t].failed_loads += result == TRANSFER_FAILED;
            if (result == TRANSFER_FAILED && ticket->status == PKV_OK) {
                ticket->status = PKV_IO;
            }
        }
    }
    for (int32_t at = 0; at < ticket->at; at++) {
        if (rows.places[at] == 0 && is_needed(cache, ticket, at / num_groups, at % num_groups)) {
            ticket->num_blocks = at / num_groups;
            break;
        }
    }
    ticket->is_ready = ticket->at >= ticket->num_blocks * num_groups;
}

static void note_loaded(struct offload *offload, struct ticket *ticket, int32_t t, uint8_t result,
                        const struct transfer_block *block)
{
    struct pkv_tier_stats *stats = &offload->stats[t];
    stats->loaded_blocks += result == TRANSFER_DONE;
    stats->loaded_bytes += result == TRANSFER_DONE ? block->head_bytes + block->payload_bytes : 0;
    stats->missed_blocks += result == TRANSFER_MISSED;
    stats->void_blocks += result == TRANSFER_VOID;
    stats->collisions += result == TRANSFER_OTHER;
    stats->corrupt_blocks += result == TRANSFER_CORRUPT;
    stats->failed_loads += result == TRANSFER_FAILED;
    if (ticket->status == PKV_OK && (result == TRANSFER_CORRUPT || result == TRANSFER_FAILED)) {
        ticket->status = result == TRANSFER_CORRUPT ? PKV_CORRUPT : PKV_IO;
    }
}

static void note_load(pkv_cache *cache, const struct transfer *transfer)
{
    struct offload *offload = &cache->offload;
    struct ticket *ticket = &offload->tickets.at[transfer->ticket];
    const struct ticket_rows rows = ticket_rows(&offload->tickets, transfer->ticket);
    for (int32_t i = 0; i < transfer->count; i++) {
        uint8_t *place = &rows.places[transfer->entries[i]];
        bool is_loaded = false;
        for (int32_t t = 0; t < offload->num_tiers; t++) {
            note_loaded(offload, ticket, t, transfer->results[i][t], &transfer->blocks[i]);
            is_loaded = is_loaded || transfer->results[i][t] == TRANSFER_DONE;
        }
        *place |= is_loaded ? PLACE_LOADED : PLACE_LOST;
    }
    ticket->is_ready =
        ticket->num_workers == 0 && ticket->at >= ticket->num_held * cache->config.num_groups;
}

/* ---- stores */

static struct source source_of_node(const pkv_cache *cache, const struct store *store,
                                    struct pkv_namespace_field *fields)
{
    const struct prefix_index *index = cache->reuse.index;
    const struct prefix_node *node = prefix_index_node(index, store->node);
    const struct event_keys keys = events_keys(index, store->node);
    const pkv_pages *pages = cache->groups[store->group].blocks.pages;
    return (struct source){
        .record = {.fingerprint = index->config.fingerprint,
                   .key = keys.key,
                   .parent = keys.parent,
                   .depth = keys.depth,
                   .group = store->group,
                   .block_size = cache->reuse.block_size,
                   .num_fields = prefix_index_fields(index, node->namespace_id, fields),
                   .fields = fields,
                   .payload_bytes = page_store_block_bytes(pages),
                   .tokens = prefix_index_tokens(index, store->node),
                   .extra = prefix_index_extra(index, store->node)},
        .of_namespace = keys.of_namespace,
        .block = store->block,
    };
}

/* Is it still what its node holds? Not after a flush, and not when another sequence than the one
 * that queued it has uncached it. */
static bool is_current(const pkv_cache *cache, const struct store *store)
{
    return prefix_index_is_live(cache->reuse.index, store->node) &&
           prefix_index_block(cache->reuse.index, store->node, store->group) == store->block;
}

static bool gather_stores(pkv_cache *cache, struct transfer *transfer)
{
    struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS];
    struct offload *offload = &cache->offload;
    const uint32_t suspended = offload_suspended(offload);
    int32_t namespace_id = PREFIX_NONE;
    transfer->count = 0;
    for (int32_t index = store_queue_peek(&offload->stores); index != NO_STORE;
         index = store_queue_peek(&offload->stores)) {
        const struct store *store = &offload->stores.at[index];
        const uint32_t tiers = store->tiers & ~suspended;
        if (tiers == 0 || !is_current(cache, store)) {
            store_queue_finish(&offload->stores, store_queue_take(&offload->stores), 0);
            continue;
        }
        const struct source source = source_of_node(cache, store, fields);
        const int32_t own = prefix_index_node(cache->reuse.index, store->node)->namespace_id;
        if (transfer->count == 0) {
            transfer_begin(transfer, TRANSFER_STORE, fields, source.record.num_fields);
            namespace_id = own;
        }
        if (own != namespace_id || !transfer_has_room(transfer, source.record.payload_bytes)) {
            break;
        }
        add_block(cache, transfer, &source, tiers, store_queue_take(&offload->stores));
    }
    return transfer->count > 0;
}

static void note_stores(struct offload *offload, const struct transfer *transfer)
{
    for (int32_t i = 0; i < transfer->count; i++) {
        uint32_t stored = 0;
        const struct transfer_block *block = &transfer->blocks[i];
        for (int32_t t = 0; t < offload->num_tiers; t++) {
            const bool is_stored = transfer->results[i][t] == TRANSFER_DONE;
            stored |= (uint32_t)is_stored << t;
            offload->stats[t].stored_blocks += is_stored;
            offload->stats[t].stored_bytes +=
                is_stored ? block->head_bytes + block->payload_bytes : 0;
            offload->stats[t].failed_stores += transfer->results[i][t] == TRANSFER_FAILED;
        }
        store_queue_finish(&offload->stores, transfer->entries[i], stored);
    }
}

/* ---- all */

bool gather_next(pkv_cache *cache, struct transfer *transfer)
{
    const bool has_work = has_raise(&cache->offload)
                              ? gather_raise(cache, transfer)
                              : gather_ticket(cache, transfer) || gather_stores(cache, transfer);
    cache->offload.num_running += has_work;
    return has_work;
}

void gather_note(pkv_cache *cache, const struct transfer *transfer)
{
    struct offload *offload = &cache->offload;
    offload->num_running--;
    if (transfer->kind == TRANSFER_FIND || transfer->kind == TRANSFER_LOAD) {
        offload->tickets.at[transfer->ticket].num_workers--;
    }
    switch (transfer->kind) {
    case TRANSFER_RAISE: note_raise(offload, transfer); break;
    case TRANSFER_FIND: note_find(cache, transfer); break;
    case TRANSFER_LOAD: note_load(cache, transfer); break;
    case TRANSFER_STORE: note_stores(offload, transfer); break;
    }
}

bool gather_is_idle(const pkv_cache *cache)
{
    const struct offload *offload = &cache->offload;
    return offload->num_running == 0 && offload->num_raises == 0 &&
           store_queue_peek(&offload->stores) == NO_STORE && next_ticket(cache) == NO_TICKET;
}
