/* SPDX-License-Identifier: MIT
 *
 * Workspaces: what create refuses and answers, and calls whose sizes are as large as the arguments
 * can say. Those are planned alone, with addresses at which there is no memory: a plan reads no
 * channel. */
#include <stdlib.h>

#include "attn/workspace.h"
#include "support/gqa_case.h"

static void workspace_refuses_what_it_cannot_be(void)
{
    int mark = 0;
    pkv_workspace *const untouched = (pkv_workspace *)(void *)&mark;
    pkv_workspace *workspace = untouched;
    struct test_memory memory = {0};
    struct pkv_hooks half = test_hooks(&memory);
    half.free = NULL;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_workspace_create(-1, PKV_ISA_BEST, NULL, &workspace));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_workspace_create(1025, PKV_ISA_BEST, NULL, &workspace));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  pkv_workspace_create(1, (enum pkv_isa)77, NULL, &workspace));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT,
                  pkv_workspace_create(1, (enum pkv_isa)(-1), NULL, &workspace));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_workspace_create(1, PKV_ISA_BEST, &half, &workspace));
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, pkv_workspace_create(1, PKV_ISA_BEST, NULL, NULL));
    CU_ASSERT_PTR_EQUAL(workspace, untouched);
    CU_ASSERT_EQUAL(memory.live, 0);
    pkv_workspace_destroy(NULL);
}

static void workspace_says_what_was_chosen(void)
{
    for (int isa = PKV_ISA_BEST; isa < PKV_NUM_ISAS; isa++) {
        pkv_workspace *workspace = NULL;
        const enum pkv_status status = pkv_workspace_create(3, (enum pkv_isa)isa, NULL, &workspace);
        if (status == PKV_UNSUPPORTED) {
            CU_ASSERT(isa > PKV_ISA_SCALAR);
            CU_ASSERT_PTR_NULL(workspace);
            continue;
        }
        ASSERT_STATUS(PKV_OK, status);
        const enum pkv_isa chosen = pkv_workspace_isa(workspace);
        CU_ASSERT(chosen >= PKV_ISA_SCALAR && (int)chosen < PKV_NUM_ISAS);
        CU_ASSERT(isa == PKV_ISA_BEST || (int)chosen == isa);
        CU_ASSERT_EQUAL(pkv_workspace_num_threads(workspace), 3);
        pkv_workspace_destroy(workspace);
    }
    pkv_workspace *workspace = case_workspace(0);
    CU_ASSERT(pkv_workspace_num_threads(workspace) >= 1);
    pkv_workspace_destroy(workspace);
    CU_ASSERT_EQUAL(pkv_workspace_isa(NULL), PKV_ISA_SCALAR);
    CU_ASSERT_EQUAL(pkv_workspace_num_threads(NULL), 0);
}

static void best_is_the_last_of_the_list_that_is_there(void)
{
    enum pkv_isa last = PKV_ISA_BEST;
#define TAKE_IF_THERE(isa, value, name, machine)                                                   \
    if (test_has_isa(isa)) {                                                                       \
        last = isa;                                                                                \
    }
    PKV_ISA_LIST(TAKE_IF_THERE)
#undef TAKE_IF_THERE
    pkv_workspace *best = NULL;
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(1, PKV_ISA_BEST, NULL, &best));
    CU_ASSERT_EQUAL(pkv_workspace_isa(best), last);
    pkv_workspace_destroy(best);
}

/* An address far from any other one of the call. */
static void *nowhere(int index)
{
    return (void *)(((uintptr_t)index + 1) << 58);
}

/* Refuses anything large, so that a size that wrapped would be seen. */
static void *alloc_small(void *context, size_t bytes, size_t alignment)
{
    size_t *largest = context;
    *largest = bytes > *largest ? bytes : *largest;
    return bytes < (size_t)1 << 20 ? aligned_alloc(alignment, bytes) : NULL;
}

static void free_small(void *context, void *memory, size_t bytes, size_t alignment)
{
    (void)context, (void)bytes, (void)alignment;
    free(memory);
}

/* One query of 2^30 heads reads one KV head of 2^30 channels. The scratch of a thread is some 2^62
 * bytes, that of four threads more than a size_t counts. */
