/* SPDX-License-Identifier: MIT
 *
 * The memory that tasks work in: scratch, each piece of which ends at a page that cannot be
 * touched, and stacks of 64 KiB. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/gqa_case.h"

/* ---- memory that ends at a guard ------------------------------------------------------------ */

static size_t guarded_bytes(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* Whole cache lines are requested, so that the end of a page suits them. */
static void *guarded_alloc(void *context, size_t bytes, size_t alignment)
{
    (void)context, (void)alignment;
    const size_t inner = guarded_bytes(bytes);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *map =
        mmap(NULL, inner + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + inner, page, PROT_NONE) != 0) {
        return NULL;
    }
    return map + inner - bytes;
}

static void guarded_free(void *context, void *memory, size_t bytes, size_t alignment)
{
    (void)context, (void)alignment;
    const size_t inner = guarded_bytes(bytes);
    munmap((char *)memory + bytes - inner, inner + (size_t)sysconf(_SC_PAGESIZE));
}

static pkv_workspace *guarded_workspace(int num_threads)
{
    const struct pkv_hooks hooks = {.alloc = guarded_alloc, .free = guarded_free};
    pkv_workspace *workspace = NULL;
    ASSERT_STATUS(PKV_OK, pkv_workspace_create(num_threads, test_isa(), &hooks, &workspace));
    test_eager_threads(workspace);
    return workspace;
}

/* All tasks of a layer from this thread, in the scratch of every worker in turn. */
static void run_tasks(pkv_workspace *workspace)
{
    const int num_workers = pkv_workspace_num_threads(workspace);
    for (int p = PKV_PHASE_APPEND; p < PKV_NUM_PHASES; p++) {
        const enum pkv_phase phase = (enum pkv_phase)p;
        for (int32_t i = 0; i < pkv_gqa_num_tasks(workspace, phase); i++) {
            ASSERT_STATUS(PKV_OK, pkv_gqa_run_task(workspace, phase, i, i % num_workers));
        }
    }
}

/* The case, planned and run on a workspace whose first call this is or is not. */
static struct gqa_case *run_case(const struct case_spec *spec, pkv_workspace *workspace)
{
    struct gqa_case *c = gqa_case_make(spec);
    pkv_plan *plan = NULL;
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &c->args, plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_start(workspace, &c->args, plan));
    run_tasks(workspace);
    pkv_plan_destroy(plan);
    return c;
}

static struct case_spec decode_spec(int window, int keys, int group)
{
    struct case_spec spec = case_plain(test_seed());
    spec.dtype = spec.k_dtype = spec.v_dtype = PKV_F16;
    spec.group = group;
    spec.k_width = spec.v_width = 16;
    spec.block_size = 16;
    spec.window = window;
    case_add_row(&spec, 0, 1, keys);
    return spec;
}

/* A decode row, a prompt, the last chunk of one of a single token, and one whose tiles are staged.
 */
static struct case_spec mixed_spec(int group)
{
    struct case_spec spec = decode_spec(0, 4096, group);
    case_add_row(&spec, 1, 37, 40);
    case_add_row(&spec, 2, 1, 513);
    case_add_row(&spec, 3, 40, 140);
    return spec;
}

/* One decode call as the first of its workspace, on 1 thread and on T; then another one. */
static void check_first_call(const struct case_spec *decode, const struct case_spec *next,
                             int num_threads)
{
    pkv_workspace *one = guarded_workspace(1);
    pkv_workspace *many = guarded_workspace(num_threads);
    const struct case_spec *const specs[] = {decode, next};
    for (int i = 0; i < 2; i++) {
        struct gqa_case *expected = run_case(specs[i], one);
        struct gqa_case *c = run_case(specs[i], many);
        CU_ASSERT(gqa_case_same_rows(expected, c));
        gqa_case_free(expected);
        gqa_case_free(c);
    }
    pkv_workspace_destroy(one);
    pkv_workspace_destroy(many);
}

