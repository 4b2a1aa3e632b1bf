/* SPDX-License-Identifier: MIT
 *
 * stepper.c: the one thread that runs steps, and the end of the world. In most steps it holds the
 * rows' locks while it begins and ends the step, so that clients know for sure what is open; in the
 * others begin, commit and abort race with the threads that destroy the rows. */
#include "stress/world.h"

/* Rows whose locks are held, unless they are to race. */
static void pick_rows(struct stepper *stepper, struct open_step *step)
{
    const int32_t first = random_between(&stepper->random, 0, NUM_REQUESTS - 1);
    const int32_t wanted = random_between(&stepper->random, 1, MAX_ROWS);
    for (int32_t i = 0; i < NUM_REQUESTS && step->num_rows < wanted; i++) {
        struct request *request = &stepper->world->requests[(first + i) % NUM_REQUESTS];
        if (pthread_mutex_trylock(&request->lock) != 0) {
            continue;
        }
        const bool is_picked = request->state == REQUEST_IDLE && request->length < MAX_LENGTH;
        if (is_picked) {
            drafts_add_row(stepper, step, request);
            request->state = step->is_racing ? REQUEST_RACING : REQUEST_IDLE;
        }
        if (!is_picked || step->is_racing) {
            pthread_mutex_unlock(&request->lock);
        }
    }
}

/* The row is out of the step with so many more tokens. Its lock is held. */
static void settle(const struct stepper *stepper, const struct open_step *step, int32_t row,
                   int32_t keep)
{
    struct request *request = step->rows[row].request;
    if (request->state == REQUEST_GONE) {
        request_drop(request);
        return;
    }
    request->state = REQUEST_IDLE;
    drafts_keep(stepper, step, row, keep);
}

/* In the order of the requests, which is that of the rows but for where it begins. */
static void lock_rows(struct open_step *step)
{
    int32_t first = 0;
    for (int32_t i = 1; i < step->num_rows; i++) {
        first = step->rows[i].request < step->rows[first].request ? i : first;
    }
    for (int32_t i = 0; i < step->num_rows; i++) {
        pthread_mutex_lock(&step->rows[(first + i) % step->num_rows].request->lock);
    }
}

static void unlock_rows(struct open_step *step)
{
    for (int32_t i = 0; i < step->num_rows; i++) {
        pthread_mutex_unlock(&step->rows[i].request->lock);
    }
}

/* Blocks are short, or a state is lost: a row that nobody destroyed gives its own back. */
static void preempt(struct stepper *stepper, struct open_step *step)
{
    struct request *request = step->rows[step->to_preempt].request;
    if (request->state != REQUEST_IDLE) {
        return;
    }
    world_expect(stepper->world, "truncate to 0",
                 pkv_seq_truncate(stepper->world->cache, request->seq, 0), PKV_OK, PKV_OK, PKV_OK);
    request_empty(request);
}

/* A row whose state was dropped with an earlier step, or may have been, does not begin again. */
static void find_lost(struct stepper *stepper, struct open_step *step, int32_t row)
{
    struct world *world = stepper->world;
    if (row < 0 || row >= step->num_rows || !step->rows[row].may_be_lost) {
        world_fault(&world->wrong_answers, "a state is lost of row", row, -1);
        return;
    }
    step->to_preempt = row;
    atomic_fetch_add(&world->tally.lost_states, 1);
}

static bool begin(struct stepper *stepper, struct open_step *step)
{
    struct world *world = stepper->world;
    struct pkv_batch batch = {.size = sizeof batch,
                              .seqs = step->seqs,
                              .q_lens = step->q_lens,
                              .token_ids = step->ids,
                              .num_rows = step->num_rows};
    struct pkv_shortage shortage = {.size = sizeof shortage};
    const bool has_parents = step->has_tree || random_between(&stepper->random, 0, 1);
    batch.parents = has_parents ? step->parents : NULL;
    batch.num_required_rows = random_between(&stepper->random, 0, step->num_rows);
    batch.now_ns = atomic_fetch_add(&world->now_ns, 1);
    enum pkv_status status = pkv_step_begin(world->cache, &batch, &step->handle, &shortage);
    if (status == PKV_NOT_RESIDENT) {
        find_lost(stepper, step, shortage.row);
        status = PKV_NO_BLOCKS;
    }
    const enum pkv_status raced = step->is_racing ? PKV_STALE_HANDLE : PKV_OK;
    const bool is_begun =
        world_expect(world, "begin", status == PKV_NEVER_FITS ? PKV_NO_BLOCKS : status, PKV_OK,
                     PKV_NO_BLOCKS, raced);
    step->num_joined = is_begun ? shortage.row : 0;
    if (is_begun) {
        step->num_tokens =
            step->num_joined < step->num_rows ? step->rows[step->num_joined].at : step->num_tokens;
        atomic_fetch_add(&world->tally.short_steps, step->num_joined < step->num_rows);
    }
    for (int32_t i = 0; i < step->num_joined && !step->is_racing; i++) {
        step->rows[i].request->state = REQUEST_OPEN;
    }
    return is_begun;
}

