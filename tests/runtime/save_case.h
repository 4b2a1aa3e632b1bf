/* SPDX-License-Identifier: MIT
 *
 * save_case.h: saved sequences in memory, and sequences whose outputs follow from a text: a number
 * that decides every query, key and value by position. What such a sequence computes after it was
 * loaded is compared bit by bit with what it computes when it was never saved. */
#ifndef PKV_TEST_RUNTIME_SAVE_CASE_H
#define PKV_TEST_RUNTIME_SAVE_CASE_H

#include "support/runtime_case.h"

/* A file in memory. */
struct save_bytes {
    unsigned char *at;
    size_t count;
    size_t capacity;
    size_t next;                              /* of a stream */
    long calls;                               /* of any callback */
    long fail_at;                             /* this call and all after it return false; 0 never */
    size_t write_limit;                       /* bytes that there is room for; 0 = any number */
    void (*before)(void *context, long call); /* of each callback; NULL: nothing */
    void *context;
};

void save_bytes_free(struct save_bytes *bytes);
bool save_write(void *context, const void *from, size_t n);
bool save_read(void *context, void *to, size_t n);
bool save_read_at(void *context, uint64_t offset, void *to, size_t n);

/* Saved to bytes, which are emptied first; loaded from them, at any offset, or as a stream. */
enum pkv_status save_to(struct runtime_case *c, pkv_seq seq, struct save_bytes *bytes);
enum pkv_status save_load(struct runtime_case *c, struct save_bytes *bytes, pkv_seq *seq,
                          struct pkv_shortage *shortage);
enum pkv_status save_load_stream(struct runtime_case *c, struct save_bytes *bytes, pkv_seq *seq,
                                 struct pkv_shortage *shortage);

/* Opens a cache of case_init with two layers in group 0, of these dtypes, and with the constants
 * that they need. Change groups and layers before. */
void save_open(struct runtime_case *c, enum pkv_dtype k_dtype, enum pkv_dtype v_dtype);

/* Tokens [length, length + n) of a text, in a step of its own; a digest of all outputs. */
uint64_t save_run(struct runtime_case *c, pkv_seq seq, int32_t text, int32_t n);

/* A new sequence with `length` tokens of a text. options may be NULL. */
pkv_seq save_seq(struct runtime_case *c, const struct pkv_seq_options *options, int32_t text,
                 int32_t length);

/* The ids of a text, for prompts. */
void save_ids(int32_t text, int32_t n, int32_t *ids);

#endif
