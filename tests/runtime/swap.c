/* SPDX-License-Identifier: MIT
 *
 * Sequences that are swapped out and come back: nothing of them is lost or changed, what they held
 * is there for others meanwhile, and a refusal changes nothing. What a sequence computes after its
 * return is compared bit by bit with a second cache that never swaps, and with dense attention. */
#include <stdio.h>
#include <string.h>

#include "pages/page_store.h"
#include "reuse_case.h"
#include "runtime/cache.h"

static struct prefix_seq a, b, d;

static struct pkv_shortage nothing(void)
{
    return (struct pkv_shortage){.size = sizeof(struct pkv_shortage), .group = -7};
}

static enum pkv_status swap_out(struct runtime_case *c, const struct case_seq *seq)
{
    return pkv_seq_swap_out(c->cache, seq->handle, NULL);
}

static enum pkv_status swap_in(struct runtime_case *c, const struct case_seq *seq)
{
    return pkv_seq_swap_in(c->cache, seq->handle, NULL);
}

static int64_t used_units(struct runtime_case *c)
{
    return prefix_stats(c).used_swap_units;
}

static bool is_swapped(struct runtime_case *c, const struct case_seq *seq)
{
    struct pkv_seq_info info = {.size = sizeof info};
    ASSERT_STATUS(PKV_OK, pkv_seq_describe(c->cache, seq->handle, &info, NULL));
    return info.is_swapped;
}

/* ---- the same bits ------------------------------------------------------------------------- */

struct shape {
    const char *name;
    enum pkv_dtype dtype;
    int64_t window, kept_prefix;
    int32_t max_rewind, block_size, kv_heads;
    bool v_in_k, prefix_cache, has_second;
};

static const struct shape shapes[] = {
    {"f32", PKV_F32, 0, 0, 0, 4, 2, false, false, false},
    {"f16", PKV_F16, 0, 0, 0, 5, 2, false, true, false},
    {"bf16", PKV_BF16, 0, 0, 3, 3, 1, false, true, false},
    {"int8", PKV_INT8, 0, 0, 0, 4, 2, false, true, false},
    {"window", PKV_F32, 6, 0, 0, 4, 2, false, true, false},
    {"window of one key", PKV_F32, 1, 0, 0, 4, 1, false, false, false},
    {"window, kept prefix", PKV_F16, 5, 6, 0, 4, 1, false, true, false},
    {"window, max_rewind", PKV_F32, 5, 3, 6, 4, 2, false, false, false},
    {"v in k", PKV_BF16, 0, 0, 2, 4, 1, true, true, false},
    {"v in k, window", PKV_F32, 9, 2, 0, 2, 1, true, false, false},
    {"two groups", PKV_F32, 6, 1, 2, 4, 2, false, true, true},
    {"blocks of one token", PKV_F32, 3, 1, 1, 1, 1, false, true, true},
};

static void open_shape(struct runtime_case *c, const struct shape *shape, size_t swap_bytes)
{
    static const float scale = 1.0f / 64;
    prefix_init(c);
    c->config.prefix_cache = shape->prefix_cache;
    c->config.swap_bytes = swap_bytes;
    c->groups[0].kv_heads = shape->kv_heads;
    c->groups[0].k_width = 4;
    c->groups[0].v_width = 3;
    c->groups[0].v_in_k = shape->v_in_k;
    c->groups[0].block_size = shape->block_size;
    c->groups[0].num_blocks = 64;
    c->groups[0].k_dtype = c->groups[0].v_dtype = shape->dtype;
    c->layers[0].num_heads = 2 * shape->kv_heads;
    case_add_layer(c, 0);
    if (shape->has_second) {
        struct pkv_group_config *second = case_add_group(c);
        second->kv_heads = 1;
        case_add_layer(c, 1);
    }
    c->groups[0].sliding_window = shape->window;
    c->groups[0].kept_prefix = shape->kept_prefix;
    for (int32_t i = 0; i < c->config.num_layers && pkv_dtype_bytes(shape->dtype) == 1; i++) {
        struct pkv_attn_constants *constants = &c->layers[i].constants;
        constants->k_scale = &scale;
        constants->v_scale = &scale;
        constants->k_scale_count = constants->v_scale_count = 1;
    }
    case_open(c);
}

