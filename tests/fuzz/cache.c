/* SPDX-License-Identifier: MIT
 *
 * Managed caches: configurations any field of which may be anything, and on those that are made a
 * short life of requests with handles good, stale and made up. */
#include <string.h>

#include "life.h"

/* A window beside, whose blocks may be larger; then states that suit both. */
static void add_groups(struct fuzz *fuzz, struct setup *s, int32_t num_groups)
{
    const int32_t unit = 4 * fuzz_in(fuzz, 1, num_groups > 1 ? 3 : 1);
    for (int32_t g = 0; g < num_groups; g++) {
        s->groups[g] = (struct pkv_group_config){.kv_heads = 1,
                                                 .k_width = WIDTH,
                                                 .block_size = g > 0 ? unit : 4,
                                                 .num_blocks = fuzz_in(fuzz, 1, 24),
                                                 .sliding_window = g > 0 ? 8 : 0};
        s->groups[g].segment_tokens = g > 0 ? (int64_t)unit * fuzz_in(fuzz, 0, 2) : 0;
    }
    for (int32_t g = num_groups; g < s->config.num_groups; g++) {
        const int32_t interval = unit * fuzz_in(fuzz, 0, 2);
        s->groups[g] =
            (struct pkv_group_config){.kind = PKV_GROUP_STATE,
                                      .state_bytes = (size_t)fuzz_in(fuzz, 1, 200),
                                      .num_blocks = fuzz_in(fuzz, 1, 40),
                                      .snapshot_interval = interval,
                                      .max_rewind = fuzz_in(fuzz, 0, 6),
                                      .segment_tokens = (int64_t)interval * fuzz_in(fuzz, 0, 3)};
    }
}

static void good(struct fuzz *fuzz, struct setup *s)
{
    const int32_t num_groups = fuzz_in(fuzz, 1, 2);
    const int32_t num_states = fuzz_once_in(fuzz, 2) ? fuzz_in(fuzz, 1, 2) : 0;
    memset(s, 0, sizeof *s);
    s->config =
        (struct pkv_cache_config){.size = sizeof s->config,
                                  .groups = s->groups,
                                  .num_groups = num_groups + num_states,
                                  .layers = s->layers,
                                  .num_layers = fuzz_in(fuzz, num_groups + num_states, MAX_LAYERS),
                                  .max_seqs = HANDLES,
                                  .max_seq_len = 64,
                                  .max_step_tokens = TOKENS,
                                  .num_threads = 1,
                                  .isa = test_isa(),
                                  .hooks = fuzz->hooks,
                                  .prefix_cache = fuzz_once_in(fuzz, 2)};
    if (s->config.prefix_cache) {
        s->config.max_pinned_blocks = fuzz_in(fuzz, 0, 8);
        s->config.num_events = fuzz_in(fuzz, 0, 32);
        s->config.max_namespaces = fuzz_in(fuzz, 0, 8);
        s->config.min_blank_percent = fuzz_in(fuzz, 0, 1) * fuzz_in(fuzz, 0, 100);
    }
    const bool swaps = num_states == 0 && fuzz_once_in(fuzz, 2);
    s->config.swap_bytes = swaps ? (size_t)fuzz_in(fuzz, 300, 8000) : 0;
    add_groups(fuzz, s, num_groups);
    for (int32_t i = 0; i < s->config.num_layers; i++) {
        s->layers[i] =
            (struct pkv_layer_config){.group = i % s->config.num_groups, .num_heads = HEADS};
    }
}

static void spoil_group(struct fuzz *fuzz, struct pkv_group_config *g)
{
    switch (fuzz_in(fuzz, 0, 15)) {
    case 0: g->kind = (enum pkv_group_kind)fuzz_in(fuzz, -1, 4); break;
    case 1: g->storage = (enum pkv_storage)fuzz_in(fuzz, -1, 3); break;
    case 2: g->kv_heads = fuzz_int32(fuzz, 2); break;
    case 3: g->k_width = fuzz_int32(fuzz, 9); break;
    case 4: g->v_width = fuzz_int32(fuzz, 9); break;
    case 5: g->v_in_k = !g->v_in_k; break;
    case 6: g->k_dtype = (enum pkv_dtype)fuzz_in(fuzz, -1, 6); break;
    case 7: g->v_dtype = (enum pkv_dtype)fuzz_in(fuzz, -1, 6); break;
    case 8: g->block_size = fuzz_int32(fuzz, 9); break;
    case 9: g->sliding_window = fuzz_int64(fuzz, 9); break;
    case 11: g->state_bytes = (size_t)fuzz_int64(fuzz, 9); break;
    case 12: g->snapshot_interval = fuzz_int32(fuzz, 9); break;
    case 13: g->max_rewind = fuzz_int32(fuzz, 9); break;
    case 14: g->segment_tokens = fuzz_int64(fuzz, 9); break;
    case 10: g->kept_prefix = fuzz_int64(fuzz, 9); break;
    default: g->num_blocks = fuzz_int32(fuzz, 9); break;
    }
}

