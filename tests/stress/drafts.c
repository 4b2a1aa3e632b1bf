/* SPDX-License-Identifier: MIT
 *
 * drafts.c: what rows of a step append and what is kept of them. A chain is the request's next
 * tokens; a tree of drafts has branches that go on with these tokens or with others, and a random
 * path of it is accepted. */
#include <string.h>

#include "stress/world.h"

enum { MAX_DRAFTS = 12, VOCABULARY = 50 };

static bool is_tree(struct stepper *stepper, const struct request *request, int32_t q_len)
{
    const int32_t most = world_has_states(stepper->world) ? request->max_rewind + 1 : MAX_DRAFTS;
    return q_len > 1 && q_len <= most && random_between(&stepper->random, 0, 1) == 0;
}

static int32_t choose_id(struct stepper *stepper, const struct row *row, int32_t depth)
{
    const bool is_other = row->is_tree && random_between(&stepper->random, 0, 2) == 0;
    return is_other ? random_between(&stepper->random, 0, VOCABULARY - 1)
                    : row->request->ids[row->first + depth];
}

static void add_tokens(struct stepper *stepper, struct open_step *step, const struct row *row)
{
    int32_t depths[MAX_CHUNK];
    uint64_t *tags = stepper->forward.tags + row->at;
    for (int32_t t = 0; t < row->q_len; t++) {
        const int32_t low = row->is_tree && t > 4 ? t - 4 : 0;
        const int32_t parent = row->is_tree ? random_between(&stepper->random, low, t) - 1 : t - 1;
        depths[t] = parent < 0 ? 0 : depths[parent] + 1;
        const int32_t id = choose_id(stepper, row, depths[t]);
        tags[t] = request_next_tag(row->request, parent < 0 ? row->before : tags[parent],
                                   row->first + depths[t], id);
        step->ids[row->at + t] = id;
        step->parents[row->at + t] = parent;
    }
}

void drafts_add_row(struct stepper *stepper, struct open_step *step, struct request *request)
{
    uint64_t tags[MAX_LENGTH];
    const int32_t room = MAX_LENGTH - request->length;
    const int32_t draw = random_between(&stepper->random, 0, 3);
    const int32_t limit = draw == 0 ? MAX_CHUNK : draw == 1 ? MAX_REWIND + 1 : 3;
    const int32_t q_len = random_between(&stepper->random, 1, room < limit ? room : limit);
    const int32_t i = step->num_rows++;
    request_tags(request, request->length, tags);
    step->rows[i] =
        (struct row){.request = request,
                     .first = request->length,
                     .q_len = q_len,
                     .at = step->num_tokens,
                     .before = request->length > 0 ? tags[request->length - 1] : FIRST_TAG,
                     .is_tree = !step->is_last && is_tree(stepper, request, q_len),
                     .may_be_lost = request->may_be_lost};
    step->seqs[i] = request->seq;
    step->q_lens[i] = q_len;
    step->has_tree = step->has_tree || step->rows[i].is_tree;
    add_tokens(stepper, step, &step->rows[i]);
    step->num_tokens += q_len;
}

/* How many tokens of a chain: all, or fewer, but as many as there are states of. Where one is
 * updated in place, that is all or none, and the sequence has lost its state. */
static int32_t choose_length(struct stepper *stepper, const struct row *row)
{
    int32_t least = 0;
    if (random_between(&stepper->random, 0, 2) > 0) {
        return row->q_len;
    }
    if (world_has_states(stepper->world)) {
        least = row->q_len - row->request->max_rewind;
        if (random_between(&stepper->random, 0, 15) == 0) {
            return 0;
        }
    }
    return random_between(&stepper->random, least > 0 ? least : 0, row->q_len);
}

