/* SPDX-License-Identifier: MIT
 *
 * Tables are indexed by absolute position, so a window group's table is a kept head, a hole, and a
 * run that ends at the last cell; three numbers say which entries those are, and the hole only
 * moves forward until the sequence is cut. */
#include "runtime/seq_table.h"

#include "base/error.h"
#include "base/minmax.h"
#include "base/window.h"
#include "runtime/config.h"

struct seq_table seq_table_adopted(const struct seq_table_set *tables, int32_t kept_prefix,
                                   int32_t num_tokens, int32_t max_rewind)
{
    const int32_t block_size = tables->blocks->block_size;
    const int64_t window = tables->sliding_window;
    const int64_t query = max_i32(num_tokens - max_rewind, 0);
    struct seq_table table = {
        .end = config_blocks_of_cells(num_tokens, block_size), .tail_entry = -1, .saved = NO_BLOCK};
    table.kept_end = window > 0 ? config_blocks_of_cells(kept_prefix, block_size) : 0;
    table.hole_end = max_i32(table.kept_end, first_needed_block(query, window, block_size));
    return table;
}

int32_t seq_table_num_mapped(const struct seq_table *table, int32_t end)
{
    return min_i32(table->kept_end, end) + max_i32(0, end - table->hole_end);
}

void seq_table_set(struct seq_table_set *tables, int32_t seq, int32_t end)
{
    int32_t *entries = seq_table_entries(tables, seq);
    while (tables->num_set[seq] < end) {
        entries[tables->num_set[seq]++] = NO_BLOCK;
    }
}

/* Entry i begins a run, plus the one behind it does. */
static int32_t runs_at(const struct seq_table_set *tables, int32_t seq, int32_t i)
{
    const int32_t *entries = seq_table_entries(tables, seq);
    return seq_table_begins_run(entries, i) +
           (i + 1 < tables->num_set[seq] && seq_table_begins_run(entries, i + 1));
}

void seq_table_put(struct seq_table_set *tables, int32_t seq, int32_t i, int32_t block)
{
    tables->num_runs -= runs_at(tables, seq, i);
    seq_table_entries(tables, seq)[i] = block;
    if (i == tables->at[seq].tail_entry) {
        tables->at[seq].tail_block = block;
    }
    tables->num_runs += runs_at(tables, seq, i);
}

void seq_table_reset(struct seq_table_set *tables, int32_t seq, int32_t kept_prefix)
{
    tables->at[seq] = seq_table_adopted(tables, kept_prefix, 0, 0);
}

static void set_end(struct seq_table_set *tables, struct seq_table *table, int32_t end)
{
    const struct promise *promise = &table->promise;
    tables->promises.owed += promise_owed(promise, end) - promise_owed(promise, table->end);
    table->end = end;
}

void seq_table_extend(struct seq_table_set *tables, int32_t seq, int32_t end)
{
    struct seq_table *table = &tables->at[seq];
    int32_t *entries = seq_table_entries(tables, seq);
    const bool slides = seq_table_slides(table);
    if (end <= table->end) {
        return;
    }
    seq_table_set(tables, seq, end);
    block_take(tables->blocks, seq_table_near(tables, seq, table->end), end - table->end, seq,
               slides, entries + table->end);
    for (int32_t i = table->end; i < end; i++) {
        tables->num_runs += seq_table_begins_run(entries, i);
    }
    table->tail_entry = end - 1;
    table->tail_block = entries[end - 1];
    set_end(tables, table, end);
}

void seq_table_restore(struct seq_table_set *tables, int32_t seq, int32_t hole_end, int32_t end)
{
    struct seq_table *table = &tables->at[seq];
    seq_table_extend(tables, seq, min_i32(table->kept_end, end));
    if (end > table->kept_end) {
        seq_table_set(tables, seq, hole_end);
        table->hole_end = hole_end;
        table->end = hole_end;
        seq_table_extend(tables, seq, end);
    }
}

/* Entries [first, end] that begin a run. */
static int32_t runs_in(const struct seq_table_set *tables, int32_t seq, int32_t first, int32_t end)
{
    const int32_t *entries = seq_table_entries(tables, seq);
    int32_t count = 0;
    for (int32_t i = first; i <= end && i < tables->num_set[seq]; i++) {
        count += seq_table_begins_run(entries, i);
    }
    return count;
}

