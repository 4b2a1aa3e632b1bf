/* SPDX-License-Identifier: MIT
 *
 * seq_table.h: the block tables of the sequences in one paged group: which blocks a sequence has,
 * and which of its keys are resident. Where a window begins is decided by base/window.h alone. The
 * mutex is held. O(entries that change) unless a declaration says otherwise. */
#ifndef PKV_RUNTIME_SEQ_TABLE_H
#define PKV_RUNTIME_SEQ_TABLE_H

#include "pagedkv/slots.h"
#include "runtime/block.h"
#include "runtime/promise.h"

/* A sequence's side of one group. Paged: its block table, of which entry i is
 *
 *   mapped exactly when  i < end  and  (i < kept_end  or  i >= hole_end),  else -1 if i < num_set
 *
 *   kept_end = ceil(kept prefix / block_size),  0 without a window
 *   kept_end <= hole_end: the blocks of entries [kept_end, hole_end) were released for good
 *   a copy is promised only while end = ceil(length / block_size) and length ends inside a block
 *   end >= floor(length / block_size); blocks from ceil(length / block_size) on are the open
 *   step's: count 1, writer this sequence
 *
 * Entries from num_set on were never written for any sequence of this index, so what a table costs
 * is what its longest sequence used of it, whatever max_seq_len is.
 *
 * Entry tail_entry, unless that is -1, names tail_block: the newest that was mapped. A step reads
 * it in each row, and the entries of different tables lie far apart, in pages of their own.
 *
 * A save holds a block beside the table: `saved` is that of entry hole_end - 1, or NO_BLOCK. It
 * does not slide (save.c).
 *
 * Continuous: its handle of a slot, and the slot's number. */
struct seq_table {
    int32_t kept_end;
    int32_t hole_end;
    int32_t end;
    int32_t tail_entry;
    int32_t tail_block;
    struct promise promise; /* of its admission */
    int32_t charged;        /* blocks that its namespace's quotas count (seq_table_charge) */
    int32_t slot;
    int32_t saved;
    pkv_slot slot_handle;
};

/* The tables of one group. A continuous group has `at` alone. */
struct seq_table_set {
    struct block_set *blocks;
    struct seq_table *at; /* [max_seqs] */
    int32_t *num_set;     /* [max_seqs] leading entries that hold something; never falls */
    int32_t *entries;     /* [max_seqs][stride], reserved address space */
    size_t stride;        /* of which max_blocks are entries */
    size_t entry_bytes;
    int32_t max_blocks;
    int64_t sliding_window; /* of the group; 0 = none */
    int64_t num_runs;       /* mapped entries that do not go on behind the one before them */
    struct promise_set promises;
};

static inline int32_t *seq_table_entries(const struct seq_table_set *tables, int32_t seq)
{
    return tables->entries + (size_t)seq * tables->stride;
}

/* What entry i names, which is set. */
static inline int32_t seq_table_block(const struct seq_table_set *tables, int32_t seq, int32_t i)
{
    const struct seq_table *table = &tables->at[seq];
    return i == table->tail_entry ? table->tail_block : seq_table_entries(tables, seq)[i];
}

/* Entries below `end` hold something: those that never did hold -1 from now on. */
void seq_table_set(struct seq_table_set *tables, int32_t seq, int32_t end);

/* Entry i, which is set, names the block, or NO_BLOCK. All changes of entries go through it, or
 * count the runs as it does. O(1). */
void seq_table_put(struct seq_table_set *tables, int32_t seq, int32_t i, int32_t block);

/* Does entry i begin a run of adjacent blocks? */
static inline bool seq_table_begins_run(const int32_t *entries, int32_t i)
{
    return entries[i] != NO_BLOCK &&
           (i == 0 || entries[i - 1] == NO_BLOCK || entries[i - 1] + 1 != entries[i]);
}

/* The block behind which entry i goes on: that of the entry before it. NO_BLOCK when there is none.
 */
static inline int32_t seq_table_near(const struct seq_table_set *tables, int32_t seq, int32_t i)
{
    return i > 0 ? seq_table_block(tables, seq, i - 1) : NO_BLOCK;
}

