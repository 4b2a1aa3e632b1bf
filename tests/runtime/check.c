/* SPDX-License-Identifier: MIT
 *
 * The checker of a cache is what most other cases rely on, so here it is shown to speak: for every
 * line that it can report, one stored fact is broken, the line is heard, the fact is put back and
 * the cache is sound again. A scene is a small cache in one situation; its rows are damages. Each
 * scene says which sequences it has; block size 4, 16 blocks a group, at most 8 sequences. */
#include <stdio.h>
#include <string.h>

#include "alloc/block_pool.h"
#include "reuse_case.h"
#include "runtime/cache.h"
#include "runtime/reservation.h"
#include "runtime/seq_table.h"
#include "slots/slot_map.h"

/* What the log hook looks for, and what it got since. */
static struct {
    const char *wanted;
    int32_t num_lines;
    bool found;
} heard;

static void listen(void *context, enum pkv_log_level level, const char *line)
{
    (void)context;
    (void)level;
    heard.num_lines++;
    heard.found |= strstr(line, heard.wanted) != NULL;
}

/* --- damages */

/* The one fact that is broken, as it was. */
static struct {
    void *at;
    size_t bytes;
    unsigned char before[8];
} fact;

static void put(void *at, const void *value, size_t bytes)
{
    fact.at = at;
    fact.bytes = bytes;
    memcpy(fact.before, at, bytes);
    memcpy(at, value, bytes);
}

static void put_int(int32_t *at, int32_t value)
{
    put(at, &value, sizeof value);
}

static void put_bool(bool *at, int32_t value)
{
    const bool is_set = value != 0;
    put(at, &is_set, sizeof is_set);
}

static void put_state(struct seq *seq, enum seq_state state)
{
    put(&seq->state, &state, sizeof state);
}

static void put_back(void)
{
    memcpy(fact.at, fact.before, fact.bytes);
}

struct damage {
    const char *report; /* part of a line that must be heard */
    void (*make)(pkv_cache *cache, int32_t value);
    int32_t value;
};

static bool is_reported(pkv_cache *cache, const struct damage *damage)
{
    heard.num_lines = 0;
    heard.found = false;
    heard.wanted = damage->report;
    damage->make(cache, damage->value);
    const int32_t broken = pkv_cache_check(cache);
    const int32_t num_lines = heard.num_lines;
    put_back();
    return broken > 0 && broken == num_lines && heard.found && pkv_cache_check(cache) == 0 &&
           heard.num_lines == num_lines;
}

static void assert_reported(pkv_cache *cache, const struct damage *damages, size_t count)
{
    CU_ASSERT_EQUAL_FATAL(pkv_cache_check(cache), 0);
    for (size_t i = 0; i < count; i++) {
        const bool is_right = is_reported(cache, &damages[i]);
        if (!is_right) {
            printf("\n    row %d, \"%s\" with %d: not reported, or not undone\n", (int)i,
                   damages[i].report, (int)damages[i].value);
        }
        CU_ASSERT(is_right);
    }
}

#define ASSERT_REPORTED(cache, damages)                                                            \
    assert_reported((cache), (damages), sizeof(damages) / sizeof(damages)[0])

static void open_listening(struct runtime_case *c)
{
    c->config.hooks.log = listen;
    heard.wanted = "";
    case_open(c);
}

static struct block *block_at(pkv_cache *cache, int32_t group, int32_t seq, int32_t i)
{
    struct group *of = &cache->groups[group];
    return &of->blocks.at[seq_table_entries(&of->tables, seq)[i]];
}

static struct block_pool_record *record_at(pkv_cache *cache, int32_t group, int32_t seq, int32_t i)
{
    struct group *of = &cache->groups[group];
    return &of->blocks.pool->records[seq_table_entries(&of->tables, seq)[i]];
}

/* --- two sequences that share: 0 of 10 tokens, 1 forked from it at 6, 2 admitted for 12 tokens and
 * written to 5; block 15 is free, sequences 3 .. 7 are free and listed in that order */

static struct case_seq seqs[3];