/* Swaps a sequence out and in, when `swaps`. */
static void round_trip(struct runtime_case *c, const struct case_seq *seq, bool swaps)
{
    if (!swaps) {
        return;
    }
    const int32_t length = case_length(c, seq->handle);
    ASSERT_STATUS(PKV_OK, swap_out(c, seq));
    CU_ASSERT(is_swapped(c, seq) && case_check(c) == 0);
    CU_ASSERT_EQUAL(case_length(c, seq->handle), length);
    ASSERT_STATUS(PKV_OK, swap_in(c, seq));
    CU_ASSERT(!is_swapped(c, seq) && case_check(c) == 0 && used_units(c) == 0);
}

/* The next n ids, checked against dense attention; the bits that the last of them got. */
static uint64_t append(struct runtime_case *c, struct prefix_seq *seq, int32_t n)
{
    struct case_step step = {0};
    case_row(&step, &seq->seq, n);
    ASSERT_STATUS(PKV_OK, prefix_begin(c, &step, 1));
    case_attend_all(c, &step);
    case_commit(c, &step, NULL);
    return step.rows[0].digest;
}

/* One life: appended to, forked, cut, appended to again. What the last token of each step got, as
 * bits, and what every truncation answered. */
static uint64_t live(struct runtime_case *c, const struct shape *shape, bool swaps)
{
    const struct pkv_seq_options options = {.size = sizeof options,
                                            .max_rewind = shape->max_rewind};
    uint64_t digest = 0;
    ASSERT_STATUS(PKV_OK, prefix_create(c, &a, 0, &options));
    round_trip(c, &a.seq, swaps);
    for (int32_t i = 0; i < 9; i++) {
        digest = digest * 31 + append(c, &a, 1 + i % 4);
        round_trip(c, &a.seq, swaps);
    }
    b = a;
    prefix_own_options(&b, &a.options);
    ASSERT_STATUS(PKV_OK, case_fork(c, &a.seq, a.seq.length, &b.seq));
    b.ids[a.seq.length] = 777;
    round_trip(c, &a.seq, swaps);
    round_trip(c, &b.seq, swaps);
    digest = digest * 31 + append(c, &b, 2);
    digest = digest * 31 + append(c, &a, 3);
    round_trip(c, &b.seq, swaps);
    prefix_destroy(c, &b);
    for (int32_t back = 1; back < 9; back++) {
        const int32_t length = a.seq.length > back ? a.seq.length - back : 0;
        round_trip(c, &a.seq, swaps);
        digest = digest * 31 + (uint64_t)-case_truncate(c, &a.seq, length);
        a.ids[a.seq.length] += 1000;
        round_trip(c, &a.seq, swaps);
        digest = digest * 31 + append(c, &a, 2);
    }
    prefix_destroy(c, &a);
    return digest;
}

static void a_sequence_goes_on_bit_by_bit_as_if_it_had_never_been_away(void)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct runtime_case stays, swaps;
        open_shape(&stays, &shapes[i], 0);
        open_shape(&swaps, &shapes[i], 1 << 16);
        const uint64_t expected = live(&stays, &shapes[i], false);
        ASSERT_CASE(shapes[i].name, live(&swaps, &shapes[i], true) == expected);
        CU_ASSERT(prefix_stats(&swaps).swap_outs == 29);
        case_close(&stays);
        case_close(&swaps);
    }
}

/* ---- what is released, and what stays ------------------------------------------------------ */

static void open_small(struct runtime_case *c, int32_t num_blocks, int32_t num_units)
{
    prefix_init(c);
    c->groups[0].num_blocks = num_blocks;
    c->config.swap_bytes = (size_t)num_units * 4 * 2 * 2 * sizeof(float);
    case_open(c);
}

