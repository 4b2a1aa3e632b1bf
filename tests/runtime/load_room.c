/* SPDX-License-Identifier: MIT
 *
 * Saving and loading where something is missing: memory, room, the other side's help, time. Each
 * refusal changes nothing. And what the prefix cache makes of what was loaded. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "runtime/reuse_case.h"
#include "runtime/save_case.h"

enum { TEXT = 5, LENGTH = 22, MORE = 4 };

static struct save_bytes bytes;

static void open_cache(struct runtime_case *c, int32_t num_blocks)
{
    prefix_init(c);
    c->groups[0].num_blocks = num_blocks;
    struct pkv_group_config *group = case_add_group(c);
    group->sliding_window = 6;
    (void)case_add_layer(c, 1);
    save_open(c, PKV_F32, PKV_BF16);
}

static void close_cache(struct runtime_case *c)
{
    case_close(c);
    save_bytes_free(&bytes);
}

/* I2: each allocation of a save and of a load fails in turn; then it succeeds. */
static void each_failing_allocation_changes_nothing(void)
{
    struct runtime_case c;
    open_cache(&c, 32);
    const pkv_seq seq = save_seq(&c, NULL, TEXT, LENGTH);
    uint64_t digest = prefix_digest(&c);
    enum pkv_status status = PKV_NO_MEMORY;
    for (long k = 1; status == PKV_NO_MEMORY; k++) {
        c.memory.fail_at = c.memory.calls + k;
        status = save_to(&c, seq, &bytes);
        c.memory.fail_at = 0;
        CU_ASSERT(prefix_digest(&c) == digest && case_check(&c) == 0);
        CU_ASSERT(status == PKV_NO_MEMORY || k > 2);
    }
    ASSERT_STATUS(PKV_OK, status);
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        pkv_seq loaded = {0};
        const long live = c.memory.live;
        digest = prefix_digest(&c);
        status = PKV_NO_MEMORY;
        for (long k = 1; status == PKV_NO_MEMORY; k++) {
            c.memory.fail_at = c.memory.calls + k;
            status = is_stream ? save_load_stream(&c, &bytes, &loaded, NULL)
                               : save_load(&c, &bytes, &loaded, NULL);
            c.memory.fail_at = 0;
            CU_ASSERT(c.memory.live == live && case_check(&c) == 0);
            CU_ASSERT(status == PKV_OK || (prefix_digest(&c) == digest && loaded.id == 0));
            CU_ASSERT(status == PKV_NO_MEMORY || k > 3);
        }
        ASSERT_STATUS(PKV_OK, status);
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, loaded));
    }
    close_cache(&c);
}

/* Each call of a writer and of a reader says no in turn. */
static void each_failing_callback_changes_nothing(void)
{
    struct runtime_case c;
    pkv_seq loaded = {0};
    open_cache(&c, 32);
    const pkv_seq seq = save_seq(&c, NULL, TEXT, LENGTH);
    const uint64_t digest = prefix_digest(&c);
    bytes.fail_at = 1;
    ASSERT_REFUSED(PKV_IO, "the writer stopped", save_to(&c, seq, &bytes));
    CU_ASSERT(prefix_digest(&c) == digest && case_check(&c) == 0);
    bytes.fail_at = 0;
    ASSERT_STATUS(PKV_OK, save_to(&c, seq, &bytes));
    ASSERT_STATUS(PKV_OK, save_load(&c, &bytes, &loaded, NULL));
    const long num_reads = bytes.calls;
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, loaded));
    loaded.id = 0;
    const int32_t num_free = case_free(&c, 0);
    for (long k = 1; k <= num_reads; k++) {
        bytes.fail_at = k;
        ASSERT_REFUSED(PKV_IO, "could not be read", save_load(&c, &bytes, &loaded, NULL));
        CU_ASSERT(loaded.id == 0 && case_free(&c, 0) == num_free && case_check(&c) == 0);
    }
    CU_ASSERT(num_reads > 20);
    for (long k = 1; k <= 2; k++) {
        bytes.fail_at = k;
        ASSERT_REFUSED(PKV_IO, "stream", save_load_stream(&c, &bytes, &loaded, NULL));
        CU_ASSERT(loaded.id == 0 && case_free(&c, 0) == num_free);
    }
    close_cache(&c);
}

