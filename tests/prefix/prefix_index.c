/* SPDX-License-Identifier: MIT
 *
 * The prefix index: who is found, who is not, and in which order things go. */
#include "prefix/prefix_index.h"

#include <stdio.h>
#include <string.h>

#include "prefix/prefix_hash.h"
#include "prefix_case.h"

#define BS 4

static const struct prefix_config one_group = {.block_size = BS, .num_groups = 1};
static const struct prefix_config two_groups = {.block_size = BS, .num_groups = 2};

static struct prefix_scope scope_of(struct prefix_case *fixture,
                                    const struct pkv_namespace_field *fields, int32_t num_fields)
{
    struct prefix_scope scope = {0};
    ASSERT_STATUS(PKV_OK, prefix_scope_open(fixture->index, fields, num_fields, &scope));
    CU_ASSERT_FATAL(scope.count > 0);
    return scope;
}

static struct pkv_namespace_field text(int32_t tag, const char *bytes)
{
    return (struct pkv_namespace_field){tag, (int32_t)strlen(bytes), bytes, 0};
}

/* --- memory */

static void create_takes_what_size_says(void)
{
    const int32_t num_blocks[2] = {9, 9};
    struct prefix_sizes sizes;
    struct prefix_case fixture;
    ASSERT_STATUS(PKV_OK, prefix_index_size(&two_groups, num_blocks, &sizes));
    prefix_case_open(&fixture, &two_groups, 9);
    CU_ASSERT_EQUAL(fixture.memory.live_bytes,
                    2 * block_pool_bytes(9) + sizes.metadata_bytes + sizes.mapped_bytes);
    CU_ASSERT_EQUAL(prefix_index_num_nodes(fixture.index), 36);
    prefix_case_close(&fixture);
    prefix_index_destroy(NULL);

    struct prefix_config config = two_groups;
    config.num_nodes = INT32_MAX;
    ASSERT_STATUS(PKV_NEVER_FITS, prefix_index_size(&config, num_blocks, &sizes));
    config.num_nodes = INT32_MAX / 2;
    config.max_namespaces = 1;
    config.block_size = INT32_MAX;
    sizes = (struct prefix_sizes){55, 55};
    ASSERT_STATUS(PKV_NEVER_FITS, prefix_index_size(&config, num_blocks, &sizes));
    CU_ASSERT(sizes.metadata_bytes == 55 && sizes.mapped_bytes == 55);
}

static void create_fails_cleanly_at_every_allocation(void)
{
    struct test_memory memory = {0};
    struct pkv_hooks hooks = test_hooks(&memory);
    struct prefix_config config = two_groups;
    struct prefix_index *index = NULL;
    pkv_pool *pools[2] = {NULL, NULL};
    ASSERT_STATUS(PKV_OK, pkv_pool_create(5, NULL, &pools[0]));
    ASSERT_STATUS(PKV_OK, pkv_pool_create(5, NULL, &pools[1]));
    config.pools = pools;
    long failures = 0;
    for (memory.fail_at = 1; prefix_index_create(&config, &hooks, &index) != PKV_OK;) {
        CU_ASSERT(index == NULL && memory.live == 0 && memory.live_bytes == 0);
        memory.fail_at = ++failures + 1;
    }
    CU_ASSERT_EQUAL(failures, 4);
    memory.fail_at = 0;
    CU_ASSERT_EQUAL(prefix_index_check(index), 0);
    prefix_index_destroy(index);
    CU_ASSERT(memory.live == 0 && memory.live_bytes == 0);
    index = NULL;
    config.num_nodes = INT32_MAX;
    ASSERT_STATUS(PKV_NEVER_FITS, prefix_index_create(&config, &hooks, &index));
    hooks.free = NULL;
    ASSERT_STATUS(PKV_INVALID_ARGUMENT, prefix_index_create(&two_groups, &hooks, &index));
    CU_ASSERT(index == NULL && memory.live == 0);
    pkv_pool_destroy(pools[0]);
    pkv_pool_destroy(pools[1]);
}

