/* SPDX-License-Identifier: MIT
 *
 * seq_table.h: the block table of one sequence in one paged group; struct seq_table has the
 * invariants. Where a window begins is asked of base/window.h alone. The mutex is held. */
#ifndef PKV_RUNTIME_SEQ_TABLE_H
#define PKV_RUNTIME_SEQ_TABLE_H

#include "runtime/cache.h"

static inline int32_t *seq_table_entries(const struct group *group, int32_t seq)
{
    return group->tables + (size_t)seq * group->table_stride;
}

/* An empty table. O(max_blocks). */
void seq_table_reset(struct group *group, int32_t seq, int32_t kept_prefix);

/* Maps free blocks up to entry `end`; there must be enough. */
void seq_table_extend(pkv_cache *cache, struct group *group, int32_t seq, int32_t end);

/* Extends the table to `end` for now, and promises room for num_cells tokens in all: a window
 * group's blocks then move along with the window. */
void seq_table_reserve(pkv_cache *cache, struct group *group, int32_t seq, int32_t end,
                       int64_t num_cells);

/* A table that has adopted the first num_blocks blocks of a cached run, for a sequence that may go
 * back max_rewind tokens: those below kept_end and from the frontier on. */
struct seq_table seq_table_adopted(const struct group *group, int32_t kept_prefix,
                                   int32_t num_blocks, int32_t max_rewind);

/* Entries of a table that are mapped when it ends at `end`, which is not below where it ends. */
int32_t seq_table_num_mapped(const struct seq_table *table, int32_t end);

static inline bool seq_table_maps(const struct seq_table *table, int32_t i)
{
    return i < table->end && (i < table->kept_end || i >= table->frontier);
}

/* Drops entries from `end` on, last first, so that later blocks are reused, and leaves of cached
 * runs evicted, first. */
void seq_table_shrink(pkv_cache *cache, struct group *group, int32_t seq, int32_t end);

/* Drops what a sequence of `length` tokens does not need behind it; its keys must be resident. */
void seq_table_cut(pkv_cache *cache, struct group *group, int32_t seq, int32_t length);

/* Shares what a sequence of `length` tokens needs with a child, whose table is empty. num_held is
 * the parent's own length. */
void seq_table_fork(struct group *group, int32_t parent, int32_t child, int32_t length,
                    int32_t num_held);

/* Gives back what no query at `length` or later can see. A promised table takes as many blocks at
 * its end; only a block that a fork still holds may leave it short of one. */
void seq_table_reclaim(pkv_cache *cache, struct group *group, int32_t seq, int32_t length);

/* The least length >= `length` at which a query finds every key it sees resident: `length` itself
 * when that is so. */
int32_t seq_table_next_resident(const struct group *group, int32_t seq, int32_t length);

#endif