/* A disk that is full after so many bytes: with buffers of 64 KiB that takes a longer sequence. */
static void a_full_disk_at_any_byte_is_refused(void)
{
    struct runtime_case c;
    case_init(&c);
    c.groups[0].kv_heads = 4;
    c.groups[0].k_width = 16;
    c.layers[0].num_heads = 4;
    c.groups[0].num_blocks = 64;
    c.config.max_seq_len = 256;
    (void)case_add_layer(&c, 0);
    c.layers[1].num_heads = 4;
    (void)case_add_layer(&c, 0);
    save_open(&c, PKV_F32, PKV_F32);
    const pkv_seq seq = save_seq(&c, NULL, TEXT, 250);
    ASSERT_STATUS(PKV_OK, save_to(&c, seq, &bytes));
    const size_t whole = bytes.count;
    CU_ASSERT(whole > 500000 && bytes.calls > 5);
    for (size_t limit = 1; limit < whole; limit += whole / 50) {
        pkv_seq loaded = {0};
        bytes.write_limit = limit;
        ASSERT_STATUS(PKV_IO, save_to(&c, seq, &bytes));
        bytes.write_limit = 0;
        CU_ASSERT(bytes.count <= limit);
        ASSERT_REFUSED(PKV_CORRUPT, "", save_load(&c, &bytes, &loaded, NULL));
        CU_ASSERT_EQUAL(case_taken(&c, 0), 63);
    }
    bytes.write_limit = whole - 1;
    ASSERT_STATUS(PKV_IO, save_to(&c, seq, &bytes));
    bytes.write_limit = whole;
    ASSERT_STATUS(PKV_OK, save_to(&c, seq, &bytes));
    bytes.write_limit = 0;
    pkv_seq loaded = {0};
    ASSERT_REFUSED(PKV_NO_BLOCKS, "group 0", save_load(&c, &bytes, &loaded, NULL));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seq));
    ASSERT_STATUS(PKV_OK, save_load_stream(&c, &bytes, &loaded, NULL));
    CU_ASSERT_EQUAL(case_length(&c, loaded), 250);
    close_cache(&c);
}

/* Between the passes, that is at its k-th read, the file gets another byte at `at`. */
struct change {
    long call;
    size_t at;
};

static void change_byte(void *context, long call)
{
    const struct change *change = context;
    if (call == change->call) {
        bytes.at[change->at] ^= 1;
    }
}

static void a_file_that_changes_while_it_is_loaded_is_refused(void)
{
    struct runtime_case c;
    pkv_seq loaded = {0};
    open_cache(&c, 32);
    const pkv_seq seq = save_seq(&c, NULL, TEXT, LENGTH);
    ASSERT_STATUS(PKV_OK, save_to(&c, seq, &bytes));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seq));
    ASSERT_STATUS(PKV_OK, save_load(&c, &bytes, &loaded, NULL));
    const long num_reads = bytes.calls;
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, loaded));
    ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, false, NULL));
    int num_refused = 0;
    for (long k = 1; k <= num_reads; k++) {
        /* in turn the tokens and, near the end, the payload */
        struct change change = {k, k % 2 == 0 ? bytes.count - 60 : bytes.count / 2};
        bytes.before = change_byte;
        bytes.context = &change;
        const enum pkv_status status = save_load(&c, &bytes, &loaded, NULL);
        bytes.before = NULL;
        CU_ASSERT(status == PKV_OK || status == PKV_CORRUPT);
        num_refused += status == PKV_CORRUPT;
        if (status == PKV_OK) {
            ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, loaded));
            ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, false, NULL));
        }
        CU_ASSERT(case_free(&c, 0) == 32 && case_check(&c) == 0);
        bytes.at[change.at] ^= 1;
    }
    CU_ASSERT(num_refused > num_reads / 2);
    close_cache(&c);
}

