/* SPDX-License-Identifier: MIT
 *
 * Workspaces and plans: what they refuse, what they cost in memory, that a plan is run once per
 * layer, that every failed allocation leaves everything as it was, and that calls may run inside
 * the caller's own threads. */
#include <pthread.h>
#include <stdio.h>

#include "support/gqa_case.h"

static struct case_spec batch_of(uint64_t seed, enum pkv_cache_form form)
{
    struct case_spec spec = case_plain(seed);
    const bool is_copy = form == PKV_CACHE_DENSE_COPY;
    spec.form = form;
    spec.dtype = PKV_BF16;
    spec.kv_heads = 2;
    spec.group = 2;
    case_add_row(&spec, 0, is_copy ? 5 : 1, 600);
    case_add_row(&spec, 1, 5, is_copy ? 600 : 90);
    return spec;
}

/* One plan, several layers with pointers of their own. */
static void plan_is_run_once_per_layer(void)
{
    pkv_workspace *workspace = case_workspace(2);
    pkv_plan *plan = NULL;
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    for (int form = PKV_CACHE_NONE; form <= PKV_CACHE_PAGED; form++) {
        for (uint64_t layer = 0; layer < 3; layer++) {
            struct case_spec spec = batch_of(test_seed(), (enum pkv_cache_form)form);
            struct gqa_case *planned = gqa_case_make(&spec);
            spec.seed += layer; /* other numbers, the same geometry and tables */
            spec.padded = layer == 2;
            struct gqa_case *other = gqa_case_make(&spec);
            struct gqa_case *expected = gqa_case_make(&spec);
            struct pkv_gqa_args args = other->args;
            args.cu_seqlens_q = planned->args.cu_seqlens_q;
            args.cu_seqlens_k = planned->args.cu_seqlens_k;
            args.v_width = planned->args.v_width;
            ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &planned->args, plan));
            CU_ASSERT_EQUAL(gqa_case_changed(planned, REGION_CACHE | REGION_OUTPUT), -1);
            ASSERT_STATUS(PKV_OK, pkv_gqa_run(workspace, &args, plan));
            ASSERT_STATUS(PKV_OK, pkv_gqa(workspace, &expected->args));
            CU_ASSERT(gqa_case_same_rows(expected, other));
            gqa_case_free(planned);
            gqa_case_free(other);
            gqa_case_free(expected);
        }
    }
    pkv_plan_destroy(plan);
    pkv_plan_destroy(NULL);
    pkv_workspace_destroy(workspace);
}

static void plan_for_reading_and_plan_for_appending_alone_run(void)
{
    pkv_workspace *workspace = case_workspace(2);
    pkv_plan *plan = NULL;
    const struct case_spec spec = batch_of(test_seed(), PKV_CACHE_PAGED);
    struct gqa_case *whole = gqa_case_make(&spec);
    struct gqa_case *parts = gqa_case_make(&spec);
    ASSERT_STATUS(PKV_OK, pkv_gqa(workspace, &whole->args));
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    struct pkv_gqa_args args = parts->args;
    args.q = NULL;
    args.out = NULL;
    args.lse = NULL;
    ASSERT_STATUS(PKV_OK, pkv_append(workspace, &args));
    args = parts->args;
    args.k = args.v = NULL;
    ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &args, plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_run(workspace, &args, plan));
    CU_ASSERT(gqa_case_same_rows(whole, parts));
    pkv_plan_destroy(plan);
    gqa_case_free(whole);
    gqa_case_free(parts);
    pkv_workspace_destroy(workspace);
}

typedef void spoiler(struct pkv_gqa_args *args);

static void without_q(struct pkv_gqa_args *args)
{
    args->q = NULL;
}

static void without_out(struct pkv_gqa_args *args)
{
    args->out = NULL;
}

static void without_key(struct pkv_gqa_args *args)
{
    args->k = args->v = NULL;
}

static void without_v(struct pkv_gqa_args *args)
{
    args->v = NULL;
}

static void without_past(struct pkv_gqa_args *args)
{
    args->past.k = NULL;
}

static void other_dtype(struct pkv_gqa_args *args)
{
    args->dtype = PKV_F16;
}

static void other_cache_dtype(struct pkv_gqa_args *args)
{
    args->past.v_dtype = PKV_F16;
}

