/* SPDX-License-Identifier: MIT
 *
 * bpe_file.h: the vocabulary in a tokenizer.json of Hugging Face's tokenizers: byte-level BPE with
 * one of the patterns of bpe_split.h. Anything else that would change the tokens is refused in
 * words; but the normalizer NFC is not run: a text is taken as it is. */
#ifndef SERVER_BPE_FILE_H
#define SERVER_BPE_FILE_H

#include "bpe.h"

/* Ids are below vocab_size, or the file is refused. *begin: the special token that the file puts
 * before a text, or -1. Complains when it fails. */
bool bpe_file_read(const char *path, int32_t vocab_size, struct bpe *bpe, int32_t *begin);

#endif
