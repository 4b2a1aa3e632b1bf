/* SPDX-License-Identifier: MIT
 *
 * A row of a window group maps, besides the kept prefix, the blocks of W - 1 keys before its first
 * query and of q new ones, and those that a rewind may need. With bs = block_size:
 *
 *   blocks(q) <= floor((W + q - 1 + bs - 2) / bs) + 1 + ceil(max_rewind / bs)
 *
 * wherever these keys begin in a block. The largest sum of excess(q) = blocks(q) - blocks(1) over
 * rows that share T tokens gives as many rows as possible first_excess tokens each, for a block,
 * and spends the rest at a block for each block_size. */
#include "runtime/promise.h"

#include "base/checked.h"
#include "base/minmax.h"

void promise_init(struct promise_set *promises, const struct pkv_group_config *config,
                  int32_t max_step_tokens)
{
    const int32_t block_size = config->block_size;
    const int64_t used = (config->sliding_window + block_size - 2) % block_size;
    *promises = (struct promise_set){
        .sliding_window = config->sliding_window,
        .block_size = block_size,
        .max_step_tokens = max_step_tokens,
        .first_excess = (int32_t)min_i64(block_size - used + 1, block_size),
    };
}

struct promise promise_make(const struct promise_set *promises, int64_t num_cells,
                            int64_t kept_prefix, int64_t max_rewind)
{
    const int32_t block_size = promises->block_size;
    const int64_t all = divide_up(num_cells, block_size);
    struct promise promise = {.at_once = (int32_t)all, .end = (int32_t)all};
    if (promises->sliding_window > 0) {
        const int64_t window = (promises->sliding_window + block_size - 2) / block_size + 1;
        const int64_t at_once =
            window + divide_up(max_rewind, block_size) + divide_up(kept_prefix, block_size);
        promise.at_once = (int32_t)min_i64(all, at_once);
    }
    return promise;
}

/* Adds a promise, or takes it back with sign -1. */
static void count(struct promise_set *promises, const struct promise *promise, int32_t end,
                  int32_t sign)
{
    promises->owed += sign * (promise_owed(promise, end) + promise->copies);
    if (promise_slides(promise)) {
        promises->at_once += sign * promise->at_once;
        promises->excess += sign * promise_excess(promise);
        promises->num_excess += promise_excess(promise) > 0 ? sign : 0;
    }
}

void promise_add(struct promise_set *promises, const struct promise *promise, int32_t end)
{
    count(promises, promise, end, 1);
}

void promise_remove(struct promise_set *promises, const struct promise *promise, int32_t end)
{
    count(promises, promise, end, -1);
}

void promise_restart(struct promise_set *promises, struct promise *promise, int32_t end)
{
    count(promises, promise, end, -1);
    promise->reached = end;
    count(promises, promise, end, 1);
}

void promise_reach(struct promise_set *promises, struct promise *promise, int32_t end)
{
    if (promise->reached < end) {
        promise_restart(promises, promise, end);
    }
}

void promise_end_copy(struct promise_set *promises, struct promise *promise)
{
    promises->owed -= promise->copies;
    promise->copies = 0;
}

void promise_restore_copy(struct promise_set *promises, struct promise *promise)
{
    promises->owed += 1 - promise->copies;
    promise->copies = 1;
}

static int64_t excess_of_step(const struct promise_set *promises)
{
    const int64_t tokens = promises->max_step_tokens;
    const int64_t num_rows = min_i64(promises->num_excess, tokens / promises->first_excess);
    const int64_t rest = tokens - num_rows * promises->first_excess;
    return num_rows == 0 ? 0 : min_i64(num_rows + rest / promises->block_size, promises->excess);
}

int64_t promise_total(const struct promise_set *promises)
{
    return promises->owed + promises->at_once + excess_of_step(promises);
}

int64_t promise_alone(const struct promise_set *promises, const struct promise *promise)
{
    struct promise_set alone = *promises;
    alone.num_excess = 0;
    alone.at_once = alone.excess = alone.owed = 0;
    promise_add(&alone, promise, 0);
    return promise_total(&alone);
}