static void other_width(struct pkv_gqa_args *args)
{
    args->k_width = args->past.k_width = 4;
}

static void other_kv_heads(struct pkv_gqa_args *args)
{
    args->kv_heads = args->past.kv_heads = 1;
}

static void fewer_tokens(struct pkv_gqa_args *args)
{
    args->num_tokens--;
}

static void other_block_size(struct pkv_gqa_args *args)
{
    args->past.block_size--;
}

static void other_present(struct pkv_gqa_args *args)
{
    args->present.block_size--;
}

static void empty_past(struct pkv_gqa_args *args)
{
    args->past.k = args->past.v = NULL;
    args->past.block_size = 0;
}

/* What the plan knows as values would be read from where no array is. */
static void values_in_keys(struct pkv_gqa_args *args)
{
    args->v_in_k = true;
    args->v = NULL;
    args->past.v = args->present.v = NULL;
}

static void other_v_width(struct pkv_gqa_args *args)
{
    args->v_width = args->past.v_width = args->present.v_width = 4;
}

static void other_heads(struct pkv_gqa_args *args)
{
    args->num_heads = 2;
}

static void a_window(struct pkv_gqa_args *args)
{
    args->sliding_window = 3;
}

static void not_causal(struct pkv_gqa_args *args)
{
    args->not_causal = true;
}

static void a_mask(struct pkv_gqa_args *args)
{
    args->attn_mask = args->q;
    args->mask_dtype = args->dtype;
    args->mask_batch = args->mask_heads = 1;
    args->mask_queries = 5;
    args->mask_keys = 600;
}

static void tables(struct pkv_gqa_args *args)
{
    args->constants.rope_cos = args->constants.rope_sin = args->q;
    args->constants.rope_dtype = args->dtype;
    args->constants.rope_positions = 600;
    args->constants.rope_width = 1;
}

static void fewer_blocks(struct pkv_gqa_args *args)
{
    args->past.num_blocks = 1;
}

static void other_form(struct pkv_gqa_args *args)
{
    args->form = args->form == PKV_CACHE_DENSE ? PKV_CACHE_CONTINUOUS : PKV_CACHE_DENSE;
}

static void no_size(struct pkv_gqa_args *args)
{
    args->size = 0;
}

/* Bits of the forms that a difference is one for. */
enum {
    COPY = 1 << PKV_CACHE_DENSE_COPY,
    IN_PLACE = 1 << PKV_CACHE_CONTINUOUS | 1 << PKV_CACHE_DENSE | 1 << PKV_CACHE_PAGED,
    CACHES = COPY | IN_PLACE,
    ALL = CACHES | 1 << PKV_CACHE_NONE
};

static const struct difference {
    const char *name;
    unsigned forms;
    spoiler *spoil;
} differences[] = {
    {"no q", ALL, without_q},
    {"no out", ALL, without_out},
    {"neither k nor v", ALL, without_key},
    {"no v", ALL, without_v},
    {"no past K", CACHES, without_past},
    {"another dtype", ALL, other_dtype},
    {"another dtype of V", CACHES, other_cache_dtype},
    {"another width", ALL, other_width},
    {"another width of V", ALL, other_v_width},
    {"other KV heads", ALL, other_kv_heads},
    {"other heads", ALL, other_heads},
    {"fewer tokens", ALL, fewer_tokens},
    {"another block size", CACHES, other_block_size},
    {"fewer blocks", CACHES, fewer_blocks},
    {"another form", ALL, other_form},
    {"no size", ALL, no_size},
    {"a present of another length", COPY, other_present},
    {"no past at all", COPY, empty_past},
    {"values in keys", ALL, values_in_keys},
    {"a window", ALL, a_window},
    {"not causal", ALL, not_causal},
    {"a mask", ALL, a_mask},
    {"keys that are rotated", 1 << PKV_CACHE_NONE, tables},
};