static void blocks_that_others_hold_stay_theirs(void)
{
    static struct case_seq seq, child;
    struct runtime_case c;
    open_small(&c, 16, 8);
    ASSERT_STATUS(PKV_OK, case_create(&c, &seq, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 14));
    ASSERT_STATUS(PKV_OK, case_fork(&c, &seq, 9, &child));
    ASSERT_STATUS(PKV_OK, swap_out(&c, &seq));
    CU_ASSERT(case_taken(&c, 0) == 3 && used_units(&c) == 4);
    ASSERT_STATUS(PKV_OK, case_append(&c, &child, 5));
    ASSERT_STATUS(PKV_OK, swap_in(&c, &seq));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seq, 5));
    ASSERT_STATUS(PKV_OK, case_append(&c, &child, 5));
    CU_ASSERT_EQUAL(case_check(&c), 0);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seq.handle));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, child.handle));
    case_close(&c);
}

static bool write_nothing(void *context, const void *bytes, size_t n)
{
    (void)bytes;
    (void)n;
    *(bool *)context = true;
    return true;
}

static void a_swapped_sequence_refuses_what_needs_its_keys(void)
{
    bool has_written = false;
    const struct pkv_writer writer = {
        .size = sizeof writer, .context = &has_written, .write = write_nothing};
    static struct case_seq child;
    struct runtime_case c;
    struct case_step step = {0};
    const int32_t ids[4] = {0};
    struct pkv_admission admission = {.size = sizeof admission};
    open_small(&c, 16, 8);
    prefix_run(&c, &a, 0, 6);
    prefix_run(&c, &b, 100, 6);
    ASSERT_STATUS(PKV_OK, swap_out(&c, &a.seq));
    const uint64_t digest = prefix_digest(&c);
    case_row(&step, &b.seq, 1);
    case_row(&step, &a.seq, 1);
    ASSERT_REFUSED(PKV_NOT_RESIDENT, "seqs[1]", case_begin(&c, &step, 2));
    CU_ASSERT_EQUAL(step.shortage.row, 1);
    ASSERT_REFUSED(PKV_NOT_RESIDENT, "swapped out", case_fork(&c, &a.seq, 2, &child));
    ASSERT_REFUSED(PKV_NOT_RESIDENT, "swapped out", case_truncate(&c, &a.seq, 5));
    ASSERT_REFUSED(PKV_NOT_RESIDENT, "swapped out", case_truncate(&c, &a.seq, 6));
    ASSERT_REFUSED(PKV_NOT_RESIDENT, "swapped out",
                   pkv_seq_admit(c.cache, a.seq.handle, PROMPT(ids, 4), 0, 4, &admission, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "already", swap_out(&c, &a.seq));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "not swapped out", swap_in(&c, &b.seq));
    ASSERT_REFUSED(PKV_NOT_RESIDENT, "swapped out", pkv_seq_save(c.cache, a.seq.handle, &writer));
    CU_ASSERT_FALSE(has_written);
    CU_ASSERT(prefix_digest(&c) == digest && is_swapped(&c, &a.seq));
    ASSERT_STATUS(PKV_OK, swap_in(&c, &a.seq));
    prefix_append(&c, &a, 4);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

static void truncation_to_nothing_and_destroy_release_swap_memory(void)
{
    struct runtime_case c;
    open_small(&c, 16, 8);
    prefix_run(&c, &a, 0, 10);
    prefix_run(&c, &b, 100, 6);
    ASSERT_STATUS(PKV_OK, swap_out(&c, &a.seq));
    ASSERT_STATUS(PKV_OK, swap_out(&c, &b.seq));
    CU_ASSERT(case_taken(&c, 0) == 0 && used_units(&c) == 5);
    CU_ASSERT_EQUAL(prefix_stats(&c).swapped_seqs, 2);
    ASSERT_STATUS(PKV_OK, case_truncate(&c, &a.seq, 0));
    CU_ASSERT(used_units(&c) == 2 && !is_swapped(&c, &a.seq) && case_check(&c) == 0);
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 9, 0, NULL));
    prefix_append(&c, &a, 3);
    prefix_destroy(&c, &b);
    CU_ASSERT(used_units(&c) == 0 && case_check(&c) == 0);
    prefix_destroy(&c, &a);
    case_close(&c);
}