static void open_family(struct runtime_case *c)
{
    case_init(c);
    open_listening(c);
    ASSERT_STATUS(PKV_OK, case_create(c, &seqs[0], NULL));
    ASSERT_STATUS(PKV_OK, case_append(c, &seqs[0], 10));
    ASSERT_STATUS(PKV_OK, case_fork(c, &seqs[0], 6, &seqs[1]));
    ASSERT_STATUS(PKV_OK, case_create(c, &seqs[2], NULL));
    ASSERT_STATUS(PKV_OK, case_admit(c, &seqs[2], 5, 7, NULL));
    ASSERT_STATUS(PKV_OK, case_append(c, &seqs[2], 5));
    CU_ASSERT(c->cache->seqs.at[0].length == 10 && c->cache->seqs.at[1].length == 6);
    CU_ASSERT(c->cache->groups[0].tables.at[2].end == 2 && c->cache->seqs.first_free == 3);
    CU_ASSERT_EQUAL(pkv_pool_ref_count(c->cache->groups[0].blocks.pool, 15), 0);
}

static void set_free_length(pkv_cache *cache, int32_t value)
{
    put_int(&cache->seqs.at[7].length, value);
}

static void set_length(pkv_cache *cache, int32_t value)
{
    put_int(&cache->seqs.at[0].length, value);
}

static void set_state(pkv_cache *cache, int32_t value)
{
    put_state(&cache->seqs.at[0], (enum seq_state)value);
}

static void set_in_step(pkv_cache *cache, int32_t value)
{
    put_bool(&cache->seqs.at[0].in_step, value);
}

static void set_num_free_seqs(pkv_cache *cache, int32_t value)
{
    put_int(&cache->seqs.num_free, value);
}

static void set_first_free_seq(pkv_cache *cache, int32_t value)
{
    put_int(&cache->seqs.first_free, value);
}

static void set_next_of_first(pkv_cache *cache, int32_t value)
{
    put_int(&cache->seqs.at[3].next_free, value);
}

static void set_next_of_last(pkv_cache *cache, int32_t value)
{
    put_int(&cache->seqs.at[7].next_free, value);
}

static void damage_to_sequences_is_reported(void)
{
    static const struct damage damages[] = {
        {"a length out of range", set_free_length, -1},
        {"a length out of range", set_free_length, 65},
        {"a length out of range", set_length, -1},
        {"a dying sequence outside a step", set_state, SEQ_DYING},
        {"a sequence in a step that is not open", set_in_step, 1},
        {"the number of free sequences", set_num_free_seqs, 4},
        {"the number of free sequences", set_num_free_seqs, 6},
        {"the number of free sequences", set_state, SEQ_FREE},
        {"the list of free sequences", set_first_free_seq, NO_SEQ},
        {"the list of free sequences", set_first_free_seq, -2},
        {"the list of free sequences", set_first_free_seq, 8},
        {"the list of free sequences", set_next_of_first, 0}, /* is live */
        {"the list of free sequences", set_next_of_first, 5}, /* leaves one out */
        {"the list of free sequences", set_next_of_last, 3},  /* a ring */
        {"the list of free sequences", set_next_of_last, -2}, /* of the right length */
        {"the list of free sequences", set_state, SEQ_FREE},
    };
    struct runtime_case c;
    open_family(&c);
    ASSERT_REPORTED(c.cache, damages);
    case_close(&c);
}

static void set_first_entry(pkv_cache *cache, int32_t value)
{
    put_int(&seq_table_entries(&cache->groups[0].tables, 0)[0], value);
}

static void repeat_entry(pkv_cache *cache, int32_t value)
{
    int32_t *entries = seq_table_entries(&cache->groups[0].tables, 0);
    put_int(&entries[1], entries[value]);
}

static void set_entry_past_end(pkv_cache *cache, int32_t value)
{
    put_int(&seq_table_entries(&cache->groups[0].tables, 0)[3], value);
}

static void set_last_entry(pkv_cache *cache, int32_t value)
{
    put_int(&seq_table_entries(&cache->groups[0].tables, 0)[15], value);
}

static void set_tail_block(pkv_cache *cache, int32_t value)
{
    put_int(&cache->groups[0].tables.at[0].tail_block, value);
}

static void set_end(pkv_cache *cache, int32_t value)
{
    put_int(&cache->groups[0].tables.at[0].end, value);
}

static void set_num_set(pkv_cache *cache, int32_t value)
{
    put_int(&cache->groups[0].tables.num_set[0], value);
}

