/* SPDX-License-Identifier: MIT
 *
 * states_case.h: sequences in a cache with state groups, whose recurrence is a hash: the state of a
 * layer after some tokens is a hash of these tokens and of the layer, and nothing else gives these
 * bytes. Each step compares every state that it reads with the text that its sequence has. */
#ifndef PKV_TEST_RUNTIME_STATES_CASE_H
#define PKV_TEST_RUNTIME_STATES_CASE_H

#include "reuse_case.h"

#define STATES_MAX_TOKENS 256
#define STATES_BYTES 40

struct state_seq {
    pkv_seq handle;
    int32_t max_rewind;
    int32_t length;
    int32_t ids[CASE_MAX_LENGTH];
};

struct state_row {
    struct state_seq *seq;
    int32_t q_len;
    const int32_t *parents; /* NULL: a chain; in a step of one row */
};

/* What a step did in one state group, beside what it computed. */
struct state_counts {
    int32_t num_in_place;
    int32_t num_writes;
    int32_t num_zero_reads;
};

/* A case with attention in group 0, one with a window of 6 in group 1, and state groups 2 and 3, of
 * two layers and of one; block_size 4, with the prefix cache; 24 states and 128 blocks a group. */
void states_init(struct runtime_case *c);

/* A sequence whose ids are to be base, base + 1, ..; what create answers. */
enum pkv_status states_create(struct runtime_case *c, struct state_seq *seq, int32_t base,
                              int32_t max_rewind);

/* Admits its first num_tokens ids; *num_cached may be NULL. */
enum pkv_status states_admit(struct runtime_case *c, struct state_seq *seq, int32_t num_tokens,
                             int32_t *num_cached);
enum pkv_status states_fork(struct runtime_case *c, const struct state_seq *seq, int32_t at,
                            struct state_seq *child);
enum pkv_status states_truncate(struct runtime_case *c, struct state_seq *seq, int32_t length);
void states_destroy(struct runtime_case *c, struct state_seq *seq);

/* A step of the rows' next ids: begun, run (every layer, with all its checks) and ended. */
enum pkv_status states_begin(struct runtime_case *c, const struct state_row *rows, int32_t num_rows,
                             pkv_step *step);
void states_run(struct runtime_case *c, const struct state_row *rows, pkv_step step,
                struct state_counts counts[CASE_MAX_GROUPS]);
enum pkv_status states_commit(struct runtime_case *c, const struct state_row *rows,
                              int32_t num_rows, pkv_step step, const int32_t *num_keep);

/* n tokens onto one sequence by a step of its own; asserts that it began. */
struct state_counts states_append(struct runtime_case *c, struct state_seq *seq, int32_t n);

/* create, admit and append to `length` in steps of at most `chunk`; what was found. */
int32_t states_serve(struct runtime_case *c, struct state_seq *seq, int32_t base, int32_t length,
                     int32_t chunk);

#endif
