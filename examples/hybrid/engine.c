/* SPDX-License-Identifier: MIT
 *
 * engine.c: one step after the other.
 *
 *   clients leave, requests arrive, the waiting are admitted
 *   compose and begin                 preempts until the rows that must join have room
 *   forward                           layers.h
 *   verify, commit or drop            row.h
 *   rewind, fork, end */
#include "engine.h"

#include "cached.h"
#include "dice.h"
#include "layers.h"
#include "report.h"
#include "row.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 8, MAX_STEP_TOKENS = 64, MAX_STEPS = 100000, CHECK_EVERY = 16 };

struct engine {
    const struct hybrid *hybrid;
    const struct setup *setup;
    const struct workload *workload;
    struct engine_counts *counts;
    pkv_cache *cache;
    struct activations activations;
    struct layers layers;
    struct run *runs; /* in order of arrival, the answers of a request side by side */
    int32_t num_runs;
    int32_t num_started;
    int32_t now; /* in steps */
    uint64_t random;

    /* The step. */
    struct row rows[MAX_ROWS];
    int32_t num_rows;
    int32_t num_tokens;
    bool has_trees;
    pkv_seq seqs[MAX_ROWS];
    int32_t q_lens[MAX_ROWS];
    int32_t tokens[MAX_STEP_TOKENS];
    int32_t parents[MAX_STEP_TOKENS];
};

/* --- who runs */

static bool arrive_and_leave(struct engine *e)
{
    for (struct run *run = e->runs; run < e->runs + e->num_runs; run++) {
        const struct request *request = run->request;
        const bool is_first = run->choice == request->choices;
        if (run->state == RUN_ABSENT && request->arrival <= e->now) {
            run->state = is_first ? RUN_WAITING : RUN_UNFORKED;
        }
        const bool leaves = request->patience > 0 && e->now >= request->arrival + request->patience;
        if (leaves && run->state != RUN_ABSENT && run->state != RUN_ENDED) {
            run->was_cancelled = true;
            e->counts->runs.num_cancelled++;
            if (!run_end(e->cache, run)) {
                return false;
            }
        }
    }
    return true;
}

/* In order of arrival: behind the first that finds no room nobody is admitted. One that finds no
 * handle is passed by, since those behind it may have theirs. */
static bool admit_waiting(struct engine *e)
{
    for (struct run *run = e->runs; run < e->runs + e->num_runs; run++) {
        bool joined = false;
        if (run->state != RUN_WAITING) {
            continue;
        }
        if (!run_admit(e->cache, run, &e->counts->runs, &joined)) {
            return false;
        }
        if (joined) {
            run->started = e->num_started++;
        } else if (run->has_seq) {
            return true;
        }
    }
    return true;
}

static bool preempt(struct engine *e, struct run *run)
{
    e->counts->runs.num_preempted++;
    return run_preempt(e->cache, run, dice_chance(&e->random, 50));
}

static bool preempt_youngest(struct engine *e)
{
    struct run *youngest = NULL;
    for (struct run *run = e->runs; run < e->runs + e->num_runs; run++) {
        if (run->state == RUN_RUNNING && (youngest == NULL || run->started > youngest->started)) {
            youngest = run;
        }
    }
    return youngest == NULL ? complain("no room for a step without rows") : preempt(e, youngest);
}

/* --- the step */

static void compose(struct engine *e)
{
    const int32_t vocab_size = e->hybrid->model.vocab_size;
    const int32_t from = dice_between(&e->random, 0, e->num_runs - 1);
    e->num_rows = 0;
    e->num_tokens = 0;
    e->has_trees = false;
    for (int32_t i = 0; i < e->num_runs; i++) {
        struct run *run = &e->runs[(from + i) % e->num_runs];
        const int32_t room = e->setup->config.max_step_tokens - e->num_tokens;
        if (run->state == RUN_RUNNING && room > 0) {
            struct row *row = &e->rows[e->num_rows];
            row_compose(run, room, vocab_size, &e->random, row);
            row->first = e->num_tokens;
            row_write(row, e->tokens + row->first, e->parents + row->first);
            e->seqs[e->num_rows] = run->seq;
            e->q_lens[e->num_rows++] = row->q_len;
            e->num_tokens += row->q_len;
            e->has_trees = e->has_trees || row->is_tree;
        }
    }
}

