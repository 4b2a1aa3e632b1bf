/* SPDX-License-Identifier: MIT
 *
 * The prefix index against a naive tree: an array of nodes that know their content, searched from
 * end to end, and pools whose order is a time stamp a block. Everything that the index derives
 * (which nodes live, what is found, which block goes next) is recomputed here from scratch. */
#include <string.h>

#include "base/window.h"
#include "prefix/prefix_order.h"
#include "prefix_case.h"

#define BS 2
#define BLOCKS 14
#define NODES 32
#define GROUPS 2
#define HELD 64
#define SPACES 4
#define OPERATIONS 100000

struct model_node {
    bool is_used;
    bool is_flushed;
    struct prefix_ref ref;
    int32_t parent; /* in the model's array, -1 = root */
    int32_t space;
    int32_t tokens[BS];
    uint64_t extra[BS];
    int32_t blocks[GROUPS];
    int32_t holders;
    int32_t priority;
    int32_t distance;
    int32_t num_continued;
    int64_t used[GROUPS]; /* when its block became free last, 0 = never */
};

struct model_block {
    int32_t count;
    int32_t queue;
    int64_t time;
    int32_t standing;
    int32_t node;
};

struct model_order {
    int64_t clock;
    int32_t capacity;
    int32_t lateness;
};

struct model {
    struct prefix_case fixture;
    struct test_random random;
    struct prefix_scope spaces[SPACES];
    struct model_node nodes[NODES];
    struct model_block blocks[GROUPS][BLOCKS];
    int64_t now;
    struct model_order orders[GROUPS];
    struct prefix_swept retired; /* not yet reported */
    int32_t num_late, num_soon;
    int32_t num_inserted, num_found, num_refused, num_hits;
    int64_t num_retired, num_evicted;
};

/* Namespaces: none, salt a, salt b, salt a of tenant x. */
static const struct pkv_namespace_field fields[SPACES][2] = {
    {{0, 0, NULL, 0}, {0, 0, NULL, 0}},
    {{1, 1, "a", 0}, {0, 0, NULL, 0}},
    {{1, 1, "b", 0}, {0, 0, NULL, 0}},
    {{1, 1, "a", 0}, {2, 1, "x", 0}},
};
static const int32_t num_fields[SPACES] = {0, 1, 1, 2};

/* Of the groups: what retention points cover. */
static const int64_t windows[GROUPS] = {0, 4};
enum { WIDEST = 2 };

static int32_t pick(struct model *model, int32_t count)
{
    return random_between(&model->random, 0, count - 1);
}

/* --- the naive side */

/* Nodes without block, holder and child die, until none does. */
static void bury(struct model *model)
{
    for (bool is_changed = true; is_changed;) {
        bool has_child[NODES] = {false};
        is_changed = false;
        for (int32_t i = 0; i < NODES; i++) {
            if (model->nodes[i].is_used && model->nodes[i].parent >= 0) {
                has_child[model->nodes[i].parent] = true;
            }
        }
        for (int32_t i = 0; i < NODES; i++) {
            struct model_node *node = &model->nodes[i];
            if (node->is_used && !has_child[i] && node->holders == 0 && node->blocks[0] < 0 &&
                node->blocks[1] < 0) {
                node->is_used = false;
                is_changed = true;
            }
        }
    }
}

static int32_t find_content(const struct model *model, int32_t parent, int32_t space,
                            const int32_t *tokens, const uint64_t *extra)
{
    for (int32_t i = 0; i < NODES; i++) {
        const struct model_node *node = &model->nodes[i];
        if (node->is_used && !node->is_flushed && node->parent == parent && node->space == space &&
            memcmp(node->tokens, tokens, sizeof node->tokens) == 0 &&
            memcmp(node->extra, extra, sizeof node->extra) == 0) {
            return i;
        }
    }
    return -1;
}

/* Node `at` and what `made` will be are the same tokens behind the same tokens, live or not. */
static bool is_same_chain(const struct model *model, int32_t at, const struct model_node *made)
{
    const struct model_node *node = &model->nodes[at];
    if (node->space != made->space ||
        memcmp(node->tokens, made->tokens, sizeof node->tokens) != 0 ||
        memcmp(node->extra, made->extra, sizeof node->extra) != 0) {
        return false;
    }
    if (node->parent < 0 || made->parent < 0) {
        return node->parent == made->parent;
    }
    return node->parent == made->parent ||
           is_same_chain(model, node->parent, &model->nodes[made->parent]);
}

