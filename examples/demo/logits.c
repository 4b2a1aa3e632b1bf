/* SPDX-License-Identifier: MIT
 *
 * logits.c: one sequence, prefilled in steps that are no multiple of a block. */
#include "logits.h"

#include "cached.h"
#include "forward.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 48, BLOCK_SIZE = 16 };

/* One step of the next tokens; *open has the cache. */
static bool compute(const struct model *model, struct cached_step *open, pkv_seq seq,
                    struct activations *a, const int32_t *tokens, int32_t count)
{
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = &seq,
                                    .q_lens = &count,
                                    .num_rows = 1,
                                    .num_required_rows = 1,
                                    .token_ids = tokens};
    if (pkv_step_begin(open->cache, &batch, &open->step, NULL) != PKV_OK) {
        return complain("step: %s", pkv_last_error());
    }
    if (!forward(model, a, tokens, count, cached_attend, open)) {
        return false;
    }
    return pkv_step_commit(open->cache, open->step, NULL) == PKV_OK ||
           complain("commit: %s", pkv_last_error());
}

static bool compute_all(const struct model *model, pkv_cache *cache, struct activations *a,
                        const int32_t *tokens, int32_t num_tokens)
{
    struct cached_step open = {.cache = cache};
    pkv_seq seq = {0};
    int32_t count = 0;
    if (pkv_seq_create(cache, NULL, &seq) != PKV_OK) {
        return complain("sequence: %s", pkv_last_error());
    }
    for (int32_t done = 0; done < num_tokens; done += count) {
        count = num_tokens - done < CHUNK ? num_tokens - done : CHUNK;
        if (!compute(model, &open, seq, a, tokens + done, count)) {
            return false;
        }
    }
    if (!logits_of(model, a, count - 1)) {
        return false;
    }
    for (int32_t i = 0; i < model->vocab_size; i++) {
        printf("%.9g\n", (double)a->logits[i]);
    }
    return true;
}

bool print_logits(const struct model *model, const char *text)
{
    const size_t length = strlen(text);
    if (length >= (size_t)model->seq_len) {
        return complain("--logits: %zu bytes and a begin are more than %d positions", length,
                        model->seq_len);
    }
    const int32_t num_tokens = (int32_t)length + 1;
    const struct pkv_group_config group = {.block_size = BLOCK_SIZE,
                                           .num_blocks = num_tokens / BLOCK_SIZE + 2};
    const struct pkv_cache_config config = {
        .max_seqs = 1, .max_seq_len = num_tokens, .max_step_tokens = CHUNK, .num_threads = 1};
    int32_t *tokens = malloc((size_t)num_tokens * sizeof *tokens);
    struct activations a = {0};
    pkv_cache *cache = NULL;
    if (tokens == NULL) {
        return complain("out of memory for %d tokens", num_tokens);
    }
    tokens[0] = model->begin_id;
    for (size_t i = 0; i < length; i++) {
        tokens[i + 1] = (unsigned char)text[i];
    }
    const bool ok = cached_create(model, &group, &config, &cache) &&
                    activations_create(model, CHUNK, 1, &a) &&
                    compute_all(model, cache, &a, tokens, num_tokens);
    pkv_cache_destroy(cache, true);
    activations_free(&a);
    free(tokens);
    return ok;
}
