/* SPDX-License-Identifier: MIT
 *
 * Steps of a managed cache: chains and trees of drafts, good and not, over groups of keys and of
 * states. Whether a commit succeeds is told by a naive model of paths. */
#include <string.h>

#include "life.h"

struct rows {
    pkv_seq seqs[HANDLES];
    int32_t q_lens[HANDLES];
    int32_t parents[64];
    bool has_parents;
    int32_t num_rows;
    int32_t num_joined;
    int32_t at[HANDLES + 1]; /* where each row's tokens begin */
    bool has_state[64];      /* behind that token, in every state group */
};

static int32_t parent_of(const struct rows *rows, int32_t row, int32_t t)
{
    return rows->has_parents ? rows->parents[rows->at[row] + t] : t - 1;
}

static bool is_state_group(const struct life *life, int32_t g)
{
    return life->setup->groups[g].kind == PKV_GROUP_STATE;
}

/* Reads what each row begins with and writes what is to be stored. */
static void run_states(struct rows *rows, const struct pkv_state_view *view, int32_t num_states)
{
    static volatile unsigned char seen;
    char *const base = view->first_layer;
    for (int32_t i = 0; i < view->num_rows; i++) {
        if (FUZZ_EXPECT(view->reads[i] >= 0 && view->reads[i] <= num_states)) {
            seen = (unsigned char)
                base[(size_t)view->reads[i] * view->state_stride_bytes + view->state_bytes - 1];
        }
    }
    for (int32_t t = 0; t < view->num_tokens; t++) {
        const int32_t to = view->writes[t];
        rows->has_state[t] = rows->has_state[t] && to >= 0;
        if (to >= 0 && FUZZ_EXPECT(to < num_states)) {
            memset(base + (size_t)to * view->state_stride_bytes, seen, view->state_bytes);
        }
    }
}

/* The state behind the row's last token is stored, and in a tree that behind each token. */
static bool is_stored(const struct rows *rows, int32_t row)
{
    const int32_t q_len = rows->q_lens[row];
    bool is_tree = false;
    bool has_all = true;
    for (int32_t t = 0; t < q_len; t++) {
        is_tree = is_tree || parent_of(rows, row, t) != t - 1;
        has_all = has_all && rows->has_state[rows->at[row] + t];
    }
    return q_len == 0 || (is_tree ? has_all : rows->has_state[rows->at[row] + q_len - 1]);
}

static void describe(struct fuzz *fuzz, const struct life *life, pkv_step step, struct rows *rows)
{
    for (int32_t g = 0; g < life->setup->config.num_groups; g++) {
        struct pkv_state_view view = {.size = sizeof view};
        const bool is_state = is_state_group(life, g);
        const enum pkv_status status = pkv_step_describe_states(life->cache, step, g, &view);
        FUZZ_EXPECT(status == (is_state ? PKV_OK : PKV_INVALID_ARGUMENT));
        if (FUZZ_CALL(fuzz, ALLOWED_INVALID, status)) {
            FUZZ_EXPECT(view.num_rows == rows->num_joined);
            run_states(rows, &view, life->setup->groups[g].num_blocks);
        }
    }
    for (int32_t i = 0; i < rows->num_joined; i++) {
        FUZZ_EXPECT(is_stored(rows, i));
    }
}