static int32_t standing_of(const struct model_block *block)
{
    return block->queue > 1 ? block->standing : PREFIX_PASSING;
}

/* When a block counts as freed: later by its standing. */
static int64_t freed(const struct model_block *block, const struct model_order *order)
{
    const int32_t hold = order->lateness >= 0 ? 2 * BLOCKS : BLOCKS / 2;
    const int32_t holds[PREFIX_NUM_STANDINGS] = {0, hold, 2 * BLOCKS};
    return block->time + holds[standing_of(block)];
}

/* Of two blocks of one queue that count as freed at once, the one of lower standing goes. */
static bool goes_before(const struct model_block *a, const struct model_block *b,
                        const struct model_order *order)
{
    if (a->queue != b->queue) {
        return a->queue < b->queue;
    }
    const int64_t freed_a = freed(a, order);
    const int64_t freed_b = freed(b, order);
    return freed_a < freed_b || (freed_a == freed_b && standing_of(a) < standing_of(b));
}

static int32_t next_block(const struct model *model, int32_t group, int32_t first_queue)
{
    int32_t best = -1;
    uint64_t blank = 0; /* a bit for each free block without a node */
    for (int32_t b = 0; b < BLOCKS; b++) {
        const struct model_block *block = &model->blocks[group][b];
        const struct model_block *than = best < 0 ? NULL : &model->blocks[group][best];
        blank |= (uint64_t)(block->count == 0 && block->queue == 0) << b;
        if (block->count == 0 && block->queue >= first_queue &&
            (than == NULL || goes_before(block, than, &model->orders[group]))) {
            best = b;
        }
    }
    return first_queue == 0 && blank != 0 ? prefix_case_longest_run(blank) : best;
}

/* Is there room for so many more settled blocks in the queue? */
static bool has_room(const struct model *model, int32_t group, int32_t queue, int32_t num_blocks)
{
    const struct model_order *order = &model->orders[group];
    bool is_overdue = false;
    for (int32_t b = 0; b < BLOCKS; b++) {
        const struct model_block *block = &model->blocks[group][b];
        if (block->count == 0 && standing_of(block) != PREFIX_PASSING) {
            num_blocks++;
            is_overdue |= block->queue == queue && standing_of(block) == PREFIX_SETTLED &&
                          freed(block, order) < order->clock;
        }
    }
    return num_blocks <= order->capacity || is_overdue;
}

static void put(struct model *model, int32_t group, int32_t at, int32_t queue)
{
    struct model_block *block = &model->blocks[group][at];
    struct model_order *order = &model->orders[group];
    if (queue < 2) {
        block->queue = queue;
        block->time = model->now++;
        return;
    }
    block->queue = queue;
    block->time = order->clock++;
    model->nodes[block->node].used[group] = block->time;
}

static void unlink_block(struct model *model, int32_t group, int32_t block)
{
    struct model_block *parted = &model->blocks[group][block];
    model->nodes[parted->node].blocks[group] = -1;
    parted->node = -1;
    if (parted->count == 0) {
        put(model, group, block, 0);
    }
}

/* Does a retention point cover this node's block of the group? */
static bool covers(const struct model *model, int32_t at, int32_t group)
{
    const int32_t blocks = (int32_t)(windows[group] > 0 ? (windows[group] - 1 + BS - 1) / BS : 0);
    return model->nodes[at].distance < blocks;
}

/* Every node above has the least distance to a point that was made while it was there. */
static void retain_model(struct model *model, int32_t at, int32_t max_rewind)
{
    int32_t distance = -((max_rewind + BS - 1) / BS);
    for (; at >= 0 && distance < WIDEST; at = model->nodes[at].parent, distance++) {
        struct model_node *node = &model->nodes[at];
        node->distance = distance < node->distance ? distance : node->distance;
        for (int32_t group = 0; group < GROUPS; group++) {
            const int32_t block = node->blocks[group];
            if (block >= 0 && model->blocks[group][block].count == 0 &&
                model->blocks[group][block].queue == 1 && covers(model, at, group)) {
                put(model, group, block, 2 + node->priority);
            }
        }
    }
}

/* The first child ends a point, unless the tree branches there or further up; the second makes it a
 * branch. */