/* A full pool refuses, and evicts nothing for it; with room for just that many it is taken. */
static void a_full_pool_refuses_without_evicting(void)
{
    struct runtime_case c;
    pkv_seq loaded = {0};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    open_cache(&c, 12);
    const pkv_seq seq = save_seq(&c, NULL, TEXT, LENGTH);
    ASSERT_STATUS(PKV_OK, save_to(&c, seq, &bytes));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, save_seq(&c, NULL, TEXT + 1, 8)));
    const pkv_seq other = save_seq(&c, NULL, TEXT + 2, 4);
    const uint64_t digest = prefix_digest(&c);
    ASSERT_REFUSED(PKV_NO_BLOCKS, "group 0", save_load(&c, &bytes, &loaded, &shortage));
    CU_ASSERT(shortage.group == 0 && shortage.row == -1 && shortage.need == 6);
    CU_ASSERT(shortage.free == 5 && shortage.evictable == 2);
    CU_ASSERT(prefix_digest(&c) == digest && loaded.id == 0);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, other));
    ASSERT_STATUS(PKV_OK, save_load(&c, &bytes, &loaded, &shortage));
    CU_ASSERT_EQUAL(case_length(&c, loaded), LENGTH);
    close_cache(&c);
}

/* What was promised is not there for a load, nor is the watermark. */
static void promises_watermark_and_quota_hold_for_a_load(void)
{
    struct runtime_case c;
    pkv_seq loaded = {0}, waiting = {0};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    struct pkv_admission admission = {.size = sizeof admission};
    int32_t ids[16];
    const struct pkv_namespace_field field = {1, 1, "t", 0};
    const struct pkv_seq_options options = {
        .size = sizeof options, .namespace_fields = &field, .num_namespace_fields = 1};
    prefix_init(&c);
    c.groups[0].num_blocks = 16;
    c.config.watermark_blocks = 1;
    save_open(&c, PKV_F32, PKV_F32);
    const pkv_seq seq = save_seq(&c, &options, TEXT, LENGTH);
    ASSERT_STATUS(PKV_OK, save_to(&c, seq, &bytes));
    save_ids(TEXT + 1, 16, ids);
    ASSERT_STATUS(PKV_OK, pkv_seq_create(c.cache, NULL, &waiting));
    ASSERT_STATUS(PKV_OK, pkv_seq_admit(c.cache, waiting, PROMPT(ids, 16), 0, 0, &admission, NULL));
    ASSERT_STATUS(PKV_NO_BLOCKS, save_load(&c, &bytes, &loaded, &shortage));
    CU_ASSERT(shortage.need == 6 && shortage.free == 5);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, waiting));
    ASSERT_STATUS(PKV_OK, pkv_namespace_quota(c.cache, &field, 11));
    ASSERT_STATUS(PKV_NO_BLOCKS, save_load(&c, &bytes, &loaded, &shortage));
    CU_ASSERT(shortage.group == -1 && shortage.quota == 11 && shortage.free == 5);
    ASSERT_STATUS(PKV_OK, pkv_namespace_quota(c.cache, &field, 5));
    ASSERT_STATUS(PKV_NEVER_FITS, save_load(&c, &bytes, &loaded, &shortage));
    ASSERT_STATUS(PKV_OK, pkv_namespace_quota(c.cache, &field, 12));
    ASSERT_STATUS(PKV_OK, save_load(&c, &bytes, &loaded, &shortage));
    close_cache(&c);
}