/* Of the rows that did not join nothing happened. */
static void leave_out(struct engine *e, int32_t num_joined)
{
    e->num_rows = num_joined;
    e->num_tokens = e->rows[num_joined - 1].first + e->rows[num_joined - 1].q_len;
}

/* One try; *is_open false: some run waits that would have had a row. */
static bool try_begin(struct engine *e, pkv_step *step, bool *is_open)
{
    struct pkv_shortage shortage = {.size = sizeof shortage};
    const struct pkv_batch batch = {.size = sizeof batch,
                                    .seqs = e->seqs,
                                    .q_lens = e->q_lens,
                                    .num_rows = e->num_rows,
                                    .num_required_rows =
                                        dice_chance(&e->random, 50) ? e->num_rows : 1,
                                    .token_ids = e->tokens,
                                    .parents = e->has_trees ? e->parents : NULL};
    const enum pkv_status status = pkv_step_begin(e->cache, &batch, step, &shortage);
    *is_open = status == PKV_OK;
    if (status == PKV_OK) {
        leave_out(e, shortage.row);
        return true;
    }
    if (status == PKV_NOT_RESIDENT && shortage.row >= 0) {
        e->counts->runs.num_lost++;
        return run_preempt(e->cache, e->rows[shortage.row].run, true);
    }
    return status == PKV_NO_BLOCKS
               ? preempt_youngest(e)
               : complain("step: %s: %s", pkv_status_name(status), pkv_last_error());
}

/* Nobody is admitted between two tries: the room that a preempted run leaves is the step's. Without
 * rows no step is open. */
static bool begin(struct engine *e, pkv_step *step, bool *is_open)
{
    *is_open = false;
    for (compose(e); e->num_rows > 0 && !*is_open;) {
        if (!try_begin(e, step, is_open)) {
            return false;
        }
        if (!*is_open) {
            compose(e);
        }
    }
    return true;
}

/* Behind attention the bits of a tree's tokens may be others, as their keys are summed in another
 * order: there the first recurrent layer, which has no attention before it, is compared alone. */
static bool check_states(struct engine *e)
{
    const int32_t num_compared = e->setup->has_trees ? 1 : HYBRID_STATES;
    for (int32_t i = 0; i < e->num_rows; i++) {
        const struct run *run = e->rows[i].run;
        const struct whole_entry got = layers_reads(&e->layers, i);
        const struct whole_entry *right = &run->choice->states[run->length];
        const int32_t last = e->layers.states.cu_seqlens_q[i + 1] - 1;
        e->counts->num_apart += e->layers.states.writes[last] != e->layers.states.reads[i];
        for (int32_t r = 0; r < num_compared; r++) {
            e->counts->num_states++;
            if (got.hashes[r] != right->hashes[r]) {
                return complain("a row of the request of %d tokens begins with state %d, which is "
                                "not that of layer %d after %d tokens",
                                run->request->num_prompt, e->layers.states.reads[i], 2 * r,
                                run->length);
            }
        }
    }
    return true;
}

static bool count_copies(struct engine *e)
{
    for (int32_t group = GROUP_FULL; group <= GROUP_WINDOW; group++) {
        struct pkv_step_view view = {.size = sizeof view};
        if (pkv_step_describe(e->cache, e->layers.step, group, &view) != PKV_OK) {
            return complain("a step's pages: %s", pkv_last_error());
        }
        e->counts->num_copies += view.num_copies;
    }
    return true;
}

static bool count_snapshots(struct engine *e)
{
    struct pkv_group_usage usage = {.size = sizeof usage};
    if (pkv_cache_usage(e->cache, GROUP_STATE, &usage) != PKV_OK) {
        return complain("states of the cache: %s", pkv_last_error());
    }
    if (usage.cached > e->counts->max_snapshots) {
        e->counts->max_snapshots = usage.cached;
    }
    return true;
}