static void continue_model(struct model *model, int32_t at, int32_t max_rewind)
{
    struct model_node *node = &model->nodes[at];
    if (node->num_continued++ > 0) {
        retain_model(model, at, max_rewind);
        return;
    }
    for (int32_t distance = node->distance; at >= 0 && distance < WIDEST;
         at = model->nodes[at].parent, distance++) {
        if (model->nodes[at].distance != distance || model->nodes[at].num_continued > 1) {
            return;
        }
        model->nodes[at].distance = INT32_MAX;
    }
}

static void raise_model(struct model *model, int32_t at, int32_t priority)
{
    for (; at >= 0 && model->nodes[at].priority < priority; at = model->nodes[at].parent) {
        model->nodes[at].priority = priority;
        for (int32_t group = 0; group < GROUPS; group++) {
            const int32_t block = model->nodes[at].blocks[group];
            if (block >= 0 && model->blocks[group][block].count == 0 &&
                model->blocks[group][block].queue > 1) {
                put(model, group, block, 2 + priority);
            }
        }
    }
}

/* --- operations, each on both sides */

static int32_t take(struct model *model, int32_t group)
{
    const int32_t expected = next_block(model, group, 0);
    int32_t num_cached = 0;
    for (int32_t b = 0; b < BLOCKS; b++) {
        num_cached += model->blocks[group][b].count == 0 && model->blocks[group][b].queue > 1;
    }
    if (expected >= 0 && model->blocks[group][expected].queue > 1) {
        model->orders[group].capacity = num_cached;
    }
    CU_ASSERT_EQUAL_FATAL(prefix_index_take(model->fixture.index, group), expected);
    if (expected >= 0) {
        struct model_block *block = &model->blocks[group][expected];
        if (block->node >= 0) {
            model->nodes[block->node].blocks[group] = -1;
            block->node = -1;
        }
        block->count = 1;
    }
    return expected;
}

static void drop(struct model *model, int32_t group, int32_t at, bool is_out)
{
    struct model_block *block = &model->blocks[group][at];
    block->count--;
    CU_ASSERT_EQUAL(prefix_index_drop(model->fixture.index, group, at, is_out), block->count == 0);
    if (block->count == 0) {
        const bool is_kept = block->node >= 0 && (!is_out || covers(model, block->node, group));
        const int32_t cached = is_kept ? 2 + model->nodes[block->node].priority : 1;
        put(model, group, at, block->node < 0 ? 0 : cached);
    }
}

static void random_content(struct model *model, int32_t *tokens, uint64_t *extra)
{
    for (int32_t i = 0; i < BS; i++) {
        tokens[i] = pick(model, 2);
        extra[i] = pick(model, 8) == 0 ? 5 : 0;
    }
}

static void attach(struct model *model, int32_t at, int32_t group)
{
    struct model_node *node = &model->nodes[at];
    const int32_t block = take(model, group);
    bury(model);
    if (block < 0) {
        return;
    }
    const int32_t expected = node->blocks[group] >= 0 ? node->blocks[group] : block;
    CU_ASSERT_EQUAL_FATAL(prefix_index_attach(model->fixture.index, node->ref, group, block),
                          expected);
    if (expected == block) {
        node->blocks[group] = block;
        model->blocks[group][block].node = at;
        model->blocks[group][block].standing = PREFIX_PASSING;
    }
    if (pick(model, 3) > 0) {
        drop(model, group, block, pick(model, 3) == 0);
    }
}

static void take_apart(struct model *model, const struct model_node *node,
                       struct prefix_swept *swept)
{
    for (int32_t group = 0; group < GROUPS; group++) {
        const int32_t block = node->blocks[group];
        if (block >= 0) {
            swept->freed += model->blocks[group][block].count == 0;
            swept->held += model->blocks[group][block].count > 0;
            unlink_block(model, group, block);
        }
    }
}

/* What a new node takes from flushed ones of its key that a sweep has not got to. At most one of
 * them has blocks: the one before it was retired, or swept, when that one came. */
static void retire(struct model *model, const struct model_node *made)
{
    struct prefix_swept swept = {0, 0};
    for (int32_t i = 0; i < NODES; i++) {
        const struct model_node *node = &model->nodes[i];
        if (node->is_used && node->is_flushed && is_same_chain(model, i, made)) {
            take_apart(model, node, &swept);
        }
    }
    model->retired.freed += swept.freed;
    model->retired.held += swept.held;
    model->num_retired += swept.freed + swept.held;
    if (made->parent >= 0) { /* it is about to have a child again */
        model->nodes[made->parent].holders++;
    }
    bury(model);
    if (made->parent >= 0) {
        model->nodes[made->parent].holders--;
    }
}

