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
enum { MAX_GROUPS = 4, MAX_LAYERS = 6, NUM_TENANTS = 3, MAX_BATCH = MAX_ROWS * MAX_CHUNK };
enum { TICKETS_A_CLIENT = 2, TIER_VALUES = 300, MAX_REWIND = 5, MAX_STATES = 96, STATE_WORDS = 5 };
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
    int32_t first_state;     /* it has passed every length from here on by steps of its own */
    bool may_be_lost;        /* its state, in a row that was dropped */
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
    atomic_llong prefetches, loaded_tokens, trees, refusals, checked_states, lost_states;
};

struct world {
    struct pkv_cache_config config;
    struct pkv_group_config groups[MAX_GROUPS];
    struct pkv_layer_config layers[MAX_LAYERS];
    int32_t num_attention_groups; /* those of states are behind them */
    int32_t hit_unit;             /* hits are a multiple of so many tokens */
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
    atomic_llong wrong_states;  /* states that are not those of their text */
    atomic_llong unsound;       /* broken invariants, lost blocks */
};

/* Layers and groups of a variant, with a pool too small for all. Tiers are refused where groups
 * have different block sizes or states. */
enum world_variant { WORLD_TWO_GROUPS, WORLD_ONE_GROUP, WORLD_MIXED_SIZES, WORLD_STATES };
void world_configure(struct world *world, enum world_variant variant);
void world_open(struct world *world);
bool world_has_states(const struct world *world);

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

/* It has no tokens any more; and the request has ended too. */
void request_empty(struct request *request);
void request_drop(struct request *request);

/* New random tokens from `from` on: often the beginning of a family of prompts. */
void request_choose_tokens(struct request *request, struct test_random *random, int32_t from);

/* The hash of all that a token's activations depend on, from that of the token before it, which is
 * FIRST_TAG where there is none. */
#define FIRST_TAG 1
uint64_t request_next_tag(const struct request *request, uint64_t before, int32_t position,
                          int32_t id);
uint64_t tag_mix(uint64_t tag, uint64_t value);

/* Those of its first tokens. */
void request_tags(const struct request *request, int32_t num_tokens, uint64_t *tags);

/* The buffers of one thread that runs layers, and the bits that came out. */
struct forward {
    const struct world *world;
    float q[MAX_BATCH * HEADS * WIDTH], k[MAX_BATCH * KV_HEADS * WIDTH];
    float v[MAX_BATCH * KV_HEADS * WIDTH], out[MAX_BATCH * HEADS * WIDTH];
    float lse[MAX_BATCH * HEADS];
    uint64_t tags[MAX_BATCH], digests[MAX_BATCH];
    bool by_tasks; /* layers are run task by task */
};

/* Attends the first layers, but those of states, of an open step whose tokens have forward->tags;
 * leaves their digests. */
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

struct row {
    struct request *request;
    int32_t first; /* its length */
    int32_t q_len;
    int32_t at;      /* of its tokens in the batch */
    uint64_t before; /* the tag of its last token */
    bool is_tree;
    bool may_be_lost;
};

struct open_step {
    pkv_step handle;
    bool is_racing;
    bool is_shown; /* its states were */
    bool is_last;  /* of chains that are kept whole */
    bool has_tree;
    int32_t num_rows; /* picked */
    int32_t num_joined;
    int32_t num_tokens;
    int32_t to_preempt; /* the row that is in the way when it cannot begin */
    struct row rows[MAX_ROWS];
    pkv_seq seqs[MAX_ROWS];
    int32_t q_lens[MAX_ROWS], keep[MAX_ROWS], ids[MAX_BATCH], parents[MAX_BATCH];
    int32_t path[MAX_BATCH]; /* of a row that keeps n tokens, its n numbers from row.at on */
};

struct stepper {
    struct world *world;
    struct test_random random;
    struct replay replay;
    struct forward forward;
};
void *stepper_live(void *stepper);

/* The next row's tokens: a chain of those that the request will append, or a tree of drafts.
 * Its lock is held. */
void drafts_add_row(struct stepper *stepper, struct open_step *step, struct request *request);

/* Chooses what is kept of a row that may be. */
void drafts_choose(struct stepper *stepper, struct open_step *step, int32_t row);

/* The request keeps the tokens of its row's path. Its lock is held. */
void drafts_keep(const struct stepper *stepper, const struct open_step *step, int32_t row,
                 int32_t keep);

/* As a path, or by the number of tokens where that is enough, after something that is refused. */
enum pkv_status drafts_commit(struct stepper *stepper, const struct open_step *step);

/* Runs the layers of one state group: every state that is read is compared with its text. */
void states_run(struct stepper *stepper, struct open_step *step, int32_t group);

/* When all threads have ended: one more token of each survivor, its bits, its end. */
void stepper_finish(struct stepper *stepper);

#endif
