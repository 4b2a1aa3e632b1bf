/* SPDX-License-Identifier: MIT
 *
 * Siblings in order, against a list that is searched token by token. */
#include "prefix/prefix_siblings.h"

#include <string.h>

#include "prefix_case.h"

#define NUM_BLOCKS 48
#define BLOCK_SIZE 8

static struct prefix_config config_of(int32_t num_groups, int32_t masked_key_bits)
{
    return (struct prefix_config){.block_size = BLOCK_SIZE,
                                  .num_groups = num_groups,
                                  .masked_key_bits = masked_key_bits,
                                  .finds_partial = true};
}

/* Few different tokens, so that many have a beginning in common. */
static void draw_tokens(struct test_random *random, int32_t *tokens, uint64_t *extra)
{
    const bool has_extra = random_between(random, 0, 2) == 0;
    for (int32_t i = 0; i < BLOCK_SIZE; i++) {
        tokens[i] = random_between(random, -1, 1);
        extra[i] = has_extra && random_between(random, 0, 5) == 0 ? UINT64_MAX : 0;
    }
}

static bool is_everywhere(const struct prefix_index *index, struct prefix_ref ref)
{
    for (int32_t g = 0; g < index->nodes.num_groups; g++) {
        if (prefix_index_block(index, ref, g) == NO_BLOCK) {
            return false;
        }
    }
    return true;
}

static int32_t common(const struct prefix_index *index, struct prefix_ref ref,
                      const int32_t *tokens, const uint64_t *extra, int32_t limit)
{
    const int32_t *own = prefix_index_tokens(index, ref);
    const uint64_t *own_extra = prefix_index_extra(index, ref);
    const int32_t num_tokens = prefix_index_node(index, ref)->num_tokens;
    int32_t i = 0;
    limit = limit < num_tokens ? limit : num_tokens;
    while (i < limit && tokens[i] == own[i] &&
           (own_extra != NULL ? own_extra[i] : 0) == (extra != NULL ? extra[i] : 0)) {
        i++;
    }
    return i;
}

static int32_t longest(const struct prefix_index *index, struct prefix_ref parent,
                       int32_t namespace_id, const int32_t *tokens, const uint64_t *extra,
                       int32_t limit)
{
    int32_t most = 0;
    struct prefix_ref ref = prefix_case_next(index, 0);
    for (; ref.index != PREFIX_NONE; ref = prefix_case_next(index, ref.index + 1)) {
        const struct prefix_node *node = prefix_index_node(index, ref);
        if (node->parent.index == parent.index && node->parent.generation == parent.generation &&
            node->namespace_id == namespace_id && prefix_index_is_live(index, ref) &&
            is_everywhere(index, ref)) {
            const int32_t count = common(index, ref, tokens, extra, limit);
            most = count > most ? count : most;
        }
    }
    return most;
}

/* A random prompt under one of the nodes, or under none. */
static void ask(struct prefix_case *f, struct test_random *random, const struct prefix_scope *scope)
{
    int32_t tokens[BLOCK_SIZE];
    uint64_t extra[BLOCK_SIZE];
    struct prefix_ref found;
    struct prefix_ref parent = prefix_case_next(f->index, random_between(random, 0, 200));
    parent = random_between(random, 0, 2) == 0 ? parent : PREFIX_ROOT;
    const int32_t limit = random_between(random, 0, BLOCK_SIZE);
    draw_tokens(random, tokens, extra);
    const int32_t count =
        prefix_index_match_start(f->index, scope, parent, 0, tokens, extra, limit, &found);
    CU_ASSERT_EQUAL(count, longest(f->index, parent, scope->namespace_id[0], tokens, extra, limit));
    CU_ASSERT_EQUAL(count > 0, found.index != PREFIX_NONE);
    if (count > 0) {
        CU_ASSERT_EQUAL(common(f->index, found, tokens, extra, limit), count);
        CU_ASSERT(is_everywhere(f->index, found));
    }
}

