/* SPDX-License-Identifier: MIT
 *
 * The default number of threads: what control groups leave a process, by files as the system writes
 * them, and what affinity leaves it. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "attn/processors.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/gqa_case.h"

enum { PATH_BYTES = 256 };

/* A folder with a list of control groups ("list") and their files. */
struct groups {
    char folder[PATH_BYTES];
    char list[PATH_BYTES + 8];
};

static void write_file(const struct groups *g, const char *name, const char *text)
{
    char path[2 * PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", g->folder, name);
    for (char *at = path + strlen(g->folder) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(path, 0700);
        *at = '/';
    }
    FILE *file = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fputs(text, file);
    fclose(file);
}

static struct groups make_groups(const char *list)
{
    struct groups g;
    snprintf(g.folder, sizeof g.folder, "%s/pagedkv-groups-%d", P_tmpdir, (int)getpid());
    CU_ASSERT_EQUAL_FATAL(mkdir(g.folder, 0700), 0);
    snprintf(g.list, sizeof g.list, "%s/list", g.folder);
    write_file(&g, "list", list);
    return g;
}

static void remove_groups(const struct groups *g)
{
    char command[2 * PATH_BYTES];
    snprintf(command, sizeof command, "rm -rf '%s'", g->folder);
    CU_ASSERT_EQUAL(system(command), 0);
}

static int quota(const struct groups *g)
{
    return processors_of_quota(g->list, g->folder);
}

/* A quota holds for the groups below: the least on the way to the root counts, in whole
 * processors. */
static void quota_of_version_2_is_the_least_on_the_way_up(void)
{
    const struct groups g = make_groups("0::/a/b\n");
    CU_ASSERT_EQUAL(quota(&g), INT_MAX);
    write_file(&g, "a/b/cpu.max", "max 100000\n");
    CU_ASSERT_EQUAL(quota(&g), INT_MAX);
    write_file(&g, "a/b/cpu.max", "450000 100000\n");
    CU_ASSERT_EQUAL(quota(&g), 4);
    write_file(&g, "a/cpu.max", "250000 100000\n");
    CU_ASSERT_EQUAL(quota(&g), 2);
    write_file(&g, "cpu.max", "50000 100000\n");
    CU_ASSERT_EQUAL(quota(&g), 1);
    remove_groups(&g);
}

static void quota_of_version_1_is_read_where_cpu_is_controlled(void)
{
    const struct groups g =
        make_groups("12:cpuset:/x\n4:cpu,cpuacct:/a/b\n3:cpuacct:/y\n1:name=systemd:/z\n");
    write_file(&g, "cpu/x/cpu.cfs_quota_us", "100000\n");
    write_file(&g, "cpu/x/cpu.cfs_period_us", "100000\n");
    CU_ASSERT_EQUAL(quota(&g), INT_MAX);
    write_file(&g, "cpu/a/b/cpu.cfs_quota_us", "-1\n");
    write_file(&g, "cpu/a/b/cpu.cfs_period_us", "100000\n");
    CU_ASSERT_EQUAL(quota(&g), INT_MAX);
    write_file(&g, "cpu/a/cpu.cfs_quota_us", "300000\n");
    write_file(&g, "cpu/a/cpu.cfs_period_us", "100000\n");
    CU_ASSERT_EQUAL(quota(&g), 3);
    remove_groups(&g);
}

/* A container sees its own group at the root, under whatever path of the host the list names. */
static void files_that_are_missing_or_odd_set_no_quota(void)
{
    const struct groups g = make_groups("0::/../../host/path\nnonsense\n\n0:\n");
    CU_ASSERT_EQUAL(quota(&g), INT_MAX);
    write_file(&g, "cpu.max", "three 100000\n");
    CU_ASSERT_EQUAL(quota(&g), INT_MAX);
    write_file(&g, "cpu.max", "200000 0\n");
    CU_ASSERT_EQUAL(quota(&g), INT_MAX);
    write_file(&g, "cpu.max", "200000 100000\n");
    CU_ASSERT_EQUAL(quota(&g), 2);
    CU_ASSERT_EQUAL(processors_of_quota("nowhere/list", g.folder), 2);
    CU_ASSERT_EQUAL(processors_of_quota("nowhere/list", "nowhere"), INT_MAX);
    remove_groups(&g);
}

/* In a child, which may run on one processor alone: 0 when a workspace by default has one thread.
 */
static int default_on_one_processor(void)
{
    cpu_set_t set, one;
    size_t first = 0;
    pkv_workspace *workspace = NULL;
    CPU_ZERO(&set);
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return 1;
    }
    while (!CPU_ISSET(first, &set)) {
        first++;
    }
    CPU_SET(first, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0 ||
        pkv_workspace_create(0, test_isa(), NULL, &workspace) != PKV_OK) {
        return 2;
    }
    return pkv_workspace_num_threads(workspace) == 1 ? 0 : 3;
}

static void default_number_of_threads_respects_affinity(void)
{
    const pid_t child = fork();
    if (child == 0) {
        _exit(default_on_one_processor());
    }
    int status = -1;
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CU_ASSERT(processors_for_team() >= 1 && processors_for_team() <= 1024);
}

static const struct test_case cases[] = {
    TEST(quota_of_version_2_is_the_least_on_the_way_up),
    TEST(quota_of_version_1_is_read_where_cpu_is_controlled),
    TEST(files_that_are_missing_or_odd_set_no_quota),
    TEST(default_number_of_threads_respects_affinity),
    TEST_END,
};
const struct test_suite suite_processors = {"processors", cases};
