/* SPDX-License-Identifier: MIT
 *
 * reply.h: a job's pieces as JSON, in the shape of OpenAI's API: whole answers, and the events of a
 * stream. Every function gives a text that the caller frees, NULL when memory is short. */
#ifndef SERVER_REPLY_H
#define SERVER_REPLY_H

#include "api.h"

#include <cjson/cJSON.h>

/* What all events of one answer have in common. */
struct reply {
    const struct language_model *lm;
    uint64_t id;
    int64_t created; /* seconds since 1970 */
    bool chat;
    bool logprobs;
};

/* An answer that is not streamed, as it grows. */
struct reply_whole {
    cJSON *choices[MAX_CHOICES]; /* each with its text so far */
    int32_t num_choices;
    bool failed; /* memory was short */
};

char *reply_error(const struct api_error *error);

/* One event of a stream: a piece. For chat, `first` says that it is the choice's first one. */
char *reply_event(const struct reply *reply, const struct job_piece *piece, bool first);

/* The event with the usage, and one that says why the job failed. */
char *reply_usage_event(const struct reply *reply, const struct job_usage *usage);
char *reply_failure(const char *message);

void reply_start(const struct reply *reply, int32_t num_choices, struct reply_whole *whole);
void reply_add(const struct reply *reply, const struct job_piece *piece, struct reply_whole *whole);
char *reply_finish(const struct reply *reply, const struct job_usage *usage,
                   struct reply_whole *whole);
void reply_drop(struct reply_whole *whole);

/* The answer of GET /v1/models. */
char *reply_models(const char *name, int64_t created);

#endif
