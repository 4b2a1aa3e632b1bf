/* SPDX-License-Identifier: MIT
 *
 * page_map.h: the blocks of a cache as a map for a terminal, a character a block:
 *
 *   #  held by one sequence      o  cached: free, still indexed     P  held by a pin
 *   +  held by several           .  free
 *
 * The map comes from pkv_cache_visit and the numbers from pkv_cache_stats. Where nothing runs
 * between the two they must agree, and page_map_read says when they do not. */
#ifndef SUPPORT_PAGE_MAP_H
#define SUPPORT_PAGE_MAP_H

#include "cached.h"

#include "pagedkv/metrics.h"

enum { PAGE_MAP_COLUMNS = 64, PAGE_MAP_MAX_BLOCKS = 16 * PAGE_MAP_COLUMNS };

/* How a block looks: by its state, and PAGE_SHARED for a held one with several holders. */
enum { PAGE_SHARED = PKV_BLOCK_PINNED + 1, PAGE_LOOKS };

struct page_map {
    bool plain; /* no colours, and nothing that moves the cursor */
    int32_t num_groups;
    int32_t num_cells;
    int32_t begins[CACHED_MAX_GROUPS];        /* the first cell of each group */
    unsigned char cells[PAGE_MAP_MAX_BLOCKS]; /* the look of each block, group after group */
    int32_t counts[PAGE_LOOKS];
};

/* Fills all but `plain`, and *stats. Complains about more groups or blocks than a map has, and when
 * the blocks do not add up to the counters. No other thread may use the cache meanwhile. */
bool page_map_read(struct page_map *map, pkv_cache *cache, struct pkv_stats *stats);

/* The blocks of a group on stdout, PAGE_MAP_COLUMNS a line, each line after `indent` blanks. */
void page_map_print(const struct page_map *map, int32_t group, int indent);

/* A line that names the looks and counts their blocks. */
void page_map_print_legend(const struct page_map *map);

/* Ends a line of a frame: on a terminal it clears what the frame before left behind it. */
void page_map_end_line(const struct page_map *map);

#endif
