/* SPDX-License-Identifier: MIT
 *
 * What the managed calls refuse beside what the suites of their features show: calls without a
 * cache or a place for the answer, a closed cache, layers that would read each other's codes by
 * another scale, outputs that lie over what is read, and begin without memory while the prefix
 * cache is full. Each refusal leaves everything as it was. */
#include <stdlib.h>
#include <string.h>

#include "reuse_case.h"

static struct prefix_seq a, b, d, e;

/* Configurations */

/* Creates what must be refused; nothing is left behind. */
static void assert_create_refuses(struct runtime_case *c, enum pkv_status expected,
                                  const char *culprit)
{
    pkv_cache *const untouched = (pkv_cache *)(void *)c;
    pkv_cache *cache = untouched;
    ASSERT_REFUSED(expected, culprit, pkv_cache_create(&c->config, &cache));
    CU_ASSERT_PTR_EQUAL(cache, untouched);
    CU_ASSERT_EQUAL(c->memory.live, 0);
}

static void freed_content_is_poisoned_or_zeroed_not_both(void)
{
    struct runtime_case c;
    case_init(&c);
    c.config.zero_freed = true;
    assert_create_refuses(&c, PKV_INVALID_ARGUMENT, "zero_freed");
    c.config.poison_freed = false;
    case_open(&c);
    case_close(&c);
}

/* A block of the prefix cache has one id a group, and room for 64. */
static void prefix_cache_of_too_many_groups_is_unsupported(void)
{
    enum { NUM_GROUPS = 65 };
    static struct pkv_group_config groups[NUM_GROUPS];
    static struct pkv_layer_config layers[NUM_GROUPS];
    struct runtime_case c;
    prefix_init(&c);
    for (int32_t g = 0; g < NUM_GROUPS; g++) {
        groups[g] = c.groups[0];
        layers[g] = c.layers[0];
        layers[g].group = g;
    }
    c.config.groups = groups;
    c.config.layers = layers;
    c.config.num_groups = c.config.num_layers = NUM_GROUPS;
    assert_create_refuses(&c, PKV_UNSUPPORTED, "num_groups = 65");
    c.config.prefix_cache = false;
    case_open(&c);
    case_close(&c);
}

/* A shared page has been written by its owner's scales: others would read other numbers. */
static void sharing_layer_reads_codes_by_its_owners_scales(void)
{
    static const float one[] = {0.5f, 0.5f};
    static const float other[] = {0.25f, 0.5f};
    static const struct {
        const float *k, *v;
        int32_t k_count, v_count;
    } wrong[] = {{other, one, 1, 1},
                 {one, other, 1, 1},
                 {one, one, 2, 1},
                 {one, one, 1, 2},
                 {other, other, 2, 2}};
    struct runtime_case c;
    case_init(&c);
    c.groups[0].k_dtype = c.groups[0].v_dtype = PKV_INT8;
    case_add_layer(&c, 0)->shares_kv = true; /* of layer 0 */
    struct pkv_attn_constants *owner = &c.layers[0].constants;
    struct pkv_attn_constants *sharer = &c.layers[1].constants;
    owner->k_scale = owner->v_scale = one;
    owner->k_scale_count = owner->v_scale_count = 1;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        sharer->k_scale = wrong[i].k;
        sharer->v_scale = wrong[i].v;
        sharer->k_scale_count = wrong[i].k_count;
        sharer->v_scale_count = wrong[i].v_count;
        assert_create_refuses(&c, PKV_INVALID_ARGUMENT, "layers[1]");
    }
    owner->k_scale_count = owner->v_scale_count = 2;
    sharer->k_scale = sharer->v_scale = one; /* and the last of a row counts too */
    sharer->k_scale_count = sharer->v_scale_count = 2;
    owner->v_scale = other;
    assert_create_refuses(&c, PKV_INVALID_ARGUMENT, "layers[1]");
    owner->v_scale = one;
    case_open(&c);
    case_close(&c);
}

