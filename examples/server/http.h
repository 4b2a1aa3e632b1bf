/* SPDX-License-Identifier: MIT
 *
 * http.h: the server's side of HTTP, on libmicrohttpd: one thread serves all connections, and a
 * second looks whether clients that wait for tokens are still there.
 *
 *     POST /v1/completions, /v1/chat/completions      api.h, streamed or whole
 *     GET  /v1/models  /health  /metrics              metrics in the Prometheus text format
 *     GET  /  /status                                 the live page and its figures
 *
 * The header X-Tenant names whose request it is: prefixes are shared within a tenant alone. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include "engine.h"
#include "language_model.h"

struct http_options {
    const char *address; /* numeric, IPv4 */
    int32_t port;        /* 0 = one that is free */
    int32_t max_connections;
    int32_t max_body_bytes;
    int32_t timeout_seconds; /* of a connection that sends or takes nothing */
};

struct http;

/* Starts serving. The model and the engine outlive it. Complains when it fails. */
bool http_start(const struct language_model *lm, struct engine *engine,
                const struct http_options *options, struct http **http);

/* The port that it listens on. */
int32_t http_port(const struct http *http);

/* Takes no more connections. Requests in flight end when the engine stops: call it next, and then
 * http_stop. */
void http_quiesce(struct http *http);
void http_stop(struct http *http);

#endif