/* --- identity */

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
    struct prefix_config config = one_group;
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
        struct prefix_config config = one_group;
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
    prefix_case_open(&fixture, &one_group, 8);
    prefix_case_cache(&fixture, &prefix_case_plain, (const int32_t[]){100, 200, 300, 400}, 1);
    CU_ASSERT_EQUAL(
        prefix_case_hit(&fixture, &prefix_case_plain, (const int32_t[]){131, 199, 300, 400}, 1), 0);
    prefix_case_close(&fixture);
}

/* D1: a second content under a key is not taken for the first. */
static void of_two_contents_under_one_key_the_second_is_not_indexed(void)
{
    struct prefix_config config = one_group;
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
    const struct prefix_key key = fixture.index->nodes.nodes[first.index].key;
    const struct prefix_key forged = prefix_index_node(fixture.index, second)->key;
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
        struct prefix_config config = one_group;
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

/* D12: a parent whose place was taken by another node meanwhile has no children. */
static void a_stale_parent_has_no_children(void)
{
    struct prefix_config config = one_group;
    struct prefix_case fixture;
    struct prefix_ref node = {55, 55};
    config.num_nodes = 1;
    prefix_case_open(&fixture, &config, 4);
    prefix_case_cache(&fixture, &prefix_case_plain, prefix_case_tokens, 1);
    const struct prefix_ref old =
        prefix_index_find(fixture.index, PREFIX_ROOT, 0, prefix_case_tokens, NULL);
    prefix_index_detach(fixture.index, 0, prefix_index_block(fixture.index, old, 0));
    prefix_case_cache(&fixture, &prefix_case_plain, prefix_case_tokens + BS, 1);
    const struct prefix_ref now =
        prefix_index_find(fixture.index, PREFIX_ROOT, 0, prefix_case_tokens + BS, NULL);
    CU_ASSERT(now.index == old.index && now.generation != old.generation);
    CU_ASSERT_EQUAL(prefix_index_find(fixture.index, old, 0, prefix_case_tokens, NULL).index,
                    PREFIX_NONE);
    CU_ASSERT_EQUAL(
        prefix_index_find(fixture.index, PREFIX_ROOT, PREFIX_NONE, prefix_case_tokens + BS, NULL)
            .index,
        PREFIX_NONE);
    CU_ASSERT_EQUAL(
        prefix_index_insert(fixture.index, old, 0, 1, prefix_case_tokens, NULL, 0, &node),
        PREFIX_FLUSHED);
    CU_ASSERT_EQUAL(prefix_index_attach(fixture.index, old, 0, 0), PREFIX_NONE);
    CU_ASSERT_EQUAL(prefix_index_block(fixture.index, old, 0), PREFIX_NONE);
    CU_ASSERT_PTR_NULL(prefix_index_tokens(fixture.index, old));
    CU_ASSERT_PTR_NULL(prefix_index_extra(fixture.index, old));
    CU_ASSERT_FALSE(prefix_index_is_live(fixture.index, old));
    prefix_index_hold(fixture.index, old);
    prefix_index_release(fixture.index, old);
    prefix_index_raise(fixture.index, old, 3);
    prefix_index_hold(fixture.index, PREFIX_ROOT);
    prefix_index_release(fixture.index, PREFIX_ROOT);
    prefix_index_raise(fixture.index, PREFIX_ROOT, 3);
    CU_ASSERT_EQUAL(node.index, 55);
    CU_ASSERT_EQUAL(prefix_index_node(fixture.index, now)->priority, 0);
    prefix_case_close(&fixture);
}

/* D1: placeholders of images have the same ids, so what they stand for decides. */
static void extras_are_part_of_the_content(void)
{
    static const uint64_t zeros[BS];
    const uint64_t cat[BS] = {0, 0xca7, 0xca7, 0};
    const uint64_t dog[BS] = {0, 0xd06, 0xd06, 0};
    struct prefix_case fixture;
    prefix_case_open(&fixture, &one_group, 8);
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

/* --- keys */

static void append(unsigned char *string, size_t *length, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        string[(*length)++] = (unsigned char)(value >> (8 * i));
    }
}

static bool is_key(struct prefix_key key, const unsigned char *string, size_t length)
{
    const struct prefix_key expected = prefix_hash_bytes(string, length);
    return key.low == expected.low && key.high == expected.high;
}

/* The string of the second block is written out here, byte by byte, as prefix_match.c documents it:
 * keys name blocks in files and on other machines. */
static void a_key_is_the_hash_of_the_documented_string(void)
{
    const uint64_t extra[2 * BS] = {[BS] = 9, [2 * BS - 1] = UINT64_MAX};
    struct prefix_config config = one_group;
    struct prefix_case fixture;
    unsigned char string[256];
    size_t length = 0;
    config.fingerprint = (struct prefix_key){0x1122334455667788u, 0x99aabbccddeeff00u};
    prefix_case_open(&fixture, &config, 4);
    const struct pkv_namespace_field fields[] = {text(7, "xyz"), {2, 0, NULL, 0}};
    struct prefix_scope scope = scope_of(&fixture, fields, 2);
    struct prefix_chain chain =
        prefix_case_publish(&fixture, &scope, prefix_case_tokens, extra, 2, 0);
    const struct prefix_key parent = prefix_index_node(fixture.index, chain.nodes[0])->key;
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
    const struct prefix_key key = prefix_hash_bytes("", 0);
    CU_ASSERT(key.low == 0x6001c324468d497fu && key.high == 0x99aa06d3014798d8u);
}

/* D5: caches of different geometry or model never have a key in common. */
static void geometry_is_part_of_every_key(void)
{
    struct prefix_key keys[2];
    for (uint64_t i = 0; i < 2; i++) {
        struct prefix_config config = one_group;
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

/* --- publishing */

/* A10: of equal blocks one is indexed, and every table can be rewritten to its id. */
static void equal_blocks_have_one_canonical_id(void)
{
    struct prefix_case fixture;
    prefix_case_open(&fixture, &one_group, 8);
    struct prefix_chain a =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 2, 0);
    const int32_t free_before = pkv_pool_num_free(fixture.pools[0]);
    struct prefix_chain b =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 2, 0);
    CU_ASSERT(b.blocks[0][0] == a.blocks[0][0] && b.blocks[0][1] == a.blocks[0][1]);
    CU_ASSERT_EQUAL(pkv_pool_ref_count(fixture.pools[0], a.blocks[0][1]), 2);
    CU_ASSERT_EQUAL(pkv_pool_num_free(fixture.pools[0]), free_before);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 2);
    CU_ASSERT_EQUAL(prefix_index_node(fixture.index, a.nodes[1])->num_holders, 2);
    prefix_case_release(&fixture, &a);
    prefix_case_release(&fixture, &b);
    CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, prefix_case_tokens, 2), 2);
    prefix_case_close(&fixture);
}

