/* SPDX-License-Identifier: MIT
 *
 * guarded.c: one mapping, every other part of it without access. Around a block PAINTED bytes on
 * either side are painted and looked at, as far as the area goes: more than a vector can miss by.
 */
#include "kernels/guarded.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAINT = 0xff, PAINTED = 512 };

const char *place_name(enum place place)
{
    static const char *const names[] = {"ends at a guard page", "begins at a guard page",
                                        "misaligned by one element"};
    return names[place];
}

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static unsigned char *area_of(const struct guarded *guarded, int index)
{
    return guarded->memory + (size_t)index * (guarded->room + page_bytes()) + page_bytes();
}

struct guarded guarded_create(int count, size_t room)
{
    const size_t page = page_bytes();
    struct guarded guarded = {NULL, (room + page - 1) / page * page};
    const size_t bytes = (size_t)count * (guarded.room + page) + page;
    void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(EXIT_FAILURE);
    }
    guarded.memory = memory;
    for (int i = 0; i < count; i++) {
        if (mprotect(area_of(&guarded, i), guarded.room, PROT_READ | PROT_WRITE) != 0) {
            perror("mprotect");
            exit(EXIT_FAILURE);
        }
        memset(area_of(&guarded, i), PAINT, guarded.room);
    }
    return guarded;
}

/* The painted bytes before a block and behind it. */
static size_t bytes_before(const unsigned char *area, const unsigned char *block)
{
    const size_t offset = (size_t)(block - area);
    return offset < PAINTED ? offset : PAINTED;
}

static size_t bytes_behind(const struct guarded *guarded, const unsigned char *area,
                           const unsigned char *end)
{
    const size_t left = (size_t)(area + guarded->room - end);
    return left < PAINTED ? left : PAINTED;
}

void *guarded_place(const struct guarded *guarded, int index, size_t bytes, size_t element,
                    enum place place)
{
    unsigned char *area = area_of(guarded, index);
    unsigned char *block = area;
    if (place == PLACE_ENDS) {
        block += guarded->room - bytes;
    } else if (place == PLACE_MISALIGNED) {
        /* as far in as the paint is wide, where the block leaves room */
        const size_t spare = guarded->room - bytes - element;
        block += (spare / 2 < PAINTED ? spare / 2 : PAINTED) / 64 * 64 + element;
    }
    const size_t before = bytes_before(area, block);
    memset(block - before, PAINT, before + bytes + bytes_behind(guarded, area, block + bytes));
    return block;
}

static bool is_paint(const unsigned char *bytes, size_t count)
{
    return count == 0 || (bytes[0] == PAINT && memcmp(bytes, bytes + 1, count - 1) == 0);
}

bool guarded_is_clean(const struct guarded *guarded, int index, const void *block, size_t bytes)
{
    const unsigned char *area = area_of(guarded, index);
    const unsigned char *begin = block;
    const unsigned char *end = begin + bytes;
    const size_t before = bytes_before(area, begin);
    return is_paint(begin - before, before) && is_paint(end, bytes_behind(guarded, area, end));
}