/* Handles */

static void calls_without_a_cache_or_a_place_for_the_answer_refuse(void)
{
    struct runtime_case c;
    const pkv_seq seq = {0};
    const pkv_step step = {0};
    const struct pkv_layer_io io = {.size = sizeof io};
    struct pkv_stats stats = {.size = sizeof stats};
    struct pkv_probe probe = {.size = sizeof probe};
    int32_t length = -1;
    case_init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_seq_destroy(NULL, seq));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_seq_length(NULL, seq, &length));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "length", pkv_seq_length(c.cache, seq, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_seq_truncate(NULL, seq, 0));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_commit(NULL, step, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_abort(NULL, step));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_layer_begin(NULL, step, 0, &io));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_cache_stats(NULL, &stats));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "stats", pkv_cache_stats(c.cache, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  pkv_cache_probe(NULL, NULL, PROMPT(NULL, 0), 0, 0, &probe, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "probe",
                   pkv_cache_probe(c.cache, NULL, PROMPT(NULL, 0), 0, 0, NULL, NULL));
    CU_ASSERT_EQUAL(length, -1);
    case_close(&c);
}

/* One prompt through the three calls that take it; the text that their refusal must name. */
static void expect_prompt_refused(struct runtime_case *c, const struct pkv_prompt *prompt,
                                  const char *named)
{
    struct pkv_admission admission = {sizeof admission, -1, -1, -1, -1, {0}};
    struct pkv_probe probe = {.size = sizeof probe, .num_cached = -1};
    pkv_pin pin = {77};
    int32_t num_pinned = -1;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, named,
                   pkv_seq_admit(c->cache, a.seq.handle, prompt, 0, 0, &admission, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, named,
                   pkv_cache_probe(c->cache, NULL, prompt, 0, 0, &probe, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, named,
                   pkv_prefix_pin(c->cache, NULL, prompt, 0, 0, &pin, &num_pinned));
    CU_ASSERT(admission.num_blocks == -1 && probe.num_cached == -1);
    CU_ASSERT(pin.id == 77 && num_pinned == -1);
}

static void bad_prompts_refuse(void)
{
    struct runtime_case c;
    struct pkv_prompt prompt = *PROMPT(a.ids, 8);
    prefix_open(&c, 16);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    const uint64_t before = prefix_digest(&c);
    expect_prompt_refused(&c, NULL, "prompt is NULL");
    prompt.size = 0;
    expect_prompt_refused(&c, &prompt, "prompt->size = 0");
    prompt.size = sizeof prompt - 8;
    expect_prompt_refused(&c, &prompt, "prompt->size");
    expect_prompt_refused(&c, PROMPT(a.ids, -1), "prompt->num_tokens = -1");
    expect_prompt_refused(&c, PROMPT(NULL, 8), "prompt->token_ids");
    CU_ASSERT_EQUAL(prefix_digest(&c), before);
    prefix_destroy(&c, &a);
    case_close(&c);
}

static void a_prompt_without_tokens_is_taken(void)
{
    struct runtime_case c;
    struct pkv_admission admission = {sizeof admission, -1, -1, -1, -1, {0}};
    struct pkv_probe probe = {.size = sizeof probe, .num_cached = -1};
    pkv_pin pin = {77};
    int32_t num_pinned = -1;
    prefix_open(&c, 16);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
    ASSERT_STATUS(PKV_OK, pkv_cache_probe(c.cache, NULL, PROMPT(NULL, 0), 4, 0, &probe, NULL));
    CU_ASSERT(probe.status == PKV_OK && probe.num_cached == 0 && probe.num_blocks == 1);
    ASSERT_STATUS(PKV_OK, pkv_prefix_pin(c.cache, NULL, PROMPT(NULL, 0), 0, 0, &pin, &num_pinned));
    CU_ASSERT(pin.id == 0 && num_pinned == 0);
    ASSERT_STATUS(PKV_OK,
                  pkv_seq_admit(c.cache, a.seq.handle, PROMPT(NULL, 0), 4, 0, &admission, NULL));
    CU_ASSERT(admission.num_cached == 0 && admission.num_to_write == 0);
    CU_ASSERT_EQUAL(admission.num_blocks, 1);
    prefix_destroy(&c, &a);
    case_close(&c);
}

static void prefix_calls_without_their_arguments_refuse(void)
{
    struct runtime_case c;
    const struct pkv_namespace_field field = prefix_field_of(1, "tenant", 0);
    pkv_pin pin = {77};
    int32_t num_pinned = -1;
    struct pkv_probe probe = {.size = sizeof probe};
    memset(&probe, 0x5a, sizeof probe);
    probe.size = sizeof probe;
    prefix_open(&c, 16);
    (void)prefix_run(&c, &a, 0, 8);
    ASSERT_STATUS(PKV_OK, pkv_namespace_quota(c.cache, &field, 5));
    const uint64_t before = prefix_digest(&c);
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  pkv_prefix_pin(NULL, NULL, PROMPT(a.ids, 8), 0, 0, &pin, &num_pinned));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "token_ids",
                   pkv_prefix_pin(c.cache, NULL, PROMPT(NULL, 8), 0, 0, &pin, &num_pinned));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "num_tokens",
                   pkv_prefix_pin(c.cache, NULL, PROMPT(a.ids, -1), 0, 0, &pin, &num_pinned));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "pin is NULL",
                   pkv_prefix_pin(c.cache, NULL, PROMPT(a.ids, 8), 0, 0, NULL, &num_pinned));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "num_pinned",
                   pkv_prefix_pin(c.cache, NULL, PROMPT(a.ids, 8), 0, 0, &pin, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "usage", pkv_namespace_usage(c.cache, &field, NULL));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "token_ids",
                   pkv_cache_probe(c.cache, NULL, PROMPT(NULL, 8), 0, 8, &probe, NULL));
    CU_ASSERT(pin.id == 77 && num_pinned == -1);
    const unsigned char *bytes = (const unsigned char *)&probe;
    CU_ASSERT(bytes[sizeof probe.size] == 0x5a && bytes[sizeof probe - 1] == 0x5a);
    CU_ASSERT_EQUAL(prefix_digest(&c), before);
    prefix_destroy(&c, &a);
    case_close(&c);
}