static int32_t unused_node(const struct model *model)
{
    for (int32_t i = 0; i < NODES; i++) {
        if (!model->nodes[i].is_used) {
            return i;
        }
    }
    return -1;
}

/* The group whose blocks are evicted when nodes are short: the one with a window, if it can. */
static int32_t group_to_evict_from(const struct model *model)
{
    for (int32_t b = 0; b < BLOCKS; b++) {
        if (model->blocks[1][b].count == 0 && model->blocks[1][b].queue > 0) {
            return 1;
        }
    }
    return 0;
}

/* Evicts until a node is free for a child of `parent`. */
static void evict_for_node(struct model *model, int32_t parent)
{
    for (int32_t i = 0; i < 64 && unused_node(model) < 0; i++) {
        const int32_t group = group_to_evict_from(model);
        const int32_t block = next_block(model, group, 1);
        if (block < 0) {
            return;
        }
        model->num_evicted++;
        unlink_block(model, group, block);
        model->nodes[parent < 0 ? 0 : parent].holders += parent >= 0;
        bury(model);
        model->nodes[parent < 0 ? 0 : parent].holders -= parent >= 0;
    }
}

static void insert(struct model *model)
{
    const int32_t parent = pick(model, NODES + 4) - 4; /* the root more often */
    const int32_t space = parent >= 0 ? model->nodes[parent].space : pick(model, SPACES);
    const int32_t priority = pick(model, 8) == 0 ? pick(model, PKV_NUM_PRIORITIES) : 0;
    struct model_node made = {.is_used = true,
                              .parent = parent < 0 ? -1 : parent,
                              .space = space,
                              .blocks = {-1, -1},
                              .holders = 1,
                              .distance = INT32_MAX};
    if (parent >= 0 && !model->nodes[parent].is_used) {
        return;
    }
    random_content(model, made.tokens, made.extra);
    const struct prefix_ref above = parent < 0 ? PREFIX_ROOT : model->nodes[parent].ref;
    const bool is_sweeping = model->fixture.index->sweep_left > 0;
    const enum prefix_insert answer = prefix_index_insert(
        model->fixture.index, above, model->spaces[space].namespace_id[0],
        prefix_index_epoch(model->fixture.index), made.tokens, made.extra, priority, &made.ref);
    int32_t at = find_content(model, made.parent, space, made.tokens, made.extra);
    if (parent >= 0 && model->nodes[parent].is_flushed) {
        CU_ASSERT_EQUAL_FATAL(answer, PREFIX_FLUSHED);
        return;
    }
    if (at >= 0) {
        CU_ASSERT_EQUAL_FATAL(answer, PREFIX_FOUND);
        CU_ASSERT(made.ref.index == model->nodes[at].ref.index);
        model->nodes[at].holders++;
        model->num_found++;
    } else {
        if (is_sweeping) {
            retire(model, &made);
        }
        evict_for_node(model, made.parent);
        at = unused_node(model);
        CU_ASSERT_EQUAL_FATAL(answer, at >= 0 ? PREFIX_NEW : PREFIX_NOT_NOW);
        if (at < 0) {
            model->num_refused++;
            return;
        }
        model->nodes[at] = made;
        model->num_inserted++;
        raise_model(model, at, priority); /* insert raises; what follows comes after it */
        if (made.parent >= 0) {
            const int32_t max_rewind = pick(model, 3);
            prefix_index_continue(model->fixture.index, above, max_rewind);
            continue_model(model, made.parent, max_rewind);
        }
    }
    raise_model(model, at, priority);
    for (int32_t group = 0; group < GROUPS; group++) {
        if (pick(model, 4) > 0) {
            attach(model, at, group);
        }
    }
    if (pick(model, 8) > 0) {
        model->nodes[at].holders--;
        prefix_index_release(model->fixture.index, model->nodes[at].ref);
    }
}

static void hold_or_release(struct model *model)
{
    struct model_node *node = &model->nodes[pick(model, NODES)];
    if (!node->is_used) {
        return;
    }
    if (node->holders > 0 && pick(model, 8) > 0) {
        node->holders--;
        prefix_index_release(model->fixture.index, node->ref);
    } else if (node->holders < 3) {
        node->holders++;
        prefix_index_hold(model->fixture.index, node->ref);
    }
}

