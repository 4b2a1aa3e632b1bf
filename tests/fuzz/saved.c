/* SPDX-License-Identifier: MIT
 *
 * Saved sequences: a file of a small cache is changed at random, mostly with checksums that match
 * the change, and loaded. Whatever the answer, the cache is sound and nothing is left. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/little_endian.h"
#include "fuzz.h"
#include "pages/saved_format.h"

enum { MAX_BYTES = 1 << 15, MAX_TOKENS = 40, WIDTH = 2 };

struct saved {
    unsigned char at[MAX_BYTES];
    size_t count;
    size_t next;
};

struct life {
    struct pkv_group_config groups[2];
    struct pkv_layer_config layers[2];
    pkv_cache *cache;
    struct saved good;
    struct saved changed;
};

static bool write_bytes(void *context, const void *bytes, size_t n)
{
    struct saved *saved = context;
    if (n > MAX_BYTES - saved->count) {
        return false;
    }
    memcpy(saved->at + saved->count, bytes, n);
    saved->count += n;
    return true;
}

static bool read_bytes(void *context, void *bytes, size_t n)
{
    struct saved *saved = context;
    if (n > saved->count - saved->next) {
        return false;
    }
    memcpy(bytes, saved->at + saved->next, n);
    saved->next += n;
    return true;
}

static bool read_at(void *context, uint64_t offset, void *bytes, size_t n)
{
    const struct saved *saved = context;
    if (!FUZZ_EXPECT(offset <= saved->count && n <= saved->count - offset)) {
        return false;
    }
    memcpy(bytes, saved->at + offset, n);
    return true;
}

static bool make_cache(struct fuzz *fuzz, struct life *life)
{
    const bool is_cached = fuzz_once_in(fuzz, 2);
    const struct pkv_cache_config config = {.size = sizeof config,
                                            .groups = life->groups,
                                            .num_groups = fuzz_in(fuzz, 1, 2),
                                            .layers = life->layers,
                                            .num_layers = 2,
                                            .max_seqs = 3,
                                            .max_seq_len = MAX_TOKENS,
                                            .max_step_tokens = MAX_TOKENS,
                                            .num_threads = 1,
                                            .isa = test_isa(),
                                            .hooks = fuzz->hooks,
                                            .poison_freed = true,
                                            .prefix_cache = is_cached,
                                            .max_namespaces = 8};
    for (int32_t g = 0; g < 2; g++) {
        life->groups[g] = (struct pkv_group_config){
            .kv_heads = 1,
            .k_width = WIDTH,
            .block_size = 4,
            .num_blocks = fuzz_in(fuzz, 10, 30),
            .sliding_window = g == 1 ? fuzz_in(fuzz, 0, 9) : 0,
            .storage =
                !is_cached && fuzz_once_in(fuzz, 3) ? PKV_STORAGE_CONTINUOUS : PKV_STORAGE_PAGED};
        life->layers[g] =
            (struct pkv_layer_config){.group = config.num_groups > 1 ? g : 0, .num_heads = 1};
    }
    return FUZZ_CALL(fuzz, 0, pkv_cache_create(&config, &life->cache));
}

static void append(struct fuzz *fuzz, struct life *life, pkv_seq seq, int32_t n)
{
    static const float ones[MAX_TOKENS * WIDTH];
    static const int32_t ids[MAX_TOKENS];
    float out[MAX_TOKENS * WIDTH];
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = &seq,
                                    .q_lens = &n,
                                    .num_rows = 1,
                                    .num_required_rows = 1,
                                    .token_ids = ids};
    const struct pkv_layer_io io = {.size = sizeof io, .q = ones, .k = ones, .v = ones, .out = out};
    /* a changed file may have a max_tokens of its own */
    const unsigned allowed = ALLOWED_INVALID | FUZZ_MAY(PKV_NO_BLOCKS) | FUZZ_MAY(PKV_NEVER_FITS);
    pkv_step step = {0};
    if (FUZZ_CALL(fuzz, allowed, pkv_step_begin(life->cache, &batch, &step, NULL))) {
        (void)FUZZ_CALL(fuzz, 0, pkv_step_attend(life->cache, step, 0, &io));
        (void)FUZZ_CALL(fuzz, 0, pkv_step_attend(life->cache, step, 1, &io));
        (void)FUZZ_CALL(fuzz, 0, pkv_step_commit(life->cache, step, NULL));
    }
}

/* The file of a random sequence, which is gone again. */
static void make_file(struct fuzz *fuzz, struct life *life)
{
    const struct pkv_namespace_field field = {fuzz_in(fuzz, 1, 3), 2, "ab", fuzz_in(fuzz, 0, 9)};
    const int64_t kept_prefix = fuzz_in(fuzz, 0, 9);
    const struct pkv_seq_options options = {.size = sizeof options,
                                            .kept_prefix =
                                                fuzz_once_in(fuzz, 3) ? &kept_prefix : NULL,
                                            .max_rewind = fuzz_in(fuzz, 0, 3),
                                            .namespace_fields = &field,
                                            .num_namespace_fields = fuzz_in(fuzz, 0, 1)};
    const struct pkv_writer writer = {sizeof writer, &life->good, write_bytes};
    pkv_seq seq = {0};
    (void)FUZZ_CALL(fuzz, 0, pkv_seq_create(life->cache, &options, &seq));
    for (int32_t left = fuzz_in(fuzz, 0, MAX_TOKENS); left > 0; left -= 7) {
        append(fuzz, life, seq, left < 7 ? left : 7);
    }
    (void)FUZZ_CALL(fuzz, 0, pkv_seq_save(life->cache, seq, &writer));
    (void)FUZZ_CALL(fuzz, 0, pkv_seq_destroy(life->cache, seq));
}

