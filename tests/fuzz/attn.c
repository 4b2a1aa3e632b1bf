/* SPDX-License-Identifier: MIT
 *
 * Attention. Calls without tokens of any geometry: only their numbers are judged, so addresses
 * behind which there is little are safe. Good calls with tokens, one of whose integers or
 * dimensions was changed: whatever the answer, nothing outside of their arrays is touched (guard
 * pages are around each), and a refusal leaves caches and outputs as they were. */
#include <string.h>

#include "fuzz.h"
#include "support/contract_case.h"

enum { ROOM = 4096 };

static const unsigned allowed_attn =
    ALLOWED_INVALID | FUZZ_MAY(PKV_UNSUPPORTED) | FUZZ_MAY(PKV_NO_MEMORY);

static struct pkv_kv_view any_view(struct fuzz *fuzz, const struct pkv_gqa_args *args, char *room)
{
    const bool fits = !fuzz_once_in(fuzz, 5);
    struct pkv_kv_view view = {.k = fuzz_once_in(fuzz, 12) ? NULL : room,
                               .v = fuzz_once_in(fuzz, 6) ? NULL : room + ROOM / 2,
                               .k_dtype = (enum pkv_dtype)fuzz_in(fuzz, 0, 5),
                               .v_dtype = (enum pkv_dtype)fuzz_in(fuzz, 0, 5),
                               .num_blocks = fuzz_int32(fuzz, 9),
                               .kv_heads = fits ? args->kv_heads : fuzz_int32(fuzz, 4),
                               .block_size = fuzz_int32(fuzz, 40),
                               .k_width = fits ? args->k_width : fuzz_int32(fuzz, 9),
                               .v_width = fits ? args->v_width : fuzz_int32(fuzz, 9)};
    size_t *const strides[] = {&view.k_cell_stride, &view.v_cell_stride,  &view.k_head_stride,
                               &view.v_head_stride, &view.k_block_stride, &view.v_block_stride};
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++) {
        *strides[i] = fuzz_once_in(fuzz, 6) ? (size_t)fuzz_int64(fuzz, 99) : 0;
    }
    return view;
}

/* Constants that read no array, but for scales of one number. */
static void any_constants(struct fuzz *fuzz, struct pkv_attn_constants *c, const float *numbers)
{
    c->q_scale = fuzz_once_in(fuzz, 3) ? &numbers[0] : NULL;
    c->softcap = fuzz_once_in(fuzz, 4) ? fuzz_float(fuzz) : 0;
    c->smooth_softmax = fuzz_once_in(fuzz, 5);
    c->qk_norm_eps = fuzz_once_in(fuzz, 9) ? fuzz_float(fuzz) : 0;
    if (fuzz_once_in(fuzz, 2)) {
        c->k_scale = &numbers[1];
        c->v_scale = &numbers[2];
        c->k_scale_count = fuzz_once_in(fuzz, 6) ? 0 : 1;
        c->v_scale_count = fuzz_once_in(fuzz, 6) ? 0 : 1;
    }
}

static struct pkv_gqa_args any_args(struct fuzz *fuzz, char *room, const int32_t *zeros,
                                    const float *numbers)
{
    struct pkv_gqa_args args = {.size = sizeof args,
                                .form = (enum pkv_cache_form)fuzz_in(fuzz, 0, 4),
                                .dtype = (enum pkv_dtype)fuzz_in(fuzz, 0, 3),
                                .num_heads = fuzz_int32(fuzz, 8),
                                .kv_heads = fuzz_int32(fuzz, 2),
                                .k_width = fuzz_int32(fuzz, 70),
                                .v_width = fuzz_int32(fuzz, 70),
                                .v_in_k = fuzz_once_in(fuzz, 6),
                                .batch = fuzz_in(fuzz, 0, 3),
                                .sliding_window = fuzz_once_in(fuzz, 3) ? fuzz_int64(fuzz, 9) : 0,
                                .not_causal = fuzz_once_in(fuzz, 6),
                                .cu_seqlens_q = zeros,
                                .q = room,
                                .out = room + ROOM / 4};
    if (fuzz_once_in(fuzz, 2)) {
        args.num_heads = args.kv_heads > 0 && args.kv_heads < 1 << 20
                             ? args.kv_heads * fuzz_in(fuzz, 1, 64)
                             : args.kv_heads;
    }
    args.k = fuzz_once_in(fuzz, 2) ? room : NULL;
    args.v = args.k != NULL && !args.v_in_k ? room : NULL;
    args.q_stride = fuzz_once_in(fuzz, 8) ? (size_t)fuzz_int64(fuzz, 200) : 0;
    args.out_stride = fuzz_once_in(fuzz, 8) ? (size_t)fuzz_int64(fuzz, 200) : 0;
    if (args.form == PKV_CACHE_PAGED) {
        args.block_table = zeros;
        args.max_blocks = fuzz_in(fuzz, 0, 1);
    }
    if (args.form != PKV_CACHE_NONE && args.form != PKV_CACHE_DENSE_COPY) {
        args.kv_lens = zeros;
    }
    if (args.form != PKV_CACHE_NONE) {
        args.past = any_view(fuzz, &args, room);
    }
    if (args.form == PKV_CACHE_DENSE_COPY) {
        args.present = any_view(fuzz, &args, room + ROOM);
    }
    any_constants(fuzz, &args.constants, numbers);
    return args;
}