static void spoil_whole(struct fuzz *fuzz, struct pkv_cache_config *c)
{
    int32_t *const counts[] = {&c->max_seqs,          &c->max_seq_len,       &c->max_step_rows,
                               &c->max_step_tokens,   &c->num_index_nodes,   &c->max_namespaces,
                               &c->max_pinned_blocks, &c->num_events,        &c->watermark_blocks,
                               &c->masked_hash_bits,  &c->fingerprint_bytes, &c->min_blank_percent};
    switch (fuzz_in(fuzz, 0, 6)) {
    case 6: c->swap_bytes = (size_t)fuzz_int64(fuzz, 9); break;
    case 0: c->size -= (size_t)fuzz_in(fuzz, 1, 16); break;
    case 1: c->dtype = (enum pkv_dtype)fuzz_in(fuzz, -1, 6); break;
    case 2: c->bytes = (size_t)fuzz_int64(fuzz, 9); break;
    case 3: c->poison_freed = c->zero_freed = true; break;
    default: *counts[fuzz_in(fuzz, 0, 11)] = fuzz_int32(fuzz, 40); break;
    }
}

static void spoil(struct fuzz *fuzz, struct setup *s)
{
    struct pkv_layer_config *layer = &s->layers[fuzz_in(fuzz, 0, s->config.num_layers - 1)];
    switch (fuzz_in(fuzz, 0, 5)) {
    case 0: layer->group = fuzz_int32(fuzz, 2); break;
    case 1: layer->num_heads = fuzz_int32(fuzz, 8); break;
    case 2:
        layer->shares_kv = true;
        layer->kv_layer = fuzz_int32(fuzz, 2);
        break;
    case 3: spoil_whole(fuzz, &s->config); break;
    default: spoil_group(fuzz, &s->groups[fuzz_in(fuzz, 0, s->config.num_groups - 1)]); break;
    }
}

pkv_seq life_any_seq(struct fuzz *fuzz, const struct life *life)
{
    return fuzz_once_in(fuzz, 20) ? (pkv_seq){random_u64(&fuzz->random)}
                                  : life->seqs[fuzz_in(fuzz, 0, HANDLES - 1)];
}

static void use_seq(struct fuzz *fuzz, struct life *life)
{
    pkv_seq *seq = &life->seqs[fuzz_in(fuzz, 0, HANDLES - 1)];
    struct pkv_admission admission = {.size = sizeof admission};
    const struct pkv_prompt prompt = {
        .size = sizeof prompt, .token_ids = life->ids, .num_tokens = fuzz_int32(fuzz, 40)};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    struct pkv_seq_options options = {.size = sizeof options};
    options.max_rewind = fuzz_once_in(fuzz, 6) ? fuzz_int32(fuzz, 6) : 0;
    const bool is_long = prompt.num_tokens > 64;
    switch (fuzz_in(fuzz, 0, 6)) {
    case 5:
        (void)FUZZ_CALL(fuzz, ALLOWED_SEQ | FUZZ_MAY(PKV_UNSUPPORTED),
                        pkv_seq_swap_out(life->cache, life_any_seq(fuzz, life), &shortage));
        break;
    case 6:
        (void)FUZZ_CALL(fuzz, ALLOWED_SEQ | FUZZ_MAY(PKV_UNSUPPORTED),
                        pkv_seq_swap_in(life->cache, life_any_seq(fuzz, life), &shortage));
        break;
    case 0: (void)FUZZ_CALL(fuzz, ALLOWED_SEQ, pkv_seq_create(life->cache, &options, seq)); break;
    case 1:
        (void)FUZZ_CALL(
            fuzz, ALLOWED_SEQ,
            pkv_seq_fork(life->cache, life_any_seq(fuzz, life), fuzz_int32(fuzz, 20), 1, seq));
        break;
    case 2:
        (void)FUZZ_CALL(
            fuzz, ALLOWED_SEQ,
            pkv_seq_truncate(life->cache, life_any_seq(fuzz, life), fuzz_int32(fuzz, 20)));
        break;
    case 3:
        if (!is_long) {
            (void)FUZZ_CALL(fuzz, ALLOWED_SEQ,
                            pkv_seq_admit(life->cache, life_any_seq(fuzz, life), &prompt,
                                          fuzz_int32(fuzz, 8), fuzz_int32(fuzz, 40), &admission,
                                          &shortage));
        }
        break;
    default:
        (void)FUZZ_CALL(fuzz, ALLOWED_SEQ, pkv_seq_destroy(life->cache, life_any_seq(fuzz, life)));
        break;
    }
}