/* K8: scratch is as large as every worker of every call needs, whichever call comes first: all
 * numbers of threads from 1 to 64, windows, lengths and groups around the sizes of tiles and spans,
 * every worker's scratch used from one thread. */
static void scratch_suffices_for_any_first_call_and_number_of_threads(void)
{
    static const int windows[] = {0, 1, 63, 64, 65, 511, 512, 513};
    static const int lengths[] = {1, 64, 65, 512, 513, 2047, 4096};
    static const int groups[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16};
    for (int t = 1; t <= 64; t++) {
        for (int i = 0; i < 2; i++) {
            const int n = 9 * t + i;
            const struct case_spec decode =
                decode_spec(windows[n % 8], lengths[n % 7], groups[n % 10]);
            const struct case_spec next =
                n % 8 == 0 ? mixed_spec(2 << t % 4) : decode_spec(0, 600, groups[n % 10]);
            check_first_call(&decode, &next, t);
        }
    }
}

/* K8: two plans of one workspace, both made before either runs, in either order: each finds the
 * scratch that it needs. */
static void plans_of_other_shapes_share_a_workspace(void)
{
    struct case_spec specs[2] = {decode_spec(0, 900, 4), decode_spec(64, 900, 4)};
    specs[0].kv_heads = 2;
    specs[0].k_width = specs[0].v_width = 512;
    specs[1].kv_heads = 8;
    specs[1].k_width = specs[1].v_width = 256;
    for (int first = 0; first < 2; first++) {
        pkv_workspace *workspace = guarded_workspace(3);
        struct gqa_case *cases_of[2];
        pkv_plan *plans[2] = {NULL, NULL};
        for (int i = 0; i < 2; i++) {
            cases_of[i] = gqa_case_make(&specs[i]);
            ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plans[i]));
            ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &cases_of[i]->args, plans[i]));
        }
        for (int i = 0; i < 2; i++) {
            const int which = i == 0 ? first : 1 - first;
            ASSERT_STATUS(PKV_OK, pkv_gqa_run(workspace, &cases_of[which]->args, plans[which]));
        }
        for (int i = 0; i < 2; i++) {
            pkv_workspace *alone = guarded_workspace(1);
            struct gqa_case *expected = run_case(&specs[i], alone);
            CU_ASSERT(gqa_case_same_rows(expected, cases_of[i]));
            gqa_case_free(expected);
            pkv_workspace_destroy(alone);
            gqa_case_free(cases_of[i]);
            pkv_plan_destroy(plans[i]);
        }
        pkv_workspace_destroy(workspace);
    }
}

/* ---- stacks --------------------------------------------------------------------------------- */

enum { STACK_BYTES = 64 << 10, STACK_MARK = 0xa5 };

static void *run_on_stack(void *argument)
{
    run_tasks(argument);
    return NULL;
}

/* Runs all tasks of the started layer on a thread of 64 KiB that ends at a guard, its thread-local
 * variables included. Returns the bytes that were used. */
static size_t run_on_small_stack(pkv_workspace *workspace)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *map =
        mmap(NULL, page + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;
    pthread_t thread;
    CU_ASSERT_FATAL(map != MAP_FAILED && mprotect(map, page, PROT_NONE) == 0);
    unsigned char *stack = map + page;
    memset(stack, STACK_MARK, STACK_BYTES);
    pthread_attr_init(&attributes);
    CU_ASSERT_EQUAL_FATAL(pthread_attr_setstack(&attributes, stack, STACK_BYTES), 0);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, &attributes, run_on_stack, workspace), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    size_t unused = 0;
    while (unused < STACK_BYTES && stack[unused] == STACK_MARK) {
        unused++;
    }
    munmap(map, page + STACK_BYTES);
    return STACK_BYTES - unused;
}

