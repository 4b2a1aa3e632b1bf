/* SPDX-License-Identifier: MIT
 *
 * swap_area.h: the memory that sequences are swapped out to. It is cut into units of one size, and
 * what a sequence has there is a chain of units, which lie anywhere: so any mix of groups fits as
 * long as there are enough of them.
 *
 *   unit_bytes = the greatest common divisor of the block bytes of all paged groups and the state
 *                bytes of all state groups, each of all its layers, or, when that is less than a
 *                16th of the smallest of these, the smallest
 *   num_units  = swap_bytes / unit_bytes
 *   c cells of a block take ceil(c * token_bytes / unit_bytes) units
 *   num_free + lengths of all chains = num_units;  owner = NO_SEQ exactly in the list of free ones
 *
 * Of a unit that begins the cells of a block, group and entry say where these belong. A unit's
 * bytes are read only where they were written for its owner. Zeroed: no area, of no unit.
 *
 * The mutex guards records; the bytes and records of a chain are its moving sequence's, which reads
 * them without it. O(units) unless a declaration says otherwise. */
#ifndef PKV_RUNTIME_SWAP_AREA_H
#define PKV_RUNTIME_SWAP_AREA_H

#include "base/carve.h"
#include "base/report.h"
#include "runtime/config.h"
#include "runtime/seq_table.h"

#define NO_UNIT (-1)

struct swap_area_unit {
    int32_t next; /* in its chain, or in the list of free ones */
    int32_t owner;
    int32_t group;
    int32_t entry;
    bool is_done; /* the entry has a cached block: there is nothing to copy */
};

struct swap_area_chain {
    int32_t first;
    int32_t num_units;
};

struct swap_area {
    /* constant after create */
    unsigned char *memory;
    size_t bytes;
    size_t unit_bytes;
    int32_t num_units;
    int32_t max_seqs;
    bool is_file;

    /* guarded by the mutex */
    struct swap_area_unit *units;   /* [num_units] */
    struct swap_area_chain *chains; /* [max_seqs] */
    struct seq_table *tables;       /* [num_groups][max_seqs]: as they were before */
    int32_t first_free;
    int32_t num_free;
};

/* The arrays of a checked config's area: none without swap_bytes. PKV_UNSUPPORTED when no group is
 * paged, PKV_NEVER_FITS when swap_bytes holds no unit, PKV_INVALID_ARGUMENT. */
enum pkv_status swap_area_carve(const struct pkv_cache_config *config, struct swap_area *area,
                                struct carver *carver);

/* Maps the memory of an area whose arrays were carved, and frees all units. PKV_NO_MEMORY, PKV_IO;
 * free it in either case. */
enum pkv_status swap_area_build(const struct pkv_cache_config *config, struct swap_area *area,
                                const struct pkv_hooks *hooks);
void swap_area_free(struct swap_area *area, const struct pkv_hooks *hooks);

static inline bool swap_area_exists(const struct swap_area *area)
{
    return area->num_units > 0;
}

static inline unsigned char *swap_area_bytes(const struct swap_area *area, int32_t unit)
{
    return area->memory + (size_t)unit * area->unit_bytes;
}

/* Units that so many bytes take. O(1). */
static inline int64_t swap_area_units_of(const struct swap_area *area, size_t bytes)
{
    return (int64_t)(bytes / area->unit_bytes + (bytes % area->unit_bytes != 0));
}

/* A sequence without units gets `count` of them, of which there must be enough, as its chain. */
void swap_area_take(struct swap_area *area, int32_t seq, int32_t count);

/* All units of a sequence are free again. */
void swap_area_give(struct swap_area *area, int32_t seq);

/* Writes `byte` over a sequence's units. */
void swap_area_fill(struct swap_area *area, int32_t seq, int byte);

/* Is every unit either free or of exactly one sequence's chain? */
void swap_area_check(const struct swap_area *area, struct report *report);

#endif
