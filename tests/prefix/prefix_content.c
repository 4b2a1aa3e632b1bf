/* SPDX-License-Identifier: MIT
 *
 * Keys: what is hashed for a block, byte by byte, and that all of it counts. */
#include "prefix/prefix_content.h"

#include <string.h>

#include "base/hash.h"
#include "prefix_case.h"

#define BS 4

static void append(unsigned char *string, size_t *length, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        string[(*length)++] = (unsigned char)(value >> (8 * i));
    }
}

static bool is_key(struct pkv_block_key key, const unsigned char *string, size_t length)
{
    const struct pkv_block_key expected = hash_128(string, length);
    return key.low == expected.low && key.high == expected.high;
}

/* The string of the second block is written out here, byte by byte, as prefix_match.c documents it:
 * keys name blocks in files and on other machines. */
static void a_key_is_the_hash_of_the_documented_string(void)
{
    const uint64_t extra[2 * BS] = {[BS] = 9, [2 * BS - 1] = UINT64_MAX};
    struct prefix_config config = prefix_case_one_group;
    struct prefix_case fixture;
    unsigned char string[256];
    size_t length = 0;
    config.fingerprint = (struct pkv_block_key){0x1122334455667788u, 0x99aabbccddeeff00u};
    prefix_case_open(&fixture, &config, 4);
    const struct pkv_namespace_field fields[] = {prefix_case_field(7, "xyz"), {2, 0, NULL, 0}};
    struct prefix_scope scope = prefix_case_scope(&fixture, fields, 2);
    struct prefix_chain chain =
        prefix_case_publish(&fixture, &scope, prefix_case_tokens, extra, 2, 0);
    const struct pkv_block_key parent = prefix_index_node(fixture.index, chain.nodes[0])->key;
    append(string, &length, config.fingerprint.low, 8);
    append(string, &length, config.fingerprint.high, 8);
    append(string, &length, BS, 4);
    append(string, &length, 2, 4);
    append(string, &length, 2, 4); /* the field of tag 2 is empty */
    append(string, &length, 0, 4);
    append(string, &length, 7, 4);
    append(string, &length, 3, 4);
    memcpy(string + length, "xyz", 3);
    length += 3;
    append(string, &length, 1, 4);
    append(string, &length, 1, 4);
    append(string, &length, parent.low, 8);
    append(string, &length, parent.high, 8);
    for (size_t i = BS; i < 2 * BS; i++) {
        append(string, &length, (uint64_t)prefix_case_tokens[i], 4);
    }
    for (size_t i = BS; i < 2 * BS; i++) {
        append(string, &length, extra[i], 8);
    }
    CU_ASSERT(is_key(prefix_index_node(fixture.index, chain.nodes[1])->key, string, length));
    prefix_case_release(&fixture, &chain);
    prefix_scope_close(fixture.index, &scope);
    prefix_case_close(&fixture);
}

/* XXH3's own test vector of the empty string: the dependency is what we think it is. */
static void the_hash_is_xxh3_128(void)
{
    const struct pkv_block_key key = hash_128("", 0);
    CU_ASSERT(key.low == 0x6001c324468d497fu && key.high == 0x99aa06d3014798d8u);
}

/* D5: caches of different geometry or model never have a key in common. */
static void geometry_is_part_of_every_key(void)
{
    struct pkv_block_key keys[2];
    for (uint64_t i = 0; i < 2; i++) {
        struct prefix_config config = prefix_case_one_group;
        struct prefix_case fixture;
        config.fingerprint.low = i;
        prefix_case_open(&fixture, &config, 4);
        struct prefix_chain chain =
            prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 1, 0);
        keys[i] = prefix_index_node(fixture.index, chain.nodes[0])->key;
        prefix_case_release(&fixture, &chain);
        prefix_case_close(&fixture);
    }
    CU_ASSERT(keys[0].low != keys[1].low && keys[0].high != keys[1].high);
}

static const struct test_case cases[] = {
    TEST(a_key_is_the_hash_of_the_documented_string),
    TEST(the_hash_is_xxh3_128),
    TEST(geometry_is_part_of_every_key),
    TEST_END,
};
const struct test_suite suite_prefix_content = {"prefix_content", cases};