static void assert_differences_refuse(pkv_workspace *workspace, enum pkv_cache_form form)
{
    pkv_plan *plan = NULL;
    const struct case_spec spec = batch_of(test_seed(), form);
    struct gqa_case *c = gqa_case_make(&spec);
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_run(workspace, &c->args, plan)); /* never planned */
    ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &c->args, plan));
    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++) {
        struct pkv_gqa_args args = c->args;
        if ((differences[i].forms >> form & 1) == 0) {
            continue;
        }
        differences[i].spoil(&args);
        const enum pkv_status run = pkv_gqa_run(workspace, &args, plan);
        const enum pkv_status start = pkv_gqa_start(workspace, &args, plan);
        if (run != PKV_INVALID_ARGUMENT || start != PKV_INVALID_ARGUMENT) {
            printf("\n  form %d: %s, not as planned, was run\n", (int)form, differences[i].name);
        }
        CU_ASSERT(run == PKV_INVALID_ARGUMENT && start == PKV_INVALID_ARGUMENT);
        CU_ASSERT_EQUAL(gqa_case_changed(c, REGION_CACHE | REGION_OUTPUT), -1);
    }
    ASSERT_STATUS(PKV_OK, pkv_gqa_run(workspace, &c->args, plan)); /* the plan is as good as ever */
    pkv_plan_destroy(plan);
    gqa_case_free(c);
}

static void run_refuses_what_was_not_planned(void)
{
    pkv_workspace *workspace = case_workspace(2);
    for (int form = PKV_CACHE_NONE; form <= PKV_CACHE_PAGED; form++) {
        assert_differences_refuse(workspace, (enum pkv_cache_form)form);
    }
    pkv_workspace_destroy(workspace);
}

/* The planned past stays, the run's is longer or shorter: rows were planned with its length. */
static void run_refuses_a_past_of_another_length(void)
{
    pkv_workspace *workspace = case_workspace(2);
    pkv_plan *plan = NULL;
    struct case_spec spec = case_plain(test_seed());
    spec.form = PKV_CACHE_DENSE_COPY;
    case_add_row(&spec, 0, 2, 2); /* no past */
    case_add_row(&spec, 1, 2, 2);
    struct gqa_case *without = gqa_case_make(&spec);
    spec.kv_lens[0] = spec.kv_lens[1] = 9;
    struct gqa_case *with = gqa_case_make(&spec);
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    struct pkv_gqa_args args = without->args;
    args.past = (struct pkv_kv_view){0};
    ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &args, plan));
    args.past = with->args.past;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_run(workspace, &args, plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &with->args, plan));
    args = with->args;
    args.past = (struct pkv_kv_view){0};
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_run(workspace, &args, plan));
    args.past = with->args.past;
    args.past.block_size = 20; /* beyond the memory of the case */
    args.past.k_head_stride = args.past.v_head_stride = 0;
    args.past.k_block_stride = args.past.v_block_stride = 0;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_run(workspace, &args, plan));
    CU_ASSERT_EQUAL(gqa_case_changed(with, REGION_CACHE | REGION_OUTPUT), -1);
    CU_ASSERT_EQUAL(gqa_case_changed(without, REGION_CACHE | REGION_OUTPUT), -1);
    pkv_plan_destroy(plan);
    gqa_case_free(without);
    gqa_case_free(with);
    pkv_workspace_destroy(workspace);
}

/* Ids are of the queries' tokens: keys that are more than those would find none. */
static void run_refuses_ids_for_some_of_its_keys(void)
{
    static int64_t ids[8];
    pkv_workspace *workspace = case_workspace(2);
    pkv_plan *plan = NULL;
    struct case_spec spec = batch_of(test_seed(), PKV_CACHE_NONE);
    spec.options = CASE_ROPE;
    struct gqa_case *c = gqa_case_make(&spec);
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &c->args, plan));
    struct pkv_gqa_args args = c->args;
    args.position_ids = ids;
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "position_ids", pkv_gqa_run(workspace, &args, plan));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_start(workspace, &args, plan));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_plan(workspace, &args, plan));
    CU_ASSERT_EQUAL(gqa_case_changed(c, REGION_CACHE | REGION_OUTPUT), -1);
    pkv_plan_destroy(plan);
    gqa_case_free(c);
    pkv_workspace_destroy(workspace);
}