static void the_promise_of_an_empty_sequence_ends_and_is_made_again(void)
{
    struct runtime_case c;
    open_small(&c, 8, 1);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 20, 4, NULL));
    CU_ASSERT_EQUAL(case_free(&c, 0), 2);
    ASSERT_STATUS(PKV_OK, swap_out(&c, &a.seq));
    CU_ASSERT(case_free(&c, 0) == 8 && used_units(&c) == 0 && case_check(&c) == 0);
    ASSERT_STATUS(PKV_OK, swap_in(&c, &a.seq));
    CU_ASSERT(case_free(&c, 0) == 2 && case_check(&c) == 0);
    prefix_destroy(&c, &a);
    case_close(&c);
}

/* ---- coming back --------------------------------------------------------------------------- */

static void what_is_still_cached_is_adopted_and_not_copied(void)
{
    struct runtime_case c;
    open_small(&c, 16, 8);
    const size_t token_bytes = 2 * 2 * sizeof(float);
    prefix_run(&c, &a, 0, 14);
    ASSERT_STATUS(PKV_OK, swap_out(&c, &a.seq));
    CU_ASSERT_EQUAL(prefix_stats(&c).swap_out_bytes, 14 * token_bytes);
    prefix_run(&c, &b, 0, 9); /* has the first two blocks */
    ASSERT_STATUS(PKV_OK, swap_in(&c, &a.seq));
    CU_ASSERT_EQUAL(prefix_stats(&c).swap_in_bytes, 2 * token_bytes);
    CU_ASSERT_EQUAL(case_taken(&c, 0), 2 + 2 + 1);
    prefix_append(&c, &a, 7);
    prefix_append(&c, &b, 7);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

static void what_was_evicted_meanwhile_is_copied_and_can_be_found_again(void)
{
    struct runtime_case c;
    open_small(&c, 6, 8);
    prefix_run(&c, &a, 0, 13);
    ASSERT_STATUS(PKV_OK, swap_out(&c, &a.seq));
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 14), 12);
    prefix_run(&c, &b, 100, 24);
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 14), 0);
    struct pkv_shortage shortage = nothing();
    ASSERT_REFUSED(PKV_NO_BLOCKS, "group 0", pkv_seq_swap_in(c.cache, a.seq.handle, &shortage));
    CU_ASSERT(shortage.group == 0 && shortage.need == 4 && shortage.free == 0);
    prefix_destroy(&c, &b);
    prefix_warm(&c, &b, 200, 24);
    ASSERT_STATUS(PKV_OK, swap_in(&c, &a.seq));
    CU_ASSERT_EQUAL(prefix_stats(&c).swap_in_bytes, 13 * 2 * 2 * sizeof(float));
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 14), 12);
    CU_ASSERT_EQUAL(case_check(&c), 0);
    prefix_append(&c, &a, 3);
    prefix_destroy(&c, &a);
    case_close(&c);
}

/* A flush is for what can be found: the sequence keeps what it computed, and publishes no more. */
static void a_flush_meanwhile_takes_nothing_from_it(void)
{
    struct runtime_case c;
    open_small(&c, 16, 8);
    prefix_run(&c, &a, 0, 13);
    ASSERT_STATUS(PKV_OK, swap_out(&c, &a.seq));
    ASSERT_STATUS(PKV_OK, pkv_cache_reset(c.cache, false, NULL));
    ASSERT_STATUS(PKV_OK, swap_in(&c, &a.seq));
    CU_ASSERT_EQUAL(prefix_stats(&c).swap_in_bytes, 13 * 2 * 2 * sizeof(float));
    CU_ASSERT(prefix_hit(&c, &a, 14) == 0 && case_check(&c) == 0);
    prefix_append(&c, &a, 9);
    prefix_destroy(&c, &a);
    case_close(&c);
}

