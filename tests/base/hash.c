/* SPDX-License-Identifier: MIT */
#include "base/hash.h"

#include <string.h>

#include "support/test.h"

/* Published test values of XXH3 for no input: they must never change, files and tiers hold them. */
static void hashes_of_nothing_are_those_that_xxhash_publishes(void)
{
    CU_ASSERT_EQUAL(hash_64("", 0), 0x2d06800538d394c2u);
    CU_ASSERT_EQUAL(hash_128("", 0).low, 0x6001c324468d497fu);
    CU_ASSERT_EQUAL(hash_128("", 0).high, 0x99aa06d3014798d8u);
}

static void pieces_have_the_hash_of_the_whole(void)
{
    unsigned char bytes[3000];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(i * i >> 3);
    }
    static const size_t cuts[] = {0, 1, 64, 239, 241, 1024, 2999, 3000};
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        struct hash_stream stream;
        hash_begin(&stream);
        hash_add(&stream, bytes, cuts[c]);
        hash_add(&stream, bytes + cuts[c], sizeof bytes - cuts[c]);
        CU_ASSERT_EQUAL(hash_end(&stream), hash_64(bytes, sizeof bytes));
    }
}

static void every_bit_counts(void)
{
    unsigned char bytes[300] = {0};
    const uint64_t before = hash_64(bytes, sizeof bytes);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        CU_ASSERT_NOT_EQUAL(hash_64(bytes, sizeof bytes), before);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

static const struct test_case cases[] = {
    TEST(hashes_of_nothing_are_those_that_xxhash_publishes),
    TEST(pieces_have_the_hash_of_the_whole),
    TEST(every_bit_counts),
    TEST_END,
};

const struct test_suite suite_hash = {"hash", cases};