/* An empty table, whose entries were left -1. O(1). */
void seq_table_reset(struct seq_table_set *tables, int32_t seq, int32_t kept_prefix);

/* Maps free blocks up to entry `end`; there must be enough. */
void seq_table_extend(struct seq_table_set *tables, int32_t seq, int32_t end);

/* Maps free blocks in an empty table that was promised nothing, as they were in one that ended at
 * `end` and had a hole up to hole_end; there must be enough. */
void seq_table_restore(struct seq_table_set *tables, int32_t seq, int32_t hole_end, int32_t end);

/* The empty table of a sequence becomes `admitted`, whose entries are to be adopted, with its
 * promise. */
void seq_table_admit(struct seq_table_set *tables, int32_t seq, const struct seq_table *admitted);

/* Maps free blocks at the unmapped entries [first, end); there must be enough. */
void seq_table_fill(struct seq_table_set *tables, int32_t seq, int32_t first, int32_t end);

/* The sequence was promised nothing any more. O(blocks). */
void seq_table_withdraw(struct seq_table_set *tables, int32_t seq);

/* Free blocks that were promised to nobody, >= 0. What takes no more of them leaves every promise
 * as it is. O(1). */
int32_t seq_table_num_spare(const struct seq_table_set *tables);

/* What an admission takes in one paged group. */
struct seq_table_demand {
    struct seq_table table; /* after adoption, with its promise */
    int64_t num_spare;      /* spare blocks taken: newly promised, or adopted */
};

/* A table that has adopted the first num_tokens tokens of a cached prefix, for a sequence that may
 * go back max_rewind tokens: the blocks below kept_end and from hole_end on. Where the tokens end
 * inside a block, its entry is the cached block, to be copied from. */
struct seq_table seq_table_adopted(const struct seq_table_set *tables, int32_t kept_prefix,
                                   int32_t num_tokens, int32_t max_rewind);

/* Entries of a table that are mapped when it ends at `end`, which is not below where it ends. */
int32_t seq_table_num_mapped(const struct seq_table *table, int32_t end);

static inline bool seq_table_slides(const struct seq_table *table)
{
    return promise_slides(&table->promise);
}

static inline bool seq_table_maps(const struct seq_table *table, int32_t i)
{
    return i < table->end && (i < table->kept_end || i >= table->hole_end);
}

/* Drops entries from `end` on, last first, so that later blocks are reused, and leaves of cached
 * prefixes evicted, first. */
void seq_table_shrink(struct seq_table_set *tables, int32_t seq, int32_t end);

/* Blocks that quotas count for a table that ends at `end`: those mapped, or promised if more. */
static inline int32_t seq_table_charge(const struct seq_table *table, int32_t end)
{
    const int32_t num_mapped = seq_table_num_mapped(table, end);
    return num_mapped > table->promise.at_once ? num_mapped : table->promise.at_once;
}

/* Drops what a sequence of `length` tokens does not need behind it; its keys must be resident. */
void seq_table_cut(struct seq_table_set *tables, int32_t seq, int32_t length);

/* Spare blocks that the cut takes when the promise is kept: entries to be taken again whose blocks
 * do not become free. O(blocks cut). */
int32_t seq_table_cut_spare(const struct seq_table_set *tables, int32_t seq, int32_t length);

/* Shares what a sequence of `length` tokens needs with a child, whose table is empty. num_held is
 * the parent's own length. */
void seq_table_fork(struct seq_table_set *tables, int32_t parent, int32_t child, int32_t length,
                    int32_t num_held);

/* Spare blocks that a fork takes: those that leave a window and are not free while the child holds
 * them. O(blocks). */
int32_t seq_table_fork_spare(const struct seq_table_set *tables, int32_t parent, int32_t length);

/* Releases what no query at `length` or later can see. */
void seq_table_reclaim(struct seq_table_set *tables, int32_t seq, int32_t length);

/* The least length from which on every length up to the present one can be gone back to. */
int32_t seq_table_min_length(const struct seq_table_set *tables, int32_t seq, int32_t length);

/* The least length >= `length` at which a query finds every key it sees resident: `length` itself
 * when that is so. */
int32_t seq_table_next_resident(const struct seq_table_set *tables, int32_t seq, int32_t length);

#endif