static void the_promise_of_its_admission_ends_and_is_made_again(void)
{
    for (int32_t window = 0; window <= 6; window += 6) {
        struct runtime_case c;
        prefix_init(&c);
        c.config.swap_bytes = 4096;
        c.config.max_step_tokens = 16;
        c.groups[0].num_blocks = window == 0 ? 10 : 20;
        c.groups[0].sliding_window = window;
        case_open(&c);
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
        ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 9, 15, NULL));
        prefix_append(&c, &a, 9);
        const int32_t held = case_held(&c, 0);
        ASSERT_STATUS(PKV_OK, swap_out(&c, &a.seq));
        CU_ASSERT_EQUAL(case_held(&c, 0), 0);
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 100, NULL));
        ASSERT_STATUS(PKV_OK, prefix_admit(&c, &b, 20, window == 0 ? 4 : 30, NULL));
        struct pkv_shortage shortage = nothing();
        const enum pkv_status status = pkv_seq_swap_in(c.cache, a.seq.handle, &shortage);
        CU_ASSERT_EQUAL(status, window == 0 ? PKV_NO_BLOCKS : PKV_OK);
        if (window == 0) {
            CU_ASSERT(shortage.need == 6 && shortage.free == 4 && shortage.group == 0);
            ASSERT_STATUS(PKV_NO_BLOCKS, pkv_wait_free(c.cache, a.seq.handle, &shortage, 0));
            prefix_destroy(&c, &b);
            ASSERT_STATUS(PKV_OK, pkv_wait_free(c.cache, a.seq.handle, &shortage, 0));
            ASSERT_STATUS(PKV_OK, swap_in(&c, &a.seq));
            CU_ASSERT_EQUAL(case_held(&c, 0), held);
        } else {
            prefix_destroy(&c, &b);
        }
        prefix_append(&c, &a, 15);
        prefix_destroy(&c, &a);
        case_close(&c);
    }
}

/* A hit that ends inside a block is copied on the first step: a sequence that is away before that
 * comes back with the cells in a block of its own. */
static void a_hit_that_was_to_be_copied_comes_back_as_its_own(void)
{
    struct runtime_case c;
    prefix_init(&c);
    c.config.no_partial_hits = false;
    c.config.swap_bytes = 4096;
    case_open(&c);
    prefix_warm(&c, &b, 0, 12);
    int32_t cached = 0;
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    a.ids[7] = 999;
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 12, 8, &cached));
    CU_ASSERT_EQUAL(cached, 7);
    const int32_t held = case_held(&c, 0);
    ASSERT_STATUS(PKV_OK, swap_out(&c, &a.seq));
    ASSERT_STATUS(PKV_OK, swap_in(&c, &a.seq));
    CU_ASSERT(case_held(&c, 0) == held - 1 && case_check(&c) == 0);
    prefix_append(&c, &a, 13);
    prefix_destroy(&c, &a);
    case_close(&c);
}

static void the_watermark_is_left_unless_the_sequence_alone_needs_it(void)
{
    struct runtime_case c;
    prefix_init(&c);
    c.groups[0].num_blocks = 8;
    c.config.watermark_blocks = 3;
    c.config.swap_bytes = 4096;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 100, NULL));
    prefix_append(&c, &a, 12);
    ASSERT_STATUS(PKV_OK, swap_out(&c, &a.seq));
    prefix_append(&c, &b, 12);
    struct pkv_shortage shortage = nothing();
    ASSERT_STATUS(PKV_NO_BLOCKS, pkv_seq_swap_in(c.cache, a.seq.handle, &shortage));
    CU_ASSERT(shortage.need == 3 && shortage.free == 2 && shortage.evictable == 2);
    prefix_append(&c, &b, 16);
    ASSERT_STATUS(PKV_OK, swap_out(&c, &b.seq));
    ASSERT_STATUS(PKV_OK, swap_in(&c, &b.seq)); /* 7 of 8 blocks */
    prefix_append(&c, &b, 1);
    prefix_destroy(&c, &b);
    ASSERT_STATUS(PKV_OK, swap_in(&c, &a.seq));
    prefix_destroy(&c, &a);
    case_close(&c);
}

static void a_quota_counts_what_comes_back(void)
{
    struct runtime_case c;
    open_small(&c, 16, 8);
    const struct pkv_namespace_field field = prefix_field_of(1, "ann", 0);
    const struct pkv_seq_options options = {
        .size = sizeof options, .namespace_fields = &field, .num_namespace_fields = 1};
    ASSERT_STATUS(PKV_OK, pkv_namespace_quota(c.cache, &field, 5));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, &options));
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 100, &options));
    prefix_append(&c, &a, 12);
    ASSERT_STATUS(PKV_OK, swap_out(&c, &a.seq));
    prefix_append(&c, &b, 17);
    struct pkv_shortage shortage = nothing();
    ASSERT_STATUS(PKV_NO_BLOCKS, pkv_seq_swap_in(c.cache, a.seq.handle, &shortage));
    CU_ASSERT(shortage.quota == 5 && shortage.need == 3 && shortage.free == 0);
    ASSERT_STATUS(PKV_OK, pkv_namespace_quota(c.cache, &field, 2));
    ASSERT_STATUS(PKV_NEVER_FITS, pkv_seq_swap_in(c.cache, a.seq.handle, &shortage));
    prefix_destroy(&c, &b);
    ASSERT_STATUS(PKV_OK, pkv_namespace_quota(c.cache, &field, 3));
    ASSERT_STATUS(PKV_OK, swap_in(&c, &a.seq));
    CU_ASSERT_EQUAL(case_check(&c), 0);
    prefix_destroy(&c, &a);
    case_close(&c);
}

