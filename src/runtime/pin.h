/* SPDX-License-Identifier: MIT
 *
 * pin.h: the records of pins: cached prefixes that are held so that they are not evicted. A pin
 * records the last node of its prefix and what its holder would see of it; both say which blocks it
 * holds, so it needs no list. The mutex is held. */
#ifndef PKV_RUNTIME_PIN_H
#define PKV_RUNTIME_PIN_H

#include "pagedkv/prefix.h"
#include "runtime/group.h"
#include "runtime/state_group.h"

/* Nodes 0 .. num_nodes - 1 of the prefix are leaf and its ancestors; which of their blocks the pin
 * holds follows from kept_prefix and max_rewind. */
struct pin {
    uint64_t generation;
    struct prefix_ref leaf; /* held */
    int32_t num_nodes;      /* 0: this record is free */
    int32_t kept_prefix;    /* -1: each group's own */
    int32_t max_rewind;
    int32_t next_free;
    uint64_t ends_ns; /* UINT64_MAX: never by itself */
};

/* All records. context has the index and the clock.
 *
 *   num_used + length of the list that begins at first_free = capacity */
struct pin_records {
    struct block_context *context;
    struct group *groups;
    int32_t num_groups;
    struct state_group *states; /* of these a pin holds the snapshot of its leaf */
    int32_t num_states;
    struct pin *at; /* [capacity] */
    int32_t capacity;
    int32_t first_free; /* NO_PIN: all are used */
    int32_t num_used;
    uint64_t soonest_ns; /* no pin ends before */
};

#define NO_PIN (-1)

/* All records, of which the array is there, are free. */
void pin_init(struct pin_records *pins, int32_t capacity, uint64_t first_generation);

/* Pins the first num_nodes nodes, for what a sequence like `prototype` sees. There must be a free
 * record, and each node must have the blocks. O(blocks). */
pkv_pin pin_start(struct pin_records *pins, const struct prefix_ref *nodes, int32_t num_nodes,
                  const struct seq *prototype, uint64_t ends_ns);

/* Ends a pin, last block first, like a sequence. O(blocks). */
void pin_end(struct pin_records *pins, int32_t index);

/* Moves the end of a pin. O(pins). */
void pin_extend(struct pin_records *pins, int32_t index, uint64_t ends_ns);

/* Moves the clock, and ends the pins whose time is up; now_ns 0 is no time, UINT64_MAX ends all.
 * O(1) when none ends, else O(pins). Returns how many. */
int32_t pin_expire(struct pin_records *pins, uint64_t now_ns);

/* Ends the pins whose prefix was flushed. O(pins). */
void pin_end_flushed(struct pin_records *pins);

/* The index of a live pin; NO_PIN for a stale handle. */
int32_t pin_find(const struct pin_records *pins, pkv_pin pin);

/* Does this pin, which is in use, hold the group's block of node i of its prefix? */
bool pin_maps(const struct group *group, const struct pin *pin, int32_t i);

/* Blocks by which pinning num_nodes nodes would pass `capacity`, which bounds the pinned blocks of
 * each group as well, in the worst group; 0 when it would not. O(blocks). */
int32_t pin_excess(const struct pin_records *pins, const struct prefix_ref *nodes,
                   int32_t num_nodes, const struct seq *prototype);

#endif
