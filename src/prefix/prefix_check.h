/* SPDX-License-Identifier: MIT
 *
 * prefix_check.h: the checker of an index. It counts the breaches of:
 *
 *   node has block b in group g      <=>  node_of(g, b) = node
 *   priority of a parent              >=  priority of each child
 *   a free block without a node          is in PREFIX_CLASS_UNINDEXED
 *   a free block with a node             is in PREFIX_CLASS_OUT_OF_WINDOW, or in
 *                                        that of its node's priority, settled or not, behind
 *                                        all that were freed before it
 *
 *   a node is where prefix_siblings.h   <=>  it has a block in every group, and hits may end
 *   has it                                   inside a block
 *
 * and of the equations in prefix_node.h, prefix_retain.h, prefix_namespace.h and prefix_field.h. */
#ifndef PKV_PREFIX_CHECK_H
#define PKV_PREFIX_CHECK_H

#include "prefix/prefix_index.h"

/* Returns the number of broken invariants, a line for each through the log hook. Scratch fields of
 * records are written; nothing else. O(nodes + blocks + namespaces). */
int32_t prefix_index_check(struct prefix_index *index);

#endif
