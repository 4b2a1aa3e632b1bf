/* SPDX-License-Identifier: MIT
 *
 * pagedkv/swap.h: a sequence makes room for others without losing what it has computed. Its keys,
 * values and states are copied to swap memory of another kind (config.swap_bytes: slower memory
 * through a hook, or a file), its blocks are released, and later it comes back without computing
 * anything again:
 *
 *     pkv_step_begin(cache, &batch, &step, &shortage)     PKV_NO_BLOCKS: room is needed
 *     pkv_seq_swap_out(cache, victim, NULL)               instead of pkv_seq_truncate(victim, 0)
 *     ...
 *     pkv_seq_swap_in(cache, victim, &shortage)           instead of pkv_seq_admit and a prefill
 *
 * docs/guide.md says when that is better than to truncate and compute again. Blocks of a sequence
 * that the prefix cache still has when it comes back are adopted and not copied.
 *
 * While a sequence is swapped out its handle, length, tokens, options, namespaces and priority
 * stay, and so do its slots in continuous groups. pkv_step_begin, pkv_seq_fork, pkv_seq_admit and
 * pkv_seq_truncate to another length than 0 answer PKV_NOT_RESIDENT for it, with nothing changed.
 * pkv_seq_truncate to 0 and pkv_seq_destroy release its swap memory. pkv_seq_describe tells
 * is_swapped.
 *
 * Swap memory belongs to one cache and ends with it: it is no place to save anything. It is read
 * only where it was written before, and with config.poison_freed or config.zero_freed it is
 * overwritten as blocks are, when a sequence has come back or is destroyed.
 *
 * Threads. Any thread. The mutex is not held while keys and values are copied. Meanwhile other
 * calls that would change the sequence, or compute with it, answer PKV_BUSY; pkv_seq_destroy
 * succeeds at once, and what the sequence holds is released when the copy ends. Steps with other
 * sequences go on. */
#ifndef PAGEDKV_SWAP_H
#define PAGEDKV_SWAP_H

#include "pagedkv/base.h"
#include "pagedkv/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Moves the committed keys and values of a sequence, and its states at every length that it has
 * one of, to swap memory and releases its blocks in all paged groups and state groups; or changes
 * nothing. Blocks that others hold too stay theirs, what is indexed stays
 * cached, and what admission promised is promised no more.
 *
 * An empty sequence can be swapped out too: it takes no memory, and its promise ends.
 *
 * Of a block, the cells of committed tokens are copied alone, of a state all of it; they take as
 * many whole units of config.swap_bytes as their bytes need. shortage may be NULL. When the swap
 * memory is what is short, its group is -1, quota and max_tokens are 0, and need and free count
 * units.
 *
 * Returns PKV_OK; PKV_NO_BLOCKS when too few units are free, and PKV_NEVER_FITS when there are too
 * few altogether; PKV_INVALID_ARGUMENT for a sequence that is swapped out already; PKV_UNSUPPORTED
 * without config.swap_bytes, and so where all groups are continuous; PKV_BUSY while the sequence is
 * in the open step or another call copies it; PKV_STALE_HANDLE, also when it was destroyed during
 * the copy. Works on a closed cache too. Any thread; O(bytes copied), O(its blocks) of it under the
 * mutex. */
PKV_API PKV_NODISCARD enum pkv_status pkv_seq_swap_out(pkv_cache *cache, pkv_seq seq,
                                                       struct pkv_shortage *shortage);

/* Brings a sequence back from swap memory: it has blocks for all that it had, its states, the
 * promise of its admission, and goes on as if it had never been away; or changes nothing. Blocks
 * that it had published and that are still cached are adopted, snapshots too, the others are
 * copied. What is copied of published blocks can be found again.
 *
 * It is judged as an admission is: by the blocks that are free and not promised to others, less
 * config.watermark_blocks, and by the quotas of its namespace. Of the watermark it leaves as much
 * as there is beside what it needs, so that a sequence that steps have brought beyond that can come
 * back to an empty cache. shortage may be NULL; it is filled as by pkv_seq_admit, and pkv_wait_free
 * waits for it.
 *
 * Returns PKV_OK; PKV_NO_BLOCKS when there are too few blocks now; PKV_NEVER_FITS when a quota was
 * lowered below what the sequence needs; PKV_INVALID_ARGUMENT for a sequence that is not swapped
 * out; PKV_UNSUPPORTED without config.swap_bytes; PKV_BUSY while another call copies the sequence,
 * and on a closed cache; PKV_STALE_HANDLE, also when it was destroyed during the copy. Any thread;
 * O(bytes copied), O(its blocks) of it under the mutex. */
PKV_API PKV_NODISCARD enum pkv_status pkv_seq_swap_in(pkv_cache *cache, pkv_seq seq,
                                                      struct pkv_shortage *shortage);

#ifdef __cplusplus
}
#endif

#endif
