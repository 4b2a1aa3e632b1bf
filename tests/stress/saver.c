/* SPDX-License-Identifier: MIT
 *
 * saver.c: requests that are saved while others run, and come back as requests of their own, whose
 * bits the stepper compares like all others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stress/world.h"

struct saved {
    unsigned char *at;
    size_t count;
    size_t next;
};

static bool write_saved(void *context, const void *bytes, size_t n)
{
    struct saved *saved = context;
    unsigned char *grown = realloc(saved->at, saved->count + n);
    if (grown == NULL) {
        return false;
    }
    memcpy(grown + saved->count, bytes, n);
    saved->at = grown;
    saved->count += n;
    return true;
}

static bool read_saved(void *context, void *bytes, size_t n)
{
    struct saved *saved = context;
    if (n > saved->count - saved->next) {
        return false;
    }
    memcpy(bytes, saved->at + saved->next, n);
    saved->next += n;
    return true;
}

static void path_of(const struct client *client, char *path, size_t bytes)
{
    const char *folder = getenv("TMPDIR");
    snprintf(path, bytes, "%s/pagedkv-stress-%ld-%d", folder != NULL ? folder : "/tmp",
             (long)getpid(), (int)client->index);
}

/* To memory or to a file, and back. */
static enum pkv_status save(struct client *client, pkv_seq seq, bool is_file, struct saved *saved)
{
    char path[256];
    const struct pkv_writer writer = {sizeof writer, saved, write_saved};
    path_of(client, path, sizeof path);
    return is_file ? pkv_seq_save_file(client->world->cache, seq, path)
                   : pkv_seq_save(client->world->cache, seq, &writer);
}

static enum pkv_status load(struct client *client, bool is_file, struct saved *saved, pkv_seq *seq)
{
    char path[256];
    const struct pkv_reader reader = {.size = sizeof reader, .context = saved, .read = read_saved};
    path_of(client, path, sizeof path);
    const enum pkv_status status = is_file
                                       ? pkv_seq_load_file(client->world->cache, path, seq, NULL)
                                       : pkv_seq_load(client->world->cache, &reader, seq, NULL);
    if (is_file) {
        unlink(path);
    }
    return status;
}

/* A copy of the request as another one; the locks of both are held. */
static void save_as(struct client *client, const struct request *request, struct request *copy)
{
    struct world *world = client->world;
    struct saved saved = {.count = 0};
    const bool is_open = request->state == REQUEST_OPEN;
    const bool is_file = random_between(&client->random, 0, 7) == 0;
    const enum pkv_status expected = is_open ? PKV_BUSY : PKV_OK;
    pkv_seq seq = {0};
    const bool is_saved = world_expect(world, "save", save(client, request->seq, is_file, &saved),
                                       expected, expected, expected);
    atomic_fetch_add(&world->tally.busy, is_open);
    if (is_saved && world_expect(world, "load", load(client, is_file, &saved, &seq), PKV_OK,
                                 PKV_NO_BLOCKS, PKV_NEVER_FITS)) {
        atomic_fetch_add(&world->tally.loads, 1);
        copy->seq = seq;
        copy->state = REQUEST_IDLE;
        copy->tenant = request->tenant;
        copy->max_rewind = request->max_rewind;
        copy->length = request->length;
        copy->high = request->high;
        copy->first_state = request->first_state;
        copy->may_be_lost = request->may_be_lost;
        memcpy(copy->ids, request->ids, sizeof copy->ids);
        memcpy(copy->digests, request->digests, sizeof copy->digests);
        request_choose_tokens(copy, &client->random, copy->length);
    }
    free(saved.at);
}

void client_save(struct client *client)
{
    struct request *request = client_pick(client, REQUEST_IDLE, true);
    struct request *copy = request == NULL ? NULL : client_pick(client, REQUEST_ABSENT, false);
    if (copy != NULL && request->state != REQUEST_RACING) {
        save_as(client, request, copy);
    }
    if (copy != NULL) {
        pthread_mutex_unlock(&copy->lock);
    }
    if (request != NULL) {
        pthread_mutex_unlock(&request->lock);
    }
}