static void touch_block(struct model *model)
{
    const int32_t group = pick(model, GROUPS);
    const int32_t at = pick(model, BLOCKS);
    struct model_block *block = &model->blocks[group][at];
    if (block->count > 0 && pick(model, 8) > 0) {
        drop(model, group, at, pick(model, 3) == 0);
    } else if (block->node >= 0 && pick(model, 3) == 0) {
        prefix_index_detach(model->fixture.index, group, at);
        unlink_block(model, group, at);
    } else if (block->node >= 0) {
        block_pool_hold(model->fixture.pools[group], at);
        block->count++;
        const int32_t priority = pick(model, PKV_NUM_PRIORITIES);
        const bool has_some = has_room(model, group, 2 + priority, 1);
        CU_ASSERT_EQUAL(prefix_index_has_room(model->fixture.index, group, priority, 1), has_some);
        const int32_t standing = pick(model, PREFIX_NUM_STANDINGS);
        prefix_index_settle(model->fixture.index, group, at, (enum prefix_standing)standing);
        block->standing = standing > block->standing ? standing : block->standing;
    } else {
        prefix_index_detach(model->fixture.index, group, at); /* has no effect */
    }
}

static void flush(struct model *model)
{
    const int32_t kind = pick(model, 4);
    const int32_t tag = kind < 2 ? 1 : 2;
    const char *bytes = kind == 0 ? "a" : kind == 1 ? "b" : "x";
    if (kind == 3) {
        prefix_index_reset(model->fixture.index);
    } else {
        prefix_index_flush(model->fixture.index, &(struct pkv_namespace_field){tag, 1, bytes, 0});
    }
    for (int32_t i = 0; i < NODES; i++) {
        struct model_node *node = &model->nodes[i];
        for (int32_t f = 0; f < num_fields[node->space]; f++) {
            const struct pkv_namespace_field *field = &fields[node->space][f];
            node->is_flushed |= field->tag == tag && memcmp(field->bytes, bytes, 1) == 0;
        }
        node->is_flushed |= kind == 3;
    }
}

/* The sweep goes by the index's own numbers; the naive side follows it. */
static void sweep(struct model *model)
{
    const int32_t count = pick(model, NODES);
    const int32_t from = model->fixture.index->sweep_at;
    const int32_t left = model->fixture.index->sweep_left;
    struct prefix_swept swept = {0, 0};
    struct prefix_swept expected = model->retired;
    model->retired = (struct prefix_swept){0, 0};
    const bool is_done = prefix_index_sweep(model->fixture.index, count, &swept);
    CU_ASSERT_EQUAL(is_done, count >= left);
    for (int32_t at = from; at < from + (count < left ? count : left); at++) {
        for (int32_t i = 0; i < NODES; i++) {
            const struct model_node *node = &model->nodes[i];
            if (node->is_used && node->is_flushed && node->ref.index == at) {
                take_apart(model, node, &expected);
            }
        }
    }
    CU_ASSERT(swept.freed == expected.freed && swept.held == expected.held);
}

/* The definition of what can be adopted, block by block. */
static bool is_resident(const struct model *model, const int32_t *chain, int32_t count,
                        const struct prefix_window *seen)
{
    for (int32_t group = 0; group < GROUPS; group++) {
        const int64_t first = first_needed_key((int64_t)count * BS, seen[group].window);
        for (int32_t key = 0; key < count * BS; key++) {
            const bool is_needed = key >= first || key < seen[group].kept_prefix;
            if (is_needed && model->nodes[chain[key / BS]].blocks[group] < 0) {
                return false;
            }
        }
    }
    return true;
}

