/* SPDX-License-Identifier: MIT
 *
 * A length that suits one group may fall into another's hole. So the check goes on until none
 * objects; each group moves the length at most once. Above the shortest length that this gives no
 * group objects to any. */
#include "runtime/resident.h"

#include "base/error.h"
#include "base/minmax.h"

enum pkv_status resident_check(const pkv_cache *cache, int32_t index, int32_t length)
{
    int32_t possible = length;
    int32_t before;
    do {
        before = possible;
        for (int32_t g = 0; g < cache->config.num_groups; g++) {
            const struct group *group = &cache->groups[g];
            if (group_is_paged(group)) {
                possible = seq_table_next_resident(&group->tables, index, possible);
            }
        }
    } while (possible != before);
    if (possible != length) {
        return refuse(PKV_NOT_RESIDENT,
                      "keys that a query at %d sees were released; the shortest possible length "
                      "is %d, or 0",
                      length, possible);
    }
    return PKV_OK;
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
    return least;
}
