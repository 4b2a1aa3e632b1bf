/* SPDX-License-Identifier: MIT
 *
 * What sequences cost follows from what they use, whatever max_seq_len allows. Work is counted in
 * pages of memory that calls have touched, written or read: those of the tables, which the page
 * hook tells from payload by their alignment. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "alloc/mem.h"
#include "reuse_case.h"

#define MAX_MAPS 16
#define PAGE 4096
#define MANY 256

struct map {
    void *at;
    size_t bytes;
    enum pkv_map_kind kind;
    bool is_table; /* of sequences: the index is one of large pages */
};

struct maps {
    struct map at[MAX_MAPS];
    int count;
    int num_unmapped; /* with the very bytes and kind that they were mapped with */
};

static const int32_t limits[] = {4096, 131072, 1048576};
#define NUM_LIMITS (int)(sizeof limits / sizeof limits[0])

static struct prefix_seq a, b;

static void *map(void *context, size_t bytes, size_t alignment, int node, enum pkv_map_kind kind)
{
    static const struct pkv_hooks none;
    struct maps *maps = context;
    (void)node;
    void *at = alignment == MEM_TABLE_ALIGNMENT ? mem_map_table(&none, bytes)
                                                : mem_map(&none, bytes, kind);
    if (at != NULL && maps->count < MAX_MAPS) {
        maps->at[maps->count++] = (struct map){at, bytes, kind, alignment == MEM_TABLE_ALIGNMENT};
    }
    return at;
}

static void unmap(void *context, void *memory, size_t bytes, enum pkv_map_kind kind)
{
    struct maps *maps = context;
    for (int i = 0; i < maps->count; i++) {
        const struct map *map = &maps->at[i];
        maps->num_unmapped += map->at == memory && map->bytes == bytes && map->kind == kind;
    }
    munmap(memory, bytes);
}

static int64_t touched_pages(const struct map *map)
{
    static unsigned char state[1 << 16];
    int64_t count = 0;
    for (size_t first = 0; first < map->bytes; first += sizeof state * PAGE) {
        const size_t left = map->bytes - first;
        const size_t bytes = left < sizeof state * PAGE ? left : sizeof state * PAGE;
        CU_ASSERT_EQUAL_FATAL(mincore((char *)map->at + first, bytes, state), 0);
        for (size_t i = 0; i < (bytes + PAGE - 1) / PAGE; i++) {
            count += state[i] & 1;
        }
    }
    return count;
}

static int64_t touched_table_pages(const struct maps *maps)
{
    int64_t count = 0;
    for (int i = 0; i < maps->count; i++) {
        count += maps->at[i].is_table ? touched_pages(&maps->at[i]) : 0;
    }
    return count;
}

/* A full and a window group with the prefix cache: a sequence has two block tables, a row of ids
 * and a row of extras. */
static void init_limit(struct runtime_case *c, int32_t max_seq_len)
{
    prefix_init(c);
    c->groups[0].num_blocks = 2 * MANY;
    case_add_group(c)->sliding_window = 8;
    case_add_layer(c, 1);
    c->config.max_seqs = MANY;
    c->config.max_seq_len = max_seq_len;
    c->config.num_index_nodes = 8 * MANY;
}

static void open_counting(struct runtime_case *c, struct maps *maps, int32_t max_seq_len)
{
    *maps = (struct maps){.count = 0};
    init_limit(c, max_seq_len);
    c->config.hooks = (struct pkv_hooks){.context = maps, .map_pages = map, .unmap_pages = unmap};
    case_open(c);
    CU_ASSERT(maps->count > 4);
}

/* K4: no call does work by max_seq_len: what a life of 20 tokens touches of the tables is a page a
 * row, at any limit. */
static void no_call_works_by_max_seq_len(void)
{
    for (int i = 0; i < NUM_LIMITS; i++) {
        struct runtime_case c;
        struct maps maps;
        struct pkv_probe probe = {.size = sizeof probe};
        open_counting(&c, &maps, limits[i]);
        CU_ASSERT_EQUAL(touched_table_pages(&maps), 0);
        ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 100, NULL));
        CU_ASSERT_EQUAL(touched_table_pages(&maps), 0);
        a.has_extra = true;
        memset(a.extra, 0, sizeof a.extra);
        a.extra[3] = 7;
        ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 17, 4, NULL));
        CU_ASSERT(touched_table_pages(&maps) <= 4);
        prefix_append(&c, &a, 20);
        CU_ASSERT(touched_table_pages(&maps) <= 4);
        ASSERT_STATUS(PKV_OK, case_fork(&c, &a.seq, 19, &b.seq));
        CU_ASSERT(touched_table_pages(&maps) <= 8);
        ASSERT_STATUS(PKV_OK, case_truncate(&c, &b.seq, 0));
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, b.seq.handle));
        probe = prefix_probe(&c, &a, 17, 0);
        CU_ASSERT_EQUAL(probe.num_cached, 16);
        prefix_destroy(&c, &a);
        CU_ASSERT_EQUAL(case_check(&c), 0);
        CU_ASSERT(touched_table_pages(&maps) <= 8);
        case_close(&c);
    }
}

/* K4: memory is mapped as it is used, true to the page: 256 sequences of one token touch a page
 * each of both block tables and of their ids, and none of their extras. */
