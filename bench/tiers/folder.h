/* SPDX-License-Identifier: MIT
 *
 * folder.h: a folder for the benchmark's files, in TMPDIR or /tmp, which is removed with all that
 * is in it. */
#ifndef BENCH_FOLDER_H
#define BENCH_FOLDER_H

enum { FOLDER_BYTES = 256 };

/* Makes one; path has FOLDER_BYTES. */
void folder_make(char *path);
void folder_make_at(const char *path);
void folder_remove(const char *path);

/* Writes all files in it to the disk, and asks the system to keep nothing of them in memory. A host
 * of virtual machines may keep it nevertheless. */
void folder_cool(const char *path);

#endif
