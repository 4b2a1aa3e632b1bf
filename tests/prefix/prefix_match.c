/* SPDX-License-Identifier: MIT
 *
 * Finding: equal content is found and no other, however weak the hash. */
#include "prefix/prefix_match.h"

#include <string.h>

#include "prefix_case.h"

#define BS 4

#define PROMPTS 200

/* Of the brute force: how many leading blocks of prompt are those of an earlier one. */
static int32_t longest_shared(int32_t prompts[][3 * BS], int32_t count, const int32_t *prompt)
{
    int32_t best = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t blocks = 0;
        while (blocks < 3 && memcmp(prompts[i] + (size_t)blocks * BS, prompt + (size_t)blocks * BS,
                                    BS * sizeof prompt[0]) == 0) {
            blocks++;
        }
        best = blocks > best ? blocks : best;
    }
    return best;
}

static void random_prompts_with_a_hash_of(int32_t bits)
{
    static int32_t prompts[PROMPTS][3 * BS];
    struct test_random random = {test_seed()};
    struct prefix_config config = prefix_case_one_group;
    struct prefix_case fixture;
    int32_t hits = 0;
    config.masked_key_bits = PREFIX_KEY_BITS - bits;
    prefix_case_open(&fixture, &config, 3 * PROMPTS);
    for (int32_t i = 0; i < PROMPTS; i++) {
        for (int32_t t = 0; t < 3 * BS; t++) {
            prompts[i][t] = random_between(&random, 0, t % BS == 0 ? 3 : 1);
        }
        const int32_t expected = longest_shared(prompts, i, prompts[i]);
        CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, prompts[i], 3), expected);
        hits += expected;
        struct prefix_chain chain =
            prefix_case_publish(&fixture, &prefix_case_plain, prompts[i], NULL, 3, 0);
        prefix_case_release(&fixture, &chain);
        CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, prompts[i], 3), 3);
    }
    CU_ASSERT(hits > PROMPTS / 2); /* or nothing was tested */
    const uint64_t collisions = prefix_index_counters(fixture.index).collisions;
    CU_ASSERT(bits == 16 || (collisions > 0) == (bits <= 8));
    CU_ASSERT_EQUAL(prefix_index_counters(fixture.index).not_indexed, 0);
    prefix_case_close(&fixture);
}

/* D1: a hash only finds candidates; tokens, extras, parent and namespace decide. */
static void hits_are_those_of_a_brute_force_however_weak_the_hash(void)
{
    static const int32_t bits[] = {0, 1, 8, 16, 64, 128};
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        random_prompts_with_a_hash_of(bits[i]);
    }
}

/* Nobody can predict buckets, and nobody notices. */
static void hits_do_not_depend_on_the_seed(void)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct prefix_config config = prefix_case_one_group;
        struct prefix_case fixture;
        config.seed = seed * 0x9e3779b97f4a7c15u;
        prefix_case_open(&fixture, &config, 32);
        prefix_case_cache(&fixture, &prefix_case_plain, prefix_case_tokens, 5);
        prefix_case_cache(&fixture, &prefix_case_plain, prefix_case_tokens + BS, 5);
        CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, prefix_case_tokens, 16), 5);
        CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, prefix_case_tokens + BS, 15),
                        5);
        CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, prefix_case_tokens + 1, 15),
                        0);
        prefix_case_close(&fixture);
    }
}

/* D2: token lists that a rolling hash cannot tell apart are told apart. */
static void another_content_with_the_same_polynomial_hash_is_a_miss(void)
{
    struct prefix_case fixture;
    prefix_case_open(&fixture, &prefix_case_one_group, 8);
    prefix_case_cache(&fixture, &prefix_case_plain, (const int32_t[]){100, 200, 300, 400}, 1);
    CU_ASSERT_EQUAL(
        prefix_case_hit(&fixture, &prefix_case_plain, (const int32_t[]){131, 199, 300, 400}, 1), 0);
    prefix_case_close(&fixture);
}

/* D1: a second content under a key is not taken for the first. */
static void of_two_contents_under_one_key_the_second_is_not_indexed(void)
{
    struct prefix_config config = prefix_case_one_group;
    struct prefix_case fixture;
    struct prefix_ref other = PREFIX_ROOT;
    config.masked_key_bits = 128; /* one bucket, so that a key can be forged in place */
    prefix_case_open(&fixture, &config, 8);
    prefix_case_cache(&fixture, &prefix_case_plain, prefix_case_tokens, 1);
    prefix_case_cache(&fixture, &prefix_case_plain, prefix_case_tokens + 8, 1);
    const struct prefix_ref first =
        prefix_index_find(fixture.index, PREFIX_ROOT, 0, prefix_case_tokens, NULL);
    const struct prefix_ref second =
        prefix_index_find(fixture.index, PREFIX_ROOT, 0, prefix_case_tokens + 8, NULL);
    const struct pkv_block_key key = fixture.index->nodes.nodes[first.index].key;
    const struct pkv_block_key forged = prefix_index_node(fixture.index, second)->key;
    prefix_index_detach(fixture.index, 0, prefix_index_block(fixture.index, second, 0));
    CU_ASSERT_PTR_NULL(prefix_index_node(fixture.index, second));
    fixture.index->nodes.nodes[first.index].key = forged;
    const struct prefix_counters before = prefix_index_counters(fixture.index);
    CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, PREFIX_ROOT, 0, 1, prefix_case_tokens + 8,
                                        NULL, 0, &other),
                    PREFIX_COLLIDING);
    CU_ASSERT_EQUAL(other.index, PREFIX_NONE);
    CU_ASSERT_EQUAL(prefix_index_counters(fixture.index).not_indexed, before.not_indexed + 1);
    CU_ASSERT_EQUAL(prefix_index_counters(fixture.index).collisions, before.collisions + 1);
    CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, prefix_case_tokens + 8, 1), 0);
    fixture.index->nodes.nodes[first.index].key = key;
    CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, prefix_case_tokens, 1), 1);
    prefix_case_close(&fixture);
}