static void closed_cache_answers_probes_busy(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    (void)prefix_run(&c, &a, 0, 12);
    struct pkv_probe probe = prefix_probe(&c, &a, 12, 0);
    CU_ASSERT(probe.status == PKV_OK && probe.num_cached == 8);
    pkv_cache_close(c.cache);
    probe = prefix_probe(&c, &a, 12, 0); /* which asserts that nothing changes */
    CU_ASSERT_EQUAL(probe.status, PKV_BUSY);
    CU_ASSERT(probe.num_cached == 0 && probe.num_pending == 0 && probe.num_blocks == 0);
    CU_ASSERT(c.lacking.need == -1 && c.lacking.free == -1);
    prefix_destroy(&c, &a);
    case_close(&c);
}

/* Steps */

static enum pkv_status begin_with(struct runtime_case *c, const int32_t *token_ids)
{
    const pkv_seq seqs[] = {b.seq.handle, d.seq.handle, e.seq.handle};
    static const int32_t q_lens[] = {20, 20, 9};
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = seqs,
                                    .q_lens = q_lens,
                                    .num_rows = 3,
                                    .num_required_rows = 3,
                                    .token_ids = token_ids};
    pkv_step step = {0};
    const enum pkv_status status = pkv_step_begin(c->cache, &batch, &step, NULL);
    CU_ASSERT((step.id != 0) == (status == PKV_OK));
    if (status == PKV_OK) {
        ASSERT_STATUS(PKV_OK, pkv_step_abort(c->cache, step));
    }
    return status;
}

