/* SPDX-License-Identifier: MIT
 *
 * reuse_case.h: sequences whose keys and values follow from their tokens. The tag of a
 * position (runtime_case.h) is a hash of all tokens, extras and namespaces up to it, so a block
 * that is found for anything but exactly its own content gives wrong attention at once. */
#ifndef PKV_TEST_RUNTIME_PREFIX_CASE_H
#define PKV_TEST_RUNTIME_PREFIX_CASE_H

#include "support/runtime_case.h"

/* The first member is what runtime_case.h knows. */
struct prefix_seq {
    struct case_seq seq;
    struct pkv_seq_options options;
    struct pkv_namespace_field fields[PKV_MAX_NAMESPACE_FIELDS];
    int64_t kept_prefix;
    int32_t ids[CASE_MAX_LENGTH]; /* what it holds, and is going to write */
    uint64_t extra[CASE_MAX_LENGTH];
    bool has_extra;
};

/* runtime_case.h's cache with the prefix cache on, and room for pins, events and namespaces. Hits
 * are whole blocks, unless a test clears no_partial_hits. */
void prefix_init(struct runtime_case *c);

/* The same, opened, with so many blocks. */
void prefix_open(struct runtime_case *c, int32_t num_blocks);

/* Tokens of a node: the smallest block size. */
int32_t prefix_node_size(const struct runtime_case *c);

/* A sequence with these options (NULL = none), whose ids are base, base + 1, ... */
enum pkv_status prefix_create(struct runtime_case *c, struct prefix_seq *seq, int32_t base,
                              const struct pkv_seq_options *options);

/* Its first num_tokens ids, with their extras, as a prompt. */
struct pkv_prompt prefix_prompt(const struct prefix_seq *seq, int32_t num_tokens);

/* Admits its first num_tokens ids, adopting all there is; asserts what the answer says of itself.
 * *num_cached may be NULL. */
enum pkv_status prefix_admit(struct runtime_case *c, struct prefix_seq *seq, int32_t num_tokens,
                             int32_t reserve, int32_t *num_cached);

/* What a probe of the same says; asserts that the probe has no effect. */
struct pkv_probe prefix_probe(struct runtime_case *c, const struct prefix_seq *seq,
                              int32_t num_tokens, int32_t reserve);
int32_t prefix_hit(struct runtime_case *c, const struct prefix_seq *seq, int32_t num_tokens);

/* Lets options point into seq, with the values that they point to. */
void prefix_own_options(struct prefix_seq *seq, const struct pkv_seq_options *options);

/* A step of rows that were added by case_row(step, &seq->seq, n); asserts that its dry run said the
 * same. */
enum pkv_status prefix_begin(struct runtime_case *c, struct case_step *step,
                             int32_t num_required_rows);

/* The next n ids, by a step of its own, checked against dense attention. */
void prefix_append(struct runtime_case *c, struct prefix_seq *seq, int32_t n);

/* create, admit and append up to `length`; the tokens that were found. */
int32_t prefix_run(struct runtime_case *c, struct prefix_seq *seq, int32_t base, int32_t length);
void prefix_destroy(struct runtime_case *c, struct prefix_seq *seq);

/* Both, so that what was computed is cached and held by nobody. */
void prefix_warm(struct runtime_case *c, struct prefix_seq *seq, int32_t base, int32_t length);

/* The tag of position i of seq; O(i). */
uint32_t prefix_tag(const struct runtime_case *c, const struct prefix_seq *seq, int32_t i);

/* A field of a namespace: text's bytes. */
struct pkv_namespace_field prefix_field_of(int32_t tag, const char *text, int32_t begins_at);

/* A hash of what can be seen of a cache: usage, every block's state, counts and key. */
uint64_t prefix_digest(struct runtime_case *c);

struct pkv_stats prefix_stats(struct runtime_case *c);

#endif