/* I1: the index has a fixed number of nodes, and a full one takes no memory. */
static void insert_fails_cleanly_when_no_node_is_free(void)
{
    struct prefix_config config = one_group;
    struct prefix_case fixture;
    struct prefix_ref node = {55, 55};
    config.num_nodes = 3;
    prefix_case_open(&fixture, &config, 8);
    const long calls = fixture.memory.calls;
    struct prefix_chain chain =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 3, 0);
    CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, chain.nodes[2], 0, 1,
                                        prefix_case_tokens + 12, NULL, 3, &node),
                    PREFIX_NOT_NOW);
    CU_ASSERT_EQUAL(node.index, 55);
    CU_ASSERT_EQUAL(prefix_index_node(fixture.index, chain.nodes[0])->priority, 0);
    CU_ASSERT_EQUAL(prefix_index_counters(fixture.index).not_indexed, 1);
    prefix_case_release(&fixture, &chain);
    prefix_case_evict(&fixture, 1);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 2);
    CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, PREFIX_ROOT, 0, 1, prefix_case_tokens + 12,
                                        NULL, 3, &node),
                    PREFIX_NEW);
    prefix_index_release(fixture.index, node);
    CU_ASSERT_PTR_NULL(prefix_index_node(fixture.index, node));
    CU_ASSERT_EQUAL(fixture.memory.calls, calls);
    prefix_case_close(&fixture);
}