/* D12: a block of equal tokens under another parent is another block. */
static void a_block_with_other_ancestors_is_never_attached(void)
{
    for (int32_t bits = 0; bits <= 128; bits += 128) {
        struct prefix_config config = prefix_case_one_group;
        struct prefix_case fixture;
        config.masked_key_bits = PREFIX_KEY_BITS - bits;
        prefix_case_open(&fixture, &config, 8);
        const int32_t a[] = {1, 1, 1, 1, 7, 7, 7, 7};
        const int32_t b[] = {2, 2, 2, 2, 7, 7, 7, 7};
        prefix_case_cache(&fixture, &prefix_case_plain, a, 2);
        prefix_case_cache(&fixture, &prefix_case_plain, b, 1);
        CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, b, 2), 1);
        prefix_case_cache(&fixture, &prefix_case_plain, b, 2);
        struct prefix_ref of_a[2], of_b[2];
        CU_ASSERT_EQUAL(prefix_index_match(fixture.index, &prefix_case_plain, a, NULL, 2, of_a), 2);
        CU_ASSERT_EQUAL(prefix_index_match(fixture.index, &prefix_case_plain, b, NULL, 2, of_b), 2);
        CU_ASSERT_NOT_EQUAL(of_a[1].index, of_b[1].index);
        const struct prefix_node *node = prefix_index_node(fixture.index, of_b[1]);
        CU_ASSERT(node->parent.index == of_b[0].index &&
                  node->parent.generation == of_b[0].generation);
        CU_ASSERT_EQUAL(node->depth, 1);
        prefix_case_close(&fixture);
    }
}

/* D1: placeholders of images have the same ids, so what they stand for decides. */
static void extras_are_part_of_the_content(void)
{
    static const uint64_t zeros[BS];
    const uint64_t cat[BS] = {0, 0xca7, 0xca7, 0};
    const uint64_t dog[BS] = {0, 0xd06, 0xd06, 0};
    struct prefix_case fixture;
    prefix_case_open(&fixture, &prefix_case_one_group, 8);
    struct prefix_chain chain =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, cat, 1, 0);
    CU_ASSERT_EQUAL(prefix_case_match(&fixture, &prefix_case_plain, prefix_case_tokens, cat, 1), 1);
    CU_ASSERT_EQUAL(prefix_case_match(&fixture, &prefix_case_plain, prefix_case_tokens, dog, 1), 0);
    CU_ASSERT_EQUAL(prefix_case_match(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 1),
                    0);
    CU_ASSERT_EQUAL(memcmp(prefix_index_extra(fixture.index, chain.nodes[0]), cat, sizeof cat), 0);
    struct prefix_chain other =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, zeros, 1, 0);
    CU_ASSERT_PTR_NULL(prefix_index_extra(fixture.index, other.nodes[0]));
    CU_ASSERT_EQUAL(prefix_case_match(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 1),
                    1);
    CU_ASSERT_EQUAL(prefix_case_match(&fixture, &prefix_case_plain, prefix_case_tokens, zeros, 1),
                    1);
    CU_ASSERT_EQUAL(prefix_case_match(&fixture, &prefix_case_plain, prefix_case_tokens, dog, 1), 0);
    CU_ASSERT_EQUAL(memcmp(prefix_index_tokens(fixture.index, chain.nodes[0]), prefix_case_tokens,
                           BS * sizeof prefix_case_tokens[0]),
                    0);
    prefix_case_release(&fixture, &chain);
    prefix_case_release(&fixture, &other);
    prefix_case_close(&fixture);
}

static const struct test_case cases[] = {
    TEST(hits_are_those_of_a_brute_force_however_weak_the_hash),
    TEST(hits_do_not_depend_on_the_seed),
    TEST(another_content_with_the_same_polynomial_hash_is_a_miss),
    TEST(of_two_contents_under_one_key_the_second_is_not_indexed),
    TEST(a_block_with_other_ancestors_is_never_attached),
    TEST(extras_are_part_of_the_content),
    TEST_END,
};
const struct test_suite suite_prefix_match = {"prefix_match", cases};
