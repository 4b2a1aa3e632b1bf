/* SPDX-License-Identifier: MIT */
#include "states_case.h"

#include <string.h>

#define NUM_WORDS (STATES_BYTES / 8)

void states_init(struct runtime_case *c)
{
    prefix_init(c);
    c->groups[0].num_blocks = 128;
    *case_add_group(c) = c->groups[0];
    c->groups[1].sliding_window = 6;
    case_add_layer(c, 1);
    for (int g = 2; g < 4; g++) {
        *case_add_group(c) = (struct pkv_group_config){
            .kind = PKV_GROUP_STATE, .state_bytes = STATES_BYTES, .num_blocks = 24};
    }
    *case_add_layer(c, 2) = (struct pkv_layer_config){.group = 2};
    *case_add_layer(c, 3) = (struct pkv_layer_config){.group = 3};
    *case_add_layer(c, 2) = (struct pkv_layer_config){.group = 2};
    c->config.max_seq_len = 200;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint64_t next_hash(uint64_t hash, int layer, int32_t id)
{
    return mix(mix(hash, (uint64_t)(layer + 1)), (uint64_t)(uint32_t)id + 1);
}

/* The bytes of the state whose hash this is; 0 is the state before the first token. */
static void write_state(uint64_t hash, uint64_t words[NUM_WORDS])
{
    for (uint64_t w = 0; w < NUM_WORDS; w++) {
        words[w] = hash == 0 ? 0 : w == 0 ? hash : mix(hash, w);
    }
}

static uint64_t hash_of(const struct state_seq *seq, int layer, int32_t length)
{
    uint64_t hash = 0;
    for (int32_t i = 0; i < length; i++) {
        hash = next_hash(hash, layer, seq->ids[i]);
    }
    return hash;
}

enum pkv_status states_create(struct runtime_case *c, struct state_seq *seq, int32_t base,
                              int32_t max_rewind)
{
    const struct pkv_seq_options options = {.size = sizeof options, .max_rewind = max_rewind};
    for (int32_t i = 0; i < CASE_MAX_LENGTH; i++) {
        seq->ids[i] = base + i;
    }
    seq->length = 0;
    seq->max_rewind = max_rewind;
    return pkv_seq_create(c->cache, &options, &seq->handle);
}

enum pkv_status states_admit(struct runtime_case *c, struct state_seq *seq, int32_t num_tokens,
                             int32_t *num_cached)
{
    struct pkv_admission admission = {.size = sizeof admission};
    const enum pkv_status status = pkv_seq_admit(
        c->cache, seq->handle, PROMPT(seq->ids, num_tokens), 40, num_tokens, &admission, NULL);
    if (status == PKV_OK) {
        seq->length = admission.num_cached;
    }
    if (num_cached != NULL) {
        *num_cached = status == PKV_OK ? admission.num_cached : -1;
    }
    return status;
}

enum pkv_status states_fork(struct runtime_case *c, const struct state_seq *seq, int32_t at,
                            struct state_seq *child)
{
    pkv_seq handle;
    const enum pkv_status status = pkv_seq_fork(c->cache, seq->handle, at, 1, &handle);
    if (status == PKV_OK) {
        *child = *seq;
        child->handle = handle;
        child->length = at;
    }
    return status;
}

enum pkv_status states_truncate(struct runtime_case *c, struct state_seq *seq, int32_t length)
{
    const enum pkv_status status = pkv_seq_truncate(c->cache, seq->handle, length);
    if (status == PKV_OK) {
        seq->length = length;
    }
    return status;
}

void states_destroy(struct runtime_case *c, struct state_seq *seq)
{
    ASSERT_STATUS(PKV_OK, pkv_seq_destroy(c->cache, seq->handle));
    seq->handle = (pkv_seq){0};
}

enum pkv_status states_begin(struct runtime_case *c, const struct state_row *rows, int32_t num_rows,
                             pkv_step *step)
{
    pkv_seq seqs[CASE_MAX_ROWS];
    int32_t q_lens[CASE_MAX_ROWS];
    int32_t ids[STATES_MAX_TOKENS];
    int32_t num_tokens = 0;
    for (int32_t i = 0; i < num_rows; i++) {
        seqs[i] = rows[i].seq->handle;
        q_lens[i] = rows[i].q_len;
        for (int32_t t = 0; t < q_lens[i]; t++) {
            ids[num_tokens++] = rows[i].seq->ids[rows[i].seq->length + t];
        }
    }
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = seqs,
                                    .q_lens = q_lens,
                                    .num_rows = num_rows,
                                    .num_required_rows = num_rows,
                                    .token_ids = ids,
                                    .parents = rows[0].parents};
    return pkv_step_begin(c->cache, &batch, step, NULL);
}

static uint64_t *state_at(const struct pkv_state_view *view, int32_t layer, int32_t state)
{
    return (uint64_t *)(void *)((char *)view->first_layer +
                                (size_t)layer * view->layer_stride_bytes +
                                (size_t)state * view->state_stride_bytes);
}

