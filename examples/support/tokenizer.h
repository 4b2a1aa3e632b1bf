/* SPDX-License-Identifier: MIT
 *
 * tokenizer.h: a llama2.c vocabulary: text to ids and back. */
#ifndef SUPPORT_TOKENIZER_H
#define SUPPORT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What one id stands for; the bytes lie in the file's image. */
struct piece {
    const unsigned char *bytes;
    int32_t length;
    int32_t id;
    float score;
};

struct tokenizer {
    unsigned char *image; /* the file */
    struct piece *pieces; /* [vocab_size], by id */
    struct piece *sorted; /* [vocab_size], by bytes, then by id */
    int32_t vocab_size;
    int32_t max_length;
};

/* Reads a tokenizer file for a vocabulary of that size; it must end after the last token. */
bool tokenizer_load(const char *path, int32_t vocab_size, struct tokenizer *tokenizer);
void tokenizer_free(struct tokenizer *tokenizer);

/* TOKEN_BEGIN, then the text's ids, in an array that the caller frees. Merges are searched for
 * anew after each merge: O(length^2) look-ups, for prompts of a page. */
bool tokenizer_encode(const struct tokenizer *tokenizer, const char *text, int32_t **ids,
                      int32_t *num_ids);

/* Writes the text of the ids, begin and end left out. Control bytes that a terminal would obey are
 * left out. */
void tokenizer_print(const struct tokenizer *tokenizer, const int32_t *ids, int32_t num_ids,
                     FILE *out);

#endif
