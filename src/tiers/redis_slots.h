/* SPDX-License-Identifier: MIT
 *
 * redis_slots.h: how a cluster divides its keys: each key is in one of 16384 slots, each slot on
 * one node. Pure functions on what a server answers: nothing here does I/O. A table is filled while
 * the reply to CLUSTER SLOTS is read; what is malformed in it leaves slots without a node. */
#ifndef PKV_TIERS_REDIS_SLOTS_H
#define PKV_TIERS_REDIS_SLOTS_H

#include "tiers/redis_address.h"
#include "tiers/redis_value.h"

#define REDIS_NUM_SLOTS 16384
#define REDIS_MAX_NODES 128

struct redis_slots {
    /* An index of nodes; -1 for a slot that no node has. */
    int16_t node_of[REDIS_NUM_SLOTS];
    /* An empty host stands for that of the node that was asked. */
    struct redis_address nodes[REDIS_MAX_NODES];
    int32_t num_nodes;
    /* Of the range that is being read: first and last slot, and the host of its node. */
    int64_t range[2];
    struct redis_address reading;
    bool has_host;
};

/* "MOVED 3999 10.0.0.1:6381" and "ASK 3999 10.0.0.1:6381". */
struct redis_slots_redirect {
    bool is_ask;
    int32_t slot;
    struct redis_address address;
};

/* The slot of a key: CRC-16/XMODEM of it, or of what is in its first {}, when that is not empty. */
int32_t redis_slots_of(const char *key, size_t length);

/* Without any node. */
void redis_slots_clear(struct redis_slots *slots);

/* The next value of the reply to CLUSTER SLOTS; false when that is no such reply. */
bool redis_slots_read(struct redis_slots *slots, const struct redis_value *value);

/* Reads an error; false when it is no redirection. */
bool redis_slots_redirected(const char *error, size_t length,
                            struct redis_slots_redirect *redirect);

#endif