/* Too large for ever: another cache has fewer blocks, or shorter sequences. */
static void what_never_fits_says_so(void)
{
    struct runtime_case c, small;
    pkv_seq loaded = {0};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    case_init(&c);
    save_open(&c, PKV_F32, PKV_F32);
    const pkv_seq seq = save_seq(&c, NULL, TEXT, LENGTH);
    ASSERT_STATUS(PKV_OK, save_to(&c, seq, &bytes));
    case_init(&small);
    small.groups[0].num_blocks = 5;
    save_open(&small, PKV_F32, PKV_F32);
    ASSERT_STATUS(PKV_NEVER_FITS, save_load(&small, &bytes, &loaded, &shortage));
    CU_ASSERT(shortage.group == 0 && shortage.need == 6);
    case_close(&small);
    case_init(&small);
    small.config.max_seq_len = LENGTH - 1;
    save_open(&small, PKV_F32, PKV_F32);
    ASSERT_STATUS(PKV_NEVER_FITS, save_load(&small, &bytes, &loaded, &shortage));
    CU_ASSERT(shortage.group == -1 && shortage.max_tokens == LENGTH - 1 && shortage.need == LENGTH);
    case_close(&small);
    close_cache(&c);
}

static void records_and_a_closed_cache_refuse(void)
{
    struct runtime_case c;
    pkv_seq loaded = {0};
    case_init(&c);
    c.config.max_seqs = 1;
    save_open(&c, PKV_F32, PKV_F32);
    const pkv_seq seq = save_seq(&c, NULL, TEXT, LENGTH);
    ASSERT_STATUS(PKV_OK, save_to(&c, seq, &bytes));
    ASSERT_REFUSED(PKV_NO_BLOCKS, "max_seqs", save_load(&c, &bytes, &loaded, NULL));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seq));
    ASSERT_STATUS(PKV_OK, save_load(&c, &bytes, &loaded, NULL));
    ASSERT_STATUS(PKV_STALE_HANDLE, save_to(&c, seq, &bytes));
    pkv_cache_close(c.cache);
    ASSERT_STATUS(PKV_OK, save_to(&c, loaded, &bytes));
    ASSERT_REFUSED(PKV_BUSY, "closed", save_load(&c, &bytes, &loaded, NULL));
    close_cache(&c);
}

static void a_sequence_of_the_open_step_is_not_saved(void)
{
    struct runtime_case c;
    struct case_step step = {0};
    static struct case_seq seq;
    case_init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &seq, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 5));
    case_row(&step, &seq, 1);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
    ASSERT_REFUSED(PKV_BUSY, "open step", save_to(&c, seq.handle, &bytes));
    CU_ASSERT(bytes.count == 0);
    case_abort(&c, &step);
    ASSERT_STATUS(PKV_OK, save_to(&c, seq.handle, &bytes));
    close_cache(&c);
}

/* The namespace of what was loaded is that of what was saved: nobody else hits it. */
static void a_loaded_namespace_is_its_own(void)
{
    struct runtime_case c, other;
    pkv_seq loaded = {0};
    int32_t ids[LENGTH + 1];
    const struct pkv_namespace_field fields[] = {{3, 6, "tenant", 0}, {9, 4, "salt", 10}};
    const struct pkv_seq_options whole = {
        .size = sizeof whole, .namespace_fields = fields, .num_namespace_fields = 2};
    const struct pkv_seq_options tenant = {
        .size = sizeof tenant, .namespace_fields = fields, .num_namespace_fields = 1};
    struct pkv_probe probe = {.size = sizeof probe};
    open_cache(&c, 32);
    open_cache(&other, 32);
    const pkv_seq seq = save_seq(&c, &whole, TEXT, LENGTH);
    ASSERT_STATUS(PKV_OK, save_to(&c, seq, &bytes));
    ASSERT_STATUS(PKV_OK, save_load(&other, &bytes, &loaded, NULL));
    save_ids(TEXT, LENGTH + 1, ids);
    static const int32_t expected[] = {20, 8, 0};
    const struct pkv_seq_options *const options[] = {&whole, &tenant, NULL};
    for (int i = 0; i < 3; i++) {
        int32_t num_cached = -1, groups[2];
        ASSERT_STATUS(PKV_OK,
                      pkv_cache_probe_groups(other.cache, options[i], PROMPT(ids, LENGTH + 1),
                                             LENGTH + 1, groups, &num_cached));
        CU_ASSERT_EQUAL(groups[0], expected[i]);
    }
    ASSERT_STATUS(PKV_OK, pkv_cache_probe(other.cache, &whole, PROMPT(ids, LENGTH + 1), 0,
                                          LENGTH + 1, &probe, NULL));
    CU_ASSERT_EQUAL(probe.num_cached, 20);
    case_close(&other);
    close_cache(&c);
}

