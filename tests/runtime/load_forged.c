/* SPDX-License-Identifier: MIT
 *
 * Forged files: checksums that match what no cache would have written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/little_endian.h"
#include "pages/saved_format.h"
#include "runtime/reuse_case.h"
#include "runtime/save_case.h"

enum { TEXT = 3, LENGTH = 22, MAX_BYTES = 1 << 16, MAX_SECTIONS = 16 };

static struct save_bytes bytes;
static unsigned char sound[MAX_BYTES];
static size_t num_sound;

/* A file taken apart: its sections with their headers. */
struct parts {
    int count;
    struct {
        unsigned char head[SAVED_SECTION_BYTES];
        unsigned char content[4096];
        size_t length;
    } at[MAX_SECTIONS];
};

/* The most metadata that a load has taken at a time, beyond what there was. */
static struct {
    struct runtime_case *c;
    size_t before;
    size_t most;
} taken;

static void sample(void *context, long call)
{
    (void)context;
    (void)call;
    const size_t now = taken.c->memory.alloc_bytes - taken.before;
    taken.most = now > taken.most ? now : taken.most;
}

static void open_with_file(struct runtime_case *c)
{
    const int64_t kept_prefix = 3;
    const struct pkv_namespace_field fields[] = {{2, 3, "abc", 0}, {5, 1, "x", 9}};
    const struct pkv_seq_options options = {.size = sizeof options,
                                            .kept_prefix = &kept_prefix,
                                            .max_tokens = 60,
                                            .namespace_fields = fields,
                                            .num_namespace_fields = 2};
    prefix_init(c);
    struct pkv_group_config *group = case_add_group(c);
    group->sliding_window = 6;
    (void)case_add_layer(c, 1);
    save_open(c, PKV_INT8, PKV_F16);
    const pkv_seq seq = save_seq(c, &options, TEXT, LENGTH);
    ASSERT_STATUS(PKV_OK, save_to(c, seq, &bytes));
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c->cache, seq));
    CU_ASSERT_FATAL(bytes.count < MAX_BYTES / 2);
    num_sound = bytes.count;
    memcpy(sound, bytes.at, num_sound);
    bytes.before = sample;
    taken.c = c;
}

static void close_with_file(struct runtime_case *c)
{
    CU_ASSERT_EQUAL(case_check(c), 0);
    case_close(c);
    save_bytes_free(&bytes);
}

static void take_apart(struct parts *parts)
{
    size_t at = SAVED_HEADER_BYTES;
    parts->count = (int)get_u32(sound + 20);
    for (int i = 0; i < parts->count; i++) {
        memcpy(parts->at[i].head, sound + at, SAVED_SECTION_BYTES);
        parts->at[i].length = (size_t)get_u64(sound + at + 16);
        at += SAVED_SECTION_BYTES;
        memcpy(parts->at[i].content, sound + at, parts->at[i].length);
        at += parts->at[i].length + SAVED_SUM_BYTES;
    }
    CU_ASSERT_EQUAL(at + SAVED_SUM_BYTES, num_sound);
}

static void put(const void *from, size_t n)
{
    bytes.before = NULL;
    CU_ASSERT_FATAL(save_write(&bytes, from, n));
    bytes.before = sample;
}

static void put_sum(const void *from, size_t n, struct hash_stream *sums)
{
    unsigned char sum[SAVED_SUM_BYTES];
    (void)put_u64(sum, hash_64(from, n));
    hash_add(sums, sum, sizeof sum);
    put(sum, sizeof sum);
}

/* Puts the parts together under checksums that match; the header is `header` but for those, and for
 * its number of bytes when num_bytes is 0. */
