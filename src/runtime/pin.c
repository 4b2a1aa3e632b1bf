/* SPDX-License-Identifier: MIT
 *
 * A pinned block cannot be evicted and keeps its node until the pin ends; so the prefix can be
 * walked from its leaf at any time. Free records form a stack, linked inside the records. The clock
 * is the caller's: a pin ends only at calls that bring a time. */
#include "runtime/pin.h"

#include "base/minmax.h"
#include "prefix/prefix_blocks.h"
#include "runtime/handle.h"
#include "runtime/state_list.h"

void pin_init(struct pin_records *pins, int32_t capacity, uint64_t first_generation)
{
    pins->capacity = capacity;
    pins->soonest_ns = UINT64_MAX;
    pins->first_free = capacity > 0 ? 0 : NO_PIN;
    for (int32_t i = 0; i < capacity; i++) {
        pins->at[i].generation = first_generation;
        pins->at[i].next_free = i + 1 < capacity ? i + 1 : NO_PIN;
    }
}

static pkv_pin handle_of(const struct pin_records *pins, int32_t index)
{
    return (pkv_pin){handle_make(pins->at[index].generation, index)};
}

int32_t pin_find(const struct pin_records *pins, pkv_pin pin)
{
    const uint64_t at = pin.id & HANDLE_INDEX_MASK;
    const bool is_live = at < (uint64_t)pins->capacity && pins->at[at].num_nodes > 0 &&
                         handle_of(pins, (int32_t)at).id == pin.id;
    return is_live ? (int32_t)at : NO_PIN;
}

bool pin_maps(const struct group *group, const struct pin *pin, int32_t i)
{
    const int32_t entry = group_entry_of_node(group, i);
    const int32_t kept_prefix =
        pin->kept_prefix >= 0 ? pin->kept_prefix : (int32_t)group->config->kept_prefix;
    const struct seq_table table = seq_table_adopted(
        &group->tables, kept_prefix, group_tokens_of_nodes(group, pin->num_nodes), pin->max_rewind);
    return entry >= 0 && seq_table_maps(&table, entry);
}

static void hold_block(struct block_set *blocks, int32_t block)
{
    struct block *state = &blocks->at[block];
    blocks->num_pinned += state->num_pins == 0;
    state->num_pins++;
    block_adopt(blocks, block, false);
}

static void drop_block(struct block_set *blocks, int32_t block)
{
    struct block *state = &blocks->at[block];
    state->num_pins--;
    blocks->num_pinned -= state->num_pins == 0;
    block_drop(blocks, block, NO_SEQ, false);
}

pkv_pin pin_start(struct pin_records *pins, const struct prefix_ref *nodes, int32_t num_nodes,
                  const struct seq *prototype, uint64_t ends_ns)
{
    const struct prefix_index *index = pins->context->index;
    const int32_t record = pins->first_free;
    struct pin *pin = &pins->at[record];
    pins->first_free = pin->next_free;
    pins->num_used++;
    pin->leaf = nodes[num_nodes - 1];
    pin->num_nodes = num_nodes;
    pin->kept_prefix = prototype->kept_prefix;
    pin->max_rewind = prototype->max_rewind;
    pin->ends_ns = ends_ns;
    pins->soonest_ns = ends_ns < pins->soonest_ns ? ends_ns : pins->soonest_ns;
    prefix_index_hold(pins->context->index, pin->leaf);
    for (int32_t g = 0; g < pins->num_groups; g++) {
        struct group *group = &pins->groups[g];
        for (int32_t i = 0; i < num_nodes; i++) {
            if (pin_maps(group, pin, i)) {
                hold_block(&group->blocks, prefix_index_block(index, nodes[i], g));
            }
        }
    }
    for (int32_t s = 0; s < pins->num_states; s++) {
        struct block_set *blocks = &pins->states[s].blocks;
        hold_block(blocks, prefix_index_block(index, pin->leaf, blocks->group));
    }
    return handle_of(pins, record);
}

