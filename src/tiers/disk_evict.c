/* SPDX-License-Identifier: MIT */
#include "tiers/disk_evict.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>

/* A value: when it was used last, and what it counts. */
struct use {
    int64_t time_ns;
    uint64_t room;
};

struct walk {
    const struct disk_dir *dir;
    uint64_t used;
    /* what the first walk finds */
    struct use *uses;
    size_t num_uses, max_uses;
    bool failed;
    /* what the second removes: values not used after last_ns, until no more than max_used is left
     */
    int64_t last_ns;
    uint64_t max_used;
};

static int64_t time_of(const struct stat *about)
{
    return (int64_t)about->st_mtim.tv_sec * 1000000000 + about->st_mtim.tv_nsec;
}

static bool is_file(const struct walk *walk, int folder, const char *name, struct stat *about)
{
    return walk->dir->calls->fstatat(folder, name, about, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(about->st_mode);
}

/* A writer holds the lock of its file until that is a value or removed; it makes and locks it
 * under the account's lock, as this is called. */
static bool has_writer(const struct walk *walk, int folder, const char *name)
{
    const int fd =
        walk->dir->calls->openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const bool is_free = fd >= 0 && walk->dir->calls->flock(fd, LOCK_EX | LOCK_NB) == 0;
    disk_dir_close(fd);
    return !is_free;
}

static bool visit_temporary(void *context, int folder, const char *name)
{
    struct walk *walk = context;
    struct stat about;
    if (!is_file(walk, folder, name, &about)) {
        return true;
    }
    if (has_writer(walk, folder, name) || walk->dir->calls->unlinkat(folder, name, 0) != 0) {
        walk->used += disk_dir_room((uint64_t)about.st_size);
    }
    return true;
}

static bool grow(struct walk *walk)
{
    if (walk->num_uses < walk->max_uses) {
        return true;
    }
    const size_t max = walk->max_uses == 0 ? 1024 : walk->max_uses * 2;
    struct use *uses = realloc(walk->uses, max * sizeof *uses);
    if (uses == NULL) {
        return false;
    }
    walk->uses = uses;
    walk->max_uses = max;
    return true;
}

static bool visit_value(void *context, int folder, const char *name)
{
    struct walk *walk = context;
    struct stat about;
    if (is_file(walk, folder, name, &about)) {
        walk->failed = !grow(walk);
        if (!walk->failed) {
            const struct use use = {time_of(&about), disk_dir_room((uint64_t)about.st_size)};
            walk->uses[walk->num_uses++] = use;
            walk->used += use.room;
        }
    }
    return !walk->failed;
}

static bool visit_old(void *context, int folder, const char *name)
{
    struct walk *walk = context;
    struct stat about;
    if (is_file(walk, folder, name, &about) && time_of(&about) <= walk->last_ns &&
        walk->dir->calls->unlinkat(folder, name, 0) == 0) {
        const uint64_t room = disk_dir_room((uint64_t)about.st_size);
        walk->used -= room < walk->used ? room : walk->used;
    }
    return walk->used > walk->max_used;
}

static int compare_uses(const void *a, const void *b)
{
    const int64_t x = ((const struct use *)a)->time_ns;
    const int64_t y = ((const struct use *)b)->time_ns;
    return (x > y) - (x < y);
}

/* The time of the youngest value that has to go. */
static int64_t last_to_go(const struct walk *walk)
{
    uint64_t left = walk->used;
    size_t i = 0;
    qsort(walk->uses, walk->num_uses, sizeof *walk->uses, compare_uses);
    for (; i < walk->num_uses && left > walk->max_used; i++) {
        left -= walk->uses[i].room;
    }
    return i == 0 ? INT64_MIN : walk->uses[i - 1].time_ns;
}

static bool find_uses(struct walk *walk, int root)
{
    if (!disk_dir_walk_folder(walk->dir, root, DISK_DIR_TEMPORARY, visit_temporary, walk) ||
        !disk_dir_walk(walk->dir, root, visit_value, walk)) {
        return false;
    }
    errno = walk->failed ? ENOMEM : errno;
    return !walk->failed;
}

/* Values that were hit since the first walk stay, unless there is no room without them. */
static bool remove_old(struct walk *walk, int root, uint64_t limit)
{
    const uint64_t slack = walk->dir->max_bytes / 16;
    walk->max_used = limit > slack ? limit - slack : 0;
    walk->last_ns = last_to_go(walk);
    bool read = disk_dir_walk(walk->dir, root, visit_old, walk);
    if (read && walk->used > limit) {
        walk->max_used = limit;
        walk->last_ns = INT64_MAX;
        read = disk_dir_walk(walk->dir, root, visit_old, walk);
    }
    return read;
}

bool disk_evict(const struct disk_dir *dir, int root, struct disk_account *account, uint64_t room)
{
    struct walk walk = {.dir = dir};
    const uint64_t limit = dir->max_bytes - room;
    bool done = find_uses(&walk, root);
    const bool is_counted = done;
    if (done && walk.used > limit) {
        done = remove_old(&walk, root, limit);
    }
    free(walk.uses);
    if (is_counted && !disk_account_set(dir, account, walk.used)) {
        return false;
    }
    if (done && walk.used > limit) {
        errno = ENOSPC;
        return false;
    }
    return done;
}