static void set_kept_end(pkv_cache *cache, int32_t value)
{
    put_int(&cache->groups[0].tables.at[0].kept_end, value);
}

static void set_hole_end(pkv_cache *cache, int32_t value)
{
    put_int(&cache->groups[0].tables.at[0].hole_end, value);
}

static void set_promised_end(pkv_cache *cache, int32_t value)
{
    put_int(&cache->groups[0].tables.at[2].promise.end, value);
}

static void set_promised_at_once(pkv_cache *cache, int32_t value)
{
    put_int(&cache->groups[0].tables.at[2].promise.at_once, value);
}

static void put_wide(int64_t *at, int64_t value)
{
    put(at, &value, sizeof value);
}

static void set_owed(pkv_cache *cache, int32_t value)
{
    put_wide(&cache->groups[0].tables.promises.owed, value);
}

static void set_excess(pkv_cache *cache, int32_t value)
{
    put_wide(&cache->groups[0].tables.promises.excess, value);
}

static void set_num_sliding(pkv_cache *cache, int32_t value)
{
    put_int(&block_at(cache, 0, 2, 1)->num_sliding, value);
}

static void set_num_runs(pkv_cache *cache, int32_t value)
{
    put_wide(&cache->groups[0].tables.num_runs, value);
}

static void set_num_windowed(pkv_cache *cache, int32_t value)
{
    put_int(&cache->groups[0].blocks.num_windowed, value);
}

static void damage_to_promises_is_reported(void)
{
    static const struct damage damages[] = {
        {"the sum of promises", set_promised_end, 4},
        {"the sum of promises", set_promised_at_once, 2},
        {"the sum of promises", set_owed, 0},
        {"the sum of promises", set_excess, 1},
        {"more promised than free", set_owed, 17},
        {"a block's number of holders that slide", set_num_sliding, 1},
        {"the number of blocks that windows alone hold", set_num_windowed, 1},
        {"the runs of blocks in tables", set_num_runs, 0},
    };
    struct runtime_case c;
    open_family(&c);
    ASSERT_REPORTED(c.cache, damages);
    case_close(&c);
}

static void damage_to_tables_is_reported(void)
{
    static const struct damage damages[] = {
        {"an entry outside the pool", set_first_entry, -1},
        {"an entry outside the pool", set_first_entry, -2},
        {"an entry outside the pool", set_first_entry, 16},
        {"a block twice in one table", repeat_entry, 0},
        {"a table's bounds", set_end, -1},
        {"a table's bounds", set_end, 17},
        {"a table's bounds", set_num_set, 2},
        {"a table's bounds", set_num_set, 17},
        {"a table's bounds", set_kept_end, 1},
        {"a table's bounds", set_hole_end, -1},
        {"a table that ends before its tokens", set_end, 1},
        {"an entry where nothing should be mapped", set_end, 2},
        {"an entry where nothing should be mapped", set_entry_past_end, 15},
        {"an entry where nothing should be mapped", set_last_entry, 15},
        {"an entry where nothing should be mapped", set_last_entry, -2},
        {"a needed key that is not resident", set_hole_end, 1},
        {"a newest entry that names another block", set_tail_block, 15},
        {"a reserved block that is not the sequence's own", set_length, 0},
    };
    struct runtime_case c;
    open_family(&c);
    seq_table_set(&c.cache->groups[0].tables, 0, 16); /* as if it had been that long once */
    ASSERT_REPORTED(c.cache, damages);
    case_close(&c);
}

static void set_shared_frozen(pkv_cache *cache, int32_t value)
{
    put_int(&block_at(cache, 0, 0, 1)->frozen, value);
}

static void set_shared_writer(pkv_cache *cache, int32_t value)
{
    put_int(&block_at(cache, 0, 0, 1)->writer, value);
}

static void set_own_frozen(pkv_cache *cache, int32_t value)
{
    put_int(&block_at(cache, 0, 0, 2)->frozen, value);
}

static void set_own_writer(pkv_cache *cache, int32_t value)
{
    put_int(&block_at(cache, 0, 0, 2)->writer, value);
}

static void set_own_stale(pkv_cache *cache, int32_t value)
{
    put_bool(&block_at(cache, 0, 0, 2)->is_stale, value);
}

static void set_own_count(pkv_cache *cache, int32_t value)
{
    put_int(&record_at(cache, 0, 0, 2)->ref_count, value);
}