/* 14 of 16 blocks are wanted, 7 are plain free ones: begin will have to evict. */
static void fill_with_cached_blocks(struct runtime_case *c)
{
    prefix_init(c);
    case_open(c);
    (void)prefix_run(c, &a, 0, 20);
    prefix_destroy(c, &a);
    (void)prefix_run(c, &a, 500, 16);
    prefix_destroy(c, &a);
    ASSERT_STATUS(PKV_OK, prefix_create(c, &b, 1000, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(c, &d, 2000, NULL));
    ASSERT_STATUS(PKV_OK, prefix_create(c, &e, 3000, NULL));
}

/* I2: nothing is evicted for a step that cannot begin; what was found before is found after. */
static void begin_without_memory_keeps_what_is_cached(void)
{
    static int32_t ids[49];
    enum pkv_status status = PKV_NO_MEMORY;
    long k = 1;
    for (; status != PKV_OK && k < 100; k++) {
        struct runtime_case c;
        fill_with_cached_blocks(&c);
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 0, NULL));
        const uint64_t before = prefix_digest(&c);
        const struct pkv_stats counted = prefix_stats(&c);
        CU_ASSERT_EQUAL(prefix_hit(&c, &a, 21), 20);
        c.memory.fail_at = c.memory.calls + k;
        status = begin_with(&c, ids);
        c.memory.fail_at = 0;
        if (status != PKV_OK) {
            CU_ASSERT_EQUAL(status, PKV_NO_MEMORY);
            CU_ASSERT_EQUAL(prefix_digest(&c), before);
            CU_ASSERT_EQUAL(prefix_hit(&c, &a, 21), 20);
            CU_ASSERT_EQUAL(case_held(&c, 0), 0);
            CU_ASSERT_EQUAL(case_check(&c), 0);
            const struct pkv_stats now = prefix_stats(&c);
            CU_ASSERT(memcmp(&now, &counted, sizeof now) == 0);
            prefix_append(&c, &b, 20); /* and the cache goes on */
        } else {
            CU_ASSERT(prefix_hit(&c, &a, 21) < 20); /* so it was not free blocks alone */
        }
        case_close(&c);
    }
    CU_ASSERT_EQUAL(status, PKV_OK);
    CU_ASSERT(k > 2); /* some allocation did fail */
}

static void batch_without_token_ids_refuses(void)
{
    struct runtime_case c;
    fill_with_cached_blocks(&c);
    const uint64_t before = prefix_digest(&c);
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "token_ids", begin_with(&c, NULL));
    CU_ASSERT_EQUAL(prefix_digest(&c), before);
    case_close(&c);
}

/* q, k, v, out and lse of a step of two tokens, heads of width 2, and the pages that they meet. */
struct activations {
    float q[4], k[4], v[4], out[4], lse[2];
};

enum { NUM_OVERLAPS = 10 };

/* What lies over what, and the names of both in the last error. */
static const char *overlay(int which, const struct activations *x, const struct pkv_kv_view *pages,
                           struct pkv_layer_io *io)
{
    static const char *const names[NUM_OVERLAPS] = {
        "out overlaps q",      "out overlaps k",   "out overlaps v", "out overlaps past.k",
        "out overlaps past.v", "overlaps lse",     "lse overlaps q", "lse overlaps k",
        "lse overlaps v",      "lse overlaps past"};
    float *const q = (float *)(uintptr_t)x->q;
    float *const k = (float *)(uintptr_t)x->k;
    float *const v = (float *)(uintptr_t)x->v;
    void *const outs[] = {q + 3, k + 1, v, pages->k, (float *)pages->v + 5, (void *)io->lse};
    float *const lses[] = {q, k + 3, v + 1, (float *)pages->k + 7};
    if (which < 6) {
        io->out = outs[which];
    } else {
        io->lse = lses[which - 6];
    }
    return names[which];
}

