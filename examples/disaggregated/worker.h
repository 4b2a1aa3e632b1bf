/* SPDX-License-Identifier: MIT
 *
 * worker.h: the embedded model on a managed cache of this process, and a tier that other processes
 * have too. Keys of blocks are the same in all of them, since configuration and fingerprint are. */
#ifndef DISAGGREGATED_WORKER_H
#define DISAGGREGATED_WORKER_H

#include "channel.h"
#include "forward.h"

#include "pagedkv/offload.h"
#include "pagedkv/step.h"

enum { MAX_HOST = 256, BLOCK_SIZE = 16, CHUNK = 64, NUM_NEW = 100 };

/* Where values are kept: a directory, or a Redis server "HOST:PORT", in which keys begin with
 * key_prefix; both NULL = no tier. */
struct place {
    const char *directory;
    const char *redis;
    const char *key_prefix;
};

struct worker {
    struct model model;
    struct activations activations;
    pkv_tier *tier;
    pkv_cache *cache;
};

/* "HOST:PORT". False after a complaint, here as below. */
bool split_address(const char *address, char host[MAX_HOST], int32_t *port);

bool worker_create(const struct place *place, struct worker *worker);
void worker_free(struct worker *worker);

/* Admits the prompt of a message to a new sequence, for num_new tokens more. Sets num_cached and
 * num_loaded of the message. */
bool worker_admit(struct worker *worker, struct message *message, int32_t num_new, pkv_seq *seq);

/* Computes at most CHUNK tokens of the message, from token `from` on, in one step; *end is the
 * first that is left. */
bool worker_step(struct worker *worker, pkv_seq seq, const struct message *message, int32_t from,
                 int32_t *end);

/* Computes what the cache lacks of the text, then generates NUM_NEW tokens, or until the model ends
 * the text. Ends the sequence. */
bool worker_decode(struct worker *worker, pkv_seq seq, struct message *message);

#endif
