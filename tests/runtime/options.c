/* SPDX-License-Identifier: MIT
 *
 * A managed cache whose layers have constants: random steps (prefill in chunks, decode, fork, copy
 * on write, windows, rewinds, aborts) give, layer by layer, the bits of the raw operator on the
 * step's own pages and on a dense cache of the whole history, and what the float64 reference says.
 * See support/options_case.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/options_case.h"

enum { MAX_SEQS = 6, NUM_ROUNDS = 60 };

/* Layers 0 and 1 own pages, layer 2 reads those of layer 0 with heads of its own. */
struct scenario {
    unsigned options[3];
    enum pkv_dtype dtype, k_dtype, v_dtype;
    enum pkv_storage storage;
    int32_t kv_heads, k_width, v_width;
    bool v_in_k;
    int32_t block_size;
    int64_t window, kept_prefix;
    bool has_positions;
    bool has_two_threads;
    int32_t second_window; /* a second group with this window and a layer of options[0] */
};

/* A random run over one cache. */
struct run {
    struct options_case c;
    struct case_seq *seqs[MAX_SEQS]; /* [num_seqs] are alive */
    int32_t num_seqs;
    int32_t num_steps, num_forks, num_rewinds;
};

static int32_t roll(struct run *run, int32_t low, int32_t high)
{
    return random_between(&run->c.random, low, high);
}

static void add_seq(struct run *run)
{
    static const int64_t kept_prefix = 3;
    const struct pkv_seq_options options = {
        .size = sizeof options, .kept_prefix = &kept_prefix, .max_rewind = 2};
    struct case_seq *seq = reference_alloc(1, sizeof *seq);
    ASSERT_STATUS(PKV_OK, case_create(&run->c.runtime, seq, roll(run, 0, 1) ? &options : NULL));
    run->seqs[run->num_seqs++] = seq;
}

static void fork_seq(struct run *run, int32_t which)
{
    const struct case_seq *parent = run->seqs[which];
    struct case_seq *child = reference_alloc(1, sizeof *child);
    const int32_t at = roll(run, parent->length / 2, parent->length);
    const enum pkv_status status = case_fork(&run->c.runtime, parent, at, child);
    if (status == PKV_OK) {
        run->seqs[run->num_seqs++] = child;
        run->num_forks++;
    } else {
        CU_ASSERT(status == PKV_NOT_RESIDENT || status == PKV_UNSUPPORTED);
        free(child);
    }
}

static void drop_seq(struct run *run, int32_t which)
{
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(run->c.runtime.cache, run->seqs[which]->handle));
    free(run->seqs[which]);
    run->seqs[which] = run->seqs[--run->num_seqs];
}

static void rewind_seq(struct run *run, int32_t which)
{
    struct case_seq *seq = run->seqs[which];
    const int32_t length = roll(run, seq->length * 3 / 4, seq->length);
    const enum pkv_status status = case_truncate(&run->c.runtime, seq, length);
    CU_ASSERT(status == PKV_OK || status == PKV_NOT_RESIDENT);
    run->num_rewinds += status == PKV_OK;
}

/* Rows of a random subset of the sequences: decode, a chunk, or nothing at all. */
static void add_rows(struct run *run, struct case_step *step)
{
    int32_t left = run->c.runtime.config.max_step_tokens;
    for (int32_t i = 0; i < run->num_seqs; i++) {
        struct case_seq *seq = run->seqs[i];
        int32_t q_len = roll(run, 0, 2) == 0 ? roll(run, 0, 13) : 1;
        if (q_len > OPTIONS_POSITIONS - seq->length) {
            q_len = OPTIONS_POSITIONS - seq->length;
        }
        if (q_len > left || roll(run, 0, 3) == 0) {
            continue;
        }
        left -= q_len;
        case_row(step, seq, q_len);
    }
}

static bool run_step(struct run *run)
{
    struct options_case *c = &run->c;
    struct case_step step = {.num_rows = 0};
    int32_t num_keep[CASE_MAX_ROWS];
    bool is_right = true;
    add_rows(run, &step);
    ASSERT_STATUS(PKV_OK, options_case_begin(c, &step));
    for (int32_t layer = 0; is_right && layer < c->runtime.config.num_layers; layer++) {
        is_right = options_case_attend(c, &step, layer);
    }
    for (int32_t i = 0; i < step.num_rows; i++) {
        const int32_t q_len = step.rows[i].q_len;
        num_keep[i] = roll(run, 0, 3) == 0 ? roll(run, 0, q_len) : q_len;
    }
    if (!is_right || roll(run, 0, 9) == 0) {
        case_abort(&c->runtime, &step);
    } else {
        case_commit(&c->runtime, &step, roll(run, 0, 1) ? num_keep : NULL);
    }
    CU_ASSERT_EQUAL(case_check(&c->runtime), 0);
    run->num_steps++;
    return is_right;
}

