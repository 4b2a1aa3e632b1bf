/* SPDX-License-Identifier: MIT
 *
 * Commands are those that Redis 4 and every Valkey know. */
#include "tiers/redis_request.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LINE_BYTES 1024

struct redis_connection_command redis_request_command(const struct redis_request *request,
                                                      const char *ttl, char *number)
{
    static const char *const verbs[] = {
        [REDIS_PUT] = "SET",       [REDIS_GET] = "GET",    [REDIS_FIND] = "EXISTS",
        [REDIS_REMOVE] = "UNLINK", [REDIS_ADD] = "INCRBY", [REDIS_READ] = "GET"};
    struct redis_connection_command command = {.head = {verbs[request->verb], request->key}};
    if (request->verb == REDIS_PUT) {
        command.has_value = true;
        command.pieces = request->pieces;
        command.num_pieces = request->num_pieces;
        command.bytes = request->bytes;
        command.tail[0] = ttl != NULL ? "EX" : NULL;
        command.tail[1] = ttl;
    } else if (request->verb == REDIS_ADD) {
        (void)snprintf(number, 24, "%" PRIu64, request->number);
        command.head[2] = number;
    }
    return command;
}

size_t redis_request_limit(const struct redis_request *request)
{
    const size_t bytes = request->verb == REDIS_GET ? request->bytes : 0;
    return bytes < LINE_BYTES ? LINE_BYTES : bytes;
}

size_t redis_request_weight(const struct redis_request *request)
{
    return request->bytes + LINE_BYTES;
}

void redis_request_end(struct redis_request *request, enum pkv_status status)
{
    request->state = REDIS_REQUEST_ANSWERED;
    request->status = status;
}

static bool begins(const struct redis_value *value, const char *word)
{
    const size_t length = strlen(word);
    return value->length >= length && memcmp(value->text, word, length) == 0;
}

static bool begins_one_of(const struct redis_value *value, const char *const *words)
{
    while (*words != NULL && !begins(value, *words)) {
        words++;
    }
    return *words != NULL;
}

static enum redis_request_verdict fail(struct redis_request *request,
                                       const struct redis_value *value)
{
    static const char *const all[] = {"NOAUTH", "WRONGPASS",  "LOADING",        "CLUSTERDOWN",
                                      "BUSY",   "MASTERDOWN", "ERR max number", NULL};
    static const char *const writes[] = {"OOM", "MISCONF", "READONLY", "NOREPLICAS", NULL};
    const bool is_foreign = request->verb == REDIS_GET && begins(value, "WRONGTYPE");
    redis_request_end(request, is_foreign ? PKV_CORRUPT : PKV_IO);
    if (begins_one_of(value, all)) {
        return REDIS_REQUEST_BREAK;
    }
    return begins_one_of(value, writes) ? REDIS_REQUEST_STOP : REDIS_REQUEST_GO_ON;
}

static void scatter(const struct redis_request *request, const char *text)
{
    for (int32_t i = 0; i < request->num_pieces; i++) {
        if (request->pieces[i].length != 0) {
            memcpy(request->pieces[i].bytes, text, request->pieces[i].length);
        }
        text += request->pieces[i].length;
    }
}

static void take_value(struct redis_request *request, const struct redis_value *value)
{
    const bool fits = value->length == request->bytes;
    if (fits && !value->is_placed) {
        scatter(request, value->text);
    }
    redis_request_end(request, fits ? PKV_OK : PKV_CORRUPT);
}

/* A counter is text: what is no number, or too large, is none of ours. */
static void take_number(struct redis_request *request, const struct redis_value *value)
{
    uint64_t number = 0;
    bool fits = value->length > 0 && value->length < 20;
    for (size_t i = 0; i < value->length && fits; i++) {
        fits = value->text[i] >= '0' && value->text[i] <= '9';
        number = 10 * number + (uint64_t)(value->text[i] - '0');
    }
    request->number = fits ? number : 0;
    redis_request_end(request, fits ? PKV_OK : PKV_IO);
}

/* 1 key or none. */
static void take_count(struct redis_request *request, int64_t count)
{
    redis_request_end(request, count == 1 ? PKV_OK : count == 0 ? PKV_NOT_FOUND : PKV_IO);
}

static void take_nil(struct redis_request *request)
{
    request->number = 0;
    redis_request_end(request, request->verb == REDIS_GET ? PKV_NOT_FOUND : PKV_OK);
}

static void take_sum(struct redis_request *request, int64_t sum)
{
    request->number = sum > 0 ? (uint64_t)sum : 0;
    redis_request_end(request, sum > 0 ? PKV_OK : PKV_IO);
}

/* The type that a good reply has, by verb. */
static bool is_right(const struct redis_request *request, const struct redis_value *value)
{
    static const enum redis_type types[] = {
        [REDIS_PUT] = REDIS_STATUS,     [REDIS_GET] = REDIS_TEXT,    [REDIS_FIND] = REDIS_INTEGER,
        [REDIS_REMOVE] = REDIS_INTEGER, [REDIS_ADD] = REDIS_INTEGER, [REDIS_READ] = REDIS_TEXT};
    const bool may_be_nil = request->verb == REDIS_GET || request->verb == REDIS_READ;
    return value->depth == 0 &&
           (value->type == types[request->verb] || (value->type == REDIS_NIL && may_be_nil));
}

enum redis_request_verdict redis_request_answer(struct redis_request *request,
                                                const struct redis_value *value)
{
    if (value->type == REDIS_ERROR && value->depth == 0) {
        return fail(request, value);
    }
    if (!is_right(request, value)) {
        redis_request_end(request, PKV_IO);
        return REDIS_REQUEST_BREAK;
    }
    if (value->type == REDIS_NIL) {
        take_nil(request);
    } else if (request->verb == REDIS_PUT) {
        redis_request_end(request, begins(value, "OK") ? PKV_OK : PKV_IO);
    } else if (request->verb == REDIS_GET) {
        take_value(request, value);
    } else if (request->verb == REDIS_READ) {
        take_number(request, value);
    } else if (request->verb == REDIS_ADD) {
        take_sum(request, value->integer);
    } else {
        take_count(request, value->integer);
    }
    return REDIS_REQUEST_GO_ON;
}