static void plan_of_another_workspace_refuses(void)
{
    pkv_workspace *workspace = case_workspace(2);
    pkv_workspace *other = case_workspace(1);
    pkv_plan *plan = NULL;
    const struct case_spec spec = batch_of(test_seed(), PKV_CACHE_PAGED);
    struct gqa_case *c = gqa_case_make(&spec);
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &c->args, plan));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "another workspace", pkv_gqa_run(other, &c->args, plan));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_start(other, &c->args, plan));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_plan(other, &c->args, plan));
    CU_ASSERT_EQUAL(gqa_case_changed(c, REGION_CACHE | REGION_OUTPUT), -1);
    ASSERT_STATUS(PKV_OK, pkv_gqa_run(workspace, &c->args, plan));
    pkv_plan_destroy(plan);
    gqa_case_free(c);
    pkv_workspace_destroy(workspace);
    pkv_workspace_destroy(other);
}

static void absent_workspace_plan_or_args_refuse(void)
{
    pkv_workspace *workspace = case_workspace(2);
    pkv_plan *plan = NULL;
    const struct case_spec spec = batch_of(test_seed(), PKV_CACHE_PAGED);
    struct gqa_case *c = gqa_case_make(&spec);
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &c->args, plan));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_run(workspace, NULL, plan));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_run(workspace, &c->args, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_run(NULL, &c->args, plan));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_plan(workspace, &c->args, NULL));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_plan(NULL, &c->args, plan));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_plan(workspace, NULL, plan));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_plan_create(NULL, &plan));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_plan_create(workspace, NULL));
    CU_ASSERT_EQUAL(gqa_case_changed(c, REGION_CACHE | REGION_OUTPUT), -1);
    pkv_plan_destroy(plan);
    gqa_case_free(c);
    pkv_workspace_destroy(workspace);
}

static void refused_plan_holds_nothing_to_run(void)
{
    pkv_workspace *workspace = case_workspace(2);
    pkv_plan *plan = NULL;
    const struct case_spec spec = batch_of(test_seed(), PKV_CACHE_PAGED);
    struct gqa_case *c = gqa_case_make(&spec);
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &c->args, plan));
    const int32_t saved = c->block_table[0];
    c->block_table[0] = -7;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_plan(workspace, &c->args, plan));
    c->block_table[0] = saved;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_gqa_run(workspace, &c->args, plan));
    CU_ASSERT_EQUAL(gqa_case_changed(c, REGION_CACHE | REGION_OUTPUT), -1);
    pkv_plan_destroy(plan);
    gqa_case_free(c);
    pkv_workspace_destroy(workspace);
}

/* Memory */

/* Everything from the workspace to the answer with the fail_at-th allocation failing; the first
 * status that was not PKV_OK. */
static enum pkv_status call_with_failure(struct test_memory *memory, const struct gqa_case *c,
                                         bool with_plan)
{
    const struct pkv_hooks hooks = test_hooks(memory);
    pkv_workspace *workspace = NULL;
    pkv_plan *plan = NULL;
    enum pkv_status status = pkv_workspace_create(2, test_isa(), &hooks, &workspace);
    if (status == PKV_OK && with_plan) {
        status = pkv_plan_create(workspace, &plan);
        if (status == PKV_OK) {
            status = pkv_gqa_plan(workspace, &c->args, plan);
        }
        if (status == PKV_OK) {
            status = pkv_gqa_run(workspace, &c->args, plan);
        }
    } else if (status == PKV_OK) {
        status = gqa_case_call(c, workspace);
        if (status == PKV_NO_MEMORY) { /* and the same workspace can do it once there is memory */
            CU_ASSERT_EQUAL(gqa_case_changed(c, REGION_CACHE | REGION_OUTPUT), -1);
            memory->fail_at = 0;
            ASSERT_STATUS(PKV_OK, gqa_case_call(c, workspace));
        }
    }
    pkv_plan_destroy(plan);
    pkv_workspace_destroy(workspace);
    return status;
}