static void look_up(struct model *model)
{
    enum { LONGEST = 4 };
    int32_t tokens[LONGEST * BS];
    uint64_t extra[LONGEST * BS];
    int32_t chain[LONGEST];
    struct prefix_ref nodes[LONGEST];
    struct prefix_window seen[GROUPS];
    const int32_t space = pick(model, SPACES);
    int32_t expected = 0;
    for (int32_t i = 0; i < LONGEST; i++) {
        random_content(model, tokens + (size_t)i * BS, extra + (size_t)i * BS);
    }
    while (expected < LONGEST) {
        const int32_t at =
            find_content(model, expected == 0 ? -1 : chain[expected - 1], space,
                         tokens + (size_t)expected * BS, extra + (size_t)expected * BS);
        if (at < 0) {
            break;
        }
        chain[expected++] = at;
    }
    const int32_t count = prefix_index_match(model->fixture.index, &model->spaces[space], tokens,
                                             extra, LONGEST, nodes);
    CU_ASSERT_EQUAL_FATAL(count, expected);
    for (int32_t i = 0; i < count; i++) {
        CU_ASSERT_EQUAL(nodes[i].index, model->nodes[chain[i]].ref.index);
    }
    for (int32_t group = 0; group < GROUPS; group++) {
        seen[group] = (struct prefix_window){pick(model, 6), pick(model, 4)};
    }
    int32_t hit = count;
    while (hit > 0 && !is_resident(model, chain, hit, seen)) {
        hit--;
    }
    CU_ASSERT_EQUAL(prefix_index_resident(model->fixture.index, nodes, count, seen, NULL), hit);
    model->num_hits += hit > 0;
}

static void raise_one(struct model *model)
{
    const int32_t at = pick(model, NODES);
    const int32_t priority = pick(model, PKV_NUM_PRIORITIES);
    if (model->nodes[at].is_used) {
        raise_model(model, at, priority);
        prefix_index_raise(model->fixture.index, model->nodes[at].ref, priority);
    }
}

static void retain_one(struct model *model)
{
    const int32_t at = pick(model, NODES);
    const int32_t max_rewind = pick(model, 3) == 0 ? pick(model, 4) : 0;
    if (model->nodes[at].is_used) {
        retain_model(model, at, max_rewind);
        prefix_index_retain(model->fixture.index, model->nodes[at].ref, max_rewind);
    }
}

static void meet_one(struct model *model)
{
    const int32_t at = pick(model, NODES);
    const struct model_node *node = &model->nodes[at];
    for (int32_t group = 0; node->is_used && group < GROUPS; group++) {
        struct model_order *order = &model->orders[group];
        const int32_t block = node->blocks[group];
        const bool is_held = block >= 0 && model->blocks[group][block].count > 0;
        const bool is_end = windows[group] == 0 || node->distance <= 0 || node->num_continued == 0;
        if (node->used[group] == 0 || is_held || !is_end) {
            continue;
        }
        const bool is_late = order->clock - node->used[group] > order->capacity;
        order->lateness += is_late ? 1 : -2;
        order->lateness = order->lateness > 12 ? 12 : order->lateness;
        order->lateness = order->lateness < -12 ? -12 : order->lateness;
        model->num_late += is_late;
        model->num_soon += !is_late;
    }
    if (node->is_used) {
        prefix_index_meet(model->fixture.index, node->ref);
    }
}

static void operate(struct model *model)
{
    const int32_t kind = pick(model, 100);
    if (kind < 25) {
        insert(model);
    } else if (kind < 45) {
        hold_or_release(model);
    } else if (kind < 70) {
        touch_block(model);
    } else if (kind < 92) {
        look_up(model);
    } else if (kind < 94) {
        meet_one(model);
    } else if (kind < 95) {
        raise_one(model);
    } else if (kind < 96) {
        retain_one(model);
    } else if (kind < 98) {
        sweep(model);
    } else if (kind == 98) {
        const int32_t group = pick(model, GROUPS);
        const int32_t block = take(model, group);
        if (block >= 0) {
            drop(model, group, block, false);
        }
    } else if (pick(model, 4) == 0) {
        flush(model);
    }
    bury(model);
}

/* --- agreement */

static void agree_on_nodes(const struct model *model)
{
    const struct prefix_index *index = model->fixture.index;
    int32_t num_used = 0;
    for (int32_t i = 0; i < NODES; i++) {
        const struct model_node *mine = &model->nodes[i];
        const struct prefix_node *node = prefix_index_node(index, mine->ref);
        if (!mine->is_used) {
            continue;
        }
        CU_ASSERT_FATAL(node != NULL);
        CU_ASSERT(node->priority == mine->priority && node->num_holders == mine->holders);
        CU_ASSERT_EQUAL(prefix_index_covers(index, 1, mine->ref.index), covers(model, i, 1));
        CU_ASSERT_EQUAL(prefix_index_is_live(index, mine->ref), !mine->is_flushed);
        for (int32_t group = 0; group < GROUPS; group++) {
            CU_ASSERT_EQUAL(prefix_index_block(index, mine->ref, group), mine->blocks[group]);
        }
        num_used++;
    }
    CU_ASSERT_EQUAL_FATAL(prefix_index_num_used(index), num_used);
}

