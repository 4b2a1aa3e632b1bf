/* SPDX-License-Identifier: MIT
 *
 * saved_file.h: a file of the system as the source and the sink of a saved sequence. What is
 * written goes to a file of another name in the same directory, which takes the place of `path`
 * when it is complete and on the disk: who opens `path` finds the file before or all of the
 * new one. */
#ifndef PKV_PAGES_SAVED_FILE_H
#define PKV_PAGES_SAVED_FILE_H

#include "base/hooks.h"
#include "pages/saved_reader.h"
#include "pages/saved_writer.h"

struct saved_file {
    const char *path;
    const struct pkv_hooks *hooks;
    char *temporary; /* its name while it is written, or NULL */
    size_t temporary_bytes;
    int descriptor;
    int error;     /* errno of the first call that failed; 0 = none */
    bool is_short; /* it ended before its length at open */
};

/* PKV_IO. Close it in either case. */
enum pkv_status saved_file_open(struct saved_file *file, const char *path,
                                struct saved_source *source);

/* PKV_IO, PKV_NO_MEMORY. Close it in either case; without saved_file_commit that removes what was
 * written. */
enum pkv_status saved_file_create(struct saved_file *file, const char *path,
                                  const struct pkv_hooks *hooks, struct saved_sink *sink);

/* All is written: it goes to the disk, and to `path`. PKV_IO. */
enum pkv_status saved_file_commit(struct saved_file *file);
void saved_file_close(struct saved_file *file);

/* The status of a call that used the file as source or sink: if the file was why it failed, the
 * last error names the file and says what the system said. */
enum pkv_status saved_file_explain(const struct saved_file *file, enum pkv_status status);

#endif