/* Extras come back, and are absent from a file where all are 0. */
static void extras_come_back(void)
{
    struct runtime_case c;
    static struct prefix_seq seq, again;
    pkv_seq loaded = {0};
    prefix_open(&c, 32);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &seq, 100, NULL));
    prefix_append(&c, &seq, 10);
    ASSERT_STATUS(PKV_OK, save_to(&c, seq.seq.handle, &bytes));
    const size_t plain = bytes.count;
    prefix_destroy(&c, &seq);
    ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, false, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &seq, 100, NULL));
    seq.has_extra = true;
    memset(seq.extra, 0, sizeof seq.extra);
    seq.extra[5] = UINT64_C(0x123456789abcdef0);
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &seq, 10, 0, NULL));
    prefix_append(&c, &seq, 10);
    ASSERT_STATUS(PKV_OK, save_to(&c, seq.seq.handle, &bytes));
    CU_ASSERT_EQUAL(bytes.count, plain + 32 + 80 + 8);
    prefix_destroy(&c, &seq);
    ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, false, NULL));
    ASSERT_STATUS(PKV_OK, save_load(&c, &bytes, &loaded, NULL));
    again = seq;
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &again, 100, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&c, &again, 9), 4);
    again.has_extra = true;
    CU_ASSERT_EQUAL(prefix_hit(&c, &again, 9), 8);
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &again, 9, 0, NULL));
    prefix_append(&c, &again, 3); /* against dense attention */
    close_cache(&c);
}

/* Equal blocks that are cached already are shared, by the rules of publishing. */
static void what_is_cached_already_is_shared(void)
{
    struct runtime_case c;
    pkv_seq loaded = {0}, quiet = {0};
    const struct pkv_seq_options options = {.size = sizeof options, .no_publish = true};
    open_cache(&c, 32);
    const pkv_seq seq = save_seq(&c, NULL, TEXT, LENGTH);
    ASSERT_STATUS(PKV_OK, save_to(&c, seq, &bytes));
    const int32_t taken = case_taken(&c, 0);
    ASSERT_STATUS(PKV_OK, save_load(&c, &bytes, &loaded, NULL));
    CU_ASSERT_EQUAL(case_taken(&c, 0), taken + 1);
    CU_ASSERT_EQUAL(save_run(&c, loaded, TEXT, MORE), save_run(&c, seq, TEXT, MORE));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, loaded));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seq));
    ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, false, NULL));
    const pkv_seq silent = save_seq(&c, &options, TEXT, LENGTH);
    ASSERT_STATUS(PKV_OK, save_to(&c, silent, &bytes));
    ASSERT_STATUS(PKV_OK, save_load(&c, &bytes, &quiet, NULL));
    CU_ASSERT_EQUAL(prefix_stats(&c).num_nodes, 0);
    close_cache(&c);
}

/* Without the prefix cache a file has no tokens: a cache that needs them refuses it; the other way
 * round there is nothing to miss. */