/* Plans and starts the case, runs its tasks on a small stack, and compares with an ordinary run. */
static size_t check_small_stack(const struct case_spec *spec)
{
    pkv_workspace *one = case_workspace(1);
    pkv_workspace *workspace = case_workspace(2);
    pkv_plan *plan = NULL;
    struct gqa_case *expected = gqa_case_run(spec, one);
    struct gqa_case *c = gqa_case_make(spec);
    ASSERT_STATUS(PKV_OK, pkv_plan_create(workspace, &plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_plan(workspace, &c->args, plan));
    ASSERT_STATUS(PKV_OK, pkv_gqa_start(workspace, &c->args, plan));
    const size_t used = run_on_small_stack(workspace);
    CU_ASSERT(gqa_case_same_rows(expected, c));
    gqa_case_free(expected);
    gqa_case_free(c);
    pkv_plan_destroy(plan);
    pkv_workspace_destroy(workspace);
    pkv_workspace_destroy(one);
    return used;
}

/* K8: a task runs on a stack of 64 KiB whatever the lengths, widths, dtypes and options are, and
 * leaves a quarter of it to spare. */
static void tasks_run_on_stacks_of_64_kib(void)
{
    static const int lengths[] = {8191, 8192, 8193, 9400, 14700};
    size_t used = 0;
    if (test_is_sanitised("larger stacks")) {
        return;
    }
    for (int i = 0; i < 5; i++) {
        struct case_spec spec = decode_spec(0, lengths[i], i % 4 == 0 ? 128 : 16);
        spec.k_width = 576;
        spec.v_width = i % 2 == 0 ? 512 : 576;
        spec.v_in_k = i % 2 == 0;
        spec.dtype = (enum pkv_dtype)(i % 3);
        spec.k_dtype = spec.v_dtype = (enum pkv_dtype)(i < 3 ? i : i % 2 + PKV_INT8);
        spec.options = i % 2 != 0 ? CASE_ROPE | CASE_NORM | CASE_SINK | CASE_SOFTCAP : 0;
        spec.options |= i % 4 == 3 ? CASE_MASK : 0;
        spec.q_lens[0] = i % 3 == 2 ? 9 : 1;
        const size_t bytes = check_small_stack(&spec);
        used = bytes > used ? bytes : used;
    }
    printf("stack of a task: %zu bytes; ", used);
    CU_ASSERT(used <= STACK_BYTES / 4 * 3);
}

/* K9: a long decode row, a prefill chunk and the last token of a prompt in one call have the bits
 * that each has alone. */
static void long_decode_beside_prefill_has_the_bits_of_each_alone(void)
{
    static const int32_t q_lens[] = {1, 512, 1}, kv_lens[] = {65536, 512, 513};
    for (int threads = 1; threads <= 2; threads++) {
        pkv_workspace *workspace = case_workspace(threads);
        struct case_spec all = case_plain(test_seed());
        all.dtype = all.k_dtype = all.v_dtype = PKV_F16;
        all.group = 4;
        all.block_size = 16;
        struct case_spec alone = all;
        for (int b = 0; b < 3; b++) {
            case_add_row(&all, b, q_lens[b], kv_lens[b]);
        }
        struct gqa_case *together = gqa_case_run(&all, workspace);
        for (int b = 0; b < 3; b++) {
            struct case_spec one = alone;
            case_add_row(&one, b, q_lens[b], kv_lens[b]);
            struct gqa_case *c = gqa_case_run(&one, workspace);
            for (int32_t i = 0; i < q_lens[b]; i++) {
                CU_ASSERT(gqa_case_same_row(together, b, i, c, 0, i));
            }
            gqa_case_free(c);
        }
        gqa_case_free(together);
        pkv_workspace_destroy(workspace);
    }
}

static const struct test_case cases[] = {
    TEST(scratch_suffices_for_any_first_call_and_number_of_threads),
    TEST(plans_of_other_shapes_share_a_workspace),
    TEST(tasks_run_on_stacks_of_64_kib),
    TEST(long_decode_beside_prefill_has_the_bits_of_each_alone),
    TEST_END,
};
const struct test_suite suite_gqa_scratch = {"gqa_scratch", cases};
