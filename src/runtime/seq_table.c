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
                                   int32_t num_blocks, int32_t max_rewind)
{
    const int32_t block_size = tables->blocks->block_size;
    const int64_t window = tables->sliding_window;
    const int64_t length = (int64_t)num_blocks * block_size;
    const int64_t query = length > max_rewind ? length - max_rewind : 0;
    struct seq_table table = {.end = num_blocks};
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

void seq_table_reset(struct seq_table_set *tables, int32_t seq, int32_t kept_prefix)
{
    tables->at[seq] = seq_table_adopted(tables, kept_prefix, 0, 0);
}

void seq_table_extend(struct seq_table_set *tables, int32_t seq, int32_t end)
{
    struct seq_table *table = &tables->at[seq];
    int32_t *entries = seq_table_entries(tables, seq);
    seq_table_set(tables, seq, end);
    while (table->end < end) {
        entries[table->end] = block_take(tables->blocks, seq);
        table->end++;
    }
}

void seq_table_reserve(struct seq_table_set *tables, int32_t seq, int32_t end, int64_t num_cells)
{
    seq_table_extend(tables, seq, end);
    tables->at[seq].promised_end = config_blocks_of_cells(num_cells, tables->blocks->block_size);
}

void seq_table_shrink(struct seq_table_set *tables, int32_t seq, int32_t end)
{
    struct seq_table *table = &tables->at[seq];
    int32_t *entries = seq_table_entries(tables, seq);
    while (table->end > end) {
        table->end--;
        if (entries[table->end] != NO_BLOCK) {
            block_drop(tables->blocks, entries[table->end], seq);
            entries[table->end] = NO_BLOCK;
        }
    }
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
    cut.promised_end = 0;
    return cut;
}

void seq_table_cut(struct seq_table_set *tables, int32_t seq, int32_t length)
{
    struct seq_table *table = &tables->at[seq];
    const struct seq_table cut = cut_at(tables, table, length);
    seq_table_shrink(tables, seq, cut.end);
    *table = cut;
}

void seq_table_fork(struct seq_table_set *tables, int32_t parent, int32_t child, int32_t length,
                    int32_t num_held)
{
    const struct seq_table cut = cut_at(tables, &tables->at[parent], length);
    const int32_t block_size = tables->blocks->block_size;
    const int32_t *from = seq_table_entries(tables, parent);
    int32_t *to = seq_table_entries(tables, child);
    seq_table_set(tables, child, cut.end);
    for (int32_t i = 0; i < cut.end; i++) {
        if (from[i] == NO_BLOCK) {
            continue;
        }
        const int32_t first = i * block_size;
        block_share(tables->blocks, from[i], min_i32(block_size, length - first), parent,
                    min_i32(block_size, num_held - first));
        to[i] = from[i];
    }
    tables->at[child].hole_end = cut.hole_end;
    tables->at[child].end = cut.end;
}

void seq_table_reclaim(struct seq_table_set *tables, int32_t seq, int32_t length)
{
    struct seq_table *table = &tables->at[seq];
    const int64_t window = tables->sliding_window;
    const int32_t needed = first_needed_block(length, window, tables->blocks->block_size);
    int32_t *entries = seq_table_entries(tables, seq);
    for (; table->hole_end < needed; table->hole_end++) {
        block_drop_out_of_window(tables->blocks, entries[table->hole_end], seq);
        entries[table->hole_end] = NO_BLOCK;
        if (table->end < table->promised_end && pkv_pool_num_free(tables->blocks->pool) > 0) {
            seq_table_extend(tables, seq, table->end + 1);
        }
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
