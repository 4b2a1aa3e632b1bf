/* SPDX-License-Identifier: MIT
 *
 * Managed caches: configurations any field of which may be anything, and on those that are made a
 * short life of requests with handles good, stale and made up. */
#include <string.h>

#include "fuzz.h"

enum { MAX_GROUPS = 2, MAX_LAYERS = 3, HANDLES = 8, WIDTH = 4, HEADS = 2, TOKENS = 24 };

struct setup {
    struct pkv_cache_config config;
    struct pkv_group_config groups[MAX_GROUPS];
    struct pkv_layer_config layers[MAX_LAYERS];
};

static void good(struct fuzz *fuzz, struct setup *s)
{
    memset(s, 0, sizeof *s);
    s->config = (struct pkv_cache_config){.size = sizeof s->config,
                                          .groups = s->groups,
                                          .num_groups = fuzz_in(fuzz, 1, MAX_GROUPS),
                                          .layers = s->layers,
                                          .num_layers = fuzz_in(fuzz, 2, MAX_LAYERS),
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
    s->config.swap_bytes = fuzz_once_in(fuzz, 2) ? (size_t)fuzz_in(fuzz, 300, 8000) : 0;
    for (int32_t g = 0; g < s->config.num_groups; g++) {
        s->groups[g] = (struct pkv_group_config){.kv_heads = 1,
                                                 .k_width = WIDTH,
                                                 .block_size = 4,
                                                 .num_blocks = fuzz_in(fuzz, 1, 24),
                                                 .sliding_window = g > 0 ? 8 : 0};
    }
    for (int32_t i = 0; i < s->config.num_layers; i++) {
        s->layers[i] =
            (struct pkv_layer_config){.group = i % s->config.num_groups, .num_heads = HEADS};
    }
}

static void spoil_group(struct fuzz *fuzz, struct pkv_group_config *g)
{
    switch (fuzz_in(fuzz, 0, 11)) {
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

struct life {
    pkv_cache *cache;
    const struct setup *setup;
    pkv_seq seqs[HANDLES];
    int32_t ids[64];
};

static const unsigned allowed_seq = ALLOWED_INVALID | ALLOWED_STALE | FUZZ_MAY(PKV_NO_BLOCKS) |
                                    FUZZ_MAY(PKV_NEVER_FITS) | FUZZ_MAY(PKV_NOT_RESIDENT) |
                                    FUZZ_MAY(PKV_BUSY);

static pkv_seq any_seq(struct fuzz *fuzz, const struct life *life)
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
        (void)FUZZ_CALL(fuzz, allowed_seq | FUZZ_MAY(PKV_UNSUPPORTED),
                        pkv_seq_swap_out(life->cache, any_seq(fuzz, life), &shortage));
        break;
    case 6:
        (void)FUZZ_CALL(fuzz, allowed_seq | FUZZ_MAY(PKV_UNSUPPORTED),
                        pkv_seq_swap_in(life->cache, any_seq(fuzz, life), &shortage));
        break;
    case 0: (void)FUZZ_CALL(fuzz, allowed_seq, pkv_seq_create(life->cache, &options, seq)); break;
    case 1:
        (void)FUZZ_CALL(
            fuzz, allowed_seq,
            pkv_seq_fork(life->cache, any_seq(fuzz, life), fuzz_int32(fuzz, 20), 1, seq));
        break;
    case 2:
        (void)FUZZ_CALL(fuzz, allowed_seq,
                        pkv_seq_truncate(life->cache, any_seq(fuzz, life), fuzz_int32(fuzz, 20)));
        break;
    case 3:
        if (!is_long) {
            (void)FUZZ_CALL(fuzz, allowed_seq,
                            pkv_seq_admit(life->cache, any_seq(fuzz, life), &prompt,
                                          fuzz_int32(fuzz, 8), fuzz_int32(fuzz, 40), &admission,
                                          &shortage));
        }
        break;
    default:
        (void)FUZZ_CALL(fuzz, allowed_seq, pkv_seq_destroy(life->cache, any_seq(fuzz, life)));
        break;
    }
}

/* Layers in order; then committed, whole or in part, or given up. */
static void run_step(struct fuzz *fuzz, struct life *life, pkv_step step, const int32_t *q_lens,
                     int32_t num_rows)
{
    static float q[TOKENS * HEADS * WIDTH], k[TOKENS * WIDTH], v[TOKENS * WIDTH];
    static float out[TOKENS * HEADS * WIDTH];
    const struct pkv_layer_io io = {.size = sizeof io, .q = q, .k = k, .v = v, .out = out};
    int32_t keep[HANDLES] = {0};
    const bool is_kept = !fuzz_once_in(fuzz, 4);
    for (int32_t i = 0; is_kept && i < life->setup->config.num_layers; i++) {
        (void)FUZZ_CALL(fuzz, 0, pkv_step_attend(life->cache, step, i, &io));
    }
    for (int32_t i = 0; i < num_rows; i++) {
        keep[i] = fuzz_once_in(fuzz, 5) ? fuzz_int32(fuzz, q_lens[i]) : q_lens[i];
    }
    if (!is_kept || !FUZZ_CALL(fuzz, ALLOWED_INVALID, pkv_step_commit(life->cache, step, keep))) {
        (void)FUZZ_CALL(fuzz, 0, pkv_step_abort(life->cache, step));
    }
    FUZZ_EXPECT(pkv_step_abort(life->cache, step) == PKV_STALE_HANDLE);
}

static void use_step(struct fuzz *fuzz, struct life *life)
{
    pkv_seq seqs[HANDLES];
    int32_t q_lens[HANDLES];
    pkv_step step = {0};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    struct pkv_batch batch = {.size = sizeof batch,
                              .seqs = seqs,
                              .q_lens = q_lens,
                              .token_ids = life->ids,
                              .num_rows = fuzz_in(fuzz, 0, 4),
                              .now_ns = (uint64_t)fuzz_in(fuzz, 0, 50)};
    for (int32_t i = 0; i < batch.num_rows; i++) {
        seqs[i] = fuzz_once_in(fuzz, 9) ? any_seq(fuzz, life) : life->seqs[i];
        q_lens[i] = fuzz_once_in(fuzz, 12) ? fuzz_int32(fuzz, 9) : fuzz_in(fuzz, 0, 6);
    }
    batch.num_required_rows = fuzz_in(fuzz, 0, batch.num_rows);
    const enum pkv_status fits = pkv_step_fits(life->cache, &batch, &shortage);
    const enum pkv_status begun = pkv_step_begin(life->cache, &batch, &step, &shortage);
    FUZZ_EXPECT(fits == begun);
    if (FUZZ_CALL(fuzz, allowed_seq, begun)) {
        run_step(fuzz, life, step, q_lens, shortage.row);
    }
}

static void use_prefix(struct fuzz *fuzz, struct life *life)
{
    const struct pkv_prompt prompt = {
        .size = sizeof prompt, .token_ids = life->ids, .num_tokens = fuzz_in(fuzz, -1, 40)};
    const struct pkv_namespace_field field = {.tag = 1, .length = 1, .bytes = "x"};
    const unsigned allowed = allowed_seq | FUZZ_MAY(PKV_UNSUPPORTED);
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
        case 2: use_step(fuzz, &life); break;
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
    if (FUZZ_CALL(fuzz, allowed | FUZZ_MAY(PKV_NO_MEMORY), made)) {
        if (is_good) {
            live(fuzz, cache, &setup);
        }
        FUZZ_EXPECT(pkv_cache_check(cache) == 0);
        FUZZ_EXPECT(pkv_cache_destroy(cache, true) == PKV_OK);
    }
}
