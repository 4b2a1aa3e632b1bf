/* SPDX-License-Identifier: MIT */
#include "connection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/* Of a body that is too large so many times the limit is read, to be able to say so. */
enum { MAX_DROPPED_TIMES = 16, STREAM_BUFFER = 4096 };

struct connection *connection_create(struct service *service, struct MHD_Connection *mhd,
                                     connection_answer *answer)
{
    struct connection *c = calloc(1, sizeof *c);
    if (c != NULL) {
        c->service = service;
        c->mhd = mhd;
        c->answer = answer;
    }
    return c;
}

void connection_free(struct connection *c)
{
    watch_remove(c->service->watch, &c->watched);
    if (c->job != NULL) {
        job_abandon(c->job);
        job_release(c->job);
        engine_notice(c->service->engine);
    }
    reply_drop(&c->whole);
    free(c->out);
    free(c->body);
    free(c);
}

/* ---- answers at once ------------------------------------------------------------------------ */

static enum MHD_Result respond(struct connection *c, unsigned status, const char *type,
                               struct MHD_Response *response)
{
    if (response == NULL) {
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (status == MHD_HTTP_TOO_MANY_REQUESTS) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    }
    const enum MHD_Result result = MHD_queue_response(c->mhd, status, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result connection_text(struct connection *c, unsigned status, const char *type, char *text)
{
    if (text == NULL) {
        return MHD_NO;
    }
    return respond(c, status, type,
                   MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE));
}

enum MHD_Result connection_static(struct connection *c, const char *type, const char *bytes,
                                  size_t num_bytes)
{
    char *constant = NULL;
    memcpy(&constant, &bytes, sizeof constant); /* the library takes no const, and writes nothing */
    return respond(c, MHD_HTTP_OK, type,
                   MHD_create_response_from_buffer(num_bytes, constant, MHD_RESPMEM_PERSISTENT));
}

enum MHD_Result connection_refuse(struct connection *c, const struct api_error *error)
{
    return connection_text(c, (unsigned)error->http_status, "application/json", reply_error(error));
}

/* ---- the body ------------------------------------------------------------------------------- */

static enum MHD_Result too_large(struct connection *c)
{
    struct api_error error;
    api_refuse(&error, MHD_HTTP_CONTENT_TOO_LARGE, NULL, "the body is longer than %zu bytes",
               c->service->max_body_bytes);
    return connection_refuse(c, &error);
}

enum MHD_Result connection_begin(struct connection *c)
{
    const char *length =
        MHD_lookup_connection_value(c->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    const unsigned long long num_bytes = length != NULL ? strtoull(length, NULL, 10) : 0;
    const size_t max = c->service->max_body_bytes;
    const bool asks =
        MHD_lookup_connection_value(c->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_EXPECT) != NULL;
    return num_bytes > (asks ? max : MAX_DROPPED_TIMES * max) ? too_large(c) : MHD_YES;
}

enum MHD_Result connection_receive(struct connection *c, const char *data, size_t num_bytes)
{
    if (c->num_dropped > 0 || c->num_body + num_bytes > c->service->max_body_bytes) {
        c->num_dropped += num_bytes;
        return c->num_dropped > MAX_DROPPED_TIMES * c->service->max_body_bytes ? MHD_NO : MHD_YES;
    }
    char *body = realloc(c->body, c->num_body + num_bytes);
    if (body == NULL) {
        return MHD_NO;
    }
    memcpy(body + c->num_body, data, num_bytes);
    c->body = body;
    c->num_body += num_bytes;
    return MHD_YES;
}

/* ---- a completion begins -------------------------------------------------------------------- */

static void suspend(void *context)
{
    const struct connection *c = context;
    MHD_suspend_connection(c->mhd);
}

static void resume(void *context)
{
    const struct connection *c = context;
    MHD_resume_connection(c->mhd);
}

static void client_gone(void *context)
{
    struct connection *c = context;
    job_cancel(c->job);
    engine_notice(c->service->engine);
}

/* X-Tenant: up to MAX_TENANT_BYTES visible characters of ASCII. */
static bool take_tenant(struct connection *c, struct job_request *job, struct api_error *error)
{
    const char *tenant = MHD_lookup_connection_value(c->mhd, MHD_HEADER_KIND, "X-Tenant");
    const size_t length = tenant != NULL ? strlen(tenant) : 0;
    bool ok = length <= MAX_TENANT_BYTES;
    for (size_t i = 0; ok && i < length; i++) {
        ok = tenant[i] > ' ' && tenant[i] <= '~';
    }
    if (!ok) {
        return api_refuse(error, MHD_HTTP_BAD_REQUEST, "X-Tenant",
                          "X-Tenant is up to %d visible characters of ASCII", MAX_TENANT_BYTES);
    }
    memcpy(job->tenant, tenant != NULL ? tenant : "", length);
    return true;
}

static bool explain(enum engine_answer answer, struct api_error *error)
{
    switch (answer) {
    case ENGINE_TAKEN: return true;
    case ENGINE_FULL:
        return api_refuse(error, MHD_HTTP_TOO_MANY_REQUESTS, NULL, "too many requests wait");
    case ENGINE_TOO_LONG:
        return api_refuse(error, MHD_HTTP_BAD_REQUEST, "max_tokens",
                          "prompt and max_tokens pass what this server can hold");
    case ENGINE_STOPPING: break;
    }
    return api_refuse(error, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "the server stops");
}

static void watch_connection(struct connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info != NULL) {
        c->watched.socket = info->connect_fd;
        c->watched.gone = client_gone;
        c->watched.context = c;
        watch_add(c->service->watch, &c->watched);
    }
}

/* Hands the request to the engine. */
static bool submit(struct connection *c, struct api_request *request, struct api_error *error)
{
    const int32_t num_choices = request->job.num_choices;
    const bool logprobs = request->job.top_logprobs >= 0;
    struct job *job = NULL;
    if (!job_create(&request->job, resume, c, &job)) {
        return api_refuse(error, MHD_HTTP_INTERNAL_SERVER_ERROR, NULL, "out of memory");
    }
    if (!explain(engine_submit(c->service->engine, job), error)) {
        job_release(job);
        return false;
    }
    c->job = job;
    c->stream = request->stream;
    c->include_usage = request->include_usage;
    c->service->next_id++;
    c->reply = (struct reply){.lm = c->service->lm,
                              .id = c->service->next_id,
                              .created = (int64_t)time(NULL),
                              .chat = request->chat,
                              .logprobs = logprobs};
    if (!c->stream) {
        reply_start(&c->reply, num_choices, &c->whole);
    }
    watch_connection(c);
    return true;
}

static bool begin_completion(struct connection *c, bool chat, struct api_error *error)
{
    struct api_request request;
    uint64_t seed = c->service->next_id;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed) {
        seed ^= (uint64_t)time(NULL) << 32;
    }
    if (!api_parse(c->service->lm, chat, c->body != NULL ? c->body : "", c->num_body, seed,
                   &request, error)) {
        return false;
    }
    free(c->body);
    c->body = NULL;
    if (!take_tenant(c, &request.job, error)) {
        api_free(&request);
        return false;
    }
    return submit(c, &request, error);
}

