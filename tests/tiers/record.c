/* SPDX-License-Identifier: MIT
 *
 * What a value in a tier looks like is kept here byte by byte: values outlive the program that
 * wrote them. docs/format.md says the same in words. */
#include "tiers/record.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "support/test.h"

static const int32_t tokens[2] = {7, -1};
static const uint64_t extra[2] = {0, 5};
static const struct pkv_namespace_field fields[2] = {{.tag = 1, .length = 2, .bytes = "ab"},
                                                     {.tag = 3, .length = 0}};
static unsigned char payload[6] = {1, 2, 3, 4, 5, 6};
static const struct pkv_piece pieces[2] = {{payload, 4}, {payload + 4, 2}};

static struct record example(void)
{
    return (struct record){.fingerprint = {1, 2},
                           .key = {3, 4},
                           .parent = {5, 6},
                           .depth = 9,
                           .group = 1,
                           .block_size = 2,
                           .num_fields = 2,
                           .fields = fields,
                           .payload_bytes = sizeof payload,
                           .tokens = tokens,
                           .extra = extra};
}

enum { HEAD_BYTES = 136 + 10 + 8 + 8 + 16 + 16 };

/* A head, sealed, of epochs 10, 11, 12. */
static void write_example(unsigned char head[HEAD_BYTES])
{
    const struct record record = example();
    const uint64_t epochs[RECORD_NUM_EPOCHS] = {10, 11, 12};
    CU_ASSERT_EQUAL(record_head_bytes(&record), HEAD_BYTES);
    record_write(&record, head);
    record_set_epochs(head, epochs);
    record_seal(head, HEAD_BYTES, record_hash(pieces, 2));
}

static uint64_t number_at(const unsigned char *bytes, int count)
{
    uint64_t value = 0;
    for (int i = count - 1; i >= 0; i--) {
        value = value << 8 | bytes[i];
    }
    return value;
}

static void a_head_has_each_number_where_the_format_says(void)
{
    static const struct {
        int offset;
        int bytes;
        uint64_t value;
    } numbers[] = {
        {8, 4, 1},     {12, 4, HEAD_BYTES}, {16, 8, 1},
        {24, 8, 2},    {32, 8, 3},          {40, 8, 4},
        {48, 8, 5},    {56, 8, 6},          {64, 4, 9},
        {68, 4, 1},    {72, 4, 2},          {76, 4, 2},
        {80, 8, 6},    {88, 4, 1},          {96, 8, 10},
        {104, 8, 11},  {112, 8, 12},        {120, 8, 0},
        {128, 8, 0},   {136, 4, 1},         {140, 4, 2},
        {144, 1, 'a'}, {145, 1, 'b'},       {146, 4, 3},
        {150, 4, 0},   {154, 4, 7},         {158, 4, 0xffffffffu},
        {162, 8, 0},   {170, 8, 5},
    };
    unsigned char head[HEAD_BYTES];
    write_example(head);
    CU_ASSERT_EQUAL(memcmp(head, "PKVBLOCK", 8), 0);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        CU_ASSERT_EQUAL(number_at(head + numbers[i].offset, numbers[i].bytes), numbers[i].value);
    }
    CU_ASSERT_EQUAL(number_at(head + HEAD_BYTES - 16, 8), hash_64(payload, sizeof payload));
    CU_ASSERT_EQUAL(number_at(head + HEAD_BYTES - 8, 8), hash_64(head, HEAD_BYTES - 8));
}

static void a_longer_head_than_said_is_never_needed(void)
{
    char bytes[PKV_MAX_NAMESPACE_BYTES] = {0};
    struct pkv_namespace_field all[PKV_MAX_NAMESPACE_FIELDS];
    for (int32_t i = 0; i < PKV_MAX_NAMESPACE_FIELDS; i++) {
        all[i] = (struct pkv_namespace_field){
            .tag = i + 1, .length = PKV_MAX_NAMESPACE_BYTES, .bytes = bytes};
    }
    struct record record = example();
    record.num_fields = PKV_MAX_NAMESPACE_FIELDS;
    record.fields = all;
    CU_ASSERT_EQUAL(record_head_bytes(&record), record_max_head_bytes(2));
}

