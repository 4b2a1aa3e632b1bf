/* SPDX-License-Identifier: MIT
 *
 * tree.c: a round of a draft tree.
 *
 *   token 0      t[n-1], the one root, not in the cache yet
 *   token i      a guess of what follows its parent, which is a token before it
 *   verify       all of them in one step; c[i] is the target's choice after token i
 *   path         from token 0 on, to the child that is c of its parent, while there is one
 *   new          the path's drafts, and c of its last token
 *
 * Each c on the path is the target's own choice after tokens that it chose itself, as in decode.c.
 */
#include "tree.h"

enum { MAX_MATCH = 4, MAX_TREE = MAX_DRAFTS + 1 };

struct tree {
    int32_t tokens[MAX_TREE];
    int32_t parents[MAX_TREE];
    int32_t depths[MAX_TREE];
    int32_t count;
};

/* The token `back` places before node: an ancestor's, or the request's. */
static int32_t token_before(const struct tree *tree, const struct request *request, int32_t node,
                            int32_t back)
{
    if (back > tree->depths[node]) {
        return request->tokens[request->num_tokens - 1 - (back - tree->depths[node])];
    }
    for (; back > 0; back--) {
        node = tree->parents[node];
    }
    return tree->tokens[node];
}

/* How many tokens up to `at` of the request, MAX_MATCH at most, are those up to node. */
static int32_t match_length(const struct tree *tree, const struct request *request, int32_t node,
                            int32_t at)
{
    int32_t length = 0;
    while (length < MAX_MATCH && length <= at &&
           request->tokens[at - length] == token_before(tree, request, node, length)) {
        length++;
    }
    return length;
}

static bool has_child(const struct tree *tree, int32_t node, int32_t token)
{
    for (int32_t i = node + 1; i < tree->count; i++) {
        if (tree->parents[i] == node && tree->tokens[i] == token) {
            return true;
        }
    }
    return false;
}

/* Adds the best guess of what follows node that is not there yet: that of the longest match, of
 * equal ones the latest. False when there is none. */
static bool add_child(struct tree *tree, const struct request *request, int32_t node)
{
    int32_t best = -1;
    int32_t best_length = 0;
    for (int32_t at = request->num_tokens - 2; at >= 0; at--) {
        const int32_t length = match_length(tree, request, node, at);
        if (length > best_length && !has_child(tree, node, request->tokens[at + 1])) {
            best = at;
            best_length = length;
        }
    }
    if (best < 0) {
        return false;
    }
    tree->tokens[tree->count] = request->tokens[best + 1];
    tree->parents[tree->count] = node;
    tree->depths[tree->count] = tree->depths[node] + 1;
    tree->count++;
    return true;
}

/* Token by token in the order of the tree, so that it grows in breadth first. */
static void grow(struct tree *tree, const struct request *request, int32_t num_branches,
                 int32_t num_drafts)
{
    tree->tokens[0] = request->tokens[request->num_tokens - 1];
    tree->parents[0] = -1;
    tree->depths[0] = 0;
    tree->count = 1;
    for (int32_t node = 0; node < tree->count; node++) {
        for (int32_t b = 0; b < num_branches && tree->count <= num_drafts; b++) {
            if (!add_child(tree, request, node)) {
                break;
            }
        }
    }
}

static int32_t child_with(const struct tree *tree, int32_t node, int32_t token)
{
    int32_t i = node + 1;
    while (i < tree->count && (tree->parents[i] != node || tree->tokens[i] != token)) {
        i++;
    }
    return i < tree->count ? i : -1;
}

/* path [*length] is what the target would have chosen, and *choice what it chooses after it. The
 * step is closed with the path kept. */
static bool verify(struct decoder *target, const struct tree *tree, int32_t *path, int32_t *length,
                   int32_t *choice)
{
    if (!decoder_compute_tree(target, tree->tokens, tree->parents, tree->count)) {
        return false;
    }
    *length = 0;
    for (int32_t node = 0; node >= 0; node = child_with(tree, node, *choice)) {
        path[(*length)++] = node;
        if (!decoder_choose(target, node, choice)) {
            return false;
        }
    }
    return decoder_keep_path(target, path, *length);
}

static bool run_round(struct decoder *target, int32_t num_branches, int32_t num_drafts,
                      struct request *request, struct speculation *counts)
{
    struct tree tree;
    int32_t path[MAX_TREE];
    int32_t length = 0;
    int32_t choice = 0;
    /* As in decode.c; each draft has a cell until the step ends. */
    const int32_t room = request->max_tokens - request->num_tokens - 1;
    grow(&tree, request, num_branches, num_drafts < room ? num_drafts : room);
    if (!verify(target, &tree, path, &length, &choice)) {
        return false;
    }
    for (int32_t k = 1; k < length && !request->ended; k++) {
        request_take(target->model, request, tree.tokens[path[k]]);
    }
    if (!request->ended) {
        request_take(target->model, request, choice);
    }
    counts->num_rounds++;
    counts->num_drafted += tree.count - 1;
    counts->num_accepted += length - 1;
    return true;
}

bool decode_tree(struct decoder *target, int32_t num_branches, int32_t num_drafts,
                 struct request *request, struct speculation *counts)
{
    if (!decoder_start(target, request->tokens, request->num_prompt) ||
        !decoder_catch_up(target, request->tokens, request->num_tokens - 1)) {
        return false;
    }
    while (!request->ended) {
        if (!run_round(target, num_branches, num_drafts, request, counts)) {
            return false;
        }
    }
    return decoder_end(target);
}
