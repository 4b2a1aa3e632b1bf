/* SPDX-License-Identifier: MIT
 *
 * job.h: a client's request on its way from the connection that received it to the engine, and its
 * tokens on the way back.
 *
 *     job_create(&request, &job)             the connection's thread
 *     engine_submit(engine, job)             the engine holds the job too from here on
 *     job_next(job, &piece)                  READY: a piece; WAIT: wake is called once; END
 *     job_cancel(job)                        the client is gone
 *     job_release(job)                       each holder once
 *
 * Ownership. A job has two holders, the connection and the engine; the last release frees it. The
 * request is constant after job_create. Pieces are queued without bound, because a job's tokens are
 * bounded: the engine never waits for a client.
 *
 * Threads. Each function says who calls it; one mutex a job guards its queue. */
#ifndef SERVER_JOB_H
#define SERVER_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_STOPS = 4, MAX_STOP_BYTES = 256, MAX_TOP_LOGPROBS = 20, MAX_CHOICES = 64 };
enum { MAX_TENANT_BYTES = 64 };

/* How a token is chosen. temperature 0: the most likely one, and seed and top_p have no effect. */
struct sampling {
    float temperature; /* [0, 2] */
    float top_p;       /* (0, 1] */
    uint64_t seed;     /* choice c draws from a sequence of numbers that seed and c give */
};

/* A client's request. The job takes over what the pointers lead to. */
struct job_request {
    int32_t *prompt; /* [num_prompt], >= 1 */
    int32_t num_prompt;
    int32_t max_tokens;  /* >= 1, of each choice */
    int32_t num_choices; /* [1, MAX_CHOICES] */
    struct sampling sampling;
    int32_t top_logprobs;   /* [0, MAX_TOP_LOGPROBS]; -1: no logprobs at all */
    char *stops[MAX_STOPS]; /* UTF-8, 1 to MAX_STOP_BYTES bytes each */
    int32_t num_stops;
    int32_t priority;                  /* [0, PKV_NUM_PRIORITIES): higher is served first */
    char tenant[MAX_TENANT_BYTES + 1]; /* "": none. Prefixes are shared within a tenant alone */
};

enum finish { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_FAILED };

struct top_logprob {
    int32_t token;
    float logprob;
};

/* What the engine says of one choice: a token and the text that is certain by now. Text may lag
 * behind tokens, where a character or a stop text may still be completed; a last piece, without a
 * token (-1), brings the rest and says why the choice ended. */
struct job_piece {
    int32_t choice;
    int32_t token;
    float logprob;
    int32_t num_top; /* of top, most likely first */
    struct top_logprob top[MAX_TOP_LOGPROBS];
    char *text; /* whole UTF-8 characters, a NUL behind; the caller of job_next frees it */
    size_t num_bytes;
    enum finish finish;
};

/* Counts of OpenAI's "usage". */
struct job_usage {
    int32_t num_prompt;
    int32_t num_cached;    /* of the prompt, found in the prefix cache at its first admission */
    int32_t num_generated; /* of all choices */
};

enum job_state { JOB_READY, JOB_WAIT, JOB_END };

struct job;

/* Called once after job_next has answered JOB_WAIT, as soon as it would answer otherwise; by the
 * engine's thread, with the job's mutex held: it must not call anything of this header. */
typedef void job_wake(void *context);

/* ---- the connection's side ------------------------------------------------------------------ */

/* A job with one holder. False, with the request freed, when memory is short. */
bool job_create(struct job_request *request, job_wake *wake, void *context, struct job **job);

/* The next piece. With JOB_WAIT the caller has `wait` called while the job's mutex is held, so that
 * it can suspend its connection before the engine can wake it. wait may be NULL. */
enum job_state job_next(struct job *job, void (*wait)(void *context), struct job_piece *piece);

/* Counts so far; final after JOB_END. */
struct job_usage job_usage(struct job *job);

/* The client is gone, or so it seems: the engine ends the job before its next step, and wakes the
 * connection as at any end. Any thread that knows that the job has a holder. */
void job_cancel(struct job *job);

/* The connection is gone: the same, but from now on nobody is woken. */
void job_abandon(struct job *job);

/* ---- the engine's side ---------------------------------------------------------------------- */

const struct job_request *job_request(const struct job *job);
void job_hold(struct job *job);
bool job_is_cancelled(struct job *job);

/* Queues a piece; the job takes over its text. When memory is short the job is cancelled and its
 * client gets JOB_END after what is queued. */
void job_push(struct job *job, const struct job_piece *piece);

/* No more pieces will come. `message` (may be NULL) tells a client why a job failed: a text that
 * stays. */
void job_end(struct job *job, const struct job_usage *usage, const char *message);

/* ---- both ----------------------------------------------------------------------------------- */

/* Why the job failed; NULL if it did not. */
const char *job_failure(struct job *job);

void job_release(struct job *job);

#endif