static void set_shared_count(pkv_cache *cache, int32_t value)
{
    put_int(&record_at(cache, 0, 0, 0)->ref_count, value);
}

static void set_free_frozen(pkv_cache *cache, int32_t value)
{
    put_int(&cache->groups[0].blocks.at[15].frozen, value);
}

static void set_free_writer(pkv_cache *cache, int32_t value)
{
    put_int(&cache->groups[0].blocks.at[15].writer, value);
}

static void set_scratch(pkv_cache *cache, int32_t value)
{
    put_int(&cache->groups[0].blocks.pool->records[15].scratch, value);
}

static void damage_to_blocks_is_reported(void)
{
    static const struct damage damages[] = {
        {"a reader beyond the frozen cells", set_shared_frozen, 1},      /* of the child */
        {"a reader beyond the frozen cells", set_shared_writer, NO_SEQ}, /* of the parent */
        {"a reader beyond the frozen cells", set_shared_writer, 1},
        {"a count that is not the number of holders", set_own_count, 0},
        {"a count that is not the number of holders", set_own_count, 2},
        {"a count that is not the number of holders", set_shared_count, 1},
        {"a count that is not the number of holders", set_shared_count, 3},
        {"a count that is not the number of holders", set_first_entry, 15},
        {"a held block to be overwritten", set_own_stale, 1},
        {"a writer that does not hold its block", set_own_writer, 1},
        {"a writer that does not hold its block", set_shared_writer, 2},
        {"a writer that does not hold its block", set_free_writer, 0},
        {"frozen cells without a second holder", set_own_frozen, 1},
        {"frozen cells without a second holder", set_free_frozen, 1},
        {"more frozen cells than a block has", set_shared_frozen, -1},
        {"more frozen cells than a block has", set_shared_frozen, 5},
        {"a scratch count is not zero", set_scratch, 1}, /* pkv_pool_check's */
    };
    struct runtime_case c;
    open_family(&c);
    ASSERT_REPORTED(c.cache, damages);
    case_close(&c);
}

/* --- a window of 4 keys behind 2 kept tokens: sequence 0 of 14 tokens has given block 1 back */

static void set_hole_entry(pkv_cache *cache, int32_t value)
{
    put_int(&seq_table_entries(&cache->groups[0].tables, 0)[1], value);
}

static void damage_to_a_window_is_reported(void)
{
    static const struct damage damages[] = {
        {"an entry where nothing should be mapped", set_hole_entry, 15},
        {"an entry where nothing should be mapped", set_kept_end, 0},
        {"an entry outside the pool", set_first_entry, NO_BLOCK},
        {"an entry outside the pool", set_hole_end, 1},
        {"a table's bounds", set_kept_end, 3},
        {"a table's bounds", set_hole_end, 0},
        {"a needed key that is not resident", set_hole_end, 3},
        {"a needed key that is not resident", set_length, 10},
    };
    struct runtime_case c;
    case_init(&c);
    c.groups[0].sliding_window = 4;
    c.groups[0].kept_prefix = 2;
    open_listening(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[0], NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[0], 14));
    const struct seq_table *table = &c.cache->groups[0].tables.at[0];
    CU_ASSERT(table->kept_end == 1 && table->hole_end == 2 && table->end == 4);
    ASSERT_REPORTED(c.cache, damages);
    case_close(&c);
}

/* --- an open step: row 0 is sequence 0 of 8 tokens, which takes a block; row 1 is sequence 1,
 * forked at 6, which copies the block that it shares; row 2 is sequence 2, destroyed since */

static void set_copied_from(pkv_cache *cache, int32_t value)
{
    put_int(&cache->groups[0].step.reservations[1].copied_from, value);
}

static void set_copied_from_of_none(pkv_cache *cache, int32_t value)
{
    put_int(&cache->groups[0].step.reservations[0].copied_from, value);
}

static void set_is_open(pkv_cache *cache, int32_t value)
{
    put_bool(&cache->step.is_open, value);
}

static void set_dying_in_step(pkv_cache *cache, int32_t value)
{
    put_bool(&cache->seqs.at[2].in_step, value);
}

static void set_num_rows(pkv_cache *cache, int32_t value)
{
    put_int(&cache->step.num_rows, value);
}