void fuzz_geometry(struct fuzz *fuzz)
{
    static const int32_t zeros[8];
    static char room[2 * ROOM];
    pkv_workspace *workspace = NULL;
    pkv_plan *plan = NULL;
    int32_t max_blocks = 0;
    if (!FUZZ_CALL(
            fuzz, 0,
            pkv_workspace_create(fuzz_in(fuzz, 1, 3), test_isa(), &fuzz->hooks, &workspace)) ||
        !FUZZ_CALL(fuzz, 0, pkv_plan_create(workspace, &plan))) {
        return;
    }
    for (int i = 0; i < 60; i++) {
        const float numbers[] = {fuzz_float(fuzz), fuzz_float(fuzz), fuzz_float(fuzz)};
        const struct pkv_gqa_args args = any_args(fuzz, room, zeros, numbers);
        const enum pkv_status planned = pkv_gqa_plan(workspace, &args, plan);
        const enum pkv_status run = pkv_gqa_run(workspace, &args, plan);
        FUZZ_EXPECT((planned == PKV_OK) == (run == PKV_OK));
        (void)FUZZ_CALL(fuzz, allowed_attn, planned);
        FUZZ_EXPECT(planned != PKV_OK || pkv_gqa(workspace, &args) == PKV_OK);
        /* No tokens, no scratch to speak of; stamps are as many as there are blocks. */
        max_blocks = args.past.num_blocks > max_blocks ? args.past.num_blocks : max_blocks;
        FUZZ_EXPECT(fuzz->live_bytes < ((size_t)1 << 24) + 24 * (size_t)max_blocks);
    }
    pkv_plan_destroy(plan);
    pkv_workspace_destroy(workspace);
}

static struct case_spec any_spec(struct fuzz *fuzz, bool is_contract)
{
    struct case_spec spec = case_plain(random_u64(&fuzz->random));
    spec.layout = random_u64(&fuzz->random) % 8;
    spec.form = (enum pkv_cache_form)fuzz_in(fuzz, PKV_CACHE_NONE, PKV_CACHE_PAGED);
    spec.kv_heads = fuzz_in(fuzz, 1, 2);
    spec.group = fuzz_in(fuzz, 1, 3);
    spec.k_width = spec.v_width = 4 * fuzz_in(fuzz, 1, 5);
    spec.window = fuzz_once_in(fuzz, 3) ? fuzz_in(fuzz, 1, 6) : 0;
    const bool is_even =
        spec.form == PKV_CACHE_DENSE_COPY || (is_contract && spec.form != PKV_CACHE_PAGED);
    for (int32_t b = 0, n = fuzz_in(fuzz, 1, 3); b < n; b++) {
        const int32_t q_len = is_even ? 2 : fuzz_in(fuzz, 1, 3);
        const int32_t past = spec.form == PKV_CACHE_NONE ? 0 : is_even ? 5 : fuzz_in(fuzz, 0, 9);
        case_add_row(&spec, b, q_len, past + q_len);
    }
    return spec;
}

/* One entry of one of the integer arrays of a call. */
static void change_integer(struct fuzz *fuzz, struct gqa_case *c)
{
    const struct pkv_gqa_args *args = &c->args;
    const int32_t batch = args->batch;
    const struct {
        int32_t *array;
        int32_t count;
    } arrays[] = {{c->cu_seqlens_q, batch + 1},
                  {c->cu_seqlens_k, batch + 1},
                  {c->kv_lens, batch},
                  {c->slot_ids, batch},
                  {c->block_table, batch * args->max_blocks}};
    const int32_t which = fuzz_in(fuzz, 0, 4);
    if (arrays[which].array != NULL && arrays[which].count > 0) {
        arrays[which].array[fuzz_in(fuzz, 0, arrays[which].count - 1)] = fuzz_int32(fuzz, 12);
    }
}