/* One row of one layer, by its number in the model; the first wrong state is printed. */
static void run_row(const struct pkv_state_view *view, int32_t nth, int layer, int32_t i,
                    const struct state_row *row)
{
    uint64_t words[NUM_WORDS];
    const uint64_t hash = hash_of(row->seq, layer, row->seq->length);
    write_state(hash, words);
    if (memcmp(words, state_at(view, nth, view->reads[i]), sizeof words) != 0) {
        CU_FAIL("a state that is not its sequence's");
        fprintf(stderr, "layer %d, row %d, length %d\n", layer, i, row->seq->length);
    }
    uint64_t hashes[STATES_MAX_TOKENS];
    for (int32_t t = 0; t < row->q_len; t++) {
        const int32_t to = view->writes[view->cu_seqlens_q[i] + t];
        const int32_t parent = row->parents != NULL ? row->parents[t] : t - 1;
        hashes[t] = next_hash(parent < 0 ? hash : hashes[parent], layer,
                              row->seq->ids[row->seq->length + t]);
        if (to >= 0) {
            write_state(hashes[t], words);
            memcpy(state_at(view, nth, to), words, sizeof words);
        }
    }
}

/* No state is written twice, or read by one row and written by another. */
static void check_view(const struct pkv_state_view *view, int32_t num_states)
{
    int32_t writer[STATES_MAX_TOKENS];
    memset(writer, -1, sizeof writer);
    for (int32_t i = 0; i < view->num_rows; i++) {
        for (int32_t t = view->cu_seqlens_q[i]; t < view->cu_seqlens_q[i + 1]; t++) {
            const int32_t to = view->writes[t];
            CU_ASSERT(to >= -1 && to < num_states);
            CU_ASSERT(to < 0 || writer[to] == -1);
            if (to >= 0) {
                writer[to] = i;
            }
        }
        CU_ASSERT(view->cu_seqlens_q[i] == view->cu_seqlens_q[i + 1] ||
                  view->writes[view->cu_seqlens_q[i + 1] - 1] >= 0);
    }
    for (int32_t i = 0; i < view->num_rows; i++) {
        CU_ASSERT(view->reads[i] >= 0 && view->reads[i] <= num_states);
        CU_ASSERT(view->reads[i] == num_states || writer[view->reads[i]] == -1 ||
                  writer[view->reads[i]] == i);
    }
}

static struct state_counts run_group(struct runtime_case *c, const struct state_row *rows,
                                     pkv_step step, int32_t g)
{
    struct pkv_state_view view = {.size = sizeof view};
    struct state_counts counts = {0};
    ASSERT_STATUS(PKV_OK, pkv_step_describe_states(c->cache, step, g, &view));
    CU_ASSERT_EQUAL(view.state_bytes, STATES_BYTES);
    check_view(&view, c->groups[g].num_blocks);
    for (int32_t layer = 0, nth = 0; layer < c->config.num_layers; layer++) {
        for (int32_t i = 0; c->layers[layer].group == g && i < view.num_rows; i++) {
            run_row(&view, nth, layer, i, &rows[i]);
        }
        nth += c->layers[layer].group == g;
    }
    for (int32_t i = 0; i < view.num_rows; i++) {
        const int32_t end = view.cu_seqlens_q[i + 1];
        counts.num_in_place += end > view.cu_seqlens_q[i] && view.writes[end - 1] == view.reads[i];
        counts.num_zero_reads += view.reads[i] == c->groups[g].num_blocks;
    }
    for (int32_t t = 0; t < view.num_tokens; t++) {
        counts.num_writes += view.writes[t] >= 0;
    }
    return counts;
}

void states_run(struct runtime_case *c, const struct state_row *rows, pkv_step step,
                struct state_counts counts[CASE_MAX_GROUPS])
{
    static const float zeros[STATES_MAX_TOKENS * 8];
    float out[STATES_MAX_TOKENS * 8];
    const struct pkv_layer_io io = {
        .size = sizeof io, .q = zeros, .k = zeros, .v = zeros, .out = out};
    for (int32_t layer = 0; layer < c->config.num_layers; layer++) {
        if (c->groups[c->layers[layer].group].kind == PKV_GROUP_ATTENTION) {
            ASSERT_STATUS(PKV_OK, pkv_step_attend(c->cache, step, layer, &io));
        }
    }
    for (int32_t g = 0; g < c->config.num_groups; g++) {
        if (c->groups[g].kind == PKV_GROUP_STATE) {
            const struct state_counts found = run_group(c, rows, step, g);
            if (counts != NULL) {
                counts[g] = found;
            }
        }
    }
}

enum pkv_status states_commit(struct runtime_case *c, const struct state_row *rows,
                              int32_t num_rows, pkv_step step, const int32_t *num_keep)
{
    const enum pkv_status status = pkv_step_commit(c->cache, step, num_keep);
    for (int32_t i = 0; status == PKV_OK && i < num_rows; i++) {
        rows[i].seq->length += num_keep != NULL ? num_keep[i] : rows[i].q_len;
    }
    return status;
}

struct state_counts states_append(struct runtime_case *c, struct state_seq *seq, int32_t n)
{
    const struct state_row row = {seq, n, NULL};
    struct state_counts counts[CASE_MAX_GROUPS];
    pkv_step step;
    ASSERT_STATUS(PKV_OK, states_begin(c, &row, 1, &step));
    states_run(c, &row, step, counts);
    ASSERT_STATUS(PKV_OK, states_commit(c, &row, 1, step, NULL));
    return counts[2];
}

int32_t states_serve(struct runtime_case *c, struct state_seq *seq, int32_t base, int32_t length,
                     int32_t chunk)
{
    int32_t num_cached = -1;
    ASSERT_STATUS(PKV_OK, states_create(c, seq, base, 0));
    ASSERT_STATUS(PKV_OK, states_admit(c, seq, length, &num_cached));
    while (seq->length < length) {
        const int32_t left = length - seq->length;
        states_append(c, seq, left < chunk ? left : chunk);
    }
    return num_cached;
}