static void put_together(const struct parts *parts, const unsigned char *header, uint64_t num_bytes)
{
    struct hash_stream sums;
    unsigned char head[SAVED_HEADER_BYTES];
    unsigned char last[SAVED_SUM_BYTES];
    memcpy(head, header, sizeof head);
    uint64_t total = SAVED_HEADER_BYTES + SAVED_SUM_BYTES;
    for (int i = 0; i < parts->count; i++) {
        total += SAVED_SECTION_BYTES + SAVED_SUM_BYTES + parts->at[i].length;
    }
    (void)put_u64(head + 24, num_bytes != 0 ? num_bytes : total);
    bytes.count = 0;
    hash_begin(&sums);
    put(head, SAVED_HEADER_BYTES - SAVED_SUM_BYTES);
    put_sum(head, SAVED_HEADER_BYTES - SAVED_SUM_BYTES, &sums);
    for (int i = 0; i < parts->count; i++) {
        put(parts->at[i].head, SAVED_SECTION_BYTES - SAVED_SUM_BYTES);
        put_sum(parts->at[i].head, SAVED_SECTION_BYTES - SAVED_SUM_BYTES, &sums);
        put(parts->at[i].content, parts->at[i].length);
        put_sum(parts->at[i].content, parts->at[i].length, &sums);
    }
    (void)put_u64(last, hash_end(&sums));
    put(last, sizeof last);
}

/* The header of the sound file with another number of sections. */
static const unsigned char *header_of(int num_sections)
{
    static unsigned char header[SAVED_HEADER_BYTES];
    memcpy(header, sound, sizeof header);
    (void)put_u32(header + 20, (uint32_t)num_sections);
    return header;
}

/* Both ways to load refuse with this status, take no more memory than there are bytes and a little,
 * and change nothing. */
static void assert_refused(struct runtime_case *c, const char *name, enum pkv_status expected,
                           const char *part)
{
    pkv_seq seq = {0};
    const uint64_t digest = prefix_digest(c);
    taken.before = c->memory.alloc_bytes;
    taken.most = 0;
    ASSERT_CASE_REFUSED(name, expected, part, save_load(c, &bytes, &seq, NULL));
    const enum pkv_status streamed = save_load_stream(c, &bytes, &seq, NULL);
    ASSERT_CASE(name, streamed == expected || streamed == PKV_CORRUPT || streamed == PKV_IO);
    ASSERT_CASE(name, taken.most < 2 * bytes.count + 4 * SAVED_BUFFER_BYTES);
    ASSERT_CASE(name, seq.id == 0 && prefix_digest(c) == digest);
    ASSERT_CASE(name, c->memory.alloc_bytes == taken.before);
}

/* One number of 8 bytes in the content of a section of this kind, or of 4 in its header. */
struct forgery {
    uint32_t kind;
    size_t offset;
    uint64_t value;
    enum pkv_status status;
    const char *part;
};

static int find(const struct parts *parts, uint32_t kind)
{
    int i = 0;
    while (i < parts->count && get_u32(parts->at[i].head) != kind) {
        i++;
    }
    CU_ASSERT_FATAL(i < parts->count);
    return i;
}