static bool compute(struct engine *e, pkv_step step)
{
    e->counts->num_steps++;
    e->counts->num_tokens += e->num_tokens;
    return layers_open(&e->layers, step, GROUP_STATE) && count_copies(e) && count_snapshots(e) &&
           check_states(e) &&
           forward(&e->hybrid->model, &e->activations, e->tokens, e->num_tokens, layers_attend,
                   &e->layers);
}

/* --- what a step brings */

static struct run *other_answer(const struct engine *e, struct run *run)
{
    const bool has_other = run->request->num_choices > 1 && run->choice == run->request->choices;
    return has_other && run + 1 < e->runs + e->num_runs && run[1].state == RUN_UNFORKED ? run + 1
                                                                                        : NULL;
}

static bool verify(struct engine *e)
{
    for (struct row *row = e->rows; row < e->rows + e->num_rows; row++) {
        if (row->run->state != RUN_RUNNING) {
            continue;
        }
        struct run *other = other_answer(e, row->run);
        const bool ends_prompt =
            row->reaches_end && row->run->num_tokens == row->run->request->num_prompt;
        if (!row_verify(e->hybrid, &e->activations, row, &e->counts->widest)) {
            return false;
        }
        if (other != NULL && ends_prompt && !other->request->forks_late &&
            !row_choose_other(e->hybrid, &e->activations, row, other, &e->counts->widest)) {
            return false;
        }
        e->counts->num_drafts += row->has_drafts ? row->q_len - 1 : 0;
        e->counts->num_accepted += row->has_drafts ? row->num_path - 1 : 0;
        e->counts->num_trees += row->is_tree;
    }
    return true;
}

/* The second answer begins where the prompt ends, with a token chosen already; or, late, with the
 * prompt's last token, which it computes itself. */
static bool fork_other(struct engine *e, struct run *run)
{
    struct run *other = other_answer(e, run);
    if (other == NULL || run->length < run->request->num_prompt ||
        (run->request->forks_late && dice_chance(&e->random, 50) && run->state == RUN_RUNNING)) {
        return true;
    }
    const int32_t at = run->request->num_prompt - run->request->forks_late;
    if (other->num_tokens == other->request->num_tokens) {
        return run_end(e->cache, other);
    }
    if (at < run_floor(run) || run->state != RUN_RUNNING) {
        other->state = RUN_WAITING;
        return true;
    }
    other->started = e->num_started++;
    return run_fork(e->cache, run, at, other, &e->counts->runs);
}

static bool settle(struct engine *e, const struct row *row, int32_t num_kept)
{
    struct run *run = row->run;
    const int32_t length = run->length + (num_kept > 0 ? row->num_path : 0);
    if (run->state != RUN_RUNNING || num_kept == 0) {
        return true;
    }
    run->length += num_kept;
    run->greatest = run->length > run->greatest ? run->length : run->greatest;
    run->num_tokens = row->num_tokens;
    if (!run_rewind(e->cache, run, length, &e->counts->runs) || !fork_other(e, run)) {
        return false;
    }
    if (run->num_tokens == run->request->num_tokens) {
        return run_end(e->cache, run) && fork_other(e, run);
    }
    const bool rewinds = run->length > run_floor(run) && dice_chance(&e->random, 5);
    return !rewinds ||
           run_rewind(e->cache, run, dice_between(&e->random, run_floor(run), run->length - 1),
                      &e->counts->runs);
}

/* What is kept of a row. Wrong drafts of a chain are dropped at once, or kept and then cut off; and
 * some rows are dropped for no reason. */
static int32_t num_kept_of(struct engine *e, const struct row *row)
{
    if (dice_chance(&e->random, 2)) {
        return 0;
    }
    const bool keeps_all = row->has_drafts && !row->is_tree && dice_chance(&e->random, 30);
    return keeps_all ? row->q_len : row->num_path;
}

