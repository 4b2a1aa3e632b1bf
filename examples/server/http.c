/* SPDX-License-Identifier: MIT
 *
 * http.c: connections, and what each route answers.
 *
 * A connection that waits for tokens is suspended: libmicrohttpd leaves it alone until the engine's
 * thread resumes it (job.h), and the watch sees when its client goes. Everything else of a
 * connection is touched by libmicrohttpd's thread alone. */
#include "http.h"

#include "bandwidth.h"
#include "connection.h"
#include "page.h"
#include "reply.h"
#include "report.h"
#include "status.h"
#include "watch.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STOP_WAIT_MS = 2000, STOP_LOOK_MS = 20 };

static enum MHD_Result not_found(struct connection *c)
{
    struct api_error error;
    api_refuse(&error, MHD_HTTP_NOT_FOUND, NULL, "there is nothing at this path");
    return connection_refuse(c, &error);
}

static enum MHD_Result get_health(struct connection *c)
{
    return connection_text(c, MHD_HTTP_OK, "application/json", strdup("{\"status\":\"ok\"}"));
}

static enum MHD_Result get_models(struct connection *c)
{
    return connection_text(c, MHD_HTTP_OK, "application/json",
                           reply_models(c->service->lm->name, c->service->started));
}

static enum MHD_Result get_page(struct connection *c)
{
    return connection_static(c, "text/html; charset=utf-8", page_html, page_html_bytes());
}

static enum MHD_Result get_status(struct connection *c)
{
    return connection_text(c, MHD_HTTP_OK, "application/json",
                           status_json(c->service->lm, c->service->engine, c->service->bandwidth));
}

/* ---- metrics -------------------------------------------------------------------------------- */

struct text {
    char *bytes;
    size_t length, capacity;
};

static bool append(void *context, const char *bytes, size_t length)
{
    struct text *text = context;
    if (text->length + length + 1 > text->capacity) {
        const size_t capacity = 2 * (text->length + length + 1);
        char *moved = realloc(text->bytes, capacity);
        if (moved == NULL) {
            return false;
        }
        text->bytes = moved;
        text->capacity = capacity;
    }
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
    return true;
}

static bool append_counter(struct text *text, const char *name, const char *type, const char *help,
                           double value)
{
    char line[256];
    const int length = snprintf(line, sizeof line, "# HELP %s %s\n# TYPE %s %s\n%s %.17g\n", name,
                                help, name, type, name, value);
    return append(text, line, (size_t)length);
}

static bool append_engine(struct text *text, struct engine *engine)
{
    struct engine_state s;
    engine_state(engine, &s);
    return append_counter(text, "server_requests_done_total", "counter",
                          "Requests that reached their end.", (double)s.num_done) &&
           append_counter(text, "server_requests_cancelled_total", "counter",
                          "Requests whose client left.", (double)s.num_cancelled) &&
           append_counter(text, "server_requests_failed_total", "counter",
                          "Requests that the server ended.", (double)s.num_failed) &&
           append_counter(text, "server_requests_waiting", "gauge", "Requests that wait for room.",
                          s.num_waiting) &&
           append_counter(text, "server_choices_running", "gauge", "Choices in the batch.",
                          s.num_running) &&
           append_counter(text, "server_generated_tokens_total", "counter",
                          "Tokens chosen for clients.", (double)s.num_generated) &&
           append_counter(text, "server_computed_tokens_total", "counter",
                          "Tokens that went through the model.", (double)s.num_computed) &&
           append_counter(text, "server_preemptions_total", "counter",
                          "Choices that gave their blocks back.", (double)s.num_preemptions) &&
           append_counter(text, "server_drafted_tokens_total", "counter",
                          "Drafts that were verified.", (double)s.num_drafted) &&
           append_counter(text, "server_accepted_tokens_total", "counter", "Drafts that were kept.",
                          (double)s.num_accepted);
}

static enum MHD_Result get_metrics(struct connection *c)
{
    struct text text = {0};
    const bool ok = pkv_metrics_write(engine_cache(c->service->engine), append, &text) == PKV_OK &&
                    append_engine(&text, c->service->engine);
    if (!ok) {
        free(text.bytes);
        text.bytes = NULL;
    }
    return connection_text(c, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", text.bytes);
}

/* ---- routes --------------------------------------------------------------------------------- */

struct route {
    const char *method, *path;
    enum MHD_Result (*answer)(struct connection *c);
};

static const struct route routes[] = {
    {"GET", "/", get_page},
    {"GET", "/health", get_health},
    {"GET", "/metrics", get_metrics},
    {"GET", "/status", get_status},
    {"GET", "/v1/models", get_models},
    {"POST", "/v1/completions", connection_complete},
    {"POST", "/v1/chat/completions", connection_chat},
};

static enum MHD_Result wrong_method(struct connection *c)
{
    struct api_error error;
    api_refuse(&error, MHD_HTTP_METHOD_NOT_ALLOWED, NULL, "this path takes another method");
    return connection_refuse(c, &error);
}

static connection_answer *find_route(const char *method, const char *path)
{
    connection_answer *found = not_found;
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (strcmp(path, routes[i].path) != 0) {
            continue;
        }
        if (strcmp(method, routes[i].method) == 0 ||
            (strcmp(method, "HEAD") == 0 && strcmp(routes[i].method, "GET") == 0)) {
            return routes[i].answer;
        }
        found = wrong_method;
    }
    return found;
}

