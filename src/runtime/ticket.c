/* SPDX-License-Identifier: MIT
 *
 * Free records form a stack, linked inside the records. */
#include "runtime/ticket.h"

#include "alloc/mem.h"
#include "base/checked.h"
#include "base/error.h"
#include "runtime/handle.h"
#include "runtime/store_queue.h"

#define ROW_ALIGNMENT 64

static int32_t max_blocks_of(const struct pkv_cache_config *config)
{
    return config_blocks_of_cells(config->max_seq_len, config->groups[0].block_size);
}

/* Of one ticket: keys, held blocks, places, may_end. Its entries are counted in int32_t: false when
 * there are more. */
static bool row_bytes_of(const struct pkv_cache_config *config, size_t *bytes)
{
    const size_t max_blocks = (size_t)max_blocks_of(config) + 1;
    const size_t in_groups =
        (size_t)config->num_groups * (sizeof(int32_t) + sizeof(uint8_t)) + sizeof(uint8_t);
    const bool is_counted = max_blocks <= (size_t)INT32_MAX / (size_t)config->num_groups;
    return is_counted && checked_mul(max_blocks, sizeof(struct pkv_block_key) + in_groups, bytes) &&
           checked_round_up(*bytes, ROW_ALIGNMENT, bytes);
}

bool ticket_size(const struct pkv_cache_config *config, size_t *bytes)
{
    size_t rows = 0;
    return row_bytes_of(config, &rows) &&
           checked_mul(rows, (size_t)config->max_tickets + 1, &rows) &&
           seq_tokens_size(config->max_tickets, config->max_seq_len, bytes) &&
           checked_add(*bytes, rows, bytes);
}

enum pkv_status ticket_build(struct ticket_records *tickets, const struct pkv_cache_config *config,
                             uint64_t first_generation, const struct pkv_hooks *hooks)
{
    tickets->capacity = config->max_tickets;
    tickets->max_blocks = max_blocks_of(config);
    tickets->num_groups = config->num_groups;
    tickets->first_free = NO_TICKET;
    for (int32_t i = tickets->capacity - 1; i >= 0; i--) {
        tickets->at[i].generation = first_generation;
        tickets->at[i].next_free = tickets->first_free;
        tickets->first_free = i;
    }
    if (!row_bytes_of(config, &tickets->row_bytes) ||
        !checked_mul(tickets->row_bytes, (size_t)config->max_tickets + 1, &tickets->bytes)) {
        return INVALID("max_tickets = %d of max_seq_len %d: their tables overflow",
                       config->max_tickets, config->max_seq_len);
    }
    tickets->rows = mem_map_table(hooks, tickets->bytes);
    return tickets->rows != NULL
               ? seq_tokens_map(&tickets->tokens, config->max_tickets, config->max_seq_len, hooks)
               : refuse(PKV_NO_MEMORY, "no memory for %zu bytes of tickets", tickets->bytes);
}

void ticket_free(struct ticket_records *tickets, const struct pkv_hooks *hooks)
{
    seq_tokens_unmap(&tickets->tokens, hooks);
    mem_unmap(hooks, tickets->rows, tickets->bytes, PKV_MAP_TABLES);
}

struct ticket_rows ticket_rows(const struct ticket_records *tickets, int32_t index)
{
    const size_t max_blocks = (size_t)tickets->max_blocks + 1;
    const size_t in_groups = max_blocks * (size_t)tickets->num_groups;
    unsigned char *row = (unsigned char *)tickets->rows + (size_t)index * tickets->row_bytes;
    struct ticket_rows rows = {.keys = (struct pkv_block_key *)(void *)row};
    row += max_blocks * sizeof *rows.keys;
    rows.held = (int32_t *)(void *)row;
    rows.places = row + in_groups * sizeof *rows.held;
    rows.may_end = rows.places + in_groups;
    return rows;
}

int32_t ticket_claim(struct ticket_records *tickets, enum pkv_ticket_state state)
{
    const int32_t index = tickets->first_free;
    if (index == NO_TICKET) {
        return NO_TICKET;
    }
    struct ticket *ticket = &tickets->at[index];
    const uint64_t generation = ticket->generation;
    tickets->first_free = ticket->next_free;
    tickets->num_used++;
    tickets->num_open++;
    *ticket = (struct ticket){.generation = generation,
                              .number = tickets->num_begun++,
                              .is_used = true,
                              .is_open = true,
                              .state = state,
                              .leaf = PREFIX_ROOT};
    return index;
}

void ticket_release(struct ticket_records *tickets, int32_t index)
{
    struct ticket *ticket = &tickets->at[index];
    ticket->is_used = false;
    ticket->generation = handle_next_generation(ticket->generation);
    ticket->next_free = tickets->first_free;
    tickets->first_free = index;
    tickets->num_used--;
}

pkv_ticket ticket_handle(const struct ticket_records *tickets, int32_t index)
{
    return (pkv_ticket){handle_make(tickets->at[index].generation, index)};
}

int32_t ticket_find(const struct ticket_records *tickets, pkv_ticket ticket)
{
    const uint64_t at = ticket.id & HANDLE_INDEX_MASK;
    const bool is_open = at < (uint64_t)tickets->capacity && tickets->at[at].is_open &&
                         ticket_handle(tickets, (int32_t)at).id == ticket.id;
    return is_open ? (int32_t)at : NO_TICKET;
}
