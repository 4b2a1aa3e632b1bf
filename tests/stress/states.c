/* SPDX-License-Identifier: MIT
 *
 * states.c: the layers of state groups. The state of a layer after a token is what the layer and
 * the token's tag give, as if the recurrence were a hash of the text; so a state that is another
 * text's, is freed or written by another row shows as soon as a row begins with it. */
#include <string.h>

#include "stress/world.h"

static void state_after(uint64_t tag, int32_t layer, uint64_t words[STATE_WORDS])
{
    for (int32_t w = 0; w < STATE_WORDS; w++) {
        words[w] = tag == FIRST_TAG ? 0 : tag_mix(tag, 5000 + (uint64_t)(layer * STATE_WORDS + w));
    }
}

static void *state_at(const struct pkv_state_view *view, int32_t nth, int32_t state)
{
    return (char *)view->first_layer + (size_t)nth * view->layer_stride_bytes +
           (size_t)state * view->state_stride_bytes;
}

/* A row is run before the next one is looked at: were that to read what this one writes, it would
 * show. */
static void run_row(struct stepper *stepper, const struct row *row, int32_t i, int32_t layer,
                    int32_t nth, const struct pkv_state_view *view)
{
    struct world *world = stepper->world;
    uint64_t words[STATE_WORDS];
    state_after(row->before, layer, words);
    atomic_fetch_add(&world->tally.checked_states, 1);
    if (memcmp(words, state_at(view, nth, view->reads[i]), sizeof words) != 0) {
        world_fault(&world->wrong_states, "a state that is not its text's, of length", row->first,
                    layer);
    }
    for (int32_t t = view->cu_seqlens_q[i]; t < view->cu_seqlens_q[i + 1]; t++) {
        if (view->writes[t] >= 0) {
            state_after(stepper->forward.tags[t], layer, words);
            memcpy(state_at(view, nth, view->writes[t]), words, sizeof words);
        }
    }
}

/* Each state has one writer at most, and no other row reads it. */
static void check_writers(struct world *world, const struct pkv_state_view *view,
                          int32_t num_states)
{
    int32_t writer[MAX_STATES];
    memset(writer, -1, sizeof writer);
    for (int32_t i = 0; i < view->num_rows; i++) {
        for (int32_t t = view->cu_seqlens_q[i]; t < view->cu_seqlens_q[i + 1]; t++) {
            const int32_t to = view->writes[t];
            if (to < -1 || to >= num_states || (to >= 0 && writer[to] >= 0)) {
                world_fault(&world->wrong_states, "a state is written twice", to, i);
            } else if (to >= 0) {
                writer[to] = i;
            }
        }
    }
    for (int32_t i = 0; i < view->num_rows; i++) {
        const int32_t from = view->reads[i];
        if (from < 0 || from > num_states ||
            (from < num_states && writer[from] >= 0 && writer[from] != i)) {
            world_fault(&world->wrong_states, "a state is read and written by others", from, i);
        }
    }
}

/* What a later token, a later step or a rewind begins with is stored. */
static void check_stored(struct world *world, const struct open_step *step,
                         const struct pkv_state_view *view)
{
    for (int32_t i = 0; i < view->num_rows; i++) {
        const struct row *row = &step->rows[i];
        const int32_t num_stored = row->is_tree ? row->q_len : 1;
        for (int32_t t = row->q_len - num_stored; t < row->q_len; t++) {
            if (view->writes[row->at + t] < 0) {
                world_fault(&world->wrong_states, "no place for the state of token", t, i);
            }
        }
    }
}

void states_run(struct stepper *stepper, struct open_step *step, int32_t group)
{
    struct world *world = stepper->world;
    struct pkv_state_view view = {.size = sizeof view};
    const enum pkv_status status =
        pkv_step_describe_states(world->cache, step->handle, group, &view);
    int32_t nth = 0;
    if (!world_expect(world, "describe states", status, PKV_OK, PKV_OK, PKV_OK)) {
        return;
    }
    step->is_shown = true;
    if (view.num_rows != step->num_joined || view.num_tokens != step->num_tokens) {
        world_fault(&world->wrong_answers, "rows with states", view.num_rows, step->num_joined);
        return;
    }
    check_writers(world, &view, world->groups[group].num_blocks);
    check_stored(world, step, &view);
    for (int32_t layer = 0; layer < world->config.num_layers; layer++) {
        for (int32_t i = 0; i < view.num_rows && world->layers[layer].group == group; i++) {
            run_row(stepper, &step->rows[i], i, layer, nth, &view);
        }
        nth += world->layers[layer].group == group;
    }
}