/* Refused, with the view as it was. */
static void describe_wrongly(struct fuzz *fuzz, const struct life *life, pkv_step step)
{
    struct pkv_state_view view = {.size = sizeof view};
    const struct pkv_state_view before = view;
    const int32_t group = fuzz_in(fuzz, 0, MAX_GROUPS);
    enum pkv_status status = PKV_OK;
    switch (fuzz_in(fuzz, 0, 3)) {
    case 0: step.id ^= (uint64_t)1 << fuzz_in(fuzz, 0, 63); break;
    case 1: view.size -= (size_t)fuzz_in(fuzz, 1, 64); break;
    default: break;
    }
    const size_t size = view.size;
    const bool is_null = fuzz_once_in(fuzz, 8);
    status = pkv_step_describe_states(fuzz_once_in(fuzz, 8) ? NULL : life->cache, step,
                                      fuzz_once_in(fuzz, 2) ? fuzz_int32(fuzz, 9) : group,
                                      is_null ? NULL : &view);
    if (!FUZZ_CALL(fuzz, ALLOWED_INVALID | ALLOWED_STALE, status)) {
        view.size = before.size;
        FUZZ_EXPECT(memcmp(&view, &before, sizeof view) == 0);
    } else {
        FUZZ_EXPECT(!is_null && size <= before.size);
    }
}

/* What a row may keep: a random path of its tree, or something wrong. */
static int32_t choose_path(struct fuzz *fuzz, const struct rows *rows, int32_t row, int32_t *path)
{
    const int32_t q_len = rows->q_lens[row];
    const int32_t leaf = fuzz_once_in(fuzz, 4) ? fuzz_in(fuzz, -1, q_len - 1) : q_len - 1;
    int32_t depth = 0;
    for (int32_t t = leaf; t >= 0; t = parent_of(rows, row, t)) {
        depth++;
    }
    int32_t k = depth;
    for (int32_t t = leaf; t >= 0; t = parent_of(rows, row, t)) {
        path[--k] = t;
    }
    if (depth > 0 && fuzz_once_in(fuzz, 12)) {
        path[fuzz_in(fuzz, 0, depth - 1)] = fuzz_int32(fuzz, q_len);
    }
    return fuzz_once_in(fuzz, 16) ? fuzz_int32(fuzz, q_len) : depth;
}

static bool is_path(const struct rows *rows, int32_t row, int32_t num_keep, const int32_t *path)
{
    const int32_t q_len = rows->q_lens[row];
    bool is = num_keep >= 0 && num_keep <= q_len &&
              (num_keep == 0 || rows->has_state[rows->at[row] + num_keep - 1]);
    for (int32_t k = 0; is && k < num_keep; k++) {
        is = path[k] >= 0 && path[k] < q_len &&
             parent_of(rows, row, path[k]) == (k > 0 ? path[k - 1] : -1);
    }
    return is;
}

/* Entries of rows in front of a wrong number are where they are. */
static enum pkv_status commit(struct fuzz *fuzz, const struct life *life, pkv_step step,
                              const struct rows *rows)
{
    static const int32_t chain[TOKENS] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                                          12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23};
    int32_t path[2 * TOKENS + 1] = {0};
    int32_t keep[HANDLES] = {0};
    const bool by_path = fuzz_once_in(fuzz, 2);
    bool is_good = true;
    int32_t count = 0;
    for (int32_t i = 0; i < rows->num_joined; i++) {
        keep[i] = choose_path(fuzz, rows, i, path + count);
        is_good = is_good && is_path(rows, i, keep[i], by_path ? path + count : chain);
        count += keep[i] > 0 && keep[i] <= rows->q_lens[i] ? keep[i] : 0;
    }
    const enum pkv_status status = by_path ? pkv_step_commit_path(life->cache, step, keep, path)
                                           : pkv_step_commit(life->cache, step, keep);
    FUZZ_EXPECT(status == (is_good ? PKV_OK : PKV_INVALID_ARGUMENT));
    return status;
}

