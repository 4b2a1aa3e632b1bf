/* SPDX-License-Identifier: MIT
 *
 * tree_case.c: see tree_case.h. */
#include "support/tree_case.h"

static int32_t below(uint64_t seed, int32_t row_id, int32_t i, int32_t count)
{
    struct test_random random = {seed ^ ((uint64_t)(uint32_t)row_id << 32 | (uint32_t)i)};
    random_between(&random, 0, 1);
    return random_between(&random, 0, count - 1);
}

static int32_t parent_of(const struct case_spec *spec, int32_t row_id, int32_t i)
{
    switch ((enum tree_shape)spec->tree_shape) {
    case TREE_RANDOM: return below(spec->seed, row_id, i, i + 1) - 1;
    case TREE_RECENT: return i < 3 ? i - 1 : i - 1 - below(spec->seed, row_id, i, 3);
    case TREE_ROOTS: return -1;
    case TREE_BINARY: return i > 0 ? (i - 1) / 2 : -1;
    default: return i - 1;
    }
}

void tree_case_add(struct gqa_case *c)
{
    const struct case_spec *spec = &c->spec;
    if (spec->tree_shape == TREE_NONE) {
        return;
    }
    c->parents = gqa_case_input(c, (size_t)c->args.num_tokens, sizeof *c->parents);
    for (int32_t b = 0; b < spec->batch; b++) {
        for (int32_t i = 0; i < spec->q_lens[b]; i++) {
            c->parents[c->cu_seqlens_q[b] + i] = parent_of(spec, spec->row_ids[b], i);
        }
    }
    c->args.parents = c->parents;
}

int32_t tree_case_path(const struct gqa_case *c, int32_t b, int32_t i, int32_t *path)
{
    const int32_t *parents = c->parents + c->cu_seqlens_q[b];
    int32_t count = 0;
    for (int32_t a = i; a >= 0; a = parents[a]) {
        count++;
    }
    for (int32_t a = i, at = count; a >= 0; a = parents[a]) {
        path[--at] = a;
    }
    return count;
}
