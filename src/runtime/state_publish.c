/* SPDX-License-Identifier: MIT
 *
 * A state that another sequence has published already stays as it is: the copies are bitwise the
 * same, and one of them is dropped soon. */
#include "runtime/state_publish.h"

#include "alloc/block_pool.h"
#include "prefix/prefix_blocks.h"
#include "prefix/prefix_order.h"
#include "runtime/state_step.h"

/* What the sequence has of this length: in its list, or in the row that is being kept. */
static int32_t find(const pkv_cache *cache, const struct state_group *states, int32_t seq,
                    int32_t length)
{
    return states->step.keeping >= 0
               ? state_step_find(&cache->step, states, states->step.keeping, length)
               : state_list_find(states, seq, length);
}

/* The snapshot before a new one leaves the index, unless it is that of a segment, it is pinned, or
 * a hit is expected to end there. Sequences that hold it go on with it. */
static void thin_out(pkv_cache *cache, struct state_group *states, int32_t length,
                     struct prefix_ref node)
{
    struct prefix_index *index = cache->reuse.index;
    const int64_t segment = states->config->segment_tokens;
    const int32_t block_size = cache->reuse.block_size;
    const struct prefix_node *of = prefix_index_node(index, node);
    for (int32_t at = length - block_size; of != NULL && at > 0 && at % segment != 0;
         at -= block_size) {
        node = of->parent;
        of = prefix_index_node(index, node);
        const int32_t block = prefix_index_block(index, node, states->index);
        if (block == NO_BLOCK) {
            continue;
        }
        if (states->blocks.at[block].num_pins == 0 && of->distance > 0) {
            prefix_index_detach(index, states->index, block);
            block_scrub_uncached(&states->blocks, block, 1);
        }
        return;
    }
}

static void publish_in(pkv_cache *cache, struct state_group *states, int32_t seq, int32_t length,
                       struct prefix_ref node)
{
    struct prefix_index *index = cache->reuse.index;
    if (!state_step_is_snapshot(states, length, states->lists[seq].snapshot_at)) {
        return;
    }
    const int32_t own = find(cache, states, seq, length);
    if (own == NO_BLOCK || prefix_index_node_of(index, states->index, own).index != PREFIX_NONE) {
        return; /* not taken, for want of room; or published by a sequence that shares it */
    }
    if (prefix_index_attach(index, node, states->index, own) == own) {
        block_freeze(&states->blocks, own);
        cache->counters.stored_blocks++;
        if (states->config->segment_tokens > 0) {
            thin_out(cache, states, length, node);
        }
    }
}

void state_publish(pkv_cache *cache, int32_t seq, int32_t length, struct prefix_ref node)
{
    for (int32_t s = 0; s < cache->num_states; s++) {
        publish_in(cache, &cache->states[s], seq, length, node);
    }
}

void state_publish_adopt(pkv_cache *cache, int32_t seq, int32_t length, struct prefix_ref node,
                         enum prefix_standing standing)
{
    for (int32_t s = 0; s < cache->num_states; s++) {
        struct state_group *states = &cache->states[s];
        const int32_t block = prefix_index_block(cache->reuse.index, node, states->index);
        state_list_adopt(states, seq, length, block);
        prefix_index_settle(cache->reuse.index, states->index, block, standing);
    }
}
