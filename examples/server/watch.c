/* SPDX-License-Identifier: MIT */
#include "watch.h"

#include "report.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

enum { INTERVAL_NS = 100000000 };

struct watch {
    pthread_t thread;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t stop;
    struct watched *first;
    bool stopping;
};

/* The peer has closed its side, or reset the connection. */
static bool is_gone(int socket)
{
    char byte = 0;
    const ssize_t got = recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static void unlink_watched(struct watch *watch, struct watched *watched)
{
    if (watched->previous != NULL) {
        watched->previous->next = watched->next;
    } else {
        watch->first = watched->next;
    }
    if (watched->next != NULL) {
        watched->next->previous = watched->previous;
    }
    watched->listed = false;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void look(struct watch *watch)
{
    const double at = now();
    struct watched *next = NULL;
    for (struct watched *each = watch->first; each != NULL; each = next) {
        next = each->next;
        if (each->deadline > 0 && each->deadline < at) {
            each->deadline = 0;
            shutdown(each->socket, SHUT_RDWR); /* its owner finds it closed */
        } else if (each->gone != NULL && is_gone(each->socket)) {
            unlink_watched(watch, each);
            each->gone(each->context);
        }
    }
}

static void *watch_thread(void *context)
{
    struct watch *watch = context;
    pthread_mutex_lock(&watch->mutex);
    while (!watch->stopping) {
        struct timespec until;
        look(watch);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += INTERVAL_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&watch->stop, &watch->mutex, &until);
    }
    pthread_mutex_unlock(&watch->mutex);
    return NULL;
}

bool watch_start(struct watch **watch)
{
    struct watch *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return complain("out of memory");
    }
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->stop, NULL);
    if (pthread_create(&made->thread, NULL, watch_thread, made) != 0) {
        free(made);
        return complain("no thread for the watch");
    }
    *watch = made;
    return true;
}

void watch_stop(struct watch *watch)
{
    pthread_mutex_lock(&watch->mutex);
    watch->stopping = true;
    pthread_cond_signal(&watch->stop);
    pthread_mutex_unlock(&watch->mutex);
    pthread_join(watch->thread, NULL);
    pthread_mutex_destroy(&watch->mutex);
    pthread_cond_destroy(&watch->stop);
    free(watch);
}

void watch_add(struct watch *watch, struct watched *watched)
{
    pthread_mutex_lock(&watch->mutex);
    watched->previous = NULL;
    watched->next = watch->first;
    if (watch->first != NULL) {
        watch->first->previous = watched;
    }
    watch->first = watched;
    watched->listed = true;
    pthread_mutex_unlock(&watch->mutex);
}

void watch_remove(struct watch *watch, struct watched *watched)
{
    pthread_mutex_lock(&watch->mutex);
    if (watched->listed) {
        unlink_watched(watch, watched);
    }
    pthread_mutex_unlock(&watch->mutex);
}

void watch_limit(struct watch *watch, struct watched *watched, double seconds)
{
    pthread_mutex_lock(&watch->mutex);
    watched->deadline = seconds > 0 ? now() + seconds : 0;
    pthread_mutex_unlock(&watch->mutex);
}
