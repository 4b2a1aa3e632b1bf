/* SPDX-License-Identifier: MIT
 *
 * A length that suits one group may fall into another's hole, or between the states of a third. So
 * the search goes on until none objects; each turn moves the length one way. Above the shortest
 * length that this gives no attention group objects to any. */
#include "runtime/resident.h"

#include "base/error.h"
#include "base/minmax.h"

#define NO_LENGTH (-1)

/* The least length >= `length` at which every key is there; the sequence's own always is one. */
static int32_t with_keys(const pkv_cache *cache, int32_t index, int32_t length)
{
    int32_t before;
    do {
        before = length;
        for (int32_t g = 0; g < cache->config.num_groups; g++) {
            const struct group *group = &cache->groups[g];
            if (group_is_paged(group)) {
                length = seq_table_next_resident(&group->tables, index, length);
            }
        }
    } while (length != before);
    return length;
}

/* The least length >= `length` that has keys and states, NO_LENGTH when there is none. */
static int32_t next_possible(const pkv_cache *cache, int32_t index, int32_t length)
{
    int32_t before;
    do {
        before = length;
        length = with_keys(cache, index, length);
        for (int32_t s = 0; length != NO_LENGTH && s < cache->num_states; s++) {
            length = state_list_next(&cache->states[s], index, length);
        }
    } while (length != before && length != NO_LENGTH);
    return length;
}

/* The greatest below `length`, 0 when there is none. */
static int32_t previous_possible(const pkv_cache *cache, int32_t index, int32_t length)
{
    int32_t at = length - 1;
    while (cache->num_states > 0 && at > 0) {
        at = state_list_previous(&cache->states[0], index, at);
        if (at <= 0 || next_possible(cache, index, at) == at) {
            break;
        }
        at--;
    }
    return max_i32(cache->num_states > 0 ? at : 0, 0);
}

enum pkv_status resident_check(const pkv_cache *cache, int32_t index, int32_t length)
{
    const int32_t possible = next_possible(cache, index, length);
    if (possible == length) {
        return PKV_OK;
    }
    if (cache->num_states == 0) {
        return refuse(PKV_NOT_RESIDENT,
                      "keys that a query at %d sees were released; the shortest possible length "
                      "is %d, or 0",
                      length, possible);
    }
    const int32_t previous = previous_possible(cache, index, length);
    return possible == NO_LENGTH
               ? refuse(PKV_NOT_RESIDENT,
                        "there is no state of %d tokens; the nearest length is %d", length,
                        previous)
               : refuse(PKV_NOT_RESIDENT,
                        "there is no state of %d tokens; the nearest lengths are %d and %d", length,
                        previous, possible);
}

int32_t resident_min_length(const pkv_cache *cache, int32_t index)
{
    const int32_t length = cache->seqs.at[index].length;
    int32_t least = 0;
    for (int32_t g = 0; g < cache->config.num_groups; g++) {
        const struct group *group = &cache->groups[g];
        if (group_is_paged(group)) {
            least = max_i32(least, seq_table_min_length(&group->tables, index, length));
        }
    }
    for (int32_t s = 0; s < cache->num_states; s++) {
        least = max_i32(least, state_list_min_length(&cache->states[s], index, length));
    }
    return least;
}