static void nodes_are_used_again_oldest_first(void)
{
    struct prefix_config config = one_group;
    struct prefix_case fixture;
    struct prefix_ref nodes[3];
    config.num_nodes = 3;
    prefix_case_open(&fixture, &config, 8);
    for (int32_t i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, PREFIX_ROOT, 0, 1,
                                            prefix_case_tokens + BS * i, NULL, 0, &nodes[i]),
                        PREFIX_NEW);
    }
    prefix_index_release(fixture.index, nodes[1]);
    prefix_index_release(fixture.index, nodes[0]);
    prefix_index_release(fixture.index, nodes[2]);
    for (int32_t i = 0; i < 3; i++) {
        static const int32_t order[] = {1, 0, 2};
        struct prefix_ref node = PREFIX_ROOT;
        CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, PREFIX_ROOT, 0, 1,
                                            prefix_case_tokens + 20 + i, NULL, 0, &node),
                        PREFIX_NEW);
        CU_ASSERT_EQUAL(node.index, nodes[order[i]].index);
        CU_ASSERT_EQUAL(node.generation, nodes[order[i]].generation + 1);
    }
    prefix_case_close(&fixture);
}

/* A window shorter than a block: the newest block goes before the next is full. */
static void a_holder_keeps_a_node_without_a_block(void)
{
    struct prefix_case fixture;
    struct prefix_ref next = PREFIX_ROOT;
    prefix_case_open(&fixture, &one_group, 2);
    struct prefix_chain chain =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 1, 0);
    CU_ASSERT_TRUE(prefix_index_drop(fixture.index, 0, chain.blocks[0][0], true));
    CU_ASSERT_NOT_EQUAL(prefix_index_take(fixture.index, 0), chain.blocks[0][0]);
    CU_ASSERT_EQUAL(prefix_index_take(fixture.index, 0), chain.blocks[0][0]);
    const struct prefix_node *node = prefix_index_node(fixture.index, chain.nodes[0]);
    CU_ASSERT(node != NULL && node->num_blocks == 0 && node->num_holders == 1);
    CU_ASSERT_EQUAL(prefix_index_insert(fixture.index, chain.nodes[0], 0, 1,
                                        prefix_case_tokens + BS, NULL, 0, &next),
                    PREFIX_NEW);
    prefix_index_release(fixture.index, chain.nodes[0]);
    CU_ASSERT_EQUAL(prefix_index_attach(fixture.index, next, 0, 1), 1);
    prefix_index_release(fixture.index, next);
    CU_ASSERT_EQUAL(prefix_index_check(fixture.index), 0);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 2);
    CU_ASSERT_EQUAL(prefix_case_match(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 2),
                    2);
    CU_ASSERT_EQUAL(prefix_case_hit(&fixture, &prefix_case_plain, prefix_case_tokens, 2), 0);
    prefix_index_detach(fixture.index, 0, 1);
    prefix_index_detach(fixture.index, 0, 1);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 0); /* the parent followed */
    CU_ASSERT_EQUAL(block_pool_class(fixture.pools[0], 1), BLOCK_POOL_NONE);
    prefix_case_close(&fixture);
}

/* --- reading and checking */

