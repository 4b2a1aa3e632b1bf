/* SPDX-License-Identifier: MIT
 *
 * connection.h: one HTTP request, from its headers to the last byte of its answer. */
#ifndef SERVER_CONNECTION_H
#define SERVER_CONNECTION_H

#include "engine.h"
#include "reply.h"
#include "watch.h"

#include <microhttpd.h>

/* What all connections share. Constant, except that requests are numbered. */
struct service {
    const struct language_model *lm;
    struct engine *engine;
    struct watch *watch;
    size_t max_body_bytes;
    int32_t timeout_seconds;
    int64_t started;  /* seconds since 1970 */
    double bandwidth; /* bytes a second that this machine reads */
    uint64_t next_id;
};

struct connection;
typedef enum MHD_Result connection_answer(struct connection *connection);

struct connection {
    struct service *service;
    struct MHD_Connection *mhd;
    connection_answer *answer; /* called when the body is there, and when it is resumed */
    struct watched watched;

    char *body;
    size_t num_body, num_dropped;

    struct job *job; /* NULL until a completion was parsed and taken */
    bool stream, include_usage;
    struct reply reply;
    struct reply_whole whole;    /* not streamed */
    bool has_begun[MAX_CHOICES]; /* streamed */
    char *out;                   /* the event on its way, [num_out] of which at_out is next */
    size_t num_out, at_out;
    int after; /* events behind the last piece that were made */
};

struct connection *connection_create(struct service *service, struct MHD_Connection *mhd,
                                     connection_answer *answer);
void connection_free(struct connection *connection);

/* Refuses a body that its header says is too large before it is sent, if the client waits for that
 * or the body is not worth reading. A client that does not wait would miss an early answer. */
enum MHD_Result connection_begin(struct connection *connection);

/* Keeps a part of the body; of one that is too large, nothing. */
enum MHD_Result connection_receive(struct connection *connection, const char *data,
                                   size_t num_bytes);

/* Answers with a text, which is taken over; NULL: memory was short. */
enum MHD_Result connection_text(struct connection *connection, unsigned status, const char *type,
                                char *text);
enum MHD_Result connection_static(struct connection *connection, const char *type,
                                  const char *bytes, size_t num_bytes);
enum MHD_Result connection_refuse(struct connection *connection, const struct api_error *error);

connection_answer connection_complete;
connection_answer connection_chat;

#endif
