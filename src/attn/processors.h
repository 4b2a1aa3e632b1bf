/* SPDX-License-Identifier: MIT
 *
 * processors.h: how many threads this process can run at once, by what the system says. */
#ifndef PKV_ATTN_PROCESSORS_H
#define PKV_ATTN_PROCESSORS_H

/* The least of: processors that the calling thread may run on, whole processors of the quotas of
 * its control groups, OpenMP's default where the process has OpenMP, and MAX_THREADS. At least 1.
 */
int processors_for_team(void);

/* Whole processors that the quotas of a process's control groups leave it, at least 1; INT_MAX
 * without a quota. groups is the process's list of control groups (/proc/self/cgroup), root where
 * their file systems are mounted (/sys/fs/cgroup). Files that cannot be read set no quota. */
int processors_of_quota(const char *groups, const char *root);

#endif
