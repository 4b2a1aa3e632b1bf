/* SPDX-License-Identifier: MIT
 *
 * stepper.c: the one thread that runs steps, and the end of the world. In most steps it holds the
 * rows' locks while it begins and ends the step, so that clients know for sure what is open; in the
 * others begin, commit and abort race with the threads that destroy the rows. */
#include <string.h>

#include "stress/world.h"

struct row {
    struct request *request;
    int32_t first; /* its length */
    int32_t q_len;
    int32_t at; /* of its tokens in the batch */
};

struct open_step {
    pkv_step handle;
    bool is_racing;
    int32_t num_rows; /* picked */
    int32_t num_joined;
    int32_t num_tokens;
    struct row rows[MAX_ROWS];
    pkv_seq seqs[MAX_ROWS];
    int32_t q_lens[MAX_ROWS], keep[MAX_ROWS], ids[MAX_BATCH];
};

static void add_row(struct stepper *stepper, struct open_step *step, struct request *request)
{
    uint64_t tags[MAX_LENGTH];
    const int32_t room = MAX_LENGTH - request->length;
    const int32_t limit = random_between(&stepper->random, 0, 2) > 0 ? 3 : MAX_CHUNK;
    const int32_t q_len = random_between(&stepper->random, 1, room < limit ? room : limit);
    const int32_t i = step->num_rows++;
    step->rows[i] = (struct row){request, request->length, q_len, step->num_tokens};
    step->seqs[i] = request->seq;
    step->q_lens[i] = q_len;
    request_tags(request, request->length + q_len, tags);
    memcpy(step->ids + step->num_tokens, request->ids + request->length,
           (size_t)q_len * sizeof step->ids[0]);
    memcpy(stepper->forward.tags + step->num_tokens, tags + request->length,
           (size_t)q_len * sizeof tags[0]);
    step->num_tokens += q_len;
}

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
            add_row(stepper, step, request);
            request->state = step->is_racing ? REQUEST_RACING : REQUEST_IDLE;
        }
        if (!is_picked || step->is_racing) {
            pthread_mutex_unlock(&request->lock);
        }
    }
}

/* The row is out of the step with so many more tokens. Its lock is held. */
static void settle(struct stepper *stepper, const struct row *row, int32_t keep)
{
    struct request *request = row->request;
    if (request->state == REQUEST_GONE) {
        request->state = REQUEST_ABSENT;
        request->seq.id = 0;
        request->length = request->high = 0;
        memset(request->digests, 0, sizeof request->digests);
        return;
    }
    request->state = REQUEST_IDLE;
    request->length += keep;
    request->high = request->length > request->high ? request->length : request->high;
    memcpy(request->digests + row->first, stepper->forward.digests + row->at,
           (size_t)keep * sizeof request->digests[0]);
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

/* Blocks are short: one of the rows that nobody destroyed gives its own back. */
static void preempt(struct stepper *stepper, struct open_step *step)
{
    struct request *request = step->rows[0].request;
    if (request->state != REQUEST_IDLE) {
        return;
    }
    world_expect(stepper->world, "truncate to 0",
                 pkv_seq_truncate(stepper->world->cache, request->seq, 0), PKV_OK, PKV_OK, PKV_OK);
    request->length = request->high = 0;
    memset(request->digests, 0, sizeof request->digests);
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
    int32_t parents[MAX_BATCH];
    for (int32_t i = 0; i < step->num_rows; i++) {
        for (int32_t k = 0; k < step->q_lens[i]; k++) {
            parents[step->rows[i].at + k] = k - 1;
        }
    }
    batch.parents = random_between(&stepper->random, 0, 1) ? parents : NULL;
    batch.num_required_rows = random_between(&stepper->random, 0, step->num_rows);
    batch.now_ns = atomic_fetch_add(&world->now_ns, 1);
    const enum pkv_status status = pkv_step_begin(world->cache, &batch, &step->handle, &shortage);
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
    const int32_t last = world->config.num_groups - 1;
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

/* Every layer, or in a step that will be aborted perhaps not every one; true when to commit. */
static bool attend(struct stepper *stepper, struct open_step *step)
{
    struct world *world = stepper->world;
    const int32_t all = world->config.num_layers;
    const bool is_kept = random_between(&stepper->random, 0, 7) > 0;
    const int32_t num_layers = is_kept ? all : random_between(&stepper->random, 0, all);
    if (random_between(&stepper->random, 0, 63) == 0) {
        world_quiet(world);
    }
    describe(stepper, step);
    stepper->forward.by_tasks = random_between(&stepper->random, 0, 3) == 0;
    world_expect(
        world, "attend",
        forward_run(&stepper->forward, world->cache, step->handle, num_layers, step->num_tokens),
        PKV_OK, PKV_OK, PKV_OK);
    return is_kept;
}

/* By the number of tokens, or as a path: the rows are chains, so their tokens stay where they are,
 * and replays find the same bits. */
static enum pkv_status commit(struct stepper *stepper, const struct open_step *step)
{
    pkv_cache *cache = stepper->world->cache;
    int32_t path[MAX_BATCH];
    int32_t count = 0;
    if (random_between(&stepper->random, 0, 3) > 0) {
        return pkv_step_commit(cache, step->handle, step->keep);
    }
    for (int32_t i = 0; i < step->num_joined; i++) {
        for (int32_t k = 0; k < step->keep[i]; k++) {
            path[count++] = k;
        }
    }
    return pkv_step_commit_path(cache, step->handle, step->keep, path);
}

static void finish(struct stepper *stepper, struct open_step *step, bool is_kept)
{
    struct world *world = stepper->world;
    for (int32_t i = 0; i < step->num_rows; i++) {
        const int32_t limit = i < step->num_joined && is_kept ? step->q_lens[i] : 0;
        const bool all = random_between(&stepper->random, 0, 2) > 0;
        step->keep[i] = all ? limit : random_between(&stepper->random, 0, limit);
    }
    if (!step->is_racing) {
        lock_rows(step);
    }
    const enum pkv_status status =
        is_kept ? commit(stepper, step) : pkv_step_abort(world->cache, step->handle);
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
        const struct row *row = &step.rows[i];
        const bool is_joined = i < step.num_joined;
        if (is_joined || step.is_racing) {
            settle(stepper, row, is_joined ? step.keep[i] : 0);
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

/* One more token: it sees what the survivor adopted as well as what it computed. */
static void append_last(struct stepper *stepper, struct request *request)
{
    struct world *world = stepper->world;
    struct open_step step = {0};
    add_row(stepper, &step, request);
    if (begin(stepper, &step)) {
        world_expect(world, "attend",
                     forward_run(&stepper->forward, world->cache, step.handle,
                                 world->config.num_layers, step.num_tokens),
                     PKV_OK, PKV_OK, PKV_OK);
        const int32_t keep = step.num_joined > 0 ? step.q_lens[0] : 0;
        world_expect(world, "commit", pkv_step_commit(world->cache, step.handle, NULL), PKV_OK,
                     PKV_OK, PKV_OK);
        settle(stepper, &step.rows[0], keep);
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
