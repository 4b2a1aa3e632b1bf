/* SPDX-License-Identifier: MIT
 *
 * tree_case.h: trees of drafts of a gqa_case: each row's parents follow from the seed and its id.
 */
#ifndef PKV_TEST_TREE_CASE_H
#define PKV_TEST_TREE_CASE_H

#include "support/gqa_case.h"

enum tree_shape {
    TREE_NONE,
    TREE_CHAIN,  /* said by parents */
    TREE_RANDOM, /* any token before, or a root */
    TREE_RECENT, /* one of the 3 tokens before, so that it is deep */
    TREE_ROOTS,  /* each token is one */
    TREE_BINARY, /* token i's children are 2i + 1 and 2i + 2 */
    NUM_TREE_SHAPES
};

/* Parents as the spec wants them; none when its tree_shape is 0. */
void tree_case_add(struct gqa_case *c);

/* Token i of row b, and its ancestors from the root on: their number is returned. path has room for
 * PKV_MAX_TREE_TOKENS. */
int32_t tree_case_path(const struct gqa_case *c, int32_t b, int32_t i, int32_t *path);

#endif
