/* SPDX-License-Identifier: MIT
 *
 * run.h: one choice of a job while the engine works on it: its tokens, how many of them the cache
 * has, and what its client has been told.
 *
 *     waiting --admitted or forked--> running --finished--> done
 *        ^---------preempted-------------'
 *
 * A preempted run keeps its tokens, and computes those that the cache has lost again. */
#ifndef SERVER_RUN_H
#define SERVER_RUN_H

#include "language_model.h"
#include "prefetch.h"
#include "sampler.h"
#include "stream_text.h"

#include "pagedkv/cache.h"

enum run_state { RUN_WAITING, RUN_RUNNING, RUN_DONE };

struct run {
    struct entry *entry;
    int32_t choice;
    enum run_state state;
    pkv_seq seq;     /* while it runs */
    int32_t *tokens; /* [num_prompt + max_tokens]: the prompt, then what was generated */
    int32_t num_tokens;
    int32_t num_written; /* of them, those in the cache; less than num_tokens */
    struct stream_text text;
    struct prefetch prefetch; /* before its first admission */
};

/* A job with its runs. */
struct entry {
    struct job *job;
    const struct job_request *request;
    uint64_t id;      /* in order of arrival */
    struct run *runs; /* [request->num_choices] */
    int32_t num_done;
    bool prompt_done;    /* choice 0 has computed it: the others may begin */
    const char *failure; /* a text that stays: the job is to be ended with it */
    struct job_usage usage;
    struct entry *next;
};

/* Becomes a holder of the job. NULL when memory is short. */
struct entry *entry_create(struct job *job, uint64_t id);

/* Ends the job, with the message if one is given, and frees the entry. Its runs hold no sequences
 * any more. */
void entry_finish(struct entry *entry, const char *message);

/* Chooses the run's next token from logits and tells the client of it. The run is done when that
 * ends it. False when the logits are no numbers or memory is short. */
bool run_take(struct run *run, const struct language_model *lm, struct sampler *sampler,
              const float *logits);

#endif
