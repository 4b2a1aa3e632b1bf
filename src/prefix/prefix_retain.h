/* SPDX-License-Identifier: MIT
 *
 * prefix_retain.h: retention points. A group with a window of W keys needs, for a hit that ends at
 * some node, the blocks of the W - 1 keys before that end. Most blocks that leave the window of a
 * running sequence are never needed again, for prompts part, and end, at few places. A retention
 * point is a node at which a hit is expected to end:
 *
 *   where the tree branches: a node gets a second child, whether or not it still has the first
 *   the last node of what a finished sequence held, and a node at which an admission found that
 *   some group could have gone on further than the common hit: until it gets its first child, for
 *   what goes on from there, a chat, will be hit at its new end
 *
 * The blocks of the window in front of a retention point keep their class of priority when they
 * leave a window; all others go to PREFIX_CLASS_OUT_OF_WINDOW and are taken first. Each node knows
 * its distance: how many nodes further down the nearest retention point is.
 *
 *   a node covers its block of a group  <=>  distance < nodes of that group's window
 *   distance of a parent <= distance of each child + 1, while that is below the widest window
 *   a free block out of a window is not covered
 *
 * A sequence that may go back m tokens needs m keys more in front of its hits; a point made for it
 * lies so many blocks deeper, below zero. Points go with their nodes. */
#ifndef PKV_PREFIX_RETAIN_H
#define PKV_PREFIX_RETAIN_H

#include "prefix/prefix_index.h"

/* Makes a node a retention point for hits that may go back max_rewind tokens; blocks in front of it
 * that left their window already keep their class from now on, as the last of it. Stale refs, the
 * root, and an index without windows are ignored. O(blocks of the widest window), less where
 * points were made before. */
void prefix_index_retain(struct prefix_index *index, struct prefix_ref node, int32_t max_rewind);

/* The node gets a child that is new, by a sequence of max_rewind: it is where the tree branches,
 * or, for its first child, a retention point no longer. O(blocks of the widest window). */
void prefix_index_continue(struct prefix_index *index, struct prefix_ref node, int32_t max_rewind);

#endif
