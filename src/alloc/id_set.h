/* SPDX-License-Identifier: MIT
 *
 * id_set.h: a set of ids [0, num_ids) in bits, which finds its lowest member and the one before an
 * id. Above the bits of the ids lie levels of bits, each a 64th of the one below, up to one word:
 *
 *   bit i of level l + 1 is set exactly when word i of level l is not 0
 *
 * O(levels) each: at most six, three up to 2^18 ids. A change goes up only when a word became empty
 * or ceased to be. */
#ifndef PKV_ALLOC_ID_SET_H
#define PKV_ALLOC_ID_SET_H

#include "base/build.h"
#include "pagedkv/base.h"

#define ID_SET_MAX_LEVELS 6

struct id_set {
    uint64_t *levels[ID_SET_MAX_LEVELS];
    int32_t num_levels;
};

/* Words of 64 bits that a set of num_ids ids takes, num_ids >= 1. */
size_t id_set_num_words(int32_t num_ids);

/* An empty set in as many zeroed words. */
void id_set_init(struct id_set *set, int32_t num_ids, uint64_t *words);

/* The lowest member of a set that is not empty. */
int32_t id_set_first(const struct id_set *set);

/* The greatest member <= id; -1 when there is none. */
int32_t id_set_last_to(const struct id_set *set, int32_t id);

/* Does each level say what the one below holds? And the number of members. O(num_ids / 64). */
bool id_set_is_sound(const struct id_set *set, int32_t num_ids);
int32_t id_set_count(const struct id_set *set, int32_t num_ids);

static inline bool id_set_is_empty(const struct id_set *set)
{
    return set->levels[set->num_levels - 1][0] == 0;
}

static inline bool id_set_has(const struct id_set *set, int32_t id)
{
    return (set->levels[0][id >> 6] >> (id & 63) & 1) != 0;
}

void id_set_add(struct id_set *set, int32_t id);
void id_set_remove(struct id_set *set, int32_t id);
void id_set_move_far(struct id_set *set, int32_t from, int32_t to); /* to another word */

/* A member gives way to another id. */
static inline void id_set_move(struct id_set *set, int32_t from, int32_t to)
{
    if (from >> 6 == to >> 6) {
        set->levels[0][to >> 6] ^= ((uint64_t)1 << (from & 63)) ^ ((uint64_t)1 << (to & 63));
    } else {
        id_set_move_far(set, from, to);
    }
}

#endif
