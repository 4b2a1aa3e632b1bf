/* SPDX-License-Identifier: MIT
 *
 * Sequences with state groups that are saved and loaded. Every step compares the states that it
 * reads with its sequence's text (states_case.h); what is freed is poisoned. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/little_endian.h"
#include "pages/saved_format.h"
#include "save_case.h"
#include "states_case.h"

enum { MAX_REWIND = 5, MAX_BYTES = 1 << 15, KEPT = 30 };

static struct state_seq x, y, z;
static struct save_bytes bytes;

static void init(struct runtime_case *c)
{
    states_init(c);
    c->groups[2].max_rewind = c->groups[3].max_rewind = MAX_REWIND;
}

static int32_t held(struct runtime_case *c, int32_t g)
{
    struct pkv_group_usage usage = {.size = sizeof usage};
    ASSERT_STATUS(PKV_OK, pkv_cache_usage(c->cache, g, &usage));
    return usage.held;
}

static void close_case(struct runtime_case *c)
{
    CU_ASSERT_EQUAL(case_check(c), 0);
    case_close(c);
    save_bytes_free(&bytes);
}

/* A text of `length` tokens, the last two of them in steps of their own. */
static void compute(struct runtime_case *c, struct state_seq *seq, int32_t length,
                    int32_t max_rewind)
{
    ASSERT_STATUS(PKV_OK, states_create(c, seq, 0, max_rewind));
    ASSERT_STATUS(PKV_OK, states_admit(c, seq, length, NULL));
    states_append(c, seq, length - seq->length - 2);
    states_append(c, seq, 1);
    states_append(c, seq, 1);
}

/* seq as `from`, of which bytes were saved. */
static void load_as(struct runtime_case *c, const struct state_seq *from, struct state_seq *seq)
{
    *seq = *from;
    ASSERT_STATUS(PKV_OK, save_load(c, &bytes, &seq->handle, NULL));
}

static void states_are_loaded_bit_by_bit(void)
{
    for (int32_t length = 37; length <= 41; length++) {
        struct runtime_case c;
        init(&c);
        case_open(&c);
        compute(&c, &x, length, 0);
        ASSERT_STATUS(PKV_OK, save_to(&c, x.handle, &bytes));
        load_as(&c, &x, &y);
        states_append(&c, &x, 3); /* the saved one stays as it is */
        states_append(&c, &y, 4);
        CU_ASSERT_EQUAL(held(&c, 2), 2);
        case_close(&c);
        init(&c); /* another process, which caches nothing and has other numbers */
        c.groups[2].num_blocks = 7;
        c.groups[2].snapshot_interval = 16;
        case_open(&c);
        load_as(&c, &x, &z);
        z.length = length;
        states_append(&c, &z, 1);
        states_append(&c, &z, 9);
        close_case(&c);
    }
}

/* Every length that the saved one can be cut to or forked at. */
static void a_ring_of_states_is_loaded_whole(void)
{
    struct runtime_case c;
    init(&c);
    c.groups[2].num_blocks = c.groups[3].num_blocks = 40;
    case_open(&c);
    compute(&c, &x, 39, MAX_REWIND);
    const int32_t num_states = held(&c, 2);
    ASSERT_STATUS(PKV_OK, save_to(&c, x.handle, &bytes));
    states_destroy(&c, &x);
    for (int32_t back = 0; back <= MAX_REWIND; back++) {
        load_as(&c, &x, &y);
        CU_ASSERT_EQUAL(held(&c, 2), num_states);
        const int32_t length = y.length - back;
        const enum pkv_status status = states_fork(&c, &y, length, &z);
        CU_ASSERT_EQUAL(status, back < num_states ? PKV_OK : PKV_NOT_RESIDENT);
        CU_ASSERT_EQUAL(states_truncate(&c, &y, length), status);
        states_append(&c, &y, 3);
        if (status == PKV_OK) {
            z.ids[length] = 777;
            states_append(&c, &z, 3);
            states_destroy(&c, &z);
        }
        states_destroy(&c, &y);
    }
    close_case(&c);
}

/* 36 tokens end in a snapshot, of the loaded sequence too. */
static void a_loaded_state_can_be_found(void)
{
    struct runtime_case c;
    init(&c);
    case_open(&c);
    compute(&c, &x, 36, 0);
    ASSERT_STATUS(PKV_OK, save_to(&c, x.handle, &bytes));
    case_close(&c);
    init(&c);
    case_open(&c);
    load_as(&c, &x, &y);
    y.length = 36;
    CU_ASSERT_EQUAL(states_serve(&c, &z, 0, 40, 64), 36);
    states_append(&c, &y, 3);
    close_case(&c);
}