static void every_failed_allocation_leaves_all_as_it_was(void)
{
    struct case_spec spec = batch_of(test_seed(), PKV_CACHE_PAGED);
    case_add_range(&spec, 1, 86, 90);
    struct gqa_case *expected = gqa_case_make(&spec);
    pkv_workspace *workspace = case_workspace(2);
    ASSERT_STATUS(PKV_OK, gqa_case_call(expected, workspace));
    pkv_workspace_destroy(workspace);
    for (int with_plan = 0; with_plan < 2; with_plan++) {
        enum pkv_status status = PKV_NO_MEMORY;
        long fail_at = 1;
        for (; status == PKV_NO_MEMORY && fail_at < 200; fail_at++) {
            struct gqa_case *c = gqa_case_make(&spec);
            struct test_memory memory = {.fail_at = fail_at};
            status = call_with_failure(&memory, c, with_plan != 0);
            CU_ASSERT(status == PKV_OK || status == PKV_NO_MEMORY);
            CU_ASSERT_EQUAL(memory.live, 0);
            CU_ASSERT_EQUAL(memory.live_bytes, 0);
            if (gqa_case_changed(c, REGION_OUTPUT) >= 0) {
                CU_ASSERT(gqa_case_same_rows(expected, c));
            } else {
                CU_ASSERT_EQUAL(status, PKV_NO_MEMORY);
                CU_ASSERT_EQUAL(gqa_case_changed(c, REGION_CACHE), -1);
            }
            gqa_case_free(c);
        }
        CU_ASSERT_EQUAL(status, PKV_OK);
        CU_ASSERT(fail_at > 2); /* some allocation did fail */
    }
    gqa_case_free(expected);
}

static void second_identical_call_takes_no_memory(void)
{
    struct test_memory memory = {0};
    const struct pkv_hooks hooks = test_hooks(&memory);
    for (int form = PKV_CACHE_NONE; form <= PKV_CACHE_PAGED; form++) {
        pkv_workspace *workspace = NULL;
        pkv_plan *plan = NULL;
        ASSERT_STATUS(PKV_OK, pkv_workspace_create(2, test_isa(), &hooks, &workspace));
        const struct case_spec spec = batch_of(test_seed(), (enum pkv_cache_form)form);
        struct gqa_case *c = gqa_case_make(&spec);
        ASSERT_STATUS(PKV_OK, gqa_case_call(c, workspace));
        long calls = memory.calls;
        ASSERT_STATUS(PKV_OK, gqa_case_call(c, workspace));
        CU_ASSERT_EQUAL(memory.calls, calls);
        ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
        ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &c->args, plan));
        calls = memory.calls;
        memory.fail_at = 1; /* running and planning again may not even try */
        ASSERT_STATUS(PKV_OK, pkv_gqa_run(workspace, &c->args, plan));
        ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &c->args, plan));
        ASSERT_STATUS(PKV_OK, pkv_gqa_run(workspace, &c->args, plan));
        memory.fail_at = 0;
        CU_ASSERT_EQUAL(memory.calls, calls);
        pkv_plan_destroy(plan);
        gqa_case_free(c);
        pkv_workspace_destroy(workspace);
        CU_ASSERT_EQUAL(memory.live, 0);
    }
}

/* The workspace serves calls of any size in any order. */
static void workspace_grows_and_shrinks_with_its_calls(void)
{
    static const int32_t lengths[] = {1, 900, 3, 64, 1500, 2, 513};
    pkv_workspace *workspace = case_workspace(2);
    for (int i = 0; i < 7; i++) {
        struct case_spec spec = case_plain(test_seed() + (uint64_t)i);
        spec.k_width = spec.v_width = 1 + 13 * i;
        spec.group = 1 + i % 3;
        case_add_row(&spec, 0, 1 + i % 2, lengths[i] + 1);
        struct gqa_case *c = gqa_case_make(&spec);
        CU_ASSERT(gqa_case_check(c, workspace));
        gqa_case_free(c);
    }
    pkv_workspace_destroy(workspace);
}

/* Threads */

enum { NUM_CALLERS = 3 };

struct caller {
    struct gqa_case *c;
    pkv_workspace *workspace;
    enum pkv_status status;
};

static struct gqa_case *expected_answer(void)
{
    const struct case_spec spec = batch_of(test_seed(), PKV_CACHE_PAGED);
    pkv_workspace *workspace = case_workspace(1);
    struct gqa_case *c = gqa_case_make(&spec);
    ASSERT_STATUS(PKV_OK, gqa_case_call(c, workspace));
    pkv_workspace_destroy(workspace);
    return c;
}

static void make_callers(struct caller *callers)
{
    const struct case_spec spec = batch_of(test_seed(), PKV_CACHE_PAGED);
    for (int i = 0; i < NUM_CALLERS; i++) {
        callers[i].c = gqa_case_make(&spec);
        callers[i].workspace = case_workspace(2);
        callers[i].status = PKV_UNSUPPORTED;
    }
}

