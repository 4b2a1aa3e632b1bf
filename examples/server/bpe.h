/* SPDX-License-Identifier: MIT
 *
 * bpe.h: byte-level BPE: texts are cut into pieces (bpe_split.h), and in each piece the neighbours
 * whose pair comes first in the list of merges are joined until none is left.
 *
 * Tokens are added, then merges, in their order; bpe_file.h reads both from tokenizer.json. Cost of
 * a text: a piece of n bytes takes O(n log n), so a text that is one piece is no slower than the
 * same bytes in words. */
#ifndef SERVER_BPE_H
#define SERVER_BPE_H

#include "bpe_split.h"

struct bpe_token {
    char *bytes; /* NULL: there is no token of this id */
    size_t num_bytes;
    bool special; /* stands for no text, and no text becomes it */
};

/* A slot of a table by hash; -1 = free. */
struct bpe_merge {
    int32_t left, right;
    int32_t rank, result;
};

struct bpe {
    struct bpe_token *tokens; /* [vocab_size] */
    int32_t vocab_size;
    int32_t max_token_bytes;
    int32_t of_byte[256]; /* -1 = none yet */
    enum bpe_split split;
    bool whole_pieces;                 /* a piece that is a token is not made by merges */
    int32_t *by_bytes;                 /* [token_slots] ids of what is not special, by bytes */
    struct bpe_merge *merges;          /* [merge_slots] */
    uint32_t token_slots, merge_slots; /* powers of two */
};

/* Room for ids below vocab_size and so many merges. Complains when it fails. */
bool bpe_create(int32_t vocab_size, int32_t num_merges, struct bpe *bpe);
void bpe_free(struct bpe *bpe);

/* The token `id` < vocab_size, which must be free yet; its bytes are copied. False after a
 * complaint. */
bool bpe_add_token(struct bpe *bpe, int32_t id, const char *bytes, size_t num_bytes, bool special);

/* The token of these bytes that is not special; -1 = there is none. */
int32_t bpe_find(const struct bpe *bpe, const char *bytes, size_t num_bytes);

/* left and right become result; the first merge of a pair counts. rank: its place in the list. No
 * more than num_merges. */
void bpe_add_merge(struct bpe *bpe, int32_t left, int32_t right, int32_t rank, int32_t result);

/* Tokens of a text, behind the *num_tokens that are in *tokens already, which is grown by realloc.
 * False after a complaint: memory was short, and *tokens stays the caller's. */
bool bpe_encode(const struct bpe *bpe, const char *text, size_t num_bytes, int32_t **tokens,
                int32_t *num_tokens);

#endif