static void set_taken_writer(pkv_cache *cache, int32_t value)
{
    put_int(&block_at(cache, 0, 0, 2)->writer, value);
}

static void damage_to_an_open_step_is_reported(void)
{
    static const struct damage damages[] = {
        {"a copy source outside the pool", set_copied_from, -2},
        {"a copy source outside the pool", set_copied_from, 16},
        {"a count that is not the number of holders", set_copied_from, NO_BLOCK},
        {"a count that is not the number of holders", set_copied_from, 15},
        {"a count that is not the number of holders", set_copied_from_of_none, 0},
        {"a count that is not the number of holders", set_num_rows, 1},
        {"a count that is not the number of holders", set_is_open, 0},
        {"a sequence in a step that is not open", set_is_open, 0},
        {"a dying sequence outside a step", set_dying_in_step, 0},
        {"a reserved block that is not the sequence's own", set_taken_writer, NO_SEQ},
    };
    struct runtime_case c;
    struct case_step step = {0};
    case_init(&c);
    open_listening(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[0], NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[0], 8));
    ASSERT_STATUS(PKV_OK, case_fork(&c, &seqs[0], 6, &seqs[1]));
    ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[2], NULL));
    for (int32_t i = 0; i < 3; i++) {
        case_row(&step, &seqs[i], 1);
    }
    ASSERT_STATUS(PKV_OK, case_begin(&c, &step, 3));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seqs[2].handle));
    CU_ASSERT_NOT_EQUAL(c.cache->groups[0].step.reservations[1].copied_from, NO_BLOCK);
    ASSERT_REPORTED(c.cache, damages);
    ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step.handle));
    case_close(&c);
}

/* --- a prefix cache under a field with a quota, group 1 with a window of 4: sequence 0 of 13
 * tokens has published three blocks, of which a pin holds the first two; sequence 1 is empty */

static struct prefix_seq named[2];

static void open_published(struct runtime_case *c)
{
    pkv_pin pin = {0};
    int32_t num_pinned = -1;
    const struct pkv_namespace_field field = prefix_field_of(7, "tenant", 0);
    const struct pkv_seq_options options = {
        .size = sizeof options, .namespace_fields = &field, .num_namespace_fields = 1};
    prefix_init(c);
    case_add_group(c)->sliding_window = 4;
    case_add_layer(c, 1);
    open_listening(c);
    ASSERT_STATUS(PKV_OK, pkv_namespace_quota(c->cache, &field, 20));
    ASSERT_STATUS(PKV_OK, prefix_create(c, &named[0], 100, &options));
    ASSERT_STATUS(PKV_OK, prefix_create(c, &named[1], 500, &options));
    prefix_append(c, &named[0], 8);
    ASSERT_STATUS(PKV_OK, pkv_prefix_pin(c->cache, &named[0].options, PROMPT(named[0].ids, 8), 0, 0,
                                         &pin, &num_pinned));
    prefix_append(c, &named[0], 5);
    CU_ASSERT(num_pinned == 8 && c->cache->pins.at[0].num_nodes == 2);
    CU_ASSERT(c->cache->seqs.at[0].reuse.num_published == 3 && c->cache->seqs.at[0].length == 13);
    CU_ASSERT(c->cache->groups[0].blocks.num_pinned == 2 &&
              c->cache->groups[1].blocks.num_pinned == 1);
}

static void set_num_published(pkv_cache *cache, int32_t value)
{
    put_int(&cache->seqs.at[0].reuse.num_published, value);
}

static void set_num_tried(pkv_cache *cache, int32_t value)
{
    put_int(&cache->seqs.at[0].reuse.num_tried, value);
}

static void set_newest(pkv_cache *cache, int32_t value)
{
    put_int(&cache->seqs.at[0].reuse.newest.index, value);
}

static void set_newest_of_none(pkv_cache *cache, int32_t value)
{
    put_int(&cache->seqs.at[1].reuse.newest.index, value);
}

static void age_newest(pkv_cache *cache, int32_t value)
{
    uint32_t *generation = &cache->seqs.at[0].reuse.newest.generation;
    const uint32_t other = *generation + (uint32_t)value;
    put(generation, &other, sizeof other);
}

static void set_own_token(pkv_cache *cache, int32_t value)
{
    put_int(&cache->reuse.tokens.ids[value], 9);
}

