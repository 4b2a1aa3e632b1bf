/* SPDX-License-Identifier: MIT
 *
 * The list of free units and the chains have the same links, so a chain is taken by cutting the
 * list behind its last unit. */
#include "runtime/swap_area.h"

#include <string.h>

#include "alloc/mem.h"
#include "base/error.h"
#include "base/minmax.h"

#define MAX_UNITS_OF_SMALLEST 16

static size_t common_divisor(size_t a, size_t b)
{
    while (b != 0) {
        const size_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Of all paged groups, those with states among them; 0 when there is none. */
static enum pkv_status unit_bytes_of(const struct pkv_cache_config *config, size_t *unit_bytes)
{
    size_t divisor = 0;
    size_t smallest = 0;
    for (int32_t g = 0; g < config->num_groups + config_num_states(config); g++) {
        struct config_group of = {.config = config_resolve_group(config, g)};
        of.num_owners = config_num_owners(config, g);
        of.config.num_blocks = 1;
        const struct pkv_page_geometry geometry = config_geometry(&of);
        struct pkv_page_sizes sizes = {.size = sizeof sizes};
        if (of.config.kind == PKV_GROUP_ATTENTION && of.config.storage != PKV_STORAGE_PAGED) {
            continue;
        }
        const enum pkv_status status = pkv_page_sizes_of(&geometry, &sizes);
        if (status != PKV_OK) {
            return status;
        }
        divisor = common_divisor(sizes.block_bytes, divisor);
        smallest = smallest == 0 || sizes.block_bytes < smallest ? sizes.block_bytes : smallest;
    }
    *unit_bytes = smallest > divisor * MAX_UNITS_OF_SMALLEST ? smallest : divisor;
    return PKV_OK;
}

/* Of an area that is wanted. */
static enum pkv_status measure(const struct pkv_cache_config *config, struct swap_area *area)
{
    const enum pkv_status status = unit_bytes_of(config, &area->unit_bytes);
    if (status != PKV_OK) {
        return status;
    }
    if (area->unit_bytes == 0) {
        return refuse(PKV_UNSUPPORTED, "swap_bytes = %zu, but no group is paged",
                      config->swap_bytes);
    }
    const size_t num_units = config->swap_bytes / area->unit_bytes;
    if (num_units == 0) {
        return refuse(PKV_NEVER_FITS, "swap_bytes = %zu, below the %zu of one unit",
                      config->swap_bytes, area->unit_bytes);
    }
    if (num_units > INT32_MAX) {
        return INVALID("swap_bytes = %zu, more than 2^31 - 1 units of %zu bytes",
                       config->swap_bytes, area->unit_bytes);
    }
    area->num_units = (int32_t)num_units;
    area->bytes = num_units * area->unit_bytes;
    area->max_seqs = config->max_seqs;
    return PKV_OK;
}

enum pkv_status swap_area_carve(const struct pkv_cache_config *config, struct swap_area *area,
                                struct carver *carver)
{
    size_t num_tables = 0;
    *area = (struct swap_area){0};
    const enum pkv_status status = config->swap_bytes > 0 ? measure(config, area) : PKV_OK;
    if (status != PKV_OK || !swap_area_exists(area)) {
        return status;
    }
    if (!checked_mul((size_t)config->num_groups, (size_t)config->max_seqs, &num_tables)) {
        return INVALID("the tables of swapped sequences overflow size_t");
    }
    area->units = carve(carver, (size_t)area->num_units, sizeof *area->units);
    area->chains = carve(carver, (size_t)config->max_seqs, sizeof *area->chains);
    area->tables = carve(carver, num_tables, sizeof *area->tables);
    return PKV_OK;
}

enum pkv_status swap_area_build(const struct pkv_cache_config *config, struct swap_area *area,
                                const struct pkv_hooks *hooks)
{
    if (!swap_area_exists(area)) {
        return PKV_OK;
    }
    for (int32_t i = 0; i < area->num_units; i++) {
        area->units[i].next = i + 1 < area->num_units ? i + 1 : NO_UNIT;
        area->units[i].owner = NO_SEQ;
    }
    for (int32_t i = 0; i < area->max_seqs; i++) {
        area->chains[i].first = NO_UNIT;
    }
    area->num_free = area->num_units;
    area->is_file = config->swap_path != NULL;
    if (area->is_file) {
        void *memory = NULL;
        const enum pkv_status status = mem_map_file(config->swap_path, area->bytes, &memory);
        area->memory = memory;
        return status;
    }
    area->memory = mem_map(hooks, area->bytes, PKV_MAP_SWAP);
    return area->memory != NULL
               ? PKV_OK
               : refuse(PKV_NO_MEMORY, "no memory for %zu bytes of swap area", area->bytes);
}

void swap_area_free(struct swap_area *area, const struct pkv_hooks *hooks)
{
    if (area->is_file) {
        mem_unmap_file(area->memory, area->bytes);
    } else {
        mem_unmap(hooks, area->memory, area->bytes, PKV_MAP_SWAP);
    }
}

void swap_area_take(struct swap_area *area, int32_t seq, int32_t count)
{
    struct swap_area_chain *chain = &area->chains[seq];
    int32_t *link = &area->first_free;
    pkv_assert(chain->num_units == 0 && count <= area->num_free);
    *chain = (struct swap_area_chain){.first = count > 0 ? *link : NO_UNIT, .num_units = count};
    for (int32_t i = 0; i < count; i++) {
        struct swap_area_unit *unit = &area->units[*link];
        unit->owner = seq;
        link = &unit->next;
    }
    if (count > 0) {
        area->first_free = *link;
        *link = NO_UNIT;
    }
    area->num_free -= count;
}

void swap_area_give(struct swap_area *area, int32_t seq)
{
    struct swap_area_chain *chain = &area->chains[seq];
    int32_t *link = &chain->first;
    while (*link != NO_UNIT) {
        struct swap_area_unit *unit = &area->units[*link];
        unit->owner = NO_SEQ;
        link = &unit->next;
    }
    if (chain->num_units > 0) {
        *link = area->first_free;
        area->first_free = chain->first;
    }
    area->num_free += chain->num_units;
    *chain = (struct swap_area_chain){.first = NO_UNIT};
}

void swap_area_fill(struct swap_area *area, int32_t seq, int byte)
{
    for (int32_t i = area->chains[seq].first; i != NO_UNIT; i = area->units[i].next) {
        memset(swap_area_bytes(area, i), byte, area->unit_bytes);
    }
}

/* A chain of so many units that ends with its last one meets none of them twice. */
static void check_chain(const struct swap_area *area, int32_t first, int32_t length, int32_t owner,
                        struct report *report)
{
    int32_t count = 0;
    int32_t i = first;
    while (i >= 0 && i < area->num_units && count < length && area->units[i].owner == owner) {
        count++;
        i = area->units[i].next;
    }
    report_expect(report, i == NO_UNIT && count == length,
                  owner == NO_SEQ ? "the list of free swap units (%d, at %d after %d)"
                                  : "the swap units of a sequence (%d, at %d after %d)",
                  owner, i, count);
}

void swap_area_check(const struct swap_area *area, struct report *report)
{
    int64_t num_used = 0;
    for (int32_t i = 0; i < area->max_seqs; i++) {
        check_chain(area, area->chains[i].first, area->chains[i].num_units, i, report);
        num_used += area->chains[i].num_units;
    }
    check_chain(area, area->first_free, area->num_free, NO_SEQ, report);
    report_expect(report, num_used + area->num_free == area->num_units,
                  "the number of swap units (%d used, %d free)", (int32_t)num_used, area->num_free);
}
