/* SPDX-License-Identifier: MIT
 *
 * Tables are indexed by absolute position, so a window group's table is a kept head, a hole, and a
 * run that ends at the last cell; three numbers say which entries those are, and the hole only
 * moves forward until the sequence is cut. */
#include "runtime/seq_table.h"

#include "base/error.h"
#include "base/minmax.h"
#include "base/window.h"
#include "runtime/blocks.h"
#include "runtime/config.h"

struct seq_table seq_table_adopted(const struct group *group, int32_t kept_prefix,
                                   int32_t num_blocks, int32_t max_rewind)
{
    const int32_t block_size = group->config->block_size;
    const int64_t window = group->config->sliding_window;
    const int64_t length = (int64_t)num_blocks * block_size;
    const int64_t query = length > max_rewind ? length - max_rewind : 0;
    struct seq_table table = {.end = num_blocks};
    table.kept_end = window > 0 ? config_blocks_of_cells(kept_prefix, block_size) : 0;
    table.frontier = max_i32(table.kept_end, first_needed_block(query, window, block_size));
    return table;
}

int32_t seq_table_num_mapped(const struct seq_table *table, int32_t end)
{
    return min_i32(table->kept_end, end) + max_i32(0, end - table->frontier);
}

void seq_table_reset(struct group *group, int32_t seq, int32_t kept_prefix)
{
    struct seq_table *table = &group->seq_tables[seq];
    *table = seq_table_adopted(group, kept_prefix, 0, 0);
    int32_t *entries = seq_table_entries(group, seq);
    for (int32_t i = 0; i < group->max_blocks; i++) {
        entries[i] = NO_BLOCK;
    }
}

void seq_table_extend(pkv_cache *cache, struct group *group, int32_t seq, int32_t end)
{
    struct seq_table *table = &group->seq_tables[seq];
    int32_t *entries = seq_table_entries(group, seq);
    while (table->end < end) {
        entries[table->end] = blocks_take(cache, group, seq);
        table->end++;
    }
}

void seq_table_reserve(pkv_cache *cache, struct group *group, int32_t seq, int32_t end,
                       int64_t num_cells)
{
    seq_table_extend(cache, group, seq, end);
    group->seq_tables[seq].promised_end =
        config_blocks_of_cells(num_cells, group->config->block_size);
}

void seq_table_shrink(pkv_cache *cache, struct group *group, int32_t seq, int32_t end)
{
    struct seq_table *table = &group->seq_tables[seq];
    int32_t *entries = seq_table_entries(group, seq);
    while (table->end > end) {
        table->end--;
        if (entries[table->end] != NO_BLOCK) {
            blocks_drop(cache, group, entries[table->end], seq);
            entries[table->end] = NO_BLOCK;
        }
    }
}

/* frontier and end of a table that was cut to `length` tokens. The block of position `length` may
 * have been given back (a window of one key needs nothing before it): then the table ends there and
 * the next append maps it anew. */
static struct seq_table cut_at(const struct group *group, const struct seq_table *table,
                               int32_t length)
{
    const int32_t block_size = group->config->block_size;
    const int32_t tail = length / block_size;
    const bool tail_is_gone = tail >= table->kept_end && tail < table->frontier;
    struct seq_table cut = *table;
    cut.end = min_i32(table->end, tail_is_gone ? tail : config_blocks_of_cells(length, block_size));
    cut.frontier = max_i32(table->kept_end, min_i32(table->frontier, tail));
    cut.promised_end = 0;
    return cut;
}

void seq_table_cut(pkv_cache *cache, struct group *group, int32_t seq, int32_t length)
{
    struct seq_table *table = &group->seq_tables[seq];
    const struct seq_table cut = cut_at(group, table, length);
    seq_table_shrink(cache, group, seq, cut.end);
    *table = cut;
}

void seq_table_fork(struct group *group, int32_t parent, int32_t child, int32_t length,
                    int32_t num_held)
{
    const struct seq_table cut = cut_at(group, &group->seq_tables[parent], length);
    const int32_t block_size = group->config->block_size;
    const int32_t *from = seq_table_entries(group, parent);
    int32_t *to = seq_table_entries(group, child);
    for (int32_t i = 0; i < cut.end; i++) {
        if (from[i] == NO_BLOCK) {
            continue;
        }
        const int32_t first = i * block_size;
        blocks_share(group, from[i], min_i32(block_size, length - first), parent,
                     min_i32(block_size, num_held - first));
        to[i] = from[i];
    }
    group->seq_tables[child].frontier = cut.frontier;
    group->seq_tables[child].end = cut.end;
}

void seq_table_reclaim(pkv_cache *cache, struct group *group, int32_t seq, int32_t length)
{
    struct seq_table *table = &group->seq_tables[seq];
    const int64_t window = group->config->sliding_window;
    const int32_t needed = first_needed_block(length, window, group->config->block_size);
    int32_t *entries = seq_table_entries(group, seq);
    for (; table->frontier < needed; table->frontier++) {
        blocks_drop_behind(cache, group, entries[table->frontier], seq);
        entries[table->frontier] = NO_BLOCK;
        if (table->end < table->promised_end && pkv_pool_num_free(group->pool) > 0) {
            seq_table_extend(cache, group, seq, table->end + 1);
        }
    }
}

int32_t seq_table_next_resident(const struct group *group, int32_t seq, int32_t length)
{
    const struct seq_table *table = &group->seq_tables[seq];
    const int32_t block_size = group->config->block_size;
    const int64_t window = group->config->sliding_window;
    const int64_t first = first_needed_key(length, window);
    /* The hole, in keys, and the keys [first, length). */
    const int64_t hole_begin = (int64_t)table->kept_end * block_size;
    const int64_t hole_end = (int64_t)table->frontier * block_size;
    if (first >= hole_end || length <= hole_begin || first >= length || hole_begin >= hole_end) {
        return length;
    }
    /* The shortest length whose window begins behind the hole. */
    return (int32_t)(hole_end + window - 1);
}