/* ---- whole answers -------------------------------------------------------------------------- */

/* Takes what the job has; called again each time the connection is resumed. */
static enum MHD_Result collect(struct connection *c)
{
    struct job_piece piece;
    enum job_state state = JOB_READY;
    while ((state = job_next(c->job, suspend, &piece)) == JOB_READY) {
        reply_add(&c->reply, &piece, &c->whole);
        free(piece.text);
    }
    if (state == JOB_WAIT) {
        return MHD_YES;
    }
    const char *failure = job_failure(c->job);
    if (failure != NULL) {
        return connection_text(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "application/json",
                               reply_failure(failure));
    }
    const struct job_usage usage = job_usage(c->job);
    return connection_text(c, MHD_HTTP_OK, "application/json",
                           reply_finish(&c->reply, &usage, &c->whole));
}

/* ---- streams -------------------------------------------------------------------------------- */

/* Frames an event; takes the text over. False when memory is short. */
static bool set_event(struct connection *c, char *json)
{
    static const char before[] = "data: ", behind[] = "\n\n";
    const size_t length = json != NULL ? strlen(json) : 0;
    free(c->out);
    c->out = json != NULL ? malloc(sizeof before + length + sizeof behind) : NULL;
    if (c->out != NULL) {
        c->num_out = (size_t)sprintf(c->out, "%s%s%s", before, json, behind);
        c->at_out = 0;
    }
    free(json);
    return c->out != NULL;
}

