/* SPDX-License-Identifier: MIT */
#include "mapped_file.h"

#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool map(const char *path, int descriptor, struct mapped_file *file)
{
    struct stat info;
    if (fstat(descriptor, &info) != 0) {
        return complain("%s: %s", path, strerror(errno));
    }
    if (!S_ISREG(info.st_mode) || info.st_size <= 0) {
        return complain("%s: is no file, or empty", path);
    }
    const size_t num_bytes = (size_t)info.st_size;
    void *bytes = mmap(NULL, num_bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    if (bytes == MAP_FAILED) {
        return complain("%s: %s", path, strerror(errno));
    }
    /* Advice: weights are read in order at first. Without it the first pass is slower. */
    posix_madvise(bytes, num_bytes, POSIX_MADV_WILLNEED);
    *file = (struct mapped_file){bytes, num_bytes};
    return true;
}

bool mapped_file_open(const char *path, struct mapped_file *file)
{
    *file = (struct mapped_file){NULL, 0};
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        return complain("%s: %s", path, strerror(errno));
    }
    const bool ok = map(path, descriptor, file);
    close(descriptor);
    return ok;
}

void mapped_file_close(struct mapped_file *file)
{
    if (file->bytes != NULL) {
        munmap((void *)(size_t)file->bytes, file->num_bytes);
    }
    *file = (struct mapped_file){NULL, 0};
}