void pin_end(struct pin_records *pins, int32_t index)
{
    struct prefix_index *of = pins->context->index;
    struct pin *pin = &pins->at[index];
    struct prefix_ref node = pin->leaf;
    for (int32_t s = pins->num_states - 1; s >= 0; s--) {
        struct block_set *blocks = &pins->states[s].blocks;
        drop_block(blocks, prefix_index_block(of, node, blocks->group));
    }
    for (int32_t i = pin->num_nodes - 1; i >= 0; i--) {
        const struct prefix_ref parent = prefix_index_node(of, node)->parent;
        for (int32_t g = 0; g < pins->num_groups; g++) {
            struct group *group = &pins->groups[g];
            if (pin_maps(group, pin, i)) {
                drop_block(&group->blocks, prefix_index_block(of, node, g));
            }
        }
        node = parent;
    }
    prefix_index_release(of, pin->leaf);
    pin->generation = handle_next_generation(pin->generation);
    pin->num_nodes = 0;
    pin->next_free = pins->first_free;
    pins->first_free = index;
    pins->num_used--;
}

static void find_soonest(struct pin_records *pins)
{
    pins->soonest_ns = UINT64_MAX;
    for (int32_t i = 0; i < pins->capacity; i++) {
        if (pins->at[i].num_nodes > 0 && pins->at[i].ends_ns < pins->soonest_ns) {
            pins->soonest_ns = pins->at[i].ends_ns;
        }
    }
}

void pin_extend(struct pin_records *pins, int32_t index, uint64_t ends_ns)
{
    pins->at[index].ends_ns = ends_ns;
    find_soonest(pins);
}

int32_t pin_expire(struct pin_records *pins, uint64_t now_ns)
{
    struct block_context *context = pins->context;
    int32_t ended = 0;
    if (now_ns != UINT64_MAX && now_ns > context->now_ns) {
        context->now_ns = now_ns;
        if (context->index != NULL) {
            prefix_index_set_time(context->index, now_ns);
        }
    }
    if (pins->num_used == 0 || now_ns == 0 || (now_ns < pins->soonest_ns && now_ns != UINT64_MAX)) {
        return 0;
    }
    for (int32_t i = 0; i < pins->capacity; i++) {
        if (pins->at[i].num_nodes > 0 && pins->at[i].ends_ns <= now_ns) {
            pin_end(pins, i);
            ended++;
        }
    }
    find_soonest(pins);
    context->counters->expired_pins += (uint64_t)ended;
    return ended;
}

void pin_end_flushed(struct pin_records *pins)
{
    for (int32_t i = 0; pins->num_used > 0 && i < pins->capacity; i++) {
        if (pins->at[i].num_nodes > 0 &&
            !prefix_index_is_live(pins->context->index, pins->at[i].leaf)) {
            pin_end(pins, i);
        }
    }
}

/* Of a leaf's snapshot alone. */
static int32_t state_excess(const struct pin_records *pins, const struct state_group *states,
                            struct prefix_ref leaf)
{
    const int32_t block = prefix_index_block(pins->context->index, leaf, states->index);
    const bool is_taken = block_costs_spare(&states->blocks, block);
    const bool is_new = states->blocks.at[block].num_pins == 0;
    return (is_taken && state_list_num_spare(states) < 1) ||
                   states->blocks.num_pinned + is_new > pins->capacity
               ? 1
               : 0;
}

int32_t pin_excess(const struct pin_records *pins, const struct prefix_ref *nodes,
                   int32_t num_nodes, const struct seq *prototype)
{
    int32_t worst = 0;
    for (int32_t g = 0; g < pins->num_groups; g++) {
        const struct group *group = &pins->groups[g];
        const struct seq_table table =
            seq_table_adopted(&group->tables, group_kept_prefix(group, prototype),
                              group_tokens_of_nodes(group, num_nodes), prototype->max_rewind);
        int32_t count = group->blocks.num_pinned;
        int32_t num_taken = 0;
        for (int32_t i = 0; i < table.end; i++) {
            const struct prefix_ref node = nodes[group_node_of_entry(group, i)];
            const int32_t block = prefix_index_block(pins->context->index, node, g);
            count += seq_table_maps(&table, i) && group->blocks.at[block].num_pins == 0;
            num_taken += seq_table_maps(&table, i) && block_costs_spare(&group->blocks, block);
        }
        worst = max_i32(worst, num_taken - seq_table_num_spare(&group->tables));
        worst = max_i32(worst, count - pins->capacity);
    }
    for (int32_t s = 0; s < pins->num_states; s++) {
        worst = max_i32(worst, state_excess(pins, &pins->states[s], nodes[num_nodes - 1]));
    }
    return worst;
}