void seq_table_fill(struct seq_table_set *tables, int32_t seq, int32_t first, int32_t end)
{
    struct seq_table *table = &tables->at[seq];
    int32_t *entries = seq_table_entries(tables, seq);
    const int32_t before = runs_in(tables, seq, first, end);
    block_take(tables->blocks, seq_table_near(tables, seq, first), end - first, seq,
               seq_table_slides(table), entries + first);
    if (table->tail_entry >= first && table->tail_entry < end) {
        table->tail_block = entries[table->tail_entry];
    }
    tables->num_runs += runs_in(tables, seq, first, end) - before;
}

void seq_table_shrink(struct seq_table_set *tables, int32_t seq, int32_t end)
{
    struct seq_table *table = &tables->at[seq];
    const int32_t *entries = seq_table_entries(tables, seq);
    const bool slides = seq_table_slides(table);
    for (int32_t i = table->end - 1; i >= end; i--) {
        if (entries[i] != NO_BLOCK) {
            block_drop(tables->blocks, entries[i], seq, slides);
            seq_table_put(tables, seq, i, NO_BLOCK);
        }
    }
    set_end(tables, table, min_i32(table->end, end));
}

void seq_table_admit(struct seq_table_set *tables, int32_t seq, const struct seq_table *admitted)
{
    struct seq_table *table = &tables->at[seq];
    promise_remove(&tables->promises, &table->promise, table->end);
    table->kept_end = admitted->kept_end;
    table->hole_end = admitted->hole_end;
    table->end = admitted->end;
    table->promise = admitted->promise;
    promise_add(&tables->promises, &table->promise, table->end);
}

void seq_table_withdraw(struct seq_table_set *tables, int32_t seq)
{
    struct seq_table *table = &tables->at[seq];
    const int32_t *entries = seq_table_entries(tables, seq);
    for (int32_t i = 0; seq_table_slides(table) && i < table->end; i++) {
        if (entries[i] != NO_BLOCK) {
            block_stop_sliding(tables->blocks, entries[i]);
        }
    }
    promise_remove(&tables->promises, &table->promise, table->end);
    table->promise = (struct promise){0};
}

int32_t seq_table_num_spare(const struct seq_table_set *tables)
{
    const int64_t reserved = promise_total(&tables->promises) - tables->blocks->num_windowed;
    const int64_t num_free = block_num_free(tables->blocks);
    /* A step may hold a copied block beside its copy, which counts as given twice until it ends. */
    return (int32_t)(reserved > 0 ? num_free - reserved : num_free);
}

/* hole_end and end of a table that was cut to `length` tokens. The block of position `length` may
 * have been released (a window of one key needs nothing before it): then the table ends there and
 * the next append maps it anew. */
static struct seq_table cut_at(const struct seq_table_set *tables, const struct seq_table *table,
                               int32_t length)
{
    const int32_t block_size = tables->blocks->block_size;
    const int32_t tail = length / block_size;
    const bool tail_is_gone = tail >= table->kept_end && tail < table->hole_end;
    struct seq_table cut = *table;
    cut.end = min_i32(table->end, tail_is_gone ? tail : config_blocks_of_cells(length, block_size));
    cut.hole_end = max_i32(table->kept_end, min_i32(table->hole_end, tail));
    return cut;
}

void seq_table_cut(struct seq_table_set *tables, int32_t seq, int32_t length)
{
    struct seq_table *table = &tables->at[seq];
    const struct seq_table cut = cut_at(tables, table, length);
    if (cut.end < table->end) {
        promise_end_copy(&tables->promises, &table->promise);
    }
    seq_table_shrink(tables, seq, cut.end);
    if (cut.hole_end < table->hole_end) {
        promise_restart(&tables->promises, &table->promise, cut.end);
    }
    table->hole_end = cut.hole_end;
}

/* Blocks promised once more when the table is cut in front of its hole: it will slide again. */
static int64_t restarted(const struct seq_table_set *tables, const struct seq_table *table,
                         const struct seq_table *cut)
{
    struct promise_set after = tables->promises;
    struct promise promise = table->promise;
    if (cut->hole_end < table->hole_end) {
        promise_restart(&after, &promise, cut->end);
    }
    return promise_total(&after) - promise_total(&tables->promises);
}