static void scratch_that_a_size_cannot_count_is_no_memory(void)
{
    const int32_t kv_len = 1;
    pkv_workspace *workspace = NULL;
    pkv_plan *plan = NULL;
    size_t largest = 0;
    const struct pkv_hooks hooks = {.context = &largest, .alloc = alloc_small, .free = free_small};
    const struct pkv_gqa_args args = {
        .size = sizeof args,
        .form = PKV_CACHE_DENSE,
        .dtype = PKV_F16,
        .num_heads = 1 << 30,
        .kv_heads = 1,
        .k_width = 1 << 30,
        .v_width = 1,
        .batch = 1,
        .num_tokens = 1,
        .kv_lens = &kv_len,
        .q = nowhere(0),
        .out = nowhere(60),
        .past = {.k = nowhere(61),
                 .v = nowhere(62),
                 .k_dtype = PKV_F16,
                 .v_dtype = PKV_F16,
                 .num_blocks = 1,
                 .kv_heads = 1,
                 .block_size = 1,
                 .k_width = 1 << 30,
                 .v_width = 1},
    };
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(4, test_isa(), &hooks, &workspace));
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    ASSERT_REFUSED(PKV_NO_MEMORY, "scratch of 4 threads", pkv_gqa_plan(workspace, &args, plan));
    CU_ASSERT(largest < (size_t)1 << 20);
    pkv_plan_destroy(plan);
    pkv_workspace_destroy(workspace);
}

/* The row's last chunk of queries ends where an int32_t does. The plan is longer than the memory
 * that there is for it. */
static void row_of_as_many_queries_as_an_int32_counts_ends(void)
{
    const int32_t cu_seqlens[] = {0, INT32_MAX};
    const int32_t kv_len = INT32_MAX;
    pkv_workspace *workspace = NULL;
    pkv_plan *plan = NULL;
    struct test_memory memory = {0};
    const struct pkv_hooks hooks = test_hooks(&memory);
    const struct pkv_gqa_args args = {
        .size = sizeof args,
        .form = PKV_CACHE_DENSE,
        .dtype = PKV_F16,
        .num_heads = 1,
        .kv_heads = 1,
        .k_width = 1,
        .batch = 1,
        .num_tokens = INT32_MAX,
        .cu_seqlens_q = cu_seqlens,
        .kv_lens = &kv_len,
        .q = nowhere(0),
        .out = nowhere(1),
        .past = {.k = nowhere(2),
                 .v = nowhere(3),
                 .k_dtype = PKV_F16,
                 .v_dtype = PKV_F16,
                 .num_blocks = 1,
                 .kv_heads = 1,
                 .block_size = INT32_MAX,
                 .k_width = 1,
                 .v_width = 1},
    };
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(1, test_isa(), &hooks, &workspace));
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    memory.fail_at = 12; /* while it pushes tasks */
    ASSERT_REFUSED(PKV_NO_MEMORY, "plan of 1 rows", pkv_gqa_plan(workspace, &args, plan));
    pkv_plan_destroy(plan);
    pkv_workspace_destroy(workspace);
}

/* A call of three rows, or two of them, by a workspace whose counters of stamps stand so far before
 * their wrap. */
static void call_before_a_wrap(const struct case_spec *spec, bool has_old_stamps, uint32_t left)
{
    struct gqa_case *c = gqa_case_make(spec);
    pkv_workspace *workspace = case_workspace(1);
    if (has_old_stamps) {
        ASSERT_STATUS(PKV_OK, gqa_case_call(c, workspace));
    }
    workspace->id_epoch = workspace->writers_epoch = UINT32_MAX - left;
    for (int call = 0; call < 4; call++) {
        ASSERT_STATUS(PKV_OK, gqa_case_call(c, workspace));
    }
    gqa_case_free(c);
    pkv_workspace_destroy(workspace);
}

/* Behind the wrap an id that was never met has the stamp 0, and those of the first lists 1, 2, ..:
 * both would look like met in the list under check. */
static void stamps_that_wrap_refuse_nothing(void)
{
    static const enum pkv_cache_form forms[] = {PKV_CACHE_PAGED, PKV_CACHE_CONTINUOUS};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct case_spec spec = case_plain(test_seed());
        spec.form = forms[i];
        spec.layout = 3; /* slot_ids are present */
        for (int32_t b = 0; b < 3; b++) {
            case_add_row(&spec, b, 1, 3 + 4 * b);
        }
        for (uint32_t left = 0; left < 12; left++) {
            call_before_a_wrap(&spec, false, left);
            call_before_a_wrap(&spec, true, left);
        }
    }
}