static void put_sum(unsigned char *at, size_t n, struct hash_stream *sums)
{
    (void)put_u64(at + n, hash_64(at, n));
    hash_add(sums, at + n, SAVED_SUM_BYTES);
}

/* Gives the file checksums that match, as far as its lengths lead. */
static void seal(struct saved *of)
{
    struct hash_stream sums;
    size_t at = SAVED_HEADER_BYTES;
    if (of->count < SAVED_HEADER_BYTES + SAVED_SUM_BYTES) {
        return;
    }
    hash_begin(&sums);
    put_sum(of->at, SAVED_HEADER_BYTES - SAVED_SUM_BYTES, &sums);
    while (of->count - at >= SAVED_SECTION_BYTES + 2 * SAVED_SUM_BYTES) {
        put_sum(of->at + at, SAVED_SECTION_BYTES - SAVED_SUM_BYTES, &sums);
        const uint64_t length = get_u64(of->at + at + 16);
        at += SAVED_SECTION_BYTES;
        if (length > of->count - at - 2 * SAVED_SUM_BYTES) {
            return;
        }
        put_sum(of->at + at, (size_t)length, &sums);
        at += (size_t)length + SAVED_SUM_BYTES;
    }
    (void)put_u64(of->at + of->count - SAVED_SUM_BYTES, hash_end(&sums));
}

static void change(struct fuzz *fuzz, struct saved *of)
{
    const size_t at = (size_t)fuzz_in(fuzz, 0, (int32_t)of->count - 1);
    const size_t word = at / 8 * 8;
    switch (fuzz_in(fuzz, 0, 6)) {
    case 0: of->at[at] ^= (unsigned char)(1 << fuzz_in(fuzz, 0, 7)); break;
    case 1: of->at[at] = (unsigned char)random_u64(&fuzz->random); break;
    case 2:
        if (word + 8 <= of->count) {
            (void)put_u64(of->at + word, (uint64_t)fuzz_int64(fuzz, 40));
        }
        break;
    case 3:
        if (word + 4 <= of->count) {
            (void)put_u32(of->at + word, (uint32_t)fuzz_int32(fuzz, 9));
        }
        break;
    case 4: memmove(of->at + at / 2, of->at + at, of->count - at); break;
    case 5: of->count = fuzz_once_in(fuzz, 3) ? at : of->count; break;
    default: of->at[at]++; break;
    }
}

static void load(struct fuzz *fuzz, struct life *life)
{
    static const unsigned allowed = ALLOWED_INVALID | FUZZ_MAY(PKV_CORRUPT) | FUZZ_MAY(PKV_IO) |
                                    FUZZ_MAY(PKV_UNSUPPORTED) | FUZZ_MAY(PKV_NO_BLOCKS) |
                                    FUZZ_MAY(PKV_NEVER_FITS) | FUZZ_MAY(PKV_NO_MEMORY);
    struct saved *of = &life->changed;
    const bool is_stream = fuzz_once_in(fuzz, 3);
    const struct pkv_reader reader = {.size = sizeof reader,
                                      .context = of,
                                      .read = is_stream ? read_bytes : NULL,
                                      .read_at = is_stream ? NULL : read_at,
                                      .num_bytes = of->count};
    const size_t live_bytes = fuzz->live_bytes;
    pkv_seq seq = {0};
    of->next = 0;
    fuzz->fail_in = fuzz_once_in(fuzz, 10) ? fuzz_in(fuzz, 0, 4) : -1;
    const bool is_loaded = FUZZ_CALL(fuzz, allowed, pkv_seq_load(life->cache, &reader, &seq, NULL));
    fuzz->fail_in = -1;
    FUZZ_EXPECT(is_loaded == (seq.id != 0) && fuzz->live_bytes == live_bytes);
    FUZZ_EXPECT(pkv_cache_check(life->cache) == 0);
    if (is_loaded) {
        int32_t length = 0;
        (void)FUZZ_CALL(fuzz, 0, pkv_seq_length(life->cache, seq, &length));
        append(fuzz, life, seq, length < MAX_TOKENS);
        (void)FUZZ_CALL(fuzz, 0, pkv_seq_destroy(life->cache, seq));
        FUZZ_EXPECT(pkv_cache_check(life->cache) == 0);
    }
}

void fuzz_saved(struct fuzz *fuzz)
{
    struct life *life = calloc(1, sizeof *life);
    if (life != NULL && make_cache(fuzz, life)) {
        make_file(fuzz, life);
        for (int32_t i = fuzz_in(fuzz, 1, 30); i > 0; i--) {
            life->changed = life->good;
            for (int32_t n = fuzz_in(fuzz, 0, 3); n > 0 && life->changed.count > 0; n--) {
                change(fuzz, &life->changed);
            }
            if (!fuzz_once_in(fuzz, 8)) {
                seal(&life->changed);
            }
            load(fuzz, life);
        }
        (void)FUZZ_CALL(fuzz, 0, pkv_cache_destroy(life->cache, false));
    }
    free(life);
}
