/* SPDX-License-Identifier: MIT
 *
 * runtime_case.h: a managed cache under test, and a naive model of what it holds.
 *
 * A case_seq is what the cache should know of one sequence: a tag for each position. The key, value
 * and query of a token are a hash of (tag, layer, head, channel), multiples of 1/64 in [-1, 1), so
 * that every float type holds them exactly. case_attend hands them to the cache and compares what
 * comes out with dense attention in double over the tags: a wrong, missing, doubly counted or
 * poisoned key shows in the step that reads it.
 *
 * The memory hooks of a case fill what they hand out with bytes that are NaN in every float type,
 * fence it, and check that each piece comes back whole and by the door it left by. */
#ifndef PKV_TEST_RUNTIME_CASE_H
#define PKV_TEST_RUNTIME_CASE_H

#include <pthread.h>

#include "support/test.h"

#define CASE_MAX_GROUPS 4
#define CASE_MAX_LAYERS 6
#define CASE_MAX_ROWS 16
#define CASE_MAX_LENGTH 2048

struct case_memory {
    pthread_mutex_t lock;
    bool is_ready; /* from case_init to case_close; before and after it nothing is given out */
    long fail_at;  /* the fail_at-th call and all after it return NULL; 0 never */
    long calls;
    long live;
    long num_wrong; /* freed with another size, by another door, or with a broken fence */
    long num_logged;
    size_t alloc_bytes; /* live, as requested */
    size_t map_bytes;
    char line[160]; /* the first that was logged */
    unsigned char fill;
};

struct runtime_case {
    struct pkv_cache_config config;
    struct pkv_group_config groups[CASE_MAX_GROUPS];
    struct pkv_layer_config layers[CASE_MAX_LAYERS];
    struct case_memory memory;
    pkv_cache *cache;
    bool mean;  /* queries are 0: an output is the plain mean of the values that are seen */
    bool tasks; /* layers are attended task by task */
    bool fused; /* q, k and v of a token lie in one row, outputs in rows wider than they are */
    uint32_t next_tag;
    struct pkv_shortage lacking; /* of the last prefix_probe; -1: not filled */
};

struct case_seq {
    pkv_seq handle;
    int64_t kept_prefix; /* -1: the group's */
    int32_t length;
    uint32_t tags[CASE_MAX_LENGTH]; /* past length: those of the open step */
};

struct case_row {
    struct case_seq *seq;
    int32_t q_len;
    uint64_t digest; /* of the bits that its last token got, over the layers attended so far */
};

struct case_step {
    pkv_step handle;
    int32_t num_rows; /* after case_begin: those that joined */
    int32_t num_tokens;
    struct case_row rows[CASE_MAX_ROWS];
    struct pkv_shortage shortage;
    enum pkv_status attended; /* what the last attend answered */
};

/* One paged f32 group (block_size 4, 16 blocks, one head of width 2) and one layer of it; 8
 * sequences of up to 64 tokens, 64 tokens a step, one thread, poison on free. Change what the test
 * is about, then open. */
void case_init(struct runtime_case *c);
struct pkv_group_config *case_add_group(struct runtime_case *c);                /* as group 0 */
struct pkv_layer_config *case_add_layer(struct runtime_case *c, int32_t group); /* one head each */

/* Creates the cache; asserts that it is sound. */
void case_open(struct runtime_case *c);

/* Asserts that the cache is sound and that destroying it gives everything back. */
void case_close(struct runtime_case *c);

/* Number of broken invariants; the first is printed. */
int32_t case_check(struct runtime_case *c);

/* Blocks that anybody may take; held or promised are the others; taken are those that are held. */
int32_t case_free(struct runtime_case *c, int32_t group);
int32_t case_taken(struct runtime_case *c, int32_t group);
int32_t case_held(struct runtime_case *c, int32_t group);
int32_t case_length(struct runtime_case *c, pkv_seq seq);

/* The handle is written and the model emptied only when the call succeeds. options may be NULL. */
enum pkv_status case_create(struct runtime_case *c, struct case_seq *seq,
                            const struct pkv_seq_options *options);
enum pkv_status case_fork(struct runtime_case *c, const struct case_seq *seq, int32_t at,
                          struct case_seq *child);
enum pkv_status case_truncate(struct runtime_case *c, struct case_seq *seq, int32_t length);
enum pkv_status case_admit(struct runtime_case *c, struct case_seq *seq, int32_t num_tokens,
                           int32_t reserve_tokens, struct pkv_shortage *shortage);

/* Rows are added to a zeroed step, then begun: new tokens with new tags. fits is the dry run. */
void case_row(struct case_step *step, struct case_seq *seq, int32_t q_len);
bool case_is_row(const struct case_step *step, const struct case_seq *seq);
enum pkv_status case_fits(struct runtime_case *c, const struct case_step *step,
                          int32_t num_required_rows, struct pkv_shortage *shortage);
enum pkv_status case_begin(struct runtime_case *c, struct case_step *step,
                           int32_t num_required_rows);

/* One layer; true when it answered PKV_OK and every channel and log-sum-exp is within tolerance of
 * the dense reference; otherwise the first fault is printed. */
bool case_attend(struct runtime_case *c, struct case_step *step, int32_t layer);
void case_attend_all(struct runtime_case *c, struct case_step *step); /* asserts each */

/* num_keep NULL = all. Asserts PKV_OK, and that the lengths are what they should be. */
void case_commit(struct runtime_case *c, struct case_step *step, const int32_t *num_keep);
void case_abort(struct runtime_case *c, struct case_step *step);

/* n tokens onto one sequence by a step of its own: what begin answered; the digest of the last. */
enum pkv_status case_append(struct runtime_case *c, struct case_seq *seq, int32_t n);
uint64_t case_append_digest(struct runtime_case *c, struct case_seq *seq, int32_t n);

/* Blocks of one sequence in one group, by a step of its own that writes nothing: table[0..n). */
void case_table(struct runtime_case *c, struct case_seq *seq, int32_t group, int32_t *table,
                int32_t n);

/* Where the key (value) of a cell lies. */
const void *case_cell(const struct pkv_kv_view *view, bool is_value, int32_t block, int32_t head,
                      int32_t cell);

/* What key (0), value (1) or query (2) a token has. */
double case_value(uint32_t tag, int32_t layer, int what, int32_t head, int32_t channel);

/* How many of the n blocks that hold positions [0, length) a row of a window group needs when its
 * next query is at length or max_rewind before it: the rest was released. */
int32_t case_resident_blocks(int32_t length, int32_t block_size, int64_t window, int64_t prefix,
                             int32_t max_rewind);

/* The order-th of the count! permutations of 0 .. count - 1; count at most 8. */
void case_permutation(int order, int count, int *at);

#endif