static void tables_are_mapped_as_they_are_used(void)
{
    for (int i = 0; i < NUM_LIMITS; i++) {
        static struct case_seq seqs[MANY];
        struct runtime_case c;
        struct maps maps;
        open_counting(&c, &maps, limits[i]);
        for (int s = 0; s < MANY; s++) {
            ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[s], NULL));
            ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[s], 1));
        }
        CU_ASSERT(touched_table_pages(&maps) <= 3 * MANY);
        for (int s = 0; s < MANY; s++) {
            ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seqs[s].handle));
        }
        CU_ASSERT(touched_table_pages(&maps) <= 3 * MANY);
        case_close(&c);
    }
}

static size_t mapped_bytes(const struct maps *maps, enum pkv_map_kind kind)
{
    size_t bytes = 0;
    for (int i = 0; i < maps->count; i++) {
        bytes += maps->at[i].kind == kind ? maps->at[i].bytes : 0;
    }
    return bytes;
}

/* Of payload and tables each byte is counted, and mapped as what it is: a server may want payload
 * in memory that a device sees, and tables anywhere. */
static void the_page_hook_is_told_what_it_maps(void)
{
    struct runtime_case c;
    struct maps maps;
    struct pkv_cache_sizes sizes = {.size = sizeof sizes};
    open_counting(&c, &maps, 4096);
    ASSERT_STATUS(PKV_OK, pkv_cache_size(&c.config, &sizes));
    CU_ASSERT_EQUAL(mapped_bytes(&maps, PKV_MAP_PAYLOAD), sizes.payload_bytes);
    CU_ASSERT_EQUAL(mapped_bytes(&maps, PKV_MAP_TABLES), sizes.table_bytes);
    case_close(&c);
    CU_ASSERT_EQUAL(maps.num_unmapped, maps.count);
}

static int64_t resident_bytes(void)
{
    long total = 0;
    long resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(fscanf(file, "%ld %ld", &total, &resident), 2);
    fclose(file);
    return (int64_t)resident * sysconf(_SC_PAGESIZE);
}

/* K4: the library's own memory is as frugal: no huge page backs a table of which little is used. */
static void the_default_memory_of_tables_has_small_pages(void)
{
    static struct case_seq seqs[MANY];
    struct runtime_case c;
    init_limit(&c, 1048576);
    c.config.hooks = (struct pkv_hooks){0};
    case_open(&c);
    for (int s = 0; s < MANY; s++) {
        ASSERT_STATUS(PKV_OK, case_create(&c, &seqs[s], NULL));
    }
    ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[0], 1)); /* scratch of attention, payload */
    const int64_t before = resident_bytes();
    for (int s = 1; s < MANY; s++) {
        ASSERT_STATUS(PKV_OK, case_append(&c, &seqs[s], 1));
    }
    CU_ASSERT(resident_bytes() - before <= (int64_t)(4 * MANY) * PAGE + (4 << 20));
    for (int s = 0; s < MANY; s++) {
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seqs[s].handle));
    }
    case_close(&c);
}

/* The next n tokens, with their extras or with none given; attention gets zeros. */
static void write_tokens(struct runtime_case *c, struct prefix_seq *seq, int32_t n, bool has_extra)
{
    static const float zeros[64];
    float out[64];
    pkv_step step;
    const struct pkv_batch batch = {
        .size = sizeof batch,
        .seqs = &seq->seq.handle,
        .q_lens = &n,
        .num_rows = 1,
        .num_required_rows = 1,
        .token_ids = seq->ids + seq->seq.length,
        .token_extra = has_extra ? seq->extra + seq->seq.length : NULL,
    };
    const struct pkv_layer_io io = {
        .size = sizeof io, .q = zeros, .k = zeros, .v = zeros, .out = out};
    ASSERT_STATUS(PKV_OK, pkv_step_begin(c->cache, &batch, &step, NULL));
    ASSERT_STATUS(PKV_OK, pkv_step_attend(c->cache, step, 0, &io));
    ASSERT_STATUS(PKV_OK, pkv_step_commit(c->cache, step, NULL));
    seq->seq.length += n;
}

/* K4: extras are cleared only where tokens are: those that come late leave the tokens before them,
 * and the rest of a prompt, without one, in memory that held anything. */
static void late_extras_leave_other_tokens_without(void)
{
    struct runtime_case c;
    prefix_open(&c, 16);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &a, 100, NULL));
    ASSERT_STATUS(PKV_OK, prefix_admit(&c, &a, 24, 0, NULL));
    memset(a.extra, 0, sizeof a.extra);
    write_tokens(&c, &a, 6, false);
    write_tokens(&c, &a, 4, true);
    a.has_extra = true;
    CU_ASSERT_EQUAL(prefix_probe(&c, &a, 24, 0).num_cached, 8);
    CU_ASSERT_EQUAL(prefix_probe(&c, &a, 24, 0).num_pending, 12);
    a.extra[13] = 9;
    write_tokens(&c, &a, 14, true);
    CU_ASSERT_EQUAL(prefix_hit(&c, &a, 24), 20);
    ASSERT_STATUS(PKV_OK, prefix_create(&c, &b, 100, NULL));
    CU_ASSERT_EQUAL(prefix_hit(&c, &b, 24), 12);
    CU_ASSERT_EQUAL(case_check(&c), 0);
    prefix_destroy(&c, &a);
    prefix_destroy(&c, &b);
    case_close(&c);
}

static const struct test_case cases[] = {
    TEST(no_call_works_by_max_seq_len),
    TEST(tables_are_mapped_as_they_are_used),
    TEST(the_page_hook_is_told_what_it_maps),
    TEST(the_default_memory_of_tables_has_small_pages),
    TEST(late_extras_leave_other_tokens_without),
    TEST_END,
};
const struct test_suite suite_runtime_capacity = {"runtime_capacity", cases};