/* The tokens that are kept of a row, in order. */
static int32_t *write_path(const struct row *row, int32_t num_kept, int32_t *path)
{
    for (int32_t i = 0; i < num_kept; i++) {
        *path++ = row->is_tree ? row->path[i] : i;
    }
    return path;
}

static bool commit(struct engine *e, pkv_step step)
{
    int32_t num_keep[MAX_ROWS];
    int32_t path[MAX_STEP_TOKENS];
    int32_t *next = path;
    for (int32_t i = 0; i < e->num_rows; i++) {
        num_keep[i] = num_kept_of(e, &e->rows[i]);
        next = write_path(&e->rows[i], num_keep[i], next);
    }
    const enum pkv_status status = e->has_trees
                                       ? pkv_step_commit_path(e->cache, step, num_keep, path)
                                       : pkv_step_commit(e->cache, step, num_keep);
    if (status != PKV_OK) {
        return complain("commit: %s", pkv_last_error());
    }
    for (int32_t i = 0; i < e->num_rows; i++) {
        if (!settle(e, &e->rows[i], num_keep[i])) {
            return false;
        }
    }
    return true;
}

static bool run_step(struct engine *e)
{
    pkv_step step = {0};
    bool is_open = false;
    const bool ok = begin(e, &step, &is_open);
    if (!is_open) {
        return ok;
    }
    if (dice_chance(&e->random, 1)) {
        e->counts->num_aborted++;
        return pkv_step_abort(e->cache, step) == PKV_OK;
    }
    if (!compute(e, step) || !arrive_and_leave(e)) {
        return false;
    }
    if (dice_chance(&e->random, 2)) {
        e->counts->num_aborted++;
        return pkv_step_abort(e->cache, step) == PKV_OK;
    }
    return verify(e) && commit(e, step);
}

/* --- the whole */

static bool create_runs(struct engine *e)
{
    for (int32_t r = 0; r < e->workload->count; r++) {
        e->num_runs += e->workload->requests[r].num_choices;
    }
    e->runs = calloc((size_t)e->num_runs, sizeof *e->runs);
    if (e->runs == NULL) {
        return complain("out of memory for %d runs", e->num_runs);
    }
    struct run *next = e->runs;
    for (int32_t r = 0; r < e->workload->count; r++) {
        const struct request *request = &e->workload->requests[r];
        for (int32_t c = 0; c < request->num_choices; c++) {
            *next++ = (struct run){.request = request,
                                   .choice = &request->choices[c],
                                   .num_tokens = request->num_prompt};
        }
    }
    return true;
}

static bool is_done(const struct engine *e)
{
    for (const struct run *run = e->runs; run < e->runs + e->num_runs; run++) {
        if (run->state != RUN_ENDED) {
            return false;
        }
    }
    return true;
}

static bool serve(struct engine *e)
{
    for (; !is_done(e); e->now++) {
        if (e->now > MAX_STEPS) {
            return complain("requests wait for ever");
        }
        if (!arrive_and_leave(e) || !admit_waiting(e) || !run_step(e)) {
            return false;
        }
        if (e->now % CHECK_EVERY == 0 && pkv_cache_check(e->cache) != 0) {
            return complain("broken invariants after step %d", e->now);
        }
    }
    return cached_check_empty(e->cache);
}

bool engine_serve(const struct hybrid *hybrid, struct setup *setup, const struct workload *workload,
                  uint64_t seed, struct engine_counts *counts)
{
    struct engine e = {
        .hybrid = hybrid, .setup = setup, .workload = workload, .counts = counts, .random = seed};
    bool ok = setup_create(setup, hybrid, &e.cache) &&
              activations_create(&hybrid->model, MAX_STEP_TOKENS, 1, &e.activations) &&
              layers_create(hybrid, &e.activations, e.cache, &e.layers) && create_runs(&e) &&
              serve(&e);
    if (pkv_cache_destroy(e.cache, true) != PKV_OK) {
        ok = complain("the cache would not go: %s", pkv_last_error());
    }
    layers_free(&e.layers);
    activations_free(&e.activations);
    free(e.runs);
    return ok;
}
