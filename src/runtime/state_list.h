/* SPDX-License-Identifier: MIT
 *
 * state_list.h: the states of one sequence in a state group. A state is never changed while more
 * than one holder has it, or while it is in the prefix index.
 *
 * A promise is a count, as in promise.h: so many blocks that an admitted sequence can hold at once.
 * A block that it takes is one that it is owed, as long as there are such, or a spare one. One of
 * its promise that it drops is owed to it again, also when others hold it. So a block that several
 * have counts as given once, and only while nobody holds it who was promised none: a child, a pin
 * (as blocks that slide do, block.h).
 *
 *   free blocks >= total_promised - blocks that promises alone hold
 *   total_promised = sum of owed and of all that is held as part of a promise = sum of bound
 *
 * The mutex is held. O(entries) unless a declaration says otherwise. */
#ifndef PKV_RUNTIME_STATE_LIST_H
#define PKV_RUNTIME_STATE_LIST_H

#include "runtime/state_group.h"

/* Free blocks that were promised to nobody, >= 0. O(1). */
int32_t state_list_num_spare(const struct state_group *states);

/* The state after `length` tokens, NO_BLOCK when the sequence has none. */
int32_t state_list_find(const struct state_group *states, int32_t seq, int32_t length);

/* May the sequence overwrite this state of its own: has nobody else it, and no later hit? O(1). */
bool state_list_is_own(const struct state_group *states, int32_t block);

/* An empty list, without a promise, of a new sequence. O(1). */
void state_list_reset(struct state_group *states, int32_t seq);

/* What an admission takes: `bound` blocks are promised from now on, an adopted one among them, into
 * the scratch of the group. Returns the spare blocks that this takes. seq: NO_SEQ for a probe.
 * O(1). */
int32_t state_list_demand(struct state_group *states, int32_t seq, int32_t bound);

/* Takes what was demanded, for a prompt whose last snapshot is due at snapshot_at; the list is
 * empty. Then the adopted state, if any, is that of the first `length` tokens. */
void state_list_admit(struct state_group *states, int32_t seq, int32_t snapshot_at);
void state_list_adopt(struct state_group *states, int32_t seq, int32_t length, int32_t block);

/* The spare blocks that children take which share the state of `length`: promises do not count it
 * as given any more. */
int32_t state_list_fork_spare(const struct state_group *states, int32_t parent, int32_t length);

/* The child, whose list is empty, shares the parent's state of `length`, if that is not 0. */
void state_list_fork(struct state_group *states, int32_t parent, int32_t child, int32_t length);

/* The sequence is swapped out: its states and its promise are dropped, and are away. */
void state_list_leave(struct state_group *states, int32_t seq);

/* What it takes that they come back, num_taken of them to blocks that are free: the spare blocks,
 * together with the promise, which goes into the scratch of the group. O(1). */
int32_t state_list_demand_return(struct state_group *states, int32_t seq, int32_t num_taken);

/* Takes the promise that was demanded. The list has its entries again, and no entry has a block:
 * each is put a block of the prefix index, and then the others are filled with free ones. */
void state_list_return(struct state_group *states, int32_t seq);
void state_list_put(struct state_group *states, int32_t seq, int32_t i, int32_t block);
void state_list_fill(struct state_group *states, int32_t seq);

/* A sequence that is loaded: its list, which is empty, gets free blocks, of which there must be as
 * many, for states of these lengths. It was promised nothing. */
void state_list_restore(struct state_group *states, int32_t seq, const int32_t *lengths,
                        int32_t count);

/* Drops the states of more than `length` tokens; of 0 also the promise, and what is
 * away. */
void state_list_cut(struct state_group *states, int32_t seq, int32_t length);

/* Takes a block: one that is owed, or a spare one, which must be there. O(1). */
int32_t state_list_take(struct state_group *states, int32_t seq);

/* Takes a spare one. O(1). */
int32_t state_list_take_spare(struct state_group *states, int32_t seq);

/* Does the one holder of a block, which nobody shares, have it as part of its promise? O(1). */
bool state_list_slides(const struct state_group *states, int32_t block);

/* Drops a block that the list does not name: no query needs it any more (is_old), or it is not
 * kept. O(1). */
void state_list_drop(struct state_group *states, int32_t seq, const struct state_entry *entry,
                     bool is_old);

/* The list, which is empty behind it, has the state of a block that nobody shares. O(1). */
void state_list_add(struct state_group *states, int32_t seq, int32_t length, int32_t block);

/* The least length >= `length`, and the greatest <= it, of which there is a state; -1 = none. */
int32_t state_list_next(const struct state_group *states, int32_t seq, int32_t length);
int32_t state_list_previous(const struct state_group *states, int32_t seq, int32_t length);

/* The least length from which on there is a state of every length up to the present one. */
int32_t state_list_min_length(const struct state_group *states, int32_t seq, int32_t length);

#endif
