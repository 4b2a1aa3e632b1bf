/* SPDX-License-Identifier: MIT
 *
 * free_runs.h: free ids as runs of adjacent ones, so that who takes several finds them side by side
 * and who grows finds room behind what he has. A run is as long as can be: neither the id before it
 * nor the one behind it is free. Runs are in classes by the power of two of their length; all from
 * 2^(NUM_CLASSES - 1) on are in the last. The longest run is the lowest of the highest class.
 *
 *   lengths[id] = 0 exactly when id is not free
 *   lengths[first id of a run] = lengths[its last id] = its length
 *   starts[class] = the first ids of the runs of that class,  bit c of classes = starts[c] has any
 *   longest = the longest run, longest_class = its class; -1 and 0 ids, -1 when no id is free
 *
 * What is found depends on which ids are free and on nothing else: not on the order in which they
 * became free. O(1) for each id that is put or taken, O(levels of a set) for each run. No call
 * takes memory but create. */
#ifndef PKV_ALLOC_FREE_RUNS_H
#define PKV_ALLOC_FREE_RUNS_H

#include "alloc/id_set.h"
#include "base/hooks.h"
#include "base/report.h"

#define FREE_RUNS_NUM_CLASSES 12
#define FREE_RUNS_LAST_CLASS (FREE_RUNS_NUM_CLASSES - 1)

/* Ids [first, first + count). */
struct id_run {
    int32_t first;
    int32_t count;
};

struct free_runs {
    int32_t *lengths; /* [num_ids] */
    uint64_t *words;  /* of all sets */
    struct id_set starts[FREE_RUNS_NUM_CLASSES];
    uint32_t classes;
    struct id_run longest;
    int32_t longest_class;
    int32_t num_ids;
    int32_t num_free;
};

/* Bytes that runs of num_ids ids take through the hooks. */
size_t free_runs_bytes(int32_t num_ids);

/* All ids are free. False when there is no memory; free it in either case. */
bool free_runs_create(struct free_runs *runs, int32_t num_ids, const struct pkv_hooks *hooks);
void free_runs_destroy(struct free_runs *runs, const struct pkv_hooks *hooks);

static inline bool free_runs_has(const struct free_runs *runs, int32_t id)
{
    return runs->lengths[id] != 0;
}

/* The run from a free id to the end. */
struct id_run free_runs_from(const struct free_runs *runs, int32_t id);

/* Ids of one run, all free, are free no more. */
void free_runs_take(struct free_runs *runs, struct id_run taken);

/* free_runs_put where it is not at the begin of the longest run, or changes its class. */
void free_runs_join(struct free_runs *runs, int32_t id);

static inline void free_runs_set_length(struct free_runs *runs, int32_t first, int32_t length)
{
    runs->lengths[first] = length;
    runs->lengths[first + length - 1] = length;
}

/* The longest run, still in its class, has another first id. */
static inline void free_runs_set_longest(struct free_runs *runs, int32_t first, int32_t length)
{
    const int32_t before = runs->longest.first;
    runs->longest = (struct id_run){first, length};
    free_runs_set_length(runs, first, length);
    id_set_move(&runs->starts[runs->longest_class], before, first);
}

/* The id becomes free. */
static inline void free_runs_put(struct free_runs *runs, int32_t id)
{
    const int32_t length = runs->longest.count + 1;
    const bool is_alone = id == 0 || runs->lengths[id - 1] == 0;
    if (is_alone && runs->longest.first == id + 1 &&
        (length >> runs->longest_class == 1 || runs->longest_class == FREE_RUNS_LAST_CLASS)) {
        runs->num_free++;
        free_runs_set_longest(runs, id, length);
    } else {
        free_runs_join(runs, id);
    }
}

/* The first id of the longest run, which is free no more; -1 when there is none. */
static inline int32_t free_runs_take_first(struct free_runs *runs)
{
    const int32_t first = runs->longest.first;
    const int32_t length = runs->longest.count - 1;
    if (length > 0 && length >> runs->longest_class > 0) {
        runs->lengths[first] = 0;
        runs->num_free--;
        free_runs_set_longest(runs, first + 1, length);
    } else if (first >= 0) {
        free_runs_take(runs, (struct id_run){first, 1});
    }
    return first;
}

/* Reports what is broken. O(num_ids). */
void free_runs_check(const struct free_runs *runs, struct report *report);

#endif