static void what_no_sequence_has_is_refused(void)
{
    static const struct forgery forgeries[] = {
        {SAVED_SEQUENCE, 0, UINT64_MAX, PKV_CORRUPT, "length"},
        {SAVED_SEQUENCE, 0, (uint64_t)INT32_MAX + 1, PKV_CORRUPT, "length"},
        {SAVED_SEQUENCE, 0, 61, PKV_CORRUPT, "max_tokens"},
        {SAVED_SEQUENCE, 0, 23, PKV_CORRUPT, "tokens"},
        {SAVED_SEQUENCE, 0, 25, PKV_CORRUPT, "blocks"},
        {SAVED_SEQUENCE, 0, 0, PKV_CORRUPT, "blocks"},
        {SAVED_SEQUENCE, 8, LENGTH - 1, PKV_CORRUPT, "max_tokens"},
        {SAVED_SEQUENCE, 8, UINT64_C(1) << 32, PKV_CORRUPT, "max_tokens"},
        {SAVED_SEQUENCE, 16, UINT64_C(1) << 31, PKV_CORRUPT, "max_rewind"},
        {SAVED_SEQUENCE, 24, UINT64_MAX - 1, PKV_CORRUPT, "kept_prefix"},
        {SAVED_SEQUENCE, 24, 5, PKV_CORRUPT, "blocks"},
        {SAVED_SEQUENCE, 32, 4, PKV_CORRUPT, "priority"},
        {SAVED_SEQUENCE, 32, UINT64_MAX, PKV_CORRUPT, "priority"},
        {SAVED_SEQUENCE, 40, 2, PKV_CORRUPT, "no_publish"},
        {SAVED_NAMESPACE, 0, 0, PKV_CORRUPT, "namespace"},
        {SAVED_NAMESPACE, 0, 5, PKV_CORRUPT, "namespace"}, /* both have the tag */
        {SAVED_NAMESPACE, 0, UINT64_C(1) << 63 | 2, PKV_CORRUPT, "namespace"},
        {SAVED_NAMESPACE, 0, UINT64_C(1) << 31, PKV_CORRUPT, "namespace"},
        {SAVED_NAMESPACE, 8, 129, PKV_CORRUPT, "namespace"},
        {SAVED_NAMESPACE, 8, 21, PKV_CORRUPT, "namespace"},
        {SAVED_NAMESPACE, 8, UINT64_MAX, PKV_CORRUPT, "namespace"},
        {SAVED_BLOCKS, 0, 1, PKV_CORRUPT, "group 0"},
        {SAVED_BLOCKS, 8, 1, PKV_CORRUPT, "group 0"},
        {SAVED_BLOCKS, 16, 5, PKV_CORRUPT, "group 0"},
        {SAVED_BLOCKS, 16, UINT64_C(1) << 32 | 6, PKV_CORRUPT, "group 0"},
        {SAVED_BLOCKS, 24, 0, PKV_CORRUPT, "group 1"},
        {SAVED_BLOCKS, 24, 2, PKV_CORRUPT, "group 1"},
        {SAVED_BLOCKS, 32, 0, PKV_CORRUPT, "group 1"},
        {SAVED_BLOCKS, 32, 5, PKV_CORRUPT, "group 1"}, /* a needed block is missing */
        {SAVED_BLOCKS, 32, 2, PKV_CORRUPT, "payload"}, /* more than there is */
        {SAVED_BLOCKS, 32, UINT64_MAX, PKV_CORRUPT, "group 1"},
        {SAVED_BLOCKS, 40, 7, PKV_CORRUPT, "group 1"},
        {SAVED_BLOCKS, 40, UINT64_MAX, PKV_CORRUPT, "group 1"},
    };
    static struct parts parts;
    struct runtime_case c;
    open_with_file(&c);
    for (size_t i = 0; i < sizeof forgeries / sizeof forgeries[0]; i++) {
        const struct forgery *of = &forgeries[i];
        char name[64];
        take_apart(&parts);
        (void)put_u64(parts.at[find(&parts, of->kind)].content + of->offset, of->value);
        put_together(&parts, sound, 0);
        snprintf(name, sizeof name, "%s + %zu = %llx", saved_kind_name(of->kind), of->offset,
                 (unsigned long long)of->value);
        assert_refused(&c, name, of->status, of->part);
    }
    close_with_file(&c);
}