/* What the step says of itself. */
static void describe(struct stepper *stepper, const struct open_step *step)
{
    struct world *world = stepper->world;
    struct pkv_step_view view = {.size = sizeof view};
    const int32_t last = world->num_attention_groups - 1;
    world_expect(world, "describe a step",
                 pkv_step_describe(world->cache, step->handle, last, &view), PKV_OK, PKV_OK,
                 PKV_OK);
    struct pkv_state_view states = {.size = sizeof states};
    world_expect(world, "describe states, of which there are none",
                 pkv_step_describe_states(world->cache, step->handle, last, &states),
                 PKV_INVALID_ARGUMENT, PKV_INVALID_ARGUMENT, PKV_INVALID_ARGUMENT);
    if (view.num_rows != step->num_joined || view.num_tokens != step->num_tokens) {
        world_fault(&world->wrong_answers, "rows described", view.num_rows, step->num_joined);
    }
    for (int32_t i = 0; i < view.num_rows; i++) {
        if (view.kv_lens[i] != step->rows[i].first + step->rows[i].q_len) {
            world_fault(&world->wrong_answers, "keys described", view.kv_lens[i], step->q_lens[i]);
        }
    }
}

static void run_layers(struct stepper *stepper, const struct open_step *step, int32_t num_layers)
{
    stepper->forward.by_tasks = random_between(&stepper->random, 0, 3) == 0;
    world_expect(stepper->world, "attend",
                 forward_run(&stepper->forward, stepper->world->cache, step->handle, num_layers,
                             step->num_tokens),
                 PKV_OK, PKV_OK, PKV_OK);
}

/* Every layer, or in a step that will be aborted perhaps not every one; true when to commit. */
static bool attend(struct stepper *stepper, struct open_step *step)
{
    struct world *world = stepper->world;
    const int32_t all = world->config.num_layers;
    const bool is_kept = step->is_last || random_between(&stepper->random, 0, 7) > 0;
    const int32_t num_layers = is_kept ? all : random_between(&stepper->random, 0, all);
    if (random_between(&stepper->random, 0, 63) == 0) {
        world_quiet(world);
    }
    describe(stepper, step);
    run_layers(stepper, step, num_layers);
    for (int32_t g = world->num_attention_groups; g < world->config.num_groups; g++) {
        if (is_kept || random_between(&stepper->random, 0, 1) == 0) {
            states_run(stepper, step, g);
        }
    }
    return is_kept;
}

static void finish(struct stepper *stepper, struct open_step *step, bool is_kept)
{
    struct world *world = stepper->world;
    for (int32_t i = 0; i < step->num_joined && is_kept; i++) {
        drafts_choose(stepper, step, i);
    }
    if (!step->is_racing) {
        lock_rows(step);
    }
    const enum pkv_status status =
        is_kept ? drafts_commit(stepper, step) : pkv_step_abort(world->cache, step->handle);
    world_expect(world, is_kept ? "commit" : "abort", status, PKV_OK, PKV_OK, PKV_OK);
    atomic_fetch_add(is_kept ? &world->tally.steps : &world->tally.aborts, 1);
}

static void step_once(struct stepper *stepper)
{
    struct open_step step = {.is_racing = random_between(&stepper->random, 0, 3) == 0};
    pick_rows(stepper, &step);
    const bool is_begun = begin(stepper, &step);
    if (is_begun) {
        if (!step.is_racing) {
            unlock_rows(&step);
        }
        finish(stepper, &step, attend(stepper, &step));
    }
    if (step.is_racing) {
        lock_rows(&step);
    }
    for (int32_t i = 0; i < step.num_rows; i++) {
        if (i < step.num_joined || step.is_racing) {
            settle(stepper, &step, i, step.keep[i]);
        }
    }
    if (!is_begun && step.num_rows > 0) {
        preempt(stepper, &step);
    }
    unlock_rows(&step);
}

void *stepper_live(void *argument)
{
    struct stepper *stepper = argument;
    struct world *world = stepper->world;
    for (int64_t i = 0; !atomic_load(&world->is_over); i++) {
        atomic_store(&world->doing[NUM_CLIENTS], "step");
        step_once(stepper);
        if (i % 64 == 0) {
            atomic_store(&world->doing[NUM_CLIENTS], "quiet moment");
            world_quiet(world);
        }
        atomic_fetch_add(&world->progress[NUM_CLIENTS], 1);
    }
    return NULL;
}

/* A few more tokens: they see what the survivor adopted as well as what it computed. */
static void append_last(struct stepper *stepper, struct request *request)
{
    struct open_step step = {.is_last = true};
    drafts_add_row(stepper, &step, request);
    if (begin(stepper, &step)) {
        finish(stepper, &step, attend(stepper, &step));
        settle(stepper, &step, 0, step.keep[0]);
        unlock_rows(&step);
    }
}

void stepper_finish(struct stepper *stepper)
{
    struct world *world = stepper->world;
    for (int32_t tenant = 0; tenant < NUM_TENANTS; tenant++) {
        const struct request request = {.tenant = tenant};
        struct pkv_namespace_field field;
        (void)request_options(&request, &field);
        world_expect(world, "quota", pkv_namespace_quota(world->cache, &field, 0), PKV_OK, PKV_OK,
                     PKV_OK);
    }
    for (int32_t i = 0; i < NUM_REQUESTS; i++) {
        struct request *request = &world->requests[i];
        if (request->state != REQUEST_IDLE) {
            continue;
        }
        if (request->length < MAX_LENGTH) {
            append_last(stepper, request);
        }
        replay_check(&stepper->replay, request, request->length);
        world_expect(world, "destroy", pkv_seq_destroy(world->cache, request->seq), PKV_OK, PKV_OK,
                     PKV_OK);
        request->state = REQUEST_GONE;
    }
}
