/* SPDX-License-Identifier: MIT
 *
 * The units of a block's cells follow each other in the chain, so one walk over the chain meets all
 * blocks, and the bytes of each as a stream (pages/page_store.h). */
#include "runtime/swap.h"

#include "base/error.h"
#include "runtime/shortage.h"

enum pkv_status swap_check_call(const pkv_cache *cache, const struct pkv_shortage *shortage)
{
    if (cache == NULL) {
        return INVALID("cache is NULL");
    }
    const enum pkv_status status = shortage_check(shortage);
    if (status == PKV_OK && !swap_area_exists(&cache->swap)) {
        return refuse(PKV_UNSUPPORTED, "the cache was created without swap_bytes");
    }
    return status;
}

struct walk {
    const struct swap_area *area;
    int32_t unit;
};

static unsigned char *next_unit(void *context)
{
    struct walk *walk = context;
    unsigned char *bytes = swap_area_bytes(walk->area, walk->unit);
    walk->unit = walk->area->units[walk->unit].next;
    return bytes;
}

/* The block whose units the walk is at. Returns the bytes that were copied. */
static size_t copy_block(pkv_cache *cache, int32_t seq, struct walk *walk, bool is_out)
{
    const struct swap_area_unit *unit = &walk->area->units[walk->unit];
    const int32_t num_cells = swap_num_cells(cache, unit->group, seq, unit->entry);
    struct page_stream stream = {
        .next = next_unit, .context = walk, .piece_bytes = walk->area->unit_bytes};
    if (unit->is_done) {
        for (int64_t i = swap_num_units(cache, unit->group, seq, unit->entry); i > 0; i--) {
            (void)next_unit(walk);
        }
        return 0;
    }
    pkv_pages *pages = cache_blocks(cache, unit->group)->pages;
    const int32_t block = swap_block(cache, unit->group, seq, unit->entry);
    if (is_out) {
        page_store_read(pages, block, num_cells, &stream);
    } else {
        page_store_write(pages, block, num_cells, &stream);
    }
    return (size_t)num_cells * page_store_token_bytes(pages);
}

size_t swap_copy(pkv_cache *cache, int32_t seq, bool is_out)
{
    size_t bytes = 0;
    struct walk walk = {.area = &cache->swap, .unit = cache->swap.chains[seq].first};
    while (walk.unit != NO_UNIT) {
        bytes += copy_block(cache, seq, &walk, is_out);
    }
    return bytes;
}

void swap_scrub(pkv_cache *cache, int32_t seq)
{
    const enum block_scrub scrub = cache->block_context.scrub;
    if (scrub != BLOCK_SCRUB_NONE) {
        swap_area_fill(&cache->swap, seq, scrub == BLOCK_SCRUB_POISON ? PAGE_STORE_POISON : 0);
    }
}

void swap_release(pkv_cache *cache, int32_t seq)
{
    if (swap_area_exists(&cache->swap)) {
        swap_scrub(cache, seq);
        swap_area_give(&cache->swap, seq);
        cache->seqs.at[seq].is_swapped = false;
    }
}

void swap_check(const pkv_cache *cache, struct report *report)
{
    const struct swap_area *area = &cache->swap;
    if (!swap_area_exists(area)) {
        return;
    }
    swap_area_check(area, report);
    for (int32_t i = 0; i < cache->seqs.capacity; i++) {
        const struct seq *seq = &cache->seqs.at[i];
        const bool may_have = seq->state != SEQ_FREE && (seq->is_swapped || seq->is_moving);
        report_expect(report, may_have || area->chains[i].num_units == 0,
                      "swap units of a sequence that is not swapped out (sequence %d, %d units)", i,
                      area->chains[i].num_units);
    }
}
