/* SPDX-License-Identifier: MIT
 *
 * decoder.c: each function is one call of the library and the model's part between them. */
#include "decoder.h"

#include "report.h"

#include <string.h>

bool decoder_create(const struct model *model, const struct decoder_options *options,
                    struct decoder *decoder)
{
    memset(decoder, 0, sizeof *decoder);
    decoder->model = model;
    decoder->options = *options;
    /* Twice what a sequence needs, so that the blocks of ended ones stay cached for a while. */
    const int32_t num_blocks = 2 * ((options->max_tokens - 1) / options->block_size + 2);
    const struct pkv_group_config group = {
        .block_size = options->block_size,
        .num_blocks = num_blocks,
    };
    const struct pkv_cache_config config = {
        .max_seqs = 1,
        .max_seq_len = options->max_tokens,
        .max_step_tokens = options->max_step_tokens,
        .num_threads = options->threads,
        .prefix_cache = true,
    };
    return cached_create(model, &group, &config, &decoder->open.cache) &&
           activations_create(model, options->max_step_tokens, options->threads,
                              &decoder->activations);
}

bool decoder_destroy(struct decoder *decoder)
{
    bool ok = true;
    if (decoder->open.cache != NULL && decoder->seq.id == 0) {
        ok = cached_check_empty(decoder->open.cache);
    }
    if (pkv_cache_destroy(decoder->open.cache, true) != PKV_OK) {
        ok = complain("the cache would not go: %s", pkv_last_error());
    }
    activations_free(&decoder->activations);
    memset(decoder, 0, sizeof *decoder);
    return ok;
}

bool decoder_start(struct decoder *decoder, const int32_t *tokens, int32_t num_tokens)
{
    const struct pkv_seq_options options = {.size = sizeof options,
                                            .max_rewind = decoder->options.max_rewind};
    const struct pkv_prompt prompt = {
        .size = sizeof prompt, .token_ids = tokens, .num_tokens = num_tokens};
    struct pkv_admission admission = {.size = sizeof admission};
    if (pkv_seq_create(decoder->open.cache, &options, &decoder->seq) != PKV_OK ||
        pkv_seq_admit(decoder->open.cache, decoder->seq, &prompt, 0, num_tokens, &admission,
                      NULL) != PKV_OK) {
        return complain("no room for a request: %s", pkv_last_error());
    }
    decoder->length = admission.num_cached;
    return true;
}

bool decoder_catch_up(struct decoder *decoder, const int32_t *tokens, int32_t length)
{
    while (decoder->length < length) {
        int32_t num_new = length - decoder->length;
        if (num_new > decoder->options.max_step_tokens) {
            num_new = decoder->options.max_step_tokens;
        }
        if (!decoder_compute(decoder, tokens + decoder->length, num_new) ||
            !decoder_keep(decoder, num_new)) {
            return false;
        }
    }
    return true;
}

bool decoder_end(struct decoder *decoder)
{
    const pkv_seq seq = decoder->seq;
    decoder->seq = (pkv_seq){0};
    return pkv_seq_destroy(decoder->open.cache, seq) == PKV_OK || complain("%s", pkv_last_error());
}

bool decoder_compute_tree(struct decoder *decoder, const int32_t *tokens, const int32_t *parents,
                          int32_t num_new)
{
    const struct pkv_batch batch = {
        .size = sizeof batch,
        .seqs = &decoder->seq,
        .q_lens = &num_new,
        .num_rows = 1,
        .num_required_rows = 1,
        .token_ids = tokens,
        .parents = parents,
    };
    if (pkv_step_begin(decoder->open.cache, &batch, &decoder->open.step, NULL) != PKV_OK) {
        return complain("step: %s", pkv_last_error());
    }
    decoder->num_steps++;
    return forward(decoder->model, &decoder->activations, tokens, num_new, cached_attend,
                   &decoder->open);
}

bool decoder_compute(struct decoder *decoder, const int32_t *tokens, int32_t num_new)
{
    return decoder_compute_tree(decoder, tokens, NULL, num_new);
}

bool decoder_choose(struct decoder *decoder, int32_t index, int32_t *token)
{
    return next_token(decoder->model, &decoder->activations, index, token, NULL);
}

bool decoder_keep(struct decoder *decoder, int32_t num_keep)
{
    if (pkv_step_commit(decoder->open.cache, decoder->open.step, &num_keep) != PKV_OK) {
        return complain("commit: %s", pkv_last_error());
    }
    decoder->length += num_keep;
    return true;
}

bool decoder_keep_path(struct decoder *decoder, const int32_t *path, int32_t num_keep)
{
    if (pkv_step_commit_path(decoder->open.cache, decoder->open.step, &num_keep, path) != PKV_OK) {
        return complain("commit of a path: %s", pkv_last_error());
    }
    decoder->length += num_keep;
    return true;
}

bool decoder_rewind(struct decoder *decoder, int32_t length)
{
    if (decoder->length <= length) {
        return true;
    }
    if (pkv_seq_truncate(decoder->open.cache, decoder->seq, length) != PKV_OK) {
        return complain("rewind from %d to %d: %s", decoder->length, length, pkv_last_error());
    }
    decoder->length = length;
    return true;
}