static void add_charge(pkv_cache *cache, int32_t value)
{
    int32_t *charged = &cache->groups[0].tables.at[0].charged;
    put_int(charged, *charged + value);
}

static void set_charge_of_none(pkv_cache *cache, int32_t value)
{
    put_int(&cache->groups[1].tables.at[1].charged, value);
}

static void set_sweep_left(pkv_cache *cache, int32_t value)
{
    put_int(&cache->reuse.index->sweep_left, value);
}

static void damage_to_what_was_published_is_reported(void)
{
    static const struct damage damages[] = {
        {"more published than written", set_length, 11},
        {"more published than written", set_num_tried, 2},
        {"more published than written", set_num_published, 4},
        {"a newest node", set_num_published, 2},
        {"a newest node", set_num_published, 0},
        {"a newest node", set_newest, PREFIX_NONE},
        {"a newest node", set_newest, 0},
        {"a newest node", set_newest_of_none, 0},
        {"a newest node", age_newest, 1},
        {"tokens of a newest node", set_own_token, 8},
        {"tokens of a newest node", set_own_token, 11},
        {"a charge that is not what is held", add_charge, 1},
        {"a charge that is not what is held", add_charge, -1},
        {"a charge that is not what is held", set_charge_of_none, 1},
        {"prefix index: ", set_sweep_left, 99}, /* prefix_index_check's */
    };
    struct runtime_case c;
    open_published(&c);
    ASSERT_REPORTED(c.cache, damages);
    case_close(&c);
}

static void age_leaf(pkv_cache *cache, int32_t value)
{
    uint32_t *generation = &cache->pins.at[0].leaf.generation;
    const uint32_t other = *generation + (uint32_t)value;
    put(generation, &other, sizeof other);
}

static void set_leaf(pkv_cache *cache, int32_t value)
{
    put_int(&cache->pins.at[0].leaf.index, value);
}

static void set_num_nodes(pkv_cache *cache, int32_t value)
{
    put_int(&cache->pins.at[0].num_nodes, value);
}

static void set_max_rewind(pkv_cache *cache, int32_t value)
{
    put_int(&cache->pins.at[0].max_rewind, value);
}

static void set_leaf_block(pkv_cache *cache, int32_t value)
{
    struct prefix_index *index = cache->reuse.index;
    put_int(&prefix_node_blocks(&index->nodes, cache->pins.at[0].leaf.index)[value], NO_BLOCK);
}

static void set_first_leaf_block(pkv_cache *cache, int32_t value)
{
    put_int(prefix_node_blocks(&cache->reuse.index->nodes, cache->pins.at[0].leaf.index), value);
}

static void set_count_of_pins(pkv_cache *cache, int32_t value)
{
    put_int(&cache->pins.num_used, value);
}

static void set_free_pin(pkv_cache *cache, int32_t value)
{
    put_int(&cache->pins.first_free, value);
}

static void set_num_pins(pkv_cache *cache, int32_t value)
{
    put_int(&block_at(cache, 0, 0, 1)->num_pins, value);
}

static void set_num_pins_of_none(pkv_cache *cache, int32_t value)
{
    put_int(&block_at(cache, 0, 0, 2)->num_pins, value);
}

static void set_num_pinned(pkv_cache *cache, int32_t value)
{
    put_int(&cache->groups[1].blocks.num_pinned, value);
}

static void set_pinned_count(pkv_cache *cache, int32_t value)
{
    put_int(&record_at(cache, 0, 0, 1)->ref_count, value);
}

static void damage_to_pins_is_reported(void)
{
    static const struct damage damages[] = {
        {"a pin whose prefix is broken", age_leaf, 1},
        {"a pin whose prefix is broken", set_leaf, PREFIX_NONE},
        {"a pin whose prefix is broken", set_num_nodes, 1},
        {"a pin whose prefix is broken", set_num_nodes, 3},
        {"a pin without its block", set_leaf_block, 0},
        {"a pin without its block", set_leaf_block, 1},
        {"a pin without its block", set_first_leaf_block, 1 << 28},
        {"a pin without its block", set_first_leaf_block, -2},
        {"the number of pins", set_count_of_pins, 0},
        {"the number of pins", set_count_of_pins, 2},
        {"the list of free pins", set_free_pin, NO_PIN},
        {"the list of free pins", set_free_pin, 0},       /* which is in use */
        {"the list of free pins", set_free_pin, 1 << 28}, /* which there is not */
        {"a block's number of pins", set_num_pins, 0},
        {"a block's number of pins", set_num_pins, 2},
        {"a block's number of pins", set_num_pins_of_none, 1},
        {"a block's number of pins", set_num_nodes, 0},
        {"a block's number of pins", set_max_rewind, 8}, /* the window's would be more */
        {"the number of pinned blocks", set_num_pinned, 0},
        {"the number of pinned blocks", set_num_pinned, 2},
        {"a count that is not the number of holders", set_pinned_count, 1},
        {"a count that is not the number of holders", set_pinned_count, 3},
    };
    struct runtime_case c;
    open_published(&c);
    ASSERT_REPORTED(c.cache, damages);
    case_close(&c);
}

