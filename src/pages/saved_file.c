/* SPDX-License-Identifier: MIT
 *
 * A file that is replaced is never opened for writing, so a full disk or a crash leaves it as it
 * was. Its directory is opened before the rename: what can fail without an effect comes first. */
#include "pages/saved_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

/* Names that are tried: more savers of one process to one path at once than this are refused. */
#define MAX_TEMPORARIES 1000

/* What is appended to the path: ".", a process id, ".", a number, ".tmp" and a NUL. */
#define SUFFIX_BYTES 40

static enum pkv_status refuse_io(const struct saved_file *file, const char *what, int error)
{
    char words[128];
    if (strerror_r(error, words, sizeof words) != 0) {
        snprintf(words, sizeof words, "error %d", error);
    }
    return refuse(PKV_IO, "%s: %s: %s", file->path, what, words);
}

enum pkv_status saved_file_explain(const struct saved_file *file, enum pkv_status status)
{
    if (status == PKV_IO && file->error != 0) {
        return refuse_io(file, file->temporary != NULL ? "write" : "read", file->error);
    }
    if (status == PKV_IO && file->is_short) {
        return refuse(PKV_CORRUPT, "%s: became shorter while it was read", file->path);
    }
    return status;
}

static bool read_at(void *context, uint64_t offset, void *bytes, size_t n)
{
    struct saved_file *file = context;
    unsigned char *to = bytes;
    while (n > 0) {
        const ssize_t count = pread(file->descriptor, to, n, (off_t)offset);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            file->error = count < 0 ? errno : 0;
            file->is_short = count == 0;
            return false;
        }
        to += count;
        offset += (uint64_t)count;
        n -= (size_t)count;
    }
    return true;
}

enum pkv_status saved_file_open(struct saved_file *file, const char *path,
                                struct saved_source *source)
{
    struct stat found;
    *file = (struct saved_file){.path = path};
    file->descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->descriptor < 0) {
        return refuse_io(file, "open", errno);
    }
    if (fstat(file->descriptor, &found) != 0) {
        return refuse_io(file, "fstat", errno);
    }
    if (!S_ISREG(found.st_mode)) {
        return refuse(PKV_IO, "%s: is not a regular file", path);
    }
    *source = (struct saved_source){
        .context = file, .read_at = read_at, .num_bytes = (uint64_t)found.st_size};
    return PKV_OK;
}

static bool write_all(void *context, const void *bytes, size_t n)
{
    struct saved_file *file = context;
    const unsigned char *from = bytes;
    while (n > 0) {
        const ssize_t count = write(file->descriptor, from, n);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            file->error = count < 0 ? errno : ENOSPC;
            return false;
        }
        from += count;
        n -= (size_t)count;
    }
    return true;
}

/* Opens a file that nobody else has, beside the path. */
static enum pkv_status open_temporary(struct saved_file *file)
{
    for (int i = 0; file->descriptor < 0 && i < MAX_TEMPORARIES; i++) {
        snprintf(file->temporary, file->temporary_bytes, "%s.%ld.%d.tmp", file->path,
                 (long)getpid(), i);
        file->descriptor =
            open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
        if (file->descriptor < 0 && errno != EEXIST) {
            break;
        }
    }
    return file->descriptor >= 0 ? PKV_OK : refuse_io(file, "open", errno);
}

enum pkv_status saved_file_create(struct saved_file *file, const char *path,
                                  const struct pkv_hooks *hooks, struct saved_sink *sink)
{
    *file = (struct saved_file){.path = path, .hooks = hooks, .descriptor = -1};
    file->temporary_bytes = strlen(path) + SUFFIX_BYTES;
    file->temporary = hooks_alloc_array(hooks, 1, file->temporary_bytes);
    if (file->temporary == NULL) {
        return refuse(PKV_NO_MEMORY, "no memory for the name of a file");
    }
    *sink = (struct saved_sink){.context = file, .write = write_all};
    return open_temporary(file);
}

/* The directory of the path, which `temporary` is cut to for a moment; < 0: errno says why. */
static int open_directory(const struct saved_file *file)
{
    char *slash = strrchr(file->temporary, '/');
    if (slash == NULL) {
        return open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    char *end = slash == file->temporary ? slash + 1 : slash;
    const char kept = *end;
    *end = '\0';
    const int directory = open(file->temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *end = kept;
    return directory;
}

/* The file is not the temporary one any more. */
static void end_temporary(struct saved_file *file)
{
    hooks_free_array(file->hooks, file->temporary, 1, file->temporary_bytes);
    file->temporary = NULL;
}

enum pkv_status saved_file_commit(struct saved_file *file)
{
    enum pkv_status status = PKV_OK;
    if (fsync(file->descriptor) != 0) {
        return refuse_io(file, "fsync", errno);
    }
    const int directory = open_directory(file);
    if (directory < 0) {
        return refuse_io(file, "open its directory", errno);
    }
    if (rename(file->temporary, file->path) != 0) {
        status = refuse_io(file, "rename", errno);
    } else {
        end_temporary(file);
        /* Some file systems have nothing to do for a directory, and say so. */
        if (fsync(directory) != 0 && errno != EINVAL) {
            status = refuse_io(file, "fsync its directory", errno);
        }
    }
    close(directory);
    return status;
}

void saved_file_close(struct saved_file *file)
{
    if (file->descriptor >= 0) {
        close(file->descriptor);
        if (file->temporary != NULL) {
            unlink(file->temporary);
        }
    }
    if (file->temporary != NULL) {
        end_temporary(file);
    }
}