static void what_was_written_is_the_same_and_what_a_flush_came_between_is_void(void)
{
    unsigned char found[HEAD_BYTES];
    unsigned char expected[HEAD_BYTES];
    const struct record record = example();
    const uint64_t hash = record_hash(pieces, 2);
    write_example(found);
    for (int32_t changed = -1; changed < RECORD_NUM_EPOCHS; changed++) {
        uint64_t epochs[RECORD_NUM_EPOCHS] = {10, 11, 12};
        if (changed >= 0) {
            epochs[changed]++;
        }
        record_write(&record, expected);
        record_set_epochs(expected, epochs);
        CU_ASSERT_EQUAL(record_compare(expected, found, HEAD_BYTES, hash),
                        changed < 0 ? RECORD_SAME : RECORD_VOID);
    }
}

static void every_flipped_bit_is_corrupt(void)
{
    unsigned char found[HEAD_BYTES];
    unsigned char expected[HEAD_BYTES];
    write_example(expected);
    for (size_t bit = 0; bit < 8 * (size_t)HEAD_BYTES; bit++) {
        write_example(found);
        found[bit / 8] ^= (unsigned char)(1u << bit % 8);
        CU_ASSERT_EQUAL(record_compare(expected, found, HEAD_BYTES, record_hash(pieces, 2)),
                        RECORD_CORRUPT);
    }
    write_example(found);
    for (size_t bit = 0; bit < 8 * sizeof payload; bit++) {
        payload[bit / 8] ^= (unsigned char)(1u << bit % 8);
        CU_ASSERT_EQUAL(record_compare(expected, found, HEAD_BYTES, record_hash(pieces, 2)),
                        RECORD_CORRUPT);
        payload[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

/* D1: an equal key proves nothing; every part of the content is compared. */
static void sound_heads_of_another_content_are_told_apart(void)
{
    static const int32_t other_tokens[2] = {7, -2};
    static const uint64_t other_extra[2] = {1, 5};
    static const struct pkv_namespace_field other_fields[2] = {
        {.tag = 1, .length = 2, .bytes = "ac"}, {.tag = 3, .length = 0}};
    struct record others[8];
    for (size_t i = 0; i < 8; i++) {
        others[i] = example();
    }
    others[0].fingerprint.high++;
    others[1].key.low++;
    others[2].parent.low++;
    others[3].depth++;
    others[4].group++;
    others[5].tokens = other_tokens;
    others[6].extra = other_extra;
    others[7].fields = other_fields;
    for (size_t i = 0; i < 8; i++) {
        unsigned char found[HEAD_BYTES];
        unsigned char expected[HEAD_BYTES];
        const uint64_t epochs[RECORD_NUM_EPOCHS] = {10, 11, 12};
        write_example(expected);
        record_write(&others[i], found);
        record_set_epochs(found, epochs);
        record_seal(found, HEAD_BYTES, record_hash(pieces, 2));
        CU_ASSERT_EQUAL(record_compare(expected, found, HEAD_BYTES, record_hash(pieces, 2)),
                        RECORD_OTHER);
    }
}

static void names_are_short_and_of_plain_characters(void)
{
    char name[PKV_MAX_TIER_NAME + 1];
    const struct pkv_block_key largest = {UINT64_MAX, UINT64_MAX};
    record_name((struct pkv_block_key){0x1, 0x2}, (struct pkv_block_key){0xabc, 0xf}, 10, name);
    CU_ASSERT_STRING_EQUAL(name, "00000000000000020000000000000001."
                                 "000000000000000f0000000000000abc.a");
    record_name(largest, largest, INT32_MAX, name);
    CU_ASSERT_EQUAL(strlen(name), 32 + 1 + 32 + 1 + 8);
    record_counter_name(NULL, name);
    CU_ASSERT_STRING_EQUAL(name, "epoch");
    char other[PKV_MAX_TIER_NAME + 1];
    record_counter_name(&fields[0], name);
    record_counter_name(&fields[1], other);
    CU_ASSERT_EQUAL(strlen(name), strlen("epoch.") + 32);
    CU_ASSERT_STRING_NOT_EQUAL(name, other);
}

static const struct test_case cases[] = {
    TEST(a_head_has_each_number_where_the_format_says),
    TEST(a_longer_head_than_said_is_never_needed),
    TEST(what_was_written_is_the_same_and_what_a_flush_came_between_is_void),
    TEST(every_flipped_bit_is_corrupt),
    TEST(sound_heads_of_another_content_are_told_apart),
    TEST(names_are_short_and_of_plain_characters),
    TEST_END,
};

const struct test_suite suite_tier_record = {"tier_record", cases};