/* Nor the padding of a state, which its group's freed pages have as poison. */
static void poison_is_never_saved(void)
{
    static const unsigned char nan[8] = {255, 255, 255, 255, 255, 255, 255, 255};
    struct runtime_case c;
    init(&c);
    c.groups[2].num_blocks = c.groups[3].num_blocks = 12;
    case_open(&c);
    for (int32_t i = 0; i < 8; i++) { /* every page was used, and is poisoned */
        (void)states_serve(&c, &z, 1000 * (i + 1), 30, 7);
        states_destroy(&c, &z);
    }
    compute(&c, &x, 30, MAX_REWIND);
    ASSERT_STATUS(PKV_OK, save_to(&c, x.handle, &bytes));
    int32_t count = 0;
    for (size_t i = 0; i + sizeof nan <= bytes.count; i++) {
        count += memcmp(bytes.at + i, nan, sizeof nan) == 0;
    }
    CU_ASSERT_EQUAL(count, 1); /* kept_prefix of none */
    close_case(&c);
}

static void a_lost_state_is_saved_as_none(void)
{
    struct runtime_case c;
    init(&c);
    case_open(&c);
    compute(&c, &x, 31, 0);
    const struct state_row row = {&x, 1, NULL};
    pkv_step step;
    ASSERT_STATUS(PKV_OK, states_begin(&c, &row, 1, &step));
    states_run(&c, &row, step, NULL);
    ASSERT_STATUS(PKV_OK, pkv_step_abort(c.cache, step));
    ASSERT_STATUS(PKV_OK, save_to(&c, x.handle, &bytes));
    load_as(&c, &x, &y);
    const struct state_row again = {&y, 1, NULL};
    ASSERT_REFUSED(PKV_NOT_RESIDENT, "has no state", states_begin(&c, &again, 1, &step));
    ASSERT_STATUS(PKV_OK, states_truncate(&c, &y, 0));
    states_append(&c, &y, 5);
    close_case(&c);
}

/* ---- what is refused changes nothing ------------------------------------------------------- */

static void assert_refused(struct runtime_case *c, const char *name, enum pkv_status expected,
                           const char *part)
{
    pkv_seq seq = {0};
    const uint64_t digest = prefix_digest(c);
    const int32_t num_held = held(c, 2) + 100 * held(c, 3);
    ASSERT_CASE_REFUSED(name, expected, part, save_load(c, &bytes, &seq, NULL));
    ASSERT_CASE(name, seq.id == 0 && prefix_digest(c) == digest);
    ASSERT_CASE(name, held(c, 2) + 100 * held(c, 3) == num_held && case_check(c) == 0);
}

static void a_shortage_of_states_refuses_a_load(void)
{
    struct runtime_case c;
    struct pkv_shortage shortage = {.size = sizeof shortage};
    pkv_seq seq = {0};
    init(&c);
    c.groups[3].num_blocks = 14;
    case_open(&c);
    compute(&c, &x, KEPT, MAX_REWIND);
    const int32_t num_states = held(&c, 3);
    ASSERT_STATUS(PKV_OK, save_to(&c, x.handle, &bytes));
    assert_refused(&c, "promised", PKV_NO_BLOCKS, "group 3");
    ASSERT_STATUS(PKV_NO_BLOCKS, save_load(&c, &bytes, &seq, &shortage));
    CU_ASSERT(shortage.group == 3 && shortage.need == num_states && shortage.free == 2);
    states_append(&c, &x, 3);
    states_destroy(&c, &x);
    load_as(&c, &x, &y);
    y.length = KEPT;
    states_append(&c, &y, 3);
    case_close(&c);
    init(&c);
    c.groups[3].num_blocks = num_states - 1;
    case_open(&c);
    assert_refused(&c, "too few", PKV_NEVER_FITS, "group 3");
    close_case(&c);
}

static void another_geometry_of_states_is_named(void)
{
    struct runtime_case c;
    init(&c);
    case_open(&c);
    compute(&c, &x, KEPT, 2);
    ASSERT_STATUS(PKV_OK, save_to(&c, x.handle, &bytes));
    case_close(&c);
    init(&c);
    c.groups[3].state_bytes += 8;
    case_open(&c);
    assert_refused(&c, "bytes", PKV_INVALID_ARGUMENT, "groups[3].state_bytes is 40 in the file");
    case_close(&c);
    init(&c);
    c.groups[3].max_rewind = 1;
    case_open(&c);
    assert_refused(&c, "rewind", PKV_INVALID_ARGUMENT, "above that of groups[3], 1");
    case_close(&c);
    init(&c);
    c.layers[4].group = 3; /* was of group 2 */
    case_open(&c);
    assert_refused(&c, "layers", PKV_INVALID_ARGUMENT, "layers[4].group");
    case_close(&c);
    init(&c);
    c.config.num_groups = 3;
    c.layers[3].group = 2;
    case_open(&c);
    pkv_seq seq = {0};
    ASSERT_REFUSED(PKV_INVALID_ARGUMENT, "num_groups is 4 in the file",
                   save_load(&c, &bytes, &seq, NULL));
    close_case(&c);
}