/* Layers in order; true when all of them were run. */
static bool run_layers(struct fuzz *fuzz, struct life *life, pkv_step step, struct rows *rows)
{
    static float q[TOKENS * HEADS * WIDTH], k[TOKENS * WIDTH], v[TOKENS * WIDTH];
    static float out[TOKENS * HEADS * WIDTH];
    const struct pkv_layer_io io = {.size = sizeof io, .q = q, .k = k, .v = v, .out = out};
    const bool is_kept = !fuzz_once_in(fuzz, 4);
    for (int32_t i = 0; is_kept && i < life->setup->config.num_layers; i++) {
        const bool is_state = is_state_group(life, life->setup->layers[i].group);
        const enum pkv_status status = pkv_step_attend(life->cache, step, i, &io);
        FUZZ_EXPECT(status == (is_state ? PKV_INVALID_ARGUMENT : PKV_OK));
        (void)FUZZ_CALL(fuzz, ALLOWED_INVALID, status);
    }
    if (is_kept || fuzz_once_in(fuzz, 2)) {
        describe(fuzz, life, step, rows);
    }
    if (fuzz_once_in(fuzz, 4)) {
        describe_wrongly(fuzz, life, step);
    }
    return is_kept;
}

static void run_step(struct fuzz *fuzz, struct life *life, pkv_step step, struct rows *rows)
{
    memset(rows->has_state, true, sizeof rows->has_state);
    bool is_open = true;
    if (run_layers(fuzz, life, step, rows)) {
        for (int i = 0; i < 3 && is_open; i++) {
            is_open = !FUZZ_CALL(fuzz, ALLOWED_INVALID, commit(fuzz, life, step, rows));
        }
    }
    if (is_open) {
        (void)FUZZ_CALL(fuzz, 0, pkv_step_abort(life->cache, step));
    }
    FUZZ_EXPECT(pkv_step_abort(life->cache, step) == PKV_STALE_HANDLE);
}

/* Chains, or trees whose parents are wrong now and then. */
static void choose_rows(struct fuzz *fuzz, const struct life *life, struct rows *rows)
{
    memset(rows, 0, sizeof *rows);
    rows->num_rows = fuzz_in(fuzz, 0, 4);
    rows->has_parents = fuzz_once_in(fuzz, 2);
    for (int32_t i = 0; i < rows->num_rows; i++) {
        rows->seqs[i] = fuzz_once_in(fuzz, 9) ? life_any_seq(fuzz, life) : life->seqs[i];
        const int32_t q_len = fuzz_in(fuzz, 0, 6);
        for (int32_t t = 0; t < q_len; t++) {
            const bool is_chain = fuzz_once_in(fuzz, 2);
            rows->parents[rows->at[i] + t] = is_chain ? t - 1 : fuzz_in(fuzz, -1, t - 1);
        }
        rows->q_lens[i] = fuzz_once_in(fuzz, 16) ? fuzz_int32(fuzz, 9) : q_len;
        rows->at[i + 1] = rows->at[i] + q_len;
    }
    if (fuzz_once_in(fuzz, 20)) {
        rows->parents[fuzz_in(fuzz, 0, 23)] = fuzz_int32(fuzz, 6);
    }
}

void life_step(struct fuzz *fuzz, struct life *life)
{
    struct rows rows;
    pkv_step step = {0};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    choose_rows(fuzz, life, &rows);
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = rows.seqs,
                                    .q_lens = rows.q_lens,
                                    .token_ids = life->ids,
                                    .parents = rows.has_parents ? rows.parents : NULL,
                                    .num_rows = rows.num_rows,
                                    .num_required_rows = fuzz_in(fuzz, 0, rows.num_rows),
                                    .now_ns = (uint64_t)fuzz_in(fuzz, 0, 50)};
    const enum pkv_status fits = pkv_step_fits(life->cache, &batch, &shortage);
    const enum pkv_status begun = pkv_step_begin(life->cache, &batch, &step, &shortage);
    FUZZ_EXPECT(fits == begun);
    if (FUZZ_CALL(fuzz, ALLOWED_SEQ, begun)) {
        rows.num_joined = shortage.row;
        for (int32_t i = 0; i < rows.num_rows; i++) { /* as the library has read them */
            rows.at[i + 1] = rows.at[i] + rows.q_lens[i];
        }
        run_step(fuzz, life, step, &rows);
    }
}
