/* SPDX-License-Identifier: MIT
 *
 * What the process around a call may do to it: fork, and a number of OpenMP threads other than the
 * one that was requested. Bits stay. */
#include <signal.h>
#include <string.h>
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

/* H5: a child of fork() gets the same bits. The threads that gcc's OpenMP had before the fork do
 * not exist in it. */
static void a_forked_child_gets_the_same_bits_and_does_not_hang(void)
{
    const struct case_spec spec = spec_of();
    pkv_workspace *workspace = case_workspace(3);
    struct gqa_case *expected = gqa_case_run(&spec, workspace); /* the team exists now */
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(run_in_child(expected, workspace));
    }
    int status = -1;
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
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
    TEST(any_number_of_threads_gives_the_same_bits),
    TEST_END,
};
const struct test_suite suite_gqa_process = {"gqa_process", cases};
