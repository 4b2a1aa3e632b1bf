/* SPDX-License-Identifier: MIT
 *
 * What the process around a call may do to it: fork, refuse threads, and have another number of
 * them than was requested. Bits stay. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/gqa_case.h"

static struct case_spec spec_of(void)
{
    struct case_spec spec = case_plain(test_seed());
    spec.kv_heads = 2;
    spec.group = 2;
    spec.k_width = spec.v_width = 64;
    case_add_row(&spec, 0, 1, 3000);
    case_add_row(&spec, 1, 40, 200);
    return spec;
}

/* In the child: 0 when its run on the parent's workspace leaves the parent's bits. */
static int run_in_child(const struct gqa_case *expected, pkv_workspace *workspace)
{
    const struct case_spec spec = spec_of();
    struct gqa_case *c = gqa_case_make(&spec);
    return gqa_case_call(c, workspace) == PKV_OK && gqa_case_same_rows(expected, c) ? 0 : 1;
}

/* Runs a function in a forked child, which must end with 0 within a minute. */
static void run_child(int (*function)(const struct gqa_case *, pkv_workspace *),
                      const struct gqa_case *expected, pkv_workspace *workspace)
{
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(function(expected, workspace));
    }
    int status = -1;
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* H5: a child of fork() gets the same bits. The threads that the parent's workspace had before the
 * fork do not exist in it. */
static void a_forked_child_gets_the_same_bits_and_does_not_hang(void)
{
    const struct case_spec spec = spec_of();
    pkv_workspace *workspace = case_workspace(3);
    struct gqa_case *expected = gqa_case_run(&spec, workspace); /* the threads exist now */
    run_child(run_in_child, expected, workspace);
    gqa_case_free(expected);
    pkv_workspace_destroy(workspace);
}

/* In the child: workspaces of its own work, whatever threads the parent's had. */
static int run_new_in_child(const struct gqa_case *expected, pkv_workspace *workspace)
{
    int result = 0;
    for (int threads = 0; threads <= 4; threads += 4) {
        pkv_workspace *own = NULL;
        if (pkv_workspace_create(threads, test_isa(), NULL, &own) != PKV_OK) {
            return 2;
        }
        test_eager_threads(own);
        result |= run_in_child(expected, own);
        pkv_workspace_destroy(own);
    }
    pkv_workspace_destroy(workspace);
    return result;
}

/* H5: a child of fork() creates workspaces, with the default number of threads too, and destroys
 * those of its parent. */
static void a_forked_child_makes_workspaces_of_its_own(void)
{
    const struct case_spec spec = spec_of();
    if (test_is_sanitised("threads from before the fork alone")) {
        return;
    }
    pkv_workspace *workspace = case_workspace(4);
    struct gqa_case *expected = gqa_case_run(&spec, workspace);
    run_child(run_new_in_child, expected, workspace);
    struct gqa_case *again = gqa_case_run(&spec, workspace); /* the parent's still work */
    CU_ASSERT(gqa_case_same_rows(expected, again));
    gqa_case_free(again);
    gqa_case_free(expected);
    pkv_workspace_destroy(workspace);
}

static void *sleep_for_ever(void *argument)
{
    pause();
    return argument;
}

/* Takes all threads that there are to be had when the process may map no more memory: those on
 * stacks of threads that have ended, of all sizes. */
static void exhaust_threads(void)
{
    const struct rlimit nothing_more = {1 << 20, 1 << 20};
    pthread_attr_t attributes;
    pthread_t thread;
    setrlimit(RLIMIT_AS, &nothing_more);
    pthread_attr_init(&attributes);
    for (size_t stack = (size_t)64 << 10; stack <= (size_t)16 << 20; stack *= 2) {
        pthread_attr_setstacksize(&attributes, stack);
        while (pthread_create(&thread, &attributes, sleep_for_ever, NULL) == 0) {
        }
    }
}

/* Planned while there is memory, run when there is no thread. 0 when it went well. */
static int run_without_threads(const struct gqa_case *expected)
{
    const struct case_spec spec = spec_of();
    struct test_memory memory = {0};
    const struct pkv_hooks hooks = test_hooks(&memory);
    struct gqa_case *c = gqa_case_make(&spec);
    pkv_workspace *workspace = NULL;
    pkv_plan *plan = NULL;
    if (pkv_workspace_create(4, test_isa(), &hooks, &workspace) != PKV_OK) {
        return 2;
    }
    test_eager_threads(workspace);
    if (pkv_plan_create(workspace, &plan) != PKV_OK ||
        pkv_gqa_plan(workspace, &c->args, plan) != PKV_OK) {
        return 2;
    }
    exhaust_threads();
    for (int run = 0; run < 2; run++) {
        if (pkv_gqa_run(workspace, &c->args, plan) != PKV_OK) {
            return 3;
        }
    }
    const int num_told = strstr(pkv_build_info(), "no openmp") == NULL; /* who has regions, tries */
    return gqa_case_same_rows(expected, c) && memory.num_logged == num_told ? 0 : 4;
}

static void *exit_without_threads(void *expected)
{
    _exit(run_without_threads(expected));
}

/* In the child: on a thread that has had no region yet, as its parent has. */
static int run_new_thread(const struct gqa_case *expected, pkv_workspace *workspace)
{
    pthread_t thread;
    (void)workspace;
    if (pthread_create(&thread, NULL, exit_without_threads, (void *)(uintptr_t)expected) == 0) {
        pthread_join(thread, NULL);
    }
    return 5;
}

/* H5: where the system has no more threads, attention runs on the caller's alone, and the log is
 * told once. */
static void without_threads_to_be_had_the_caller_does_the_work(void)
{
    const struct case_spec spec = spec_of();
    if (test_is_sanitised("more memory")) {
        return;
    }
    pkv_workspace *workspace = case_workspace(1);
    struct gqa_case *expected = gqa_case_run(&spec, workspace);
    run_child(run_new_thread, expected, NULL);
    gqa_case_free(expected);
    pkv_workspace_destroy(workspace);
}

/* H5: also with more threads than cores, and with more than there is work for. */
static void any_number_of_threads_gives_the_same_bits(void)
{
    static const int threads[] = {1, 2, 3, 8, 64};
    const struct case_spec spec = spec_of();
    struct gqa_case *first = NULL;
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        pkv_workspace *workspace = case_workspace(threads[i]);
        struct gqa_case *c = gqa_case_run(&spec, workspace);
        if (first == NULL) {
            first = c;
        } else {
            CU_ASSERT(gqa_case_same_rows(first, c));
            gqa_case_free(c);
        }
        pkv_workspace_destroy(workspace);
    }
    gqa_case_free(first);
}

static const struct test_case cases[] = {
    TEST(a_forked_child_gets_the_same_bits_and_does_not_hang),
    TEST(a_forked_child_makes_workspaces_of_its_own),
    TEST(without_threads_to_be_had_the_caller_does_the_work),
    TEST(any_number_of_threads_gives_the_same_bits),
    TEST_END,
};
const struct test_suite suite_gqa_process = {"gqa_process", cases};