static void the_observer_sees_the_first_and_the_last_block_of_a_node(void)
{
    struct prefix_case fixture;
    prefix_case_open(&fixture, &two_groups, 8);
    struct prefix_chain chain =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 2, 0);
    const struct prefix_key keys[2] = {prefix_index_node(fixture.index, chain.nodes[0])->key,
                                       prefix_index_node(fixture.index, chain.nodes[1])->key};
    CU_ASSERT_EQUAL(fixture.log.count, 2);
    prefix_index_detach(fixture.index, 0, chain.blocks[0][1]);
    CU_ASSERT_EQUAL(fixture.log.count, 2);
    prefix_index_detach(fixture.index, 1, chain.blocks[1][1]);
    prefix_case_release(&fixture, &chain);
    prefix_case_evict(&fixture, 1);
    CU_ASSERT_EQUAL(fixture.log.count, 3);
    while (prefix_index_take(fixture.index, 1) != PREFIX_NONE) {
    }
    static const enum prefix_change changes[] = {PREFIX_STORED, PREFIX_STORED, PREFIX_REMOVED,
                                                 PREFIX_REMOVED};
    static const int32_t which[] = {0, 1, 1, 0};
    CU_ASSERT_EQUAL_FATAL(fixture.log.count, 4);
    for (int32_t i = 0; i < 4; i++) {
        CU_ASSERT_EQUAL(fixture.log.change[i], changes[i]);
        CU_ASSERT_EQUAL(fixture.log.key[i].low, keys[which[i]].low);
    }
    prefix_case_close(&fixture);
}

static void next_visits_every_used_node_once(void)
{
    struct prefix_case fixture;
    int32_t count = 0;
    prefix_case_open(&fixture, &one_group, 8);
    CU_ASSERT_EQUAL(prefix_index_next(fixture.index, 0).index, PREFIX_NONE);
    struct prefix_chain chain =
        prefix_case_publish(&fixture, &prefix_case_plain, prefix_case_tokens, NULL, 5, 0);
    prefix_index_detach(fixture.index, 0, chain.blocks[0][4]);
    prefix_case_release(&fixture, &chain);
    struct prefix_ref at = prefix_index_next(fixture.index, 0);
    for (; at.index != PREFIX_NONE; at = prefix_index_next(fixture.index, at.index + 1)) {
        const int32_t depth = prefix_index_node(fixture.index, at)->depth;
        CU_ASSERT_EQUAL(prefix_index_tokens(fixture.index, at)[0], prefix_case_tokens[depth * BS]);
        const struct prefix_ref found =
            prefix_index_node_of(fixture.index, 0, prefix_index_block(fixture.index, at, 0));
        CU_ASSERT(found.index == at.index && found.generation == at.generation);
        count++;
    }
    CU_ASSERT_EQUAL(count, 4);
    CU_ASSERT_EQUAL(prefix_index_num_used(fixture.index), 4);
    CU_ASSERT_EQUAL(prefix_index_node_of(fixture.index, 0, 7).index, PREFIX_NONE);
    prefix_case_close(&fixture);
}