static void tokens_are_needed_by_a_prefix_cache_alone(void)
{
    struct runtime_case plain, cached;
    pkv_seq loaded = {0};
    case_init(&plain);
    save_open(&plain, PKV_F32, PKV_F32);
    case_init(&cached);
    cached.config.prefix_cache = true;
    save_open(&cached, PKV_F32, PKV_F32);
    pkv_seq seq = save_seq(&plain, NULL, TEXT, LENGTH);
    ASSERT_STATUS(PKV_OK, save_to(&plain, seq, &bytes));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "prefix_cache", save_load(&cached, &bytes, &loaded, NULL));
    ASSERT_STATUS(PKV_OK, pkv_seq_truncate(plain.cache, seq, 0));
    ASSERT_STATUS(PKV_OK, save_to(&plain, seq, &bytes));
    ASSERT_STATUS(PKV_OK, save_load(&cached, &bytes, &loaded, NULL));
    CU_ASSERT_EQUAL(case_length(&cached, loaded), 0);
    seq = save_seq(&cached, NULL, TEXT, LENGTH);
    ASSERT_STATUS(PKV_OK, save_to(&cached, seq, &bytes));
    ASSERT_STATUS(PKV_OK, save_load(&plain, &bytes, &loaded, NULL));
    CU_ASSERT_EQUAL(save_run(&plain, loaded, TEXT, MORE), save_run(&cached, seq, TEXT, MORE));
    case_close(&plain);
    close_cache(&cached);
}

/* Something that happens in the middle of a save, or of a load. */
struct meanwhile {
    struct runtime_case *c;
    pkv_seq seq;
    long call;
    uint64_t bits; /* what another sequence computed */
    pkv_seq other;
};

static void destroy_meanwhile(void *context, long call)
{
    struct meanwhile *of = context;
    if (call == of->call) {
        CU_ASSERT_EQUAL(case_check(of->c), 0);
        ASSERT_STATUS(PKV_BUSY, pkv_seq_truncate(of->c->cache, of->seq, 1));
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(of->c->cache, of->seq));
        ASSERT_STATUS(PKV_STALE_HANDLE, pkv_seq_destroy(of->c->cache, of->seq));
        of->bits = save_run(of->c, of->other, TEXT + 1, MORE);
        CU_ASSERT_EQUAL(case_check(of->c), 0);
    }
}

/* H1: blocks that are being copied are nobody else's before that ends, destroyed or not. */
static void a_sequence_destroyed_while_it_is_saved_is_saved_whole(void)
{
    struct runtime_case c;
    pkv_seq loaded = {0};
    open_cache(&c, 32);
    const pkv_seq seq = save_seq(&c, NULL, TEXT, LENGTH);
    struct meanwhile of = {&c, seq, 1, 0, save_seq(&c, NULL, TEXT + 1, 5)};
    bytes.before = destroy_meanwhile;
    bytes.context = &of;
    ASSERT_STATUS(PKV_OK, save_to(&c, seq, &bytes));
    bytes.before = NULL;
    CU_ASSERT_EQUAL(case_taken(&c, 0), 3);
    ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, true, NULL));
    ASSERT_STATUS(PKV_OK, save_load(&c, &bytes, &loaded, NULL));
    const uint64_t bits = save_run(&c, loaded, TEXT, MORE);
    CU_ASSERT_EQUAL(bits, save_run(&c, save_seq(&c, NULL, TEXT, LENGTH), TEXT, MORE));
    close_cache(&c);
}

static void look_meanwhile(void *context, long call)
{
    struct meanwhile *of = context;
    struct pkv_stats stats = {.size = sizeof stats};
    int32_t count = -1;
    (void)call;
    CU_ASSERT_EQUAL(case_check(of->c), 0);
    ASSERT_STATUS(PKV_OK, pkv_cache_stats(of->c->cache, &stats));
    CU_ASSERT_EQUAL(stats.num_seqs, 1);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy_tagged(of->c->cache, 44, &count));
    CU_ASSERT_EQUAL(count, 0);
}

/* H4: what is being loaded is visible only when it is complete. */
static void a_sequence_is_hidden_until_it_is_loaded(void)
{
    struct runtime_case c;
    pkv_seq loaded = {0};
    int32_t count = 0;
    const struct pkv_seq_options options = {.size = sizeof options, .tag = 44};
    open_cache(&c, 32);
    const pkv_seq seq = save_seq(&c, &options, TEXT, LENGTH);
    ASSERT_STATUS(PKV_OK, save_to(&c, seq, &bytes));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seq));
    struct meanwhile of = {.c = &c, .other = save_seq(&c, NULL, TEXT + 1, 5)};
    bytes.before = look_meanwhile;
    bytes.context = &of;
    ASSERT_STATUS(PKV_OK, save_load(&c, &bytes, &loaded, NULL));
    bytes.before = NULL;
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy_tagged(c.cache, 44, &count));
    CU_ASSERT_EQUAL(count, 1);
    close_cache(&c);
}

