/* SPDX-License-Identifier: MIT
 *
 * selection_case.c: lists of selected blocks, see selection_case.h. */
#include "support/selection_case.h"

#include <math.h>

static int32_t blocks_of(const struct case_spec *spec, int32_t kv_len)
{
    return (kv_len + spec->selection_size - 1) / spec->selection_size;
}

void selection_case_add(struct gqa_case *c)
{
    const struct case_spec *spec = &c->spec;
    struct test_random random = {spec->seed ^ 0x5e1ec7ed};
    const int32_t per_row = spec->selects_by_head ? spec->kv_heads : 1;
    const int32_t num_lists = per_row * spec->batch;
    size_t most = 0;
    if (spec->selection_size == 0) {
        return;
    }
    for (int32_t b = 0; b < spec->batch; b++) {
        most += (size_t)per_row * (size_t)blocks_of(spec, spec->kv_lens[b]);
    }
    c->cu_selected = gqa_case_input(c, (size_t)num_lists + 1, sizeof *c->cu_selected);
    c->selected = gqa_case_input(c, most, sizeof *c->selected);
    int32_t count = 0;
    for (int32_t i = 0; i < num_lists; i++) {
        for (int32_t s = 0; s < blocks_of(spec, spec->kv_lens[i / per_row]); s++) {
            if (random_between(&random, 0, 99) < spec->selected_share) {
                c->selected[count++] = s;
            }
        }
        c->cu_selected[i + 1] = count;
    }
    c->args.selected = c->selected;
    c->args.cu_selected = c->cu_selected;
    c->args.num_selected_lists = num_lists;
    c->args.selection_size = spec->selection_size;
    c->args.selected_newest = spec->selected_newest;
}

void selection_case_to_mask(struct gqa_case *c)
{
    const struct case_spec *spec = &c->spec;
    struct pkv_gqa_args *args = &c->args;
    const bool is_added = args->attn_mask != NULL;
    int32_t queries = 0, keys = 0;
    for (int32_t b = 0; b < spec->batch; b++) {
        queries = spec->q_lens[b] > queries ? spec->q_lens[b] : queries;
        keys = spec->kv_lens[b] > keys ? spec->kv_lens[b] : keys;
    }
    const size_t head = (size_t)queries * (size_t)keys;
    const size_t row = (size_t)args->num_heads * head;
    float *added = gqa_case_input(c, is_added ? (size_t)spec->batch * row : 0, sizeof *added);
    uint8_t *bytes = gqa_case_input(c, is_added ? 0 : (size_t)spec->batch * row, 1);
    for (size_t at = 0; at < (size_t)spec->batch * row; at++) {
        const int32_t b = (int32_t)(at / row), i = (int32_t)(at % head / (size_t)keys);
        double bias = 0;
        const bool sees =
            i < spec->q_lens[b] && reference_sees(args, b, i, (int32_t)(at % row / head),
                                                  (int32_t)(at % (size_t)keys), &bias);
        if (is_added) {
            added[at] = sees ? (float)bias : -INFINITY;
        } else {
            bytes[at] = sees;
        }
    }
    args->attn_mask = is_added ? (void *)added : (void *)bytes;
    args->mask_dtype = is_added ? PKV_F32 : PKV_INT8;
    args->mask_batch = spec->batch;
    args->mask_heads = args->num_heads;
    args->mask_queries = queries;
    args->mask_keys = keys;
    args->selected = args->cu_selected = NULL;
    args->num_selected_lists = args->selection_size = 0;
    args->selected_newest = 0;
}

void selection_case_cut(const struct gqa_case *c, int32_t end, struct selection_cut *cut,
                        struct pkv_gqa_args *args)
{
    const int32_t num_lists = c->spec.selects_by_head ? c->spec.kv_heads : 1;
    int32_t count = 0;
    if (c->cu_selected == NULL) {
        return;
    }
    cut->cu[0] = 0;
    for (int32_t i = 0; i < num_lists; i++) {
        for (int32_t at = c->cu_selected[i]; at < c->cu_selected[i + 1]; at++) {
            if (c->selected[at] < blocks_of(&c->spec, end)) {
                cut->blocks[count++] = c->selected[at];
            }
        }
        cut->cu[i + 1] = count;
    }
    args->selected = cut->blocks;
    args->cu_selected = cut->cu;
}
