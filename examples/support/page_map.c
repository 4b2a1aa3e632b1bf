/* SPDX-License-Identifier: MIT
 *
 * page_map.c: one pass over the blocks, then characters; a colour is set only where it changes. */
#include "page_map.h"

#include "report.h"

#include <stdio.h>
#include <string.h>

struct look {
    char glyph;
    const char *colour;
    const char *name;
};
static const struct look looks[PAGE_LOOKS] = {
    [PKV_BLOCK_FREE] = {'.', "\033[90m", "free"}, [PKV_BLOCK_CACHED] = {'o', "\033[34m", "cached"},
    [PKV_BLOCK_HELD] = {'#', "\033[32m", "held"}, [PKV_BLOCK_PINNED] = {'P', "\033[33m", "pinned"},
    [PAGE_SHARED] = {'+', "\033[92m", "shared"},
};

/* Blocks come in order of group and block. One that has no place in the map only counts. */
static bool note_block(void *context, const struct pkv_block_info *info)
{
    struct page_map *map = context;
    const bool shared = info->state == PKV_BLOCK_HELD && info->ref_count > 1;
    const unsigned char look = (unsigned char)(shared ? PAGE_SHARED : (int)info->state);
    if (info->block == 0 && map->num_groups < CACHED_MAX_GROUPS) {
        map->begins[map->num_groups++] = map->num_cells;
    }
    if (map->num_cells < PAGE_MAP_MAX_BLOCKS) {
        map->cells[map->num_cells++] = look;
    }
    map->counts[look]++;
    return true;
}

bool page_map_read(struct page_map *map, pkv_cache *cache, struct pkv_stats *stats)
{
    *map = (struct page_map){.plain = map->plain};
    if (pkv_cache_stats(cache, stats) != PKV_OK ||
        pkv_cache_visit(cache, note_block, map, NULL) != PKV_OK) {
        return complain("the pool cannot be read: %s", pkv_last_error());
    }
    if (stats->num_blocks > PAGE_MAP_MAX_BLOCKS) {
        return complain("%lld blocks are more than a map of %d has", (long long)stats->num_blocks,
                        PAGE_MAP_MAX_BLOCKS);
    }
    const int32_t *counts = map->counts;
    const int32_t held = counts[PKV_BLOCK_HELD] + counts[PAGE_SHARED] + counts[PKV_BLOCK_PINNED];
    if (held != stats->held_blocks || counts[PKV_BLOCK_CACHED] != stats->cached_blocks ||
        counts[PKV_BLOCK_PINNED] != stats->pinned_blocks ||
        held + counts[PKV_BLOCK_CACHED] + counts[PKV_BLOCK_FREE] != stats->num_blocks) {
        return complain("the blocks of the pool do not add up to its counters");
    }
    return true;
}

void page_map_end_line(const struct page_map *map)
{
    fputs(map->plain ? "\n" : "\033[K\n", stdout);
}

void page_map_print(const struct page_map *map, int32_t group, int indent)
{
    const bool last = group + 1 == map->num_groups;
    const int32_t begin = map->begins[group];
    const int32_t end = last ? map->num_cells : map->begins[group + 1];
    for (int32_t cell = begin; cell < end; cell++) {
        const struct look *look = &looks[map->cells[cell]];
        const bool begins = (cell - begin) % PAGE_MAP_COLUMNS == 0;
        if (begins && cell > begin) {
            page_map_end_line(map);
        }
        if (begins) {
            printf("%*s", indent, "");
        }
        if (!map->plain && (begins || map->cells[cell] != map->cells[cell - 1])) {
            fputs(look->colour, stdout);
        }
        putchar(look->glyph);
    }
    fputs(map->plain ? "" : "\033[0m", stdout);
    page_map_end_line(map);
}

void page_map_print_legend(const struct page_map *map)
{
    static const int order[PAGE_LOOKS] = {PKV_BLOCK_HELD, PAGE_SHARED, PKV_BLOCK_PINNED,
                                          PKV_BLOCK_CACHED, PKV_BLOCK_FREE};
    for (int i = 0; i < PAGE_LOOKS; i++) {
        const struct look *look = &looks[order[i]];
        printf("%s%s%c %s %d%s", i > 0 ? "   " : "", map->plain ? "" : look->colour, look->glyph,
               look->name, map->counts[order[i]], map->plain ? "" : "\033[0m");
    }
    page_map_end_line(map);
}