static void judge_callers(struct caller *callers)
{
    struct gqa_case *expected = expected_answer();
    for (int i = 0; i < NUM_CALLERS; i++) {
        ASSERT_STATUS(PKV_OK, callers[i].status);
        CU_ASSERT(gqa_case_same_rows(expected, callers[i].c));
        gqa_case_free(callers[i].c);
        pkv_workspace_destroy(callers[i].workspace);
    }
    gqa_case_free(expected);
}

static void *call_from_thread(void *argument)
{
    struct caller *caller = argument;
    caller->status = gqa_case_call(caller->c, caller->workspace);
    return NULL;
}

static void callers_with_workspaces_of_their_own_run_side_by_side(void)
{
    struct caller callers[NUM_CALLERS];
    pthread_t threads[NUM_CALLERS];
    make_callers(callers);
    for (int i = 0; i < NUM_CALLERS; i++) {
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, call_from_thread, &callers[i]), 0);
    }
    for (int i = 0; i < NUM_CALLERS; i++) {
        pthread_join(threads[i], NULL);
    }
    judge_callers(callers);
}

/* Where the tests are built with OpenMP, each caller is a thread of a parallel region, in which the
 * library may get fewer threads than it wants; else they run in turn. */
/* H5: a call inside the parallel region of a caller gives the same bits. */
static void call_inside_a_parallel_region_gives_the_same_bits(void)
{
    struct caller callers[NUM_CALLERS];
    make_callers(callers);
#if defined(_OPENMP)
#pragma omp parallel for num_threads(NUM_CALLERS)
#endif
    for (int i = 0; i < NUM_CALLERS; i++) {
        call_from_thread(&callers[i]);
    }
    judge_callers(callers);
}

/* Tasks are numbered by int32: row by row and head by head. */
static void more_rows_and_heads_than_can_be_numbered_refuse(void)
{
    enum { ROWS = 70000, HEADS = 32768 };
    static int32_t cu_seqlens[ROWS + 1];
    static float q[HEADS], k[HEADS], v[HEADS], out[HEADS];
    pkv_workspace *workspace = NULL;
    for (int32_t i = 1; i <= ROWS; i++) {
        cu_seqlens[i] = 1;
    }
    struct pkv_gqa_args args = {
        .size = sizeof args,
        .form = PKV_CACHE_NONE,
        .dtype = PKV_F32,
        .num_heads = HEADS,
        .kv_heads = HEADS,
        .k_width = 1,
        .batch = ROWS,
        .num_tokens = 1,
        .cu_seqlens_q = cu_seqlens,
        .q = q,
        .k = k,
        .v = v,
        .out = out,
    };
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(2, test_isa(), NULL, &workspace));
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "70000 rows of 32768 KV heads", pkv_gqa(workspace, &args));
    args.batch = 65535;
    v[HEADS - 1] = 3.0f;
    ASSERT_STATUS(PKV_OK, pkv_gqa(workspace, &args));
    CU_ASSERT(out[HEADS - 1] == 3.0f && out[0] == 0.0f);
    pkv_workspace_destroy(workspace);
}

static const struct test_case cases[] = {
    TEST(plan_is_run_once_per_layer),
    TEST(plan_for_reading_and_plan_for_appending_alone_run),
    TEST(run_refuses_what_was_not_planned),
    TEST(run_refuses_a_past_of_another_length),
    TEST(run_refuses_ids_for_some_of_its_keys),
    TEST(plan_of_another_workspace_refuses),
    TEST(absent_workspace_plan_or_args_refuse),
    TEST(refused_plan_holds_nothing_to_run),
    TEST(more_rows_and_heads_than_can_be_numbered_refuse),
    TEST(every_failed_allocation_leaves_all_as_it_was),
    TEST(second_identical_call_takes_no_memory),
    TEST(workspace_grows_and_shrinks_with_its_calls),
    TEST(callers_with_workspaces_of_their_own_run_side_by_side),
    TEST(call_inside_a_parallel_region_gives_the_same_bits),
    TEST_END,
};
const struct test_suite suite_gqa_plan = {"gqa_plan", cases};
