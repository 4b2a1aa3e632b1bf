/* SPDX-License-Identifier: MIT */
#include "job.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct queued {
    struct queued *next;
    struct job_piece piece;
};

struct job {
    struct job_request request;
    void *context; /* of wake and of job_next's wait */

    pthread_mutex_t mutex; /* guards all below */
    int holders;
    struct queued *first;
    struct queued **last; /* where the next one is linked */
    bool waiting;         /* the connection wants to be woken ... */
    job_wake *wake;       /* ... by this; NULL: it is gone */
    bool cancelled;
    bool ended;
    struct job_usage usage;
    const char *failure;
};

static void free_request(struct job_request *request)
{
    free(request->prompt);
    for (int32_t i = 0; i < request->num_stops; i++) {
        free(request->stops[i]);
    }
}

bool job_create(struct job_request *request, job_wake *wake, void *context, struct job **job)
{
    struct job *made = calloc(1, sizeof *made);
    if (made == NULL || pthread_mutex_init(&made->mutex, NULL) != 0) {
        free(made);
        free_request(request);
        return false;
    }
    made->request = *request;
    made->wake = wake;
    made->context = context;
    made->holders = 1;
    made->last = &made->first;
    made->usage.num_prompt = request->num_prompt;
    *job = made;
    return true;
}

static void free_job(struct job *job)
{
    while (job->first != NULL) {
        struct queued *queued = job->first;
        job->first = queued->next;
        free(queued->piece.text);
        free(queued);
    }
    free_request(&job->request);
    pthread_mutex_destroy(&job->mutex);
    free(job);
}

void job_release(struct job *job)
{
    pthread_mutex_lock(&job->mutex);
    const bool last = --job->holders == 0;
    pthread_mutex_unlock(&job->mutex);
    if (last) {
        free_job(job);
    }
}

void job_hold(struct job *job)
{
    pthread_mutex_lock(&job->mutex);
    job->holders++;
    pthread_mutex_unlock(&job->mutex);
}

/* Takes the first of the queue. */
static void take_first(struct job *job, struct job_piece *piece)
{
    struct queued *queued = job->first;
    job->first = queued->next;
    if (job->first == NULL) {
        job->last = &job->first;
    }
    *piece = queued->piece;
    free(queued);
}

enum job_state job_next(struct job *job, void (*wait)(void *context), struct job_piece *piece)
{
    enum job_state state = JOB_READY;
    pthread_mutex_lock(&job->mutex);
    if (job->first != NULL) {
        take_first(job, piece);
    } else if (job->ended) {
        state = JOB_END;
    } else {
        state = JOB_WAIT;
        job->waiting = true;
        if (wait != NULL) {
            wait(job->context);
        }
    }
    pthread_mutex_unlock(&job->mutex);
    return state;
}

struct job_usage job_usage(struct job *job)
{
    pthread_mutex_lock(&job->mutex);
    const struct job_usage usage = job->usage;
    pthread_mutex_unlock(&job->mutex);
    return usage;
}

void job_cancel(struct job *job)
{
    pthread_mutex_lock(&job->mutex);
    job->cancelled = true;
    pthread_mutex_unlock(&job->mutex);
}

void job_abandon(struct job *job)
{
    pthread_mutex_lock(&job->mutex);
    job->cancelled = true;
    job->wake = NULL;
    pthread_mutex_unlock(&job->mutex);
}

bool job_is_cancelled(struct job *job)
{
    pthread_mutex_lock(&job->mutex);
    const bool cancelled = job->cancelled;
    pthread_mutex_unlock(&job->mutex);
    return cancelled;
}

const struct job_request *job_request(const struct job *job)
{
    return &job->request;
}

/* With the mutex held. */
static void wake_connection(struct job *job)
{
    if (job->waiting) {
        job->waiting = false;
        if (job->wake != NULL) {
            job->wake(job->context);
        }
    }
}

void job_push(struct job *job, const struct job_piece *piece)
{
    struct queued *queued = malloc(sizeof *queued);
    pthread_mutex_lock(&job->mutex);
    if (queued == NULL) {
        free(piece->text);
        job->cancelled = true;
        job->failure = "out of memory";
    } else {
        queued->piece = *piece;
        queued->next = NULL;
        *job->last = queued;
        job->last = &queued->next;
    }
    wake_connection(job);
    pthread_mutex_unlock(&job->mutex);
}

void job_end(struct job *job, const struct job_usage *usage, const char *message)
{
    pthread_mutex_lock(&job->mutex);
    job->ended = true;
    job->usage = *usage;
    if (job->failure == NULL) {
        job->failure = message;
    }
    wake_connection(job);
    pthread_mutex_unlock(&job->mutex);
}

const char *job_failure(struct job *job)
{
    pthread_mutex_lock(&job->mutex);
    const char *failure = job->failure;
    pthread_mutex_unlock(&job->mutex);
    return failure;
}