/* One or two blocks of random tokens, cached and not held. */
static void add(struct prefix_case *f, struct test_random *random, const struct prefix_scope *scope)
{
    int32_t tokens[2 * BLOCK_SIZE];
    uint64_t extra[2 * BLOCK_SIZE];
    const bool has_extra = random_between(random, 0, 1);
    draw_tokens(random, tokens, extra);
    draw_tokens(random, tokens + BLOCK_SIZE, extra + BLOCK_SIZE);
    if (random_between(random, 0, 1)) { /* a parent of many */
        memset(tokens, 0, BLOCK_SIZE * sizeof tokens[0]);
        memset(extra, 0, BLOCK_SIZE * sizeof extra[0]);
    }
    struct prefix_chain chain = prefix_case_publish(f, scope, tokens, has_extra ? extra : NULL,
                                                    random_between(random, 1, 2), 0);
    prefix_case_release(f, &chain);
}

/* A tail under no node, as a sequence leaves one behind. */
static void add_tail(struct prefix_case *f, struct test_random *random,
                     const struct prefix_scope *scope)
{
    int32_t tokens[BLOCK_SIZE];
    uint64_t extra[BLOCK_SIZE];
    draw_tokens(random, tokens, extra);
    const struct prefix_start start = {.parent = PREFIX_ROOT,
                                       .namespace_id = scope->namespace_id[0],
                                       .tokens = tokens,
                                       .extra = extra,
                                       .num_tokens = random_between(random, 1, BLOCK_SIZE - 1)};
    int32_t blocks[PREFIX_CASE_GROUPS];
    for (int32_t g = 0; g < f->config.num_groups; g++) {
        blocks[g] = prefix_index_take(f->index, g);
    }
    const int32_t known =
        longest(f->index, PREFIX_ROOT, start.namespace_id, tokens, extra, start.num_tokens);
    const struct prefix_ref node =
        prefix_index_insert_tail(f->index, &start, prefix_index_epoch(f->index));
    CU_ASSERT_EQUAL(node.index == PREFIX_NONE, known == start.num_tokens);
    for (int32_t g = 0; g < f->config.num_groups; g++) {
        if (node.index != PREFIX_NONE) {
            CU_ASSERT_EQUAL(prefix_index_attach(f->index, node, g, blocks[g]), blocks[g]);
        }
    }
    prefix_index_supersede(f->index, node);
    prefix_index_release(f->index, node);
    for (int32_t g = 0; g < f->config.num_groups; g++) {
        (void)prefix_index_drop(f->index, g, blocks[g], false);
    }
}

static void lose_one(struct prefix_case *f, struct test_random *random)
{
    const int32_t group = random_between(random, 0, f->config.num_groups - 1);
    const int32_t block = random_between(random, 0, NUM_BLOCKS - 1);
    prefix_index_detach(f->index, group, block);
}

static void run(uint64_t seed, int32_t num_groups, int32_t masked_key_bits)
{
    struct prefix_case f;
    struct test_random random = {seed};
    const struct prefix_config config = config_of(num_groups, masked_key_bits);
    prefix_case_open(&f, &config, NUM_BLOCKS);
    const struct pkv_namespace_field field = prefix_case_field(PREFIX_CASE_TENANT, "ann");
    struct prefix_scope scope = prefix_case_scope(&f, &field, 1);
    for (int32_t i = 0; i < 1500; i++) {
        const struct prefix_scope *of =
            random_between(&random, 0, 2) == 0 ? &scope : &prefix_case_plain;
        const int32_t what = random_between(&random, 0, 20);
        if (what < 6) {
            add(&f, &random, of);
        } else if (what < 8) {
            add_tail(&f, &random, of);
        } else if (what < 10) {
            lose_one(&f, &random);
        } else if (what == 20 && i % 10 == 0) {
            struct prefix_swept swept = {0};
            prefix_index_flush(f.index, &field);
            ask(&f, &random, &prefix_case_plain);
            prefix_case_sweep(&f, &swept);
        } else {
            ask(&f, &random, of);
        }
        CU_ASSERT_EQUAL(prefix_index_check(f.index), 0);
    }
    prefix_scope_close(f.index, &scope);
    prefix_case_close(&f);
}