/* The arrays of a call lie apart from each other and from the pages, or nothing happens. */
static void outputs_over_what_is_read_refuse(void)
{
    struct runtime_case c;
    struct case_step step = {0};
    struct activations x;
    struct activations before;
    struct pkv_step_view view = {.size = sizeof view};
    case_init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a.seq, NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &a.seq, 5));
    case_row(&step, &a.seq, 2);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
    ASSERT_STATUS(PKV_OK, pkv_step_describe(c.cache, step.handle, 0, &view));
    const struct pkv_kv_view *pages = &view.first_layer;
    const size_t bytes =
        (size_t)((const char *)case_cell(pages, false, 15, 0, 3) - (const char *)pages->k) + 8;
    char *copy = malloc(2 * bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
    memcpy(copy, pages->k, bytes);
    memcpy(copy + bytes, pages->v, bytes);
    memset(&x, 0x3c, sizeof x);
    before = x;
    for (int i = 0; i < NUM_OVERLAPS; i++) {
        struct pkv_layer_io io = {
            .size = sizeof io, .q = x.q, .k = x.k, .v = x.v, .out = x.out, .lse = x.lse};
        const char *names = overlay(i, &x, pages, &io);
        ASSERT_REFUSED(PKV_INVALID_ARGUMENT, names, pkv_step_attend(c.cache, step.handle, 0, &io));
        ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_step_layer_begin(c.cache, step.handle, 0, &io));
        CU_ASSERT_EQUAL(pkv_step_num_tasks(c.cache, step.handle, PKV_PHASE_ATTEND), 0);
        CU_ASSERT(memcmp(&x, &before, sizeof x) == 0);
        CU_ASSERT(memcmp(copy, pages->k, bytes) == 0);
        CU_ASSERT(memcmp(copy + bytes, pages->v, bytes) == 0);
    }
    free(copy);
    case_attend_all(&c, &step); /* none of them counted as attended */
    case_commit(&c, &step, NULL);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, a.seq.handle));
    case_close(&c);
}

static void strides_that_leave_the_address_space_refuse(void)
{
    struct runtime_case c;
    struct case_step step = {0};
    struct activations x;
    memset(&x, 0, sizeof x);
    case_init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &a.seq, NULL));
    case_row(&step, &a.seq, 2);
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 1));
    for (int which = 0; which < 4; which++) {
        static const char *const names[] = {"q_stride", "k_stride", "v_stride", "out_stride"};
        struct pkv_layer_io io = {.size = sizeof io, .q = x.q, .k = x.k, .v = x.v, .out = x.out};
        size_t *const strides[] = {&io.q_stride, &io.k_stride, &io.v_stride, &io.out_stride};
        *strides[which] = SIZE_MAX / 4;
        ASSERT_REFUSED(PKV_INVALID_ARGUMENT, names[which],
                       pkv_step_attend(c.cache, step.handle, 0, &io));
        CU_ASSERT(x.out[0] == 0 && x.out[3] == 0);
    }
    case_attend_all(&c, &step);
    case_commit(&c, &step, NULL);
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, a.seq.handle));
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(freed_content_is_poisoned_or_zeroed_not_both),
    TEST(prefix_cache_of_too_many_groups_is_unsupported),
    TEST(sharing_layer_reads_codes_by_its_owners_scales),
    TEST(calls_without_a_cache_or_a_place_for_the_answer_refuse),
    TEST(bad_prompts_refuse),
    TEST(a_prompt_without_tokens_is_taken),
    TEST(prefix_calls_without_their_arguments_refuse),
    TEST(closed_cache_answers_probes_busy),
    TEST(begin_without_memory_keeps_what_is_cached),
    TEST(batch_without_token_ids_refuses),
    TEST(outputs_over_what_is_read_refuse),
    TEST(strides_that_leave_the_address_space_refuse),
    TEST_END,
};
const struct test_suite suite_runtime_refuse = {"runtime_refuse", cases};