static void open_with_file(struct runtime_case *c)
{
    init(c);
    case_open(c);
    compute(c, &x, KEPT, MAX_REWIND);
    CU_ASSERT_EQUAL_FATAL(held(c, 2), 6);
    ASSERT_STATUS(PKV_OK, save_to(c, x.handle, &bytes));
    states_destroy(c, &x);
}

static void every_truncation_and_every_flipped_byte_is_refused(void)
{
    struct runtime_case c;
    pkv_seq seq = {0};
    open_with_file(&c);
    const size_t count = bytes.count;
    const uint64_t digest = prefix_digest(&c);
    for (size_t i = 0; i < count; i++) {
        bytes.count = i;
        CU_ASSERT(save_load(&c, &bytes, &seq, NULL) == PKV_CORRUPT);
        bytes.count = count;
        bytes.at[i] ^= 0x10;
        const enum pkv_status status = save_load(&c, &bytes, &seq, NULL);
        CU_ASSERT(status == PKV_CORRUPT || status == PKV_UNSUPPORTED);
        bytes.at[i] ^= 0x10;
    }
    CU_ASSERT(seq.id == 0 && prefix_digest(&c) == digest && held(&c, 2) == 0);
    ASSERT_STATUS(PKV_OK, save_load(&c, &bytes, &seq, NULL));
    close_case(&c);
}

/* The head of the section of states of a group. */
static unsigned char *find_states(uint32_t group)
{
    unsigned char *at = bytes.at + SAVED_HEADER_BYTES;
    while (get_u32(at) != SAVED_STATE || get_u32(at + 8) != group) {
        at += SAVED_SECTION_BYTES + get_u64(at + 16) + SAVED_SUM_BYTES;
        CU_ASSERT_FATAL(at < bytes.at + bytes.count - SAVED_SUM_BYTES);
    }
    return at;
}

static void put_sum(unsigned char *from, size_t n, struct hash_stream *sums)
{
    (void)put_u64(from + n, hash_64(from, n));
    hash_add(sums, from + n, SAVED_SUM_BYTES);
}

/* All checksums and the number of bytes, after a change. */
static void seal(void)
{
    struct hash_stream sums;
    hash_begin(&sums);
    (void)put_u64(bytes.at + 24, bytes.count);
    put_sum(bytes.at, SAVED_HEADER_BYTES - SAVED_SUM_BYTES, &sums);
    unsigned char *at = bytes.at + SAVED_HEADER_BYTES;
    for (uint32_t i = get_u32(bytes.at + 20); i > 0; i--) {
        const size_t length = (size_t)get_u64(at + 16);
        put_sum(at, SAVED_SECTION_BYTES - SAVED_SUM_BYTES, &sums);
        put_sum(at + SAVED_SECTION_BYTES, length, &sums);
        at += SAVED_SECTION_BYTES + length + SAVED_SUM_BYTES;
    }
    (void)put_u64(at, hash_end(&sums));
    CU_ASSERT_EQUAL(at + SAVED_SUM_BYTES, bytes.at + bytes.count);
}

/* Removes n bytes behind `at`. */
static void cut(unsigned char *at, size_t n)
{
    memmove(at, at + n, (size_t)(bytes.at + bytes.count - at) - n);
    bytes.count -= n;
}

/* Sections of states that are another group's, a byte shorter, or missing. */
static void forge_sections(struct runtime_case *c, uint32_t g, const unsigned char *sound,
                           size_t num_sound)
{
    const size_t state_bytes = STATES_BYTES * (g == 2 ? 2 : 1);
    memcpy(bytes.at, sound, num_sound);
    (void)put_u32(find_states(g) + 8, 7);
    seal();
    assert_refused(c, "index", PKV_CORRUPT, "offset");
    memcpy(bytes.at, sound, num_sound);
    (void)put_u64(find_states(g) + 16, 6 * (8 + state_bytes) - 1);
    cut(find_states(g) + SAVED_SECTION_BYTES, 1);
    seal();
    assert_refused(c, "a byte less", PKV_CORRUPT, "not that of its states");
    bytes.count = num_sound;
    memcpy(bytes.at, sound, num_sound);
    (void)put_u32(bytes.at + 20, get_u32(bytes.at + 20) - 1);
    cut(find_states(g), SAVED_SECTION_BYTES + 6 * (8 + state_bytes) + SAVED_SUM_BYTES);
    seal();
    assert_refused(c, "no section", PKV_CORRUPT, g == 2 ? "next group" : "missing");
    bytes.count = num_sound;
}

