/* SPDX-License-Identifier: MIT
 *
 * A binary heap in an array, of blocks that know their place in it. */
#include "prefix/prefix_decay.h"

static void place_at(struct prefix_index *index, int32_t group, int32_t at, int32_t block)
{
    index->heaps[group][at] = block;
    index->block_uses[group][block].heap_at = at + 1;
}

static bool is_sooner(const struct prefix_index *index, int32_t group, int32_t a, int32_t b)
{
    const struct prefix_use *uses = index->block_uses[group];
    return uses[a].deadline_ns != uses[b].deadline_ns
               ? uses[a].deadline_ns < uses[b].deadline_ns
               : uses[a].stamp < uses[b].stamp; /* leaves before parents */
}

static void move_up(struct prefix_index *index, int32_t group, int32_t at)
{
    const int32_t *heap = index->heaps[group];
    const int32_t block = heap[at];
    for (int32_t above = (at - 1) / 2; at > 0 && is_sooner(index, group, block, heap[above]);
         above = (at - 1) / 2) {
        place_at(index, group, at, heap[above]);
        at = above;
    }
    place_at(index, group, at, block);
}

static void move_down(struct prefix_index *index, int32_t group, int32_t at)
{
    const int32_t *heap = index->heaps[group];
    const int32_t length = index->heap_lengths[group];
    const int32_t block = heap[at];
    for (int32_t below = 2 * at + 1; below < length; below = 2 * at + 1) {
        below += below + 1 < length && is_sooner(index, group, heap[below + 1], heap[below]);
        if (!is_sooner(index, group, heap[below], block)) {
            break;
        }
        place_at(index, group, at, heap[below]);
        at = below;
    }
    place_at(index, group, at, block);
}

static void remove_block(struct prefix_index *index, int32_t group, int32_t block)
{
    struct prefix_use *use = &index->block_uses[group][block];
    const int32_t at = use->heap_at - 1;
    const int32_t last = index->heaps[group][--index->heap_lengths[group]];
    use->heap_at = 0;
    if (last != block) {
        place_at(index, group, at, last);
        move_up(index, group, at);
        move_down(index, group, index->block_uses[group][last].heap_at - 1);
    }
}

void prefix_decay_set(struct prefix_index *index, int32_t group, int32_t block,
                      uint64_t deadline_ns)
{
    struct prefix_use *use = &index->block_uses[group][block];
    if (use->heap_at != 0) {
        remove_block(index, group, block);
    }
    use->deadline_ns = deadline_ns;
    if (deadline_ns != 0) {
        const int32_t at = index->heap_lengths[group]++;
        place_at(index, group, at, block);
        move_up(index, group, at);
    }
}

int32_t prefix_decay_next(struct prefix_index *index, int32_t group, uint64_t now_ns)
{
    const int32_t block = index->heap_lengths[group] > 0 ? index->heaps[group][0] : NO_BLOCK;
    if (block == NO_BLOCK || index->block_uses[group][block].deadline_ns > now_ns) {
        return NO_BLOCK;
    }
    remove_block(index, group, block);
    return block;
}