/* ---- the swap memory ----------------------------------------------------------------------- */

static void a_full_swap_area_says_how_many_units_are_missing(void)
{
    struct runtime_case c;
    open_small(&c, 16, 4);
    prefix_run(&c, &a, 0, 9);
    prefix_run(&c, &b, 100, 7);
    prefix_run(&c, &d, 200, 17);
    struct pkv_shortage shortage = nothing();
    ASSERT_STATUS(PKV_OK, swap_out(&c, &a.seq));
    const uint64_t digest = prefix_digest(&c);
    ASSERT_REFUSED(PKV_NO_BLOCKS, "swap area", pkv_seq_swap_out(c.cache, b.seq.handle, &shortage));
    CU_ASSERT(shortage.group == -1 && shortage.need == 2 && shortage.free == 1);
    CU_ASSERT(shortage.quota == 0 && shortage.max_tokens == 0);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_wait_free(c.cache, b.seq.handle, &shortage, 0));
    ASSERT_REFUSED(PKV_NEVER_FITS, "swap area", pkv_seq_swap_out(c.cache, d.seq.handle, &shortage));
    CU_ASSERT(shortage.group == -1 && shortage.need == 5 && shortage.free == 1);
    CU_ASSERT(prefix_digest(&c) == digest && used_units(&c) == 3);
    ASSERT_STATUS(PKV_OK, swap_in(&c, &a.seq));
    ASSERT_STATUS(PKV_OK, swap_out(&c, &b.seq));
    prefix_append(&c, &d, 3);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    prefix_destroy(&c, &d);
    case_close(&c);
}

/* A cell of width 2 has what the token has. */
static bool has_token(const float *cell, uint32_t tag, int what)
{
    return cell[0] == (float)case_value(tag, 0, what, 0, 0) &&
           cell[1] == (float)case_value(tag, 0, what, 0, 1);
}

/* Keys and values of a sequence in a group of f32, cell by cell. */
static bool has_cells(struct runtime_case *c, const struct case_seq *seq)
{
    int32_t entries[16];
    int32_t num_entries = 0;
    const struct pkv_kv_view *view = &c->cache->layers[0].view;
    ASSERT_STATUS(PKV_OK, pkv_seq_table(c->cache, seq->handle, 0, entries, 16, &num_entries));
    for (int32_t i = 0; i < seq->length; i++) {
        const int32_t block = entries[i / view->block_size];
        const int32_t cell = i % view->block_size;
        if (!has_token(case_cell(view, false, block, 0, cell), seq->tags[i], 0) ||
            !has_token(case_cell(view, true, block, 0, cell), seq->tags[i], 1)) {
            return false;
        }
    }
    return true;
}

/* J3: with 4 blocks and 2 units, blocks and units are whole in number while sequences move to and
 * fro at random, and keys and values, which differ, end where they belong. */
