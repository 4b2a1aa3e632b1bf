/* SPDX-License-Identifier: MIT
 *
 * world.h: one stressed cache and what is known of it. Eight clients live requests' lives on it
 * while one stepper runs steps; every answer is held against the model here, or, where threads
 * race, against the answers that some order of calls explains.
 *
 * A request's entry has a lock of its own, which clients only try, so nobody waits while holding
 * one but the stepper at the end of a step. What a token's q, k and v are follows from a hash of
 * the request's tokens up to it and of its tenant: a block found that is of another prefix, or of
 * another tenant, changes the bits of what comes out. */
#ifndef PKV_STRESS_WORLD_H
#define PKV_STRESS_WORLD_H

#include <pthread.h>
#include <stdatomic.h>

#include "support/memory_tier.h"

enum { NUM_CLIENTS = 8, NUM_REQUESTS = 24, MAX_LENGTH = 64, MAX_ROWS = 6, MAX_CHUNK = 24 };
enum { MAX_GROUPS = 2, MAX_LAYERS = 3, NUM_TENANTS = 3, MAX_BATCH = MAX_ROWS * MAX_CHUNK };
enum { TICKETS_A_CLIENT = 2, TIER_VALUES = 300 };
enum { HEADS = 4, KV_HEADS = 2, WIDTH = 8, BLOCK_SIZE = 4, TENANT_BEGINS = 8, PINS_A_CLIENT = 3 };

enum request_state {
    REQUEST_ABSENT = 0,
    REQUEST_IDLE,   /* in no step */
    REQUEST_OPEN,   /* in the open step for sure */
    REQUEST_RACING, /* the stepper begins, runs or ends a step with it: only destroy is foretold */
    REQUEST_GONE    /* destroyed in one of those two; the stepper makes it absent */
};

struct request {
    pthread_mutex_t lock; /* guards all of it */
    enum request_state state;
    pkv_seq seq;
    int32_t tenant; /* -1: no namespace */
    int32_t max_rewind;
    int32_t length;          /* committed */
    int32_t high;            /* the longest it, or whom it was forked from, was */
    int32_t ids[MAX_LENGTH]; /* what it holds and will append */
    /* Of what came out at each position; 0 where another sequence computed it. */
    uint64_t digests[MAX_LENGTH];
};

/* Closed for quiet moments. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_closed;
    int32_t num_inside;
};

/* How often what happened: a run in which nothing did is no test. */
struct tally {
    atomic_llong calls, steps, aborts, short_steps, hits, busy, in_step_destroys, raced_destroys;
    atomic_llong forks, cuts, pins, loads, waits, swaps, quiet, checked_tokens, checked_requests;
    atomic_llong prefetches, loaded_tokens;
};

struct world {
    struct pkv_cache_config config;
    struct pkv_group_config groups[MAX_GROUPS];
    struct pkv_layer_config layers[MAX_LAYERS];
    struct test_memory memory;
    struct memory_tier tier; /* smaller than what comes and goes */
    pkv_cache *cache;
    struct request requests[NUM_REQUESTS];
    struct gate gate;
    atomic_bool is_over;
    atomic_ullong now_ns; /* the clock that pins go by: steps so far */
    struct tally tally;
    atomic_llong progress[NUM_CLIENTS + 1]; /* last: the stepper's */
    _Atomic(const char *) doing[NUM_CLIENTS + 1];

    atomic_llong wrong_answers; /* that no order of calls explains */
    atomic_llong wrong_bits;    /* outputs that are not those of the request alone */
    atomic_llong unsound;       /* broken invariants, lost blocks */
};

/* Layers and groups of a variant, with a pool too small for all. */
void world_configure(struct world *world, int variant);
void world_open(struct world *world);

/* Counts a fault, and prints the first few. */
void world_fault(atomic_llong *kind, const char *what, long long got, long long expected);

/* status is among these; PKV_OK may stand twice. */
bool world_expect(struct world *world, const char *call, enum pkv_status status,
                  enum pkv_status first, enum pkv_status second, enum pkv_status third);

void gate_enter(struct gate *gate);
void gate_leave(struct gate *gate);

/* Waits until no client is in a call, checks that everything is as the model says, goes on. */
void world_quiet(struct world *world);

/* Options of a request; *field is what they point to. */
struct pkv_seq_options request_options(const struct request *request,
                                       struct pkv_namespace_field *field);

/* New random tokens from `from` on: often the beginning of a family of prompts. */
void request_choose_tokens(struct request *request, struct test_random *random, int32_t from);

/* One hash a token, of all that its activations depend on. */
void request_tags(const struct request *request, int32_t num_tokens, uint64_t *tags);

/* The buffers of one thread that runs layers, and the bits that came out. */
struct forward {
    float q[MAX_BATCH * HEADS * WIDTH], k[MAX_BATCH * KV_HEADS * WIDTH];
    float v[MAX_BATCH * KV_HEADS * WIDTH], out[MAX_BATCH * HEADS * WIDTH];
    float lse[MAX_BATCH * HEADS];
    uint64_t tags[MAX_BATCH], digests[MAX_BATCH];
    bool by_tasks; /* layers are run task by task */
};

/* Attends all layers of an open step whose tokens have forward->tags; leaves their digests. */
enum pkv_status forward_run(struct forward *forward, pkv_cache *cache, pkv_step step,
                            int32_t num_layers, int32_t num_tokens);

/* A cache of the same geometry for one sequence at a time, without prefix cache and threads. */
struct replay {
    struct world *world;
    struct test_memory memory;
    pkv_cache *cache;
    struct forward forward;
};
void replay_open(struct replay *replay, struct world *world);
void replay_close(struct replay *replay); /* a leak is a fault */

/* Computes the request's first `length` tokens alone and compares. Its lock is held. */
void replay_check(struct replay *replay, const struct request *request, int32_t length);

struct client {
    struct world *world;
    int32_t index;
    struct test_random random;
    pkv_pin pins[PINS_A_CLIENT];
    pkv_ticket tickets[TICKETS_A_CLIENT];
    struct replay replay;
};
void *client_live(void *client);

/* A random request whose lock was free, now held, in this state or, with any_alive, a later one. */
struct request *client_pick(struct client *client, enum request_state state, bool any_alive);

/* Acts on tiers: prefetches, stores, work; and the end of what a client has open there. */
void client_offload(struct client *client);
void client_close_tickets(struct client *client);

/* Acts that serve no request. */
void client_look(struct client *client);
void client_administer(struct client *client);

/* A request is saved, and comes back as another one. */
void client_save(struct client *client);

struct stepper {
    struct world *world;
    struct test_random random;
    struct replay replay;
    struct forward forward;
};
void *stepper_live(void *stepper);

/* When all threads have ended: one more token of each survivor, its bits, its end. */
void stepper_finish(struct stepper *stepper);

#endif