/* Checksums that match what no cache would have written. */
static void forged_states_are_refused(void)
{
    static const struct {
        int32_t nth;
        uint64_t length;
    } forgeries[] = {
        {0, 0},
        {0, KEPT - MAX_REWIND - 1},
        {0, KEPT - MAX_REWIND + 1}, /* that of the next */
        {3, KEPT},
        {5, KEPT + 1},
        {5, KEPT - 2},
        {5, UINT64_MAX},
        {5, UINT64_C(1) << 32 | KEPT},
        {0, UINT64_C(1) << 63},
    };
    static unsigned char sound[MAX_BYTES];
    struct runtime_case c;
    open_with_file(&c);
    const size_t num_sound = bytes.count;
    CU_ASSERT_FATAL(num_sound < MAX_BYTES);
    memcpy(sound, bytes.at, num_sound);
    for (uint32_t g = 2; g < 4; g++) {
        for (size_t i = 0; i < sizeof forgeries / sizeof forgeries[0]; i++) {
            char name[64];
            snprintf(name, sizeof name, "group %u, forgery %zu", g, i);
            memcpy(bytes.at, sound, num_sound);
            (void)put_u64(find_states(g) + SAVED_SECTION_BYTES + 8 * forgeries[i].nth,
                          forgeries[i].length);
            seal();
            assert_refused(&c, name, PKV_CORRUPT, "states of such lengths");
        }
        forge_sections(&c, g, sound, num_sound);
    }
    memcpy(bytes.at, sound, num_sound); /* more than max_rewind, of the sequence, allows */
    (void)put_u64(bytes.at + SAVED_HEADER_BYTES + SAVED_SECTION_BYTES + 16, MAX_REWIND - 1);
    seal();
    assert_refused(&c, "too many", PKV_CORRUPT, "");
    memcpy(bytes.at, sound, num_sound); /* fewer are as sound as those of a fork */
    cut(find_states(2) + SAVED_SECTION_BYTES, 8);
    cut(find_states(2) + SAVED_SECTION_BYTES + 5 * 8, 2 * STATES_BYTES);
    (void)put_u64(find_states(2) + 16, 5 * (8 + 2 * STATES_BYTES));
    seal();
    load_as(&c, &x, &y);
    y.length = KEPT;
    CU_ASSERT(held(&c, 2) == 5 && held(&c, 3) == 6);
    states_append(&c, &y, 2);
    close_case(&c);
}

static void each_failing_allocation_and_callback_changes_nothing(void)
{
    struct runtime_case c;
    pkv_seq seq = {0};
    open_with_file(&c);
    const uint64_t digest = prefix_digest(&c);
    enum pkv_status status = PKV_IO;
    for (bytes.fail_at = 1; status != PKV_OK && bytes.fail_at < 1000; bytes.fail_at++) {
        status = save_load(&c, &bytes, &seq, NULL);
        CU_ASSERT(status == PKV_OK || status == PKV_IO);
        CU_ASSERT(status == PKV_OK || (prefix_digest(&c) == digest && held(&c, 2) == 0));
    }
    CU_ASSERT(status == PKV_OK && case_check(&c) == 0);
    bytes.fail_at = 0;
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seq));
    const long live = c.memory.live;
    status = PKV_NO_MEMORY;
    for (long k = 1; status == PKV_NO_MEMORY; k++) {
        c.memory.fail_at = c.memory.calls + k;
        status = save_load(&c, &bytes, &seq, NULL);
        c.memory.fail_at = 0;
        CU_ASSERT(c.memory.live == live && case_check(&c) == 0);
        CU_ASSERT(status == PKV_NO_MEMORY ? held(&c, 2) == 0 : k > 7);
    }
    ASSERT_STATUS(PKV_OK, status);
    close_case(&c);
}

static const struct test_case cases[] = {
    TEST(states_are_loaded_bit_by_bit),
    TEST(a_ring_of_states_is_loaded_whole),
    TEST(a_loaded_state_can_be_found),
    TEST(poison_is_never_saved),
    TEST(a_lost_state_is_saved_as_none),
    TEST(a_shortage_of_states_refuses_a_load),
    TEST(another_geometry_of_states_is_named),
    TEST(every_truncation_and_every_flipped_byte_is_refused),
    TEST(forged_states_are_refused),
    TEST(each_failing_allocation_and_callback_changes_nothing),
    TEST_END,
};

const struct test_suite suite_runtime_states_save = {"runtime_states_save", cases};
