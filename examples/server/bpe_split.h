/* SPDX-License-Identifier: MIT
 *
 * bpe_split.h: the pieces into which a text is cut before bytes are merged. Tokenizers write them
 * as a regular expression; the three that are known here are matched by hand, in one pass. */
#ifndef SERVER_BPE_SPLIT_H
#define SERVER_BPE_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which pattern. */
enum bpe_split {
    BPE_SPLIT_GPT2,   /* "ByteLevel" without a pattern of its own */
    BPE_SPLIT_LLAMA3, /* numbers in threes */
    BPE_SPLIT_QWEN    /* numbers one by one */
};

/* True, and which, for a pattern that is known. */
bool bpe_split_of(const char *pattern, enum bpe_split *split);

/* The bytes of the piece that begins at a text's first byte: 1 to num_bytes, num_bytes >= 1. A byte
 * that is no UTF-8 counts as a character of its own. */
size_t bpe_split_next(enum bpe_split split, const char *text, size_t num_bytes);

#endif
