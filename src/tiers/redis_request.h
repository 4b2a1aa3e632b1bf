/* SPDX-License-Identifier: MIT
 *
 * redis_request.h: what is asked about one key, as a command, and what a reply to it means. */
#ifndef PKV_TIERS_REDIS_REQUEST_H
#define PKV_TIERS_REDIS_REQUEST_H

#include "pagedkv/base.h"
#include "tiers/redis_connection.h"

/* The largest value of a server: 512 MiB. */
#define REDIS_MAX_VALUE ((size_t)512 << 20)

enum redis_request_verb {
    REDIS_PUT,
    REDIS_GET,
    REDIS_FIND,
    REDIS_REMOVE,
    REDIS_ADD,
    REDIS_READ,
};

enum redis_request_state {
    REDIS_REQUEST_PENDING,  /* to be sent, perhaps again */
    REDIS_REQUEST_ASKING,   /* to be sent to the node that a slot moves to */
    REDIS_REQUEST_ANSWERED, /* status is final */
};

struct redis_request {
    char key[REDIS_MAX_KEY + 1];
    enum redis_request_verb verb;
    enum redis_request_state state;
    enum pkv_status status;
    /* Of a value. */
    const struct pkv_piece *pieces;
    int32_t num_pieces;
    size_t bytes;
    /* Added to a counter, then what it is. */
    uint64_t number;
    /* Where it goes: a node, in which it is the one before `next`. */
    int32_t slot;
    int32_t node;
    struct redis_request *next;
    /* A reply that says no more than that the node was told ASKING is still to come. */
    bool has_asked;
};

/* What an answer means for the rest of its connection. */
enum redis_request_verdict {
    REDIS_REQUEST_GO_ON,
    REDIS_REQUEST_STOP,  /* the server refuses what is written: do not send more of it */
    REDIS_REQUEST_BREAK, /* no such reply can be, or the server refuses all */
};

/* ttl: text of seconds, or NULL. number: 24 bytes that live as long as the command is used. */
struct redis_connection_command redis_request_command(const struct redis_request *request,
                                                      const char *ttl, char *number);

/* Bytes of the longest right reply, and of what the command and its reply take in buffers. */
size_t redis_request_limit(const struct redis_request *request);
size_t redis_request_weight(const struct redis_request *request);

/* Takes the reply and writes the status. */
enum redis_request_verdict redis_request_answer(struct redis_request *request,
                                                const struct redis_value *value);

/* Ends a request. */
void redis_request_end(struct redis_request *request, enum pkv_status status);

#endif