/* ---- connections ---------------------------------------------------------------------------- */

/* A request has to be there whole within the timeout, however it trickles; before it, a connection
 * may be idle as long, which libmicrohttpd sees to. */
static double request_seconds(const struct service *service)
{
    return 2.0 * service->timeout_seconds;
}

/* The place in the watch that each connection has, whatever it asks. */
static void connected(void *context, struct MHD_Connection *mhd, void **socket_context,
                      enum MHD_ConnectionNotificationCode code)
{
    const struct service *service = context;
    struct watched *place = *socket_context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (place != NULL) {
            watch_remove(service->watch, place);
            free(place);
        }
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    place = info != NULL ? calloc(1, sizeof *place) : NULL;
    if (place != NULL) {
        place->socket = info->connect_fd;
        watch_add(service->watch, place);
        watch_limit(service->watch, place, request_seconds(service));
    }
    *socket_context = place;
}

/* seconds 0: the request is there. */
static void limit_request(const struct service *service, struct MHD_Connection *mhd, double seconds)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (info != NULL && info->socket_context != NULL) {
        watch_limit(service->watch, info->socket_context, seconds);
    }
}

/* Called once when the headers are there, for each part of the body, and once behind it; and again
 * when a suspended connection is resumed. */
static enum MHD_Result handle(void *service, struct MHD_Connection *mhd, const char *path,
                              const char *method, const char *version, const char *data,
                              size_t *num_bytes, void **context)
{
    (void)version;
    struct connection *c = *context;
    if (c == NULL) {
        c = connection_create(service, mhd, find_route(method, path));
        *context = c;
        return c == NULL ? MHD_NO : connection_begin(c);
    }
    if (*num_bytes > 0) {
        const enum MHD_Result result = connection_receive(c, data, *num_bytes);
        *num_bytes = 0;
        return result;
    }
    limit_request(service, mhd, 0);
    return c->answer(c);
}

static void completed(void *service, struct MHD_Connection *mhd, void **context,
                      enum MHD_RequestTerminationCode code)
{
    (void)code;
    if (*context != NULL) {
        connection_free(*context);
        *context = NULL;
    }
    limit_request(service, mhd, request_seconds(service));
}

/* ---- start and stop ------------------------------------------------------------------------- */

struct http {
    struct service service;
    struct MHD_Daemon *daemon;
    int listening; /* after http_quiesce, to be closed */
};

/* libmicrohttpd's own messages are about clients that break off: not worth a line. */
static void no_log(void *context, const char *format, va_list arguments)
{
    (void)context;
    (void)format;
    (void)arguments;
}

/* Paths are compared as they were sent: none has a character that would be escaped. */
static size_t leave_escaped(void *context, struct MHD_Connection *mhd, char *text)
{
    (void)context;
    (void)mhd;
    return strlen(text);
}

static struct MHD_Daemon *start_daemon(struct http *http, const struct http_options *options)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)options->port)};
    if (inet_pton(AF_INET, options->address, &address.sin_addr) != 1) {
        complain("%s is no IPv4 address", options->address);
        return NULL;
    }
    return MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
        handle, &http->service, MHD_OPTION_EXTERNAL_LOGGER, no_log, NULL, MHD_OPTION_SOCK_ADDR,
        (struct sockaddr *)&address, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)options->max_connections, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)options->timeout_seconds, MHD_OPTION_NOTIFY_COMPLETED, completed, &http->service,
        MHD_OPTION_NOTIFY_CONNECTION, connected, &http->service, MHD_OPTION_UNESCAPE_CALLBACK,
        leave_escaped, NULL, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
}

bool http_start(const struct language_model *lm, struct engine *engine,
                const struct http_options *options, struct http **http)
{
    struct http *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return complain("out of memory");
    }
    made->listening = -1;
    made->service = (struct service){
        .lm = lm,
        .engine = engine,
        .max_body_bytes = (size_t)options->max_body_bytes,
        .timeout_seconds = options->timeout_seconds,
        .started = (int64_t)time(NULL),
        .bandwidth = bandwidth_measure(),
    };
    if (!watch_start(&made->service.watch)) {
        free(made);
        return false;
    }
    made->daemon = start_daemon(made, options);
    if (made->daemon == NULL) {
        watch_stop(made->service.watch);
        free(made);
        return complain("cannot listen on %s port %d", options->address, options->port);
    }
    *http = made;
    return true;
}

int32_t http_port(const struct http *http)
{
    return MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
}

void http_quiesce(struct http *http)
{
    http->listening = MHD_quiesce_daemon(http->daemon);
}

/* Answers that are on their way get a moment. */
void http_stop(struct http *http)
{
    for (int waited = 0; waited < STOP_WAIT_MS; waited += STOP_LOOK_MS) {
        if (MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)
                ->num_connections == 0) {
            break;
        }
        nanosleep(&(struct timespec){.tv_nsec = STOP_LOOK_MS * 1000000L}, NULL);
    }
    MHD_stop_daemon(http->daemon);
    if (http->listening >= 0) {
        close(http->listening);
    }
    watch_stop(http->service.watch);
    free(http);
}
