/* SPDX-License-Identifier: MIT
 *
 * disk_io DIRECTORY [MIB]: how fast values of pieces go to and from files, by each way that Linux
 * has: buffered pwritev and preadv, the same with advice on the next 8 files, O_DIRECT, mmap, and
 * io_uring with 8 values at once. Each run writes MIB (256) of values of one size as files of
 * DIRECTORY, syncs, reads them back, drops them from the page cache and reads them again. Ways are
 * run in turns; printed is the median in GB/s:
 *
 *     write     until the call returns          to disk   and the files are synced
 *     warm      read out of the page cache      cold      after it was dropped
 *
 * A read-back that differs ends the program. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "disk_io/ring.h"
#include "measure.h"

enum { TURNS = 5, DEPTH = 8, MAX_FILES = 4096 };
enum way { BUFFERED, ADVISED, DIRECT, MAPPED, RING, RING_DIRECT, NUM_WAYS };
static const char *const way_names[] = {"pwritev, preadv", "the same, WILLNEED", "O_DIRECT", "mmap",
                                        "io_uring",        "io_uring, O_DIRECT"};

/* One size of value, cut into pieces that lie apart in memory, as the pages of layers do. */
struct run {
    int directory;
    size_t value_bytes;
    size_t piece_bytes;
    int num_files;
    int num_pieces;
    unsigned char *memory;
    size_t stride;
    struct iovec *pieces; /* [num_files][num_pieces] */
};

static struct iovec *pieces_of(const struct run *run, int file)
{
    return run->pieces + (size_t)file * (size_t)run->num_pieces;
}

static int open_file(const struct run *run, int file, int flags)
{
    char name[32];
    snprintf(name, sizeof name, "value-%d", file);
    const int fd = openat(run->directory, name, flags, 0600);
    if (fd < 0) {
        measure_fail("%s: %s", name, strerror(errno));
    }
    return fd;
}

static void move_vectors(const struct run *run, int file, bool is_write, int extra)
{
    const int fd = open_file(run, file, extra | (is_write ? O_CREAT | O_TRUNC | O_WRONLY : 0));
    const struct iovec *pieces = pieces_of(run, file);
    off_t offset = 0;
    for (int i = 0; i < run->num_pieces; i += 128) {
        const int count = run->num_pieces - i < 128 ? run->num_pieces - i : 128;
        const ssize_t moved = is_write ? pwritev(fd, pieces + i, count, offset)
                                       : preadv(fd, pieces + i, count, offset);
        if (moved != (ssize_t)((size_t)count * run->piece_bytes)) {
            measure_fail("%s: %s", is_write ? "pwritev" : "preadv", strerror(errno));
        }
        offset += moved;
    }
    close(fd);
}

/* The kernel begins to read all of the next files before the first is waited for. */
static void advise(const struct run *run, int first)
{
    for (int i = first; i < run->num_files && i < first + DEPTH; i++) {
        const int fd = open_file(run, i, O_RDONLY);
        posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED);
        close(fd);
    }
}

static void move_mapped(const struct run *run, int file, bool is_write)
{
    const int fd = open_file(run, file, is_write ? O_CREAT | O_TRUNC | O_RDWR : O_RDONLY);
    if (is_write && ftruncate(fd, (off_t)run->value_bytes) != 0) {
        measure_fail("ftruncate: %s", strerror(errno));
    }
    unsigned char *map = mmap(NULL, run->value_bytes, is_write ? PROT_READ | PROT_WRITE : PROT_READ,
                              MAP_SHARED | MAP_POPULATE, fd, 0);
    if (map == MAP_FAILED) {
        measure_fail("mmap: %s", strerror(errno));
    }
    const struct iovec *pieces = pieces_of(run, file);
    for (int i = 0; i < run->num_pieces; i++) {
        unsigned char *place = map + (size_t)i * run->piece_bytes;
        memcpy(is_write ? place : pieces[i].iov_base, is_write ? pieces[i].iov_base : place,
               run->piece_bytes);
    }
    munmap(map, run->value_bytes);
    close(fd);
}

static void move_ring(const struct run *run, int first, bool is_write, int extra)
{
    struct ring_move moves[DEPTH];
    const int count = run->num_files - first < DEPTH ? run->num_files - first : DEPTH;
    for (int i = 0; i < count; i++) {
        moves[i] = (struct ring_move){
            .fd = open_file(run, first + i,
                            extra | (is_write ? O_CREAT | O_TRUNC | O_WRONLY : O_RDONLY)),
            .pieces = pieces_of(run, first + i),
            .num_pieces = run->num_pieces,
            .bytes = run->value_bytes};
    }
    ring_move_all(moves, count, is_write);
    for (int i = 0; i < count; i++) {
        close(moves[i].fd);
    }
}

