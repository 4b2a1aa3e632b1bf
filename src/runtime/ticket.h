/* SPDX-License-Identifier: MIT
 *
 * ticket.h: the records of tickets: what a prefetch wants, what it has found of it and what it
 * holds. A worker that has a ticket (num_workers) reads into the blocks that it holds: until that
 * has ended, the record and they stay. The mutex is held. O(1) but for what a declaration says. */
#ifndef PKV_RUNTIME_TICKET_H
#define PKV_RUNTIME_TICKET_H

#include "pagedkv/offload.h"
#include "runtime/group.h"

/* In a prefetch's row of places, entry by entry and group by group: the tiers that have the block
 * (bit t), or what became of it. */
#define PLACE_CACHED 0x10 /* the cache had it when the ticket began */
#define PLACE_LOADED 0x20 /* read into the held block; the tiers' bits say from where */
#define PLACE_LOST 0x40   /* could not be read */
#define PLACE_TIERS 0x0f

struct ticket {
    uint64_t generation;
    uint64_t number; /* in the order in which tickets were begun */
    bool is_used;
    bool is_open;        /* its handle is valid; a used one that is not waits for its worker */
    bool is_ready;       /* the workers have done their part of the state that it is in */
    int32_t num_workers; /* that have a part of it at the moment */
    enum pkv_ticket_state state;
    enum pkv_status status;
    int32_t next_free;
    int32_t num_blocks; /* of the prompt that may be brought */
    int32_t num_held;   /* entries of the row of held blocks that may be some */
    int32_t at;         /* the next entry of the rows, groups inside, for a worker */
    int32_t num_cached; /* tokens */
    int32_t num_loaded;
    int32_t tier_loaded[PKV_MAX_TIERS];
    int32_t num_stored;
    int32_t num_left;
    uint64_t begun_ns;
    struct prefix_ref leaf; /* held: what was matched, or the root */
    struct seq_tokens tokens;
    struct seq prototype; /* options, namespaces, epoch */
};

/* All records, and the rows of each: reserved address space.
 *
 *   num_used = records in use,  num_open <= num_used of them */
struct ticket_records {
    struct ticket *at; /* [capacity] */
    int32_t capacity;
    int32_t first_free;
    int32_t num_used;
    int32_t num_open;
    uint64_t num_begun;
    int32_t max_blocks;
    int32_t num_groups;
    struct seq_tokens_rows tokens;
    void *rows; /* [capacity + 1] of row_bytes: those of each ticket, and scratch of a probe */
    size_t row_bytes;
    size_t bytes;
};

/* Bytes of the rows; false when they overflow. */
bool ticket_size(const struct pkv_cache_config *config, size_t *bytes);

/* Maps the rows; the records are there. PKV_NO_MEMORY; free them in either case. */
enum pkv_status ticket_build(struct ticket_records *tickets, const struct pkv_cache_config *config,
                             uint64_t first_generation, const struct pkv_hooks *hooks);
void ticket_free(struct ticket_records *tickets, const struct pkv_hooks *hooks);

/* Rows of a ticket: keys [max_blocks]; may_end [max_blocks + 1], is a hit of so many blocks none
 * that ends inside a bidirectional range; places and held blocks [max_blocks][num_groups]. */
struct ticket_rows {
    struct pkv_block_key *keys;
    int32_t *held;
    uint8_t *places;
    uint8_t *may_end;
};
struct ticket_rows ticket_rows(const struct ticket_records *tickets, int32_t index);

/* A record for a ticket of this state; NO_TICKET when all are used. Its rows may hold anything. */
int32_t ticket_claim(struct ticket_records *tickets, enum pkv_ticket_state state);
void ticket_release(struct ticket_records *tickets, int32_t index);

pkv_ticket ticket_handle(const struct ticket_records *tickets, int32_t index);

/* The index of an open ticket; NO_TICKET for a stale handle. */
int32_t ticket_find(const struct ticket_records *tickets, pkv_ticket ticket);

#endif
