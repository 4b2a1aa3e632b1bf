/* SPDX-License-Identifier: MIT
 *
 * promise.h: how many blocks of one group must stay free for sequences that were admitted. A
 * promise is a count and maps nothing: blocks are taken when tokens come, and until then stay
 * cached.
 *
 *   free blocks >= reserved = owed + at_once + excess of one step - blocks held by windows alone
 *
 * A sequence that slides holds no more than at_once blocks, whatever its length. What leaves its
 * window is free again, unless another holder stays; so only the blocks that sliding sequences
 * alone hold count as given (block.h), and a block shared with anybody else is promised once more.
 * Any other sequence keeps what it has: it is owed the entries that its table still lacks.
 *
 * A hit that ends inside a block begins with one block too many: the cached one, in the entry that
 * the sequence's own copy will have. That copy is owed until it is made; to a sequence that slides
 * until its source is dropped, because what windows alone hold counts as given, the source too.
 *
 * A step's tokens are counted once and not once a row: all rows together bring max_step_tokens. Of
 * q tokens a row that slides may need excess(q) blocks more than of one, where excess(first_excess)
 * = 1, and one more for each block_size tokens; but never more than the entries that it has not
 * reached yet: a cut that leaves its hole where it is drops as many blocks as it drops entries.
 *
 * A leaf: it knows numbers alone. O(1). */
#ifndef PKV_RUNTIME_PROMISE_H
#define PKV_RUNTIME_PROMISE_H

#include "pagedkv/cache.h"

/* What one sequence was promised in one group; zeroed: nothing. */
struct promise {
    int32_t at_once; /* the most blocks that it maps at once, with one token a step */
    int32_t end;     /* where its table ends once all of its tokens are written */
    int32_t reached; /* where it ended at most, at a commit */
    int32_t copies;  /* 1 while the last entry is a block that its first step copies from */
};

/* The promises of a group. */
struct promise_set {
    /* constant after create */
    int64_t sliding_window;
    int32_t block_size;
    int32_t max_step_tokens;
    int32_t first_excess; /* tokens of a row that may need one block more than one token does */

    int64_t at_once;    /* of those that slide */
    int64_t excess;     /* that they could need beyond it, each alone */
    int32_t num_excess; /* those that could need any */
    int64_t owed;       /* entries that the others still lack */
};

/* No promises yet. The config is that of the group, as in force. */
void promise_init(struct promise_set *promises, const struct pkv_group_config *config,
                  int32_t max_step_tokens);

/* Of num_cells tokens, behind which kept_prefix tokens stay and which may go back max_rewind; no
 * copies. */
struct promise promise_make(const struct promise_set *promises, int64_t num_cells,
                            int64_t kept_prefix, int64_t max_rewind);

/* Fewer blocks at once than in all. */
static inline bool promise_slides(const struct promise *promise)
{
    return promise->at_once < promise->end;
}

/* What a sequence whose table ends at `end` is still owed. */
static inline int32_t promise_owed(const struct promise *promise, int32_t end)
{
    return promise_slides(promise) || promise->end <= end ? 0 : promise->end - end;
}

/* Blocks that a sequence may need beyond at_once, in a step of any size. */
static inline int32_t promise_excess(const struct promise *promise)
{
    const int32_t reached =
        promise->reached > promise->at_once ? promise->reached : promise->at_once;
    return promise_slides(promise) && reached < promise->end ? promise->end - reached : 0;
}

/* A sequence whose table ends at `end` has the promise from now on, or no more. */
void promise_add(struct promise_set *promises, const struct promise *promise, int32_t end);
void promise_remove(struct promise_set *promises, const struct promise *promise, int32_t end);

/* The table of the sequence ends at `end` after a commit. */
void promise_reach(struct promise_set *promises, struct promise *promise, int32_t end);

/* It ends there again, in front of a hole that its table had. */
void promise_restart(struct promise_set *promises, struct promise *promise, int32_t end);

/* The copy was made, or will not be; and that it is to be made after all. */
void promise_end_copy(struct promise_set *promises, struct promise *promise);
void promise_restore_copy(struct promise_set *promises, struct promise *promise);

/* Blocks that were promised and may not have been given yet. */
int64_t promise_total(const struct promise_set *promises);

/* Blocks that a sequence with this promise needs where nobody else is, in steps of any size. */
int64_t promise_alone(const struct promise_set *promises, const struct promise *promise);

#endif