static bool play(struct run *run)
{
    bool is_right = true;
    add_seq(run);
    for (int32_t round = 0; is_right && round < NUM_ROUNDS; round++) {
        const int32_t dice = roll(run, 0, 19);
        const int32_t which = run->num_seqs > 0 ? roll(run, 0, run->num_seqs - 1) : -1;
        if (run->num_seqs == 0 || (dice < 2 && run->num_seqs < MAX_SEQS)) {
            add_seq(run);
        } else if (dice < 5 && run->num_seqs < MAX_SEQS) {
            fork_seq(run, which);
        } else if (dice == 5 || run->seqs[which]->length > OPTIONS_POSITIONS - 4) {
            drop_seq(run, which);
        } else if (dice == 6) {
            rewind_seq(run, which);
        } else {
            is_right = run_step(run);
        }
    }
    while (run->num_seqs > 0) {
        drop_seq(run, run->num_seqs - 1);
    }
    return is_right;
}

static void make(struct run *run, const struct scenario *s, uint64_t seed)
{
    struct options_case *c = &run->c;
    memset(run, 0, sizeof *run);
    options_case_init(c, seed);
    struct pkv_group_config *group = &c->runtime.groups[0];
    group->storage = s->storage;
    group->kv_heads = s->kv_heads;
    group->k_width = s->k_width;
    group->v_width = s->v_width;
    group->v_in_k = s->v_in_k;
    group->k_dtype = s->k_dtype;
    group->v_dtype = s->v_in_k ? s->k_dtype : s->v_dtype;
    group->block_size = s->block_size;
    group->sliding_window = s->window;
    group->kept_prefix = s->kept_prefix;
    c->runtime.config.dtype = s->dtype;
    c->runtime.config.num_threads = s->has_two_threads ? 2 : 1;
    c->has_positions = s->has_positions;
    c->num_positions = s->has_positions ? 37 : OPTIONS_POSITIONS;
    options_case_layer(c, 0, s->kv_heads * 2, s->options[0]);
    options_case_layer(c, 0, s->kv_heads, s->options[1]);
    options_case_sharer(c, 0, s->kv_heads * 3, s->options[2]);
    if (s->second_window != 0) {
        struct pkv_group_config *second = case_add_group(&c->runtime);
        second->sliding_window = s->second_window;
        second->block_size = 3;
        second->kept_prefix = 1;
        options_case_layer(c, 1, s->kv_heads * 2, s->options[0]);
    }
}

static void assert_scenario(const struct scenario *s)
{
    struct run *run = reference_alloc(1, sizeof *run);
    int32_t num_steps = 0, num_forks = 0, num_rewinds = 0;
    bool is_right = true;
    for (uint64_t i = 0; is_right && i < 3; i++) {
        make(run, s, test_seed() + i);
        options_case_open(&run->c);
        is_right = play(run);
        num_steps += run->num_steps;
        num_forks += run->num_forks;
        num_rewinds += run->num_rewinds;
        options_case_close(&run->c);
    }
    CU_ASSERT(is_right);
    CU_ASSERT(!is_right || num_steps > NUM_ROUNDS);
    CU_ASSERT(!is_right || num_rewinds > 0);
    CU_ASSERT(!is_right || (num_forks > 0) == (s->storage == PKV_STORAGE_PAGED));
    free(run);
}

static struct scenario plain_scenario(unsigned first, unsigned second, unsigned third)
{
    const struct scenario s = {
        .options = {first, second, third}, .kv_heads = 2, .k_width = 12, .block_size = 4};
    return s;
}

static void rope_turns_by_the_positions_of_the_sequence(void)
{
    const struct scenario s = plain_scenario(
        WITH_ROPE, WITH_ROPE | WITH_INTERLEAVED | WITH_BF16_ROPE, WITH_ROPE | WITH_PARTIAL);
    assert_scenario(&s);
}

static void rope_turns_some_channels_from_an_offset_on(void)
{
    struct scenario s = plain_scenario(WITH_ROPE | WITH_PARTIAL,
                                       WITH_ROPE | WITH_PARTIAL | WITH_INTERLEAVED, WITH_ROPE);
    s.dtype = s.k_dtype = s.v_dtype = PKV_BF16;
    s.block_size = 7;
    assert_scenario(&s);
}

static void rope_turns_by_the_position_ids_of_the_batch(void)
{
    struct scenario s = plain_scenario(WITH_ROPE | WITH_INTERLEAVED, 0, WITH_ROPE | WITH_NORM);
    s.has_positions = true;
    assert_scenario(&s);
    s.options[1] = WITH_ROPE | WITH_PARTIAL | WITH_NORM | WITH_NORM_FIRST;
    s.window = 9;
    s.dtype = PKV_F16;
    assert_scenario(&s);
}

static void norms_come_before_or_after_rope(void)
{
    struct scenario s =
        plain_scenario(WITH_ROPE | WITH_NORM, WITH_ROPE | WITH_NORM_FIRST, WITH_NORM_FIRST);
    assert_scenario(&s);
    s.options[0] = WITH_NORM_FIRST;
    s.options[2] = WITH_ROPE | WITH_NORM | WITH_INTERLEAVED;
    s.dtype = s.k_dtype = s.v_dtype = PKV_F16;
    assert_scenario(&s);
}

