/* SPDX-License-Identifier: MIT
 *
 * redis_connection.h: one connection to a server: the library's one use of hiredis, which connects
 * and parses replies. Nothing here waits, except for the resolver of host names: who owns
 * connections polls their sockets. Values are sent from where they lie, by calls that raise no
 * SIGPIPE. A connection is used by one thread at a time. */
#ifndef PKV_TIERS_REDIS_CONNECTION_H
#define PKV_TIERS_REDIS_CONNECTION_H

#include "pagedkv/base.h"
#include "tiers/redis_address.h"
#include "tiers/redis_input.h"
#include "tiers/redis_value.h"

/* Bytes of a key, a user's name and a password, each without its NUL. */
#define REDIS_MAX_KEY 255
#define REDIS_MAX_USER 255
#define REDIS_MAX_PASSWORD 4095

struct redis_connection;

/* What a new connection says first. */
struct redis_connection_login {
    char user[REDIS_MAX_USER + 1];         /* "": the default user */
    char password[REDIS_MAX_PASSWORD + 1]; /* "": no AUTH */
    int32_t database;
};

/* head [1..3] value tail [0 or 2]: NULL ends head and tail. */
struct redis_connection_command {
    const char *head[3];
    bool has_value;
    const struct pkv_piece *pieces;
    int32_t num_pieces;
    size_t bytes;
    const char *tail[2];
};

/* Who hears replies, in the order of the commands. */
struct redis_connection_listener {
    void *context;
    /* The most bytes that the next reply may have; 0 when none is expected. */
    size_t (*limit)(void *context);
    /* Where the text of the next reply goes, without being told, if it has as many bytes as
     * there is place for; false when it goes nowhere. NULL = none does. */
    bool (*place)(void *context, struct redis_input_place *place);
    /* Part of a reply; false when it cannot be: the connection is broken then. */
    bool (*value)(void *context, const struct redis_value *value);
    /* The reply is complete. */
    void (*end)(void *context);
};

enum redis_connection_state {
    REDIS_CONNECTION_OPEN,
    REDIS_CONNECTION_BROKEN,
    /* The text that comes is longer than the reply may be. */
    REDIS_CONNECTION_TOO_LONG,
};

/* Begins to connect. NULL when that fails at once. */
struct redis_connection *redis_connection_open(const struct redis_address *address,
                                               const struct redis_connection_login *login);
void redis_connection_close(struct redis_connection *connection);

/* Is an idle connection still open? A server that closed it, or says something, has ended it. */
bool redis_connection_is_quiet(const struct redis_connection *connection);

/* Is it connected and logged in? Only then it takes commands. */
bool redis_connection_is_ready(const struct redis_connection *connection);

/* For poll(). */
int redis_connection_socket(const struct redis_connection *connection);
short redis_connection_events(const struct redis_connection *connection);

/* Queues a command, whose pieces stay until it was answered; false when others have to be sent
 * first. */
bool redis_connection_append(struct redis_connection *connection,
                             const struct redis_connection_command *command);

/* Sends and receives what can be without waiting. *moved counts bytes. */
enum redis_connection_state redis_connection_run(struct redis_connection *connection, short events,
                                                 const struct redis_connection_listener *listener,
                                                 size_t *moved);

#endif