/* A row's queries read 2^31 keys by 2^30 heads: four rows have more work than an int64_t counts,
 * which would make the plan one of countless tasks. */
static void work_that_an_int64_cannot_count_is_divided_like_any_other(void)
{
    enum { ROWS = 8 };
    int32_t kv_lens[ROWS];
    pkv_workspace *workspace = NULL;
    pkv_plan *plan = NULL;
    size_t largest = 0;
    const struct pkv_hooks hooks = {.context = &largest, .alloc = alloc_small, .free = free_small};
    for (int i = 0; i < ROWS; i++) {
        kv_lens[i] = INT32_MAX;
    }
    struct pkv_gqa_args args = {
        .size = sizeof args,
        .form = PKV_CACHE_DENSE,
        .dtype = PKV_F16,
        .num_heads = 1 << 30,
        .kv_heads = 1,
        .k_width = 1,
        .batch = ROWS,
        .num_tokens = ROWS,
        .cu_seqlens_q = (int32_t[]){0, 1, 2, 3, 4, 5, 6, 7, 8},
        .kv_lens = kv_lens,
        .q = nowhere(0),
        .out = nowhere(1),
        .past = {.k = nowhere(2),
                 .v = nowhere(3),
                 .k_dtype = PKV_F16,
                 .v_dtype = PKV_F16,
                 .num_blocks = ROWS,
                 .kv_heads = 1,
                 .block_size = INT32_MAX,
                 .k_width = 1,
                 .v_width = 1},
    };
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(2, test_isa(), &hooks, &workspace));
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    ASSERT_REFUSED(PKV_NO_MEMORY, "scratch of 2 threads", pkv_gqa_plan(workspace, &args, plan));
    pkv_plan_destroy(plan);
    pkv_workspace_destroy(workspace);
}

/* However large its heads are, a call without tokens has nothing to do. */
static void call_without_tokens_needs_no_scratch(void)
{
    const int32_t none[] = {0, 0};
    pkv_workspace *workspace = NULL;
    pkv_plan *plan = NULL;
    size_t largest = 0;
    const struct pkv_hooks hooks = {.context = &largest, .alloc = alloc_small, .free = free_small};
    const struct pkv_gqa_args args = {
        .size = sizeof args,
        .form = PKV_CACHE_DENSE,
        .dtype = PKV_F16,
        .num_heads = 1718091712,
        .kv_heads = 1,
        .k_width = 1342095264,
        .v_width = 16,
        .batch = 1,
        .cu_seqlens_q = none,
        .kv_lens = none,
        .past = {.k = nowhere(1),
                 .v = nowhere(2),
                 .k_dtype = PKV_F16,
                 .v_dtype = PKV_F16,
                 .num_blocks = 1,
                 .kv_heads = 1,
                 .block_size = 1,
                 .k_width = 1342095264,
                 .v_width = 16},
    };
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(2, test_isa(), &hooks, &workspace));
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &args, plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_run(workspace, &args, plan));
    CU_ASSERT(largest < (size_t)1 << 20);
    pkv_plan_destroy(plan);
    pkv_workspace_destroy(workspace);
    struct case_spec spec = case_plain(test_seed());
    case_add_row(&spec, 0, 1, 600);
    workspace = case_workspace(2);
    gqa_case_free(gqa_case_run(&spec, workspace));
    pkv_workspace_destroy(workspace);
}

static const struct test_case cases[] = {
    TEST(workspace_refuses_what_it_cannot_be),
    TEST(workspace_says_what_was_chosen),
    TEST(best_is_the_last_of_the_list_that_is_there),
    TEST(scratch_that_a_size_cannot_count_is_no_memory),
    TEST(work_that_an_int64_cannot_count_is_divided_like_any_other),
    TEST(call_without_tokens_needs_no_scratch),
    TEST(row_of_as_many_queries_as_an_int32_counts_ends),
    TEST(stamps_that_wrap_refuse_nothing),
    TEST_END,
};
const struct test_suite suite_workspace = {"workspace", cases};