/* --- a continuous group 1: sequence 0 has slot 0, slots 1 .. 7 are free */

static void set_slot_length(pkv_cache *cache, int32_t value)
{
    put_int(&cache->groups[1].slots->records[7].length, value);
}

static void damage_to_a_continuous_group_is_reported(void)
{
    static const struct damage damages[] = {
        {"free, but with a length", set_slot_length, 3}, /* pkv_slots_check's */
        {"slots and sequences", set_num_free_seqs, 6},
        {"slots and sequences", set_num_free_seqs, 8},
    };
    struct runtime_case c;
    case_init(&c);
    case_add_group(&c)->storage = PKV_STORAGE_CONTINUOUS;
    case_add_layer(&c, 1);
    open_listening(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[0], NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[0], 5));
    ASSERT_REPORTED(c.cache, damages);
    /* a slot that no sequence has, and nothing else */
    pkv_slot slot = {0};
    heard.wanted = "slots and sequences (group 1";
    heard.found = false;
    ASSERT_STATUS(PKV_OK, pkv_slots_claim(c.cache->groups[1].slots, &slot));
    CU_ASSERT(pkv_cache_check(c.cache) == 1 && heard.found);
    ASSERT_STATUS(PKV_OK, pkv_slots_release(c.cache->groups[1].slots, slot));
    case_close(&c);
}

/* The bounds themselves are no damage: all 64 tokens, all 16 blocks. */
static void a_full_sequence_is_sound(void)
{
    struct runtime_case c;
    case_init(&c);
    case_open(&c);
    ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[0], NULL));
    ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[0], 64));
    CU_ASSERT(c.cache->groups[0].tables.at[0].end == 16 && case_free(&c, 0) == 0);
    case_close(&c);
}

static void violations_of_one_kind_are_counted_each(void)
{
    struct runtime_case c;
    open_family(&c);
    struct block *own = block_at(c.cache, 0, 0, 2);
    struct block *reserved = block_at(c.cache, 0, 2, 1);
    own->is_stale = reserved->is_stale = true;
    CU_ASSERT_EQUAL(pkv_cache_check(c.cache), 2);
    own->is_stale = reserved->is_stale = false;
    c.cache->seqs.at[6].length = c.cache->seqs.at[7].length = -1;
    CU_ASSERT_EQUAL(pkv_cache_check(c.cache), 2);
    c.cache->seqs.at[6].length = c.cache->seqs.at[7].length = 0;
    case_close(&c);
}

/* As pkv_pool_check and pkv_slots_check have it. */
static void no_cache_is_not_sound(void)
{
    CU_ASSERT_EQUAL(pkv_cache_check(NULL), 1);
    CU_ASSERT_STRING_EQUAL(pkv_last_error(), "cache is NULL");
}

static const struct test_case cases[] = {
    TEST(damage_to_sequences_is_reported),
    TEST(damage_to_tables_is_reported),
    TEST(damage_to_promises_is_reported),
    TEST(damage_to_blocks_is_reported),
    TEST(damage_to_a_window_is_reported),
    TEST(damage_to_an_open_step_is_reported),
    TEST(damage_to_what_was_published_is_reported),
    TEST(damage_to_pins_is_reported),
    TEST(damage_to_a_continuous_group_is_reported),
    TEST(a_full_sequence_is_sound),
    TEST(violations_of_one_kind_are_counted_each),
    TEST(no_cache_is_not_sound),
    TEST_END,
};
const struct test_suite suite_runtime_check = {"runtime_check", cases};
