/* SPDX-License-Identifier: MIT
 *
 * processors.c: affinity from the scheduler, quotas from the files of control groups. A quota holds
 * for a group and all below it, so each group on the way to the root is asked:
 *
 *   version 2   line "0::/a/b" of the list;   <root>/a/b/cpu.max        "150000 100000", "max .."
 *   version 1   line "4:cpu,cpuacct:/a/b";    <root>/cpu/a/b/cpu.cfs_quota_us   "150000", "-1"
 *                                             <root>/cpu/a/b/cpu.cfs_period_us  "100000"
 *
 * In a container the list may name a path of the host that is not mounted; the root is asked all
 * the same. A thread more than the quota has processors would only be stopped for the rest of each
 * period, with the others waiting for it: fractions do not count. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "attn/processors.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "attn/openmp.h"
#include "attn/team.h"
#include "base/minmax.h"

#define MAX_PATH 1024

/* Up to two numbers of a small file; how many it has. "max" is none. */
static int read_numbers(const char *folder, const char *name, long long *a, long long *b)
{
    char path[2 * MAX_PATH];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    const int count = fscanf(file, "%lld %lld", a, b);
    fclose(file);
    return count > 0 ? count : 0;
}

static int whole_processors(long long quota, long long period)
{
    if (quota <= 0 || period <= 0) {
        return INT_MAX;
    }
    const long long whole = quota / period;
    return whole < 1 ? 1 : whole > INT_MAX ? INT_MAX : (int)whole;
}

static int quota_of_folder(const char *folder)
{
    long long quota = -1, period = -1, rest = 0;
    if (read_numbers(folder, "cpu.max", &quota, &period) == 2) {
        return whole_processors(quota, period);
    }
    if (read_numbers(folder, "cpu.cfs_quota_us", &quota, &rest) > 0 &&
        read_numbers(folder, "cpu.cfs_period_us", &period, &rest) > 0) {
        return whole_processors(quota, period);
    }
    return INT_MAX;
}

/* The least quota of folder <root><path> and those above it, up to root. */
static int quota_of_path(const char *root, const char *path)
{
    char folder[2 * MAX_PATH];
    const size_t root_length = strlen(root);
    int least = INT_MAX;
    if ((size_t)snprintf(folder, sizeof folder, "%s%s", root, path) >= sizeof folder) {
        return INT_MAX;
    }
    for (;;) {
        least = min_i32(least, quota_of_folder(folder));
        char *slash = strrchr(folder + root_length, '/');
        if (slash == NULL) {
            return least;
        }
        *slash = '\0';
    }
}

/* True when the comma-separated list of controllers has "cpu". */
static bool has_cpu(const char *controllers, size_t length)
{
    for (size_t at = 0; at < length;) {
        const size_t end = at + strcspn(controllers + at, ",:");
        if (end - at == 3 && memcmp(controllers + at, "cpu", 3) == 0) {
            return true;
        }
        at = end + 1;
    }
    return false;
}

/* One line "number:controllers:path" of the list. */
static int quota_of_line(const char *root, char *line)
{
    char v1_root[MAX_PATH];
    line[strcspn(line, "\n")] = '\0';
    const char *controllers = strchr(line, ':');
    const char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (path == NULL) {
        return INT_MAX;
    }
    controllers++;
    const size_t length = (size_t)(path - controllers);
    if (length == 0) {
        return quota_of_path(root, path + 1);
    }
    snprintf(v1_root, sizeof v1_root, "%s/cpu", root);
    return has_cpu(controllers, length) ? quota_of_path(v1_root, path + 1) : INT_MAX;
}

int processors_of_quota(const char *groups, const char *root)
{
    char line[MAX_PATH];
    int least = INT_MAX;
    FILE *file = fopen(groups, "re");
    if (file == NULL) {
        return quota_of_folder(root);
    }
    while (fgets(line, sizeof line, file) != NULL) {
        least = min_i32(least, quota_of_line(root, line));
    }
    fclose(file);
    return least;
}

/* Of the calling thread; where the mask is larger than the set, all count. */
static int processors_of_affinity(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : MAX_THREADS;
}

int processors_for_team(void)
{
    int count = min_i32(processors_of_affinity(),
                        processors_of_quota("/proc/self/cgroup", "/sys/fs/cgroup"));
    const int openmp = openmp_max_threads();
    if (openmp > 0) {
        count = min_i32(count, openmp);
    }
    return max_i32(1, min_i32(count, MAX_THREADS));
}