static void softcaps_sinks_and_scales_are_the_layers_own(void)
{
    struct scenario s = plain_scenario(WITH_SOFTCAP | WITH_SINK, WITH_SMOOTH | WITH_Q_SCALE,
                                       WITH_SINK | WITH_Q_SCALE);
    assert_scenario(&s);
    s.options[0] = WITH_SMOOTH;
    s.options[2] = WITH_SOFTCAP;
    s.dtype = PKV_BF16;
    s.k_dtype = PKV_F32;
    s.v_dtype = PKV_F16;
    assert_scenario(&s);
}

/* G1: the scales are applied on every path that reads a quantised cache. */
static void quantised_groups_scale_per_tensor_and_per_channel(void)
{
    static const enum pkv_dtype pairs[][2] = {
        {PKV_INT8, PKV_INT8}, {PKV_E4M3, PKV_E4M3}, {PKV_INT8, PKV_BF16}, {PKV_F32, PKV_E4M3}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct scenario s =
            plain_scenario(WITH_ROPE | WITH_SCALE_PER_CHANNEL, 0, WITH_ROPE | WITH_SOFTCAP);
        s.dtype = (enum pkv_dtype)(i % 3);
        s.k_dtype = pairs[i][0];
        s.v_dtype = pairs[i][1];
        s.v_width = 9;
        s.window = i % 2 ? 11 : 0;
        assert_scenario(&s);
    }
}

static void latent_groups_keep_values_inside_keys(void)
{
    static const enum pkv_dtype dtypes[] = {PKV_F32, PKV_BF16, PKV_INT8, PKV_E4M3};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        struct scenario s =
            plain_scenario(WITH_ROPE | WITH_PARTIAL, WITH_SINK | WITH_SCALE_PER_CHANNEL, WITH_ROPE);
        s.v_in_k = true;
        s.kv_heads = 1;
        s.k_width = 20;
        s.v_width = 13;
        s.k_dtype = dtypes[i];
        assert_scenario(&s);
    }
}

static void windows_and_kept_prefixes_see_the_same_keys(void)
{
    struct scenario s =
        plain_scenario(WITH_ROPE | WITH_SINK, WITH_SOFTCAP | WITH_SMOOTH, WITH_ROPE | WITH_NORM);
    s.window = 10;
    s.kept_prefix = 5;
    assert_scenario(&s);
    s.window = 1;
    s.kept_prefix = 0;
    s.block_size = 16;
    assert_scenario(&s);
}

static void groups_of_two_windows_run_side_by_side(void)
{
    struct scenario s = plain_scenario(WITH_ROPE | WITH_NORM, WITH_SINK, WITH_ROPE);
    s.second_window = 6;
    s.block_size = 5;
    assert_scenario(&s);
}

static void slots_take_every_option(void)
{
    struct scenario s = plain_scenario(WITH_ROPE | WITH_NORM | WITH_SOFTCAP | WITH_SINK,
                                       WITH_ROPE | WITH_INTERLEAVED | WITH_SCALE_PER_CHANNEL,
                                       WITH_Q_SCALE | WITH_SMOOTH);
    s.storage = PKV_STORAGE_CONTINUOUS;
    assert_scenario(&s);
    s.k_dtype = s.v_dtype = PKV_INT8;
    s.has_positions = true;
    assert_scenario(&s);
}

static void everything_at_once_in_blocks_of_one(void)
{
    struct scenario s = plain_scenario(WITH_ROPE | WITH_PARTIAL | WITH_NORM | WITH_SOFTCAP |
                                           WITH_SINK | WITH_Q_SCALE | WITH_SCALE_PER_CHANNEL,
                                       WITH_ROPE | WITH_INTERLEAVED | WITH_NORM_FIRST |
                                           WITH_SMOOTH | WITH_BF16_ROPE,
                                       WITH_ROPE | WITH_NORM | WITH_SINK);
    s.dtype = PKV_BF16;
    s.k_dtype = PKV_E4M3;
    s.v_dtype = PKV_INT8;
    s.window = 12;
    s.kept_prefix = 2;
    s.block_size = 1;
    s.has_positions = true;
    s.has_two_threads = true;
    assert_scenario(&s);
}

static const struct test_case cases[] = {
    TEST(rope_turns_by_the_positions_of_the_sequence),
    TEST(rope_turns_some_channels_from_an_offset_on),
    TEST(rope_turns_by_the_position_ids_of_the_batch),
    TEST(norms_come_before_or_after_rope),
    TEST(softcaps_sinks_and_scales_are_the_layers_own),
    TEST(quantised_groups_scale_per_tensor_and_per_channel),
    TEST(latent_groups_keep_values_inside_keys),
    TEST(windows_and_kept_prefixes_see_the_same_keys),
    TEST(groups_of_two_windows_run_side_by_side),
    TEST(slots_take_every_option),
    TEST(everything_at_once_in_blocks_of_one),
    TEST_END,
};
const struct test_suite suite_runtime_options = {"runtime_options", cases};
