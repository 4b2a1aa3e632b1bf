/* SPDX-License-Identifier: MIT
 *
 * prefix_flush.h: flush of one field value, and reset of everything. Both take effect at once and
 * cost O(1), by raising the epoch: no node in the namespaces concerned is hit from then on, and no
 * sequence of an older epoch publishes into them. The blocks of the dead nodes are detached by a
 * sweep, in slices as long as the caller likes. */
#ifndef PKV_PREFIX_FLUSH_H
#define PKV_PREFIX_FLUSH_H

#include "prefix/prefix_index.h"

/* The present epoch; a sequence stores the one in which it was created and publishes under it. */
uint64_t prefix_index_epoch(const struct prefix_index *index);

/* True when nothing that `namespace_id` names was flushed, nor all reset, since `epoch`. */
bool prefix_index_is_current(const struct prefix_index *index, int32_t namespace_id,
                             uint64_t epoch);

/* Every namespace with this field (begins_at does not matter); every namespace there is. */
void prefix_index_flush(struct prefix_index *index, const struct pkv_namespace_field *field);
void prefix_index_reset(struct prefix_index *index);

/* Looks at up to max_nodes nodes after a flush or reset, and adds to *swept. True when none is left
 * to look at; false: call again. Other calls may come in between. */
bool prefix_index_sweep(struct prefix_index *index, int32_t max_nodes, struct prefix_swept *swept);

/* For the module: while a sweep is under way, a new node may get the key of a dead one that the
 * sweep has not come to. Detaches the blocks of such nodes now, so that the observer is told of the
 * end of the old block first; the next sweep reports them. Ancestors of dead nodes may be freed. */
void prefix_flush_retire(struct prefix_index *index, struct pkv_block_key key);

#endif