/* One way to break an index of a chain of three (one held) and a dead node; false at the end. */
static bool break_index(struct prefix_index *index, int how)
{
    struct prefix_node_table *table = &index->nodes;
    struct prefix_namespace_table *namespaces = &index->namespaces;
    struct prefix_node *nodes = table->nodes;
    switch (how) {
    case 0: nodes[0].next = 1; break;
    case 1: table->buckets[prefix_node_bucket(table, nodes[1].key)] = 0; break;
    case 2: table->buckets[prefix_node_bucket(table, nodes[1].key)] = 99; break;
    case 3: nodes[1].key.low ^= 1; break;
    case 4: table->num_used = 2; break;
    case 5: table->free_head = 0; break;
    case 6: table->free_tail = 1; break;
    case 7: table->free_head = 1; break;
    case 8: nodes[1].parent.generation++; break;
    case 9: nodes[2].priority = 1; break;
    case 10: nodes[1].priority = PKV_NUM_PRIORITIES; break;
    case 11: nodes[0].num_children = 0; break;
    case 12: nodes[1].num_blocks = 2; break;
    case 13: prefix_node_blocks(table, 1)[0] = 77; break;
    case 14: prefix_node_blocks(table, 1)[0] = PREFIX_NONE; break;
    case 15: index->block_nodes[0][0] = 2; break;
    case 16: index->block_nodes[0][7] = 1; break;
    case 17: index->block_nodes[0][7] = -5; break;
    case 18: nodes[1].depth = 0; break;
    case 19: nodes[1].num_holders = -1; break;
    case 20: nodes[1].namespace_id = 50; break;
    case 21: prefix_node_tokens(table, 1)[0] ^= 1; break;
    case 22: block_pool_move(index->pools[0], 7, PREFIX_CLASS_PRIORITY); break;
    case 23: block_pool_move(index->pools[0], 1, PREFIX_CLASS_UNINDEXED); break;
    case 24: namespaces->fields.records[0].refs++; break;
    case 25: namespaces->fields.records[0].cached++; break;
    case 26: namespaces->records[1].refs = 0; break;
    case 27: index->sweep_left = 99; break;
    case 28: memset(namespaces->fields.buckets, 0, 4 * (size_t)namespaces->num_buckets); break;
    case 29: namespaces->buckets[0] = 99; break;
    case 30: nodes[3].generation = 0, nodes[3].is_used = true; break;
    default: return false;
    }
    return true;
}

static void check_reports_every_kind_of_damage(void)
{
    bool is_broken = true;
    for (int how = 0; is_broken; how++) {
        struct prefix_case fixture;
        prefix_case_open(&fixture, &one_group, 8);
        const struct pkv_namespace_field field = text(1, "t");
        struct prefix_scope scope = scope_of(&fixture, &field, 1);
        struct prefix_chain chain =
            prefix_case_publish(&fixture, &scope, prefix_case_tokens, NULL, 4, 0);
        prefix_index_detach(fixture.index, 0, chain.blocks[0][3]);
        prefix_case_release(&fixture, &chain);
        prefix_scope_close(fixture.index, &scope);
        CU_ASSERT(prefix_index_check(fixture.index) == 0 && fixture.memory.num_logged == 0);
        is_broken = break_index(fixture.index, how);
        const int32_t faults = prefix_index_check(fixture.index);
        if (is_broken != (faults > 0)) {
            printf("check missed damage %d\n", how);
        }
        CU_ASSERT_EQUAL(is_broken, faults > 0);
        CU_ASSERT_EQUAL(fixture.memory.num_logged, faults);
        prefix_index_destroy(fixture.index);
        pkv_pool_destroy(fixture.pools[0]);
        CU_ASSERT_EQUAL(fixture.memory.live, 0);
    }
}

static const struct test_case cases[] = {
    TEST(create_takes_what_size_says),
    TEST(create_fails_cleanly_at_every_allocation),
    TEST(hits_are_those_of_a_brute_force_however_weak_the_hash),
    TEST(hits_do_not_depend_on_the_seed),
    TEST(another_content_with_the_same_polynomial_hash_is_a_miss),
    TEST(of_two_contents_under_one_key_the_second_is_not_indexed),
    TEST(a_block_with_other_ancestors_is_never_attached),
    TEST(a_stale_parent_has_no_children),
    TEST(extras_are_part_of_the_content),
    TEST(a_key_is_the_hash_of_the_documented_string),
    TEST(the_hash_is_xxh3_128),
    TEST(geometry_is_part_of_every_key),
    TEST(equal_blocks_have_one_canonical_id),
    TEST(insert_fails_cleanly_when_no_node_is_free),
    TEST(nodes_are_used_again_oldest_first),
    TEST(a_holder_keeps_a_node_without_a_block),
    TEST(the_observer_sees_the_first_and_the_last_block_of_a_node),
    TEST(next_visits_every_used_node_once),
    TEST(check_reports_every_kind_of_damage),
    TEST_END,
};
const struct test_suite suite_prefix_index = {"prefix_index", cases};