/* J6: every number of the geometry counts, and the first that differs is named. */
static void every_number_of_the_geometry_counts(void)
{
    static const char *const names[] = {"num_groups", "num_layers", "dtype"};
    static const char *const of_groups[] = {"storage",        "kv_heads",   "k_width", "v_width",
                                            "v_in_k",         "k_dtype",    "v_dtype", "block_size",
                                            "sliding_window", "kept_prefix"};
    static const char *const of_layers[] = {"group",   "shares_kv", "kv_layer", "k_scale",
                                            "v_scale", "rope",      "k_norm"};
    static struct parts parts;
    struct runtime_case c;
    open_with_file(&c);
    for (size_t word = 0; word < 3 + 2 * 10 + 3 * 7 + 2; word++) {
        char name[64];
        take_apart(&parts);
        unsigned char *at = parts.at[find(&parts, SAVED_GEOMETRY)].content + 8 * word;
        (void)put_u64(at, get_u64(at) + 1);
        put_together(&parts, sound, 0);
        if (word < 3) {
            snprintf(name, sizeof name, "%s", names[word]);
        } else if (word < 23) {
            snprintf(name, sizeof name, "groups[%zu].%s", (word - 3) / 10,
                     of_groups[(word - 3) % 10]);
        } else {
            snprintf(name, sizeof name, word < 44 ? "layers[%zu].%s" : "fingerprint",
                     (word - 23) / 7, of_layers[(word - 23) % 7]);
        }
        assert_refused(&c, name, PKV_INVALID_ARGUMENT, name);
    }
    close_with_file(&c);
}

/* Of the head of each section. */
static void forged_section_headers_are_refused(void)
{
    static const uint64_t lengths[] = {0,
                                       1,
                                       UINT64_MAX,
                                       UINT64_MAX - SAVED_SUM_BYTES,
                                       UINT64_MAX - SAVED_SECTION_BYTES - SAVED_SUM_BYTES,
                                       UINT64_MAX / 2 + 1};
    static struct parts parts;
    struct runtime_case c;
    open_with_file(&c);
    take_apart(&parts);
    const int count = parts.count;
    for (int i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "section %d", i);
        for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
            take_apart(&parts);
            (void)put_u64(parts.at[i].head + 16, lengths[l]);
            put_together(&parts, sound, 0);
            assert_refused(&c, name, PKV_CORRUPT, "offset");
        }
        take_apart(&parts);
        (void)put_u32(parts.at[i].head + 4, 2 | SAVED_NEEDED);
        put_together(&parts, sound, 0);
        assert_refused(&c, name, PKV_UNSUPPORTED, "flags");
        take_apart(&parts);
        (void)put_u32(parts.at[i].head + 8, 5);
        put_together(&parts, sound, 0);
        assert_refused(&c, name, PKV_CORRUPT, "offset");
        take_apart(&parts);
        (void)put_u32(parts.at[i].head + 12, 1);
        put_together(&parts, sound, 0);
        assert_refused(&c, name, PKV_UNSUPPORTED, "offset");
    }
    close_with_file(&c);
}

/* Without one section, with one twice, with two in the other order. */
static void sections_are_there_once_and_in_order(void)
{
    static struct parts parts, changed;
    struct runtime_case c;
    open_with_file(&c);
    take_apart(&parts);
    for (int i = 0; i < parts.count; i++) {
        char name[64];
        snprintf(name, sizeof name, "section %d", i);
        changed = parts;
        changed.count--;
        memmove(&changed.at[i], &changed.at[i + 1],
                (size_t)(parts.count - i - 1) * sizeof parts.at[0]);
        put_together(&changed, header_of(changed.count), 0);
        if (get_u32(parts.at[i].head) == SAVED_TOKENS) {
            assert_refused(&c, name, PKV_INVALID_ARGUMENT, "prefix_cache");
        } else if (get_u32(parts.at[i].head) != SAVED_NAMESPACE) {
            assert_refused(&c, name, PKV_CORRUPT, "");
        }
        changed = parts;
        changed.count++;
        memmove(&changed.at[i + 1], &parts.at[i], (size_t)(parts.count - i) * sizeof parts.at[0]);
        put_together(&changed, header_of(changed.count), 0);
        assert_refused(&c, name, PKV_CORRUPT, "twice");
        changed = parts;
        if (i > 0) {
            changed.at[i] = parts.at[i - 1];
            changed.at[i - 1] = parts.at[i];
            put_together(&changed, sound, 0);
            assert_refused(&c, name, PKV_CORRUPT, "");
        }
    }
    close_with_file(&c);
}