static void keys_and_values_move_between_a_small_pool_and_a_smaller_area(void)
{
    static struct case_seq seqs[5];
    struct test_random random = {test_seed()};
    struct runtime_case c;
    int32_t held = 4, used = 1;
    case_init(&c);
    c.groups[0].num_blocks = 4;
    c.config.swap_bytes = 2 * 4 * 2 * 2 * sizeof(float) + 1;
    case_open(&c);
    for (int32_t i = 0; i < 5; i++) {
        ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[i], NULL));
        ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[i], 1 + i % 4));
        ASSERT_STATUS(i == 0 ? PKV_OK : PKV_INVALID_ARGUMENT, swap_out(&c, &seqs[0]));
    }
    for (int32_t round = 0; round < 50; round++) {
        const struct case_seq *seq = &seqs[random_between(&random, 0, 4)];
        const bool is_out = !is_swapped(&c, seq);
        const bool fits = is_out ? used < 2 : held < 4;
        ASSERT_STATUS(fits ? PKV_OK : PKV_NO_BLOCKS, is_out ? swap_out(&c, seq) : swap_in(&c, seq));
        held += fits ? (is_out ? -1 : 1) : 0;
        used += fits ? (is_out ? 1 : -1) : 0;
        const struct pkv_stats stats = prefix_stats(&c);
        CU_ASSERT(stats.held_blocks == held && stats.free_blocks + held == 4);
        CU_ASSERT(stats.used_swap_units == used && stats.swap_units == 2);
        CU_ASSERT(case_check(&c) == 0 && (is_swapped(&c, seq) || has_cells(&c, seq)));
    }
    case_close(&c);
}

/* Groups of 3 layers and of 2: units are a third of the one and half of the other, and are used up
 * to the last one in whatever mix. */
static void units_fit_any_mix_of_groups(void)
{
    struct runtime_case c;
    case_init(&c);
    struct pkv_group_config *window = case_add_group(&c);
    window->sliding_window = 4;
    for (int32_t i = 0; i < 4; i++) {
        case_add_layer(&c, i < 2 ? 0 : 1);
    }
    const size_t layer_bytes = 4 * 2 * 2 * sizeof(float);
    c.config.swap_bytes = 24 * layer_bytes + 5;
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &sizes));
    CU_ASSERT_EQUAL(sizes.swap_bytes, 24 * layer_bytes);
    case_open(&c);
    CU_ASSERT_EQUAL(prefix_stats(&c).swap_units, 24);
    CU_ASSERT_EQUAL(c.memory.map_bytes, sizes.payload_bytes + sizes.table_bytes + sizes.swap_bytes);
    struct pkv_cache_config config = {.size = sizeof config};
    ASSERT_STATUS(PKV_OK, pkv_cache_describe(c.cache, &config));
    CU_ASSERT(config.swap_bytes == 24 * layer_bytes && config.swap_path == NULL);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a.seq, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a.seq, 18)); /* 4 * 3 + 2, and 2 + 1 units: 17 */
    ASSERT_STATUS(PKV_OK, case_create(&c, &b.seq, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &b.seq, 5)); /* 3 + 1, and 2 + 1: 7 */
    ASSERT_STATUS(PKV_OK, swap_out(&c, &a.seq));
    ASSERT_STATUS(PKV_OK, swap_out(&c, &b.seq));
    CU_ASSERT(used_units(&c) == 24 && case_check(&c) == 0);
    ASSERT_STATUS(PKV_OK, swap_in(&c, &a.seq));
    ASSERT_STATUS(PKV_OK, swap_in(&c, &b.seq));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a.seq, 3));
    ASSERT_STATUS(PKV_OK, case_append(&c, &b.seq, 3));
    case_close(&c);
}

/* Slots stay where they are; a cache of slots alone has nothing to swap. */
static void slots_of_continuous_groups_stay(void)
{
    struct runtime_case c;
    case_init(&c);
    c.config.swap_bytes = 4096;
    struct pkv_group_config *slots = case_add_group(&c);
    slots->storage = PKV_STORAGE_CONTINUOUS;
    case_add_layer(&c, 1);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a.seq, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a.seq, 7));
    ASSERT_STATUS(PKV_OK, swap_out(&c, &a.seq));
    CU_ASSERT(case_taken(&c, 0) == 0 && case_taken(&c, 1) == 1 && case_check(&c) == 0);
    ASSERT_STATUS(PKV_OK, case_create(&c, &b.seq, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &b.seq, 9));
    ASSERT_STATUS(PKV_OK, swap_in(&c, &a.seq));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a.seq, 7));
    case_close(&c);

    case_init(&c);
    c.groups[0].storage = PKV_STORAGE_CONTINUOUS;
    c.config.swap_bytes = 4096;
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    ASSERT_REFUSED(PKV_UNSUPPORTED, "no group is paged", pkv_cache_size(&c.config, &sizes));
    c.config.swap_bytes = 0;
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a.seq, NULL));
    ASSERT_REFUSED(PKV_UNSUPPORTED, "swap_bytes", swap_out(&c, &a.seq));
    case_close(&c);
}