static void move_all(const struct run *run, enum way way, bool is_write)
{
    const bool is_ring = way == RING || way == RING_DIRECT;
    const int extra = way == DIRECT || way == RING_DIRECT ? O_DIRECT : 0;
    for (int i = 0; i < run->num_files; i += is_ring ? DEPTH : 1) {
        if (is_ring) {
            move_ring(run, i, is_write, extra);
        } else if (way == MAPPED) {
            move_mapped(run, i, is_write);
        } else {
            if (way == ADVISED && !is_write && i % DEPTH == 0) {
                advise(run, i);
            }
            move_vectors(run, i, is_write, extra);
        }
    }
}

static void each_file(const struct run *run, bool drop)
{
    for (int i = 0; i < run->num_files; i++) {
        const int fd = open_file(run, i, O_RDONLY);
        const int failed = drop ? posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) : fdatasync(fd);
        if (failed != 0) {
            measure_fail("value-%d: %s", i, strerror(errno));
        }
        close(fd);
    }
}

static void fill(const struct run *run, unsigned seed)
{
    for (int i = 0; i < run->num_files * run->num_pieces; i++) {
        memset(run->pieces[i].iov_base, (int)(seed + (unsigned)i * 7), run->piece_bytes);
    }
}

static void check(const struct run *run, unsigned seed)
{
    for (int i = 0; i < run->num_files * run->num_pieces; i++) {
        const unsigned char *bytes = run->pieces[i].iov_base;
        if (bytes[0] != (unsigned char)(seed + (unsigned)i * 7) ||
            bytes[run->piece_bytes - 1] != bytes[0]) {
            measure_fail("piece %d differs", i);
        }
    }
}

struct times {
    struct samples write, synced, warm, cold;
};

static void measure(const struct run *run, enum way way, unsigned seed, struct times *times)
{
    fill(run, seed);
    const double gb = (double)run->num_files * (double)run->value_bytes / 1e9;
    double begin = measure_now();
    move_all(run, way, true);
    samples_add(&times->write, gb / (measure_now() - begin));
    each_file(run, false);
    samples_add(&times->synced, gb / (measure_now() - begin));
    fill(run, 0);
    begin = measure_now();
    move_all(run, way, false);
    samples_add(&times->warm, gb / (measure_now() - begin));
    check(run, seed);
    each_file(run, true);
    begin = measure_now();
    move_all(run, way, false);
    samples_add(&times->cold, gb / (measure_now() - begin));
    check(run, seed);
    each_file(run, true);
}

static void remove_all(const struct run *run)
{
    for (int i = 0; i < run->num_files; i++) {
        char name[32];
        snprintf(name, sizeof name, "value-%d", i);
        unlinkat(run->directory, name, 0);
    }
}

static void measure_size(struct run *run, size_t total)
{
    static struct times times[NUM_WAYS];
    memset(times, 0, sizeof times);
    run->num_files = (int)(total / run->value_bytes);
    run->num_pieces = (int)(run->value_bytes / run->piece_bytes);
    const size_t count = (size_t)run->num_files * (size_t)run->num_pieces;
    run->pieces = measure_calloc(count, sizeof *run->pieces);
    /* 7 is odd, so that neighbours of a value lie far apart and every place is used once. */
    for (size_t i = 0; i < count; i++) {
        run->pieces[i] =
            (struct iovec){run->memory + i * 7 % count * run->piece_bytes, run->piece_bytes};
    }
    for (unsigned turn = 0; turn < TURNS; turn++) {
        for (int way = 0; way < NUM_WAYS; way++) {
            measure(run, (enum way)way, turn * NUM_WAYS + (unsigned)way + 1, &times[way]);
            remove_all(run);
        }
    }
    for (int way = 0; way < NUM_WAYS; way++) {
        printf("| %zu KiB | %zu KiB | %s | %.2f | %.2f | %.2f | %.2f |\n", run->value_bytes >> 10,
               run->piece_bytes >> 10, way_names[way], samples_median(&times[way].write),
               samples_median(&times[way].synced), samples_median(&times[way].warm),
               samples_median(&times[way].cold));
    }
    fflush(stdout);
    free(run->pieces);
}

int main(int argc, char **argv)
{
    static const size_t kib[][2] = {{128, 16}, {1024, 16}, {1024, 128}, {8192, 16}, {8192, 256}};
    if (argc < 2 || argc > 3) {
        measure_fail("usage: disk_io DIRECTORY [MIB]");
    }
    const size_t total = (argc == 3 ? strtoull(argv[2], NULL, 10) : 256) << 20;
    struct run run = {.directory = open(argv[1], O_RDONLY | O_DIRECTORY)};
    if (run.directory < 0 || total < (size_t)8 << 20 || total >> 17 > MAX_FILES) {
        measure_fail("%s: no directory, or not 8 to 512 MiB", argv[1]);
    }
    run.memory = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (run.memory == MAP_FAILED) {
        measure_fail("no memory for %zu bytes", total);
    }
    ring_open(DEPTH);
    printf("| value | pieces | by | write | to disk | warm | cold |\n");
    printf("|---:|---:|---|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < sizeof kib / sizeof *kib; i++) {
        run.value_bytes = kib[i][0] << 10;
        run.piece_bytes = kib[i][1] << 10;
        measure_size(&run, total);
    }
    ring_close();
    return 0;
}