static void calls_without_their_arguments_are_refused(void)
{
    struct runtime_case c;
    pkv_seq seq = {0};
    struct pkv_writer writer = {.size = sizeof writer};
    struct pkv_reader reader = {.size = sizeof reader};
    case_init(&c);
    case_open(&c);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "cache", pkv_seq_save(NULL, seq, &writer));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "writer", pkv_seq_save(c.cache, seq, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "write is NULL", pkv_seq_save(c.cache, seq, &writer));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "cache", pkv_seq_load(NULL, &reader, &seq, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "seq", pkv_seq_load(c.cache, &reader, NULL, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "reader", pkv_seq_load(c.cache, NULL, &seq, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "both NULL", pkv_seq_load(c.cache, &reader, &seq, NULL));
    reader.read = save_read;
    reader.read_at = save_read_at;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "both set", pkv_seq_load(c.cache, &reader, &seq, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "path", pkv_seq_save_file(c.cache, seq, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "path", pkv_seq_load_file(c.cache, NULL, &seq, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "cache", pkv_seq_save_file(NULL, seq, "x"));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "cache", pkv_seq_load_file(NULL, "x", &seq, NULL));
    case_close(&c);
}

/* One thread saves and loads while another one decodes: the same bits as alone. */
static void *decode(void *context)
{
    struct meanwhile *of = context;
    for (int i = 0; i < 40; i++) {
        of->bits = of->bits * 31 + save_run(of->c, of->other, TEXT + 1, 1);
    }
    return NULL;
}

static uint64_t decode_beside(bool saves)
{
    struct runtime_case c;
    pthread_t thread;
    open_cache(&c, 48);
    const pkv_seq seq = save_seq(&c, NULL, TEXT, LENGTH);
    struct meanwhile of = {.c = &c, .other = save_seq(&c, NULL, TEXT + 1, 5)};
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, decode, &of), 0);
    for (int i = 0; saves && i < 20; i++) {
        pkv_seq loaded = {0};
        ASSERT_STATUS(PKV_OK, save_to(&c, seq, &bytes));
        ASSERT_STATUS(PKV_OK, i % 2 == 0 ? save_load(&c, &bytes, &loaded, NULL)
                                         : save_load_stream(&c, &bytes, &loaded, NULL));
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, loaded));
    }
    pthread_join(thread, NULL);
    close_cache(&c);
    return of.bits;
}

static void decoding_goes_on_beside_saves_and_loads(void)
{
    CU_ASSERT_EQUAL(decode_beside(true), decode_beside(false));
}

static const struct test_case cases[] = {
    TEST(each_failing_allocation_changes_nothing),
    TEST(each_failing_callback_changes_nothing),
    TEST(a_full_disk_at_any_byte_is_refused),
    TEST(a_file_that_changes_while_it_is_loaded_is_refused),
    TEST(a_full_pool_refuses_without_evicting),
    TEST(promises_watermark_and_quota_hold_for_a_load),
    TEST(what_never_fits_says_so),
    TEST(records_and_a_closed_cache_refuse),
    TEST(a_sequence_of_the_open_step_is_not_saved),
    TEST(a_loaded_namespace_is_its_own),
    TEST(extras_come_back),
    TEST(what_is_cached_already_is_shared),
    TEST(tokens_are_needed_by_a_prefix_cache_alone),
    TEST(a_sequence_destroyed_while_it_is_saved_is_saved_whole),
    TEST(a_sequence_is_hidden_until_it_is_loaded),
    TEST(calls_without_their_arguments_are_refused),
    TEST(decoding_goes_on_beside_saves_and_loads),
    TEST_END,
};
const struct test_suite suite_runtime_load_room = {"runtime_load_room", cases};