/* What a cache with hooks of its own has mapped to swap to. */
struct swap_memory {
    struct pkv_hooks inner;
    unsigned char *bytes;
    size_t count;
};

static void *map(void *context, size_t bytes, size_t alignment, int node, enum pkv_map_kind kind)
{
    struct swap_memory *memory = context;
    unsigned char *mapped =
        memory->inner.map_pages(memory->inner.context, bytes, alignment, node, kind);
    if (kind == PKV_MAP_SWAP) {
        memory->bytes = mapped;
        memory->count = bytes;
    }
    return mapped;
}

static void unmap(void *context, void *mapped, size_t bytes, enum pkv_map_kind kind)
{
    struct swap_memory *memory = context;
    memory->inner.unmap_pages(memory->inner.context, mapped, bytes, kind);
}

static void open_watched(struct runtime_case *c, struct swap_memory *memory)
{
    *memory = (struct swap_memory){.inner = c->config.hooks};
    c->config.hooks = (struct pkv_hooks){.context = memory, .map_pages = map, .unmap_pages = unmap};
    c->config.swap_bytes = 1024;
    case_open(c);
}

static bool is_filled(const struct swap_memory *memory, int byte)
{
    for (size_t i = 0; i < memory->count; i++) {
        if (memory->bytes[i] != byte) {
            return false;
        }
    }
    return memory->count > 0;
}

static void swap_memory_is_overwritten_as_blocks_are(void)
{
    for (int zero = 0; zero < 2; zero++) {
        struct runtime_case c;
        struct swap_memory memory;
        const int byte = zero ? 0 : PAGE_STORE_POISON;
        case_init(&c);
        c.config.poison_freed = !zero;
        c.config.zero_freed = zero != 0;
        c.memory.fill = (unsigned char)byte;
        open_watched(&c, &memory);
        for (int32_t round = 0; round < 3; round++) {
            ASSERT_STATUS(PKV_OK, case_create(&c, &a.seq, NULL));
            ASSERT_STATUS(PKV_OK, case_append(&c, &a.seq, 9));
            ASSERT_STATUS(PKV_OK, swap_out(&c, &a.seq));
            CU_ASSERT_FALSE(is_filled(&memory, byte));
            ASSERT_STATUS(PKV_OK, round == 0   ? swap_in(&c, &a.seq)
                                  : round == 1 ? case_truncate(&c, &a.seq, 0)
                                               : pkv_seq_destroy(c.cache, a.seq.handle));
            CU_ASSERT(is_filled(&memory, byte));
        }
        case_close(&c);
    }
}

static const struct test_case cases[] = {
    TEST(a_sequence_goes_on_bit_by_bit_as_if_it_had_never_been_away),
    TEST(blocks_that_others_hold_stay_theirs),
    TEST(a_swapped_sequence_refuses_what_needs_its_keys),
    TEST(truncation_to_nothing_and_destroy_release_swap_memory),
    TEST(the_promise_of_an_empty_sequence_ends_and_is_made_again),
    TEST(what_is_still_cached_is_adopted_and_not_copied),
    TEST(what_was_evicted_meanwhile_is_copied_and_can_be_found_again),
    TEST(a_flush_meanwhile_takes_nothing_from_it),
    TEST(the_promise_of_its_admission_ends_and_is_made_again),
    TEST(a_hit_that_was_to_be_copied_comes_back_as_its_own),
    TEST(the_watermark_is_left_unless_the_sequence_alone_needs_it),
    TEST(a_quota_counts_what_comes_back),
    TEST(a_full_swap_area_says_how_many_units_are_missing),
    TEST(keys_and_values_move_between_a_small_pool_and_a_smaller_area),
    TEST(units_fit_any_mix_of_groups),
    TEST(slots_of_continuous_groups_stay),
    TEST(swap_memory_is_overwritten_as_blocks_are),
    TEST_END,
};
const struct test_suite suite_runtime_swap = {"runtime_swap", cases};