int32_t seq_table_cut_spare(const struct seq_table_set *tables, int32_t seq, int32_t length)
{
    const struct seq_table *table = &tables->at[seq];
    const struct seq_table cut = cut_at(tables, table, length);
    const int32_t *entries = seq_table_entries(tables, seq);
    int32_t num_freed = 0;
    if (seq_table_slides(table)) {
        return (int32_t)restarted(tables, table, &cut);
    }
    for (int32_t i = cut.end; i < table->end; i++) {
        num_freed +=
            entries[i] != NO_BLOCK && pkv_pool_ref_count(tables->blocks->pool, entries[i]) == 1;
    }
    const int32_t copies = cut.end < table->end ? table->promise.copies : 0;
    const int32_t owed = promise_owed(&table->promise, cut.end);
    return max_i32(owed - promise_owed(&table->promise, table->end) - copies - num_freed, 0);
}

void seq_table_fork(struct seq_table_set *tables, int32_t parent, int32_t child, int32_t length,
                    int32_t num_held)
{
    const struct seq_table cut = cut_at(tables, &tables->at[parent], length);
    const int32_t block_size = tables->blocks->block_size;
    const int32_t *from = seq_table_entries(tables, parent);
    seq_table_set(tables, child, cut.end);
    for (int32_t i = 0; i < cut.end; i++) {
        if (from[i] == NO_BLOCK) {
            continue;
        }
        const int32_t first = i * block_size;
        block_share(tables->blocks, from[i], min_i32(block_size, length - first), parent,
                    min_i32(block_size, num_held - first));
        seq_table_put(tables, child, i, from[i]);
    }
    tables->at[child].hole_end = cut.hole_end;
    tables->at[child].end = cut.end;
}

int32_t seq_table_fork_spare(const struct seq_table_set *tables, int32_t parent, int32_t length)
{
    const struct seq_table *table = &tables->at[parent];
    const int32_t *entries = seq_table_entries(tables, parent);
    const int32_t end = seq_table_slides(table) ? cut_at(tables, table, length).end : 0;
    int32_t count = 0;
    for (int32_t i = 0; i < end; i++) {
        count += entries[i] != NO_BLOCK && block_is_windowed(tables->blocks, entries[i]);
    }
    return count;
}

void seq_table_reclaim(struct seq_table_set *tables, int32_t seq, int32_t length)
{
    struct seq_table *table = &tables->at[seq];
    const int64_t window = tables->sliding_window;
    const int32_t needed = first_needed_block(length, window, tables->blocks->block_size);
    const int32_t *entries = seq_table_entries(tables, seq);
    const bool slides = seq_table_slides(table);
    for (; table->hole_end < needed; table->hole_end++) {
        block_drop_out_of_window(tables->blocks, entries[table->hole_end], seq, slides);
        seq_table_put(tables, seq, table->hole_end, NO_BLOCK);
    }
}

int32_t seq_table_next_resident(const struct seq_table_set *tables, int32_t seq, int32_t length)
{
    const struct seq_table *table = &tables->at[seq];
    const int32_t block_size = tables->blocks->block_size;
    const int64_t window = tables->sliding_window;
    const int64_t first = first_needed_key(length, window);
    /* The hole, in keys, and the keys [first, length). */
    const int64_t hole_begin = (int64_t)table->kept_end * block_size;
    const int64_t hole_end = (int64_t)table->hole_end * block_size;
    if (first >= hole_end || length <= hole_begin || first >= length || hole_begin >= hole_end) {
        return length;
    }
    /* The shortest length whose window begins behind the hole. */
    return (int32_t)(hole_end + window - 1);
}

int32_t seq_table_min_length(const struct seq_table_set *tables, int32_t seq, int32_t length)
{
    const struct seq_table *table = &tables->at[seq];
    const int64_t window = tables->sliding_window;
    if (window <= 1 || table->hole_end == table->kept_end) {
        return 0; /* nothing was released, or a query sees its own key alone */
    }
    const int64_t first = (int64_t)table->hole_end * tables->blocks->block_size + window - 1;
    return first < length ? (int32_t)first : length;
}