/* A piece that brings nothing that a client can see makes no event. */
static bool piece_is_empty(const struct connection *c, const struct job_piece *piece, bool first)
{
    return piece->text == NULL && piece->finish == FINISH_NONE && !c->reply.logprobs &&
           !(first && c->reply.chat);
}

/* The events behind the last piece: the failure or the usage, then the end. */
static enum job_state event_after(struct connection *c)
{
    const char *failure = job_failure(c->job);
    const struct job_usage usage = job_usage(c->job);
    bool ok = true;
    c->after++;
    if (c->after == 1 && failure != NULL) {
        ok = set_event(c, reply_failure(failure));
    } else if (c->after == 1 && c->include_usage) {
        ok = set_event(c, reply_usage_event(&c->reply, &usage));
    } else if (c->after == 1) {
        return event_after(c);
    } else if (c->after == 2) {
        ok = set_event(c, strdup("[DONE]"));
    } else {
        return JOB_END;
    }
    return ok ? JOB_READY : JOB_END;
}

/* Makes the next event: READY, WAIT, or END. */
static enum job_state next_event(struct connection *c)
{
    for (;;) {
        struct job_piece piece;
        const enum job_state state = c->after > 0 ? JOB_END : job_next(c->job, suspend, &piece);
        if (state != JOB_READY) {
            return state == JOB_WAIT ? JOB_WAIT : event_after(c);
        }
        const bool first = !c->has_begun[piece.choice];
        const bool empty = piece_is_empty(c, &piece, first);
        c->has_begun[piece.choice] = true;
        const bool ok = empty || set_event(c, reply_event(&c->reply, &piece, first));
        free(piece.text);
        if (!empty) {
            return ok ? JOB_READY : JOB_END;
        }
    }
}

static ssize_t read_stream(void *context, uint64_t position, char *buffer, size_t max)
{
    (void)position;
    struct connection *c = context;
    size_t filled = 0;
    while (filled < max) {
        if (c->at_out == c->num_out) {
            const enum job_state state = filled > 0 ? JOB_WAIT : next_event(c);
            if (state != JOB_READY) {
                return state == JOB_END ? MHD_CONTENT_READER_END_OF_STREAM : (ssize_t)filled;
            }
        }
        const size_t left = c->num_out - c->at_out;
        const size_t count = left < max - filled ? left : max - filled;
        memcpy(buffer + filled, c->out + c->at_out, count);
        c->at_out += count;
        filled += count;
    }
    return (ssize_t)filled;
}

static enum MHD_Result start_stream(struct connection *c)
{
    return respond(
        c, MHD_HTTP_OK, "text/event-stream",
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BUFFER, read_stream, c, NULL));
}

static enum MHD_Result complete(struct connection *c, bool chat)
{
    struct api_error error;
    if (c->num_dropped > 0) {
        return too_large(c);
    }
    if (c->job == NULL && !begin_completion(c, chat, &error)) {
        return connection_refuse(c, &error);
    }
    return c->stream ? start_stream(c) : collect(c);
}

enum MHD_Result connection_complete(struct connection *c)
{
    return complete(c, false);
}

enum MHD_Result connection_chat(struct connection *c)
{
    return complete(c, true);
}
