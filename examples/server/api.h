/* SPDX-License-Identifier: MIT
 *
 * api.h: the bodies of POST /v1/completions and /v1/chat/completions, in the shape of OpenAI's
 * API, made into a job_request. Each field is checked; a wrong one is named. Fields that would
 * change the answer and are not built are refused, unless their value is one that changes nothing,
 * such as 0, false or an empty list. */
#ifndef SERVER_API_H
#define SERVER_API_H

#include "job.h"
#include "language_model.h"

enum { MAX_MESSAGES = 256 };

struct api_error {
    int http_status;
    const char *type;
    char param[64]; /* the field; "" = none */
    char message[256];
};

struct api_request {
    struct job_request job;
    bool chat;
    bool stream;
    bool include_usage; /* a last event with the usage, in a stream */
};

/* The seed of a request that brings none is default_seed; max_tokens is max_seq_len less the prompt
 * where it is left out. priority and tenant come from headers: the caller sets them. On success the
 * caller owns what request->job leads to. */
bool api_parse(const struct language_model *lm, bool chat, const char *body, size_t num_bytes,
               uint64_t default_seed, struct api_request *request, struct api_error *error);

/* Frees what a parsed request leads to, when no job has taken it over. */
void api_free(struct api_request *request);

/* Fills an error; always false. param may be NULL. */
bool api_refuse(struct api_error *error, int http_status, const char *param, const char *format,
                ...) PKV_PRINTF(4, 5);

#endif