static void add_section(struct parts *parts, uint32_t kind, uint32_t flags)
{
    unsigned char *head = parts->at[parts->count].head;
    memset(head, 0, SAVED_SECTION_BYTES);
    (void)put_u32(head, kind);
    (void)put_u32(head + 4, flags);
    (void)put_u64(head + 16, 5);
    memcpy(parts->at[parts->count].content, "later", 5);
    parts->at[parts->count++].length = 5;
}

/* What later versions add is skipped where they allow it, and refused where they do not. */
static void unknown_sections_are_skipped_unless_they_are_needed(void)
{
    static const uint32_t kinds[] = {SAVED_STATE, 9, 77, UINT32_MAX};
    static struct parts parts;
    struct runtime_case c;
    pkv_seq seq = {0};
    open_with_file(&c);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        take_apart(&parts);
        add_section(&parts, kinds[i], SAVED_NEEDED);
        put_together(&parts, header_of(parts.count), 0);
        assert_refused(&c, "needed", PKV_UNSUPPORTED, "needs");
        take_apart(&parts);
        add_section(&parts, kinds[i], 0);
        put_together(&parts, header_of(parts.count), 0);
        ASSERT_STATUS(PKV_OK, save_load(&c, &bytes, &seq, NULL));
        ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c.cache, seq));
    }
    close_with_file(&c);
}

static void forged_headers_are_refused(void)
{
    static const struct {
        size_t offset;
        uint32_t value;
        enum pkv_status status;
        const char *part;
    } forgeries[] = {
        {0, 0x706b7640, PKV_CORRUPT, "not a saved"},
        {8, 0, PKV_CORRUPT, "version"},
        {8, 2, PKV_UNSUPPORTED, "version"},
        {8, UINT32_MAX, PKV_UNSUPPORTED, "version"},
        {12, 0, PKV_CORRUPT, "header of"},
        {12, UINT32_MAX, PKV_CORRUPT, "header of"},
        {12, 72, PKV_CORRUPT, "checksum"},
        {16, 0x04030201, PKV_UNSUPPORTED, "byte order"},
        {20, 0, PKV_CORRUPT, ""},
        {20, 1, PKV_CORRUPT, ""},
        {20, UINT32_MAX, PKV_CORRUPT, ""},
        {32, 1, PKV_UNSUPPORTED, "reserved"},
        {52, 1, PKV_UNSUPPORTED, "reserved"},
    };
    static const uint64_t num_bytes[] = {1, 63, 64, 65, 1000, UINT64_MAX, UINT64_MAX / 2};
    static struct parts parts;
    struct runtime_case c;
    unsigned char header[SAVED_HEADER_BYTES];
    open_with_file(&c);
    take_apart(&parts);
    for (size_t i = 0; i < sizeof forgeries / sizeof forgeries[0]; i++) {
        memcpy(header, sound, sizeof header);
        (void)put_u32(header + forgeries[i].offset, forgeries[i].value);
        put_together(&parts, header, 0);
        assert_refused(&c, forgeries[i].part, forgeries[i].status, forgeries[i].part);
    }
    for (size_t i = 0; i < sizeof num_bytes / sizeof num_bytes[0]; i++) {
        put_together(&parts, sound, num_bytes[i]);
        assert_refused(&c, "number of bytes", PKV_CORRUPT, "header");
    }
    put_together(&parts, sound, 0);
    pkv_seq seq = {0};
    ASSERT_STATUS(PKV_OK, save_load(&c, &bytes, &seq, NULL));
    close_with_file(&c);
}

static const struct test_case cases[] = {
    TEST(what_no_sequence_has_is_refused),
    TEST(every_number_of_the_geometry_counts),
    TEST(forged_section_headers_are_refused),
    TEST(sections_are_there_once_and_in_order),
    TEST(unknown_sections_are_skipped_unless_they_are_needed),
    TEST(forged_headers_are_refused),
    TEST_END,
};
const struct test_suite suite_runtime_load_forged = {"runtime_load_forged", cases};
