/* SPDX-License-Identifier: MIT
 *
 * Layers are as narrow as they can be: what is measured is which blocks stay cached. Hits end with
 * whole blocks, as in the simulations. */
#include "served.h"

#include <stdlib.h>

#include "measure.h"
#include "pagedkv.h"

/* Attention groups; a state group follows them. Each group has a layer. */
static int32_t num_attention(const struct serving *serving)
{
    return 2 - (serving->window == 0 || serving->full_blocks < 0);
}

static int32_t num_groups(const struct serving *serving)
{
    return num_attention(serving) + (serving->num_states > 0);
}

static void add_states(const struct serving *serving, struct pkv_group_config *groups,
                       struct pkv_layer_config *layers)
{
    const int32_t group = num_attention(serving);
    if (serving->num_states > 0) {
        groups[group] =
            (struct pkv_group_config){.kind = PKV_GROUP_STATE,
                                      .num_blocks = serving->num_states,
                                      .state_bytes = SERVED_STATE_TOKENS * 2 * sizeof(float),
                                      .snapshot_interval = serving->snapshot_interval,
                                      .segment_tokens = serving->segment_tokens};
        layers[group] = (struct pkv_layer_config){.group = group};
    }
}

static pkv_cache *open_cache(const struct serving *serving)
{
    const int32_t block_size = serving->block_size > 0 ? serving->block_size : TRACE_BLOCK;
    struct pkv_group_config groups[3] = {
        {.kv_heads = 1, .k_width = 1, .block_size = block_size, .num_blocks = serving->full_blocks},
        {.kv_heads = 1,
         .k_width = 1,
         .block_size = block_size,
         .num_blocks = serving->window_blocks,
         .sliding_window = serving->window},
    };
    struct pkv_layer_config layers[3] = {{.num_heads = 1}, {.num_heads = 1, .group = 1}};
    add_states(serving, groups + (serving->full_blocks < 0), layers);
    const struct pkv_cache_config config = {.size = sizeof config,
                                            .groups = groups + (serving->full_blocks < 0),
                                            .num_groups = num_groups(serving),
                                            .layers = layers,
                                            .num_layers = num_groups(serving),
                                            .bytes = serving->bytes,
                                            .max_seqs = serving->max_seqs,
                                            .max_seq_len = TRACE_MAX_LENGTH,
                                            .max_step_tokens = TRACE_CHUNK,
                                            .num_threads = 1,
                                            .prefix_cache = true,
                                            .no_partial_hits = !serving->is_partial,
                                            .min_blank_percent = serving->min_blank_percent};
    pkv_cache *cache;
    measure_must(pkv_cache_create(&config, &cache), "pkv_cache_create");
    return cache;
}

/* Layers of attention run; what states hold decides nothing here. */
static void step(pkv_cache *cache, int32_t num_layers, pkv_seq seq, const int32_t *tokens,
                 int32_t q_len)
{
    static float zeros[TRACE_CHUNK], out[TRACE_CHUNK];
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = &seq,
                                    .q_lens = &q_len,
                                    .token_ids = tokens,
                                    .num_rows = 1,
                                    .num_required_rows = 1};
    const struct pkv_layer_io io = {
        .size = sizeof io, .q = zeros, .k = zeros, .v = zeros, .out = out};
    pkv_step open;
    measure_must(pkv_step_begin(cache, &batch, &open, NULL), "pkv_step_begin");
    for (int32_t layer = 0; layer < num_layers; layer++) {
        measure_must(pkv_step_attend(cache, open, layer, &io), "pkv_step_attend");
    }
    measure_must(pkv_step_commit(cache, open, NULL), "pkv_step_commit");
}

/* Admits one request, computes it in chunks, decodes, and ends it. */
static int32_t serve(pkv_cache *cache, int32_t num_layers, const struct request *request)
{
    const struct pkv_prompt prompt = {
        .size = sizeof prompt, .token_ids = request->tokens, .num_tokens = request->num_prompt};
    struct pkv_admission admission = {.size = sizeof admission};
    pkv_seq seq;
    measure_must(pkv_seq_create(cache, NULL, &seq), "pkv_seq_create");
    measure_must(pkv_seq_admit(cache, seq, &prompt, request->length - request->num_prompt,
                               request->num_prompt, &admission, NULL),
                 "pkv_seq_admit");
    int32_t at = admission.num_cached;
    while (at < request->length) {
        const int32_t left = request->num_prompt - at;
        const int32_t q_len = left > TRACE_CHUNK ? TRACE_CHUNK : left > 0 ? left : 1;
        step(cache, num_layers, seq, request->tokens + at, q_len);
        at += q_len;
    }
    measure_must(pkv_seq_destroy(cache, seq), "pkv_seq_destroy");
    return admission.num_cached;
}

int64_t served_tokens(const struct trace *trace, const struct serving *serving, int32_t *blocks)
{
    pkv_cache *cache = open_cache(serving);
    int64_t sum = 0;
    for (int32_t i = 0; i < trace->num_requests; i++) {
        sum += serve(cache, num_attention(serving), &trace->requests[i]);
    }
    for (int32_t group = 0; blocks != NULL && group < num_attention(serving); group++) {
        struct pkv_group_usage usage = {.size = sizeof usage};
        measure_must(pkv_cache_usage(cache, group, &usage), "pkv_cache_usage");
        blocks[group] = usage.num_blocks;
    }
    measure_must(pkv_cache_destroy(cache, false), "pkv_cache_destroy");
    return sum;
}

static void look_at_states(pkv_cache *cache, int32_t group, struct served_states *states)
{
    struct pkv_group_usage usage = {.size = sizeof usage};
    measure_must(pkv_cache_usage(cache, group, &usage), "pkv_cache_usage");
    const int32_t used = usage.cached + usage.held;
    states->max_cached = usage.cached > states->max_cached ? usage.cached : states->max_cached;
    states->max_used = used > states->max_used ? used : states->max_used;
    states->mean_cached += usage.cached;
}

int64_t served_with_states(const struct trace *trace, const struct serving *serving,
                           struct served_states *states)
{
    pkv_cache *cache = open_cache(serving);
    int64_t sum = 0;
    *states = (struct served_states){0};
    for (int32_t i = 0; i < trace->num_requests; i++) {
        sum += serve(cache, num_attention(serving), &trace->requests[i]);
        look_at_states(cache, num_attention(serving), states);
    }
    states->mean_cached /= trace->num_requests;
    measure_must(pkv_cache_destroy(cache, false), "pkv_cache_destroy");
    return sum;
}