/* cu_seqlens_k may name more keys than the arrays of this case have: that cannot be checked. */
static bool reads_past_its_keys(const struct gqa_case *c, const int32_t *keys)
{
    return c->cu_seqlens_k != NULL && c->cu_seqlens_k[c->args.batch] > *keys;
}

void fuzz_rows(struct fuzz *fuzz)
{
    const struct case_spec spec = any_spec(fuzz, false);
    pkv_workspace *workspace = NULL;
    struct gqa_case *c = gqa_case_make(&spec);
    const int32_t keys = c->cu_seqlens_k != NULL ? c->cu_seqlens_k[c->args.batch] : 0;
    for (int32_t i = fuzz_in(fuzz, 0, 2); i >= 0; i--) {
        change_integer(fuzz, c);
    }
    if (!reads_past_its_keys(c, &keys) &&
        FUZZ_CALL(fuzz, 0, pkv_workspace_create(2, test_isa(), &fuzz->hooks, &workspace))) {
        gqa_case_snapshot(c);
        if (!FUZZ_CALL(fuzz, allowed_attn, gqa_case_call(c, workspace))) {
            FUZZ_EXPECT(gqa_case_changed(c, REGION_CACHE | REGION_OUTPUT) == -1);
        }
        FUZZ_EXPECT(gqa_case_changed(c, REGION_INPUT) == -1);
    }
    pkv_workspace_destroy(workspace);
    gqa_case_free(c);
}

/* A dimension becomes smaller, or none that memory can have; or the rank or the type another. */
static void change_tensor(struct fuzz *fuzz, struct contract_case *x)
{
    struct pkv_tensor *tensor =
        contract_case_tensor(x, (enum contract_tensor)fuzz_in(fuzz, 0, NUM_CONTRACT_TENSORS - 1));
    if (tensor == NULL) {
        return;
    }
    const int32_t at = fuzz_in(fuzz, 0, 3);
    switch (fuzz_in(fuzz, 0, 5)) {
    case 0: tensor->rank = fuzz_in(fuzz, -1, tensor->rank); break;
    case 1: tensor->data = NULL; break;
    case 2: tensor->dims[at] = -1 - (fuzz_int64(fuzz, 3) & INT64_MAX); break;
    case 3: tensor->dims[at] = (int64_t)INT32_MAX + fuzz_in(fuzz, 1, 9); break;
    case 4: tensor->type = (enum pkv_tensor_type)fuzz_in(fuzz, -1, 9); break;
    default: tensor->dims[at] = tensor->dims[at] > 0 ? tensor->dims[at] - 1 : 0; break;
    }
}

static void change_number(struct fuzz *fuzz, struct contract_case *x)
{
    switch (fuzz_in(fuzz, 0, 5)) {
    case 0: x->num_heads = fuzz_int64(fuzz, 8); break;
    case 1: x->kv_num_heads = fuzz_int64(fuzz, 8); break;
    case 2: x->sliding_window = fuzz_int64(fuzz, 8); break;
    case 3: x->softcap = (double)fuzz_float(fuzz); break;
    case 4: x->start = fuzz_int64(fuzz, 12); break;
    default: x->qk_norm_eps = (double)fuzz_float(fuzz); break;
    }
}

void fuzz_contract(struct fuzz *fuzz)
{
    const struct case_spec spec = any_spec(fuzz, true);
    pkv_workspace *workspace = NULL;
    struct contract_case *x = contract_case_make(&spec, random_u64(&fuzz->random) % 16);
    for (int32_t i = fuzz_in(fuzz, 0, 2); i >= 0; i--) {
        if (fuzz_once_in(fuzz, 3)) {
            change_number(fuzz, x);
        } else {
            change_tensor(fuzz, x);
        }
    }
    if (FUZZ_CALL(fuzz, 0, pkv_workspace_create(2, test_isa(), &fuzz->hooks, &workspace))) {
        gqa_case_snapshot(x->gqa);
        if (!FUZZ_CALL(fuzz, allowed_attn, pkv_gqa_contract(workspace, &x->args))) {
            FUZZ_EXPECT(gqa_case_changed(x->gqa, REGION_CACHE | REGION_OUTPUT) == -1);
        }
        FUZZ_EXPECT(gqa_case_changed(x->gqa, REGION_INPUT) == -1);
    }
    pkv_workspace_destroy(workspace);
    contract_case_free(x);
}