/* Whatever is published, evicted and flushed, the longest common part is found. */
static void the_longest_common_part_is_that_of_a_plain_search(void)
{
    for (uint64_t round = 0; round < 6; round++) {
        run(test_seed() + round, 1 + (int32_t)(round % 2), round < 4 ? 0 : PREFIX_KEY_BITS);
    }
}

/* What was flushed is not found, though it was not swept yet. */
static void a_flushed_sibling_is_not_found(void)
{
    struct prefix_case f;
    struct prefix_ref found;
    struct prefix_swept swept = {0};
    const struct prefix_config config = config_of(1, 0);
    const struct pkv_namespace_field field = prefix_case_field(PREFIX_CASE_TENANT, "ann");
    prefix_case_open(&f, &config, NUM_BLOCKS);
    struct prefix_scope scope = prefix_case_scope(&f, &field, 1);
    prefix_case_cache(&f, &scope, prefix_case_tokens, 1);
    CU_ASSERT_EQUAL(prefix_index_match_start(f.index, &scope, PREFIX_ROOT, 0, prefix_case_tokens,
                                             NULL, 5, &found),
                    5);
    prefix_index_flush(f.index, &field);
    CU_ASSERT_EQUAL(prefix_index_match_start(f.index, &scope, PREFIX_ROOT, 0, prefix_case_tokens,
                                             NULL, 5, &found),
                    0);
    CU_ASSERT_EQUAL(found.index, PREFIX_NONE);
    prefix_case_cache(&f, &scope, prefix_case_tokens, 1); /* beside the one that is not swept */
    CU_ASSERT_EQUAL(prefix_index_match_start(f.index, &scope, PREFIX_ROOT, 0, prefix_case_tokens,
                                             NULL, 5, &found),
                    5);
    prefix_case_sweep(&f, &swept);
    prefix_scope_close(f.index, &scope);
    prefix_case_close(&f);
}

/* Contents that come in order make no deep tree: 512 siblings are found in a few dozen looks. */
static void siblings_that_come_in_order_are_found_fast(void)
{
    struct prefix_case f;
    const struct prefix_config config = config_of(1, 0);
    int32_t tokens[BLOCK_SIZE] = {0};
    prefix_case_open(&f, &config, 512);
    for (int32_t i = 0; i < 512; i++) {
        tokens[0] = i;
        prefix_case_cache(&f, &prefix_case_plain, tokens, 1);
    }
    struct prefix_ref ref = prefix_case_next(f.index, 0);
    for (; ref.index != PREFIX_NONE; ref = prefix_case_next(f.index, ref.index + 1)) {
        CU_ASSERT(prefix_siblings_has(&f.index->nodes, ref.index, 40));
    }
    prefix_case_close(&f);
}

/* The checker counts links that are broken. */
static void broken_order_is_counted(void)
{
    struct prefix_case f;
    const struct prefix_config config = config_of(1, 0);
    int32_t tokens[BLOCK_SIZE] = {0};
    prefix_case_open(&f, &config, NUM_BLOCKS);
    for (int32_t i = 0; i < 3; i++) {
        tokens[0] = i;
        prefix_case_cache(&f, &prefix_case_plain, tokens, 1);
    }
    const int32_t first = f.index->nodes.first_siblings;
    f.index->nodes.first_siblings = 0;
    CU_ASSERT(prefix_index_check(f.index) > 0);
    f.index->nodes.first_siblings = first % 3 + 1;
    CU_ASSERT(prefix_index_check(f.index) > 0);
    f.index->nodes.first_siblings = first;
    CU_ASSERT_EQUAL(prefix_index_check(f.index), 0);
    prefix_case_close(&f);
}

static const struct test_case cases[] = {
    TEST(the_longest_common_part_is_that_of_a_plain_search),
    TEST(a_flushed_sibling_is_not_found),
    TEST(siblings_that_come_in_order_are_found_fast),
    TEST(broken_order_is_counted),
    TEST_END,
};
const struct test_suite suite_prefix_siblings = {"prefix_siblings", cases};