static void use_prefix(struct fuzz *fuzz, struct life *life)
{
    const struct pkv_prompt prompt = {
        .size = sizeof prompt, .token_ids = life->ids, .num_tokens = fuzz_in(fuzz, -1, 40)};
    const struct pkv_namespace_field field = {.tag = 1, .length = 1, .bytes = "x"};
    const unsigned allowed = ALLOWED_SEQ | FUZZ_MAY(PKV_UNSUPPORTED);
    struct pkv_probe probe = {.size = sizeof probe};
    struct pkv_stats stats = {.size = sizeof stats};
    pkv_pin pin = {random_u64(&fuzz->random)};
    int32_t num_pinned = 0;
    switch (fuzz_in(fuzz, 0, 4)) {
    case 0:
        (void)FUZZ_CALL(fuzz, allowed,
                        pkv_cache_probe(life->cache, NULL, &prompt, fuzz_int32(fuzz, 9),
                                        fuzz_int32(fuzz, 40), &probe, NULL));
        break;
    case 1:
        if (FUZZ_CALL(fuzz, allowed,
                      pkv_prefix_pin(life->cache, NULL, &prompt, 5, 1, &pin, &num_pinned)) &&
            fuzz_once_in(fuzz, 2)) {
            (void)FUZZ_CALL(fuzz, ALLOWED_STALE, pkv_prefix_unpin(life->cache, pin));
        }
        break;
    case 2: (void)FUZZ_CALL(fuzz, allowed, pkv_namespace_flush(life->cache, &field, NULL)); break;
    case 3: (void)FUZZ_CALL(fuzz, allowed, pkv_cache_reset(life->cache, true, NULL)); break;
    default: (void)FUZZ_CALL(fuzz, allowed, pkv_prefix_unpin(life->cache, pin)); break;
    }
    (void)FUZZ_CALL(fuzz, allowed, pkv_cache_stats(life->cache, &stats));
}

static void live(struct fuzz *fuzz, pkv_cache *cache, const struct setup *setup)
{
    struct life life = {.cache = cache, .setup = setup};
    for (int32_t i = 0; i < 64; i++) {
        life.ids[i] = i % 3;
    }
    for (int i = 0; i < 60; i++) {
        switch (fuzz_in(fuzz, 0, 5)) {
        case 0: use_prefix(fuzz, &life); break;
        case 1:
        case 2: life_step(fuzz, &life); break;
        default: use_seq(fuzz, &life); break;
        }
    }
    FUZZ_EXPECT(pkv_cache_check(cache) == 0);
}

void fuzz_cache(struct fuzz *fuzz)
{
    struct setup setup;
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    pkv_cache *cache = NULL;
    const unsigned allowed = ALLOWED_INVALID | FUZZ_MAY(PKV_UNSUPPORTED) | FUZZ_MAY(PKV_NEVER_FITS);
    good(fuzz, &setup);
    const bool is_good = fuzz_once_in(fuzz, 2);
    for (int32_t i = is_good ? 0 : fuzz_in(fuzz, 1, 3); i > 0; i--) {
        spoil(fuzz, &setup);
    }
    const enum pkv_status sized = pkv_cache_size(&setup.config, &sizes);
    const enum pkv_status made = pkv_cache_create(&setup.config, &cache);
    FUZZ_EXPECT(made == sized || (sized == PKV_OK && made == PKV_NO_MEMORY));
    FUZZ_EXPECT(made == PKV_OK || made == PKV_NEVER_FITS || !is_good);
    if (FUZZ_CALL(fuzz, allowed | FUZZ_MAY(PKV_NO_MEMORY), made)) {
        if (is_good) {
            live(fuzz, cache, &setup);
        }
        FUZZ_EXPECT(pkv_cache_check(cache) == 0);
        FUZZ_EXPECT(pkv_cache_destroy(cache, true) == PKV_OK);
    }
}