void drafts_choose(struct stepper *stepper, struct open_step *step, int32_t i)
{
    const struct row *row = &step->rows[i];
    const int32_t *parents = step->parents + row->at;
    int32_t *path = step->path + row->at;
    int32_t leaf = step->is_last ? row->q_len - 1 : choose_length(stepper, row) - 1;
    int32_t depth = 0;
    if (row->is_tree) {
        leaf = random_between(&stepper->random, -1, row->q_len - 1);
    }
    for (int32_t t = leaf; t >= 0; t = parents[t]) {
        depth++;
    }
    step->keep[i] = depth;
    for (int32_t t = leaf; t >= 0; t = parents[t]) {
        path[--depth] = t;
    }
}

void drafts_keep(const struct stepper *stepper, const struct open_step *step, int32_t i,
                 int32_t keep)
{
    const struct row *row = &step->rows[i];
    struct request *request = row->request;
    const int32_t first_state = row->first + row->q_len - request->max_rewind;
    for (int32_t k = 0; k < keep; k++) {
        const int32_t from = row->at + step->path[row->at + k];
        /* The bits of a tree's outputs are not those of a chain's, but its keys' are. */
        request->digests[row->first + k] = row->is_tree ? 0 : stepper->forward.digests[from];
        request->ids[row->first + k] = step->ids[from];
    }
    request->length += keep;
    request->high = request->length > request->high ? request->length : request->high;
    if (keep > 0) {
        request->may_be_lost = false;
        request->first_state =
            first_state > request->first_state ? first_state : request->first_state;
    } else if (i < step->num_joined && step->is_shown && request->max_rewind == 0 &&
               row->first > 0) {
        request->may_be_lost = true;
    }
}

static int32_t pack(const struct open_step *step, int32_t *path)
{
    int32_t count = 0;
    for (int32_t i = 0; i < step->num_joined; i++) {
        memcpy(path + count, step->path + step->rows[i].at, (size_t)step->keep[i] * sizeof path[0]);
        count += step->keep[i];
    }
    return count;
}

/* A path with one wrong entry, or one token too many: nothing has changed then. */
static void commit_wrongly(struct stepper *stepper, const struct open_step *step)
{
    struct world *world = stepper->world;
    int32_t path[MAX_BATCH] = {0};
    int32_t keep[MAX_ROWS];
    const int32_t count = pack(step, path);
    memcpy(keep, step->keep, sizeof keep);
    if (count > 0 && random_between(&stepper->random, 0, 1) == 0) {
        int32_t *entry = &path[random_between(&stepper->random, 0, count - 1)];
        *entry += random_between(&stepper->random, 0, 1) == 0 ? MAX_CHUNK : -MAX_CHUNK;
    } else {
        const int32_t row = random_between(&stepper->random, 0, step->num_joined - 1);
        keep[row] = step->q_lens[row] + 1;
    }
    world_expect(world, "commit of a wrong path",
                 pkv_step_commit_path(world->cache, step->handle, keep, path), PKV_INVALID_ARGUMENT,
                 PKV_INVALID_ARGUMENT, PKV_INVALID_ARGUMENT);
    atomic_fetch_add(&world->tally.refusals, 1);
}

static void count_trees(struct world *world, const struct open_step *step)
{
    for (int32_t i = 0; i < step->num_joined; i++) {
        atomic_fetch_add(&world->tally.trees, step->rows[i].is_tree && step->keep[i] > 0);
    }
}

enum pkv_status drafts_commit(struct stepper *stepper, const struct open_step *step)
{
    pkv_cache *cache = stepper->world->cache;
    int32_t path[MAX_BATCH];
    bool is_plain = random_between(&stepper->random, 0, 3) > 0;
    for (int32_t i = 0; i < step->num_joined; i++) {
        for (int32_t k = 0; k < step->keep[i]; k++) {
            is_plain = is_plain && step->path[step->rows[i].at + k] == k;
        }
    }
    if (step->num_joined > 0 && random_between(&stepper->random, 0, 7) == 0) {
        commit_wrongly(stepper, step);
    }
    count_trees(stepper->world, step);
    (void)pack(step, path);
    return is_plain ? pkv_step_commit(cache, step->handle, step->keep)
                    : pkv_step_commit_path(cache, step->handle, step->keep, path);
}