static int32_t class_of(const struct model_block *block)
{
    const bool has_priority = block->queue > 1;
    return block->count > 0 ? -1
           : has_priority   ? 2 + PREFIX_NUM_STANDINGS * (block->queue - 2) + block->standing
                            : block->queue;
}

static void agree(struct model *model)
{
    CU_ASSERT_EQUAL_FATAL(prefix_index_check(model->fixture.index), 0);
    agree_on_nodes(model);
    for (int32_t group = 0; group < GROUPS; group++) {
        const pkv_pool *pool = model->fixture.pools[group];
        const struct prefix_eviction *order = &model->fixture.index->eviction[group];
        CU_ASSERT_EQUAL(order->lateness, model->orders[group].lateness);
        CU_ASSERT_EQUAL(order->capacity, model->orders[group].capacity);
        CU_ASSERT_EQUAL_FATAL(pkv_pool_check(pool), 0);
        for (int32_t b = 0; b < BLOCKS; b++) {
            const struct model_block *block = &model->blocks[group][b];
            CU_ASSERT_EQUAL(pkv_pool_ref_count(pool, b), block->count);
            CU_ASSERT_EQUAL(block_pool_class(pool, b), class_of(block));
        }
    }
}

static void model_open(struct model *model, int32_t key_bits)
{
    struct prefix_config config = {
        .block_size = BS, .num_groups = GROUPS, .num_nodes = NODES, .windows = windows};
    memset(model, 0, sizeof *model);
    model->random.state = test_seed();
    config.masked_key_bits = PREFIX_KEY_BITS - key_bits;
    prefix_case_open(&model->fixture, &config, BLOCKS);
    for (int32_t i = 0; i < SPACES; i++) {
        ASSERT_STATUS(PKV_OK, prefix_scope_open(model->fixture.index, fields[i], num_fields[i],
                                                &model->spaces[i]));
    }
    for (int32_t i = 0; i < GROUPS * BLOCKS; i++) {
        model->blocks[i / BLOCKS][i % BLOCKS] = (struct model_block){.node = -1, .time = i};
    }
    for (int32_t group = 0; group < GROUPS; group++) {
        model->orders[group] = (struct model_order){.clock = 1, .capacity = BLOCKS};
    }
    model->now = GROUPS * BLOCKS;
}

static void run_with_a_hash_of(int32_t key_bits)
{
    struct model model;
    model_open(&model, key_bits);
    const long calls = model.fixture.memory.calls;
    for (int32_t i = 0; i < OPERATIONS; i++) {
        operate(&model);
        agree(&model);
    }
    /* Or the run was no test. */
    CU_ASSERT(model.num_inserted > OPERATIONS / 100 && model.num_found > OPERATIONS / 200);
    CU_ASSERT(model.num_refused > 0 && model.num_hits > OPERATIONS / 400);
    CU_ASSERT(model.num_retired > 0 && model.num_evicted > 0);
    CU_ASSERT(model.num_late > OPERATIONS / 1000 && model.num_soon > OPERATIONS / 1000);
    CU_ASSERT_EQUAL(model.fixture.memory.calls, calls); /* I1: nothing was taken after create */
    for (int32_t i = 0; i < SPACES; i++) {
        prefix_scope_close(model.fixture.index, &model.spaces[i]);
    }
    prefix_case_close(&model.fixture);
}

static void random_operations_agree_with_a_naive_tree(void)
{
    run_with_a_hash_of(128);
}

/* D1: with a hash of no bits every block is a candidate, and the answers are the same. */
static void they_agree_with_no_bit_of_hash_too(void)
{
    run_with_a_hash_of(0);
}

/* D1: with a hash of eight bits many blocks collide, and the answers are the same. */
static void they_agree_with_eight_bits_of_hash_too(void)
{
    run_with_a_hash_of(8);
}

static const struct test_case cases[] = {
    TEST(random_operations_agree_with_a_naive_tree),
    TEST(they_agree_with_no_bit_of_hash_too),
    TEST(they_agree_with_eight_bits_of_hash_too),
    TEST_END,
};
const struct test_suite suite_prefix_model = {"prefix_model", cases};
