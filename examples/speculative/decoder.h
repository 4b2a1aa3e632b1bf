/* SPDX-License-Identifier: MIT
 *
 * decoder.h: one model on a cache of its own, with one sequence at a time.
 *
 *   decoder_start        an empty sequence adopts what is cached of the prompt
 *   decoder_catch_up     computes and keeps tokens up to a length
 *   decoder_compute      opens a step of a few tokens; decoder_choose: the token after each
 *   decoder_keep         ends it: so many of its tokens stay
 *   decoder_compute_tree, decoder_keep_path: the same of a tree of tokens and one of its paths
 *   decoder_rewind       takes kept tokens back
 *   decoder_end          the sequence ends, its full blocks stay cached */
#ifndef SPECULATIVE_DECODER_H
#define SPECULATIVE_DECODER_H

#include "cached.h"
#include "forward.h"

struct decoder_options {
    int32_t max_tokens; /* the longest sequence */
    int32_t max_step_tokens;
    int32_t max_rewind; /* as far as decoder_rewind may go back */
    int32_t block_size;
    int32_t threads;
};

struct decoder {
    const struct model *model;
    struct decoder_options options;
    struct activations activations;
    struct cached_step open; /* the cache, and the step while one is open */
    pkv_seq seq;
    int32_t length;    /* tokens of the sequence that are in the cache */
    int64_t num_steps; /* of all sequences; prefill counts too */
};

bool decoder_create(const struct model *model, const struct decoder_options *options,
                    struct decoder *decoder);

/* Complains unless every block is free and every invariant holds. A zeroed decoder is accepted. */
bool decoder_destroy(struct decoder *decoder);

/* All return false after a complaint. Tokens are the whole sequence's, from its first on. */
bool decoder_start(struct decoder *decoder, const int32_t *tokens, int32_t num_tokens);
bool decoder_catch_up(struct decoder *decoder, const int32_t *tokens, int32_t length);
bool decoder_end(struct decoder *decoder);

/* The next num_new tokens of the sequence. */
bool decoder_compute(struct decoder *decoder, const int32_t *tokens, int32_t num_new);
bool decoder_choose(struct decoder *decoder, int32_t index, int32_t *token);
bool decoder_keep(struct decoder *decoder, int32_t num_keep);

/* parents as in struct pkv_batch; path as in pkv_step_commit_path. */
bool decoder_compute_tree(struct decoder *decoder, const int32_t *tokens, const int32_t *parents,
                          int32_t num_new);
bool decoder_keep_path(struct decoder *decoder, const int32_t *path, int32_t num_keep);

/* No further back than to `length`, and no step when the sequence is not longer. */
bool decoder_rewind(struct decoder *decoder, int32_t length);

#endif
